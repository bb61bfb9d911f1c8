"""What the aggregator holds: bytes for each parameter, whatever the workers and clients, and for each idle device and
each silent connection. After a crash all devices come back while a round goes on.
"""

import os
import re
import resource
import socket
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import harness
from harness import NetTest, external, memory_of
from peer import Peer

DEVICES = int(os.environ.get("FEDGE_NET_IDLE", "60"))
THREADS = int(harness.NETWORK_THREADS)
MOST_BYTES = 32 * 1024 * (3 if harness.SANITIZED else 1)
MOST_PER_PARAMETER = 20
SMALL, LARGE = 500_000, 6_000_000  # so far apart that what is in queues hardly counts


@unittest.skipIf(harness.SANITIZED, "a sanitizer's own memory is most of it")
class Memory(NetTest):
    def peak(self, parameters, workers, clients):
        """Memory in two rounds in which all clients fetch the model and send an update at the same time."""
        federation = self.federation(clients=clients)
        external(federation, parameters)
        aggregator = federation.start_aggregator(workers=workers)
        update = bytes(4 * parameters)
        failed = []

        def play(index):
            try:
                with Peer(federation, index) as peer:
                    peer.hello()
                    for _ in range(2):
                        task = peer.next_task()
                        peer.fetch(task["model"], task["model-size"])
                        peer.upload(update, codec="none")
            except Exception as error:  # told by the thread that waits
                failed.append(error)

        threads = [threading.Thread(target=play, args=(index,)) for index in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        aggregator.wait_event("round-closed", 2)  # and not the last, after which it ends
        peak = memory_of(aggregator.pid, "VmHWM")
        aggregator.stop()
        return peak

    def test_a_parameter_takes_20_bytes_at_most(self):
        for workers, clients in ((1, 2), (4, 2), (4, 4)):
            with self.subTest(workers=workers, clients=clients):
                small, large = (self.peak(parameters, workers, clients) for parameters in (SMALL, LARGE))
                self.assertLessEqual((large - small) / (LARGE - SMALL), MOST_PER_PARAMETER)


class Idle(NetTest):
    def connect(self, federation, indices, resume=None):
        def one(index):
            peer = Peer(federation, index, resume=resume[index] if resume else None)
            peer.hello()
            return peer
        with ThreadPoolExecutor(4) as pool:
            peers = list(pool.map(one, indices))
        for peer in peers:
            self.addCleanup(peer.close)
        return peers

    def waiting(self, devices, clients=1):
        """Makes a federation whose first round waits for all [devices]."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        keys = harness.make_keys(harness.make_folder() + "/keys", devices)
        return self.federation(keys=keys, clients=clients, rounds__min_train_nodes=devices,
                               rounds__min_available_nodes=devices)

    @unittest.skipIf(harness.SANITIZED, "a sanitizer's own memory is most of it")
    def test_an_idle_device_takes_32_kb_at_most(self):
        few, many = 100, 300
        federation = self.waiting(many + 1)
        aggregator = federation.start_aggregator()
        self.connect(federation, range(few))  # and what is taken once
        before = memory_of(aggregator.pid)
        self.connect(federation, range(few, many))
        self.assertLess((memory_of(aggregator.pid) - before) / (many - few), MOST_BYTES)

    def test_clients_come_back_within_the_time_that_they_were_told(self):
        """Real ones, after a crash; of so many that this is more than the 0.5 s of a few."""
        devices, clients = 301, 6
        federation = self.waiting(devices, clients)
        federation.start_aggregator(network_threads=1)
        running = federation.start_clients(*range(clients))
        for client in running:
            client.wait_event("welcome")  # which tells them the time
        federation.aggregator.kill()
        federation.start_aggregator(network_threads=1)
        federation.aggregator.wait_event("client-hello", clients)
        waits = [float(re.search(r"next connection in ([0-9.]+) s", client.log())[1]) for client in running]
        self.assertLessEqual(max(waits), devices * 0.010 + 0.05, waits)  # told to a tenth of a second
        self.assertGreater(max(waits), 0.5, waits)

    def test_many_wait_and_come_back(self):
        federation = self.waiting(DEVICES + 1)

        def start():
            federation.start_aggregator("--max-per-address", "65536", network_threads=THREADS)
        start()
        with Peer(federation, DEVICES) as first:  # what is taken once
            first.hello()
        before = memory_of(federation.aggregator.pid)
        peers = self.connect(federation, range(DEVICES))
        self.assertEqual(peers[0].welcome["return-within-ms"], (DEVICES + 1) * (10000 // THREADS) // 1000)
        if DEVICES >= 1000:  # of fewer, the heap's own steps are the larger part
            self.assertLess((memory_of(federation.aggregator.pid) - before) / DEVICES, MOST_BYTES)
        federation.aggregator.kill()
        start()
        back = self.connect(federation, range(DEVICES), peers)
        self.assertTrue(all(peer.resumed for peer in back))
        with Peer(federation, DEVICES) as last:  # the last: the round opens, and everybody is asked
            last.hello()
            for peer in (*back, last):
                peer.next_task()

    @unittest.skipIf(harness.SANITIZED, "a sanitizer's own memory is most of it")
    def test_silence_is_cheap(self):
        federation = self.federation(clients=2)
        federation.start_aggregator()
        before = federation.metric("process_resident_memory_bytes")
        held = [socket.create_connection(("127.0.0.1", federation.port), timeout=harness.PATIENCE_S) for _ in range(400)]
        harness.wait_until("400 connections", lambda: federation.metric("fedge_connections") >= 400)
        more = federation.metric("process_resident_memory_bytes") - before
        for connection in held:
            connection.close()
        self.assertLess(more, 400 * 8192)


if __name__ == "__main__":
    harness.main()
