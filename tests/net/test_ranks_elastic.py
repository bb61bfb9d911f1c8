"""Ranks that are lost, and other numbers of them: the run goes on, and its hash is that of one process."""

import glob
import os
import random
import shutil
import signal
import unittest

from harness import SANITIZED, fault, wait_until
from ranks import RanksTest

KILLS = int(os.environ.get("FEDGE_NET_KILLS", "0"))
FEW = 2  # kills where none are given
SEED = int(os.environ.get("FEDGE_NET_SEED", "1"))
# Of rank 0 or 1, and the event that is in the log by then and the one that is not yet.
PHASES = (
    (fault("posix_fallocate", 1, "kill-before", "/runs/"), "run-started", "round-opened"),  # room is reserved
    (fault("fdatasync", 2, "kill-after", "/ranks/"), "round-opened", "round-closed"),  # an update is durable
    (fault("MPI_Reduce", 4, "kill-before", "rank-1"), "run-resumed", "round-closed"),  # sums are joined, shard by shard
    (fault("MPI_Send", 1, "kill-before", "rank-1"), None, "run-resumed"),  # its shard has its step, which rank 0 lacks
    (fault("io", 1, "kill-before", "checkpoints/round-000002"), "run-resumed", "checkpoint-saved"),
    (fault("rename", 2, "kill-before", "run.json"), "run-complete", "run-started"),  # it is over
)


class Elastic(RanksTest):
    def test_another_number_of_ranks_with_state_on_clients(self):
        self.change_ranks("SCAFFOLD")

    @unittest.skipIf(SANITIZED, "what hits calls of MPI stands in a sanitizer's way")
    def test_a_rank_dies_in_each_phase_of_a_round(self):
        """One run that loses a rank in each; the log says that it was there."""
        job = {"clients": 3, "rounds__num_server_rounds": 3, "rounds__min_train_nodes": 3,
               "hidden": 1024}  # so large that a shard of the model is told from words between ranks
        alone = self.play(self.federation(**job))
        killed = self.ranks(2, **job)
        for environment, there, not_yet in PHASES:
            aggregator = killed.launch_aggregator(environment=environment)
            if there == "run-started":
                for i in range(3):
                    killed.start_client(i, server=killed.servers[i % 2])
            killed.wait_for_loss()
            with self.subTest(environment["FEDGE_FAULT"]):
                self.assertTrue(there is None or aggregator.events(there), aggregator.tail())
                self.assertFalse(aggregator.events(not_yet), aggregator.tail())
        killed.start_aggregator()
        self.assertEqual(killed.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(killed.hashes()), 3)

    def test_a_rank_dies_while_clients_are_awaited(self):
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        killed = self.ranks(2, **job)
        for rank in (1, 0):
            killed.start_aggregator()
            if rank == 0:
                killed.start_client(0)
                killed.aggregator.wait_event("client-hello")
            killed.kill_rank(rank)
            self.assertFalse(killed.aggregator.events("round-opened"))
        killed.start_aggregator()
        killed.start_clients(1, 2)
        self.assertEqual(killed.complete()["model_sha256"], alone["model_sha256"])

    def test_a_rank_dies_while_clients_evaluate(self):
        """Two of three have, and the third is asked again by the ranks that follow."""
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3,
               "rounds__fraction_evaluate": 1.0, "rounds__min_evaluate_nodes": 3, "site": {"validation-fraction": 0.2}}
        alone = self.federation(**job)
        self.play(alone)
        for rank in (1, 0):
            killed = self.ranks(2, **job)
            killed.start_aggregator()
            clients = {i: killed.start_client(i) for i in (0, 1)}
            killed.aggregator.wait_event("client-hello", 2)
            for client in clients.values():
                client.send(signal.SIGSTOP)  # known, and the third reports first
            third = killed.start_client(2)
            third.wait_event("accepted")
            third.send(signal.SIGSTOP)
            for client in clients.values():
                client.send(signal.SIGCONT)
            wait_until("two evaluations", lambda: "evaluat" in killed.health()["state"] and killed.reported(2))
            killed.kill_rank(rank)
            self.assertTrue(killed.aggregator.events("round-closed"))
            self.assertFalse(killed.aggregator.events("evaluation-closed"))
            killed.start_aggregator()
            third.send(signal.SIGCONT)
            self.assertEqual(killed.complete()["model_sha256"], alone.result()["model_sha256"])
            self.assertEqual([(line["clients"], line["accuracy"]) for line in killed.lines("evaluate")],
                             [(line["clients"], line["accuracy"]) for line in alone.lines("evaluate")])

    def test_a_rank_dies_at_a_step_of_writing(self):
        """Before, in or after a call of the system: with an update durable and no ACK sent, with a journal half made, with
        a round closed and no checkpoint written."""
        job = {"clients": 3, "rounds__num_server_rounds": 20 * (KILLS or FEW), "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        draw = random.Random(SEED)
        killed = self.ranks(2, **job)
        for i in range(KILLS or FEW):
            file, most = (("/ranks/", 40), ("/runs/", 60))[i % 2]  # of rank 1, of rank 0
            what = draw.choice(["kill-before", "kill-after", "half"])
            killed.launch_aggregator(environment=fault("io", draw.randint(1, most), what, file))
            if i == 0:
                killed.start_clients()
            killed.wait_for_loss()
        killed.start_aggregator()
        self.assertEqual(killed.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(killed.hashes()), 20 * (KILLS or FEW))

    def test_a_rank_dies_between_an_upload_and_its_ack(self):
        """The update is durable; the client sends it again to another rank, and it counts once."""
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        killed = self.ranks(2, **job)
        # The first sync of rank 1's disk is of its new journal, the second of an update.
        killed.launch_aggregator(environment=fault("fdatasync", 2, "kill-after", "/ranks/"))
        for i in range(3):
            killed.start_client(i, server=killed.servers[1 if i == 0 else 0])
        self.assertIn("rank 1 with PID", killed.wait_for_loss())
        killed.start_aggregator()
        self.assertGreaterEqual(killed.aggregator.wait_event("run-resumed")["updates-recovered"], 1)
        self.assertEqual(killed.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual([line["clients"] for line in killed.lines()], [3, 3])

    def on_disks(self, change, **more):
        """Two clients have reported through rank 1, which has a disk of its own; then all end, [change] what is there,
        and the round goes on with the third."""
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3, **more}
        alone = self.play(self.federation(**job))
        apart = self.ranks(2, **job)
        apart.on_disks()
        third = apart.start_client(2, server=apart.servers[1])
        apart.aggregator.wait_event("client-hello", 1)
        third.send(signal.SIGSTOP)  # likewise
        for i in (0, 1):
            apart.start_client(i, server=apart.servers[1])
        wait_until("two of three", lambda: apart.reported(2))
        apart.kill_rank(1)
        change(apart)
        apart.on_disks()
        recovered = apart.aggregator.wait_event("run-resumed")["updates-recovered"]
        third.send(signal.SIGCONT)
        self.assertEqual(apart.complete()["model_sha256"], alone["model_sha256"])
        return recovered, [event["updates"] for event in apart.aggregator.events("updates-gone")]

    def test_local_disks(self):
        self.assertEqual(self.on_disks(lambda apart: None), (2, []))

    def test_a_machine_that_is_gone_for_good(self):
        """What its rank had acknowledged is asked for again, and the log says how many."""
        for more in ({}, {"strategy__type": "SCAFFOLD", "training__optimizer": {"type": "SGD"}},
                     {"update": {"codec": "topk:0.1+int8", "error-feedback": "on"}}):
            self.assertEqual(self.on_disks(lambda apart: shutil.rmtree(apart.disk(1)), **more), (0, [2]))

    def test_a_machine_and_a_checkpoint_that_are_gone(self):
        """The newest one is damaged, and its round cannot be closed again: it is open again, at each start."""
        job = {"clients": 3, "rounds__num_server_rounds": 40, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        apart = self.ranks(2, **job)
        apart.on_disks()
        clients = [apart.start_client(i, server=apart.servers[1]) for i in range(3)]
        apart.aggregator.wait_event("checkpoint-saved", 3)
        for client in clients:
            client.send(signal.SIGSTOP)
        apart.kill_rank(1)
        newest = max(glob.glob(os.path.join(apart.run_folder(), "checkpoints", "round-" + 6 * "[0-9]")))
        with open(os.path.join(newest, "model.safetensors"), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        shutil.rmtree(apart.disk(1))
        for start in range(2):
            apart.on_disks()
            self.assertEqual(apart.aggregator.wait_event("run-resumed")["rounds-closed"], int(newest[-6:]) - 1)
            self.assertEqual(len(apart.aggregator.events("round-reopened")), 1 - start)
            if start == 0:
                apart.kill_rank(0)
        for client in clients:
            client.send(signal.SIGCONT)
        self.assertEqual(apart.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(apart.hashes()), 40)

    def test_a_damaged_record_in_one_journal(self):
        """Of the last update that a rank had taken: it is asked for again, and the other one of that journal counts."""
        def damage(apart):
            path, = glob.glob(os.path.join(apart.disk(1), "ranks", "*", "1", "**", "*.fj"), recursive=True)
            with open(path, "r+b") as file:
                name = b'"run-id":'
                last = file.read(1 << 16).rindex(name)
                file.seek(last)
                file.write(b"#")
        self.assertEqual(self.on_disks(damage), (1, [1]))


if __name__ == "__main__":
    unittest.main()
