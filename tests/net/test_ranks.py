"""One aggregator on several ranks, of one machine or of several, under mpirun or under its own supervisor: a run has the
result of one process, also when ranks are lost, changed or cut off.
"""

import glob
import json
import os
import random
import shutil
import signal
import socket
import time
import unittest

import harness
import wire
from harness import SANITIZED, fault, wait_until
from machines import Machines, RanksOnMachines
from ranks import RanksTest

PATIENCE_S = 4 * harness.PATIENCE_S  # where messages between ranks wait for a bad wire, or 60,000 images are trained
KILLS = int(os.environ.get("FEDGE_NET_KILLS", "2"))
KILLED_ROUNDS = 150 * KILLS  # so that there are some left for each
LONG_S = harness.PATIENCE_S + 10 * KILLS
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
ON_MACHINES = 3  # clients
# How long a machine may be silent until mpirun takes it for lost: in 6 s here, or as the supervisor sets it.
AS_SET = bool(os.environ.get("FEDGE_NET_DEFAULT_SILENCE"))
PROBES = {} if AS_SET else {"OMPI_MCA_oob_tcp_keepalive_time": "3", "OMPI_MCA_oob_tcp_keepalive_intvl": "1",
                            "OMPI_MCA_oob_tcp_keepalive_probes": "3"}
SILENCE_S = 40 if AS_SET else 3 + 1 * 3
NOTICE_S = 240  # from there to mpirun's words, on a busy machine
EXAMPLE = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "examples", "quickstart")
DATA = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
EXAMPLE_CLIENTS, EXAMPLE_ROUNDS = 8, 2


class Alike(RanksTest):
    def test_the_hash_is_that_of_one_process(self):
        job = {"clients": 8, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 8}
        alone = self.play(self.federation(**job))
        together = self.ranks(2, **job)
        together.start_aggregator()
        for i in range(8):  # four at each, first
            together.start_client(i, server=together.servers[i % 2])
        self.assertEqual(together.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual(sorted(e["rank"] for e in together.aggregator.events("listening")), [0, 1])
        self.assertEqual(len(together.aggregator.events("ended", how="complete")), 2)
        self.assertIn("2/2", together.aggregator.out())
        self.assertNotIn("\033", together.aggregator.out())  # no bar: mpirun's terminal is not the user's

    def test_the_servers_optimizers(self):
        """Each rank steps its shard with its part of the strategy's state. Rank 0's checkpoint has the whole state."""
        for strategy in ("FedAdam", "FedAvgM"):
            job = {"clients": 3, "rounds__num_server_rounds": 3, "rounds__min_train_nodes": 3, "strategy__type": strategy}
            alone, together = self.play(self.federation(**job)), self.ranks(3, **job)
            together.launch_aggregator(environment=fault("io", 45, "kill-after", "/runs/"))
            for i in range(3):
                together.start_client(i, server=together.servers[i])
            together.wait_for_loss()
            together.start_aggregator()
            self.assertEqual(together.complete()["model_sha256"], alone["model_sha256"])

    def test_a_strategy_that_needs_all_updates(self):
        """Updates go to rank 0 and its journal."""
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3, "strategy__type": "FedMedian"}
        alone, together = self.play(self.federation(**job)), self.ranks(2, **job)
        together.start_aggregator()
        for i in range(3):
            together.start_client(i, server=together.servers[1])
        self.assertEqual(together.complete()["model_sha256"], alone["model_sha256"])
        self.assertFalse(os.path.exists(os.path.join(together.state, "ranks")))

    def test_a_rank_without_its_state(self):
        made = self.ranks(2)
        with open(made.disk(1), "w", encoding="ascii"):
            pass  # a file, where a directory is wanted
        first, *words = made.aggregator_arguments()
        made.launch_aggregator(prefix=("mpirun", "-n", "1", os.path.join(harness.BIN, first), *words, ":", "-n", "1"),
                               state=made.disk(1))
        self.assertEqual(made.aggregator.wait(), 4)
        self.assertIn("rank 1 on ", made.aggregator.log())
        self.assertEqual(made.aggregator.events("round-opened"), [])

    def refused(self, made, prefix, code, words, *more):
        made.launch_aggregator(*more, prefix=prefix)
        self.assertEqual(made.aggregator.wait(), code)
        self.assertIn(words, made.aggregator.log())
        self.assertEqual(made.aggregator.events("round-opened"), [])
        self.assertFalse(os.path.exists(made.state))

    def test_hosts(self):
        made = self.ranks(2)
        words = ("env",)
        for text, said in (("a\nb slots=2\na slots=1\n", "names a twice"), ("Big\nbig\n", "names big twice"),
                           ("# none\n", "names no machine")):
            with open(made.path("hosts"), "w", encoding="ascii") as file:
                file.write(text)
            made.launch_aggregator("--supervise", "--hosts", made.path("hosts"), prefix=words)
            self.assertEqual(made.aggregator.wait(), 3)
            self.assertIn(said, made.aggregator.log())
        self.refused(made, ("mpirun", "-n", "1", "env", "FEDGE_X=1"), 3, "leave mpirun out", "--supervise")
        self.assertFalse(os.path.exists(made.state))

    def test_as_root(self):
        """No rank starts, neither under mpirun nor under the supervisor, which does not retry."""
        made = self.ranks(2)
        with open(made.path("hosts"), "w", encoding="ascii") as file:
            file.write("localhost slots=2\n")
        without = ("env", "-u", "OMPI_ALLOW_RUN_AS_ROOT", "-u", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.refused(made, (*without, "mpirun", "-n", "2"), 1, "mpirun has detected an attempt to run as root")
        self.refused(made, without, 3, "mpirun does not run as root: start", "--supervise", "--hosts", made.path("hosts"))

    def test_more_ranks_than_cores(self):
        made = self.ranks(2)
        self.refused(made, ("env", "-u", "OMPI_MCA_rmaps_base_oversubscribe", "mpirun", "--host", "localhost:1", "-n", "2"), 1,
                     "not enough slots available")

    def test_a_machine_that_is_silent(self):
        """The supervisor sets mpirun's time limit, unless the user has set one."""
        made = self.ranks(1)
        with open(made.path("hosts"), "w", encoding="ascii") as file:
            file.write("localhost\n")
        with open(made.path("mpirun"), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nenv >&2\nexit 3\n")
        os.chmod(made.path("mpirun"), 0o755)
        for more, time_s in ({}, 20), ({"OMPI_MCA_oob_tcp_keepalive_time": "60"}, 60):
            made.launch_aggregator("--supervise", "--hosts", made.path("hosts"),
                                   prefix=("env", "-u", "OMPI_MCA_hwloc_base_binding_policy"),
                                   environment={"PATH": made.folder + ":" + os.environ["PATH"], **more})
            self.assertEqual(made.aggregator.wait(), 3)
            for name, value in ("time", time_s), ("intvl", 5), ("probes", 4):
                self.assertIn(f"OMPI_MCA_oob_tcp_keepalive_{name}={value}\n", made.aggregator.log())
            self.assertIn("OMPI_MCA_hwloc_base_binding_policy=none\n", made.aggregator.log())

    def test_ranks_that_are_bound(self):
        """Ranks are bound as by Open MPI's default, and the log reports it."""
        made = self.ranks(2)
        if os.cpu_count() < 2:
            self.skipTest("one core")
        made.start_aggregator(prefix=("mpirun", "--bind-to", "hwthread", "-n", "2"), workers=None, network_threads=None)
        self.assertEqual([(e["cores"], e["of"]) for e in made.aggregator.events("bound-to-few-cores")],
                         2 * [(1, os.cpu_count())])
        for event in made.aggregator.events("listening"):
            self.assertEqual((event["network-threads"], event["workers"]), (1, 1))
        made.kill_rank(1)
        self.assertFalse(made.start_aggregator().events("bound-to-few-cores"))

    @unittest.skipUnless(harness.LONG, "65 processes start")
    def test_too_many_ranks(self):
        made = self.ranks(65)
        self.refused(made, None, 3, "65 ranks: one aggregator has at most 64")

    def test_a_rank_that_hangs(self):
        """A rank's process hangs: the others end, and mpirun ends it."""
        for rank, other in ((1, 0), (0, 1)):
            made = self.ranks(2)
            made.start_aggregator(environment={"FEDGE_RANK_SILENCE_S": "20" if harness.SANITIZED else "8"})
            made.wait_for_watch(other)
            os.kill(made.pid_of(rank), signal.SIGSTOP)
            said = made.wait_for_loss()
            self.assertIn(f"fedge-aggregator: rank {other} on ", said)
            self.assertIn(f"rank {rank} has said nothing for ", said)

    def test_a_rank_that_hangs_while_it_starts(self):
        """One rank listens, and the other waits for it before it serves."""
        made = self.ranks(2)
        made.launch_aggregator(environment={"FEDGE_RANK_SILENCE_S": "20" if harness.SANITIZED else "8",
                                            **fault("mkostemps", 1, "stop", "/ports.1.")})
        said = made.wait_for_loss()
        self.assertIn("fedge-aggregator: rank 0 on ", said)
        self.assertIn("the start of all ranks has not ended in ", said)
        self.assertEqual(len(made.aggregator.events("listening")), 2)

    @unittest.skipIf(harness.SANITIZED, "what hits calls of MPI stands in a sanitizer's way")
    def test_a_rank_that_hangs_while_sums_are_joined(self):
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        made = self.ranks(2, **job)
        # The start joins nothing, and the first sum of rank 1 says only that.
        made.launch_aggregator(environment={"FEDGE_RANK_SILENCE_S": "8", **fault("MPI_Reduce", 4, "stop", "rank-1")})
        made.start_clients()
        self.assertIn("joining sums has not ended in ", made.wait_for_loss())
        made.start_aggregator()
        self.assertEqual(made.complete()["model_sha256"], alone["model_sha256"])

    def test_models_come_to_other_ranks_once(self):
        """Whatever the number of clients that fetch them, and of rounds."""
        made = self.ranks(3, clients=4, rounds__num_server_rounds=3, rounds__min_train_nodes=4)
        made.start_aggregator("--log-level", "debug")
        for i in range(4):
            made.start_client(i, server=made.servers[1 + i % 2])
        made.complete()
        came = [(event["rank"], event["sha256"]) for event in made.aggregator.events("blob-broadcast")]
        self.assertEqual(len(came), len(set(came)))
        each = [sorted(sha256 for at, sha256 in came if at == rank) for rank in range(3)]
        self.assertEqual(each[0], each[1])
        self.assertEqual(each[0], each[2])
        self.assertGreaterEqual(len(each[0]), 3)  # the plan, and what leads on to each later model

    def test_a_round_waits_for_a_rank_without_room(self):
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        made = self.ranks(2, **job)
        made.launch_aggregator(environment=fault("posix_fallocate", 1, "ENOSPC", "/ranks/"))
        made.start_clients()
        made.aggregator.wait_event("round-waits-for-disk")
        self.assertFalse(made.aggregator.events("round-opened"))
        self.assertEqual(made.complete()["model_sha256"], alone["model_sha256"])
        waited, = made.aggregator.events("round-waits-for-disk")
        self.assertIn("rank 1: ", waited["error"])

    def test_what_ranks_must_have_alike(self):
        made = self.ranks(2)
        other = made.write("other.json", harness.make_job(seed=8, rounds__min_available_nodes=3))
        first = made.aggregator_arguments()
        program = os.path.join(harness.BIN, first[0])
        mixed = [other if word == made.job_path else word for word in first[1:]]
        self.refused(made, ("mpirun", "-n", "1", program, *mixed, ":", "-n", "1"), 3, "the job is ")
        made.write("other.json", {})
        self.refused(made, ("mpirun", "-n", "1", program, *first[1:], ":", "-n", "1", program, *mixed, ":", "-n", "1"),
                     3, "rank 1 on ")
        self.refused(made, ("mpirun", "-n", "1", program, *first[1:], "--accumulator", "cpu", ":", "-n", "1"), 3,
                     "the accumulator is auto, and on rank 0 cpu")
        self.refused(made, ("mpirun", "-n", "1", self.another_release(made, program), *first[1:], ":", "-n", "1"), 3,
                     "the release is ")

    def another_release(self, made, program):
        """A copy of the program that reports another release."""
        with open(program, "rb") as file:
            code = file.read()
        release = harness.run("fedge-aggregator", "--version")[0].split()[1].encode()
        path = made.path("another")
        with open(path, "wb") as file:
            file.write(code.replace(release + b"\0", release[:-1] + b"~\0"))
        os.chmod(path, 0o755)
        return path

    def test_a_disk_that_fails(self):
        """The exit code of any rank that needs an operator: the supervisor does not restart it."""
        for what, said in (("EIO", "Input/output error"), ("ENOSPC", "No space left")):
            made = self.ranks(2, clients=2)
            # The first sync of rank 1's disk is of its new journal, the second of an update.
            made.launch_aggregator(environment=fault("fdatasync", 2, what, "/ranks/"))
            made.start_client(0, server=made.servers[1])
            made.start_client(1, server=made.servers[1])
            self.assertEqual(made.aggregator.wait(), 6)
            self.assertIn("fedge-aggregator: rank 1 on ", made.aggregator.log())
            self.assertIn(said, made.aggregator.log())

    def test_one_rank_is_told_to_reload(self):
        made = self.ranks(2)
        made.start_aggregator()
        os.kill(made.pid_of(0), signal.SIGHUP)
        made.aggregator.wait_event("reloaded", 2)
        os.kill(made.pid_of(1), signal.SIGHUP)
        made.aggregator.wait_event("reloaded", 4)

    def test_updates_in_their_order(self):
        """Strategies that depend on the order of updates have no ranks."""
        for strategy, more in (("FedBuff", {"buffer-size": 2}), ("FedAsync", {})):
            made = self.ranks(2, strategy={"type": strategy, **more})
            self.refused(made, None, 3, f"{strategy} takes updates in one process: run fedge-aggregator without mpirun")

    def test_a_port_that_is_taken(self):
        made = self.ranks(2)
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", made.port + 2))
            taken.listen()
            self.refused(made, None, 5, "rank 1 on ")


class Deltas(RanksTest):
    def test_models_travel_as_deltas(self):
        """Deltas of one rank's model go to the clients of all ranks. The bits are those of one process."""
        job = {"clients": 3, "rounds__num_server_rounds": 4, "rounds__min_train_nodes": 3, "hidden": 400}
        down = {"update": {"up": "int8", "down": "int8+deflate"}}
        alone = self.play(self.federation(**job, **down))
        whole, together = self.ranks(2, update={"up": "int8"}, **job), self.ranks(2, **job, **down)
        self.play(whole)
        together.start_aggregator()
        for i in range(3):
            together.start_client(i, server=together.servers[i % 2])
        self.assertEqual(together.complete()["model_sha256"], alone["model_sha256"])
        fetched, models = (sum(line["bytes_down"] for line in run.lines()) for run in (together, whole))
        self.assertGreater(fetched, 0)
        self.assertLess(fetched, 0.5 * models)


class Full(RanksTest):
    """A full rank redirects devices."""

    def begins_at_first(self, made, index, servers):
        """Returns the list rotated so that the device begins at the first address, whatever its id."""
        client = harness.Federation.start_client(made, index, "--check-config")
        turns = int(client.wait_event("config-ok")["device"].split("-")[0], 16) % len(servers)
        return [*servers[len(servers) - turns:], *servers[:len(servers) - turns]]

    def full(self, redirect, list_of):
        """Starts a rank for one device and a rank for all. Returns the three clients."""
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3}
        made = self.ranks(2, **job)
        program, *words = made.aggregator_arguments()
        made.launch_aggregator(prefix=("mpirun", "-n", "1", os.path.join(harness.BIN, program), *words,
                                       "--max-connections", "1", "--redirect", redirect(made), ":", "-n", "1"))
        made.aggregator.wait_event("listening", 2)
        clients = [harness.Federation.start_client(made, 0, server=made.servers[0])]
        made.aggregator.wait_event("client-hello", 1)
        clients += [harness.Federation.start_client(made, i, server=",".join(self.begins_at_first(made, i, list_of(made))))
                    for i in (1, 2)]
        made.complete()
        return made, clients[1:]

    def tried(self, client):
        return [event["server"] for event in client.events("connect")]

    def test_a_full_rank_sends_devices_on(self):
        """The device goes to the address that the server names, not to the next one of its list."""
        made, clients = self.full(lambda made: made.servers[1],
                                  lambda made: (made.servers[0], "wss://127.0.0.1:1", made.servers[1]))
        for client in clients:
            self.assertEqual(self.tried(client)[:2], made.servers[:2])

    def test_an_address_that_the_device_does_not_know(self):
        """The device continues with its own list."""
        made, clients = self.full(lambda made: "wss://127.0.0.1:2", lambda made: made.servers[:2])
        for client in clients:
            self.assertEqual(self.tried(client)[:2], made.servers[:2])
            self.assertLessEqual(set(self.tried(client)), set(made.servers[:2]))


class Elastic(RanksTest):
    def test_another_number_of_ranks_within_a_round(self):
        self.change_ranks("FedAvg")

    def test_a_rank_is_killed(self):
        """Kills ranks, also rank 0, at random times of a seed. Devices whose rank died between upload and ACK send
        again."""
        job = {"clients": 3, "rounds__num_server_rounds": KILLED_ROUNDS, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job), LONG_S)
        draw = random.Random(SEED)
        killed = self.ranks(2, **job)
        killed.start_aggregator()
        killed.start_clients()
        for i in range(KILLS):
            rank = (i + 1) % 2
            killed.aggregator.wait_event("client-connected", 3)
            time.sleep(draw.uniform(0, 0.05))
            said = killed.kill_rank(rank)
            self.assertIn(f"rank {rank} with PID", said)
            killed.start_aggregator()
        self.assertEqual(killed.complete(LONG_S), killed.result())
        self.assertEqual(killed.result()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(killed.hashes()), KILLED_ROUNDS)

    def test_another_number_of_ranks_with_state_on_clients(self):
        self.change_ranks("SCAFFOLD")

    @unittest.skipIf(SANITIZED, "what hits calls of MPI stands in a sanitizer's way")
    def test_a_rank_dies_in_each_phase_of_a_round(self):
        """A run that loses a rank in each phase of a round. The log shows that the phase was reached."""
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
        """Two of three devices have reported, and the next ranks ask the third one again."""
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
        """Before, in or after a system call: an update is durable but not acknowledged, a journal is incomplete, or a
        round is closed without a checkpoint."""
        job = {"clients": 3, "rounds__num_server_rounds": 20 * KILLS, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        draw = random.Random(SEED)
        killed = self.ranks(2, **job)
        for i in range(KILLS):
            file, most = (("/ranks/", 40), ("/runs/", 60))[i % 2]  # of rank 1, of rank 0
            what = draw.choice(["kill-before", "kill-after", "half"])
            killed.launch_aggregator(environment=fault("io", draw.randint(1, most), what, file))
            if i == 0:
                killed.start_clients()
            killed.wait_for_loss()
        killed.start_aggregator()
        self.assertEqual(killed.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(killed.hashes()), 20 * KILLS)

    def test_a_rank_dies_between_an_upload_and_its_ack(self):
        """The update is durable. The client sends it again to another rank, and it counts once."""
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
        """Two clients have reported through rank 1, which has its own disk. All processes end, [change] alters the
        files, and the round continues with the third client."""
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
        """Updates that the lost rank had acknowledged are requested again, and the log has their number."""
        for more in ({}, {"strategy__type": "SCAFFOLD", "training__optimizer": {"type": "SGD"}},
                     {"update": {"codec": "topk:0.1+int8", "error-feedback": "on"}}):
            self.assertEqual(self.on_disks(lambda apart: shutil.rmtree(apart.disk(1)), **more), (0, [2]))

    def test_a_machine_and_a_checkpoint_that_are_gone(self):
        """The newest checkpoint is damaged, and its round cannot be closed again, so each start opens it again."""
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
        """The last update of a rank is damaged: it is requested again, and the other update of that journal counts."""
        def damage(apart):
            path, = glob.glob(os.path.join(apart.disk(1), "ranks", "*", "1", "**", "*.fj"), recursive=True)
            with open(path, "r+b") as file:
                name = b'"run-id":'
                last = file.read(1 << 16).rindex(name)
                file.seek(last)
                file.write(b"#")
        self.assertEqual(self.on_disks(damage), (1, [1]))


class Supervised(RanksTest):
    def supervise(self, supervised, *lines, **options):
        supervised.write_hosts(*lines)
        supervised.start_aggregator("--supervise", "--hosts", supervised.path("hosts"), prefix=("env",), **options)

    def test_the_supervisor_starts_as_many_as_there_are(self):
        job = {"clients": 3, "rounds__num_server_rounds": 200, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        supervised = self.ranks(2, **job)
        self.supervise(supervised, "localhost slots=2")
        supervised.start_clients()
        supervised.aggregator.wait_event("round-opened")
        supervised.write_hosts("localhost slots=1")
        os.kill(supervised.pid_of(1), signal.SIGKILL)
        self.assertEqual(supervised.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(supervised.aggregator.events("listening")), 3)
        self.assertIn("starting it again", supervised.aggregator.log())

    def test_a_machine_that_does_not_answer_is_left_out(self):
        """The launcher that replaces ssh fails for one machine, and so does the first start."""
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        supervised = self.ranks(2, **job)
        self.supervise(supervised, "localhost slots=2", "192.0.2.1 slots=2")
        supervised.start_clients()
        self.assertEqual(supervised.complete()["model_sha256"], alone["model_sha256"])
        self.assertIn("192.0.2.1 does not answer; it is left out", supervised.aggregator.log())
        self.assertEqual(len(supervised.aggregator.events("listening")), 2)

    def test_all_wait_for_the_machine_that_has_the_run(self):
        supervised = self.ranks(2, clients=3, rounds__num_server_rounds=2, rounds__min_train_nodes=3)
        supervised.write_hosts("192.0.2.1 slots=1", "localhost slots=2")
        supervised.launch_aggregator("--supervise", "--hosts", supervised.path("hosts"), prefix=("env",))
        wait_until("a second try", lambda: "192.0.2.1, the first machine of" in supervised.aggregator.log())
        supervised.write_hosts("localhost slots=2")
        supervised.aggregator.wait_event("listening", 2)
        self.assertEqual(supervised.aggregator.stop(), 0)

    def test_a_change_of_hosts_while_machines_are_probed(self):
        """A signal that comes while there are no ranks reaches them once the machine of the run answers."""
        supervised = self.ranks(2, clients=3, rounds__num_server_rounds=2, rounds__min_train_nodes=3)
        supervised.write_hosts("192.0.2.1 slots=1", "localhost slots=2")
        supervised.launch_aggregator("--supervise", "--hosts", supervised.path("hosts"), prefix=("env",))
        said = supervised.aggregator
        wait_until("a second try", lambda: "192.0.2.1, the first machine of" in said.log())
        supervised.write_hosts("localhost slots=2")
        said.send(signal.SIGHUP)
        wait_until("ranks that begin by draining", lambda: "the ranks have drained; starting them again" in said.log())
        supervised.start_clients()
        self.assertEqual(supervised.complete()["rounds"], 2)
        self.assertNotIn("was killed by signal", said.log())

    def test_the_supervisor_takes_other_hosts_at_sighup(self):
        """A change of the file takes effect after the open round. A wrong file changes nothing."""
        job = {"clients": 3, "rounds__num_server_rounds": 200, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        supervised = self.ranks(1, **job)
        self.supervise(supervised, "localhost slots=1")
        supervised.write_hosts("localhost slots=1", "localhost slots=1")
        supervised.aggregator.send(signal.SIGHUP)
        wait_until("the refusal", lambda: "the ranks go on as they are" in supervised.aggregator.log())
        supervised.start_clients()
        supervised.aggregator.wait_event("round-closed")
        supervised.write_hosts("localhost slots=2")
        supervised.aggregator.send(signal.SIGHUP)
        supervised.aggregator.wait_event("listening", 3)
        supervised.aggregator.wait_event("run-resumed")
        self.assertEqual(supervised.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(supervised.aggregator.events("drained")), 1)
        self.assertNotIn("starting it again", supervised.aggregator.log())
        self.assertEqual(len(supervised.hashes()), 200)

    def test_a_rank_killed_when_the_run_is_finished_is_not_followed_by_a_new_run(self):
        """run.json is replaced when the run is made, when it begins and when it is finished."""
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3}
        supervised = self.ranks(2, **job)
        self.supervise(supervised, "localhost slots=2", environment=fault("rename", 3, "kill-after", "run.json"))
        supervised.start_clients()
        result = supervised.complete()
        said = supervised.aggregator
        self.assertIn("starting it again", said.log())
        self.assertEqual([event["rounds-closed"] for event in said.events("run-started")], [0])
        self.assertEqual([event["rounds-closed"] for event in said.events("run-resumed")], [2])
        self.assertEqual(result["model_sha256"], supervised.hashes()[-1])  # of the only run

    def test_a_stop_of_supervised_ranks(self):
        """The next start continues the open round."""
        supervised = self.ranks(2, clients=3)
        self.supervise(supervised, "localhost slots=2")
        supervised.start_client(0).wait_event("welcome")
        self.assertEqual(supervised.aggregator.stop(), 0)
        self.assertNotIn("starting it again", supervised.aggregator.log())


@unittest.skipUnless(wire.allowed(), "network namespaces and TUN devices need root and /dev/net/tun")
class OnMachines(RanksTest):
    """Network namespaces with a bad network between them: the run is slower and has the same hash. If a machine is cut
    off, the ranks end, and the run continues without it."""

    def on(self, net, ranks=2, **job):
        keys = harness.make_keys(os.path.join(harness.make_folder(), "keys"), ON_MACHINES, ip=net.addresses[:ranks])
        made = RanksOnMachines(net, ranks, keys=keys, clients=ON_MACHINES, rounds__min_train_nodes=ON_MACHINES, **job)
        self._federations.append(made)
        return made

    def test_loss_and_delay(self):
        """2 % loss and 50 ms between ranks and to the devices, which are on a machine of their own."""
        with Machines(ends=3, loss=0.02, round_trip_s=0.05, seed=3) as net:
            made = self.on(net, rounds__num_server_rounds=3)
            made.launch_aggregator()
            made.aggregator.wait_event("listening", 2, PATIENCE_S)
            made.start_clients()
            made.complete(PATIENCE_S)
            made.stop()
        self.assertGreater(net.counts["lost"], 0, net.counts)
        self.assertEqual(made.hashes(), harness.undisturbed(3, clients=ON_MACHINES, rounds__min_train_nodes=ON_MACHINES))

    def write_hosts(self, made, count):
        made.write_hosts(*(f"{address} slots=1" for address in made.machines.addresses[:count]))

    def test_a_machine_is_cut_off(self):
        """A machine is lost in the middle of a round. mpirun reports it after its failed probes. The supervisor starts
        the ranks again on the machines that its file names then."""
        with Machines(ends=3, seed=3) as net:
            made = self.on(net, rounds__num_server_rounds=2)
            self.write_hosts(made, 2)
            made.launch_aggregator("--supervise", "--hosts", made.path("hosts"), "--heartbeat", "3", prefix=("env",),
                                   environment=PROBES)
            made.aggregator.wait_event("listening", 2, PATIENCE_S)
            last = made.start_client(2)
            made.aggregator.wait_event("client-hello", timeout_s=PATIENCE_S)
            last.send(harness.signal.SIGSTOP)  # known, and before there are enough for a round
            for client in (made.start_client(0), made.start_client(1)):
                client.wait_event("accepted", timeout_s=PATIENCE_S)
            self.write_hosts(made, 1)
            net.part(1)
            # Without the probes it takes eight minutes.
            harness.wait_until("the loss", lambda: "lost communication with a remote daemon" in made.aggregator.log(),
                               SILENCE_S + NOTICE_S)
            made.aggregator.wait_event("listening", 3, PATIENCE_S)
            net.part()
            self.assertIn("starting it again", made.aggregator.log())
            self.assertEqual(made.aggregator.wait_event("run-resumed")["updates-recovered"], 2)
            last.send(harness.signal.SIGCONT)
            made.complete(PATIENCE_S)
            made.stop()
        self.assertEqual(made.hashes(), harness.undisturbed(2, clients=ON_MACHINES, rounds__min_train_nodes=ON_MACHINES))


class Quickstart(RanksTest):
    """examples/quickstart on two ranks, changed only in its number of rounds: the model equals that of one process."""

    def quickstart(self, made):
        with open(os.path.join(EXAMPLE, "job.json"), encoding="utf-8") as file:
            job = json.load(file)
        job["rounds"]["num-server-rounds"] = EXAMPLE_ROUNDS
        self.assertEqual(job["rounds"]["min-train-nodes"], EXAMPLE_CLIENTS)
        made.job_path = made.write("job.json", job)
        made.site_path = os.path.join(EXAMPLE, "client.json")
        return made

    def test_the_hash_is_that_of_one_process(self):
        if not os.path.exists(DATA):
            self.skipTest("the package dataset-fashion-mnist is not installed")
        if harness.SANITIZED:
            self.skipTest("60,000 images take minutes under a sanitizer; net_ranks has small ones")
        alone = self.play(self.quickstart(self.federation(clients=EXAMPLE_CLIENTS)), PATIENCE_S)
        together = self.quickstart(self.ranks(2, clients=EXAMPLE_CLIENTS))
        together.start_aggregator()
        for i in range(EXAMPLE_CLIENTS):  # four at each, first
            together.start_client(i, server=together.servers[i % 2])
        result = together.complete(PATIENCE_S)
        self.assertEqual(result["rounds"], EXAMPLE_ROUNDS)
        self.assertEqual(result["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(together.aggregator.events("ended", how="complete")), 2)


if __name__ == "__main__":
    unittest.main()
