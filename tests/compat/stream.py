"""Both ends of a connection as bytes after TLS: HTTP's head, then one websocket message at a time, as it came."""

import base64
import hashlib
import re
import socket
import struct

from peer import BINARY, CLOSE, Message

_ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Ended(Exception):
    """There is no more to read."""


class Frame:
    """One message, or a control frame: [raw] has all its bytes, [message] what they say if it is fedge's."""

    def __init__(self, raw, opcode, data):
        self.raw, self.opcode = raw, opcode
        self.message = Message(data) if opcode == BINARY else None

    @property
    def kind(self):
        return self.message.kind if self.message else "close"


class Stream:
    """Reads what comes by the socket [end]; what nobody has to answer (pings) is passed over."""

    def __init__(self, end, data=b""):
        self.socket, self._buffer = end, data

    def _take(self, size):
        while len(self._buffer) < size:
            self._more()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _more(self):
        try:
            data = self.socket.recv(65536) if self.socket else b""
        except OSError:
            data = b""
        if not data:
            raise Ended
        self._buffer += data

    def head(self):
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        return self._take(self._buffer.index(b"\r\n\r\n") + 4)

    def fragment(self):
        raw = self._take(2)
        size, masked = raw[1] & 0x7F, raw[1] & 0x80
        if size > 125:
            more = self._take(2 if size == 126 else 8)
            size, raw = int.from_bytes(more, "big"), raw + more
        mask = self._take(4) if masked else b""
        data = self._take(size)
        return raw + mask + data, _apply(mask, data)

    def frame(self):
        while True:
            raw, data = self.fragment()
            opcode = raw[0] & 15
            if opcode == BINARY:
                final = raw[0] & 0x80
                while not final:
                    more, part = self.fragment()
                    final = more[0] & 0x80
                    raw, data = raw + more, data + part
            if opcode in (BINARY, CLOSE):
                return Frame(raw, opcode, data)


def say_no_more(secure):
    """The other end reads its end, and is still heard: SSLSocket.shutdown would give TLS up in both directions."""
    socket.socket.shutdown(secure, socket.SHUT_WR)


def _apply(mask, data):
    repeated = (mask * (len(data) // 4 + 1))[:len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")


def toggle_mask(raw):
    """The fragments of a client's message with their data as it is, and what that gives with it masked."""
    stream, toggled = Stream(None, raw), b""
    while len(toggled) < len(raw):
        fragment, data = stream.fragment()
        toggled += fragment[:len(fragment) - len(data)] + data
    return toggled


def parse(raw):
    """One message that was recorded."""
    return Stream(None, raw).frame()


def server_frame(data, opcode=BINARY):
    """A websocket frame as servers send them."""
    size, first = len(data), 0x80 | opcode
    if size < 126:
        return struct.pack("!BB", first, size) + data
    return (struct.pack("!BBH", first, 126, size) if size < 65536 else struct.pack("!BBQ", first, 127, size)) + data


def answer(head, request):
    """A recorded answer to an upgrade, as the key of this request wants it."""
    key = re.search(rb"(?i)sec-websocket-key: *(\S+)", request).group(1)
    accept = base64.b64encode(hashlib.sha1(key + _ACCEPT).digest())
    return re.sub(rb"(?i)(sec-websocket-accept: *)\S+", lambda found: found.group(1) + accept, head)
