"""Tests which connections the aggregator admits, which it refuses and for what reason; and session tickets, which save
handshakes but not the check of the certificate."""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import unittest

import harness
from harness import NetTest, run
from peer import Closed, Peer, Refused, connect_tls
from relay import Way

ODD_IDENTITY = os.path.join(os.environ.get("FEDGE_NET_DIR", ""), "net_odd_identity")
NOT_ADMITTED = 7
IDENTITY_WRONG = 4
DAY_S = 86400


def odd_identity(folder, keys, role="device", offset_days=0, registry=None):
    command = [ODD_IDENTITY, f"{keys}/ca", folder, role, str(offset_days)]
    subprocess.run(command + ([registry] if registry else []), check=True, timeout=harness.PATIENCE_S)
    return folder


def own_keys(clients=4, **more):
    """Keys that a test may change; those of harness.shared_keys are for all tests."""
    return harness.make_keys(os.path.join(harness.make_folder(), "keys"), clients, **more)


def certify(keys, folder, *request, authority="ca", sign=()):
    """Makes a key in [folder], and lets an authority sign its request."""
    run("fedge-keys", "request", "--identity", folder, *request)
    run("fedge-keys", "sign", "--ca", f"{keys}/{authority}", "--registry", f"{keys}/registry", "--request",
        f"{folder}/request.pem", "--out", f"{folder}/chain.pem", *sign)


def certify_server(keys, folder, authority="ca"):
    certify(keys, folder, "--role", "server", "--dns", "localhost", "--ip", "127.0.0.1", authority=authority,
            sign=("--role", "server", "--accept-names"))


def next_root(keys):
    """The authority gets a second root, which is trusted beside the first one."""
    run("fedge-keys", "ca", "--ca", f"{keys}/ca", "--next", "--trust", f"{keys}/trust")


def take_root_away(federation):
    """The first root is not trusted any more."""
    trust = f"{federation.keys}/trust"
    with open(f"{federation.keys}/ca/root.pem", encoding="ascii") as file:
        root = file.read()
    for name in os.listdir(trust):
        with open(f"{trust}/{name}", encoding="ascii") as file:
            is_root = file.read() == root
        if is_root:
            os.rename(f"{trust}/{name}", federation.path("old-root.pem"))


def revoke(keys, name):
    run("fedge-keys", "revoke", "--registry", f"{keys}/registry", "--name", name)


def renew(federation, name):
    """The client gets another certificate for another key."""
    identity, keys = f"{federation.keys}/clients/{name}", federation.keys
    run("fedge-keys", "renew", "--identity", identity)
    run("fedge-keys", "sign", "--ca", f"{keys}/ca", "--registry", f"{keys}/registry", "--request",
        f"{identity}/request.pem", "--out", federation.path("chain.pem"))
    run("fedge-keys", "install", "--identity", identity, "--chain", federation.path("chain.pem"))


class TlsTest(NetTest):
    def start(self, changes_keys=False, **job):
        federation = self.federation(keys=own_keys() if changes_keys else None, clients=2, **job)
        federation.start_aggregator()
        return federation

    def reload(self, federation):
        before = len(federation.aggregator.events("reloaded"))
        federation.aggregator.send(signal.SIGHUP)
        federation.aggregator.wait_event("reloaded", before + 1)


class Identity(TlsTest):
    def assert_refused(self, federation, identity, reason):
        """The connection fails before any message, the log has the reason, and honest clients are not affected."""
        before = len(federation.aggregator.events("connection-refused"))
        with self.assertRaises((Closed, Refused, ssl.SSLError, ConnectionError)):
            with Peer(federation, 0, identity=identity) as peer:
                peer.hello()
        event = federation.aggregator.wait_event("connection-refused", before + 1)
        self.assertRegex(event["reason"], reason)
        self.assertTrue(event["address"].startswith("127.0.0.1:"), event)
        self.assertEqual(federation.aggregator.events("client-hello"), [])
        return event

    def finish(self, federation):
        federation.start_clients()
        federation.complete()

    def test_no_certificate(self):
        federation = self.start()
        before = len(federation.aggregator.events("connection-refused"))
        with self.assertRaises((Closed, ssl.SSLError, ConnectionError)):
            with connect_tls(federation.port, f"{federation.keys}/trust") as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if not connection.recv(1):
                    raise Closed("end")
        event = federation.aggregator.wait_event("connection-refused", before + 1)
        self.assertRegex(event["reason"], "no certificate")
        self.finish(federation)

    def test_certificate_of_another_authority(self):
        federation = self.start()
        other = harness.make_keys(federation.path("other"), 1)
        self.assert_refused(federation, f"{other}/clients/0000", "trusted root|not signed")
        self.finish(federation)

    def test_expired(self):
        federation = self.start(changes_keys=True)
        odd = odd_identity(federation.path("odd"), federation.keys, "device", -30,
                           f"{federation.keys}/registry")
        federation.aggregator.send(signal.SIGHUP)
        self.assert_refused(federation, odd, "expired")
        self.finish(federation)

    def test_not_valid_yet(self):
        federation = self.start(changes_keys=True)
        odd = odd_identity(federation.path("odd"), federation.keys, "device", 30,
                           f"{federation.keys}/registry")
        federation.aggregator.send(signal.SIGHUP)
        self.assert_refused(federation, odd, "not valid yet|not yet valid|future")
        self.finish(federation)

    def test_not_in_the_registry(self):
        federation = self.start()
        odd = odd_identity(federation.path("odd"), federation.keys)
        event = self.assert_refused(federation, odd, "regist")
        self.assertTrue(event["who"], event)
        client = federation.start_client(0, identity=odd)
        self.assertEqual(client.wait(), NOT_ADMITTED, client.tail())
        self.finish(federation)

    def test_pending_until_activated(self):
        federation = self.start(changes_keys=True)
        odd, registry = federation.path("odd"), f"{federation.keys}/registry"
        certify(federation.keys, odd, "--role", "device", "--name", "late", sign=("--pending",))
        federation.aggregator.send(signal.SIGHUP)
        self.assert_refused(federation, odd, "pending|regist")
        run("fedge-keys", "activate", "--registry", registry, "--name", "late")
        federation.aggregator.send(signal.SIGHUP)

        def admitted():
            try:
                with Peer(federation, 0, identity=odd) as peer:
                    return peer.hello()
            except (Refused, Closed):
                return None
        self.assertEqual(harness.wait_until("the activated device to be let in", admitted)["client-index"], 4)

    def test_certificate_of_a_server(self):
        federation = self.start()
        self.assert_refused(federation, f"{federation.keys}/server", "role|server")
        self.finish(federation)

    def test_certificate_of_an_operator(self):
        federation = self.start()
        self.assert_refused(federation, f"{federation.keys}/operator", "role|operator")
        self.finish(federation)

    def test_revoked_before_it_comes(self):
        federation = self.federation(keys=own_keys(), clients=2)
        revoke(federation.keys, "client-0002")
        federation.start_aggregator()
        event = self.assert_refused(federation, f"{federation.keys}/clients/0002", "revoked")
        self.assertTrue(event["who"], event)
        with self.assertRaises(Refused) as refused:
            Peer(federation, 2)
        self.assertEqual(refused.exception.status, 403)
        client = federation.start_client(2, partition_id=0)
        self.assertEqual(client.wait(), NOT_ADMITTED, client.tail())
        self.finish(federation)

    def test_revocation_drops_a_live_connection(self):
        """Even if another file of the same SIGHUP is broken."""
        federation = self.start(changes_keys=True, rounds__num_server_rounds=3)
        with Peer(federation, 3) as staying, Peer(federation, 2) as peer:
            staying.hello()
            peer.hello()
            peer.next_task()
            revoke(federation.keys, "client-0002")
            with open(f"{federation.keys}/trust/broken.pem", "w", encoding="ascii") as file:
                file.write("nonsense")
            federation.aggregator.send(signal.SIGHUP)
            failed = federation.aggregator.wait_event("reload-failed")
            self.assertIn("trust/broken.pem", failed["error"])
            os.unlink(file.name)
            peer.socket.settimeout(5 * (5 if harness.SANITIZED else 1))  # the promise
            message = peer.receive()
            while message.kind not in ("bye", "refuse"):
                message = peer.receive()
            self.assertEqual(message.meta["reason"], "revoked")
            peer.expect_end()
            harness.wait_until("one to be left", lambda: federation.health()["connected"] == 1)
            with self.assertRaises(Refused) as refused:
                Peer(federation, 2)
            self.assertEqual(refused.exception.status, 403)
            staying.next_task()
            staying.decline_task()

    def test_expiry_reaches_a_live_connection(self):
        """A certificate expires after some seconds, without a message or signal at that time."""
        federation = self.start(changes_keys=True)
        odd = odd_identity(federation.path("odd"), federation.keys, "device",
                           -1 + (60 if harness.SANITIZED else 12) / 86400, f"{federation.keys}/registry")
        self.reload(federation)
        with Peer(federation, 3) as staying, Peer(federation, 0, identity=odd) as peer:
            staying.hello()
            peer.hello()
            self.assertIn("expired", peer.expect_refusal("revoked")["text"])
            peer.expect_end()
            self.assertEqual(federation.aggregator.wait_event("client-expired")["name"], "odd")
            self.assert_refused_again(federation, odd)
            staying.next_task()
            staying.decline_task()

    @unittest.skipUnless(harness.LONG, "waits for a minute")
    def test_each_minute_chains_are_judged_by_the_clock_of_then(self):
        """A wrong clock admits a device. Then the clock is set right, without a signal."""
        keys = own_keys()
        federation = self.federation(keys=keys, clients=2)
        odd = odd_identity(federation.path("odd"), keys, "device", 2, f"{keys}/registry")
        link = federation.path("clock")
        os.symlink(str(5 * 86400 // 2), link)
        federation.start_aggregator(environment=harness.clock(link))
        with Peer(federation, 0, identity=odd) as peer:
            peer.hello()
            os.unlink(link)
            peer.socket.settimeout(2 * harness.PATIENCE_S)
            self.assertIn("is valid from", peer.expect_refusal("revoked")["text"])
            peer.expect_end()
        self.assertEqual(len(federation.aggregator.events("client-expired")), 1)

    def assert_refused_again(self, federation, identity):
        with self.assertRaises((Closed, Refused, ssl.SSLError, ConnectionError)):
            with Peer(federation, 0, identity=identity) as peer:
                peer.hello()

    def test_a_root_taken_away_reaches_a_live_connection(self):
        federation = self.start(changes_keys=True)
        keys = federation.keys
        next_root(keys)
        new = federation.path("new")
        certify(keys, new, "--role", "device", "--name", "rolled", authority="ca/next")
        self.reload(federation)
        with Peer(federation, 3) as old, Peer(federation, 0, identity=new) as rolled:
            old.hello()
            rolled.hello()
            take_root_away(federation)
            federation.aggregator.send(signal.SIGHUP)
            self.assertIn("no longer trusted", old.expect_refusal("revoked")["text"])
            old.expect_end()
            self.assertEqual(federation.aggregator.wait_event("client-not-trusted")["name"], "client-0003")
            rolled.next_task()  # whose root stays is not disturbed
            rolled.decline_task()
            self.assertEqual(len(federation.aggregator.events("client-not-trusted")), 1)

    def test_two_roots_at_once(self):
        federation = self.start(changes_keys=True, rounds__num_server_rounds=2)
        keys = federation.keys
        next_root(keys)
        new = federation.path("new")
        certify(keys, new, "--role", "device", "--name", "rolled", authority="ca/next")
        self.assert_refused(federation, new, "trusted root|not signed")
        self.reload(federation)
        old_client = federation.start_client(0)
        new_client = federation.start_client(1, identity=new)
        federation.complete()
        self.assertEqual((old_client.wait(), new_client.wait()), (0, 0))

    def test_a_server_of_the_next_root_is_trusted_too(self):
        keys = own_keys()
        next_root(keys)
        federation = self.federation(keys=keys, clients=2)
        server = federation.path("server-2")
        certify_server(keys, server, "ca/next")
        federation.start_aggregator(identity=server)
        self.finish(federation)

    def test_a_renewed_device_stays_who_it_is(self):
        federation = self.start(changes_keys=True)
        renew(federation, "0001")
        self.reload(federation)
        with Peer(federation, 1) as peer:
            self.assertEqual(peer.hello()["client-index"], 1)
        self.finish(federation)

    def test_a_payload_says_nothing_about_who_one_is(self):
        federation = self.start()
        with Peer(federation, 1) as peer:
            welcome = peer.hello(**{"client-index": 0, "device-id": "00000000-0000-4000-8000-000000000000"})
            self.assertEqual(welcome["client-index"], 1)


class Server(NetTest):
    """Servers that a client refuses."""

    def refused_server(self, text, code=None, identity=None, trust=None, **instead):
        federation = self.federation(clients=2)
        federation.start_aggregator(**({"identity": identity} if identity else {}))
        client = federation.start_client(0, **({"trust": trust} if trust else {}), **instead)
        if code is None:
            harness.wait_until(f"the client to say '{text}'", lambda: text in client.log())
            self.assertEqual(client.stop(), 0)
        else:
            self.assertEqual(client.wait(), code, client.tail())
            self.assertIn(text, client.log())
        self.assertEqual(federation.aggregator.events("client-hello"), [])

    def test_with_a_device_certificate(self):
        """The aggregator itself refuses to start with one."""
        federation = self.federation(clients=2)
        aggregator = federation.launch_aggregator(identity=f"{federation.keys}/clients/0000")
        self.assertEqual(aggregator.wait(), 3, aggregator.tail())
        self.assertIn("role", aggregator.log())

    def test_a_device_that_poses_as_the_server(self):
        federation = self.federation(clients=2)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        identity = f"{federation.keys}/clients/0001"
        context.load_cert_chain(f"{identity}/chain.pem", f"{identity}/key.pem")
        client, error = self.pose(federation, context)
        self.assertIsNotNone(error)
        self.assertRegex(client.log(), "role|server")

    def test_another_authoritys_server(self):
        federation = self.federation(clients=2)
        other = harness.make_keys(federation.path("other"), 1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{other}/server/chain.pem", f"{other}/server/key.pem")
        client, error = self.pose(federation, context)
        self.assertIsNotNone(error)
        self.assertRegex(client.log(), "trusted root|not signed")

    def pose(self, federation, context):
        """Serves one handshake to a client of [federation]. Returns the client and the error."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(harness.PATIENCE_S)
            federation.port = listener.getsockname()[1]
            client = federation.start_client(0)
            connection = listener.accept()[0]
            connection.settimeout(harness.PATIENCE_S)
            error = None
            try:
                with context.wrap_socket(connection, server_side=True) as secure:
                    self.assertEqual(secure.recv(1), b"", "the client spoke to a server that is none")
                    error = "closed"
            except (ssl.SSLError, ConnectionError) as failure:
                error = failure
            client.wait_event("reconnect")
            self.assertEqual(client.stop(), 0)
        return client, error

    def test_a_connection_closed_during_the_handshake(self):
        """The error names no certificate, as none was seen."""
        federation = self.federation(clients=2)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(harness.PATIENCE_S)
            federation.port = listener.getsockname()[1]
            client = federation.start_client(0)
            for size, count in ((100, 1), (65536, 2)):  # a reset, as bytes are left; then an end
                connection = listener.accept()[0]
                connection.recv(size)
                connection.close()
                client.wait_event("reconnect", count)
            self.assertEqual(client.stop(), 0)
        self.assertEqual([event["message"] for event in client.events("disconnected")],
                         2 * ["TLS: the connection was closed during the handshake"])

    def test_under_another_host_name(self):
        keys = own_keys(server_name="elsewhere.test", ip="127.0.0.2")
        federation = self.federation(keys=keys, clients=2)
        federation.start_aggregator()
        client = federation.start_client(0)
        client.wait_event("reconnect")
        self.assertIn("the server's certificate is not for 127.0.0.1, but for elsewhere.test, 127.0.0.2", client.log())
        self.assertEqual(client.stop(), 0)
        self.assertEqual(federation.aggregator.events("client-hello"), [])

    def test_own_identity_open_to_others(self):
        federation = self.federation(clients=2)
        identity = shutil.copytree(f"{federation.keys}/clients/0000", federation.path("open"))
        os.chmod(f"{identity}/key.pem", 0o644)
        federation.start_aggregator()
        client = federation.start_client(0, identity=identity)
        self.assertEqual(client.wait(), IDENTITY_WRONG, client.tail())
        self.assertIn("key.pem", client.log())

    def test_own_identity_missing_or_expired(self):
        federation = self.federation(clients=2)
        federation.start_aggregator()
        client = federation.start_client(0, identity=federation.path("nothing"))
        self.assertEqual(client.wait(), IDENTITY_WRONG, client.tail())
        self.assertIn("nothing", client.log())
        odd = odd_identity(federation.path("odd"), federation.keys, "device", -30)
        client = federation.start_client(0, identity=odd)
        self.assertEqual(client.wait(), IDENTITY_WRONG, client.tail())
        self.assertIn("expired", client.log())

    @staticmethod
    def told_s(federation, index):
        """Returns the last server time that a client has stored."""
        with open(federation.path(f"client-{index}", "state.json"), encoding="utf-8") as file:
            return json.load(file)["server-time-ms"] / 1000

    @staticmethod
    def store_told(federation, index, ms):
        os.makedirs(federation.path(f"client-{index}"), exist_ok=True)
        federation.write(f"client-{index}/state.json", {"format": 1, "server-time-ms": int(ms)})

    def test_the_last_time_that_a_server_told(self):
        """A board without a clock uses the last server time to check certificates, and refuses expired ones."""
        federation = self.federation(clients=2, rounds__num_server_rounds=1)
        server = odd_identity(federation.path("server"), federation.keys, "server")
        federation.start_aggregator(identity=server)
        self.store_told(federation, 0, (time.time() + 2 * DAY_S) * 1000)
        client = federation.start_client(0, server=f"wss://localhost:{federation.port}")
        self.assertIn("expired", str(client.wait_event("disconnected")))
        client.stop()

    def test_a_wrong_time_is_undone_by_an_honest_server(self):
        federation = self.federation(clients=2, rounds__num_server_rounds=1)
        self.store_told(federation, 0, 2**53 - 1)
        self.store_told(federation, 1, (time.time() + 200 * DAY_S) * 1000)
        federation.start_aggregator()
        clients = federation.start_clients()
        federation.complete()
        for i, client in enumerate(clients):
            self.assertEqual(client.wait(), 0, client.tail())
            self.assertLess(abs(self.told_s(federation, i) - time.time()), 600)

    def test_a_time_that_no_certificate_covers_is_not_used(self):
        federation = self.federation(clients=2, rounds__num_server_rounds=1)
        server = odd_identity(federation.path("server"), federation.keys, "server")
        link = federation.path("clock")
        federation.start_aggregator(identity=server, environment=harness.clock(link))
        os.symlink(str(2 * DAY_S), link)
        clients = [federation.start_client(i, server=f"wss://localhost:{federation.port}") for i in range(2)]
        federation.complete()
        for i, client in enumerate(clients):
            self.assertEqual(client.wait(), 0, client.tail())
            self.assertIn("no certificate is of the time", client.events("server-time")[0]["error"])
            self.assertEqual(self.told_s(federation, i), 0)


class Resumption(TlsTest):
    def first(self, federation, index=1):
        """Makes a connection with a full handshake. The ticket comes with the answer to the upgrade."""
        with Peer(federation, index) as peer:
            self.assertEqual(peer.hello()["client-index"], index)
        self.assertFalse(peer.resumed)
        self.assertTrue(peer.session.has_ticket)
        return peer

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
        federation = self.start(changes_keys=True)
        first = self.first(federation)
        revoke(federation.keys, "client-0001")
        self.reload(federation)
        self.assert_refused(federation, first, "is revoked")
        self.assert_resumes(federation, self.first(federation, 0))

    def test_revocation_reaches_a_resumed_connection(self):
        federation = self.start(changes_keys=True)
        first = self.first(federation)
        with Peer(federation, 1, resume=first) as peer:
            peer.hello()
            self.assertTrue(peer.resumed)
            revoke(federation.keys, "client-0001")
            self.reload(federation)
            peer.socket.settimeout(5 * (5 if harness.SANITIZED else 1))  # the promise
            self.assertIn("revoked", peer.expect_refusal("revoked")["text"])
            peer.expect_end()

    def test_a_renewed_certificate_makes_the_ticket_of_the_old_one_no_better(self):
        """The registry is queried for the certificate with which the session began."""
        federation = self.start(changes_keys=True)
        first = self.first(federation)
        renew(federation, "0001")
        self.reload(federation)
        self.assert_resumes(federation, first)  # both are active until the old one is revoked
        revoke(federation.keys, "client-0001")
        self.reload(federation)
        self.assert_refused(federation, first, "is revoked")

    def test_a_root_taken_away_takes_its_tickets(self):
        federation = self.start(changes_keys=True)
        first = self.first(federation)
        next_root(federation.keys)
        take_root_away(federation)
        self.reload(federation)
        before = len(federation.aggregator.events("connection-refused"))
        with self.assertRaises(Exception):
            with Peer(federation, 1, resume=first) as peer:
                peer.hello()
        event = federation.aggregator.wait_event("connection-refused", before + 1)
        self.assertIn("not signed by a trusted root", event["reason"])

    def test_another_key_of_the_server_makes_a_full_handshake(self):
        federation = self.start(changes_keys=True)
        keys = federation.keys
        first = self.first(federation)
        certify_server(keys, federation.path("server"))
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
        """Returns a client that has a ticket, and the relay through which it connects."""
        federation = self.federation(clients=2, rounds__num_server_rounds=1000)
        federation.start_aggregator(*more)
        way = Way(federation.port)
        self.addCleanup(way.close)
        federation.start_client(0, server=f"wss://127.0.0.1:{way.port}")
        federation.aggregator.wait_event("client-hello")
        return federation, way

    def test_a_connection_lost_in_the_handshake_costs_no_ticket(self):
        """The second lost connection in a row does: the ticket may be the reason."""
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
