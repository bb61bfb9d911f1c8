"""Silos: clients whose model several emulated GPUs train together. How many they are does not show in the
federation's models, also when a GPU is lost and the client is started again with fewer."""

import json
import os
import subprocess
import unittest

import harness
from harness import NetTest

FOLDER = os.environ.get("FEDGE_EMULATED_DIR", "")
PROGRAM = os.path.join(FOLDER, "fedge-client")
ROUNDS = 2
JOB = {"rounds__num_server_rounds": ROUNDS, "rounds__min_train_nodes": 1, "hidden": 20}


@unittest.skipUnless(FOLDER, "the programs for emulated GPUs are not built")
class Silo(NetTest):
    def start(self, federation, emulator, *more):
        # The harness's words, of the program that sees emulated GPUs.
        return federation.start_client(0, "--engine", "cuda", *more, program=PROGRAM,
                                       environment={"FEDGE_EMULATOR": f"order=2 seed=7 {emulator}"})

    def play(self, emulator, *more):
        federation = self.federation(clients=1, **JOB)
        federation.start_aggregator()
        client = self.start(federation, emulator, *more)
        federation.complete()
        return federation, client

    def test_the_number_of_gpus_does_not_show(self):
        first, client = self.play("gpus=1")
        self.assertEqual(len(first.hashes()), ROUNDS)
        self.assertEqual(client.wait_event("trainer-engine", kind="cuda")["gpus"], 1)
        for gpus in (2, 8):
            federation, client = self.play(f"gpus={gpus}")
            self.assertEqual(federation.hashes(), first.hashes())
            self.assertEqual(client.wait_event("trainer-engine", kind="cuda")["gpus"], gpus)
        federation, client = self.play("gpus=3", "--gpus", "2,0")
        self.assertEqual(federation.hashes(), first.hashes())
        self.assertEqual(client.wait_event("trainer-engine", kind="cuda")["gpus"], 2)

    def test_a_lost_gpu_is_told_by_the_exit_code(self):
        expected = self.play("gpus=1")[0].hashes()
        federation = self.federation(clients=1, **JOB)
        federation.start_aggregator()
        # Error 10000 of the emulator: the call never returns.
        for fault in ("fail=300", "at=ncclReduceScatter fail=2", "at=ncclAllGather fail=3",
                      "at=ncclGroupEnd fail=2 error=10000"):
            client = self.start(federation, f"gpus=2 {fault}")
            self.assertEqual(client.wait(), 9, client.tail())
            self.assertIn("is lost while", client.wait_event("gpu-lost")["error"])
        self.start(federation, "gpus=1")
        federation.complete()
        self.assertEqual(federation.hashes(), expected)

    def test_what_is_missing_is_named(self):
        federation = self.federation(clients=1, **JOB)
        federation.start_aggregator()
        for emulator, more, message in (("gpus=0", (), "no GPU is found"),
                                        ("gpus=2", ("--gpus", "0,2"), "GPU 2 is not there: there are 0 to 1"),
                                        ("gpus=2", ("--gpus", "0,x"), "--gpus takes numbers of GPUs"),
                                        ("gpus=2", ("--gpus", "1,1"), "--gpus has GPU 1 twice")):
            client = self.start(federation, emulator, *more)
            self.assertEqual(client.wait(), 3, client.tail())
            self.assertIn(message, client.log())

    def test_what_cannot_train_the_job_is_told_before_the_first_round(self):
        for emulator, job, code, reason, message in (
                ("gpus=1 old=1", {"training__precision": "bf16"}, 8, "unsupported",
                 "GPU 0 has compute capability 7.5, and precision bf16 wants 8.0"),
                ("gpus=1 memory=8192", {}, 1, "internal", "GPU 0 has 0 MiB free, and "),
                ("gpus=1 at=choosing fail=1 error=46", {}, 8, "unsupported", "GPU 0 is closed to this process"),
                ("gpus=1 no-code=1", {}, 8, "unsupported", "this build has no code for it"),
                ("gpus=2 no-nccl=1", {}, 8, "unsupported", "NCCL is not found")):
            with self.subTest(emulator=emulator):
                federation = self.federation(clients=1, **JOB, **job)
                federation.start_aggregator()
                client = self.start(federation, emulator)
                self.assertEqual(client.wait(), code, client.tail())
                self.assertIn(message, client.log())
                declined = federation.aggregator.wait_event("client-declined")
                self.assertEqual(declined["reason"], reason, declined)
                self.assertIn(message, declined["text"])
                self.assertFalse(client.events("trained"))

    def test_one_gpu_needs_no_nccl(self):
        expected = self.play("gpus=1")[0].hashes()
        self.assertEqual(self.play("gpus=2 no-nccl=1", "--gpus", "1")[0].hashes(), expected)

    def test_the_plan_tells_the_memory_of_a_gpu(self):
        federation = self.federation(clients=1, **JOB)
        done = subprocess.run([PROGRAM, "--plan", federation.job_path, "--json"], stdout=subprocess.PIPE,
                              check=True)
        plan = json.loads(done.stdout)
        self.assertLess(4 * sum(layer["parameters"] for layer in plan["layers"]), plan["gpu-least"])
        self.assertLess(plan["gpu-least"], plan["gpu"])
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        job["training"]["optimizer"] = {"type": "Adam"}
        path = federation.job_path + ".adam"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        figures = {}
        for states in ("fp32", "bf16"):
            done = subprocess.run([PROGRAM, "--plan", path, "--json", "--optimizer-states", states],
                                  stdout=subprocess.PIPE, check=True)
            figures[states] = json.loads(done.stdout)["gpu"]
        parameters = sum(layer["parameters"] for layer in plan["layers"])
        self.assertAlmostEqual(figures["fp32"] - figures["bf16"], 4 * parameters, delta=1024)
        wrong = subprocess.run([PROGRAM, "--plan", path, "--optimizer-states", "fp8"], stderr=subprocess.PIPE,
                               check=False, text=True)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--optimizer-states: 'fp8' is not fp32 or bf16", wrong.stderr)


if __name__ == "__main__":
    harness.main()
