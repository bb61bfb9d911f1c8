"""A client of fedge written from docs/reference/protocol.md alone, able to do everything wrong.

TLS by Python's ssl, websocket frames of RFC 6455, messages of fedge.v1.
"""

import base64
import json
import os
import random
import socket
import ssl
import struct
import zlib

from harness import PATIENCE_S

TYPES = ["hello", "welcome", "decline", "refuse", "task", "fetch", "chunk", "upload", "resume", "part",
         "ack", "cancel", "bye"]
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MAX_PAYLOAD = 64 * 1024


def pack(kind, meta=None, payload=b"", *, text=None, magic=b"FEDG", version=1, flags=0, reserved=0,
         meta_size=None, payload_size=None, crc=None):
    """One message; every field of the header can be given a wrong value."""
    body = text if text is not None else json.dumps(meta or {}, separators=(",", ":")).encode()
    number = kind if isinstance(kind, int) else TYPES.index(kind) + 1
    head = struct.pack("<4sBBHII", magic, version, number, flags,
                       len(body) if meta_size is None else meta_size,
                       len(payload) if payload_size is None else payload_size)
    if crc is None:
        crc = zlib.crc32(payload, zlib.crc32(body, zlib.crc32(head)))
    return head + struct.pack("<II", crc, reserved) + body + payload


class Message:
    def __init__(self, frame):
        magic, version, number, flags, meta_size, payload_size, crc, reserved = struct.unpack(
            "<4sBBHIIII", frame[:24])
        assert (magic, version, flags, reserved) == (b"FEDG", 1, 0, 0), frame[:24]
        assert len(frame) == 24 + meta_size + payload_size, (len(frame), meta_size, payload_size)
        assert crc == zlib.crc32(frame[24:], zlib.crc32(frame[:16]))
        self.kind = TYPES[number - 1]
        self.meta = json.loads(frame[24:24 + meta_size])
        self.payload = frame[24 + meta_size:]

    def __repr__(self):
        return f"{self.kind} {self.meta} + {len(self.payload)} bytes"


class Closed(Exception):
    """The connection has ended. [code]: that of the websocket's close frame, or None."""

    def __init__(self, why, code=None):
        super().__init__(f"connection closed: {why}")
        self.code = code


class Refused(Exception):
    """The upgrade was answered with an HTTP status."""

    def __init__(self, status):
        super().__init__(f"HTTP {status}")
        self.status = status


def tls_context(trust, identity=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in os.listdir(trust):
        if name.endswith(".pem"):
            context.load_verify_locations(os.path.join(trust, name))
    if identity:
        context.load_cert_chain(os.path.join(identity, "chain.pem"), os.path.join(identity, "key.pem"))
    return context


def connect_tls(port, trust, identity=None, host="localhost", resume=None):
    """[resume]: an earlier Peer, whose session is offered to the server."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        context = resume.context if resume else tls_context(trust, identity)
        return context.wrap_socket(plain, server_hostname=host, session=resume.session if resume else None)
    except BaseException:
        plain.close()
        raise


class Peer:
    """One connection of one device."""

    def __init__(self, federation, index, upgrade=True, identity=None, trust=None, resume=None):
        self.federation = federation
        self.index = index
        identity = identity or f"{federation.keys}/clients/{index:04}"
        self.socket = connect_tls(federation.port, trust or f"{federation.keys}/trust", identity,
                                  resume=resume)
        self.context, self.session = self.socket.context, None
        self._buffer = b""
        self.welcome = self.task = None
        if upgrade:
            try:
                self.upgrade()
            except BaseException:
                self.socket.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connection without a message."""
        self.socket.close()

    # Websocket.

    def upgrade(self, protocol="fedge.v1"):
        key = base64.b64encode(random.randbytes(16)).decode()
        self.socket.sendall((f"GET / HTTP/1.1\r\nHost: localhost:{self.federation.port}\r\n"
                             "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
                             f"Sec-WebSocket-Protocol: {protocol}\r\n\r\n").encode())
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if status != 101:
            raise Refused(status)
        self.session, self.resumed = self.socket.session, self.socket.session_reused

    def _more(self):
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            raise AssertionError(f"nothing came for {PATIENCE_S} s") from None
        except (ConnectionError, ssl.SSLError) as error:
            raise Closed(str(error)) from None
        if not data:
            raise Closed("end of stream")
        self._buffer += data

    def _take(self, size):
        while len(self._buffer) < size:
            self._more()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def send_bytes(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, ssl.SSLError) as error:
            raise Closed(str(error)) from None

    @staticmethod
    def frame(data, opcode=BINARY, final=True, size=None):
        """A masked websocket frame; [size] is what its header says."""
        size = len(data) if size is None else size
        head = bytes([opcode | (0x80 if final else 0)])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += struct.pack("!BH", 0x80 | 126, size)
        else:
            head += struct.pack("!BQ", 0x80 | 127, size)
        mask = random.randbytes(4)
        repeated = (mask * (len(data) // 4 + 1))[:len(data)]
        masked = (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(
            len(data), "little")
        return head + mask + masked

    def send_message(self, message, opcode=BINARY):
        self.send_bytes(self.frame(message, opcode))

    def send(self, kind, meta=None, payload=b"", **wrong):
        self.send_message(pack(kind, meta, payload, **wrong))

    def receive(self):
        """The next message; answers pings. Closed at the end."""
        while True:
            first, data = self._frame()
            opcode = first & 0x0F
            if opcode == PING:
                self.send_bytes(self.frame(data, PONG))
            elif opcode == CLOSE:
                code = struct.unpack("!H", data[:2])[0] if len(data) >= 2 else None
                raise Closed("close frame", code)
            elif opcode == BINARY:
                while not first & 0x80:
                    first, more = self._frame()
                    data += more
                return Message(data)

    def _frame(self):
        """The first byte of a websocket frame, and its payload."""
        first, second = self._take(2)
        size = second & 0x7F
        if size == 126:
            size = struct.unpack("!H", self._take(2))[0]
        elif size == 127:
            size = struct.unpack("!Q", self._take(8))[0]
        return first, self._take(size)

    # fedge.v1.

    def expect(self, kind, skip=()):
        while True:
            message = self.receive()
            if message.kind == kind:
                return message
            if message.kind not in skip:
                raise AssertionError(f"{message}, expected {kind}")

    def expect_refusal(self, reason, skip=("task", "chunk", "cancel")):
        message = self.expect("refuse", skip)
        assert message.meta["reason"] == reason, f"{message}, expected {reason}"
        assert message.meta["text"], message
        return message.meta

    def expect_end(self):
        """Waits until the aggregator closes the connection. Ignores messages before that."""
        try:
            while True:
                self.receive()
        except Closed as closed:
            return closed

    def hello(self, **meta):
        self.send("hello", {"protocol-min": 1, "protocol-max": 1, "release": "test", "arch": "python",
                            "ram": 1 << 30, "features": ["codec:none", "codec:int8", "deflate"],
                            "data": ["points"], **meta})
        self.welcome = self.expect("welcome").meta
        return self.welcome

    def next_task(self, kind="train"):
        """Waits for a task of the wanted kind, ignores other messages and declines other tasks."""
        while True:
            self.task = self.expect("task", skip=("cancel", "ack")).meta
            if self.task["kind"] == kind:
                return self.task
            self.decline_task()

    def fetch(self, digest, size):
        self.send("fetch", {"hash": digest, "offset": 0})
        blob = b""
        while len(blob) < size:
            chunk = self.expect("chunk", skip=("task",))
            assert (chunk.meta["hash"], chunk.meta["offset"], chunk.meta["size"]) == (
                digest, len(blob), size), chunk
            blob += chunk.payload
        return blob

    def decline_task(self, reason="policy"):
        self.send("decline", {"task-id": self.task["task-id"], "reason": reason, "class": "never",
                              "after-ms": 0, "text": "a test says no"})

    def upload_meta(self, data, codec="int8", raw_size=None, **wrong):
        """UPLOAD's metadata for these bytes; deflated when raw_size is given."""
        return {"task-id": self.task["task-id"], "run-id": self.welcome["run-id"],
                "incarnation": self.welcome["incarnation"], "size": len(data), "crc32": zlib.crc32(data),
                "examples": 100,
                "sections": [{"name": "delta", "codec": codec, "deflate": raw_size is not None,
                              "size": len(data),
                              "raw-size": len(data) if raw_size is None else raw_size}],
                "metrics": {"loss": 1.0, "accuracy": 0.5}, **wrong}

    def send_parts(self, data, start=0, stop=None, part=MAX_PAYLOAD):
        stop = len(data) if stop is None else stop
        for offset in range(start, stop, part):
            self.send("part", {"task-id": self.task["task-id"], "offset": offset},
                      data[offset:min(offset + part, stop)])

    def announce(self, meta):
        """Sends UPLOAD. Returns the position that RESUME requests."""
        self.send("upload", meta)
        resume = self.expect("resume", skip=("chunk",))
        assert resume.meta["task-id"] == meta["task-id"], resume
        return resume.meta["offset"]

    def upload(self, data, **meta):
        """Sends a complete update. Returns ACK's metadata."""
        start = self.announce(self.upload_meta(data, **meta))
        self.send_parts(data, start)
        ack = self.expect("ack")
        assert ack.meta["task-id"] == self.task["task-id"], ack
        return ack.meta


def tensor_sizes(job):
    """Returns the number of values of each tensor of a job's Linear layers, in schema order."""
    sizes = []
    for layer in job["model"]["layers"]:
        if layer["type"] == "Linear":
            sizes += [layer["in_features"] * layer["out_features"], layer["out_features"]]
    return sizes


def encode_none(sizes, values):
    return struct.pack(f"<{sum(sizes)}f", *values)


def encode_int8(sizes, scale, q):
    """Every block has this scale; q(i) is the i-th value of the update."""
    data, at = b"", 0
    for size in sizes:
        for begin in range(0, size, 256):
            count = min(256, size - begin)
            data += struct.pack("<H", scale) + struct.pack(f"{count}b", *map(q, range(at, at + count)))
            at += count
    return data


def encode_ternary(sizes, magnitude, *, less=0, more_gaps=0, gaps=0, behind=b""):
    """All signs of all values (ternary:1) of matrices, at even places in [sizes], and their biases as floats. Of the
    first matrix, the index says [less] values less and [more_gaps] bytes more; its gaps' bytes are [gaps]."""
    data = b""
    for i, size in enumerate(sizes):
        if i % 2:
            data += bytes(4 * size)
            continue
        first = i == 0
        count = -(-2 * size // 8)  # no gap and a sign: two bits
        data += struct.pack("<HHI", size - less * first, count + more_gaps * first, magnitude)
        data += bytes([gaps * first] * count)
    return data + behind
