"""Strategies and evaluations of a server in Python: the models of the built-in ones, whatever happens to the process."""

import json
import os
import signal
import subprocess
import unittest

from python_client import HERE, PACKAGE, PythonTest, harness

SCRIPT = os.path.join(HERE, "server_strategies.py")
SOURCE = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "client", "python")  # no part of it that is built is needed
ENVIRONMENT = {"FEDGE_PYTHON": "/usr/bin/python3", "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1",
               "PYTHONDONTWRITEBYTECODE": "1"}
MOMENTUM = {"type": "Momentum", "beta": 0.5, "server-learning-rate": 0.7}
BUILT_IN = {"type": "FedAvgM", "server-momentum": 0.5, "server-learning-rate": 0.7}


class ServerTest(PythonTest):
    @staticmethod
    def lines_of(folder):
        with open(os.path.join(folder, "rounds.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def simulate(self, federation, name, strategy=None, *more, code=0, out=None, **job):
        """The simulation of the federation's job, with this strategy: its log and, without a failure, its lines."""
        with open(federation.job_path, encoding="utf-8") as file:
            changed = {**json.load(file), **job, **({"strategy": strategy} if strategy else {})}
        swept = out is not None
        out = out or federation.path(f"simulation-{len(os.listdir(federation.folder))}")
        words = [] if name is None else ["--strategy-plugin", SCRIPT]
        program = harness.Program("simulate", [
            "fedge-simulate", "--job", federation.write("job.json", changed), "--data", federation.site_path, "--clients",
            federation.clients, "--threads", 2, "--out", out, *words, *more], federation.folder,
            {**ENVIRONMENT, "STRATEGY": name or ""})
        self.assertEqual(program.wait(), code, program.tail())
        return program.log(), [] if code or swept else self.lines_of(out)

    def models(self, *arguments, **options):
        return [line["model_sha256"] for line in self.simulate(*arguments, **options)[1]]

    def serve(self, federation, name, *more):
        return federation.start_aggregator("--strategy-plugin", SCRIPT, *more, environment={**ENVIRONMENT, "STRATEGY": name})

    def children(self, aggregator):
        with open(f"/proc/{aggregator.pid}/task/{aggregator.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]


class Simulated(ServerTest):
    def test_python_gives_the_models_of_built_in_strategies(self):
        federation = self.federation(hidden=256, rounds__num_server_rounds=3)
        for name, strategy, built_in in (
                ("Mean", {"type": "Mean", "server-learning-rate": 0.3}, {"type": "FedAvg", "server-learning-rate": 0.3}),
                ("Momentum", MOMENTUM, BUILT_IN), ("Median", {"type": "Median"}, {"type": "FedMedian"})):
            with self.subTest(name):
                expected = self.models(federation, None, built_in)
                self.assertEqual(len(set(expected)), 3)
                self.assertEqual(self.models(federation, name, strategy), expected)
                self.assertEqual(self.models(federation, name, built_in), expected, "a job without it")

    def test_a_median_of_an_even_number_and_many_small_tiles(self):
        federation = self.federation(clients=6, hidden=1024, rounds__num_server_rounds=2)
        expected = self.models(federation, None, {"type": "FedMedian"})
        self.assertEqual(self.models(federation, "Median", {"type": "Median"}), expected)
        log, lines = self.simulate(federation, "Median", {"type": "Median"}, "--robust-memory", 1 << 16,
                                   rounds={"num-server-rounds": 2, "min-available-nodes": 6, "max-cohort": 6})
        self.assertEqual([line["model_sha256"] for line in lines], expected, log)

    def test_a_process_that_dies_or_hangs_is_started_again(self):
        federation = self.federation(rounds__num_server_rounds=3)
        expected = self.models(federation, None, BUILT_IN)
        for name, more, why in (("Killed", (), "the step of round 2 ended Python (killed by signal 9)"),
                                ("Late", ("--strategy-timeout", 5), "the step of round 2 did not end within 5 s")):
            with self.subTest(name):
                log, lines = self.simulate(federation, name, MOMENTUM, *more)
                self.assertEqual([line["model_sha256"] for line in lines], expected)
                self.assertIn(why, log)

    def test_what_ends_a_run_is_told(self):
        federation = self.federation(rounds__num_server_rounds=2)
        log, _ = self.simulate(federation, "Dead", MOMENTUM, code=1)
        self.assertEqual(log.count("the step of round 1 ended Python (exit code 5): out of luck"), 3, log)
        log, _ = self.simulate(federation, "Raise", MOMENTUM, code=1)
        self.assertRegex(log, r"the step of round 1 failed: ValueError: no such thing \(line \d+\)")
        self.assertIn("Traceback (most recent call last)", log)

    def test_results_that_are_wrong(self):
        federation = self.federation(rounds__num_server_rounds=1)
        for name, why in (("EvaluateText", "could not convert string"), ("EvaluateList", "returned list: return a dict"),
                          ("EvaluateName", '"Top 5": names have at most 31 bytes'), ("EvaluateMany", "at most 16 of them"),
                          ("EvaluateWrite", "read-only"), ("CombineShape", "combine returned an array of shape (3, 192)"),
                          ("CombineText", "could not convert string")):
            with self.subTest(name):
                strategy = {"type": "Median" if name.startswith("C") else "FedAvg"}
                self.assertIn(why, self.simulate(federation, name, strategy, code=1)[0])

    def test_weights(self):
        federation = self.federation(rounds__num_server_rounds=2)
        models = {name: self.models(federation, name, {"type": "Mean"}) for name in ("Equal", "WeightOne", "WeightClient", "WeightExamples")}
        self.assertEqual(models["WeightOne"], models["Equal"])
        self.assertEqual(models["WeightExamples"], self.models(federation, None, {"type": "FedAvg"}))
        self.assertNotEqual(models["WeightClient"], models["Equal"])
        log, _ = self.simulate(federation, "WeightNothing", {"type": "Mean"}, code=1)
        self.assertRegex(log, r"a weight of round 1 failed: Error: the weight of client \d+'s update is nan")

    def test_runs_of_a_sweep_share_a_process(self):
        federation = self.federation(rounds__num_server_rounds=3)
        out = federation.path("grid")
        axis = ",".join(json.dumps(strategy) for strategy in (MOMENTUM, BUILT_IN))
        self.simulate(federation, "Momentum", None, "--sweep", f"strategy={axis}", "seeds=3", "--threads", 8, out=out)
        last = []
        for folder in os.listdir(out):
            if os.path.isdir(os.path.join(out, folder)):
                last.append(self.lines_of(os.path.join(out, folder))[-1]["model_sha256"])
        self.assertEqual(sorted(map(last.count, last)), [2] * 6)  # a seed's two strategies have one model

    def test_scripts_and_interpreters_that_are_wrong(self):
        federation = self.federation()
        for text, why in (("import fedge\n", "neither a fedge.Strategy nor"), ("1 +\n", "SyntaxError"),
                          ("import fedge\nfedge.Strategy('A')\nfedge.Strategy('B')\n", "there are A and B"),
                          ("import fedge\nfedge.Strategy('FedAvg')\n", "fedge has a strategy of that name"),
                          ("import fedge\nfedge.Strategy('A', {'b': (2, 1)})\n", "min is not below its max"),
                          ("import fedge\nfedge.Strategy('A', {'b': (2,)})\n", "give (min, max)"),
                          ("raise SystemExit(3)\n", "SystemExit: 3")):
            with self.subTest(text):
                path = federation.path("wrong.py")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                self.assertIn(why, self.simulate(federation, None, None, "--strategy-plugin", path, code=3)[0])
        for environment, why in (({"FEDGE_PYTHON": "/no/python"}, "cannot run /no/python"),
                                 ({"PYTHONPATH": federation.folder}, "lacks the package fedge")):
            program = harness.Program("wrong", ["fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                                                "--strategy-plugin", SCRIPT], federation.folder,
                                      {**ENVIRONMENT, "STRATEGY": "Mean", **environment})
            self.assertEqual(program.wait(), 3, program.tail())
            self.assertIn(why, program.log())

    def test_an_evaluation_is_in_the_lines_of_rounds(self):
        federation = self.federation(hidden=8, rounds__num_server_rounds=2)
        _, lines = self.simulate(federation, "Mean", {"type": "Mean"})
        for number, line in enumerate(lines, 1):
            self.assertEqual((line["metrics"]["round"], line["metrics"]["nothing"]), (number, None))
            self.assertGreater(line["metrics"]["largest"], 0)
            self.assertGreater(line["accuracy"], 0)  # on the job's test set


class Served(ServerTest):
    def test_a_server_killed_in_a_step_goes_on_with_the_vectors(self):
        federation = self.federation(rounds__num_server_rounds=4, strategy=MOMENTUM)
        expected = self.models(federation, "Momentum")
        open(federation.path("wait"), "x", encoding="ascii").close()
        aggregator = self.serve(federation, "Slow")
        clients = federation.start_clients()
        harness.wait_until("the step of round 3", lambda: os.path.exists(federation.path("step-3")))
        python = self.children(aggregator)
        self.assertEqual(len(python), 1)
        aggregator.kill()
        harness.wait_until("the end of its Python", lambda: not os.path.exists(f"/proc/{python[0]}"))
        os.unlink(federation.path("wait"))
        os.unlink(federation.path("step-3"))
        aggregator = self.serve(federation, "Slow")
        os.kill(self.children(aggregator)[0], signal.SIGKILL)  # between steps
        federation.complete()
        self.assertEqual(federation.hashes(), expected)
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())

    @unittest.skipUnless(os.path.isfile(os.path.join(PACKAGE, "fedge", "_fedge.abi3.so")), "its clients are in Python")
    def test_an_external_model_is_evaluated_and_its_best_kept(self):
        federation = self.linear_federation(clients=2, rounds__num_server_rounds=3)
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        job.pop("test-set", None)
        job["keep-best"] = {"metric": "test-accuracy"}
        job["model"] = {"type": "external", "tensors": [{"name": "0.weight", "shape": [4, 12]}, {"name": "0.bias", "shape": [4]}]}
        federation.write("job.json", job)
        self.serve(federation, "Accuracy")
        for index in range(2):
            self.start_python(federation, index)
        result = federation.complete()
        lines = federation.lines()
        self.assertGreater(lines[-1]["accuracy"], 0.6)  # chance is 0.25
        self.assertEqual(result["best_value"], max(line["accuracy"] for line in lines))
        for line in lines:
            self.assertIsNone(line["loss"])
            self.assertEqual(line["metrics"], {"accuracy": line["accuracy"], "half": 0.5})


if __name__ == "__main__":
    if subprocess.run(["/usr/bin/python3", "-c", "import numpy"], capture_output=True, check=False).returncode:
        raise SystemExit(harness.SKIPPED)
    unittest.main(verbosity=2)
