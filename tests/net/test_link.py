"""Ways to the server: through a proxy, over IPv6, through a router that forgets quiet connections."""

import json
import os
import select
import socket
import threading
import time

import harness
from harness import NetTest
from peer import Peer

USAGE = 2


class Relay:
    """Carries bytes between who connects and a server; with [connect] it is a proxy that is told which."""

    ANSWER = "HTTP/1.1 200 Connection established\r\n\r\n"

    def __init__(self, target=None, forgets_after_s=None, answers=(ANSWER,), down_bytes_s=None):
        self.target, self.forgets_after_s, self.answers, self.down_bytes_s = target, forgets_after_s, answers, down_bytes_s
        self.asked = []
        self.bytes_down = 0
        self.forgotten = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._start(self._accept)

    @staticmethod
    def _start(function, *arguments):
        threading.Thread(target=function, args=arguments, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client):
        try:
            target = self.target or self._told(client)
            if target is None:
                return
            with socket.create_connection(target) as server:
                self._carry(client, server)
        except OSError:
            pass
        finally:
            client.close()

    def _told(self, client):
        """Where CONNECT wants to go, when it may."""
        head = b""
        while b"\r\n\r\n" not in head:
            more = client.recv(4096)
            if not more:
                return None
            head += more
        word, address, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.asked.append(f"{word} {address}")
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for answer in self.answers:
            client.sendall(answer.encode())
            time.sleep(0.001)
        if not "".join(self.answers).startswith("HTTP/1.1 2"):
            return None
        host, port = address.rsplit(":", 1)
        return host.strip("[]"), int(port)

    def _carry(self, *both):
        """Until either side ends, or neither has said anything for so long that it is forgotten: then
        nothing that comes afterwards arrives, and nobody is told."""
        while True:
            ready, _, _ = select.select(both, [], [], self.forgets_after_s)
            if not ready:
                self.forgotten += 1
                time.sleep(harness.PATIENCE_S)
                return
            for side in ready:
                data = side.recv(2048 if self.down_bytes_s else 65536)
                if not data:
                    return
                if side is both[1]:
                    self.bytes_down += len(data)
                    time.sleep(len(data) / self.down_bytes_s if self.down_bytes_s else 0)
                (both[1] if side is both[0] else both[0]).sendall(data)


class Ways(NetTest):
    def relay(self, *arguments, **options):
        made = Relay(*arguments, **options)
        self.addCleanup(made.close)
        return made

    def alone(self, **job):
        return self.federation(clients=1, rounds__num_server_rounds=2, rounds__min_train_nodes=1, **job)

    def connects(self, client):
        """Until it has, or cannot; libwebsockets of an older cmake/deps.sh knows no proxies."""
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
        """Byte by byte, and with more to say than that there is a connection."""
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
        """Of two servers one needs the proxy, and the other, which no_proxy lists, is not there."""
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
                self.assertTrue(client.running())  # it tries again
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
        """Its certificate is for 127.0.0.1 only."""
        self.needs_ipv6()
        federation = self.alone()
        federation.start_aggregator(listen="[::1]:0")
        client = federation.start_client(0, server=f"wss://[::1]:{federation.port}")
        self.assertIn("the server's certificate is not for ::1, but for localhost, 127.0.0.1",
                      client.wait_event("disconnected")["message"])
        self.assertEqual(client.events("welcome"), [])

    def test_wrong_addresses(self):
        """The server's port for people; a proxy whose name is nobody's."""
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


class Rest(NetTest):
    def test_a_client_without_a_task_calls_again(self):
        """One of two is asked in a round; the other, which may hang up, does, and is told when to come back."""
        federation = self.federation(clients=2, rounds__num_server_rounds=1, rounds__min_train_nodes=1,
                                     rounds__fraction_train=0.5, training__local_epochs=1)
        with open(federation.site_path, encoding="utf-8") as file:
            site = json.load(file)
        device = federation.path("device")  # not on mains power: it declines, and then has no task
        os.makedirs(os.path.join(device, "sys/class/power_supply/BAT0"))
        for name, text in (("type", "Battery"), ("status", "Discharging")):
            with open(os.path.join(device, "sys/class/power_supply/BAT0", name), "w", encoding="ascii") as file:
                file.write(text)
        site["policy"] = {"hang-up": True, "conditions": {"mains-power": True, "root": device}}
        path = federation.write("rests.json", site)
        federation.start_aggregator()
        rests = federation.start_client(0, config=path)
        rests.wait_event("welcome")
        with Peer(federation, 1) as holds:  # it takes a task and does nothing
            holds.hello()
            holds.next_task()
            said = rests.wait_event("disconnect")
            self.assertIn("come-later", said["message"])
            self.assertEqual(said["level"], "info")
            again = rests.wait_event("reconnect")["message"]  # after the five minutes that it gave, and an eighth
            self.assertRegex(again, r"next connection in (29[5-9]|3[0-3][0-9])\.\d s")
            harness.wait_until("it to be gone", lambda: federation.health()["connected"] == 1)
            self.assertTrue(rests.running())


class Quiet(NetTest):
    @harness.unittest.skipUnless(os.environ.get("FEDGE_NET_ROUTER_S"), "takes minutes")
    def test_a_router_that_forgets(self):
        """Heartbeats keep the session of a client that nobody asks for anything."""
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
        """Heartbeats do not wait for training: a router with less patience than that keeps the session."""
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


if __name__ == "__main__":
    harness.main()
