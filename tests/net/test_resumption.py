"""Session tickets: who comes back is spared a handshake, and is asked again whether it may."""

import contextlib
import os
import signal
import socket
import threading

import harness
from harness import NetTest, run
from peer import Peer, Refused
from test_link import Relay


class Way(Relay):
    """A way to the server that can be cut: the connections that there are, and the next [hellos] behind what the
    client says first. While it is shut, connections wait."""

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


class Resumption(NetTest):
    def start(self, own_keys=False, **job):
        keys = None
        if own_keys:
            keys = harness.make_keys(os.path.join(harness.make_folder(), "keys"), 3)
        federation = self.federation(keys=keys, clients=2, **job)
        federation.start_aggregator()
        return federation

    def first(self, federation, index=1):
        """A connection with a full handshake; the ticket has come with the answer to the upgrade."""
        with Peer(federation, index) as peer:
            self.assertEqual(peer.hello()["client-index"], index)
        self.assertFalse(peer.resumed)
        self.assertTrue(peer.session.has_ticket)
        return peer

    def reload(self, federation):
        before = len(federation.aggregator.events("reloaded"))
        federation.aggregator.send(signal.SIGHUP)
        federation.aggregator.wait_event("reloaded", before + 1)

    def assert_resumes(self, federation, first, resumed=True):
        with Peer(federation, first.index, resume=first) as peer:
            self.assertEqual(peer.hello()["client-index"], first.index)
            self.assertEqual(peer.resumed, resumed)
        event = federation.aggregator.events("client-connected")[-1]
        self.assertEqual((event["client"], event["handshake"]),
                         (first.index, "resumed" if resumed else "full"))

    def assert_refused(self, federation, first, text):
        with self.assertRaises(Refused) as refused:
            Peer(federation, first.index, resume=first)
        self.assertEqual(refused.exception.status, 403)
        self.assertRegex(federation.aggregator.events("connection-refused")[-1]["reason"], text)

    def test_a_device_resumes_as_often_as_it_likes(self):
        federation = self.start()
        first = self.first(federation)
        self.assert_resumes(federation, first)
        self.assert_resumes(federation, first)

    def test_over_a_restart(self):
        federation = self.start()
        first = self.first(federation)
        federation.aggregator.kill()
        federation.start_aggregator()
        self.assert_resumes(federation, first)

    def test_a_revoked_device_is_refused(self):
        federation = self.start(own_keys=True)
        first = self.first(federation)
        run("fedge-keys", "revoke", "--registry", f"{federation.keys}/registry", "--name", "client-0001")
        self.reload(federation)
        self.assert_refused(federation, first, "is revoked")
        self.assert_resumes(federation, self.first(federation, 0))

    def test_revocation_reaches_a_resumed_connection(self):
        federation = self.start(own_keys=True)
        first = self.first(federation)
        with Peer(federation, 1, resume=first) as peer:
            peer.hello()
            self.assertTrue(peer.resumed)
            run("fedge-keys", "revoke", "--registry", f"{federation.keys}/registry", "--name",
                "client-0001")
            self.reload(federation)
            peer.socket.settimeout(5 * (5 if harness.SANITIZED else 1))  # the promise
            self.assertIn("revoked", peer.expect_refusal("revoked")["text"])
            peer.expect_end()

    def test_a_renewed_certificate_makes_the_ticket_of_the_old_one_no_better(self):
        """The registry is asked for the certificate that the session began with."""
        federation = self.start(own_keys=True)
        first = self.first(federation)
        identity, registry = f"{federation.keys}/clients/0001", f"{federation.keys}/registry"
        run("fedge-keys", "renew", "--identity", identity)
        run("fedge-keys", "sign", "--ca", f"{federation.keys}/ca", "--registry", registry, "--request",
            f"{identity}/request.pem", "--out", federation.path("chain.pem"))
        run("fedge-keys", "install", "--identity", identity, "--chain", federation.path("chain.pem"))
        self.reload(federation)
        self.assert_resumes(federation, first)  # both are active until the old one is revoked
        run("fedge-keys", "revoke", "--registry", registry, "--name", "client-0001")
        self.reload(federation)
        self.assert_refused(federation, first, "is revoked")

    def test_a_root_taken_away_takes_its_tickets(self):
        federation = self.start(own_keys=True)
        keys = federation.keys
        first = self.first(federation)
        run("fedge-keys", "ca", "--ca", f"{keys}/ca", "--next", "--trust", f"{keys}/trust")
        with open(f"{keys}/ca/root.pem", encoding="ascii") as file:
            text = file.read()
        for name in os.listdir(f"{keys}/trust"):
            with open(f"{keys}/trust/{name}", encoding="ascii") as file:
                is_old = file.read() == text
            if is_old:
                os.rename(f"{keys}/trust/{name}", federation.path("old-root.pem"))
        self.reload(federation)
        before = len(federation.aggregator.events("connection-refused"))
        with self.assertRaises(Exception):
            with Peer(federation, 1, resume=first) as peer:
                peer.hello()
        event = federation.aggregator.wait_event("connection-refused", before + 1)
        self.assertIn("not signed by a trusted root", event["reason"])

    def test_another_key_of_the_server_makes_a_full_handshake(self):
        federation = self.start(own_keys=True)
        keys = federation.keys
        first = self.first(federation)
        run("fedge-keys", "request", "--identity", federation.path("server"), "--role", "server", "--dns",
            "localhost", "--ip", "127.0.0.1")
        run("fedge-keys", "sign", "--ca", f"{keys}/ca", "--registry", f"{keys}/registry", "--role", "server",
            "--accept-names", "--request", federation.path("server", "request.pem"), "--out",
            federation.path("server", "chain.pem"))
        for name in ("key.pem", "chain.pem"):
            os.replace(federation.path("server", name), f"{keys}/server/{name}")
        self.reload(federation)
        self.assert_resumes(federation, first, resumed=False)

    def test_a_client_resumes_when_the_server_is_back(self):
        federation = self.start(rounds__num_server_rounds=1000)
        client = federation.start_client(0)
        federation.aggregator.wait_event("client-hello")
        federation.aggregator.kill()
        federation.start_aggregator()
        federation.aggregator.wait_event("client-hello")
        handshakes = [event["handshake"] for event in federation.aggregator.events("client-connected")]
        self.assertEqual(handshakes[-1], "resumed", handshakes)
        self.assertEqual(client.stop(), 0)

    def over_a_way(self, *more):
        """A client that has its ticket, and the way that it has come."""
        federation = self.federation(clients=2, rounds__num_server_rounds=1000)
        federation.start_aggregator(*more)
        way = Way(federation.port)
        self.addCleanup(way.close)
        federation.start_client(0, server=f"wss://127.0.0.1:{way.port}")
        federation.aggregator.wait_event("client-hello")
        return federation, way

    def test_a_connection_lost_in_the_handshake_costs_no_ticket(self):
        """The second in a row does: the ticket may be to blame."""
        federation, way = self.over_a_way()
        for number, (hellos, handshake) in enumerate(((1, "resumed"), (1, "resumed"), (2, "full")), 2):
            way.cut(hellos)
            federation.aggregator.wait_event("client-hello", number)
            self.assertEqual(federation.aggregator.events("client-connected")[-1]["handshake"], handshake)

    def test_a_server_that_is_full_costs_no_ticket(self):
        federation, way = self.over_a_way("--max-connections", "1")
        way.open.clear()
        way.cut()
        federation.aggregator.wait_event("client-disconnected")
        with Peer(federation, 1) as peer:
            peer.hello()
            way.open.set()
            federation.aggregator.wait_event("connection-refused")
        federation.aggregator.wait_event("client-hello", 3)
        self.assertEqual([event["handshake"] for event in federation.aggregator.events("client-connected")],
                         ["full", "full", "resumed"])


if __name__ == "__main__":
    harness.main()
