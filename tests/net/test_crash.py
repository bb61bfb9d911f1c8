"""SIGKILL, again and again, at moments drawn from a seed: the run ends with the same bits.

Half of the moments are calls of the system that change files or send bytes, counted, so that a kill
falls between any two steps of writing; half are counted in events of the log. FEDGE_NET_KILLS and
FEDGE_NET_SEED choose how many and which.
"""

import json
import os
import random
import shutil
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


class Crash(NetTest):
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
        Crash.play(self, federation, aggregator_kills, client_kills, seed, options)
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

    def test_evaluations(self):
        """Those that are cut off are repeated, and no result is taken for another task's."""
        job = {"rounds__fraction_evaluate": 1.0, "site": {"validation-fraction": 0.2}}
        rounds = 2 * KILLS
        hashes = self.disturbed(rounds, KILLS, KILLS // 4, SEED + 4, examples=480, **job)
        self.assertEqual(hashes, harness.undisturbed(rounds, clients=CLIENTS, **job))


class End(NetTest):
    def open_end(self, federation):
        """Back to the moment when all rounds were done and nothing was left of that yet."""
        folder = federation.run_folder()
        path = os.path.join(folder, "run.json")
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
        self.assertTrue(facts["finished"])
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"number": facts["number"], "incarnation": facts["incarnation"],
                       "finished": False}, file)  # unsealed, as of an older release
        for name in self.results(federation):
            if os.path.exists(name):
                os.unlink(name)

    @staticmethod
    def results(federation):
        folder = federation.run_folder()
        return [os.path.join(folder, name) for name in ("model.safetensors", "model-best.safetensors", "rounds.svg")
                ] + [federation.path("result.json")]

    def finished(self):
        federation = self.federation(rounds__num_server_rounds=2, keep_best={"metric": "test-accuracy"})
        federation.start_aggregator()
        federation.start_clients()
        return federation, federation.complete()

    def look(self, federation):
        """Nobody may be told that a run is finished whose results are not there."""
        with open(os.path.join(federation.run_folder(), "run.json"), encoding="utf-8") as file:
            finished = json.load(file)["finished"]
        if finished:
            self.assertEqual([name for name in self.results(federation) if not os.path.exists(name)], [])
        return finished

    def test_the_end_of_a_run(self):
        """Killed at each step of it, and once more in what follows."""
        federation, expected = self.finished()
        call, killed = 0, True
        while killed:
            call += 1
            self.open_end(federation)
            moments = [(call, "kill-before"), (1 + call * 7 % SOON, "kill-after")]
            codes = []
            while moments and not self.look(federation):
                federation.launch_aggregator(environment=fault("io", *moments.pop(0)))
                codes.append(federation.aggregator.wait())
                self.assertIn(codes[-1], (0, -9), federation.aggregator.tail())
            killed = codes[0] == -9
            if not self.look(federation):
                federation.launch_aggregator()
                self.assertEqual(federation.aggregator.wait(), 0, federation.aggregator.tail())
            self.assertTrue(self.look(federation))
            result = federation.result()
            self.assertGreater(result.pop("seconds"), 0)
            self.assertEqual(result, {key: expected[key] for key in result})
        self.assertGreater(call, 8)

    def test_a_result_that_is_missing_is_written_again(self):
        """By a start on the finished run, which trains nothing. When nothing is left to write it from, that is told."""
        federation, expected = self.finished()
        for path in self.results(federation):
            with self.subTest(os.path.basename(path)):
                with open(path, "rb") as file:
                    before = file.read()
                os.unlink(path)
                federation.launch_aggregator()
                result = federation.complete()
                self.assertEqual(len(federation.aggregator.events("results-missing")), 1)
                self.assertTrue(self.look(federation))
                self.assertEqual({**result, "seconds": 0}, {**expected, "seconds": 0})
                if not path.endswith(".json"):
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), before)
        run = os.path.basename(federation.run_folder())
        os.unlink(os.path.join(federation.run_folder(), "model.safetensors"))
        shutil.rmtree(os.path.join(federation.run_folder(), "checkpoints"))
        federation.start_aggregator()
        self.assertEqual([event["run"] for event in federation.aggregator.events("results-lost")], [run])
        self.assertNotEqual(federation.aggregator.wait_event("run-started")["run"], run)


if __name__ == "__main__":
    harness.main()
