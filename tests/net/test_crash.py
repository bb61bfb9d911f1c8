"""SIGKILL, again and again, at moments drawn from a seed: the run ends with the same bits.

Half of the moments are calls of the system that change files or send bytes, counted, so that a kill
falls between any two steps of writing; half are counted in events of the log. FEDGE_NET_KILLS and
FEDGE_NET_SEED choose how many and which.
"""

import os
import random
import time

import harness
from harness import NetTest, fault

KILLS = int(os.environ.get("FEDGE_NET_KILLS", "20"))
SEED = int(os.environ.get("FEDGE_NET_SEED", "1"))
CLIENTS = 3


class Victim:
    """A program that is started again whenever it has been killed, [kills] times."""

    def __init__(self, start, kills, draw, most_calls, most_events):
        self.start, self.draw, self.left = start, draw, kills
        self.most_calls, self.most_events = most_calls, most_events
        self.killed = 0
        self.program = None
        self.launch()

    def launch(self):
        environment, self.events = None, None
        if self.left > 0:
            self.left -= 1
            if self.draw.random() < 0.5:
                what = self.draw.choice(["kill-before", "kill-after", "half"])
                environment = fault("io", self.draw.randint(1, self.most_calls), what)
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
        self.launch()
        return False

    def fail(self, code):
        raise AssertionError(f"{self.program.name} ended with {code}:\n{self.program.tail()}")


class Crash(NetTest):
    def disturbed(self, rounds, aggregator_kills, client_kills, seed, **job):
        """Plays a run with so many kills; returns what its rounds say."""
        draw = random.Random(seed)
        federation = self.federation(clients=CLIENTS, rounds__num_server_rounds=rounds, **job)
        federation.start_aggregator()  # finds the ports that all use from now on
        federation.aggregator.kill()
        aggregator = Victim(lambda environment: federation.launch_aggregator(environment=environment),
                            aggregator_kills, draw, 80, 12)
        clients = [Victim(lambda environment, i=i: federation.start_client(i, environment=environment),
                          client_kills, draw, 30, 12) for i in range(CLIENTS)]
        end = time.monotonic() + 4 * harness.PATIENCE_S
        while not aggregator.look():
            for client in clients:
                client.look()
            self.assertLess(time.monotonic(), end, federation.aggregator.tail())
            time.sleep(0.002)
        killed = [victim.killed for victim in (aggregator, *clients)]
        self.assertGreaterEqual(killed[0], aggregator_kills)
        self.assertGreaterEqual(sum(killed[1:]), client_kills * CLIENTS // 2, killed)
        lines = federation.lines()
        self.assertEqual([line["round"] for line in lines], list(range(1, rounds + 1)))
        for line in lines:
            self.assertEqual((line["clients"], line["examples"], line["attempt"]), (CLIENTS, 600, 0), line)
        return federation.hashes()

    def test_the_aggregator(self):
        rounds = 4 * KILLS
        hashes = self.disturbed(rounds, KILLS, 0, SEED)
        self.assertEqual(hashes, harness.undisturbed(rounds, clients=CLIENTS))

    def test_clients(self):
        rounds = 3 * KILLS
        hashes = self.disturbed(rounds, 0, KILLS // 2, SEED + 1)
        self.assertEqual(hashes, harness.undisturbed(rounds, clients=CLIENTS))

    def test_both(self):
        rounds = 2 * KILLS
        hashes = self.disturbed(rounds, KILLS // 2, KILLS // 4, SEED + 2)
        self.assertEqual(hashes, harness.undisturbed(rounds, clients=CLIENTS))

    def test_both_with_large_uploads(self):
        """Updates of three messages each, so that kills fall within uploads."""
        job = {"hidden": 2000, "update__codec": "none", "update__deflate": False}
        rounds = KILLS
        hashes = self.disturbed(rounds, KILLS // 4, KILLS // 4, SEED + 3, **job)
        self.assertEqual(hashes, harness.undisturbed(rounds, clients=CLIENTS, **job))


if __name__ == "__main__":
    harness.main()
