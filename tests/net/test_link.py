"""Tests paths to the server: a proxy, IPv6, several addresses, a router that forgets idle connections, and a network
that loses and delays packets and resets connections. The bits stay the same.

FEDGE_NET_ROUNDS chooses how many rounds those over a bad network have; FEDGE_NET_SHAPED=1 has the slow link, too, which
takes minutes.
"""

import json
import os
import socket
import sys
import threading
import time

import harness
import wire
from harness import NetTest
from relay import Relay

USAGE = 2
ROUNDS = int(os.environ.get("FEDGE_NET_ROUNDS", "6"))
CLIENTS = 3
FORGETS_S = 12
BAD_WIRES = harness.unittest.skipUnless(wire.allowed(), "network namespaces and TUN devices need root and /dev/net/tun")


class Ways(NetTest):
    def relay(self, *arguments, **options):
        made = Relay(*arguments, **options)
        self.addCleanup(made.close)
        return made

    def alone(self, **job):
        return self.federation(clients=1, rounds__num_server_rounds=2, rounds__min_train_nodes=1, **job)

    def connects(self, client):
        """Waits until the client has connected or failed. An older libwebsockets of cmake/deps.sh has no proxies."""
        harness.wait_until("the client to come so far", lambda: client.events("welcome") or
                           client.events("disconnected") or not client.running())
        if "without proxies" in client.log():
            self.skipTest("libwebsockets is without it: run cmake/deps.sh")

    def needs_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"this machine has no ::1: {error}")

    def test_through_a_proxy(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        proxy = self.relay()
        federation = self.alone()
        federation.start_aggregator()
        client = federation.start_client(0, proxy=f"http://127.0.0.1:{proxy.port}")
        self.connects(client)
        federation.complete()
        self.assertEqual(proxy.asked, [f"CONNECT 127.0.0.1:{federation.port}"])
        self.assertEqual(federation.hashes(), expected)

    def test_a_proxy_of_the_environment(self):
        proxy = self.relay()
        federation = self.alone()
        federation.start_aggregator()
        environment = {"https_proxy": f"http://127.0.0.1:{proxy.port}/", "no_proxy": "localhost,.example.org"}
        self.connects(federation.start_client(0, environment=environment))
        federation.complete()
        self.assertEqual(len(proxy.asked), 1)

    def test_a_proxy_whose_answer_comes_in_parts(self):
        """The proxy answers byte by byte, and with more than the status."""
        proxy = self.relay(answers="HTTP/1.1 201 Here you are\r\nProxy-Agent: test\r\nVia: 1.1 test\r\n\r\n")
        federation = self.alone()
        federation.start_aggregator()
        client = federation.start_client(0, proxy=f"http://127.0.0.1:{proxy.port}")
        self.connects(client)
        federation.complete()
        self.assertEqual(client.events("disconnected"), [])

    def test_an_address_that_needs_no_proxy(self):
        proxy = self.relay()
        for environment in ({"https_proxy": f"127.0.0.1:{proxy.port}", "no_proxy": "127.0.0.1"},
                            {"http_proxy": f"127.0.0.1:{proxy.port}"}):
            with self.subTest(environment):
                federation = self.alone()
                federation.start_aggregator()
                federation.start_client(0, environment=environment)
                federation.complete()
        self.assertEqual(proxy.asked, [])

    def test_each_server_has_its_own_way(self):
        """One of two servers is reached through the proxy. The other one, which no_proxy lists, does not exist."""
        proxy = self.relay()
        federation = self.alone()
        federation.start_aggregator()
        gone = "wss://localhost:1"
        there = f"wss://127.0.0.1:{federation.port}"
        environment = {"https_proxy": f"http://127.0.0.1:{proxy.port}/", "no_proxy": "localhost"}
        client = federation.start_client(0, server=f"{gone},{there}", environment=environment)
        self.connects(client)
        federation.complete()
        self.assertEqual(set(proxy.asked), {f"CONNECT 127.0.0.1:{federation.port}"})

    def test_a_proxy_that_refuses(self):
        federation = self.alone()
        federation.start_aggregator()
        for answer, words in (("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407"),
                              ("SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"), ("HTTP/1.", "hung up")):
            with self.subTest(answer):
                proxy = self.relay(answers=(answer,))
                client = federation.start_client(0, proxy=f"http://127.0.0.1:{proxy.port}")
                self.connects(client)
                self.assertIn(words, client.wait_event("disconnected")["message"])
                self.assertTrue(client.running())  # it continues to try
                client.kill()

    def test_what_is_no_proxy(self):
        federation = self.alone()
        federation.port = 1
        for proxy, words in (("socks5://localhost:1080", "only kind"), ("http://localhost", "HOST:PORT"),
                             ("http://localhost:31x", "HOST:PORT"), ("http://localhost:0", "HOST:PORT"),
                             ("[::1", "HOST:PORT"), ("::1:3128", "HOST:PORT"),
                             ("http://me:secret@localhost:3128", "log in"),
                             ("https://me:secret@localhost:3128", "log in")):
            with self.subTest(proxy):
                client = federation.start_client(0, proxy=proxy)
                self.assertEqual(client.wait(), USAGE)
                self.assertIn(words, client.log())
                self.assertNotIn("secret", client.log())

    def test_over_ipv6(self):
        self.needs_ipv6()
        keys = os.path.join(harness.make_folder(), "keys")
        harness.make_keys(keys, 1, ip="::1")
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.alone(keys=keys)
        federation.start_aggregator(listen="[::1]:0")
        federation.start_client(0, server=f"wss://[::1]:{federation.port}")
        federation.complete()
        self.assertEqual(federation.hashes(), expected)
        self.assertEqual(federation.aggregator.events("client-connected")[0]["address"].rsplit(":", 1)[0],
                         "[::1]")

    def test_a_server_of_another_ipv6_address(self):
        """The server's certificate is only for 127.0.0.1."""
        self.needs_ipv6()
        federation = self.alone()
        federation.start_aggregator(listen="[::1]:0")
        client = federation.start_client(0, server=f"wss://[::1]:{federation.port}")
        self.assertIn("the server's certificate is not for ::1, but for localhost, 127.0.0.1",
                      client.wait_event("disconnected")["message"])
        self.assertEqual(client.events("welcome"), [])

    def test_wrong_addresses(self):
        """A proxy that is the server's HTTP port, and one with an unknown host name."""
        federation = self.alone()
        federation.start_aggregator()
        client = federation.start_client(0, server=f"wss://localhost:{federation.http_port}")
        self.assertIn("it does not speak TLS: is this the port of the server's --http, not of --listen?",
                      client.wait_event("disconnected")["message"])
        client.kill()
        client = federation.start_client(0, proxy="http://nowhere.invalid:3128")
        self.connects(client)
        self.assertIn("cannot resolve the proxy's name nowhere.invalid:3128",
                      client.wait_event("disconnected")["message"])


class Servers(NetTest):
    """Several addresses of a federation: a list in the client's file, and servers that redirect devices."""

    def file_with(self, made, name, servers):
        with open(made.site_path, encoding="utf-8") as file:
            site = json.load(file)
        return made.write(name, {**site, "servers": servers})

    def test_a_list_in_the_clients_file(self):
        """The client skips an address without a listener. --server overrides the file."""
        made = self.federation(clients=2, rounds__num_server_rounds=2, rounds__min_train_nodes=2)
        made.start_aggregator()
        there, gone = f"wss://127.0.0.1:{made.port}", "wss://127.0.0.1:1"
        made.start_client(0, server=None, config=self.file_with(made, "two.json", [gone, there]))
        made.start_client(1, server=there, config=self.file_with(made, "one.json", gone))
        made.complete()

    def test_no_server(self):
        made = self.federation(clients=1)
        client = made.start_client(0, server=None)
        self.assertEqual(client.wait(), 2)
        self.assertIn("no server: give --server URL, or", client.log())
        self.assertIn("site.json", client.log())

    def test_a_device_begins_at_one_by_its_id(self):
        """The first 32 bits of the device's id select its first address, so that devices with the same list spread over
        it."""
        made = self.federation(clients=3, rounds__num_server_rounds=1, rounds__min_train_nodes=3)
        servers = [f"wss://127.0.0.1:{made.port}"] + [f"wss://127.0.0.1:{port}" for port in (1, 2)]
        devices = [made.start_client(i, "--check-config").wait_event("config-ok")["device"] for i in range(3)]
        made.start_aggregator()
        clients = [made.start_client(i, server=",".join(servers)) for i in range(3)]
        made.complete()
        self.assertEqual([self.tried(client)[0] for client in clients],
                         [servers[int(device.split("-")[0], 16) % 3] for device in devices])

    def tried(self, client):
        return [event["server"] for event in client.events("connect")]

    def test_a_server_that_stops_sends_devices_on(self):
        """The client goes to the address that the server names, and not to the next one of its list."""
        first, second = (self.federation(clients=1, rounds__num_server_rounds=2, rounds__min_train_nodes=1,
                                         rounds__min_available_nodes=available) for available in (2, 1))
        there = [f"wss://127.0.0.1:{made.port}" for made in (first, second)]
        first.start_aggregator("--redirect", there[1])
        client = first.start_client(0, server=",".join((there[0], "wss://127.0.0.1:1", there[1])))
        client.wait_event("welcome")
        second.start_aggregator()
        self.assertEqual(first.aggregator.stop(), 0)
        second.complete()
        tried = self.tried(client)
        last = len(tried) - 1 - tried[::-1].index(there[0])
        self.assertEqual(tried[last + 1], there[1])


class Quiet(NetTest):
    @harness.unittest.skipUnless(os.environ.get("FEDGE_NET_ROUTER_S"), "takes minutes")
    def test_a_router_that_forgets(self):
        """Heartbeats keep the connection of a client that has no task."""
        patience_s = int(os.environ["FEDGE_NET_ROUTER_S"])
        federation = self.federation(clients=2, rounds__num_server_rounds=1, rounds__min_train_nodes=1)
        federation.start_aggregator()
        router = Relay(("127.0.0.1", federation.port), forgets_after_s=patience_s)
        self.addCleanup(router.close)
        client = federation.start_client(0, server=f"wss://127.0.0.1:{router.port}")
        client.wait_event("welcome")
        time.sleep(2.5 * patience_s)
        self.assertEqual(len(client.events("welcome")), 1)
        federation.start_client(1)
        federation.complete()
        self.assertEqual((len(client.events("welcome")), router.forgotten), (1, 0))

    def test_a_client_that_trains_for_long(self):
        """Heartbeats do not wait for training, so a router that forgets connections sooner keeps this one."""
        patience_s = 10
        federation = self.federation(clients=1, rounds__num_server_rounds=1, rounds__min_train_nodes=1,
                                     training__local_epochs=65536, examples=6000)
        federation.start_aggregator(heartbeat=1)
        router = Relay(("127.0.0.1", federation.port), forgets_after_s=patience_s)
        self.addCleanup(router.close)
        client = federation.start_client(0, server=f"wss://127.0.0.1:{router.port}")
        federation.aggregator.wait_event("round-opened")
        time.sleep(1.6 * patience_s)
        self.assertTrue(client.running())
        self.assertEqual(client.events("trained"), [])
        self.assertEqual((len(client.events("welcome")), router.forgotten), (1, 0))


@harness.unittest.skipUnless(os.environ.get("FEDGE_NET_SHAPED"), "takes minutes")
@BAD_WIRES
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


@BAD_WIRES
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

    def idle(self, heartbeat_s, idle_s):
        """Runs a client that waits for others this long. Returns its output and that of the network."""
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
        """4 minutes of such a NAT beside 20 s between pings are here 12 s beside 1: the client waits for longer than
        that on the connection that it has."""
        client, counts = self.idle(heartbeat_s=1, idle_s=FORGETS_S + 4)
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
            made.append(Relay())
        with wire.Wire() as net:
            thread = threading.Thread(target=in_client_network)
            thread.start()
            thread.join()
            proxy, = made
            self.addCleanup(proxy.close)
            federation.start_aggregator(listen=f"{net.SERVER}:443", http="off", before=net.enter_server)
            client = federation.start_client(0, server=f"wss://{net.SERVER}:443", before=net.enter_client,
                                             proxy=f"http://127.0.0.1:{proxy.port}")
            Ways.connects(self, client)
            federation.complete()
            federation.stop()
        self.assertEqual(proxy.asked, [f"CONNECT {wire.Wire.SERVER}:443"])
        self.assertGreater(net.counts["forwarded"], 0, net.counts)
        self.assertEqual(federation.hashes(), harness.undisturbed(2, clients=1, rounds__min_train_nodes=1))

    @harness.unittest.skipUnless(harness.LONG, "takes a minute")
    def test_without_pings_a_nat_forgets(self):
        """Shows that the test above is effective: with rare heartbeats the connection is lost, and made again once that
        is noticed."""
        client, counts = self.idle(heartbeat_s=30, idle_s=FORGETS_S + 4)
        self.assertGreater(len(client.events("welcome")), 1, client.tail())
        self.assertGreater(counts["forgotten"], 0, counts)


if __name__ == "__main__":
    harness.main()
