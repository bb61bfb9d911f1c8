"""A server for devices that passes on what they say to the aggregator and back, and writes down both."""

import os
import socket
import ssl
import threading

from fixture import CLIENT, CUT, END, OPEN, SERVER, Event
from harness import PATIENCE_S
from peer import connect_tls
from stream import Ended, Stream, say_no_more

PASS, HOLD = "pass", "hold"


def server_context(keys):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{keys}/server/chain.pem", f"{keys}/server/key.pem")
    for name in os.listdir(f"{keys}/trust"):
        context.load_verify_locations(f"{keys}/trust/{name}")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def device_of(secure, ids):
    """Its number, by the identity in its certificate."""
    names = dict(secure.getpeercert()["subjectAltName"])
    return ids.index(names["URI"].removeprefix("urn:fedge:device:"))


class Tap:
    """Listens at [port]. The aggregator's is federation.port, of the moment at which a device connects. rule(device,
    frame) says of each message of a device what happens: PASS; CUT: its connection ends behind it; HOLD: nothing comes
    any more of its connection until it ends."""

    def __init__(self, federation, ids, rule=lambda device, frame: PASS):
        self.federation, self.ids, self.rule = federation, ids, rule
        self.events, self.tasks, self.acked, self.held = [], {}, {}, set()
        self._connections = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._context = server_context(federation.keys)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                plain = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            client = self._context.wrap_socket(plain, server_side=True)
            device = device_of(client, self.ids)
            server = connect_tls(self.federation.port, f"{self.federation.keys}/trust",
                                 f"{self.federation.keys}/clients/{device:04}")
        except OSError:
            plain.close()
            return
        client.settimeout(PATIENCE_S)
        with self._lock:
            self._connections += 1
            number = self._connections
            self.events.append(Event(OPEN, number, device))
        ended = threading.Event()
        threading.Thread(target=self._pass_on, daemon=True,
                         args=(number, device, SERVER, server, client, ended)).start()
        self._pass_on(number, device, CLIENT, client, server, ended)

    def _pass_on(self, number, device, what, source, target, ended):
        stream, done = Stream(source), PASS
        try:
            raw, frame = stream.head(), None
            while done == PASS:
                with self._lock:
                    done = self._look(device, what, frame)
                    if done != HOLD and not ended.is_set() and (frame is None or frame.message):
                        self.events.append(Event(what, number, raw=raw))
                if done != HOLD:
                    target.sendall(raw)
                if done == PASS:
                    frame = stream.frame()
                    raw = frame.raw
        except (Ended, OSError):
            pass
        if done == HOLD:
            ended.wait(PATIENCE_S)
        with self._lock:
            if not ended.is_set():
                self.events.append(Event(CUT if done == CUT else END, number))
                ended.set()
        for end in (target, source):  # what was sent arrives all the same
            try:
                say_no_more(end)
            except OSError:
                pass

    def _look(self, device, what, frame):
        if frame is None or frame.message is None:
            return PASS
        if what == CLIENT:
            done = self.rule(device, frame)
            if done == HOLD:
                self.held.add(device)
            return done
        if frame.kind == "task":
            self.tasks[device] = frame.message.meta
        elif frame.kind == "ack":
            self.acked[device] = frame.message.meta["task-id"]
        return PASS
