"""Simulations with clients in Python: the deployed run's model, and what goes wrong in them."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import unittest

from python_client import ENVIRONMENT, HERE, INSTALLED, PACKAGE, PythonTest, harness

sys.path[:0] = [HERE] if INSTALLED else [PACKAGE, HERE]
os.environ["PATH"] = os.environ["FEDGE_BIN_DIR"] + os.pathsep + os.environ["PATH"]

import numpy as np  # noqa: E402
import simulated_app  # noqa: E402

import fedge  # noqa: E402

DEVICES = simulated_app.DEVICES


class Simulations(PythonTest):
    def federation_of(self, **job):
        federation = self.linear_federation(clients=DEVICES, rounds__num_server_rounds=3, **job)
        data = fedge.data.Arrays(np.load(federation.path("train-values.npy")), np.load(federation.path("train-labels.npy")))
        return federation, data

    def simulate(self, federation, app, clients=DEVICES, **arguments):
        """The run, and what was written to stderr."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            run = fedge.simulate(app, federation.job_path, clients, output=federation.path("simulated"), **arguments)
        return run, said.getvalue()


class Deployed(Simulations):
    """The same job, seed and data give the same model, deployed and simulated."""

    def compare(self, **job):
        federation, data = self.federation_of(rounds__fraction_evaluate=1.0, **job)
        federation.start_aggregator()
        devices = [self.start_python(federation, index, script="simulated_app.py", state=False) for index in range(DEVICES)]
        federation.complete()
        self.assertEqual([device.wait() for device in devices], [0] * DEVICES, devices[0].tail())
        run, _ = self.simulate(federation, simulated_app.make(data), processes=2)
        self.assertEqual([row["model_sha256"] for row in run.records() if row["phase"] == "train"], federation.hashes())
        for phase in "train", "evaluate":
            ours = [row for row in run.records() if row["phase"] == phase]
            for mine, theirs in zip(ours, federation.lines(phase)):
                self.assertEqual([mine[key] for key in ("clients", "examples")], [theirs[key] for key in ("clients", "examples")])
                for key in "loss", "accuracy", "train_loss":
                    self.assertEqual(mine[key] is None, theirs[key] is None, key)
                    self.assertAlmostEqual(mine[key] or 0, theirs[key] or 0, 9, key)
        return federation

    def test_fedavg(self):
        federation = self.compare()
        trainer = f"'{sys.executable}' -B '{HERE}/simulated_app.py' nowhere"
        done = subprocess.run(["fedge-simulate", "--job", federation.job_path, "--clients", str(DEVICES), "--threads", "3",
                               "--trainer", trainer, "--json", "--quiet"], cwd=federation.folder, check=True, stdout=subprocess.PIPE,
                              env={**os.environ, **ENVIRONMENT}, timeout=harness.PATIENCE_S)
        with open(federation.path("simulated/summary.json"), encoding="utf-8") as file:
            self.assertEqual(json.loads(done.stdout)["client_loss"], json.load(file)["client_loss"])

    def test_scaffold_with_small_updates(self):
        self.compare(strategy__type="SCAFFOLD", training__optimizer={"type": "SGD"})


class Faults(Simulations):
    def test_an_exception_is_that_clients_failure(self):
        federation, data = self.federation_of(rounds__min_report_fraction=0.5)
        run, said = self.simulate(federation, simulated_app.make(data, fails=(2,)), processes=1)
        self.assertEqual([row["clients"] for row in run.records()], [4, 2, 4])
        self.assertEqual(said.count("ValueError: client 1 of 4 has no data"), 1, said)

    def test_when_all_fail_the_error_has_the_first_traceback(self):
        federation, data = self.federation_of()
        with self.assertRaises(fedge.Error) as raised:
            self.simulate(federation, simulated_app.make(data, fails="all"), processes=2, rounds=1)
        text = str(raised.exception)
        self.assertIn("too few of 4 clients reported", text)
        self.assertIn("Traceback (most recent call last)", text)
        self.assertIn("has no data", text)

    def test_a_process_that_ends_ends_the_simulation(self):
        federation, _ = self.federation_of()
        app = fedge.Client({"0.weight": np.zeros((4, 12), np.float32), "0.bias": np.zeros(4, np.float32)})
        app.train(lambda model, task: os._exit(3))
        with self.assertRaisesRegex(fedge.Error, "has closed its channel"):
            self.simulate(federation, app)
        for trainer, message in (("exit 3", "ended with exit code 3"), ("kill -9 $$", "ended by signal 9")):
            done = subprocess.run(["fedge-simulate", "--job", federation.job_path, "--clients", "4", "--trainer", trainer],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=harness.PATIENCE_S)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(message, done.stderr)

    def test_a_model_that_does_not_fit(self):
        federation, _ = self.federation_of()
        app = fedge.Client({"weights": np.zeros((4, 12), np.float32), "0.bias": np.zeros(4, np.float32)})
        app.train(lambda model, task: 1)
        with self.assertRaisesRegex(fedge.Error, "the trainer declines the job: .*0.weight"):
            self.simulate(federation, app)

    def test_what_fedge_simulate_refuses(self):
        federation, data = self.federation_of()
        with self.assertRaisesRegex(fedge.Error, "nowhere.json"):
            fedge.simulate(simulated_app.make(data), "nowhere.json", 4, quiet=True)
        with self.assertRaisesRegex(fedge.Error, "--partition is about data that fedge reads"):
            self.simulate(federation, simulated_app.make(data), options=["--partition", "iid"])


ENDLESS = """
import os, time
import numpy as np
import fedge
app = fedge.Client({"0.weight": np.zeros((4, 12), np.float32), "0.bias": np.zeros(4, np.float32)})
@app.train
def train(model, task):
    print("trainer", os.getpid(), flush=True)
    time.sleep(3600)
fedge.simulate(app, "job.json", 4, processes=2, output="interrupted")
"""


class Processes(Simulations):
    def test_an_interruption_ends_them_all(self):
        federation, _ = self.federation_of()
        program = harness.Program("simulation", [sys.executable, "-B", "-c", ENDLESS], federation.folder, ENVIRONMENT)
        federation.seen.append(program)
        harness.wait_until("two trainers", lambda: program.log().count("trainer ") == 2)
        program.send(signal.SIGINT)
        self.assertEqual(program.wait(), -signal.SIGINT, program.tail())
        self.assertIn("KeyboardInterrupt", program.log())
        for line in program.log().splitlines():
            if line.startswith("trainer "):
                with self.assertRaises(ProcessLookupError):
                    os.kill(int(line.split()[1]), 0)

    def test_their_number_and_the_jobs_form_do_not_matter(self):
        federation, data = self.federation_of()
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        results = set()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(federation.folder)  # where a dict's paths begin
        for processes in 1, 3:
            run = fedge.simulate(simulated_app.make(data), job, DEVICES, processes=processes, seed=5, quiet=True,
                                 output=federation.path(f"simulated-{processes}"))
            results.add(run.records()[-1]["model_sha256"])
        self.assertEqual(len(results), 1, results)


if __name__ == "__main__":
    if not os.path.isfile(os.path.join(os.environ["FEDGE_BINARY_DIR"], "python", "fedge", "_fedge.abi3.so")):
        raise SystemExit(harness.SKIPPED)
    unittest.main(verbosity=2)
