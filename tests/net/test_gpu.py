"""A whole federation on emulated GPUs: the models of the CPU, whatever the number of GPUs and the way they
share the work, also when a GPU is lost and the supervisor goes on with fewer."""

import json
import os
import re
import signal
import subprocess
import unittest

import harness
from harness import NetTest, run

FOLDER = os.environ.get("FEDGE_EMULATED_DIR", "")
CLIENTS, ROUNDS = 8, 3
JOB = {"rounds__num_server_rounds": ROUNDS, "rounds__min_train_nodes": CLIENTS, "hidden": 200}
CODECS = ({"codec": "int8", "deflate": True}, {"codec": "int8", "deflate": False},
          {"codec": "none", "deflate": False}, {"up": "topk:0.1+int8+deflate"})
PLACE = re.compile(r"^GPU (\d+), by (clients|coordinates): (\d+) bytes, (\d+) of sums, (\d+) of values, "
                   r"(\d+) of (\d+) updates of (\d+), (\d+) of buffers and tables$", re.MULTILINE)


class Emulated:
    """A federation whose aggregator is the one that sees emulated GPUs."""

    def __init__(self, federation):
        self.federation = federation
        plain = federation.aggregator_arguments
        program = os.path.join(FOLDER, "fedge-aggregator")
        federation.aggregator_arguments = lambda *more, **instead: [program, *plain(*more, **instead)[1:]]


@unittest.skipUnless(FOLDER, "the programs for emulated GPUs are not built")
class Gpu(NetTest):
    def play(self, gpus, *arguments, emulator="", **job):
        federation = self.federation(clients=CLIENTS, **JOB, **job)
        if gpus:
            Emulated(federation)
            arguments = ("--accumulator", "cuda", *arguments)
        environment = {"FEDGE_EMULATOR": f"gpus={gpus} order=2 seed=7 {emulator}".strip()}
        federation.start_aggregator(*arguments, environment=environment)
        federation.start_clients()
        federation.complete()
        return federation

    def test_the_models_are_those_of_the_cpu(self):
        for update in CODECS if harness.LONG else CODECS[:1]:
            expected = self.play(0, update=update).hashes()
            self.assertEqual(len(expected), ROUNDS)
            for gpus in (1, 2, 3, 8) if harness.LONG else (1, 3):
                for shard in ("clients", "coordinates") if gpus > 1 else ("auto",):
                    with self.subTest(update=update, gpus=gpus, shard=shard):
                        federation = self.play(gpus, "--shard", shard, update=update)
                        self.assertEqual(federation.hashes(), expected)
                        chosen = federation.aggregator.wait_event("accumulator")
                        self.assertEqual(chosen["kind"], "cuda")
                        self.assertEqual(len(chosen["gpus"].split(",")), gpus)

    def test_scaffold_steps_on_gpus_too(self):
        job = {"strategy": {"type": "SCAFFOLD", "num-clients": CLIENTS},
               "training__optimizer": {"type": "SGD"}}
        expected = self.play(0, **job).hashes()
        self.assertEqual(self.play(2, **job).hashes(), expected)

    def test_robust_rules_run_on_gpus_too(self):
        rules = ({"type": "FedMedian"}, {"type": "MultiKrum", "num-malicious-nodes": 2, "mixing": True})
        for strategy in rules if harness.LONG else rules[1:]:
            expected = self.play(0, strategy=strategy).hashes()
            for gpus in (1, 2):
                with self.subTest(strategy=strategy, gpus=gpus):
                    federation = self.play(gpus, strategy=strategy)
                    self.assertEqual(federation.hashes(), expected)
                    self.assertEqual(federation.aggregator.wait_event("robust-rule")["kind"], "cuda")

    def test_gpus_read_what_codecs_choose(self):
        for up in ("ternary:0.05+deflate", "randk:0.1+int4") if harness.LONG else ("ternary:0.05+deflate",):
            expected = self.play(0, update={"up": up}).hashes()
            federation = self.play(2, "--shard", "coordinates", update={"up": up})
            self.assertEqual(federation.hashes(), expected)
            self.assertFalse(federation.aggregator.events("accumulator-passed-over"))

    def test_a_lost_gpu_is_told_by_the_exit_code(self):
        federation = self.federation(clients=CLIENTS, **JOB)
        Emulated(federation)
        federation.start_aggregator()  # finds the ports that all use from now on
        federation.aggregator.kill()
        federation.launch_aggregator("--accumulator", "cuda",
                                     environment={"FEDGE_EMULATOR": "gpus=2 fail=90"})
        federation.start_clients()
        self.assertEqual(federation.aggregator.wait(), 7, federation.aggregator.tail())
        self.assertIn("GPU", federation.aggregator.log())
        federation.start_aggregator("--accumulator", "cuda",
                                    environment={"FEDGE_EMULATOR": "gpus=1"})
        federation.complete()
        self.assertEqual(federation.hashes(), self.play(0).hashes())

    def test_a_call_that_never_returns_ends_the_process(self):
        """Error 10000 of the emulator: the call hangs."""
        federation = self.federation(clients=CLIENTS, **JOB)
        Emulated(federation)
        federation.start_aggregator()  # finds the ports that all use from now on
        federation.aggregator.kill()
        for call, lost in (("ncclCommInitAll", "one of GPUs 0,1 is lost while starting NCCL"),
                           ("ncclGroupEnd", "one of GPUs 0,1 is lost while joining sums"),
                           ("memory", "GPU 0 is lost while asking what it has"),
                           ("allocation", "GPU 0 is lost while"),
                           ("accumulate", "is lost while summing updates")):
            with self.subTest(call=call):
                federation.launch_aggregator("--accumulator", "cuda", "--shard", "clients", environment={
                    "FEDGE_EMULATOR": f"gpus=2 at={call} fail=1 error=10000"})
                if call == "ncclGroupEnd":
                    federation.start_clients()
                self.assertEqual(federation.aggregator.wait(), 7, federation.aggregator.tail())
                self.assertIn(lost, federation.aggregator.log())
        federation.start_aggregator("--accumulator", "cuda", environment={"FEDGE_EMULATOR": "gpus=1"})
        federation.complete()
        self.assertEqual(federation.hashes(), self.play(0).hashes())

    def test_the_supervisor_goes_on_with_the_gpus_there_are(self):
        """Of each kind of call the third, and any while it opens. tests/cuda/test_engine_cuda.c has the others."""
        expected = self.play(0).hashes()
        faults = ((1, "fail=70"), (2, "at=accumulate fail=3"), (1, "at=ncclReduceScatter fail=3"),
                  (1, "at=copy fail=3"), (2, "at=stage fail=3"), (1, "at=read fail=3"), (2, "at=step fail=3"))
        for left, fault in faults if harness.LONG else faults[:3]:
            with self.subTest(fault=fault, left=left):
                federation = self.federation(clients=CLIENTS, **JOB)
                Emulated(federation)
                federation.start_aggregator()  # finds the ports that all use from now on
                federation.aggregator.kill()
                # The first process loses a GPU; the next one was asked for two, and sees one, or both again
                # and takes the one that was not lost. Which it was nobody knows of a collective.
                federation.launch_aggregator(
                    "--supervise", "--accumulator", "cuda", "--gpus", "0,1",
                    environment={"FEDGE_EMULATOR": f"gpus=2 {fault}", "FEDGE_EMULATOR_AGAIN": f"gpus={left}",
                                 "FEDGE_EMULATOR_MARK": federation.path("mark")})
                federation.start_clients()
                federation.complete()
                self.assertIn("ended with code 7; starting it again", federation.aggregator.log())
                self.assertEqual(federation.hashes(), expected)
                chosen = federation.aggregator.events("accumulator", kind="cuda")
                left_out = federation.aggregator.events("gpu-left-out")
                self.assertEqual(len(left_out), 1, left_out)
                self.assertEqual([line["gpus"] for line in chosen if "gpus" in line][-1], str(1 - left_out[0]["gpu"]))
                self.assertIn("lost before" if left == 2 else "not there", left_out[0]["why"])

    def test_a_gpu_that_is_too_small_is_no_lost_gpu(self):
        """At the start it ends the supervisor, too. At work it is taken again, with what is free then."""
        federation = self.federation(clients=CLIENTS, **JOB)
        Emulated(federation)
        federation.start_aggregator()  # finds the ports that all use from now on
        federation.aggregator.kill()
        cuda = ("--supervise", "--accumulator", "cuda")
        federation.launch_aggregator(*cuda, environment={"FEDGE_EMULATOR": "gpus=1 memory=5000"})
        self.assertEqual(federation.aggregator.wait(), 8, federation.aggregator.tail())
        said = federation.aggregator.log()
        self.assertRegex(said, r"GPU 0 has 0 MiB free and needs \d+ MiB .*--shard coordinates, .*--accumulator cpu")
        self.assertNotIn("starting it again", said)
        federation.launch_aggregator(*cuda, environment={
            "FEDGE_EMULATOR": "gpus=2 at=accumulate fail=3 error=2", "FEDGE_EMULATOR_AGAIN": "gpus=2",
            "FEDGE_EMULATOR_MARK": federation.path("mark")})
        federation.start_clients()
        federation.complete()
        said = federation.aggregator.log()
        self.assertIn("has no memory left while summing updates", said)
        self.assertIn("ended with code 1; starting it again", said)
        self.assertFalse(federation.aggregator.events("gpu-left-out"))
        self.assertEqual({line["gpus"] for line in federation.aggregator.events("accumulator", kind="cuda")
                          if "gpus" in line}, {"0,1"})
        self.assertEqual(federation.hashes(), self.play(0).hashes())

    def test_gpus_that_fail_again_and_again_are_taken_once(self):
        """Each process loses a GPU at its first work, though the driver lists both: in the end the CPU sums."""
        federation = self.federation(clients=CLIENTS, **JOB)
        Emulated(federation)
        federation.start_aggregator()  # finds the ports that all use from now on
        federation.aggregator.kill()
        federation.launch_aggregator("--supervise", environment={"FEDGE_EMULATOR": "gpus=2 at=accumulate fail=1"})
        federation.start_clients()
        federation.complete()
        left_out = federation.aggregator.events("gpu-left-out")
        self.assertEqual(sorted(line["gpu"] for line in left_out[1:]), [0, 1], left_out)
        self.assertEqual({line["why"] for line in left_out}, {"it was lost before"})
        self.assertEqual(federation.aggregator.events("accumulator")[-1]["kind"], "cpu")
        self.assertEqual(federation.hashes(), self.play(0).hashes())

    def test_gpus_change_at_sighup(self):
        federation = self.federation(clients=CLIENTS, **JOB)
        Emulated(federation)
        path = federation.path("gpus")

        def change(text):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)

        def reload():
            federation.aggregator.send(signal.SIGHUP)

        change("0,x\n")
        federation.launch_aggregator("--accumulator", "cuda", "--gpus-file", path)
        self.assertEqual(federation.aggregator.wait(), 3)
        self.assertIn(path, federation.aggregator.log())
        change("0\n")
        federation.start_aggregator("--accumulator", "cuda", "--gpus-file", path,
                                    environment={"FEDGE_EMULATOR": "gpus=3"})
        aggregator = federation.aggregator
        aggregator.wait_event("accumulator", gpus="0")
        change("1\n2\n")
        reload()
        self.assertIn("numbers", aggregator.wait_event("gpus-refused")["error"])
        change("1,2\n")
        reload()
        aggregator.wait_event("reloaded", count=2)
        federation.start_clients()
        aggregator.wait_event("accumulator", gpus="1,2")
        federation.complete()
        self.assertEqual(federation.hashes(), self.play(0).hashes())

    def test_what_is_missing_is_named(self):
        federation = self.federation(clients=CLIENTS, **JOB)
        Emulated(federation)
        federation.launch_aggregator("--accumulator", "cuda", environment={"FEDGE_EMULATOR": "gpus=0"})
        self.assertEqual(federation.aggregator.wait(), 7)
        self.assertIn("no GPU is found", federation.aggregator.log())
        federation.launch_aggregator("--accumulator", "cuda", "--gpus", "0,2",
                                     environment={"FEDGE_EMULATOR": "gpus=2"})
        self.assertEqual(federation.aggregator.wait(), 7)
        self.assertIn("GPU 2 is not there: there are 0 to 1", federation.aggregator.log())
        federation.launch_aggregator("--accumulator", "cuda", "--shard", "clients",
                                     environment={"FEDGE_EMULATOR": "gpus=2 no-nccl=1"})
        self.assertEqual(federation.aggregator.wait(), 7)
        self.assertIn("accumulator cuda: NCCL", federation.aggregator.log())
        federation.start_aggregator(environment={"FEDGE_EMULATOR": "gpus=0"})
        passed = federation.aggregator.wait_event("accumulator-passed-over", accumulator="cuda")
        self.assertIn("no GPU is found", passed["why"])
        self.assertEqual(federation.aggregator.wait_event("accumulator")["kind"], "cpu")

    def test_without_a_name_gpus_that_are_broken_are_left_out(self):
        for error in (214, 999) if harness.LONG else (214,):
            for gpus in (1, 2):
                with self.subTest(error=error, gpus=gpus):
                    federation = self.federation(clients=CLIENTS, **JOB)
                    Emulated(federation)
                    federation.start_aggregator(
                        environment={"FEDGE_EMULATOR": f"gpus={gpus} at=choosing fail=1 error={error}"})
                    federation.aggregator.wait_event("gpu-left-out", gpu=0)
                    chosen = federation.aggregator.wait_event("accumulator")
                    self.assertEqual((chosen["kind"], chosen.get("gpus")), ("cuda", "1") if gpus == 2 else ("cpu", None))

    def check(self, federation, code, *more, gpus, memory, standard="stdout"):
        done = subprocess.run(
            federation.aggregator_arguments("--check-config", *more), text=True, capture_output=True, timeout=harness.PATIENCE_S,
            env={**os.environ, "FEDGE_EMULATOR": f"gpus={gpus} memory={memory}"})
        self.assertEqual(done.returncode, code, done.stderr)
        return getattr(done, standard)

    def test_check_config_says_what_lies_where_and_refuses_what_does_not_fit(self):
        federation = self.federation(clients=CLIENTS, **JOB, update={"codec": "none"})
        Emulated(federation)
        cuda = ("--accumulator", "cuda")
        memory = 1 << 30
        for gpus, shard in ((1, "clients"), (3, "clients"), (3, "coordinates")):
            with self.subTest(gpus=gpus, shard=shard):
                said = self.check(federation, 0, *cuda, "--shard", shard, gpus=gpus, memory=memory)
                found = PLACE.findall(said)
                self.assertEqual([line[:2] for line in found], [(str(g), shard) for g in range(gpus)], said)
                for line in found:
                    total, sums, values, held, slots, slot, others = map(int, line[2:])
                    self.assertEqual(total, sums + values + held + others)
                    self.assertEqual(held, slots * slot)
        # The sums and values of a GPU that has them all, and two updates: one byte less is not enough.
        said = self.check(federation, 0, *cuda, gpus=1, memory=memory)
        total, sums, values, held, slots, slot, others = map(int, PLACE.findall(said)[0][2:])
        need = sums + values + others + 2 * slot
        said = self.check(federation, 0, *cuda, gpus=1, memory=need)
        self.assertEqual(PLACE.findall(said)[0][2], str(need))
        refused = self.check(federation, 8, *cuda, gpus=1, memory=need - 1, standard="stderr")
        self.assertRegex(refused, r"GPU 0 has \d+ MiB free and needs \d+ MiB .*--shard coordinates, .*--accumulator cpu")
        self.check(federation, 8, *cuda, "--shard", "clients", gpus=2, memory=need - 1)
        said = self.check(federation, 0, *cuda, gpus=2, memory=need - 1)
        self.assertEqual([line[:2] for line in PLACE.findall(said)], [("0", "coordinates"), ("1", "coordinates")])
        # With "auto" the CPU has them, and the log says why.
        self.assertRegex(self.check(federation, 0, gpus=1, memory=need - 1), r"^CPU: \d+ bytes of sums")
        self.assertIn("accumulator-passed-over",
                      self.check(federation, 0, gpus=1, memory=need - 1, standard="stderr"))
        # And what it says is what a run takes.
        said = self.check(federation, 0, *cuda, gpus=2, memory=memory)
        federation.start_aggregator(*cuda, environment={"FEDGE_EMULATOR": f"gpus=2 memory={memory}"})
        federation.aggregator.wait_event("accumulator", place=said.splitlines()[1])

    def test_simulations_have_the_models_of_the_cpu(self):
        federation = self.federation(clients=CLIENTS, **JOB)
        hashes = []
        for program, words in (("fedge-simulate", ()),
                               (os.path.join(FOLDER, "fedge-simulate"), ("--accumulator", "cuda"))):
            out = federation.path(f"simulation-{len(hashes)}")
            run(program, "--job", federation.job_path, "--data", federation.site_path, "--clients", CLIENTS,
                "--out", out, "--quiet", *words)
            hashes.append(run("fedge-simulate", "model", os.path.join(out, "model.safetensors"))[0])
        self.assertEqual(hashes[0].splitlines()[-1], hashes[1].splitlines()[-1])

    def test_a_simulation_that_lost_a_gpu_goes_on_with_those_that_are_left(self):
        federation = self.federation(clients=CLIENTS, **JOB, update=CODECS[1])

        def simulate(name, emulator, *more, code=0):
            out = federation.path(name)
            done = subprocess.run(
                [os.path.join(FOLDER, "fedge-simulate"), "--job", federation.job_path, "--data", federation.site_path,
                 "--clients", str(CLIENTS), "--out", out, "--engine", "cuda", "--quiet", *more],
                text=True, capture_output=True, timeout=harness.PATIENCE_S, env={**os.environ, "FEDGE_EMULATOR": emulator}, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            with open(os.path.join(out, "rounds.jsonl"), encoding="utf-8") as file:
                return done.stderr, [json.loads(line)["model_sha256"] for line in file if '"train"' in line]

        _, expected = simulate("whole", "gpus=2")
        self.assertEqual(len(expected), ROUNDS)
        for fault, left in (("at=step_all fail=5", 1), ("at=ncclReduceScatter fail=3", 2)):
            with self.subTest(fault=fault):
                name = fault.split()[0]
                said, lost = simulate(name, f"gpus=2 {fault}", code=1)
                self.assertIn(" is lost while ", said)
                self.assertEqual(lost, expected[:len(lost)])
                self.assertLess(len(lost), ROUNDS)
                self.assertEqual(simulate(name, f"gpus={left}", "--resume")[1], expected)


if __name__ == "__main__":
    harness.main()
