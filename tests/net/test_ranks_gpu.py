"""Several ranks with emulated GPUs each, whose sums one communicator of NCCL joins, or MPI: the models of one process on
the CPU, also with other GPUs from a round on."""

import os
import signal
import unittest

from ranks import RanksTest
from test_gpu import FOLDER, JOB, Emulated

HANGS, DIES = 10000, 10001  # of tests/cuda/emulator


def write(made, gpus):
    with open(made.path("gpus"), "w", encoding="ascii") as file:
        file.write(gpus + "\n")


@unittest.skipUnless(FOLDER, "the programs for emulated GPUs are not built")
class RanksWithGpus(RanksTest):
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
        write(made, gpus)
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
        write(made, "1")
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
    unittest.main()
