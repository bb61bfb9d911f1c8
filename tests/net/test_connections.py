"""Connections that are no clients: silence, slowness, noise, and too many of them."""

import json
import os
import resource
import socket
import ssl
import subprocess
import threading
import time

from misuse import INDEX, Closed, MisuseTest, Peer, harness
from peer import BINARY, connect_tls, pack, tls_context

SILENT_TIMEOUT_S = 60  # what is silent so long is dropped
SILENT = int(os.environ.get("FEDGE_NET_SILENT", "1000"))
PER_ADDRESS = 512  # --max-per-address: as many without a certificate are there at a time


def plain(port):
    made = socket.create_connection(("127.0.0.1", port), timeout=harness.PATIENCE_S)
    return made


def end_writing(connection):
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side has ended the connection already


def ended(connection):
    """Reads until the other side has closed; an error says so too."""
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        raise AssertionError("the connection was left open") from None
    except (ConnectionError, ssl.SSLError):
        pass
    return True


class Noise(MisuseTest):
    def test_what_is_not_tls(self):
        federation = self.start(rounds=1)
        cases = [
            ("HTTP", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ("zeros", bytes(1000)),
            ("noise", bytes((i * 37 + 11) % 256 for i in range(5000))),
            ("a TLS record over the bound", b"\x16\x03\x01\xff\xff" + bytes(70000)),
            ("the start of a handshake, then noise", b"\x16\x03\x01\x00\x40" + b"\x01\x00\x00\x3c" + bytes(60)),
            ("SSH", b"SSH-2.0-OpenSSH_9.2p1\r\n"),
        ]
        for name, data in cases:
            with self.subTest(name), plain(federation.port) as connection:
                try:
                    connection.sendall(data)
                    end_writing(connection)
                except ConnectionError:
                    pass
                self.assertTrue(ended(connection))
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_an_older_tls(self):
        federation = self.start(rounds=1)
        context = tls_context(f"{federation.keys}/trust", f"{federation.keys}/clients/0002")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with plain(federation.port) as connection, self.assertRaises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(connection, server_hostname="localhost")
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_new_keys(self):
        """OpenSSL changes its keys, twice, and asks for the server's."""
        federation = self.start(rounds=1)
        trust, identity = f"{federation.keys}/trust", f"{federation.keys}/clients/0002"
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{federation.port}", "-servername", "localhost",
                   "-CAfile", os.path.join(trust, sorted(os.listdir(trust))[0]),
                   "-cert", f"{identity}/chain.pem", "-cert_chain", f"{identity}/chain.pem", "-key", f"{identity}/key.pem"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as client:
            timer = threading.Timer(harness.PATIENCE_S, client.kill)
            timer.start()
            said = b""

            def read_until(text):
                nonlocal said
                while text not in said:
                    more = os.read(client.stdout.fileno(), 65536)
                    self.assertTrue(more, said[-2000:])
                    said += more
                said = said.partition(text)[2]

            read_until(b"Verify return code")
            for key in b"kK":
                client.stdin.write(bytes([key]) + b"\n")
                client.stdin.flush()
                read_until(b"KEYUPDATE")
            client.stdin.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.stdin.flush()
            read_until(b"HTTP/1.1 404 ")
            read_until(b"this port speaks websockets")
            timer.cancel()
            client.kill()
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_http_that_is_no_upgrade(self):
        federation = self.start(rounds=1)
        cases = [
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nx",
            b"NONSENSE\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"x" * 100000 + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(3000)) + b"\r\n",
            b"\xff" * 3000,
        ]
        for data in cases:
            with self.subTest(data[:20]):
                with connect_tls(federation.port, f"{federation.keys}/trust",
                                 f"{federation.keys}/clients/0002") as connection:
                    try:
                        connection.sendall(data)
                    except (ConnectionError, ssl.SSLError):
                        continue
                    answer = b""
                    try:
                        answer = connection.recv(4096)
                    except (ConnectionError, ssl.SSLError):
                        pass
                    self.assertNotIn(b" 101 ", answer)
                    self.assertNotIn(b" 200 ", answer)
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_the_http_port_is_for_reading(self):
        federation = self.start(rounds=1)
        for data in (b"\x16\x03\x01" + bytes(100), b"GET / HTTP/1.1\r\nX: " + b"y" * 100000 + b"\r\n\r\n",
                     b"DELETE /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /../../etc/passwd HTTP/1.1\r\n\r\n"):
            with self.subTest(data[:12]), plain(federation.http_port) as connection:
                try:
                    connection.sendall(data)
                    end_writing(connection)
                    self.assertNotIn(b" 200 ", connection.recv(4096))
                except ConnectionError:
                    pass
        for hosts in ("", "Host: localhost\r\nHost: localhost\r\n", "Host: localhost\r\nHost: evil.example\r\n",
                      "Host: local host\r\n", "Host: localhost:99999\r\n"):
            with self.subTest(hosts), plain(federation.http_port) as connection:
                connection.sendall(f"GET /healthz HTTP/1.1\r\n{hosts}\r\n".encode())
                self.assertIn(b" 400 ", connection.recv(4096))
        hanging = [plain(federation.http_port) for _ in range(100)]  # more than it serves
        self.assertEqual(federation.health()["status"], "ok")
        with Peer(federation, INDEX) as peer:
            peer.hello()
            peer.next_task()
            for connection in hanging:
                connection.close()
            self.give_up(federation, peer)
        self.assert_unharmed(federation, 1)


class Slow(MisuseTest):
    def test_who_does_not_go_on_is_dropped(self):
        """All at once, since each takes its time: 10 s to say something, 45 s for one message."""
        started = time.monotonic()
        federation = self.start(rounds=2, devices=2)
        for client in federation.seen[1:]:
            client.wait_event("welcome")
        trust, identity = f"{federation.keys}/trust", f"{federation.keys}/clients/0003"
        silent = {
            "TCP alone": plain(federation.port),
            "half a handshake": plain(federation.port),
            "TLS alone": connect_tls(federation.port, trust, identity),
            "half a request": connect_tls(federation.port, trust, identity),
        }
        silent["half a handshake"].sendall(b"\x16\x03\x01\x02\x00\x01")
        silent["half a request"].sendall(b"GET / HTTP/1.1\r\nHost: loc")
        no_hello = Peer(federation, 3)
        unfinished = Peer(federation, 4)
        unfinished.hello()
        message = pack("fetch", {"hash": "ab" * 32, "offset": 0})
        unfinished.send_bytes(Peer.frame(message[:30], BINARY, final=False))
        trickling = Peer(federation, 5)
        trickling.hello()
        # Meanwhile a round goes on: cohorts include the two, whose tasks are taken back below.
        no_hello.expect_refusal("timeout")
        no_hello.expect_end()
        for name, connection in silent.items():
            with self.subTest(name):
                self.assertTrue(ended(connection))
                connection.close()
        end = time.monotonic() + harness.PATIENCE_S * 2
        size = 0
        refused = {}
        for peer in (trickling, unfinished):
            peer.socket.settimeout(0.2)
        while len(refused) < 2 and time.monotonic() < end:
            try:
                if size < len(message) and trickling not in refused:
                    trickling.send_bytes(Peer.frame(message[size:size + 1], BINARY if size == 0 else 0,
                                                    final=False))
                    size += 1
                for peer in {trickling, unfinished} - refused.keys():
                    reason = self.poll(peer)
                    refused.update({peer: reason} if reason else {})
            except Closed:
                self.fail("closed without a reason")
        self.assertEqual(set(refused.values()), {"timeout"})
        unfinished.socket.settimeout(harness.PATIENCE_S)
        unfinished.expect_end()
        for peer in (no_hello, unfinished, trickling):
            peer.close()
        # The clients that wait all the while have said nothing but pongs, and are still there.
        honest = federation.aggregator.events("client-connected")[:2]
        time.sleep(max(0.0, started + SILENT_TIMEOUT_S + 5 - time.monotonic()))
        gone = {event["device"] for event in federation.aggregator.events("client-disconnected")}
        self.assertFalse(gone & {event["device"] for event in honest if event["client"] < 2})
        for index in (4, 5):
            with Peer(federation, index) as peer:
                peer.hello()
                peer.next_task()
                peer.decline_task()
                peer.send("bye", {"reason": "none", "class": "retry", "after-ms": 0})
        self.assertEqual(federation.health()["status"], "ok")

    @staticmethod
    def poll(peer):
        """The reason of a refusal that has come within 0.2 s, or None."""
        try:
            while True:
                first, second = peer._take(2)
                size = second & 0x7F
                if size == 126:
                    high, low = peer._take(2)
                    size = high * 256 + low
                data = peer._take(size)
                if first & 0x0F == BINARY and data[5] == 4:
                    return json.loads(data[24:])["reason"]
        except AssertionError:
            return None  # nothing there


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
        """More than may connect stay silent all the while, and come back as soon as they are sent away."""
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

    def test_silence_is_cheap(self):
        federation = self.federation(clients=2)
        federation.start_aggregator()
        before = federation.metric("process_resident_memory_bytes")
        held = [plain(federation.port) for _ in range(400)]
        harness.wait_until("400 connections", lambda: federation.metric("fedge_connections") >= 400)
        more = federation.metric("process_resident_memory_bytes") - before
        for connection in held:
            connection.close()
        if not harness.SANITIZED:  # whose memory is no measure
            self.assertLess(more, 400 * 8192)

    def test_the_same_device_again_and_again(self):
        """The latest connection counts; those before are told so."""
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
        """Once or twice is a network that breaks, and no second device."""
        federation = self.start(rounds=1)
        with self.connect(federation), self.connect(federation), self.connect(federation) as peer:
            self.give_up(federation, peer)
        self.assertEqual(federation.aggregator.events("identity-in-use-twice"), [])
        self.assert_unharmed(federation, 1)

    def test_who_does_not_read(self):
        """Asks for the model over and over and reads nothing."""
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


if __name__ == "__main__":
    harness.main()
