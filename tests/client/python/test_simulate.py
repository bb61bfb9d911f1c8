"""Simulations with clients in Python: the deployed run's model, and what goes wrong in them."""

import contextlib
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
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
                for key in "clients", "examples", "devices":
                    self.assertEqual(mine.get(key), theirs.get(key), key)
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
        for trainer, message in (("exit 3", "ended with exit code 3"), ("kill -9 $$", "ended by signal 9"),
                                 ("true", "has to run a client")):
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


class Continued(Simulations):
    """A simulation that was interrupted, and goes on to the model of one that was not."""

    def test_a_resumed_run_gives_the_same_model(self):
        for job in {}, {"strategy__type": "SCAFFOLD", "training__optimizer": {"type": "SGD"}}:
            federation, data = self.federation_of(**job)
            whole = fedge.simulate(simulated_app.make(data), federation.job_path, DEVICES, processes=2, rounds=5, quiet=True,
                                   output=federation.path("whole"))
            again = {"processes": 2, "rounds": 5, "quiet": True, "output": federation.path("broken")}
            with self.assertRaisesRegex(fedge.Error, "--resume continues there"):
                fedge.simulate(simulated_app.make(data, ends=3), federation.job_path, DEVICES, **again)
            with self.assertRaisesRegex(fedge.Error, "has a simulation already"):
                fedge.simulate(simulated_app.make(data), federation.job_path, DEVICES, **again)
            run = fedge.simulate(simulated_app.make(data), federation.job_path, DEVICES, resume=True, **again)
            self.assertEqual([row["model_sha256"] for row in run.records()], [row["model_sha256"] for row in whole.records()])
            self.assertEqual([name for name in os.listdir(federation.path("broken/checkpoints")) if "values" in name], [])

    def test_it_needs_its_clients_values(self):
        federation, data = self.federation_of()
        with self.assertRaisesRegex(fedge.Error, "resume needs output"):
            fedge.simulate(simulated_app.make(data), federation.job_path, DEVICES, resume=True)
        again = {"processes": 1, "quiet": True, "output": federation.path("broken")}
        with self.assertRaisesRegex(fedge.Error, "--resume continues there"):
            fedge.simulate(simulated_app.make(data, ends=3), federation.job_path, DEVICES, **again)
        os.remove(federation.path("broken/checkpoints/values-000002.bin"))
        with self.assertRaisesRegex(fedge.Error, "cannot go on without its clients' states"):
            fedge.simulate(simulated_app.make(data), federation.job_path, DEVICES, resume=True, **again)


class Sweeps(Simulations):
    def command(self, federation, *options):
        trainer = f"'{sys.executable}' -B '{HERE}/simulated_app.py' nowhere"
        return subprocess.run(["fedge-simulate", "--job", federation.job_path, "--clients", str(DEVICES), "--trainer", trainer,
                               "--quiet", *options], cwd=federation.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env={**os.environ, **ENVIRONMENT}, timeout=harness.PATIENCE_S)

    def last(self, run):
        return [row["model_sha256"] for row in run.records() if row["phase"] == "train"][-1]

    def test_each_run_has_trainers_of_its_own(self):
        federation, data = self.federation_of(rounds__fraction_evaluate=1.0)
        done = self.command(federation, "--sweep", "lr=0.05,0.2", "seeds=2", "--threads", "2", "--out", federation.path("grid"))
        self.assertEqual(done.returncode, 0, done.stderr)
        hashes = set()
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        for rate in 0.05, 0.2:
            for seed in 1, 2:
                swept = self.last(fedge.Run(federation.path(f"grid/lr={rate},seed={seed}")))
                federation.job_path = federation.path("one.json")
                with open(federation.job_path, "w", encoding="utf-8") as file:
                    json.dump({**job, "training": {**job["training"], "learning-rate": rate}}, file)
                alone = fedge.simulate(simulated_app.make(data), federation.job_path, DEVICES, processes=1, quiet=True,
                                       seed=job.get("seed", 0) + seed - 1, output=federation.path(f"alone-{rate}-{seed}"))
                self.assertEqual(self.last(alone), swept)
                hashes.add(swept)
        self.assertEqual(len(hashes), 4)

    def test_what_needs_to_know_the_data(self):
        federation, data = self.federation_of()
        self.assertIn("leave partition out", self.command(federation, "--sweep", "partition=iid,shards:2").stderr)
        self.assertIn("training.local-steps", self.command(federation, "--compute", "fixed:10").stderr)
        with self.assertRaisesRegex(fedge.Error, "call fedge.simulate once for each setting"):
            self.simulate(federation, simulated_app.make(data), options=["--sweep", "seeds=2"])
        steps, data = self.federation_of(training__local_steps=6)
        run, _ = self.simulate(steps, simulated_app.make(data), options=["--compute", "fixed:10"])
        with open(steps.job_path, encoding="utf-8") as file:
            batch = json.load(file)["training"]["batch-size"]
        self.assertAlmostEqual(run.records()[0]["virtual_seconds"], 6 * batch / 10)


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

    def test_processes_that_a_trainer_leaves_end_with_it(self):
        federation, data = self.federation_of()
        app, pools = simulated_app.make(data), []
        train = app._train

        @app.train
        def train_with_a_pool(model, task):
            if not pools:
                pools.append(multiprocessing.Pool(1))
                self.assertEqual(pools[0].map(abs, [-1]), [1])
                pools[0].apply_async(time.sleep, [3600])
            return train(model, task)

        run, _ = self.simulate(federation, app, processes=2)
        self.assertEqual(len(run.records()), 3)

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
