"""Each strategy that a job may name: eight devices, the aggregator killed on the way and a device with it, and the
models of a simulated run, round by round, bit for bit.

FEDGE_NET_PART=K/N plays the K-th of N parts of them. FEDGE_NET_KILLED=N kills the aggregator N times, at moments
drawn from a seed (kills.py), and each device once.
"""

import glob
import json
import os
import signal

import harness
import kills
import softmax
import test_sections
from harness import NetTest

KILLS = int(os.environ.get("FEDGE_NET_KILLED", "0"))
CLIENTS, ROUNDS = 8, 3 * KILLS or 3
MOST = (400, 40)  # calls and log events of a life that is killed: some rounds
PART, PARTS = map(int, os.environ.get("FEDGE_NET_PART", "1/1").split("/"))

# The first checkpoint made but not in its place, or in its place; updates in the journal.
MOMENTS = (("rename", 1, "kill-before", "round-000001"), ("rename", 1, "kill-after", "round-000001"),
           ("fdatasync", 3, "kill-after", "journal"))

ON_CLIENTS = {"no_test_set": True, "rounds__fraction_evaluate": 1.0, "site": {"validation-fraction": 0.25}}
# More rounds, so that some updates are stale.
BUFFERED = {"rounds__num_server_rounds": max(16, 8 * KILLS)}

# Arguments that a job needs or that are unlike the defaults, and what else its job and its devices' files have.
CASES = {
    "FedAvg": ({"server-learning-rate": 0.8}, {}),
    "FedProx": ({"proximal-mu": 0.5}, {}),
    "FedAvgM": ({"server-momentum": 0.7, "server-schedule": {"type": "StepLR", "step_size": 2, "gamma": 0.5}}, {}),
    "FedAdagrad": ({}, {}),
    "FedAdam": ({"beta1": 0.5, "server-learning-rate": 0.1}, {}),
    "FedYogi": ({}, {}),
    "FedNova": ({}, {}),
    "SCAFFOLD": ({}, {**softmax.job(), "update": {"up": "int8+deflate", "control": "f16"}}),
    "FedDyn": ({"alpha": 0.1}, {}),
    "QFedAvg": ({"q": 2}, {}),
    "FedMedian": ({}, {"update": {"up": "none"}}),
    "FedTrimmedAvg": ({"beta": 0.3, "mixing": True, "num-malicious-nodes": 1}, {"update": {"up": "int8+deflate"}}),
    "Krum": ({"num-malicious-nodes": 1}, {"update": {"up": "topk:0.25"}}),
    "MultiKrum": ({"num-malicious-nodes": 2, "num-nodes-to-keep": 3}, {}),
    "Bulyan": ({"num-malicious-nodes": 1}, {"update": {"up": "int8+deflate"}}),
    "RFA": ({}, {"update": {"up": "topk:0.25"}}),
    "NormClipping": ({}, {}),
    "FLTrust": ({"root-set": {"values": "root-values.npy", "labels": "root-labels.npy"}, "mixing": True,
                 "num-malicious-nodes": 1},
                {"prepare": lambda made: harness.write_examples(made.folder, "root", 60, 9)}),
    "FedPer": ({}, ON_CLIENTS),
    "FedRep": ({"head-epochs": 2}, ON_CLIENTS),
    "FedBN": ({}, {**ON_CLIENTS, "prepare": test_sections.points_as_images, "data__shape": [3, 2, 2],
                   "model": test_sections.batchnorm()}),
    "Ditto": ({"lambda": 0.5}, {**ON_CLIENTS, "no_test_set": False}),
    "IFCA": ({"num-clusters": 3}, {**ON_CLIENTS, "site": {"validation-fraction": 0.25, "partition": "dirichlet:0.1"}}),
    "FedBuff": ({"buffer-size": 3}, BUFFERED),
    "FedAsync": ({"max-staleness": 30}, BUFFERED),
}
NAMES = sorted(CASES)


def known():
    """The strategies that a job may name: a unit test compares the schema with the program's table."""
    path = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "docs", "job.schema.json")
    with open(path, encoding="utf-8") as file:
        schema = json.load(file)
    prefix = "#/$defs/strategy-"
    return {choice["$ref"].removeprefix(prefix) for choice in schema["properties"]["strategy"]["oneOf"]}


def read_lines(path, phase):
    with open(path, encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["phase"] == phase]


def last_lines(path):
    """What training and evaluations have led to."""
    return [(lines[-1].get("model_sha256"), lines[-1]["loss"])
            for lines in (read_lines(path, phase) for phase in ("train", "evaluate")) if lines]


class EveryStrategy(NetTest):
    def test_all_are_here(self):
        self.assertEqual(known(), set(CASES))

    def prepared(self, strategy, prepare=None, no_test_set=False, site=None, **job):
        rounds = max(ROUNDS, job.pop("rounds__num_server_rounds", 0))
        federation = self.federation(**job, rounds__num_server_rounds=rounds, clients=CLIENTS, strategy=strategy,
                                     site={"partition": "dirichlet:1", **(site or {})})
        if prepare:
            prepare(federation)
        if no_test_set:
            with open(federation.job_path, encoding="utf-8") as file:
                changed = json.load(file)
            del changed["test-set"]
            federation.write("job.json", changed)
        return federation

    def killed_often(self, name, strategy, options):
        """A run with many kills, at least one of them after a round had closed, so that the strategy's state was
        needed. When all came before, or the run ended before the last of them, others are drawn."""
        for again in range(5):
            federation = self.prepared(strategy, **options)
            try:
                seed = kills.SEED + NAMES.index(name) + 1000 * again
                kills.KilledTest.play(self, federation, KILLS, 1, seed, most=MOST)
            except kills.TooFewKills:
                continue
            if any(event["rounds-closed"] > 0 for program in federation.seen if program.name == "aggregator"
                   for event in program.events("run-resumed")):
                return federation
        return self.fail("the strategy's state was never needed, or too few kills came")

    def interrupted(self, name, strategy, options):
        if KILLS:
            return self.killed_often(name, strategy, options)
        federation = self.prepared(strategy, **options)
        moment = MOMENTS[NAMES.index(name) % len(MOMENTS)]
        federation.start_aggregator(environment=harness.fault(*moment))
        clients = federation.start_clients()
        self.assertEqual(federation.aggregator.wait(), -signal.SIGKILL, "the moment has not come")
        clients[0].kill()
        federation.launch_aggregator()
        clients[0] = federation.start_client(0)
        federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        return federation

    def simulated(self, federation, *more, job=None):
        """The folder of the run."""
        out = federation.path("plain" if job else "simulation")
        harness.run("fedge-simulate", "--job", job or federation.job_path, "--data", federation.site_path, "--clients",
                    CLIENTS, "--threads", 2, "--out", out, *more)
        return out

    def plain(self, federation):
        """What the same job leads to with FedAvg as it is by default."""
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        job.get("update", {}).pop("control", None)  # what FedAvg's clients do not send
        out = self.simulated(federation, job=federation.write("plain.json", {**job, "strategy": {"type": "FedAvg"}}))
        return last_lines(os.path.join(out, "rounds.jsonl"))

    def check_order(self, lines, strategy):
        """What has a replayed order, has updates that other rounds than theirs have got."""
        size = strategy.get("buffer-size", 1)
        self.assertEqual([(line["clients"], len(line["updates"])) for line in lines], [(size, size)] * len(lines))
        self.assertGreater(max(staleness for line in lines for _, staleness in line["updates"]), 0)
        self.assertGreater(len({client for line in lines for client, _ in line["updates"]}), 1)

    def check(self, name):
        arguments, options = CASES[name]
        strategy = {"type": name, **arguments}
        federation = self.interrupted(name, strategy, options)
        log = os.path.join(federation.run_folder(), "rounds.jsonl")
        train, own = (read_lines(log, phase) for phase in ("train", "evaluate"))
        replay = ()
        if "updates" in train[0]:
            self.check_order(train, strategy)
            replay = ("--replay", log)
        out = self.simulated(federation, *replay)
        mine, mine_own = (read_lines(os.path.join(out, "rounds.jsonl"), phase) for phase in ("train", "evaluate"))
        self.assertGreaterEqual(len(train), ROUNDS)
        for key in "round", "model_sha256", "clients", "examples", "updates":
            self.assertEqual([line.get(key) for line in mine], [line.get(key) for line in train], key)
        for got, expected in zip(mine_own, own, strict=True):
            for key in "round", "clients", "examples", "accuracy_quantiles":
                self.assertEqual(got.get(key), expected.get(key), key)
            self.assertAlmostEqual(got["loss"], expected["loss"], places=9)
        self.assertEqual(len(own), ROUNDS if options.get("rounds__fraction_evaluate") else 0)
        self.check_models(federation.run_folder(), out)
        self.assertNotEqual(last_lines(os.path.join(out, "rounds.jsonl")), self.plain(federation))

    def check_models(self, deployed, simulated):
        """All that are left at the end."""
        names = [os.path.basename(path) for path in sorted(glob.glob(os.path.join(deployed, "*.safetensors")))]
        self.assertIn("model.safetensors", names)
        hashes = []
        for name in names:
            both = [json.loads(harness.run("fedge-simulate", "model", os.path.join(folder, name), "--json")[0])
                    for folder in (deployed, simulated)]
            self.assertEqual(both[0]["model_sha256"], both[1]["model_sha256"], name)
            hashes.append(both[0]["model_sha256"])
        self.assertEqual(len(set(hashes)), len(names))


def method(name):
    def test(self):
        self.check(name)
    return test


for _name in NAMES[PART - 1::PARTS]:
    setattr(EveryStrategy, f"test_{_name}", method(_name))


if __name__ == "__main__":
    harness.main()
