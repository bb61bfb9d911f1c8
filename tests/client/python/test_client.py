"""Python clients beside a real aggregator: NumPy only."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

import numpy as np
from python_client import ENVIRONMENT, HERE, PACKAGE, PythonTest, harness

sys.path.insert(0, PACKAGE)
from fedge import safetensors  # noqa: E402

DECLINED = 8


class Runs(PythonTest):
    def test_two_python_and_two_c_clients_train_one_model(self):
        federation = self.linear_federation(clients=4, site={"validation-fraction": 0.2},
                                            rounds__num_server_rounds=4, rounds__fraction_evaluate=1.0)
        federation.start_aggregator()
        clients = [self.start_python(federation, 0), self.start_python(federation, 1),
                   federation.start_client(2), federation.start_client(3)]
        federation.complete()
        self.assertEqual([client.wait() for client in clients], [0, 0, 0, 0], clients[0].tail())
        lines = federation.lines()
        self.assertEqual([line["clients"] for line in lines], [4] * 4)
        self.assertGreater(lines[-1]["accuracy"], 0.6)  # chance is 0.25
        for line in lines:
            self.assertEqual(sorted(index for index, *_ in line["devices"]), [0, 1, 2, 3])
            self.assertEqual(sum(examples for _, examples, _ in line["devices"]), line["examples"])
            mean = sum(examples * loss for _, examples, loss in line["devices"]) / line["examples"]
            self.assertAlmostEqual(mean, line["train_loss"], places=4)
        evaluations = federation.lines("evaluate")
        self.assertEqual([line["clients"] for line in evaluations], [4] * 4)

    def test_state_lasts_and_nothing_is_trained_twice_when_a_client_is_killed(self):
        federation = self.linear_federation(clients=2, rounds__num_server_rounds=4)
        federation.start_aggregator()
        client = self.start_python(federation, 0)
        other = self.start_python(federation, 1)
        for count in (1, 2):
            client.wait_event("trained")
            client.kill()
            client = self.start_python(federation, 0)
        federation.complete()
        self.assertEqual((client.wait(), other.wait()), (0, 0), client.tail())
        with open(federation.path("done"), encoding="ascii") as file:
            done = [line.split(" ", 1) for line in file.read().splitlines()]
        # Of all processes of the two devices: a stored result is never made again.
        trained = []
        for index in range(2):
            with open(federation.path(f"python-{index}.log"), encoding="utf-8") as file:
                trained += [json.loads(line)["task"] for line in file if '"event":"trained"' in line]
        self.assertEqual(len(set(trained)), len(trained), trained)
        # A round is there twice where the client was killed between keeping it and its result.
        self.assertEqual(sum(sorted(set(json.loads(rounds))) == [1, 2, 3, 4] for _, rounds in done), 2, done)

    def test_without_a_state_directory_all_stays_in_memory(self):
        federation = self.linear_federation(clients=1, rounds__num_server_rounds=2, config={"warmup": [1, 0.5, None]})
        federation.start_aggregator()
        client = self.start_python(federation, 0, state=False)
        federation.complete()
        self.assertEqual(client.wait(), 0, client.tail())
        self.assertIn("training 2 with {'warmup': [1, 0.5, None]}", client.log())
        self.assertFalse(os.path.exists(federation.path("python-state-0")))

    def external_federation(self, tensors, values=None, **update):
        """Two devices whose model has these tensors."""
        federation = self.linear_federation(clients=2, rounds__num_server_rounds=2)
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        del job["data"], job["test-set"]
        job.update({"model": {"type": "external", "tensors": tensors}, "update": update})
        if values:
            job["initial-model"] = "initial.safetensors"
            safetensors.write(federation.path("initial.safetensors"), values)
        federation.write("job.json", job)
        return federation

    def final_model(self, federation, *more):
        federation.start_aggregator()
        clients = [self.start_python(federation, index, *more, script="typed_client.py") for index in range(2)]
        federation.complete()
        self.assertEqual([client.wait() for client in clients], [0, 0], clients[0].tail())
        return safetensors.read_typed(os.path.join(federation.run_folder(), "model.safetensors"))

    def test_tensors_have_types_and_some_are_frozen(self):
        tensors = [{"name": "half", "shape": [2], "dtype": "F16"}, {"name": "brain", "shape": [2], "dtype": "BF16"},
                   {"name": "count", "shape": [], "dtype": "I64"}, {"name": "fixed", "shape": [3], "frozen": True},
                   {"name": "float", "shape": [1]}]
        values = {"float": np.zeros(1, np.float32), "brain": np.ones(2, np.float32), "half": np.full(2, 64, np.float16),
                  "count": np.array(2**62 + 1), "fixed": np.array([1, 2, 3], np.float32)}
        federation = self.external_federation(tensors, values, codec="none", down="none")
        found = self.final_model(federation)
        self.assertEqual({name: (kind, array.tolist()) for name, (kind, array) in found.items()}, {
            "half": ("F16", [64.25] * 2),  # of 64.1 it has 64.125
            "brain": ("BF16", [0x3F80] * 2), "count": ("I64", 2**62 + 1), "fixed": ("F32", [1, 2, 3]), "float": ("F32", [2])})
        trainer = f"'{sys.executable}' -B '{HERE}/typed_client.py' none none"
        done = subprocess.run([os.path.join(harness.BIN, "fedge-simulate"), "--job", federation.job_path, "--clients", "2",
                               "--trainer", trainer, "--out", "simulated", "--quiet"], cwd=federation.folder,
                              env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=harness.PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(federation.path("simulated/rounds.jsonl"), encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["model_sha256"] for line in file], federation.hashes())

    def test_a_model_of_4096_tensors(self):
        federation = self.external_federation([{"name": f"t{i}", "shape": [1]} for i in range(4096)], codec="none")
        found = self.final_model(federation, "4096")
        self.assertEqual([float(found[f"t{i}"][1][0]) for i in range(4096)], [2 * (i % 3) for i in range(4096)])


class Leaks(PythonTest):
    def test_a_thousand_tasks_take_no_more_memory_than_a_hundred(self):
        federation = self.linear_federation(clients=1, rounds__num_server_rounds=1100)
        federation.start_aggregator()
        client = self.start_python(federation, 0)
        resident = []
        for tasks in (100, 1000):
            harness.wait_until(f"{tasks} rounds", lambda: len(federation.lines()) >= tasks, harness.PATIENCE_S * 4)
            resident.append(harness.memory_of(client.pid))
        self.assertLess(resident[1] - resident[0], 256 << 10)
        self.assertEqual(client.stop(), 0)


class Faults(PythonTest):
    """What a trainer may do wrong: the run goes on with the others, and a message says what to do."""

    def with_fault(self, fault, **policy):
        federation = self.linear_federation(clients=2, rounds__num_server_rounds=1, rounds__min_report_fraction=0.5,
                                            rounds__round_deadline_s=300)
        aggregator = federation.start_aggregator()
        return aggregator, self.start_python(federation, 0, fault, **policy), self.start_python(federation, 1)

    def declined(self, fault, *texts, **policy):
        aggregator, client, _ = self.with_fault(fault, **policy)
        message = aggregator.wait_event("client-declined")["text"]
        for text in texts:
            self.assertIn(text, message)
        return message, client

    def test_an_exception_tells_the_server_its_type_only(self):
        message, client = self.declined("raise", "ValueError")
        self.assertNotIn("42", message)
        self.assertIn("the secret of this device is 42", client.log())

    def test_the_client_file_may_allow_the_text(self):
        self.declined("raise", "ValueError: the secret of this device is 42", **{"show-errors": True})

    def test_a_model_that_is_not_finite(self):
        self.declined("nan", "0.bias")

    def test_a_tensor_of_another_shape(self):
        self.declined("grow", "the trainer has changed the shape of '0.bias' from [4] to [5]")

    def test_no_examples(self):
        self.declined("none", "the trainer returned 0 as its number of examples")

    def test_a_metric_that_is_not_finite(self):
        self.declined("metric", "loss")

    def ends_with(self, fault, code, *texts):
        _, client, _ = self.with_fault(fault)
        self.assertEqual(client.wait(), code, client.tail())
        for text in texts:
            self.assertIn(text, client.log())

    def test_another_name(self):
        self.ends_with("name", DECLINED, "0.weight", "python -m fedge init")

    def test_another_shape(self):
        self.ends_with("shape", DECLINED, "tensor '0.weight' is [4, 12] in the job and [4, 3] in this client's model")

    def stopped(self, fault, number):
        _, client, _ = self.with_fault(fault)
        harness.wait_until("training", lambda: "training" in client.log())
        time.sleep(0.1)
        client.send(number)
        self.assertEqual(client.wait(), 0, client.tail())

    def test_signals_end_a_client_that_trains(self):
        self.stopped("batches", signal.SIGTERM)
        self.stopped("batches", signal.SIGINT)

    def test_signals_end_a_client_whose_trainer_never_returns(self):
        self.stopped("hang", signal.SIGTERM)

    def test_processes_that_a_trainer_makes_end_by_signals(self):
        _, client, _ = self.with_fault("pool")
        harness.wait_until("the pool's end", lambda: "the pool has ended" in client.log())

    def test_a_model_belongs_to_one_client(self):
        self.declined("twice", "a client of this process with the same model is running")

    def test_a_missing_client_file(self):
        federation = self.linear_federation()
        self.device_directory(federation, 0)
        os.unlink(federation.path("device-0/client.json"))
        client = harness.Program("python-0", ["/usr/bin/python3", "-B", "-c", (
            "import fedge\napp = fedge.Client({})\napp.train(print)\napp.run('device-0')")], federation.folder,
            {"PYTHONPATH": PACKAGE})
        federation.seen.append(client)
        self.assertEqual(client.wait(), 3)
        self.assertIn("client.json", client.log())


if __name__ == "__main__":
    if not os.path.isfile(os.path.join(PACKAGE, "fedge", "_fedge.abi3.so")):
        raise SystemExit(harness.SKIPPED)
    unittest.main(verbosity=2)
