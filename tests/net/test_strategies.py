"""Strategies deployed, beyond what test_every_strategy.py plays of each: many kills, samplers, plugins."""

import json
import os
import signal
import subprocess

import harness
import kills
import test_simulation
from harness import NetTest

KILLS = max(2, kills.KILLS // 5)
# Each with a cohort of three of five, so that what was seen of clients decides.
SAMPLERS = {
    "examples": {"minimum-share": 0.5},
    "available": {},
    "utility": {"inverse-probability": True},
}


class Strategies(NetTest):
    deployed = test_simulation.Simulation.deployed
    simulated = test_simulation.Simulation.simulated
    assert_same = test_simulation.Simulation.assert_same
    disturbed = kills.KilledTest.disturbed

    def test_kills_change_nothing_that_a_robust_rule_makes(self):
        job = {"strategy": {"type": "FedTrimmedAvg", "beta": 0.4}}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, kills.SEED + 14, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=kills.CLIENTS, **job))

    def test_a_server_without_its_root_set(self):
        federation = self.federation(strategy={
            "type": "FLTrust", "root-set": {"values": "root-values.npy", "labels": "root-labels.npy"}})
        harness.write_examples(federation.folder, "root", 60, 9)
        os.remove(federation.path("root-labels.npy"))
        _, said = harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                              "--clients", federation.clients, code=3)
        self.assertIn("the server's root set", said)

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

    def test_clients_that_go_on_while_rounds_close(self):
        """In the simulator: whatever the threads, and interrupted, the same models."""
        time_options = ("--compute", "lognormal:100,1", "--failure", 0.1)
        for strategy in {"type": "FedBuff", "buffer-size": 3}, {"type": "FedAsync", "staleness-weight": "hinge"}:
            with self.subTest(strategy["type"]):
                federation = self.federation(clients=12, rounds__num_server_rounds=40, rounds__fraction_train=0.75,
                                             strategy=strategy)
                whole = self.simulated(federation, *time_options)
                alone = self.simulated(federation, *time_options, threads=1)
                hashes = [line["model_sha256"] for line in whole]
                self.assertEqual([line["model_sha256"] for line in alone], hashes)
                self.assertEqual(len(set(hashes)), 40)
                self.assertEqual({line["clients"] for line in whole}, {strategy.get("buffer-size", 1)})
                times = [line["virtual_time"] for line in whole]
                self.assertEqual(times, sorted(times))
                self.assertLess(whole[-1]["loss"], whole[0]["loss"])
                out = federation.path("stopped")
                command = ("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path, "--clients",
                           federation.clients, "--threads", 2, "--out", out, *time_options)
                stopped = harness.Program("stopped", command, federation.folder)
                log = os.path.join(out, "rounds.jsonl")
                harness.wait_until("some rounds", lambda: os.path.exists(log) and os.path.getsize(log) > 0)
                stopped.send(signal.SIGINT)
                self.assertIn(stopped.wait(), (0, 130))
                harness.run(*command, "--resume")
                with open(log, encoding="utf-8") as file:
                    self.assertEqual([json.loads(line)["model_sha256"] for line in file], hashes)

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

    def test_a_shared_object_without_either(self):
        federation = self.federation()
        out = federation.path("nothing.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", out], check=True)
        said = harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                           "--clients", federation.clients, "--strategy-plugin", out, code=3)
        self.assertIn("has no fedge_strategy_plugin_get or fedge_metric_plugin_get",
                      said.stderr if hasattr(said, "stderr") else str(said))

    def test_some_of_the_clients_each_round(self):
        """What clients keep is of different rounds."""
        self.assert_same(strategy={"type": "FedDyn"}, clients=5, rounds__fraction_train=0.5,
                         rounds__min_train_nodes=2, rounds__num_server_rounds=6)

    def test_a_sampler_draws_the_same(self):
        seen = set()
        for name, keys in SAMPLERS.items():
            with self.subTest(name):
                federation, _ = self.assert_same(clients=5, rounds__fraction_train=0.6, rounds__num_server_rounds=6,
                                                 rounds__sampler={"type": name, **keys})
                seen.add(federation.hashes()[-1])
        self.assertEqual(len(seen), len(SAMPLERS))

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
