"""A federation with honest clients and one device that misbehaves, round after round.

Two clients of fedge train; the third device is the test's. A round needs all three, so every round
waits for the misuse it is for, and ends with the honest updates alone: its models must be those of
the same two clients without a third.
"""

import socket
import ssl

import harness
from harness import NetTest
from peer import Closed, Peer, Refused

INDEX = 2


def plain(port):
    """A connection without TLS."""
    return socket.create_connection(("127.0.0.1", port), timeout=harness.PATIENCE_S)


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


class MisuseTest(NetTest):
    """Federations whose rounds close with the two honest reports once the third task is over."""

    _expected = {}

    def start(self, rounds, devices=1, **job):
        """[devices] are the test's; a round opens when all are there."""
        federation = self.federation(clients=2, rounds__num_server_rounds=rounds,
                                     rounds__min_available_nodes=2 + devices, rounds__min_report_fraction=0.5, **job)
        federation.start_aggregator()
        federation.start_clients()
        return federation

    def expected(self, rounds, **job):
        """Cached: the models of the two honest clients alone."""
        key = tuple(sorted(job.items()))
        if len(self._expected.get(key, [])) < rounds:
            self._expected[key] = harness.undisturbed(rounds, clients=2, **job)
        return self._expected[key][:rounds]

    def connect(self, federation):
        """The third device, with a task."""
        peer = Peer(federation, INDEX)
        peer.hello()
        peer.next_task()
        return peer

    def give_up(self, federation, peer=None):
        """Ends the third device's task without a result, so that the round can close."""
        closed = len(federation.aggregator.events("round-closed"))
        if peer is None:
            peer = self.connect(federation)
        peer.decline_task()
        federation.aggregator.wait_event("round-closed", closed + 1)
        peer.close()

    def assert_unharmed(self, federation, rounds, **job):
        """It is healthy, ends its run, and nobody's model has changed."""
        if federation.aggregator.running():
            try:
                self.assertEqual(federation.health()["status"], "ok")
            except ConnectionError:
                pass  # it has ended its run meanwhile
        federation.complete()
        self.assertEqual(federation.hashes(), self.expected(rounds, **job))
        for line in federation.lines():
            self.assertEqual(line["clients"], 2, line)


__all__ = ["INDEX", "MisuseTest", "Closed", "Peer", "Refused", "ended", "harness", "plain"]
