"""keep-best and early-stopping: what is left, wherever the run was cut off, and the same when it is simulated."""

import json
import os
import random

import harness
from harness import NetTest, fault

KILLS = 12
# The first evaluation is the best of all: the others are better, but not by so much.
STOPS = {"rounds__num_server_rounds": 9, "rounds__fraction_evaluate": 1.0, "site": {"validation-fraction": 0.2},
         "strategy__server_learning_rate": 2.5, "keep_best": {"metric": "validation-accuracy"},
         "early_stopping": {"patience": 3, "min-delta": 1e6}}


class Selection(NetTest):
    def deployed(self, **job):
        federation = self.federation(**job)
        federation.start_aggregator()
        clients = federation.start_clients()
        result = federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        return federation, result

    def simulated(self, federation, *more):
        out = federation.path("simulation")
        harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                    "--clients", federation.clients, "--out", out, "--quiet", *more)
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        with open(os.path.join(out, "rounds.jsonl"), encoding="utf-8") as file:
            return out, summary, [json.loads(line) for line in file]

    def assert_best(self, federation, result, phase, key):
        """The result and the file are of the round that the lines say is the best: the first of the highest."""
        lines = federation.lines(phase)
        best = max(lines, key=lambda line: (line[key] if key == "accuracy" else -line[key], -line["round"]))
        train = federation.lines()[best["round"] - 1]
        self.assertEqual(result["best_round"], best["round"])
        self.assertEqual(result["best_value"], best[key])
        self.assertEqual(result["best_model_sha256"], train["model_sha256"])
        self.assertEqual((result["best_accuracy"], result["best_loss"]), (train["accuracy"], train["loss"]))
        said, digest = federation.model(os.path.join(federation.run_folder(), "model-best.safetensors"))
        self.assertEqual(digest, train["model_sha256"])
        self.assertEqual((said["round"], said["model_sha256"]), (str(best["round"]), digest))
        self.assertEqual(float(said["accuracy"]), train["accuracy"])
        return best

    def test_a_best_model_that_is_lost(self):
        """Costs its file alone, and the summary does not name what is not there."""
        federation, result = self.deployed(
            rounds__num_server_rounds=4, strategy__server_learning_rate=3.5, keep_checkpoints=1,
            keep_best={"metric": "test-accuracy"})
        folder = federation.run_folder()
        self.assertLess(result["best_round"], 4)
        with open(os.path.join(folder, "checkpoints", f"round-{result['best_round']:06}", "model.safetensors"),
                  "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
        os.unlink(federation.path("result.json"))
        os.unlink(os.path.join(folder, "model-best.safetensors"))
        federation.launch_aggregator()
        again = federation.complete()
        self.assertEqual(len(federation.aggregator.events("best-model-lost")), 1)
        self.assertFalse(os.path.exists(os.path.join(folder, "model-best.safetensors")))
        self.assertIsNone(again["best_model_sha256"])
        for key in "best_round", "best_value", "best_accuracy", "best_loss", "model_sha256":
            self.assertEqual(again[key], result[key], key)

    def test_clients_that_hold_nothing_out(self):
        """There is nothing to choose by, and that is told: once meanwhile, and at the end."""
        choice = {"keep_best": {"metric": "validation-accuracy"}, "early_stopping": {"metric": "validation-loss",
                                                                                     "patience": 1}}
        federation, result = self.deployed(rounds__num_server_rounds=3, rounds__fraction_evaluate=1.0, **choice)
        said = federation.aggregator
        self.assertEqual([event["round"] for event in said.events("nothing-held-out")], [1])
        self.assertEqual([event["metric"] for event in said.events("nothing-chosen")], ["validation-accuracy"])
        self.assertEqual((result["rounds"], result["best_round"]), (3, None))
        for client in federation.seen[1:]:
            self.assertIn("set 'validation-fraction' in the client file", client.log())
        said = harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                           "--clients", 3, code=3)[1]
        self.assertIn("no client holds out examples: set 'validation-fraction'", said)

    def test_killed_on_the_way(self):
        """At steps of what is written about rounds: the same models, the same end, the same best."""
        wanted, expected = self.deployed(**STOPS)
        for by in "validation-accuracy", "test-loss":
            job = {**STOPS, "early_stopping": {**STOPS["early_stopping"], "metric": by}}
            draw = random.Random(by)
            federation = self.federation(**job)
            federation.start_aggregator()  # finds the ports
            federation.aggregator.kill()
            federation.start_clients()
            killed, code = 0, -9
            for _ in range(KILLS):
                environment = fault("io", draw.randint(1, 9), draw.choice(["kill-before", "kill-after"]),
                                    draw.choice(["checkpoints", "checkpoints", "rounds.jsonl", "journal"]))
                federation.launch_aggregator(environment=environment)
                code = federation.aggregator.wait(harness.PATIENCE_S)
                self.assertIn(code, (0, -9), federation.aggregator.tail())
                if code == 0:
                    break
                killed += 1
            if code != 0:
                federation.launch_aggregator()
                self.assertEqual(federation.aggregator.wait(harness.PATIENCE_S), 0, federation.aggregator.tail())
            self.assertGreater(killed, 3)
            result = federation.result()
            self.assertEqual(federation.hashes(), wanted.hashes())
            for phase in "train", "evaluate":
                self.assertEqual([line["round"] for line in federation.lines(phase)], [1, 2, 3, 4])
            for key in ("best_round", "best_metric", "best_value", "best_accuracy", "best_loss", "best_model_sha256",
                        "stopped_early", "model_sha256", "rounds", "accuracy", "loss"):
                self.assertEqual(result[key], expected[key], key)
            self.assert_best(federation, result, "evaluate", "accuracy")


if __name__ == "__main__":
    harness.main()
