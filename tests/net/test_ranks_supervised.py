"""fedge-aggregator --supervise --hosts FILE: ranks that are lost or changed are started again by mpirun."""

import os
import signal
import unittest

from harness import fault, wait_until
from ranks import RanksTest


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
        """The launcher, in place of ssh, fails for it; so does the first start."""
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
        """The signal finds no ranks: it is theirs once the machine that has the run answers."""
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
        """After the open round; a file that is wrong changes nothing."""
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
        """run.json is put in its place when the run is made, when it begins and when it is finished."""
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
        """The open round goes on at the next start."""
        supervised = self.ranks(2, clients=3)
        self.supervise(supervised, "localhost slots=2")
        supervised.start_client(0).wait_event("welcome")
        self.assertEqual(supervised.aggregator.stop(), 0)
        self.assertNotIn("starting it again", supervised.aggregator.log())


if __name__ == "__main__":
    unittest.main()
