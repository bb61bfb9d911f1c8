"""Connections that are no clients: silence, slowness, and too many of them; and several network threads: connections
spread over them, and nothing that reaches one misses another.
"""

import os
import resource
import signal
import threading

from harness import NetTest, external, run
from misuse import INDEX, Closed, MisuseTest, Peer, ended, harness, plain
from peer import connect_tls, pack, tls_context

SILENT = int(os.environ.get("FEDGE_NET_SILENT", "1000"))
PER_ADDRESS = 512  # --max-per-address: as many without a certificate are there at a time
THREADS = 4
DEVICES = 8
MODEL_CHUNKS = 489  # of 64 KiB, in which 8 million floats and the file's header are sent


class Slow(MisuseTest):
    def test_who_does_not_go_on_is_dropped(self):
        """All connections at the same time, as each takes 10 s."""
        federation = self.start(rounds=1)
        trust, identity = f"{federation.keys}/trust", f"{federation.keys}/clients/0003"
        silent = {
            "TCP alone": plain(federation.port),
            "half a handshake": plain(federation.port),
            "TLS alone": connect_tls(federation.port, trust, identity),
            "half a request": connect_tls(federation.port, trust, identity),
        }
        silent["half a handshake"].sendall(b"\x16\x03\x01\x02\x00\x01")
        silent["half a request"].sendall(b"GET / HTTP/1.1\r\nHost: loc")
        with Peer(federation, 3) as no_hello:
            no_hello.expect_refusal("timeout")
            no_hello.expect_end()
        for name, connection in silent.items():
            with self.subTest(name), connection:
                self.assertTrue(ended(connection))
        self.give_up(federation)
        self.assert_unharmed(federation, 1)


class Many(MisuseTest):
    def test_connections_that_say_nothing(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < SILENT + 200:
            self.skipTest(f"{hard} open files are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, SILENT + 200), hard))
        federation = self.start(rounds=3)
        opened = []
        context = tls_context(f"{federation.keys}/trust", f"{federation.keys}/clients/0003")
        try:
            for i in range(SILENT):
                connection = plain(federation.port)
                opened.append(connection)
                if i % 2:  # half of them with a handshake
                    opened[-1] = context.wrap_socket(connection, server_hostname="localhost")
                if i in (SILENT // 3, SILENT // 2):
                    self.give_up(federation)
            # Silent ones end after seconds: how many are there at once depends on how fast they come.
            there = federation.metric("fedge_connections")
            self.assertGreater(there, min(SILENT, PER_ADDRESS) // 8)
            self.assertLess(there, PER_ADDRESS + 100)
            self.assertEqual(federation.health()["status"], "ok")
            self.give_up(federation)  # the last round, among all of them
            self.assert_unharmed(federation, 3)
        finally:
            for connection in opened:
                connection.close()

    def test_more_than_are_allowed(self):
        federation = self.federation(clients=2, rounds__num_server_rounds=1)
        federation.start_aggregator("--max-connections", "6")
        held = [plain(federation.port) for _ in range(6)]
        harness.wait_until("six connections", lambda: federation.metric("fedge_connections") >= 6)
        with plain(federation.port) as seventh:
            self.assertTrue(ended(seventh))
        federation.aggregator.wait_event("connection-refused")
        for connection in held:
            connection.close()
        federation.start_clients()
        federation.complete()

    def test_silence_takes_no_device_s_place(self):
        """More connections than allowed stay silent and reconnect as soon as they are closed."""
        federation = self.federation(clients=2, rounds__num_server_rounds=2)
        federation.start_aggregator("--max-connections", "2")
        over = threading.Event()

        def crowd():
            held = []
            while not over.is_set():
                try:
                    while len(held) < 120:
                        held.append(plain(federation.port))
                        held[-1].setblocking(False)
                except ConnectionError:
                    break  # the run is over
                for connection in list(held):
                    try:
                        gone = connection.recv(1) == b""
                    except BlockingIOError:
                        gone = False
                    except OSError:
                        gone = True
                    if gone:
                        held.remove(connection)
                        connection.close()
                over.wait(0.02)
            for connection in held:
                connection.close()
        thread = threading.Thread(target=crowd)
        thread.start()
        try:
            harness.wait_until("120 connections", lambda: federation.metric("fedge_connections") >= 120)
            self.assertGreaterEqual(federation.metric("fedge_connections_unauthenticated"), 120)
            for client in federation.start_clients():
                client.wait_event("welcome")
        finally:
            over.set()
            thread.join()
        federation.complete()

    def test_the_same_device_again_and_again(self):
        """The latest connection of a device counts. Earlier ones are told the reason and closed."""
        federation = self.start(rounds=1)
        peers = []
        for _ in range(20):
            peers.append(Peer(federation, INDEX))
            peers[-1].hello()
        for peer in peers[:-1]:
            bye = peer.expect("bye", skip=("task",))
            self.assertEqual(bye.meta["reason"], "replaced")
            peer.expect_end()
            peer.close()
        peers[-1].next_task()
        event = federation.aggregator.wait_event("identity-in-use-twice")
        self.assertEqual(event["name"], f"client-{INDEX:04}")
        self.assertTrue(event["address"].startswith("127.0.0.1:"), event)
        self.assertTrue(event["other-address"].startswith("127.0.0.1:"), event)
        self.assertNotEqual(event["address"], event["other-address"])
        self.assertEqual(len(federation.aggregator.events("identity-in-use-twice")), 1)
        self.give_up(federation, peers[-1])
        self.assert_unharmed(federation, 1)

    def test_who_comes_back_now_and_then(self):
        """One or two reconnections are a network failure and no second device."""
        federation = self.start(rounds=1)
        with self.connect(federation), self.connect(federation), self.connect(federation) as peer:
            self.give_up(federation, peer)
        self.assertEqual(federation.aggregator.events("identity-in-use-twice"), [])
        self.assert_unharmed(federation, 1)

    def test_who_does_not_read(self):
        """A client requests the model again and again and reads nothing."""
        federation = self.start(rounds=1, hidden=2000, update__codec="none", update__deflate=False)
        with self.connect(federation) as peer:
            request = peer.frame(pack("fetch", {"hash": peer.task["model"], "offset": 0}))
            peer.socket.settimeout(5)
            try:
                for _ in range(2000):
                    peer.send_bytes(request)
            except (Closed, TimeoutError):
                pass
            self.assertEqual(federation.health()["status"], "ok")
        self.give_up(federation)
        self.assert_unharmed(federation, 1, hidden=2000, update__codec="none", update__deflate=False)


class Threads(NetTest):
    def start(self, **job):
        """Starts an aggregator whose first round waits for more devices than exist, and DEVICES of them."""
        keys = harness.make_keys(harness.make_folder() + "/keys", DEVICES)
        federation = self.federation(keys=keys, clients=DEVICES, rounds__min_train_nodes=DEVICES, **job)
        federation.start_aggregator(network_threads=THREADS)
        peers = []
        for i in range(DEVICES):
            peers.append(Peer(federation, i))
            self.addCleanup(peers[i].close)
            if i < DEVICES - 1:
                peers[i].hello()
        return federation, peers

    @staticmethod
    def on_threads(federation):
        return [federation.metric(f'fedge_thread_connections{{thread="{i}"}}') for i in range(THREADS)]

    def fetch_plan(self, peer):
        self.assertEqual(len(peer.fetch(peer.welcome["plan"], peer.welcome["plan-size"])),
                         peer.welcome["plan-size"])

    def test_connections_go_where_the_fewest_are(self):
        federation, peers = self.start()
        self.assertEqual(self.on_threads(federation), [DEVICES / THREADS] * THREADS)
        for peer in peers[1::THREADS]:  # those of the second thread
            peer.close()
        harness.wait_until("the second thread to have none",
                           lambda: sorted(self.on_threads(federation)) == [0, 2, 2, 2])
        peers[1] = Peer(federation, 1)
        self.addCleanup(peers[1].close)
        self.assertEqual(sorted(self.on_threads(federation)), [1, 2, 2, 2])
        peers[1].hello()
        self.fetch_plan(peers[1])
        self.assertEqual(federation.metric("fedge_connections"), DEVICES - 1)

    def test_revocation_reaches_every_thread(self):
        federation, peers = self.start()
        for i in range(THREADS):
            run("fedge-keys", "revoke", "--registry", f"{federation.keys}/registry", "--name",
                f"client-{i:04}")
        federation.aggregator.send(signal.SIGHUP)
        for peer in peers[:THREADS]:
            peer.socket.settimeout(5 * (5 if harness.SANITIZED else 1))  # the promise
            peer.expect_refusal("revoked")
            peer.expect_end()
        self.assertEqual(len(federation.aggregator.events("client-revoked")), THREADS)
        for peer in peers[THREADS:-1]:
            self.fetch_plan(peer)

    def test_a_device_that_comes_twice_on_two_threads(self):
        """The first connection receives the message on its own thread."""
        federation, peers = self.start()
        for i in range(3):
            with Peer(federation, i) as again:
                again.hello()
                self.assertEqual(peers[i].expect("bye").meta["reason"], "replaced")
                peers[i].expect_end()
                self.fetch_plan(again)

    def test_who_does_not_read_delays_nobody(self):
        federation, peers = self.start(hidden=2000, update__codec="none", update__deflate=False)
        peers[-1].hello()  # the last: the round opens
        for peer in peers:
            peer.next_task()
        model = peers[0].task["model"]
        for peer in peers[:DEVICES - 2]:  # at least one on each thread
            peer.socket.settimeout(1)
            try:
                for _ in range(50):
                    peer.send_bytes(peer.frame(pack("fetch", {"hash": model, "offset": 0})))
            except (Closed, TimeoutError):
                pass
        for peer in peers[DEVICES - 2:]:
            self.fetch_plan(peer)
            peer.decline_task()
        self.assertEqual(federation.health()["status"], "ok")

    def test_a_large_download_delays_nobody(self):
        """With one thread the plan does not wait for the end of a model."""
        federation = self.federation(clients=2)
        external(federation, 8_000_000)
        federation.start_aggregator(network_threads=1)
        plans, chunks, ends, done = 20, [0], [], threading.Event()

        def download(peer):
            while not done.is_set():
                peer.send("fetch", {"hash": peer.task["model"], "offset": 0})
                for _ in range(MODEL_CHUNKS):
                    peer.expect("chunk")
                    chunks[0] += 1
            ends.append("told to")

        with Peer(federation, 0) as reader, Peer(federation, 1) as other:
            for peer in (reader, other):
                peer.hello()
            for peer in (reader, other):
                peer.next_task()
            thread = threading.Thread(target=download, args=(reader,))
            thread.start()
            try:
                harness.wait_until("the download to begin", lambda: chunks[0])
                before = chunks[0]
                for _ in range(plans):
                    self.fetch_plan(other)
                taken = chunks[0] - before
            finally:
                done.set()
                thread.join()
        self.assertEqual(ends, ["told to"])
        # Had each waited behind a whole model, as many chunks would have come meanwhile.
        self.assertLess(taken, plans * MODEL_CHUNKS / 4)

    def test_the_end_reaches_every_thread(self):
        federation, peers = self.start()
        federation.aggregator.send(signal.SIGTERM)
        times = []
        for peer in peers:
            bye = peer.expect("bye").meta
            self.assertEqual(bye["reason"], "shutting-down")
            times.append(bye["after-ms"])
            peer.expect_end()
        # Those of one thread shall not come back at once.
        self.assertEqual(sorted(times), [10000] * THREADS + [10010] * THREADS)
        self.assertEqual(federation.aggregator.wait(), 0)


if __name__ == "__main__":
    harness.main()
