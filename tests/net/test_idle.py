"""Many devices that wait: each takes little memory, and after a crash all come back while a round goes on."""

import os
import resource
from concurrent.futures import ThreadPoolExecutor

import harness
from harness import NetTest
from peer import Peer

DEVICES = int(os.environ.get("FEDGE_NET_IDLE", "60"))
THREADS = int(harness.NETWORK_THREADS or 1)
MOST_BYTES = 32 * 1024 * (3 if harness.SANITIZED else 1)


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


class Idle(NetTest):
    def connect(self, federation, resume=None):
        def one(index):
            peer = Peer(federation, index, resume=resume[index] if resume else None)
            peer.hello()
            return peer
        with ThreadPoolExecutor(4) as pool:
            peers = list(pool.map(one, range(DEVICES)))
        for peer in peers:
            self.addCleanup(peer.close)
        return peers

    def test_many_wait_and_come_back(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        keys = harness.make_keys(harness.make_folder() + "/keys", DEVICES + 1)
        federation = self.federation(keys=keys, clients=1, rounds__min_train_nodes=DEVICES + 1,
                                     rounds__min_available_nodes=DEVICES + 1)

        def start():
            federation.start_aggregator("--max-per-address", "65536", network_threads=THREADS)
        start()
        with Peer(federation, DEVICES) as first:  # what is taken once
            first.hello()
        before = resident(federation.aggregator.pid)
        peers = self.connect(federation)
        self.assertEqual(peers[0].welcome["return-within-ms"], (DEVICES + 1) * (5000 // THREADS) // 1000)
        if DEVICES >= 1000:  # of fewer, the heap's own steps are the larger part
            self.assertLess((resident(federation.aggregator.pid) - before) / DEVICES, MOST_BYTES)
        federation.aggregator.kill()
        start()
        back = self.connect(federation, peers)
        self.assertTrue(all(peer.resumed for peer in back))
        with Peer(federation, DEVICES) as last:  # the last: the round opens, and everybody is asked
            last.hello()
            for peer in (*back, last):
                peer.next_task()


if __name__ == "__main__":
    harness.main()
