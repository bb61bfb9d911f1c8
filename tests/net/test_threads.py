"""Several network threads: connections spread over them, and nothing that reaches one misses another."""

import signal
import threading

import harness
from harness import NetTest, run
from peer import Closed, Peer, pack
from test_memory import external

THREADS = 4
DEVICES = 8
MODEL_CHUNKS = 489  # of 64 KiB, in which 8 million floats and the file's header are sent


class Threads(NetTest):
    def start(self, **job):
        """An aggregator whose first round waits for more devices than there are, and DEVICES of them."""
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
        """The first connection is told on its own thread."""
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
        """On one thread: the plan does not wait until a model has been sent."""
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
