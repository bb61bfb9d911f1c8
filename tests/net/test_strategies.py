"""Strategies deployed, beyond what test_every_strategy.py plays of each: many kills, samplers, plugins."""

import json
import os
import subprocess

import harness
import kills
import test_simulation
from harness import NetTest

KILLS = max(2, kills.KILLS // 5)


class Strategies(NetTest):
    simulated = test_simulation.SameTest.simulated
    disturbed = kills.KilledTest.disturbed

    def test_kills_change_nothing_that_a_robust_rule_makes(self):
        job = {"strategy": {"type": "FedTrimmedAvg", "beta": 0.4}}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, kills.SEED + 14, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=kills.CLIENTS, **job))

    def test_a_clusters_model_that_is_missing(self):
        """A start on the finished run writes it again, and trains nothing."""
        federation = self.federation(clients=3, rounds__num_server_rounds=2, rounds__fraction_evaluate=1.0,
                                     strategy={"type": "IFCA", "num-clusters": 3},
                                     site={"validation-fraction": 0.25, "partition": "dirichlet:0.5"})
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        del job["test-set"]
        federation.write("job.json", job)
        federation.start_aggregator()
        federation.start_clients(0, 1, 2)
        federation.complete()
        path = os.path.join(federation.run_folder(), "model-cluster-2.safetensors")
        os.unlink(path)
        federation.launch_aggregator()
        federation.complete()
        self.assertTrue(os.path.exists(path))
        self.assertEqual(len(federation.hashes()), 2)

    def test_kills_change_no_order(self):
        """Large updates, so that kills and closing rounds fall within uploads."""
        job = {"strategy": {"type": "FedBuff", "buffer-size": 2}, "hidden": 2000, "update__codec": "none",
               "update__deflate": False}
        hashes = self.disturbed(4 * KILLS, KILLS, KILLS // 2, kills.SEED + 16, examples=400, cohort=2, **job)
        order = os.path.join(self.last.run_folder(), "rounds.jsonl")
        again = self.simulated(self.last, "--replay", order)
        self.assertEqual([line["model_sha256"] for line in again], hashes)

    def plugin(self, federation, example="own_strategy/strategy.c"):
        """An example, built as its head says but for the place of the header."""
        out = federation.path("plugin.so")
        source = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "examples", example)
        include = os.path.join(os.environ["FEDGE_BINARY_DIR"], "include")
        subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", "-ffp-contract=off", source, "-I", include, "-lm", "-o",
                        out], check=True)
        return out

    def test_kills_change_nothing_that_a_plugin_keeps(self):
        option = ("--strategy-plugin", self.plugin(self.federation()))
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, kills.SEED + 17, options=option, strategy={
            "type": "NormalisedAvg", "server-learning-rate": 0.1, "beta": 0.5})
        self.assertEqual([line["model_sha256"] for line in self.simulated(self.last, *option)], hashes)

    def test_kills_change_nothing_that_clients_keep(self):
        job = {"strategy": {"type": "FedDyn", "alpha": 0.1}}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, kills.SEED + 13, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=kills.CLIENTS, **job))

    def test_kills_change_no_draws(self):
        """Of three clients two train, with weights against the draw."""
        job = {"rounds__fraction_train": 0.67, "rounds__sampler": {"type": "utility", "inverse-probability": True}}
        hashes = self.disturbed(2 * KILLS, KILLS, 0, kills.SEED + 15, examples=400, cohort=2, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=kills.CLIENTS, **job))

    def test_kills_change_no_momenta(self):
        job = {"strategy": {"type": "FedYogi", "server-learning-rate": 0.1}}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, kills.SEED + 12, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=kills.CLIENTS, **job))


if __name__ == "__main__":
    harness.main()
