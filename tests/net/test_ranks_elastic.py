"""Ranks that are lost, and other numbers of them: the run goes on, and its hash is that of one process."""

import os
import random
import re
import signal
import time
import unittest

from harness import wait_until
from ranks import RanksTest

KILLS = int(os.environ.get("FEDGE_NET_KILLS", "0"))  # with none, what takes longer is left out
ROUNDS = 150 * KILLS  # so that there are some left for each
SEED = int(os.environ.get("FEDGE_NET_SEED", "1"))


class Elastic(RanksTest):
    def change_ranks(self, strategy):
        """1, 4 and 2 ranks, one after another, while a round is open."""
        job = {"clients": 4, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 4,
               "strategy__type": strategy, "training__optimizer": {"type": "SGD"}}
        alone = self.play(self.federation(**job))
        changing = self.ranks(1, **job)
        changing.start_aggregator()
        clients = {i: changing.start_client(i) for i in (2, 3)}
        changing.aggregator.wait_event("client-connected", 2)
        for client in clients.values():
            client.send(signal.SIGSTOP)  # before there are enough for a round
        changing.start_clients(0, 1)

        def reported(count):
            found = re.search(r"(\d+) of 4 reported", changing.health()["state"])
            return found and int(found[1]) >= count
        wait_until("two of four", lambda: reported(2))
        recovered = []
        for ranks in (4, 2):
            changing.kill_rank(0)
            changing.ranks = ranks
            changing.start_aggregator()
            recovered.append(changing.aggregator.wait_event("run-resumed")["updates-recovered"])
            if ranks == 4:
                clients[2].send(signal.SIGCONT)
                wait_until("three of four", lambda: reported(3))
        clients[3].send(signal.SIGCONT)
        self.assertEqual(changing.complete()["model_sha256"], alone["model_sha256"])
        self.assertGreaterEqual(recovered[0], 2)
        self.assertGreaterEqual(recovered[1], 3)

    @unittest.skipUnless(KILLS, "needs FEDGE_NET_KILLS")
    def test_another_number_of_ranks_within_a_round(self):
        self.change_ranks("FedAvg")

    def test_another_number_of_ranks_with_state_on_clients(self):
        self.change_ranks("SCAFFOLD")

    @unittest.skipUnless(KILLS, "needs FEDGE_NET_KILLS")
    def test_a_rank_is_killed(self):
        """At moments that a seed chooses; rank 0 too. Whose rank died between upload and ACK sends again."""
        job = {"clients": 3, "rounds__num_server_rounds": ROUNDS, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        draw = random.Random(SEED)
        killed = self.ranks(2, **job)
        killed.start_aggregator()
        killed.start_clients()
        for i in range(KILLS):
            rank = i % 2
            killed.aggregator.wait_event("client-connected", 3)
            time.sleep(draw.uniform(0, 0.05))
            said = killed.kill_rank(rank)
            self.assertIn(f"rank {rank} with PID", said)
            killed.start_aggregator()
        self.assertEqual(killed.complete(), killed.result())
        self.assertEqual(killed.result()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(killed.hashes()), ROUNDS)

    def test_the_supervisor_starts_as_many_as_there_are(self):
        job = {"clients": 3, "rounds__num_server_rounds": 200, "rounds__min_train_nodes": 3}
        alone = self.play(self.federation(**job))
        supervised = self.ranks(2, **job)

        def write_hosts(slots):
            with open(supervised.path("hosts"), "w", encoding="ascii") as file:
                file.write(f"localhost slots={slots}\n")
        write_hosts(2)
        supervised.start_aggregator("--supervise", "--hosts", supervised.path("hosts"), prefix=("env",))
        supervised.start_clients()
        supervised.aggregator.wait_event("round-opened")
        write_hosts(1)
        os.kill(supervised.pid_of(1), signal.SIGKILL)
        self.assertEqual(supervised.complete()["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(supervised.aggregator.events("listening")), 3)
        self.assertIn("starting it again", supervised.aggregator.log())


if __name__ == "__main__":
    unittest.main()
