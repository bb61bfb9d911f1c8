"""The transport from outside: test_transport.py PATH_OF_FEDGE_KEYS PATH_OF_TRANSPORT_SERVER

TLS and websockets are spoken by hand here, so that nothing is shared with the server's own code.
"""

import base64
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

PATIENCE_S = 600  # nothing is asserted to be quick: what takes longer hangs
HELLO, WELCOME, REFUSE, PART, ACK, BYE = 1, 2, 4, 10, 11, 13
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MAX_CONNECTIONS, MAX_UNAUTHENTICATED, MAX_PER_ADDRESS = 2, 8, 6  # as transport_server.c has them
KEYS = os.path.abspath(sys.argv[1])
SERVER = os.path.abspath(sys.argv[2])


def message(kind, meta, payload=b""):
    text = json.dumps(meta).encode()
    head = struct.pack("<4sBBHII", b"FEDG", 1, kind, 0, len(text), len(payload))
    crc = zlib.crc32(head + text + payload)
    return head + struct.pack("<II", crc, 0) + text + payload


def websocket_frame(data, opcode=BINARY):
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = b"\xfe" + struct.pack(">H", size)
    else:
        length = b"\xff" + struct.pack(">Q", size)
    return bytes([0x80 | opcode]) + length + bytes(4) + data  # a mask of zeros changes nothing


class Peer:
    """A client with the identity in [folder], or without one."""

    def __init__(self, port, folder):
        self.socket = self.context(folder).wrap_socket(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        self.buffer = b""

    @staticmethod
    def context(folder):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        trust = os.path.join(FOLDER, "keys", "trust")
        for name in os.listdir(trust):
            context.load_verify_locations(os.path.join(trust, name))
        context.load_cert_chain(os.path.join(folder, "chain.pem"), os.path.join(folder, "key.pem"))
        return context

    def close(self):
        self.socket.close()

    def until_end(self):
        try:
            while chunk := self.socket.recv(65536):
                self.buffer += chunk
        except (ssl.SSLError, OSError):
            pass
        return self.buffer

    def take(self, size):
        while len(self.buffer) < size:
            chunk = self.socket.recv(65536)
            if not chunk:
                raise EOFError
            self.buffer += chunk
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def request(self, *headers):
        lines = ["GET / HTTP/1.1", "Host: localhost", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode())

    def upgrade(self, protocol="fedge.v1"):
        key = base64.b64encode(os.urandom(16)).decode()
        self.request("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                     f"Sec-WebSocket-Key: {key}",
                     *([f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []))

    def join(self):
        self.upgrade()
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.take(1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        self.send(HELLO, {"protocol-min": 1, "protocol-max": 1, "release": "t", "arch": "t", "ram": 1})
        assert self.receive()[0] == WELCOME
        return self

    def send(self, kind, meta, payload=b""):
        self.socket.sendall(websocket_frame(message(kind, meta, payload)))

    def frame(self):
        first, second = self.take(2)
        size = second & 127
        if size == 126:
            size = struct.unpack(">H", self.take(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self.take(8))[0]
        return first & 15, self.take(size)

    def receive(self):
        while True:
            opcode, data = self.frame()
            if opcode == PING:
                self.socket.sendall(websocket_frame(data, PONG))
            elif opcode == CLOSE:
                raise EOFError
            else:
                size = struct.unpack("<I", data[8:12])[0]
                return data[5], json.loads(data[24:24 + size])


class Transport(unittest.TestCase):
    def setUp(self):
        self.log = open(os.path.join(FOLDER, "log"), "w+b")
        self.server = subprocess.Popen([SERVER, os.path.join(FOLDER, "keys")], stdout=subprocess.PIPE,
                                       stderr=self.log)
        self.port = int(self.server.stdout.readline())
        self.peers = []

    def tearDown(self):
        for peer in self.peers:
            peer.close()
        if self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
        code = self.server.wait(PATIENCE_S)
        self.server.stdout.close()
        text = self.logged()
        self.log.close()
        self.assertEqual(code, 0, text)

    def logged(self):
        with open(self.log.name, encoding="utf-8") as file:
            return file.read()

    def peer(self, name="clients/0000"):
        self.peers.append(Peer(self.port, os.path.join(FOLDER, "keys", name)))
        return self.peers[-1]

    def test_reading_stops_and_goes_on(self):
        peer = self.peer().join()
        pattern = bytes(i % 251 for i in range(251 * 300))
        offset = 0
        for i in range(120):
            size = 1234 if i % 5 == 0 else 65536
            start = offset % 251
            peer.send(PART, {"task-id": 2 if i == 119 else 1, "offset": offset},
                      pattern[start:start + size])
            offset += size
        self.assertEqual(peer.receive(), (ACK, {"task-id": 0, "duplicate": False}))

    def test_who_answers_pings_stays_and_who_does_not_is_dropped(self):
        answers, silent = self.peer("clients/0000").join(), self.peer("clients/0001").join()
        pings = 0
        with self.assertRaises(EOFError):
            while True:
                if silent.frame()[0] == PING:
                    pings += 1
                    opcode, data = answers.frame()
                    self.assertEqual(opcode, PING)
                    answers.socket.sendall(websocket_frame(data, PONG))
        self.assertGreater(pings, 1)
        answers.send(PART, {"task-id": 2, "offset": 0}, b"\0")
        self.assertEqual(answers.receive()[0], ACK)
        self.assertIn("client-silent", self.logged())

    def test_text_is_refused_and_told(self):
        peer = self.peer().join()
        peer.socket.sendall(websocket_frame(b"hello", TEXT))
        kind, meta = peer.receive()
        self.assertEqual((kind, meta["reason"]), (REFUSE, "bad-frame"))
        with self.assertRaises(EOFError):
            peer.receive()

    def test_no_message_before_the_upgrade(self):
        for protocol, status in ((None, b"HTTP/1.1 400 "), ("other.v1", b"")):
            peer = self.peer()
            peer.upgrade(protocol)
            answer = peer.until_end()
            self.assertEqual(answer[:len(status) or None], status)
        peer = self.peer()
        peer.request()
        self.assertTrue(peer.until_end().startswith(b"HTTP/1.1 404 "))
        peer = self.peer("operator")
        peer.upgrade()
        self.assertTrue(peer.until_end().startswith(b"HTTP/1.1 403 "))
        self.assertNotIn("client-connected", self.logged())

    def plain(self, source="127.0.0.1"):
        made = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S, (source, 0))
        self.addCleanup(made.close)
        return made

    def join_among_others(self, name):
        """As clients do: tries again until it is let in."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                return self.peer(name).join()
            except (AssertionError, OSError, EOFError):
                time.sleep(0.02)
        self.fail("there was never room")

    def wait_for(self, text):
        while text not in self.logged():
            self.assertIsNone(self.server.poll(), self.logged())
            time.sleep(0.02)

    def test_too_many_devices_are_refused(self):
        peers = [self.peer(f"clients/{i % 2:04}").join() for i in range(MAX_CONNECTIONS)]
        extra = self.peer()
        extra.upgrade()
        self.assertTrue(extra.until_end().startswith(b"HTTP/1.1 503 "))
        self.assertIn(f"{MAX_CONNECTIONS} connections are open, the limit (--max-connections)",
                      self.logged())
        peers[1].send(PART, {"task-id": 2, "offset": 0}, b"\0")
        self.assertEqual(peers[1].receive()[0], ACK)
        peers[0].close()
        self.join_among_others("clients/0001")  # once the server has seen it go

    def test_who_shows_no_certificate_keeps_no_device_out(self):
        """More of them than there is room for, of all kinds; a device gets in among them."""
        first = self.peer().join()
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        held = []
        for i in range(3 * MAX_UNAUTHENTICATED):
            held.append(self.plain(f"127.0.0.{2 + i % 4}"))
            if i % 3:
                held[-1].sendall(hello[:1] if i % 3 == 1 else hello)
        self.join_among_others("clients/0001")
        for i, connection in enumerate(held):  # all, also those that stopped in the handshake
            self.until_sent_away(connection)
            if i % 6 == 0:
                self.answer_a_ping(first)
        self.assertIn("8 connections have shown no certificate, the limit (--max-unauthenticated)",
                      self.logged())
        # The crowd's refusals are more than the log has a line for each of.
        self.sent_away_because("it sent nothing", b"", first)
        self.sent_away_because("it fell silent in the handshake", hello, first)
        self.assertNotIn("address=unknown", self.logged())
        first.send(PART, {"task-id": 2, "offset": 0}, b"\0")
        self.assertEqual(first.receive()[0], ACK)

    @staticmethod
    def until_sent_away(connection):
        try:
            while connection.recv(100):
                pass
        except ConnectionError:
            pass

    def answer_a_ping(self, peer):
        """Pings come all the time, and who answers none for long is dropped."""
        opcode, data = peer.frame()
        self.assertEqual(opcode, PING)
        peer.socket.sendall(websocket_frame(data, PONG))

    def sent_away_because(self, text, sent, first):
        while text not in self.logged():
            connection = self.plain("127.0.0.6")
            connection.sendall(sent)
            self.until_sent_away(connection)
            self.answer_a_ping(first)

    def join_among_slow_handshakes(self):
        """As many as there is room for send a byte of their hello at a time, for a while already."""
        held = [self.plain(f"127.0.0.{2 + i % 4}") for i in range(MAX_UNAUTHENTICATED)]
        for connection in held:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        over = threading.Event()

        def trickle():
            while not over.wait(0.1):
                for connection in held:
                    try:
                        connection.sendall(b"\0")
                    except OSError:
                        pass  # sent away
        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            time.sleep(2.5)
            self.join_among_others("clients/0001")
        finally:
            over.set()
            thread.join()
            for connection in held:
                connection.close()

    def test_slow_handshakes_keep_no_device_out(self):
        """The oldest goes for a device, before libwebsockets' time for handshakes is over."""
        for _ in range(5):  # a slow machine may miss that
            self.join_among_slow_handshakes()
            if "connection-refused address=127.0.0.2:" in self.logged():
                return
        self.fail(self.logged())

    def test_one_address_has_a_limit_of_its_own(self):
        held = [self.plain() for _ in range(MAX_PER_ADDRESS + 1)]
        self.assertEqual(held[0].recv(1), b"")  # the oldest makes room
        self.assertIn("6 connections from this address have shown no certificate, the limit "
                      "(--max-per-address)", self.logged())
        elsewhere = self.plain("127.0.0.9")
        elsewhere.sendall(b"x")
        self.wait_for("what it sent is not TLS")
        for connection in held:
            connection.close()
        self.peer().join()

    def test_a_hello_in_pieces(self):
        """The door waits for enough bytes to tell."""
        server = self.plain()
        inner, outer = socket.socketpair()
        self.addCleanup(inner.close)
        self.addCleanup(outer.close)

        def carry():
            first = outer.recv(65536)
            for i in range(8):
                server.sendall(first[i:i + 1])
                time.sleep(0.01)
            server.sendall(first[8:])
            answered.append(server.recv(65536))
            outer.close()
        answered = []
        context = Peer.context(os.path.join(FOLDER, "keys", "clients/0000"))
        carrier = threading.Thread(target=carry, daemon=True)
        carrier.start()
        inner.settimeout(PATIENCE_S)
        try:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context.wrap_socket(inner).close()
        except (ssl.SSLError, OSError):
            pass  # the handshake goes no further than the server's answer
        carrier.join(PATIENCE_S)
        self.assertEqual(answered[0][:1], b"\x16")

    def test_sigterm_tells_the_clients(self):
        peer = self.peer().join()
        self.server.send_signal(signal.SIGTERM)
        kind, meta = peer.receive()
        self.assertEqual((kind, meta["reason"], meta["class"]), (BYE, "shutting-down", "later"))

    def test_a_broken_registry_leaves_everything_as_it_was(self):
        path = os.path.join(FOLDER, "keys", "registry", "registry.json")
        with open(path, "rb") as file:
            good = file.read()
        peer = self.peer().join()
        try:
            with open(path, "wb") as file:
                file.write(good[:len(good) // 2])
            self.server.send_signal(signal.SIGHUP)
            while "reload-failed" not in self.logged():
                peer.send(PART, {"task-id": 2, "offset": 0}, b"\0")
                self.assertEqual(peer.receive()[0], ACK)
        finally:
            with open(path, "wb") as file:
                file.write(good)
        self.peer("clients/0001").join()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="fedge-transport-") as FOLDER:
        subprocess.run([KEYS, "demo", "--out", os.path.join(FOLDER, "keys"), "--clients", "2"],
                       check=True, stdout=subprocess.DEVNULL)
        unittest.main(argv=sys.argv[:1], verbosity=2)
