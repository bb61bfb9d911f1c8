"""SIGKILL, again and again, at moments drawn from a seed.

Half of the moments are calls of the system that change files or send bytes, counted, so that a kill
falls between any two steps of writing; half are counted in events of the log. FEDGE_NET_KILLS and
FEDGE_NET_SEED choose how many and which.
"""

import os
import random
import time

import harness
from harness import NetTest, fault

KILLS = int(os.environ.get("FEDGE_NET_KILLS", "20" if harness.LONG or harness.SANITIZED else "10"))
SEED = int(os.environ.get("FEDGE_NET_SEED", "1"))
CLIENTS = 3
MANY = 20  # kills, of which some follow each other; of fewer it may be that none does
SOON = 12  # calls of the system, of a program that is killed while it recovers


class Victim:
    """A program that is started again whenever it has been killed, [kills] times."""

    def __init__(self, start, kills, draw, most_calls, most_events):
        self.start, self.draw, self.left = start, draw, kills
        self.most_calls, self.most_events = most_calls, most_events
        self.killed = self.killed_again = 0
        self.again = False  # the next moment comes soon after the last: in its recovery
        self.program = None
        self.launch()

    def launch(self):
        environment, self.events = None, None
        if self.left > 0:
            self.left -= 1
            self.again = not self.again and self.killed > 0 and self.draw.random() < 0.5
            if self.again or self.draw.random() < 0.5:
                what = self.draw.choice(["kill-before", "kill-after", "half"])
                most = min(SOON, self.most_calls) if self.again else self.most_calls
                environment = fault("io", self.draw.randint(1, most), what)
            else:
                self.events = self.draw.randint(1, self.most_events)
        self.program = self.start(environment)

    def look(self):
        """Kills it when its moment has come; starts it again when it is dead. True: it has ended."""
        if self.events is not None and len(self.program.events()) >= self.events:
            time.sleep(self.draw.random() * 0.01)
            self.program.kill()
        if self.program.running():
            return False
        code = self.program.wait()
        if code != -9:
            return code == 0 or self.fail(code)
        self.killed += 1
        self.killed_again += self.again
        self.launch()
        return False

    def fail(self, code):
        raise AssertionError(f"{self.program.name} ended with {code}:\n{self.program.tail()}")


class TooFewKills(AssertionError):
    """The run ended before the last kills that were drawn for it."""


class KilledTest(NetTest):
    def play(self, federation, aggregator_kills, client_kills, seed, options=(), most=(80, 12)):
        """Its run with so many kills, of the aggregator and of each client. [options]: the aggregator's. [most]: calls
        and events of a life of it."""
        draw = random.Random(seed)
        federation.start_aggregator(*options)  # finds the ports that all use from now on
        federation.aggregator.kill()
        aggregator = Victim(lambda environment: federation.launch_aggregator(*options, environment=environment),
                            aggregator_kills, draw, *most)
        clients = [Victim(lambda environment, i=i: federation.start_client(i, environment=environment),
                          client_kills, draw, 30, 12) for i in range(federation.clients)]
        end = time.monotonic() + 4 * harness.PATIENCE_S
        while not aggregator.look():
            for client in clients:
                client.look()
            self.assertLess(time.monotonic(), end, federation.aggregator.tail())
            time.sleep(0.002)
        killed = [victim.killed for victim in (aggregator, *clients)]
        if killed[0] < aggregator_kills:
            raise TooFewKills(f"the aggregator was killed {killed[0]} times, not {aggregator_kills}")
        if aggregator_kills >= MANY:
            self.assertGreater(aggregator.killed_again, 0)  # before it had recovered
        self.assertGreaterEqual(sum(killed[1:]), client_kills * federation.clients // 2, killed)

    def disturbed(self, rounds, aggregator_kills, client_kills, seed, examples=600, cohort=CLIENTS, options=(), **job):
        """Plays a run with so many kills; returns what its rounds say."""
        federation = self.federation(clients=CLIENTS, rounds__num_server_rounds=rounds, **job)
        KilledTest.play(self, federation, aggregator_kills, client_kills, seed, options)
        lines = federation.lines()
        self.assertEqual([line["round"] for line in lines], list(range(1, rounds + 1)))
        for line in lines:
            self.assertEqual((line["clients"], line["examples"], line["attempt"]),
                             (cohort, examples, 0), line)
        evaluations = federation.lines("evaluate")
        if job.get("rounds__fraction_evaluate"):
            self.assertEqual([(line["round"], line["clients"]) for line in evaluations],
                             [(i + 1, CLIENTS) for i in range(rounds)])
        self.assertEqual(federation.result()["accuracy"], lines[-1]["accuracy"])
        self.last = federation
        return federation.hashes()
