"""Relays between a client and a server, which may delay, lose or cut off bytes."""

import contextlib
import select
import socket
import threading
import time

import harness


class Relay:
    """Relays bytes between a client and a server. With [connect] it is a proxy, and the client names the server."""

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
        """Returns the target of CONNECT if it is permitted."""
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


class Way(Relay):
    """A path to the server that can be cut: present connections, and the next [hellos] ones after the client's first
    bytes. While it is shut, connections wait."""

    def __init__(self, port):
        self.hellos, self.live, self.open = 0, [], threading.Event()
        self.open.set()
        super().__init__(("127.0.0.1", port))

    def cut(self, hellos=0):
        self.hellos = hellos
        while self.live:
            with contextlib.suppress(OSError):  # it has ended by itself
                self.live.pop().shutdown(socket.SHUT_RDWR)

    def _serve(self, client):
        self.open.wait(harness.PATIENCE_S)
        if self.hellos > 0:
            self.hellos -= 1
            client.recv(1)  # a reset, as the rest is not read
            client.close()
            return
        self.live.append(client)
        super()._serve(client)
