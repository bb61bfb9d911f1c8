"""Runs over a bad network: packets lost and late, connections reset. The bits are the same.

FEDGE_NET_ROUNDS chooses how many rounds; FEDGE_NET_SHAPED=1 runs the slow link alone, which takes minutes.
"""

import os
import sys
import threading
import time

import harness
import test_link
import wire
from harness import NetTest

ROUNDS = int(os.environ.get("FEDGE_NET_ROUNDS", "6"))
CLIENTS = 3
FORGETS_S = 24


@harness.unittest.skipUnless(os.environ.get("FEDGE_NET_SHAPED"), "takes minutes")
class ShapedLink(NetTest):
    def test_a_slow_link_with_cuts(self):
        """256 kbit/s up, 300 ms, 2 % loss, and 20 s without a packet in each minute: what went up, headers and
        repeats and all, is little more than the updates. Models come as deltas, as they should on such a link: what
        acknowledges them goes up, too."""
        job = {"hidden": 16000, "update__codec": "none", "update__deflate": False, "update__down": "int8+deflate",
               "rounds__min_train_nodes": 1}
        keys = harness.make_keys(os.path.join(harness.make_folder(), "keys"), 1, ip=wire.Wire.SERVER)
        federation = self.federation(keys=keys, clients=1, rounds__num_server_rounds=4, **job)
        with wire.Wire(loss=0.02, round_trip_s=0.3, seed=4, up_bytes_s=32000, cuts_s=(60, 20)) as net:
            federation.start_aggregator(listen=f"{net.SERVER}:9092", http="off", before=net.enter_server)
            client = federation.start_client(0, server=f"wss://{net.SERVER}:9092", before=net.enter_client)
            federation.complete(1500)
            seconds = max(line["seconds"] for line in federation.lines())
            federation.stop()
        updates = sum(line["bytes_up"] for line in federation.lines())
        print(f"updates of {updates} bytes; {net.counts['bytes_up']} bytes went up, "
              f"{net.counts['bytes_up'] / updates:.3f} of them; the longest round took {seconds:.0f} s; {net.counts}",
              file=sys.stderr)
        self.assertGreater(net.counts["cut"], 0, net.counts)
        self.assertEqual(len(client.events("welcome")), 1, client.tail())  # no cut was long enough to give up
        self.assertEqual(federation.hashes(), harness.undisturbed(4, clients=1, **job))
        self.assertLessEqual(net.counts["bytes_up"], 1.1 * updates)


@harness.unittest.skipIf(os.environ.get("FEDGE_NET_SHAPED"), "the slow link alone")
class BadNetwork(NetTest):
    def run_over(self, rounds, seed, crash=False, **job):
        keys = harness.make_keys(os.path.join(harness.make_folder(), "keys"), CLIENTS, ip=wire.Wire.SERVER)
        federation = self.federation(keys=keys, clients=CLIENTS, rounds__num_server_rounds=rounds, **job)
        with wire.Wire(loss=0.05, round_trip_s=0.2, resets=0.01, seed=seed) as net:
            where = {"listen": f"{net.SERVER}:9092", "http": "off", "before": net.enter_server}
            federation.start_aggregator(**where)
            for i in range(CLIENTS):
                federation.start_client(i, server=f"wss://{net.SERVER}:9092", before=net.enter_client)
            if crash:
                federation.aggregator.wait_event("round-closed", 2, 4 * harness.PATIENCE_S)
                federation.aggregator.kill()
                federation.start_aggregator(**where)
            federation.complete(4 * harness.PATIENCE_S)
            federation.stop()
        self.assertGreater(net.counts["lost"], 0, net.counts)
        for line in federation.lines():
            self.assertEqual((line["clients"], line["examples"]), (CLIENTS, 600), line)
        return federation.hashes(), net.counts

    def test_loss_delay_and_resets(self):
        hashes, counts = self.run_over(ROUNDS, seed=1)
        self.assertGreater(counts["resets"], 0, counts)
        self.assertEqual(hashes, harness.undisturbed(ROUNDS, clients=CLIENTS))

    def test_with_a_crash_of_the_aggregator(self):
        hashes, _ = self.run_over(4, seed=2, crash=True)
        self.assertEqual(hashes, harness.undisturbed(4, clients=CLIENTS))

    def idle(self, heartbeat_s, idle_s):
        """One client waits so long for others; what the first and the network say then."""
        keys = harness.make_keys(os.path.join(harness.make_folder(), "keys"), 2, ip=wire.Wire.SERVER)
        federation = self.federation(keys=keys, clients=2, rounds__num_server_rounds=2)
        with wire.Wire(forgets_s=FORGETS_S) as net:
            federation.start_aggregator(listen=f"{net.SERVER}:9092", http="off", before=net.enter_server,
                                        heartbeat=heartbeat_s)
            clients = [federation.start_client(0, server=f"wss://{net.SERVER}:9092", before=net.enter_client)]
            clients[0].wait_event("welcome")
            time.sleep(idle_s)
            clients.append(federation.start_client(1, server=f"wss://{net.SERVER}:9092", before=net.enter_client))
            federation.complete(4 * harness.PATIENCE_S)
            federation.stop()
        return clients[0], net.counts

    def test_a_nat_that_forgets_idle_connections(self):
        """4 minutes of such a NAT beside 20 s between pings are here 24 s beside 2: the client waits for longer than
        that on the connection that it has."""
        client, counts = self.idle(heartbeat_s=2, idle_s=FORGETS_S + 4)
        self.assertEqual(len(client.events("welcome")), 1, client.tail())
        self.assertEqual(counts["forgotten"], 0, counts)

    def test_a_proxy_and_port_443(self):
        """All that a strict firewall lets through: the client's network has a proxy, which connects to the port of
        HTTPS on the server's."""
        keys = harness.make_keys(os.path.join(harness.make_folder(), "keys"), 1, ip=wire.Wire.SERVER)
        federation = self.federation(keys=keys, clients=1, rounds__num_server_rounds=2, rounds__min_train_nodes=1)
        made = []

        def in_client_network():  # a thread's sockets are of its network, and so are those of the threads it starts
            net.enter_client()
            made.append(test_link.Relay())
        with wire.Wire() as net:
            thread = threading.Thread(target=in_client_network)
            thread.start()
            thread.join()
            proxy, = made
            self.addCleanup(proxy.close)
            federation.start_aggregator(listen=f"{net.SERVER}:443", http="off", before=net.enter_server)
            client = federation.start_client(0, server=f"wss://{net.SERVER}:443", before=net.enter_client,
                                             proxy=f"http://127.0.0.1:{proxy.port}")
            test_link.Ways.connects(self, client)
            federation.complete()
            federation.stop()
        self.assertEqual(proxy.asked, [f"CONNECT {wire.Wire.SERVER}:443"])
        self.assertGreater(net.counts["forwarded"], 0, net.counts)
        self.assertEqual(federation.hashes(), harness.undisturbed(2, clients=1, rounds__min_train_nodes=1))

    @harness.unittest.skipUnless(harness.LONG, "takes a minute")
    def test_without_pings_a_nat_forgets(self):
        """What makes the test above one: the connection is lost, and made anew when that is noticed."""
        client, counts = self.idle(heartbeat_s=30, idle_s=FORGETS_S + 4)
        self.assertGreater(len(client.events("welcome")), 1, client.tail())
        self.assertGreater(counts["forgotten"], 0, counts)

    def test_with_large_updates(self):
        """Updates and models of several messages and many packets: transfers go on where they stopped."""
        job = {"hidden": 1000, "update__codec": "none", "update__deflate": False}
        hashes, counts = self.run_over(2, seed=3, **job)
        self.assertGreater(counts["forwarded"], 500, counts)
        self.assertEqual(hashes, harness.undisturbed(2, clients=CLIENTS, **job))


if __name__ == "__main__":
    if not wire.allowed():
        print("skipped: network namespaces and TUN devices need root and /dev/net/tun", file=sys.stderr)
        sys.exit(harness.SKIPPED)
    harness.main()
