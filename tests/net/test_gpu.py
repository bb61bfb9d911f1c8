"""A whole federation on emulated GPUs, of the aggregator, of its ranks and of clients: the models of the CPU, whatever the
number of GPUs and the way they share the work, also when a GPU is lost and the supervisor goes on with fewer."""

import json
import os
import re
import signal
import subprocess
import unittest

import harness
from harness import NetTest, run
from ranks import RanksTest

FOLDER = os.environ.get("FEDGE_EMULATED_DIR", "")
CLIENT = os.path.join(FOLDER, "fedge-client")
HANGS, DIES = 10000, 10001  # of tests/cuda/emulator
CLIENTS, ROUNDS = 8, 3
JOB = {"rounds__num_server_rounds": ROUNDS, "rounds__min_train_nodes": CLIENTS, "hidden": 200}
SILO_ROUNDS = 2
SILO_JOB = {"rounds__num_server_rounds": SILO_ROUNDS, "rounds__min_train_nodes": 1, "hidden": 20}
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
        """Each of several processes has one, so that they are waited for at the same time."""
        started = []
        for call, lost in (("ncclCommInitAll", "one of GPUs 0,1 is lost while starting NCCL"),
                           ("ncclGroupEnd", "one of GPUs 0,1 is lost while joining sums"),
                           ("memory", "GPU 0 is lost while asking what it has"),
                           ("allocation", "GPU 0 is lost while"),
                           ("accumulate", "is lost while summing updates")):
            federation = self.federation(clients=CLIENTS, **JOB)
            Emulated(federation)
            federation.launch_aggregator("--accumulator", "cuda", "--shard", "clients", environment={
                "FEDGE_EMULATOR": f"gpus=2 at={call} fail=1 error={HANGS}"})
            started.append((call, lost, federation))
            if call in ("ncclGroupEnd", "accumulate"):
                federation.start_clients()
        for call, lost, federation in started:
            with self.subTest(call=call):
                self.assertEqual(federation.aggregator.wait(), 7, federation.aggregator.tail())
                self.assertIn(lost, federation.aggregator.log())
        federation = next(made for call, _, made in started if call == "ncclGroupEnd")
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


@unittest.skipUnless(FOLDER, "the programs for emulated GPUs are not built")
class Silo(NetTest):
    """Clients whose model several GPUs train together. How many they are does not show in the federation's models, also when
    one is lost and the client is started again with fewer."""

    def start(self, federation, emulator, *more):
        # The harness's words, of the program that sees emulated GPUs.
        return federation.start_client(0, "--engine", "cuda", *more, program=CLIENT,
                                       environment={"FEDGE_EMULATOR": f"order=2 seed=7 {emulator}"})

    def play(self, emulator, *more):
        federation = self.federation(clients=1, **SILO_JOB)
        federation.start_aggregator()
        client = self.start(federation, emulator, *more)
        federation.complete()
        return federation, client

    def test_the_number_of_gpus_does_not_show(self):
        first, client = self.play("gpus=1")
        self.assertEqual(len(first.hashes()), SILO_ROUNDS)
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
        federation = self.federation(clients=1, **SILO_JOB)
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
        federation = self.federation(clients=1, **SILO_JOB)
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
                federation = self.federation(clients=1, **SILO_JOB, **job)
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
        federation = self.federation(clients=1, **SILO_JOB)
        done = subprocess.run([CLIENT, "--plan", federation.job_path, "--json"], stdout=subprocess.PIPE,
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
            done = subprocess.run([CLIENT, "--plan", path, "--json", "--optimizer-states", states],
                                  stdout=subprocess.PIPE, check=True)
            figures[states] = json.loads(done.stdout)["gpu"]
        parameters = sum(layer["parameters"] for layer in plan["layers"])
        self.assertAlmostEqual(figures["fp32"] - figures["bf16"], 4 * parameters, delta=1024)
        wrong = subprocess.run([CLIENT, "--plan", path, "--optimizer-states", "fp8"], stderr=subprocess.PIPE,
                               check=False, text=True)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--optimizer-states: 'fp8' is not fp32 or bf16", wrong.stderr)


@unittest.skipUnless(FOLDER, "the programs for emulated GPUs are not built")
class RanksWithGpus(RanksTest):
    """Several ranks with GPUs each, whose sums one communicator of NCCL joins, or MPI."""

    @staticmethod
    def write(made, gpus):
        with open(made.path("gpus"), "w", encoding="ascii") as file:
            file.write(gpus + "\n")

    def test_the_models_are_those_of_the_cpu(self):
        for strategy in ({}, {"strategy": {"type": "SCAFFOLD", "num-clients": 4}, "training__optimizer": {"type": "SGD"}}):
            job = {**JOB, "rounds__min_train_nodes": 4, **strategy}
            alone = self.play(self.federation(clients=4, **job))
            with self.subTest(job):
                together = self.start(job)
                for i in range(4):
                    together.start_client(i, server=together.servers[i % 2])
                self.assertEqual(together.complete()["model_sha256"], alone["model_sha256"])
                self.assertEqual(self.ways(together), [("nccl", "every rank can")])

    def ways(self, made):
        return [(event["kind"], event["because"]) for event in made.aggregator.events("sums-joined-by")]

    def test_mpi_joins_sums_where_nccl_cannot(self):
        """The same models, and the log says why."""
        job = {**JOB, "rounds__min_train_nodes": 4}
        alone = self.play(self.federation(clients=4, **job))
        for emulator, again, arguments, words in (
                ("gpus=2", "gpus=1", ("--accumulator", "cuda", "--join", "mpi"), "as asked for"),
                ("gpus=2", "gpus=0", ("--accumulator", "auto"), "its accumulator is cpu"),
                ("gpus=2 at=ncclCommInitRank fail=1 error=999", "gpus=1", ("--accumulator", "cuda"), "while starting NCCL")):
            with self.subTest(words):
                made = self.ranks(2, clients=4, **job)
                Emulated(made)
                made.start_aggregator(*arguments, environment={  # whichever rank is the first
                    "FEDGE_EMULATOR": emulator, "FEDGE_EMULATOR_AGAIN": again, "FEDGE_EMULATOR_MARK": made.path("mark")})
                for i in range(4):
                    made.start_client(i, server=made.servers[i % 2])
                self.assertEqual(made.complete()["model_sha256"], alone["model_sha256"])
                (kind, because), = self.ways(made)
                self.assertEqual(kind, "mpi")
                self.assertIn(words, because)

    def test_without_nccl_that_was_asked_for_nothing_begins(self):
        made = self.ranks(2, clients=4, **{**JOB, "rounds__min_train_nodes": 4})
        Emulated(made)
        made.launch_aggregator("--join", "nccl", environment={
            "FEDGE_EMULATOR": "gpus=1", "FEDGE_EMULATOR_AGAIN": "gpus=0", "FEDGE_EMULATOR_MARK": made.path("mark")})
        self.assertEqual(made.aggregator.wait(), 7)
        self.assertIn("sums cannot be joined by nccl: ", made.aggregator.log())
        self.assertFalse(made.aggregator.events("listening"))

    def test_a_rank_lost_while_sums_are_joined_ends_all(self):
        """Killed, or in a call of NCCL that never returns; the next ranks go on with the round."""
        job = {**JOB, "rounds__min_train_nodes": 4}
        alone = self.play(self.federation(clients=4, **job))
        for error, words in ((DIES, "exited on signal 9"), (HANGS, "is lost while joining sums of ranks: NCCL's call has not")):
            with self.subTest(words):
                made = self.ranks(2, clients=4, **job)
                Emulated(made)
                made.write_hosts("localhost slots=2")
                made.start_aggregator(
                    "--supervise", "--hosts", made.path("hosts"), "--accumulator", "cuda", "--gpus", "0", prefix=("env",),
                    environment={"FEDGE_EMULATOR": f"gpus=1 at=ncclReduceScatter fail=3 error={error}",
                                 "FEDGE_EMULATOR_AGAIN": "gpus=1", "FEDGE_EMULATOR_MARK": made.path("mark")})
                for i in range(4):
                    made.start_client(i, server=made.servers[i % 2])
                self.assertEqual(made.complete()["model_sha256"], alone["model_sha256"])
                self.assertIn(words, made.aggregator.log())
                self.assertIn("starting it again", made.aggregator.log())
                self.assertEqual({kind for kind, _ in self.ways(made)}, {"nccl"})

    def start(self, job, gpus="0,1"):
        made = self.ranks(2, clients=4, **job)
        Emulated(made)
        self.write(made, gpus)
        made.start_aggregator("--accumulator", "cuda", "--gpus-file", made.path("gpus"),
                              environment={"FEDGE_EMULATOR": "gpus=2 order=2 seed=7"})
        self.assertEqual({e["kind"] for e in made.aggregator.events("accumulator")}, {"cuda"})
        self.assertEqual(len(made.aggregator.events("accumulator", gpus=gpus)), 2)
        return made

    def test_another_number_of_ranks_within_a_round(self):
        """The journals' updates go to GPUs again, of each number of ranks."""
        for strategy in ("FedAvg", "SCAFFOLD"):
            with self.subTest(strategy):
                made = self.change_ranks(strategy, "--accumulator", "cuda", "--gpus", "0,1", prepare=Emulated,
                                         environment={"FEDGE_EMULATOR": "gpus=2 order=2 seed=7"})
                chosen = [event for seen in made.seen for event in seen.events("accumulator") if "gpus" in event]
                self.assertEqual({event["kind"] for event in chosen}, {"cuda"})
                self.assertEqual(self.ways(made), [("nccl", "every rank can")])

    def test_other_gpus_on_all_ranks(self):
        """One signal to one rank."""
        job = {**JOB, "rounds__min_train_nodes": 4}
        alone = self.play(self.federation(clients=4, **job))
        made = self.start(job, gpus="0")
        self.write(made, "1")
        os.kill(made.pid_of(1), signal.SIGHUP)
        made.aggregator.wait_event("reloaded", 3)
        for i in range(4):
            made.start_client(i, server=made.servers[i % 2])
        made.aggregator.wait_event("accumulator", 2, gpus="1")
        self.assertEqual(made.complete()["model_sha256"], alone["model_sha256"])

    def test_a_lost_gpu_is_left_out_by_the_next_ranks(self):
        """The first rank loses one of two GPUs, and the next one sees one."""
        job = {**JOB, "rounds__min_train_nodes": 4}
        alone = self.play(self.federation(clients=4, **job))
        made = self.ranks(1, clients=4, **job)
        Emulated(made)
        made.write_hosts("localhost slots=1")
        made.start_aggregator(
            "--supervise", "--hosts", made.path("hosts"), "--accumulator", "cuda", "--gpus", "0,1", prefix=("env",),
            environment={"FEDGE_EMULATOR": "gpus=2 at=accumulate fail=1", "FEDGE_EMULATOR_AGAIN": "gpus=1",
                         "FEDGE_EMULATOR_MARK": made.path("mark")})
        made.start_clients()
        self.assertEqual(made.complete()["model_sha256"], alone["model_sha256"])
        self.assertIn("ended with code 7; starting it again", made.aggregator.log())
        self.assertEqual(len(made.aggregator.events("gpu-left-out", gpu=1)), 1)


if __name__ == "__main__":
    harness.main()
