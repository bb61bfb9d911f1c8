"""Runs whose programs are killed end with the same bits (kills.py)."""

import json
import os
import shutil

import harness
from harness import NetTest, fault
from kills import CLIENTS, KILLS, SEED, SOON, KilledTest


class Crash(KilledTest):
    def test_the_aggregator(self):
        rounds = 4 * KILLS
        hashes = self.disturbed(rounds, KILLS, 0, SEED)
        self.assertEqual(hashes, harness.undisturbed(rounds, clients=CLIENTS))

    def test_clients(self):
        rounds = 3 * KILLS
        hashes = self.disturbed(rounds, 0, KILLS // 2, SEED + 1)
        self.assertEqual(hashes, harness.undisturbed(rounds, clients=CLIENTS))

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
