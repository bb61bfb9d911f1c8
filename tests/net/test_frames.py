"""Bytes that are no TLS, no HTTP, no websocket and no message: what a stranger can do wrong, and a connected, registered
device before any update."""

import json
import os
import socket
import ssl
import struct
import subprocess
import threading
import time

from misuse import INDEX, Closed, MisuseTest, Peer, Refused, ended, harness, plain
from peer import BINARY, CLOSE, PING, TEXT, connect_tls, pack, tls_context

FETCH = {"hash": "ab" * 32, "offset": 0}
HELLO = {"protocol-min": 1, "protocol-max": 1, "release": "test", "arch": "python", "ram": 0}


def end_writing(connection):
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side has ended the connection already


def text(value):
    return value if isinstance(value, bytes) else value.encode()


def deep(levels):
    return text(json.dumps(FETCH)[:-1] + ', "x": ' + "[" * levels + "]" * levels + "}")


# Name, message, reason of the refusal that it gets.
MESSAGES = [
    ("magic", pack("fetch", FETCH, magic=b"FEDX"), "bad-frame"),
    ("version", pack("fetch", FETCH, version=2), "bad-frame"),
    ("flags", pack("fetch", FETCH, flags=0x8000), "bad-frame"),
    ("reserved", pack("fetch", FETCH, reserved=1), "bad-frame"),
    ("crc", pack("fetch", FETCH, crc=1), "bad-frame"),
    ("no bytes", b"", "bad-frame"),
    ("shorter than a header", pack("fetch", FETCH)[:10], "bad-frame"),
    ("shorter than it says", pack("fetch", FETCH)[:-3], "bad-frame"),
    ("longer than it says", pack("fetch", FETCH) + b"more", "bad-frame"),
    ("lengths that do not add up", pack("fetch", FETCH, payload_size=5), "bad-frame"),
    ("JSON over the bound", pack("fetch", FETCH, meta_size=16 * 1024 + 1), "too-big"),
    ("payload over the bound", pack("fetch", FETCH, payload_size=64 * 1024 + 1), "too-big"),
    ("four gigabytes", pack("fetch", FETCH, meta_size=0xFFFFFFFF, payload_size=0xFFFFFFFF), "too-big"),
    ("unknown type that must be known", pack(99, {}, flags=1), "unknown-type"),
    ("a server's message", pack("welcome", {}), "bad-state"),
    ("hello twice", pack("hello", HELLO), "bad-state"),
    ("payload that does not belong there", pack("fetch", FETCH, b"x"), "bad-meta"),
    ("no JSON", pack("fetch", text=b""), "bad-meta"),
    ("broken JSON", pack("fetch", text=b'{"hash": "ab'), "bad-meta"),
    ("not an object", pack("fetch", text=b"[1, 2]"), "bad-meta"),
    ("two values", pack("fetch", text=text(json.dumps(FETCH)) + b"{}"), "bad-meta"),
    ("too deep", pack("fetch", text=deep(9)), "bad-meta"),
    ("far too deep", pack("fetch", text=deep(6000)), "bad-meta"),
    ("a key twice", pack("fetch", text=text(json.dumps(FETCH)[:-1] + ', "offset": 1}')), "bad-meta"),
    ("a key missing", pack("fetch", {"hash": "ab" * 32}), "bad-meta"),
    ("a wrong type", pack("fetch", {"hash": 1, "offset": 0}), "bad-meta"),
    ("a number over 2^53", pack("fetch", {"hash": "ab" * 32, "offset": 1 << 60}), "bad-meta"),
    ("a negative number", pack("fetch", {"hash": "ab" * 32, "offset": -1}), "bad-meta"),
    ("half a number", pack("fetch", {"hash": "ab" * 32, "offset": 0.5}), "bad-meta"),
    ("a hash that is none", pack("fetch", {"hash": "xy" * 32, "offset": 0}), "bad-meta"),
    ("a NUL in the JSON", pack("fetch", text=text(json.dumps(FETCH)) + b"\0"), "bad-meta"),
    ("not UTF-8", pack("fetch", text=b'{"hash": "\xff\xfe", "offset": 0}'), "bad-meta"),
    ("a part without bytes", pack("part", {"task-id": 1, "offset": 0}), "bad-meta"),
]


class Frames(MisuseTest):
    def test_each_bad_message_is_refused_with_its_reason(self):
        federation = self.start(rounds=2)
        for name, message, reason in MESSAGES:
            with self.subTest(name), Peer(federation, INDEX) as peer:
                peer.hello()
                peer.send_message(message)
                self.assertEqual(peer.expect_refusal(reason)["class"], "never")
                peer.expect_end()
        refused = federation.aggregator.wait_event("message-refused", len(MESSAGES))
        self.assertTrue(refused["error"] and refused["device"], refused)
        self.give_up(federation)
        self.give_up(federation)
        self.assert_unharmed(federation, 2)

    def test_each_bad_message_before_hello(self):
        federation = self.start(rounds=1)
        for name, message, reason in MESSAGES:
            # What is wrong with its place is wrong before HELLO for another reason.
            if reason in ("bad-frame", "too-big", "unknown-type"):
                with self.subTest(name), Peer(federation, INDEX) as peer:
                    peer.send_message(message)
                    peer.expect_refusal(reason)
                    peer.expect_end()
        for kind in ("fetch", "upload", "part", "decline", "bye"):
            with self.subTest(kind), Peer(federation, INDEX) as peer:
                peer.send(kind, {})
                peer.expect_refusal("bad-state")
                peer.expect_end()
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_hellos(self):
        federation = self.start(rounds=1)
        cases = [
            ("only later versions", {**HELLO, "protocol-min": 2, "protocol-max": 3}, "protocol-range"),
            ("a range upside down", {**HELLO, "protocol-min": 3, "protocol-max": 1}, "bad-meta"),
            ("a text too long", {**HELLO, "release": "x" * 100}, "bad-meta"),
            ("too many features", {**HELLO, "features": ["x"] * 97}, "bad-meta"),
            ("no release", {k: v for k, v in HELLO.items() if k != "release"}, "bad-meta"),
        ]
        for name, meta, reason in cases:
            with self.subTest(name), Peer(federation, INDEX) as peer:
                peer.send("hello", meta)
                peer.expect_refusal(reason)
                peer.expect_end()
        with Peer(federation, INDEX) as peer:
            peer.hello(**{"a-key-of-a-later-release": {"x": [1, 2]}, "protocol-max": 7})
            peer.next_task()
            self.give_up(federation, peer)
        self.assert_unharmed(federation, 1)

    def test_what_is_passed_over(self):
        federation = self.start(rounds=1)
        with self.connect(federation) as peer:
            peer.send(99, {"from": "a later release"})
            peer.send("fetch", {"hash": "ab" * 32, "offset": 0})
            self.assertEqual(peer.expect_refusal("stale-task")["class"], "retry")
            self.give_up(federation, peer)
        self.assert_unharmed(federation, 1)

    def test_a_position_behind_the_blob(self):
        federation = self.start(rounds=1)
        with self.connect(federation) as peer:
            peer.send("fetch", {"hash": peer.welcome["plan"], "offset": peer.welcome["plan-size"]})
            peer.expect_refusal("bad-meta")
            peer.expect_end()
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_a_blob_from_any_byte(self):
        federation = self.start(rounds=1)
        with self.connect(federation) as peer:
            plan = peer.fetch(peer.welcome["plan"], peer.welcome["plan-size"])
            self.assertEqual(json.loads(plan)["name"], "small")
            peer.send("fetch", {"hash": peer.welcome["plan"], "offset": len(plan) - 7})
            self.assertEqual(peer.expect("chunk").payload, plan[-7:])
            self.give_up(federation, peer)
        self.assert_unharmed(federation, 1)


class Log(MisuseTest):
    def test_one_device_cannot_fill_the_log(self):
        federation = self.start(rounds=1)
        notice = {"task-id": 999, "reason": "policy", "class": "never", "after-ms": 0, "text": "again"}
        with self.connect(federation) as peer:
            for _ in range(1000):
                peer.send("decline", notice)
            logged = federation.aggregator
            harness.wait_until("all to be logged or counted", lambda: 1000 <= len(
                logged.events("client-declined", text="again")) + sum(
                    event["number"] for event in logged.events("more-lines-of-device")))
            self.assertLess(len(logged.events("client-declined", text="again")), 500)
            self.assertEqual({event["device"] for event in logged.events("more-lines-of-device")},
                             {logged.events("client-connected", client=INDEX)[0]["device"]})
            self.give_up(federation, peer)
        self.assert_unharmed(federation, 1)


class Websocket(MisuseTest):
    def test_text_frames(self):
        federation = self.start(rounds=1)
        with self.connect(federation) as peer:
            peer.send_message(b'{"hello": "world"}', TEXT)
            peer.expect_refusal("bad-frame")
            peer.expect_end()
        with Peer(federation, INDEX) as peer:
            peer.send_message(b"hello", TEXT)
            peer.expect_refusal("bad-frame")
            peer.expect_end()
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_frames_against_the_rules(self):
        """Each error ends the connection with the status of RFC 6455; no message is read."""
        federation = self.start(rounds=1)
        whole = pack("fetch", FETCH)
        masked = Peer.frame(whole)
        unmasked = bytes([0x82, len(whole)]) + whole
        long16 = b"\x82\xfe\x00\x05" + bytes(4) + b"FEDGE"
        long64 = b"\x82\xff" + struct.pack("!Q", len(whole)) + bytes(4) + whole
        cases = [
            ("reserved bits 1", bytes([0xC2]) + masked[1:], 1002),
            ("reserved bits 2", bytes([0xA2]) + masked[1:], 1002),
            ("reserved bits 3", bytes([0x92]) + masked[1:], 1002),
            ("all reserved bits", bytes([0xF2]) + masked[1:], 1002),
            ("reserved opcode", Peer.frame(whole, 3), 1002),
            ("reserved control opcode", Peer.frame(b"", 11), 1002),
            ("a long ping", Peer.frame(b"x" * 200, PING), 1002),
            ("a ping in fragments", Peer.frame(b"x", PING, final=False), 1002),
            ("continuation of nothing", Peer.frame(whole, 0), 1002),
            ("a message in a message", Peer.frame(whole[:5], BINARY, final=False) + masked, 1002),
            ("not masked", unmasked, 1002),
            ("a ping that is not masked", b"\x89\x00", 1002),
            ("a close frame that is not masked", b"\x88\x00", 1002),
            ("a short length in 16 bits", long16, 1002),
            ("a short length in 64 bits", long64, 1002),
            ("the highest bit of a length", b"\x82\xff\x80" + bytes(7) + bytes(4), 1002),
            ("a close frame of one byte", Peer.frame(b"\x03", CLOSE), 1002),
            ("a close reason that is not UTF-8", Peer.frame(b"\x03\xe8\xff\xfe", CLOSE), 1007),
            ("half a character", Peer.frame(b"\x03\xe8ok\xe2\x82", CLOSE), 1007),
        ]
        cases += [(f"close status {code}", Peer.frame(struct.pack("!H", code) + b"bye", CLOSE), 1002)
                  for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)]
        refused = len(federation.aggregator.events("message-refused"))
        for name, data, code in cases:
            with self.subTest(name), Peer(federation, INDEX) as peer:
                peer.hello()
                peer.send_bytes(data)
                peer.send("bye", {"reason": "none", "class": "retry", "after-ms": 0, "text": "too late"})
                self.assertEqual(peer.expect_end().code, code)
        for code in (1000, 1001, 1003, 1007, 1011, 3000, 4999):
            with self.subTest(code), Peer(federation, INDEX) as peer:
                peer.hello()
                peer.send_bytes(Peer.frame(struct.pack("!H", code) + "tschüß".encode(), CLOSE) + masked)
                self.assertEqual(peer.expect_end().code, code)
        with Peer(federation, INDEX) as peer:
            peer.hello()
            peer.send_bytes(Peer.frame(b"", CLOSE))
            self.assertIsInstance(peer.expect_end(), Closed)
        self.assertEqual(federation.aggregator.events("client-bye", text="too late"), [])
        self.assertGreater(len(federation.aggregator.events("message-refused")), refused)
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_a_message_in_pieces_and_among_pings(self):
        federation = self.start(rounds=1)
        with Peer(federation, INDEX) as peer:
            whole = pack("hello", HELLO)
            peer.send_bytes(Peer.frame(whole[:5], BINARY, final=False))
            peer.send_bytes(Peer.frame(b"are you there", PING))
            for at in range(5, len(whole) - 1):
                peer.send_bytes(Peer.frame(whole[at:at + 1], 0, final=False))
            peer.send_bytes(Peer.frame(whole[-1:], 0))
            peer.expect("welcome")
            peer.next_task()
            self.give_up(federation, peer)
        self.assert_unharmed(federation, 1)

    def test_a_message_without_end(self):
        """Endless fragments are refused at the first byte beyond the size in the header."""
        federation = self.start(rounds=1)
        with self.connect(federation) as peer:
            whole = pack("fetch", FETCH)
            peer.send_bytes(Peer.frame(whole, BINARY, final=False))
            with self.assertRaises(Closed):
                peer.send_bytes(Peer.frame(b"x" * 1000, 0, final=False))
                peer.expect_refusal("bad-frame")
                for _ in range(100000):
                    peer.send_bytes(Peer.frame(b"x" * 1000, 0, final=False))
        with self.connect(federation) as peer:
            peer.send_bytes(Peer.frame(b"FEDG", BINARY, size=1 << 62))
            try:
                peer.send_bytes(b"x" * 100000)
                peer.expect_refusal("bad-frame")
                peer.expect_end()
            except Closed:
                pass  # the server need not wait until all of it is sent
        federation.aggregator.wait_event("message-refused", 2, reason="bad-frame")
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_upgrades_against_the_rules(self):
        federation = self.start(rounds=1)
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        good = {"Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade",
                "Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Protocol": "fedge.v1"}
        cases = [
            ("as it should be", "GET / HTTP/1.1", {}, 101),
            ("among others", "GET / HTTP/1.1", {"Connection": "keep-alive, upgrade", "Upgrade": "WebSocket",
                                                "Sec-WebSocket-Protocol": "chat, fedge.v1"}, 101),
            ("POST", "POST / HTTP/1.1", {"Content-Length": "0"}, 405),
            ("HEAD", "HEAD / HTTP/1.1", {}, 405),
            ("PUT", "PUT / HTTP/1.1", {}, 405),
            ("HTTP/1.0", "GET / HTTP/1.0", {}, 505),
            ("HTTP/1.2", "GET / HTTP/1.2", {}, 505),
            ("another path", "GET /chat HTTP/1.1", {}, 404),
            ("a query", "GET /?x=1 HTTP/1.1", {}, 404),
            ("no host", "GET / HTTP/1.1", {"Host": None}, 400),
            ("two hosts", "GET / HTTP/1.1", {"Host": "localhost\r\nHost: localhost"}, 400),
            ("no host's name", "GET / HTTP/1.1", {"Host": "local host/"}, 400),
            ("no port", "GET / HTTP/1.1", {"Host": "localhost:99999"}, 400),
            ("half a token", "GET / HTTP/1.1", {"Connection": "up"}, 400),
            ("version 12", "GET / HTTP/1.1", {"Sec-WebSocket-Version": "12"}, 426),
            ("version 8", "GET / HTTP/1.1", {"Sec-WebSocket-Version": "8"}, 426),
            ("version 013", "GET / HTTP/1.1", {"Sec-WebSocket-Version": "013"}, 426),
            ("version 13x", "GET / HTTP/1.1", {"Sec-WebSocket-Version": "13x"}, 426),
            ("no version", "GET / HTTP/1.1", {"Sec-WebSocket-Version": None}, 426),
            ("no key", "GET / HTTP/1.1", {"Sec-WebSocket-Key": None}, 400),
            ("15 bytes", "GET / HTTP/1.1", {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25j"}, 400),
            ("17 bytes", "GET / HTTP/1.1", {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZWE="}, 400),
            ("no base64", "GET / HTTP/1.1", {"Sec-WebSocket-Key": "dGhl!HNhbXBsZSBub25jZQ=="}, 400),
            ("two keys", "GET / HTTP/1.1", {"Sec-WebSocket-Key": f"{key}\r\nSec-WebSocket-Key: {key}"}, 400),
            ("no subprotocol", "GET / HTTP/1.1", {"Sec-WebSocket-Protocol": None}, 400),
            ("an empty subprotocol", "GET / HTTP/1.1", {"Sec-WebSocket-Protocol": ""}, 400),
        ]
        for name, line, changes, status in cases:
            with self.subTest(name), connect_tls(federation.port, f"{federation.keys}/trust",
                                                 f"{federation.keys}/clients/{INDEX:04}") as connection:
                headers = {**good, **changes}
                connection.sendall("".join([f"{line}\r\n"] + [
                    f"{key}: {value}\r\n" for key, value in headers.items() if value is not None] +
                    ["\r\n"]).encode())
                answer = connection.recv(4096)
                self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), answer)
                self.assertEqual(b"Sec-WebSocket-Version: 13\r\n" in answer, status == 426)
        self.give_up(federation)
        self.assert_unharmed(federation, 1)

    def test_another_subprotocol(self):
        federation = self.start(rounds=1)
        for protocol in ("fedge.v9", "chat", "x" * 5000):
            with self.subTest(protocol[:10]), self.assertRaises((Refused, Closed)):
                peer = Peer(federation, INDEX, upgrade=False)
                try:
                    peer.upgrade(protocol)
                finally:
                    peer.close()
        self.give_up(federation)
        self.assert_unharmed(federation, 1)


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
        """OpenSSL updates its keys twice and requests an update of the server's keys."""
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
        time.sleep(0.05)  # one that has just come is not silent, and gives its place to nobody
        self.assertEqual(federation.health()["status"], "ok")
        with Peer(federation, INDEX) as peer:
            peer.hello()
            peer.next_task()
            for connection in hanging:
                connection.close()
            self.give_up(federation, peer)
        self.assert_unharmed(federation, 1)


if __name__ == "__main__":
    harness.main()
