"""Each strategy, deployed: the model of a simulated run, round by round, bit for bit; and of a run that is killed."""

import json
import os
import signal
import subprocess

import harness
import test_crash
import test_sections
import test_simulation
from harness import NetTest
from test_crash import Crash
from test_simulation import Simulation

KILLS = max(2, test_crash.KILLS // 5)
# Arguments that a job needs, or that are unlike the defaults.
STRATEGIES = {
    "FedProx": {"proximal-mu": 0.5},
    "FedAvgM": {"server-momentum": 0.7, "server-schedule": {"type": "StepLR", "step_size": 2, "gamma": 0.5}},
    "FedAdagrad": {},
    "FedAdam": {"beta1": 0.5, "server-learning-rate": 0.1},
    "FedYogi": {},
    "FedNova": {"server-learning-rate": 0.5},
    "FedDyn": {"alpha": 0.1},
    "QFedAvg": {"q": 2},
}
# Clients have a part of the model for themselves, and are evaluated by it.
PERSONAL = {
    "FedPer": {},
    "FedRep": {"head-epochs": 2},
    "FedBN": {},
    "Ditto": {"lambda": 0.5},
}
# With one client of seven that may be anything.
ROBUST = {
    "FedMedian": {},
    "FedTrimmedAvg": {"beta": 0.3, "mixing": True, "num-malicious-nodes": 1},
    "Krum": {"num-malicious-nodes": 1},
    "MultiKrum": {"num-malicious-nodes": 2, "num-nodes-to-keep": 3},
    "Bulyan": {"num-malicious-nodes": 1},
    "RFA": {},
    "NormClipping": {},
}


# Each with a cohort of three of five, so that what was seen of clients decides.
SAMPLERS = {
    "examples": {"minimum-share": 0.5},
    "available": {},
    "utility": {"inverse-probability": True},
}


class Strategies(NetTest):
    deployed = Simulation.deployed
    simulated = Simulation.simulated
    assert_same = Simulation.assert_same
    disturbed = Crash.disturbed

    def test_a_simulated_run_is_the_deployed_one(self):
        seen = set()
        for name, arguments in STRATEGIES.items():
            with self.subTest(name):
                federation, _ = self.assert_same(strategy={"type": name, **arguments})
                seen.add(federation.hashes()[-1])
        self.assertEqual(len(seen), len(STRATEGIES))  # none is another by accident

    def test_a_robust_rule_reads_the_same_from_the_journal(self):
        seen = set()
        for number, (name, arguments) in enumerate(ROBUST.items()):
            with self.subTest(name):  # in turn as they are, deflated and sparse
                up = ("none", "int8+deflate", "topk:0.25")[number % 3]
                federation, _ = self.assert_same(strategy={"type": name, **arguments}, clients=7, update={"up": up})
                seen.add(federation.hashes()[-1])
        self.assertEqual(len(seen), len(ROBUST))

    def test_kills_change_nothing_that_a_robust_rule_makes(self):
        job = {"strategy": {"type": "FedTrimmedAvg", "beta": 0.4}}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, test_crash.SEED + 14, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=test_crash.CLIENTS, **job))

    def personal(self, name, arguments, clients=8):
        """A job in which each client holds examples out; the server has none."""
        job = {"strategy": {"type": name, **arguments}, "clients": clients, "rounds__fraction_evaluate": 1.0,
               "site": {"validation-fraction": 0.25, "partition": "dirichlet:0.5"}}
        if name == "FedBN":
            job.update(prepare=test_sections.points_as_images, data__shape=[3, 2, 2],
                       model=test_sections.batchnorm())
        if name != "Ditto":
            job["no_test_set"] = True
        return job

    def test_what_clients_have_for_themselves(self):
        """Eight clients, three rounds, the aggregator and a client killed between."""
        seen = set()
        for name, arguments in PERSONAL.items():
            with self.subTest(name):
                federation = self.interrupted(**self.personal(name, arguments))
                lines = self.simulated(federation)
                train, mine = ([line for line in lines if line["phase"] == phase] for phase in ("train", "evaluate"))
                self.assertEqual([line["model_sha256"] for line in train], federation.hashes())
                wanted = federation.lines("evaluate")
                self.assertEqual([line["round"] for line in mine], [line["round"] for line in wanted])
                for got, expected in zip(mine, wanted):
                    self.assertEqual((got["clients"], got["examples"]), (expected["clients"], expected["examples"]))
                    self.assertAlmostEqual(got["loss"], expected["loss"], places=9)
                    self.assertEqual(got["accuracy_quantiles"], expected["accuracy_quantiles"])
                seen.add(wanted[-1]["loss"])
        self.assertEqual(len(seen), len(PERSONAL))

    def test_a_server_that_trains_too(self):
        """FLTrust, eight clients, three rounds, the aggregator and a client killed between."""
        federation = self.interrupted(
            clients=8, prepare=lambda made: harness.write_examples(made.folder, "root", 60, 9),
            strategy={"type": "FLTrust", "root-set": {"values": "root-values.npy", "labels": "root-labels.npy"}})
        lines = self.simulated(federation)
        self.assertEqual([line["model_sha256"] for line in lines], federation.hashes())
        self.assertEqual(len(set(federation.hashes())), test_simulation.ROUNDS)
        self.assertGreater(lines[-1]["accuracy"], lines[0]["accuracy"])
        os.remove(federation.path("root-labels.npy"))
        _, said = harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                              "--clients", federation.clients, code=3)
        self.assertIn("the server's root set", said)

    def test_clients_that_choose_among_models(self):
        """IFCA, eight clients, three rounds, the aggregator and a client killed between."""
        federation = self.interrupted(clients=8, no_test_set=True, rounds__fraction_evaluate=1.0,
                                      strategy={"type": "IFCA", "num-clusters": 3},
                                      site={"validation-fraction": 0.25, "partition": "dirichlet:0.1"})
        lines = self.simulated(federation)
        train, mine = ([line for line in lines if line["phase"] == phase] for phase in ("train", "evaluate"))
        self.assertEqual([line["model_sha256"] for line in train], federation.hashes())
        wanted = federation.lines("evaluate")
        self.assertEqual([line["round"] for line in mine], [line["round"] for line in wanted])
        for got, expected in zip(mine, wanted):
            self.assertAlmostEqual(got["loss"], expected["loss"], places=9)
            self.assertEqual(got["accuracy_quantiles"], expected["accuracy_quantiles"])
        first = train[0]["model_sha256"]
        self.assertGreater(len({line["model_sha256"] for line in train}), 1, first)
        alone = self.simulated(federation, threads=1)
        self.assertEqual([line.get("model_sha256") for line in alone], [line.get("model_sha256") for line in lines])
        models = set()
        for name in "model", "model-cluster-1", "model-cluster-2":  # all that clients choose among
            said = [harness.run("fedge-simulate", "model", os.path.join(folder, name + ".safetensors"), "--json")[0]
                    for folder in (federation.run_folder(), federation.path("simulation-1"))]
            deployed, simulated = (json.loads(text)["model_sha256"] for text in said)
            self.assertEqual(deployed, simulated, name)
            models.add(deployed)
        self.assertEqual(len(models), 3)
        os.unlink(os.path.join(federation.run_folder(), "model-cluster-2.safetensors"))
        federation.launch_aggregator()  # writes it again, and trains nothing
        federation.complete()
        self.assertTrue(os.path.exists(os.path.join(federation.run_folder(), "model-cluster-2.safetensors")))

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

    def test_rounds_close_while_devices_train(self):
        """Eight devices, the aggregator and a device killed between: the simulator replays the order, bit for bit."""
        for strategy in {"type": "FedBuff", "buffer-size": 3}, {"type": "FedAsync", "max-staleness": 30}:
            with self.subTest(strategy["type"]):
                federation = self.interrupted(clients=8, rounds__num_server_rounds=16, strategy=strategy)
                lines = federation.lines()
                self.assertEqual({line["clients"] for line in lines}, {strategy.get("buffer-size", 1)})
                self.assertEqual([len(line["updates"]) for line in lines], [line["clients"] for line in lines])
                self.assertGreater(max(staleness for line in lines for _, staleness in line["updates"]), 0)
                self.assertGreater(len({client for line in lines for client, _ in line["updates"]}), 1)
                order = os.path.join(federation.run_folder(), "rounds.jsonl")
                again = self.simulated(federation, "--replay", order)
                self.assertEqual([line["model_sha256"] for line in again], federation.hashes())
                self.assertEqual([line["updates"] for line in again], [line["updates"] for line in lines])
                self.assertEqual(len(set(federation.hashes())), 16)
                self.assertLess(min(line["loss"] for line in lines[1:]), lines[0]["loss"])

    def test_kills_change_no_order(self):
        """Large updates, so that kills and closing rounds fall within uploads."""
        job = {"strategy": {"type": "FedBuff", "buffer-size": 2}, "hidden": 2000, "update__codec": "none",
               "update__deflate": False}
        hashes = self.disturbed(4 * KILLS, KILLS, KILLS // 2, test_crash.SEED + 16, examples=400, cohort=2, **job)
        order = os.path.join(self.last.run_folder(), "rounds.jsonl")
        again = self.simulated(self.last, "--replay", order)
        self.assertEqual([line["model_sha256"] for line in again], hashes)

    def interrupted(self, prepare=None, no_test_set=False, **options):
        federation = self.federation(**{"rounds__num_server_rounds": test_simulation.ROUNDS, **options})
        if prepare:
            prepare(federation)
        if no_test_set:
            with open(federation.job_path, encoding="utf-8") as file:
                job = json.load(file)
            del job["test-set"]
            federation.write("job.json", job)
        federation.start_aggregator()
        clients = federation.start_clients()
        federation.aggregator.wait_event("round-closed")
        clients[0].kill()
        federation.aggregator.kill()
        federation.launch_aggregator()
        clients[0] = federation.start_client(0)
        federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        return federation

    def plugin(self, federation, example="own_strategy/strategy.c"):
        """An example, built as its head says but for the place of the header."""
        out = federation.path("plugin.so")
        source = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "examples", example)
        include = os.path.join(os.environ["FEDGE_BINARY_DIR"], "include")
        subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", "-ffp-contract=off", source, "-I", include, "-lm", "-o",
                        out], check=True)
        return out

    def test_a_plugin_is_a_strategy_like_others(self):
        federation = self.federation(rounds__num_server_rounds=4, strategy={
            "type": "NormalisedAvg", "server-learning-rate": 0.1, "beta": 0.5})
        option = ("--strategy-plugin", self.plugin(federation))
        federation.start_aggregator(*option)
        clients = federation.start_clients()
        federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        lines = self.simulated(federation, *option)
        self.assertEqual([line["model_sha256"] for line in lines], federation.hashes())
        self.assertEqual(len(set(federation.hashes())), 4)
        for more, why in (((), "NormalisedAvg"), (("--strategy-plugin", "/no/such.so"), "no/such.so")):
            said = harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                               "--clients", federation.clients, *more, code=3)
            self.assertIn(why, said.stderr if hasattr(said, "stderr") else str(said))

    def test_metrics_of_a_plugin(self):
        """Deployed as simulated, each evaluation by itself."""
        federation = self.federation(rounds__num_server_rounds=3)
        option = ("--strategy-plugin", self.plugin(federation, "own_metric/metric.c"))
        federation.start_aggregator(*option)
        federation.start_clients()
        federation.complete()
        lines = federation.lines()
        self.assertEqual(len(lines), 3)
        self.assertEqual([line["metrics"] for line in self.simulated(federation, *option)],
                         [line["metrics"] for line in lines])
        once = self.simulated(federation, *option, "--evaluate-every", 3, threads=1)
        self.assertEqual([line.get("metrics") for line in once], [None, None, lines[-1]["metrics"]],
                         "what earlier evaluations counted is not in it")
        for line in lines:
            self.assertEqual(set(line["metrics"]), {"top5_accuracy", "worst_class_accuracy"})
            self.assertEqual(line["metrics"]["top5_accuracy"], 1)  # of four classes
            self.assertLessEqual(line["metrics"]["worst_class_accuracy"], line["accuracy"])
        self.assertGreater(lines[-1]["metrics"]["worst_class_accuracy"], 0)

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
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, test_crash.SEED + 13, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=test_crash.CLIENTS, **job))

    def test_kills_change_no_draws(self):
        """Of three clients two train, with weights against the draw."""
        job = {"rounds__fraction_train": 0.67, "rounds__sampler": {"type": "utility", "inverse-probability": True}}
        hashes = self.disturbed(2 * KILLS, KILLS, 0, test_crash.SEED + 15, examples=400, cohort=2, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=test_crash.CLIENTS, **job))

    def test_kills_change_no_momenta(self):
        job = {"strategy": {"type": "FedYogi", "server-learning-rate": 0.1}}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, test_crash.SEED + 12, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=test_crash.CLIENTS, **job))


if __name__ == "__main__":
    harness.main()
