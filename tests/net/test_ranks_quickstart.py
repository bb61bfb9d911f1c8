"""examples/quickstart, as it is but for its rounds, on two ranks: the model of one process."""

import json
import os
import unittest

import harness
from ranks import RanksTest

EXAMPLE = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "examples", "quickstart")
DATA = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
CLIENTS, ROUNDS = 8, 2
PATIENCE_S = 4 * harness.PATIENCE_S


class Quickstart(RanksTest):
    def quickstart(self, made):
        with open(os.path.join(EXAMPLE, "job.json"), encoding="utf-8") as file:
            job = json.load(file)
        job["rounds"]["num-server-rounds"] = ROUNDS
        self.assertEqual(job["rounds"]["min-train-nodes"], CLIENTS)
        made.job_path = made.write("job.json", job)
        made.site_path = os.path.join(EXAMPLE, "client.json")
        return made

    def test_the_hash_is_that_of_one_process(self):
        if not os.path.exists(DATA):
            self.skipTest("the package dataset-fashion-mnist is not installed")
        if harness.SANITIZED:
            self.skipTest("60,000 images take minutes under a sanitizer; net_ranks has small ones")
        alone = self.play(self.quickstart(self.federation(clients=CLIENTS)), PATIENCE_S)
        together = self.quickstart(self.ranks(2, clients=CLIENTS))
        together.start_aggregator()
        for i in range(CLIENTS):  # four at each, first
            together.start_client(i, server=together.servers[i % 2])
        result = together.complete(PATIENCE_S)
        self.assertEqual(result["rounds"], ROUNDS)
        self.assertEqual(result["model_sha256"], alone["model_sha256"])
        self.assertEqual(len(together.aggregator.events("ended", how="complete")), 2)


if __name__ == "__main__":
    unittest.main()
