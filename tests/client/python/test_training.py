"""Strategies with trainers in Python: external models end where fedge's own trainer does."""

import importlib.util
import os
import subprocess
import sys
import unittest

from python_client import PACKAGE, PythonTest, harness

if not os.path.isfile(os.path.join(PACKAGE, "fedge", "_fedge.abi3.so")):
    raise SystemExit(harness.SKIPPED)
sys.path.insert(0, PACKAGE)
import numpy as np  # noqa: E402

from fedge import safetensors  # noqa: E402

DECLINED = 8
SHAPES = {"0.weight": (5, 12), "0.bias": (5,), "1.weight": (4, 5), "1.bias": (4,)}
LAYERS = {"input-shape": [12], "layers": [{"type": "Linear", "in_features": 12, "out_features": 5},
                                          {"type": "Linear", "in_features": 5, "out_features": 4}],
          "loss": {"type": "CrossEntropyLoss"}}
EXTERNAL = {"type": "external", "tensors": [{"name": name, "shape": list(shape)} for name, shape in SHAPES.items()]}
ROUNDS = 4
SERVER = {"FEDGE_PYTHON": sys.executable, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}


def write_model(path, seed):
    draw = np.random.default_rng(seed)
    safetensors.write(path, {name: draw.uniform(-0.5, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()})


class StrategyTest(PythonTest):
    plugin = ()

    def start(self, strategy, clients=2, how="", **job):
        job = {"rounds__num_server_rounds": ROUNDS, "training__optimizer": {"type": "SGD"}, "training__batch_size": 256,
               "training__local_epochs": 3, "update": {"codec": "none", "deflate": False},
               "training__learning_rate": 0.2, "initial_model": "initial.safetensors", **job}
        self.federation_ = federation = self.federation(clients=clients)
        self.job = harness.make_job(rounds__min_train_nodes=clients, rounds__min_available_nodes=clients,
                                    **{key: value for key, value in job.items() if value is not None})
        self.job["strategy"] = strategy
        del self.job["test-set"]
        for i in range(clients):
            harness.write_examples(federation.folder, f"part-{i}", 60 + 30 * i, 10 + i)
        harness.write_examples(federation.folder, "root", 50, 9)
        for i in range(3):
            write_model(federation.path(("initial", "first", "second")[i] + ".safetensors"), i)
        federation.write("job.json", {**self.job, "model": EXTERNAL})
        federation.start_aggregator(*self.plugin, environment=SERVER)
        return [self.start_python(federation, i, how, script="training_client.py") for i in range(clients)]

    def train(self, strategy, **options):
        clients = self.start(strategy, **options)
        self.federation_.complete()
        self.assertEqual([client.wait() for client in clients], [0] * len(clients), clients[0].tail())
        return self.model()

    def model(self, name="model"):
        found = []
        for folder, _, files in os.walk(self.federation_.state):
            found += [os.path.join(folder, file) for file in files if file == f"{name}.safetensors"]
        return safetensors.read(max(found))

    def simulated(self):
        """The model of fedge's own trainer on the same examples."""
        federation = self.federation_
        strategy = {key: value for key, value in self.job["strategy"].items() if key != "personal-tensors"}
        if self.plugin:
            strategy["root-set"] = {"values": "root-values.npy", "labels": "root-labels.npy"}
        job = federation.write("layers.json", {**self.job, "model": LAYERS, "strategy": strategy})
        parts = range(federation.clients)
        site = federation.write("per-file.json", {"data": {"points": {
            "values": [f"part-{i}-values.npy" for i in parts], "labels": [f"part-{i}-labels.npy" for i in parts],
            "partition": "per-file"}}})
        out = federation.path("simulated")
        harness.run("fedge-simulate", "--job", job, "--data", site, "--clients", federation.clients, "--out", out, "--quiet")
        return safetensors.read(os.path.join(out, "model.safetensors"))

    def simulated_with_trainers(self, how=""):
        """The model of a simulation whose clients are processes of the same program."""
        federation = self.federation_
        out = federation.path("processes")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training_client.py")
        done = subprocess.run(
            [os.path.join(harness.BIN, "fedge-simulate"), "--job", federation.job_path, "--clients", str(federation.clients),
             "--threads", "1", "--trainer", f"'{sys.executable}' -B {script} none none {how}", "--out", out, "--quiet",
             *self.plugin], cwd=federation.folder, env={**os.environ, **SERVER}, capture_output=True, text=True, timeout=harness.PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return safetensors.read(os.path.join(out, "model.safetensors"))

    def agree(self, strategy, **options):
        trained, expected = self.train(strategy, **options), self.simulated()
        for name, values in expected.items():
            self.assertLess(np.abs(values - trained[name]).max(), 2e-5, name)
        for name, values in self.simulated_with_trainers(options.get("how", "")).items():
            self.assertEqual(values.tobytes(), trained[name].tobytes(), name)


class Gradients(StrategyTest):
    def test_fedprox(self):
        self.agree({"type": "FedProx", "proximal-mu": 0.5})

    def test_scaffold(self):
        self.agree({"type": "SCAFFOLD"})

    def test_feddyn(self):
        self.agree({"type": "FedDyn", "alpha": 0.1})

    def test_fednova_counts_steps(self):
        self.agree({"type": "FedNova"})

    def test_qfedavg_weighs_by_the_loss(self):
        self.agree({"type": "QFedAvg", "q": 2})

    def test_without_waiting(self):
        for kind in ({"type": "FedBuff", "buffer-size": 2}, {"type": "FedAsync"}):
            with self.subTest(kind["type"]):
                start = np.random.default_rng(0).uniform(-0.5, 0.5, SHAPES["0.weight"])
                self.assertGreater(np.abs(self.train(kind)["0.weight"] - start).max(), 0.01)


class Models(StrategyTest):
    def test_fedper(self):
        self.agree({"type": "FedPer", "personal-tensors": ["1.*"]})

    def test_fedrep(self):
        self.agree({"type": "FedRep", "personal-tensors": ["1.weight", "1.bias"], "head-epochs": 2})

    def test_ditto(self):
        self.agree({"type": "Ditto", "lambda": 0.5})

    def test_fedbn(self):
        trained = self.train({"type": "FedBN", "personal-tensors": ["0.bias", "1.bias"]})
        start = safetensors.read(self.federation_.path("initial.safetensors"))
        for name, values in self.simulated_with_trainers().items():
            self.assertEqual(values.tobytes(), trained[name].tobytes(), name)
            self.assertEqual(values.tobytes() == start[name].tobytes(), "bias" in name, name)

    def test_ifca(self):
        self.train({"type": "IFCA", "initial-models": ["first.safetensors"]}, rounds__fraction_evaluate=1.0)
        models = [self.model(), self.model("model-cluster-1")]
        moved = []
        for i, name in enumerate(("initial", "first")):
            start = safetensors.read(self.federation_.path(f"{name}.safetensors"))
            moved.append(any(np.abs(models[i][key] - start[key]).max() > 0.01 for key in SHAPES))
        self.assertIn(True, moved)
        self.assertEqual(len(self.federation_.lines("evaluate")), ROUNDS)
        for name, values in self.simulated_with_trainers().items():
            self.assertEqual(values.tobytes(), models[0][name].tobytes(), name)


class Trusted(StrategyTest):
    """FLTrust, whose server trains on examples of its own with a function in Python."""

    plugin = ("--strategy-plugin", os.path.join(os.path.dirname(os.path.abspath(__file__)), "root_trainer.py"))

    def test_fltrust(self):
        self.agree({"type": "FLTrust"}, clients=3, config={"kept": 3})

    def test_without_a_function(self):
        self.plugin = ()
        with self.assertRaisesRegex(AssertionError, "@fedge.root_train"):
            self.start({"type": "FLTrust"})
        with self.assertRaisesRegex(AssertionError, "@fedge.root_train"):
            self.simulated_with_trainers()


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class Torch(StrategyTest):
    def test_gradients_and_parts(self):
        for strategy in ({"type": "SCAFFOLD"}, {"type": "Ditto", "lambda": 0.5},
                         {"type": "FedRep", "personal-tensors": "1.*", "head-epochs": 2}):
            with self.subTest(strategy["type"]):
                self.agree(strategy, how="torch")


class Omissions(StrategyTest):
    """A strategy is not another one in silence."""

    def test_a_trainer_that_does_not_correct_its_gradients(self):
        for strategy in ({"type": "FedProx", "proximal-mu": 0.5}, {"type": "FedRep", "personal-tensors": "1.*"}):
            with self.subTest(strategy["type"]):
                self.start(strategy, how="correct")
                message = self.federation_.aggregator.wait_event("client-declined")["text"]
                self.assertIn("call task.correct_gradients()", message)

    def test_a_client_without_a_loss(self):
        client = self.start({"type": "QFedAvg"}, how="loss")[0]
        self.assertEqual(client.wait(), DECLINED, client.tail())
        self.assertIn("a function loss(model, task) with @app.loss", client.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
