"""Jobs, from their keys to the model: training by the papers' formulas in double precision, what clients keep, and what is
refused. A simulated run is the deployed one.
"""

import json
import math
import os
import random
import signal
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["FEDGE_SOURCE_DIR"], "tests", "net"))

import harness
from harness import FEATURES, LABELS, NetTest
from softmax import RATE, ROUNDS, STEPS, job, read_model, scaffold_job

EXAMPLES, CLIENTS = 40, 3
# Single precision: 2^-24 of values below 2, times some tens of operations.
CLOSE = 2e-5


def simulate(federation, *more, name="simulation", code=0):
    """What is said, and the rounds."""
    out = federation.path(name)
    said = harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path, "--clients",
                       federation.clients, "--out", out, *more, code=code)[1]
    if code != 0:
        return said, []
    with open(os.path.join(out, "rounds.jsonl"), encoding="utf-8") as file:
        return said, [json.loads(line) for line in file]


def gradient(weights, examples):
    """Of the mean cross-entropy, in double precision; weights are rows of FEATURES values and a bias."""
    total = [[0.0] * (FEATURES + 1) for _ in range(LABELS)]
    for x, label in examples:
        x = [*x, 1.0]
        logits = [sum(w * v for w, v in zip(row, x)) for row in weights]
        top = max(logits)
        powers = [math.exp(value - top) for value in logits]
        for k in range(LABELS):
            error = powers[k] / sum(powers) - (k == label)
            for i in range(FEATURES + 1):
                total[k][i] += error * x[i] / len(examples)
    return total


def combine(a, b, scale=1.0):
    return [[x + scale * y for x, y in zip(*rows)] for rows in zip(a, b)]


def zeros():
    return [[0.0] * (FEATURES + 1) for _ in range(LABELS)]


def fedavg(weights, clients, rates, change):
    """McMahan et al. 2017, with a change to each gradient: change(gradient, present, first weights)."""
    total = sum(map(len, clients))
    for rate in rates:
        mean = zeros()
        for examples in clients:
            y = weights
            for _ in range(STEPS):
                y = combine(y, change(gradient(y, examples), y, weights), -rate)
            mean = combine(mean, combine(y, weights, -1), len(examples) / total)
        weights = combine(weights, mean)
    return weights


def unchanged(step, _present, _first):
    return step


def scaffold(weights, clients, rounds):
    """Algorithm 1 of Karimireddy et al. 2020 with option II, all clients in each round."""
    mean, own = zeros(), [zeros() for _ in clients]
    for _ in range(rounds):
        moves, changes = zeros(), zeros()
        for i, examples in enumerate(clients):
            y = weights
            for _ in range(STEPS):
                y = combine(y, combine(combine(gradient(y, examples), mean), own[i], -1), -RATE)
            move = combine(y, weights, -1)
            change = combine(combine(zeros(), mean, -1), move, -1 / (STEPS * RATE))
            own[i] = combine(own[i], change)
            moves, changes = combine(moves, move), combine(changes, change)
        weights = combine(weights, moves, 1 / len(clients))
        mean = combine(mean, changes, 1 / len(clients))
    return weights


def feddyn(weights, clients, rounds, alpha):
    """Algorithm 1 of Acar et al. 2021, with so many steps of SGD for each minimum; all clients in each round."""
    state, own = zeros(), [zeros() for _ in clients]
    for _ in range(rounds):
        mean = zeros()
        for i, examples in enumerate(clients):
            y = weights
            for _ in range(STEPS):
                step = combine(combine(gradient(y, examples), own[i], -1), combine(y, weights, -1), alpha)
                y = combine(y, step, -RATE)
            move = combine(y, weights, -1)
            own[i] = combine(own[i], move, -alpha)
            mean = combine(mean, move, 1 / len(clients))
        state = combine(state, mean, -alpha)
        weights = combine(combine(weights, mean), state, -1 / alpha)
    return weights


class Formulas(NetTest):
    """Softmax regression on clients whose data differ. Every step sees all of a client's examples, so that their order
    means nothing."""

    def non_iid(self, federation, index):
        """A client's own file: two labels of the four, unlike its neighbours'."""
        draw = random.Random(index)
        examples = []
        for _ in range(EXAMPLES + 8 * index):
            label = (index + draw.randrange(2)) % LABELS
            x = [draw.gauss((label + i) % 3 - 1, 1) for i in range(FEATURES)]
            examples.append((struct.unpack(f"<{FEATURES}f", struct.pack(f"<{FEATURES}f", *x)), label))
        harness.write_npy(federation.path(f"own/{index}-values.npy"), "<f4", (len(examples), FEATURES),
                          struct.pack(f"<{len(examples) * FEATURES}f", *(v for x, _ in examples for v in x)))
        harness.write_npy(federation.path(f"own/{index}-labels.npy"), "|u1", (len(examples),),
                          bytes(label for _, label in examples))
        return examples

    def write_first(self, path):
        """The model that all begin with, of values that are floats; returns its rows of FEATURES values and a bias."""
        draw = random.Random(1)
        flat = [draw.randrange(-300, 300) / 1024 for _ in range(LABELS * (FEATURES + 1))]
        weights, biases = flat[:LABELS * FEATURES], flat[LABELS * FEATURES:]
        header = {"0.weight": {"dtype": "F32", "shape": [LABELS, FEATURES], "data_offsets": [0, 4 * len(weights)]},
                  "0.bias": {"dtype": "F32", "shape": [LABELS], "data_offsets": [4 * len(weights), 4 * len(flat)]}}
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(flat)}f", *flat))
        return [[*weights[k * FEATURES:(k + 1) * FEATURES], biases[k]] for k in range(LABELS)]

    def last(self, path):
        model = read_model(path)
        flat = [struct.unpack(f"<{len(model[name])}f", b"".join(model[name])) for name in ("0.weight", "0.bias")]
        return [[*flat[0][k * FEATURES:(k + 1) * FEATURES], flat[1][k]] for k in range(LABELS)]

    def play(self, **more):
        """First and last weights, and each client's examples."""
        federation = self.federation(clients=CLIENTS, update__codec="none", update__deflate=False, site={
            "values": "own/*-values.npy", "labels": "own/*-labels.npy", "partition": "per-file"},
            **{"initial-model": "first.safetensors"}, **more)
        os.mkdir(federation.path("own"))
        first = self.write_first(federation.path("first.safetensors"))
        examples = [self.non_iid(federation, i) for i in range(CLIENTS)]
        simulate(federation, "--quiet")
        return first, self.last(federation.path("simulation", "model.safetensors")), examples

    def distance(self, a, b):
        return max(abs(x - y) for rows in zip(a, b) for x, y in zip(*rows))

    def check(self, rates=None, change=unchanged, **training):
        """The run is what the formula says, and not what it would be without the keys."""
        settings = job()
        settings["training"].update(training)
        first, last, examples = self.play(**settings)
        self.assertLess(self.distance(last, fedavg(first, examples, rates or [RATE] * ROUNDS, change)), CLOSE)
        self.assertGreater(self.distance(last, fedavg(first, examples, [RATE] * ROUNDS, unchanged)), 100 * CLOSE)

    def test_fedprox(self):
        self.check(change=lambda step, y, first: combine(step, combine(y, first, -1), 0.5), **{"proximal-mu": 0.5})

    def test_clipping(self):
        def clip(step, _present, _first):
            norm = math.sqrt(sum(x * x for row in step for x in row))
            return combine(zeros(), step, min(1, 0.1 / (norm + 1e-6)))
        self.check(change=clip, **{"clip-norm": 0.1})

    def test_schedules(self):
        after = range(ROUNDS)
        self.check([RATE * 0.5 ** (t // 2) for t in after], schedule={"type": "StepLR", "step_size": 2, "gamma": 0.5})
        self.check([RATE * 0.75 ** t for t in after], schedule={"type": "ExponentialLR", "gamma": 0.75})
        self.check([0.125 + (RATE - 0.125) * (1 + math.cos(math.pi * min(t, 3) / 3)) / 2 for t in after],
                   schedule={"type": "CosineAnnealingLR", "T_max": 3, "eta_min": 0.125})
        self.check([RATE * min(1, (t + 1) / 4) for t in after], schedule={"type": "ConstantLR", "warmup-rounds": 3})

    def test_scaffold(self):
        first, last, examples = self.play(**scaffold_job())
        self.assertLess(self.distance(last, scaffold(first, examples, ROUNDS)), CLOSE)
        self.assertGreater(self.distance(last, fedavg(first, examples, [RATE] * ROUNDS, unchanged)), 100 * CLOSE)
        self.assertEqual((len(first), len(first[0])), (LABELS, FEATURES + 1))

    def test_feddyn(self):
        first, last, examples = self.play(**job(strategy={"type": "FedDyn", "alpha": 0.25}))
        self.assertLess(self.distance(last, feddyn(first, examples, ROUNDS, 0.25)), 2 * CLOSE)
        self.assertGreater(self.distance(last, feddyn(first, examples, ROUNDS, 0.125)), 100 * CLOSE)


class Runs(NetTest):
    def test_what_clients_keep_may_lie_on_disk(self):
        """A whole simulated run gives the same models with all of it in memory and with nearly all in a file."""
        for name, changes in (("residuals", {"update": {"up": "topk:0.1+int8"}}),
                              ("variates", {"strategy": {"type": "SCAFFOLD"}}),
                              ("models", {"strategy": {"type": "Ditto", "lambda": 0.1}})):
            with self.subTest(name):
                federation = self.federation(
                    clients=12, rounds__num_server_rounds=6, rounds__fraction_train=0.5,
                    training={"local-epochs": 1, "batch-size": 16, "learning-rate": 0.05}, **changes)
                hashes, spilled = [], []
                for budget in (1000000, 1500):  # a client keeps about 1,000 bytes
                    said, lines = simulate(federation, "--threads", 2, "--client-state-memory", budget, name=str(budget))
                    spilled.append("client-states-on-disk" in said)
                    hashes.append([line["model_sha256"] for line in lines])
                self.assertEqual(hashes[0], hashes[1])
                self.assertEqual(spilled, [False, True])

    def test_clients_that_go_on_while_rounds_close(self):
        """Whatever the threads, and interrupted, the same models."""
        time_options = ("--compute", "lognormal:100,1", "--failure", 0.1)
        for strategy in {"type": "FedBuff", "buffer-size": 3}, {"type": "FedAsync", "staleness-weight": "hinge"}:
            with self.subTest(strategy["type"]):
                federation = self.federation(clients=12, rounds__num_server_rounds=40, rounds__fraction_train=0.75,
                                             strategy=strategy)
                whole = simulate(federation, "--threads", 2, *time_options)[1]
                alone = simulate(federation, "--threads", 1, *time_options, name="alone")[1]
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

    def test_a_server_without_its_root_set(self):
        federation = self.federation(strategy={
            "type": "FLTrust", "root-set": {"values": "root-values.npy", "labels": "root-labels.npy"}})
        harness.write_examples(federation.folder, "root", 60, 9)
        os.remove(federation.path("root-labels.npy"))
        said, _ = simulate(federation, code=3)
        self.assertIn("the server's root set", said)

    def test_a_shared_object_without_either(self):
        federation = self.federation()
        out = federation.path("nothing.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", out], check=True)
        said, _ = simulate(federation, "--strategy-plugin", out, code=3)
        self.assertIn("has no fedge_strategy_plugin_get or fedge_metric_plugin_get", said)


if __name__ == "__main__":
    harness.main()
