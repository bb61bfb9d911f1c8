"""Tests that simulated and deployed runs have the same models, round by round and bit for bit: with each strategy, also
when the aggregator and a device are killed, and with each kind of codec and data.

FEDGE_NET_PART=K/N plays the K-th of N parts of the strategies.
"""

import glob
import json
import os
import random
import signal
import struct

import harness
import softmax
from harness import FEATURES, LABELS, NetTest, batchnorm, points_as_images

ROUNDS = 3
CLIENTS = 8  # clients of each strategy's run
PART, PARTS = map(int, os.environ.get("FEDGE_NET_PART", "1/1").split("/"))

# Times of kills: before and after the first checkpoint is renamed, and with updates in the journal.
MOMENTS = (("rename", 1, "kill-before", "round-000001"), ("rename", 1, "kill-after", "round-000001"),
           ("fdatasync", 3, "kill-after", "journal"))

ON_CLIENTS = {"no_test_set": True, "rounds__fraction_evaluate": 1.0, "site": {"validation-fraction": 0.25}}
# More rounds, so that some updates are stale.
BUFFERED = {"rounds__num_server_rounds": 16}

# By strategy: arguments that are required or not the defaults, and other keys of the job and of the devices' files.
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
    "FedBN": ({}, {**ON_CLIENTS, "prepare": points_as_images, "data__shape": [3, 2, 2],
                   "model": batchnorm()}),
    "Ditto": ({"lambda": 0.5}, {**ON_CLIENTS, "no_test_set": False}),
    "IFCA": ({"num-clusters": 3}, {**ON_CLIENTS, "site": {"validation-fraction": 0.25, "partition": "dirichlet:0.1"}}),
    "FedBuff": ({"buffer-size": 3}, BUFFERED),
    "FedAsync": ({"max-staleness": 30}, BUFFERED),
}
NAMES = sorted(CASES)


def own_files(federation):
    """Files of one client each, with different lengths, whose order by bytes is not that by numbers."""
    os.mkdir(federation.path("own"))
    for number, count in (2, 40), (9, 70), (10, 100):
        harness.write_examples(federation.path("own"), f"part-{number}", count, number)


def leaf_files(federation):
    """Two of LEAF's files; "a" has examples in both."""
    os.mkdir(federation.path("leaf"))
    draw = random.Random(1)

    def examples(count):
        labels = [draw.randrange(LABELS) for _ in range(count)]
        return {"x": [[draw.gauss((label + i) % 3 - 1, 1) for i in range(FEATURES)] for label in labels], "y": labels}
    for number, counts in enumerate(({"a": 30, "b": 60}, {"c": 90, "a": 20})):
        federation.write(f"leaf/data_{number}.json", {
            "users": list(counts), "num_samples": list(counts.values()),
            "user_data": {user: examples(count) for user, count in counts.items()}})


WIDE = 24  # features; more than images have channels


def wide_table(federation):
    """Writes columns of very different scales, each of which shows the label."""
    draw = random.Random(3)
    for name, count in ("train", 600), ("test", 200):
        labels = [draw.randrange(LABELS) for _ in range(count)]
        values = [10.0 ** (i % 7 - 3) * (i + (label + i) % 3 + draw.gauss(0, 0.7))
                  for label in labels for i in range(WIDE)]
        harness.write_npy(federation.path(f"{name}-values.npy"), "<f4", (count, WIDE),
                          struct.pack(f"<{len(values)}f", *values))
        harness.write_npy(federation.path(f"{name}-labels.npy"), "|u1", (count,), bytes(labels))


class SameTest(NetTest):
    def deployed(self, prepare=None, **options):
        federation = self.federation(**{"rounds__num_server_rounds": ROUNDS, **options})
        if prepare:
            prepare(federation)
        federation.start_aggregator()
        clients = federation.start_clients()
        federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        return federation

    def simulated(self, federation, *more, code=0, threads=2):
        out = federation.path(f"simulation-{threads}")
        harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                    "--clients", federation.clients, "--threads", threads, "--out", out, *more, code=code)
        with open(os.path.join(out, "rounds.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def assert_same(self, **options):
        federation = self.deployed(**options)
        lines = self.simulated(federation)
        wanted = federation.lines()
        train = [line for line in lines if line["phase"] == "train"]
        self.assertEqual([line["model_sha256"] for line in train],
                         [line["model_sha256"] for line in wanted])
        for key in "asked", "clients", "examples", "clamped":
            self.assertEqual([line[key] for line in train], [line[key] for line in wanted], key)
        for key in "loss", "accuracy", "train_loss", "train_accuracy":
            for mine, theirs in zip(train, wanted):
                self.assertAlmostEqual(mine[key], theirs[key], places=6, msg=key)
        return federation, lines


class Simulation(SameTest):
    def test_every_codec(self):
        sizes = []
        for up in "none", "f16", "bf16", "int8", "int4+deflate":
            with self.subTest(up):
                _, lines = self.assert_same(update={"up": up})
                sizes.append(lines[0]["bytes_up"])
        self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_floats_and_a_skewed_division(self):
        federation, lines = self.assert_same(
            clients=5, update__codec="none", update__deflate=False,
            site={"partition": "dirichlet:0.5", "partition-seed": 3})
        alone = self.simulated(federation, threads=1)
        self.assertEqual([line["model_sha256"] for line in alone], [line["model_sha256"] for line in lines])

    def test_a_file_for_each_client(self):
        _, lines = self.assert_same(prepare=own_files, site={
            "values": "own/*-values.npy", "labels": "own/*-labels.npy", "partition": "per-file"})
        self.assertEqual(lines[0]["examples"], 40 + 70 + 100)

    def test_users_of_leaf(self):
        _, lines = self.assert_same(prepare=leaf_files, site={
            "values": "leaf", "labels": "", "partition": "natural:user"})
        self.assertEqual(lines[0]["examples"], 30 + 60 + 90 + 20)

    def test_part_of_the_clients_each_round(self):
        self.assert_same(clients=6, rounds__fraction_train=0.5, rounds__min_train_nodes=3)

    def test_evaluation_on_clients(self):
        federation, lines = self.assert_same(rounds__fraction_evaluate=1.0, site={"validation-fraction": 0.25})
        mine = [line for line in lines if line["phase"] == "evaluate"]
        wanted = federation.lines("evaluate")
        self.assertEqual(len(mine), ROUNDS)
        for got, expected in zip(mine, wanted):
            self.assertEqual((got["clients"], got["examples"]), (expected["clients"], expected["examples"]))
            self.assertAlmostEqual(got["loss"], expected["loss"], places=9)
            self.assertAlmostEqual(got["accuracy"], expected["accuracy"], places=9)

    def test_losses_of_real_numbers_have_no_accuracy(self):
        federation = self.deployed(rounds__fraction_evaluate=1.0, site={"validation-fraction": 0.25},
                                   model__loss={"type": "MSELoss"})
        for lines in self.simulated(federation), federation.lines("train") + federation.lines("evaluate"):
            self.assertEqual(len(lines), 2 * ROUNDS)
            for line in lines:
                self.assertIsNone(line["accuracy"])
                self.assertIsNotNone(line["loss"])
                self.assertIsNone(line["train_accuracy"])

    def test_augmentation(self):
        model = batchnorm(frozen=True)
        plain, _ = self.assert_same(prepare=points_as_images, data__shape=[3, 2, 2], model=model)
        changed, lines = self.assert_same(
            prepare=points_as_images, data__shape=[3, 2, 2], model=model, training__local_epochs=2,
            data__augmentation={"horizontal-flip": 0.5, "crop": {"padding": 1}})
        self.assertNotEqual(plain.lines()[0]["train_loss"], changed.lines()[0]["train_loss"])
        alone = self.simulated(changed, threads=1)
        self.assertEqual([line["model_sha256"] for line in alone], [line["model_sha256"] for line in lines])

    def test_each_feature_is_normalised(self):
        scales = [10.0 ** (i % 7 - 3) for i in range(WIDE)]
        federation, lines = self.assert_same(
            prepare=wide_table, data__shape=[WIDE], model__input_shape=[WIDE], training__optimizer={"type": "SGD"},
            model__layers=[{"type": "Linear", "in_features": WIDE, "out_features": LABELS}],
            data__normalisation={"mean": [scale * (i + 1) for i, scale in enumerate(scales)], "std": scales})
        self.assertGreater(lines[-1]["accuracy"], 0.6)  # chance is 0.25
        said, _ = federation.model(os.path.join(federation.run_folder(), "model.safetensors"))
        told = json.loads(said["normalisation"])
        self.assertEqual((len(told["mean"]), len(told["std"])), (WIDE, WIDE))
        self.assertAlmostEqual(told["std"][3], scales[3])

    def test_frozen_layers(self):
        self.assert_same(model__train_last=1)

    def test_scaffold(self):
        self.assert_same(**softmax.scaffold_job())

    def test_statistics(self):
        self.assert_same(prepare=points_as_images, data__shape=[3, 2, 2],
                         model=batchnorm())

    def test_statistics_in_a_codec_of_their_own(self):
        self.assert_same(prepare=points_as_images, data__shape=[3, 2, 2],
                         model=batchnorm(), update={"up": "topk:0.5+int8", "buffers": "bf16"})


class Targets(SameTest):
    """Numbers in place of classes."""

    UNITS = {"mean": [50, -2], "std": [10, 0.5]}
    JOB = {"model__layers": [{"type": "Linear", "in_features": FEATURES, "out_features": 2}],
           "model__loss": {"type": "HuberLoss"}, "test_set": {"values": "test.csv"}}

    @staticmethod
    def data(**more):
        return {"name": "points", "shape": [FEATURES], "dtype": "f32", **more}

    @staticmethod
    def table(federation):
        """Columns of two targets, in units of their own, between those of the values."""
        draw = random.Random(5)
        for name, count in ("train", 600), ("test", 200):
            with open(federation.path(name + ".csv"), "w", encoding="utf-8") as file:
                names = [f"v{i}" for i in range(FEATURES)]
                print(",".join(["price", *names[:3], "load", *names[3:]]), file=file)
                for _ in range(count):
                    v = [draw.gauss(0, 1) for _ in range(FEATURES)]
                    load, price = 50 + 10 * (v[0] - v[3]) + draw.gauss(0, 1), -2 + v[1] * 0.5
                    print(*(round(x, 5) for x in [price, *v[:3], load, *v[3:]]), sep=",", file=file)

    def same(self, prepare=None, **options):
        federation, lines = self.assert_same(
            prepare=prepare or self.table, rounds__fraction_evaluate=1.0, **{**self.JOB, **options})
        theirs = federation.lines("train") + federation.lines("evaluate")
        mine = sorted(lines, key=lambda line: (line["phase"] != "train", line["round"]))
        self.assertEqual(len(mine), 2 * ROUNDS)
        for got, expected in zip(mine, theirs):
            self.assertEqual("metrics" in got, "metrics" in expected)
            for key, value in got.get("metrics", {}).items():
                self.assertAlmostEqual(value, expected["metrics"][key], places=5, msg=key)
        return federation, lines

    def test_columns_by_name(self):
        federation, lines = self.same(
            data=self.data(targets={"columns": ["load", "price"], **self.UNITS}), keep_best={"metric": "test-rmse"},
            site={"values": "train.csv", "labels": "", "validation-fraction": 0.25})
        path = os.path.join(federation.run_folder(), "model.safetensors")
        tensors = {name: [struct.unpack("<f", value)[0] for value in values]
                   for name, values in softmax.read_model(path).items()}
        with open(federation.path("test.csv"), encoding="utf-8") as file:
            names, *rows = [line.strip().split(",") for line in file]
        errors, targets = [], {"load": [], "price": []}
        for row in rows:
            of = {name: float(text) for name, text in zip(names, row)}
            x = [of[f"v{i}"] for i in range(FEATURES)]
            for k, name in enumerate(targets):
                y = sum(w * v for w, v in zip(tensors["0.weight"][k * FEATURES:], x)) + tensors["0.bias"][k]
                errors.append((y * self.UNITS["std"][k] + self.UNITS["mean"][k], of[name]))
                targets[name].append(of[name])
        squares = sum((y - t) ** 2 for y, t in errors)
        around = sum((t - sum(ts) / len(ts)) ** 2 for ts in targets.values() for t in ts)
        said, _ = federation.model(path)
        self.assertEqual(json.loads(said["targets"]),
                         {"shape": [2], "dtype": "f32", "columns": ["load", "price"], **self.UNITS})
        last = [line for line in lines if line["phase"] == "train"][-1]
        for key, value in (("mae", sum(abs(y - t) for y, t in errors) / len(errors)),
                           ("rmse", (squares / len(errors)) ** 0.5), ("r2", 1 - squares / around),
                           ("mape", sum(abs(y / t - 1) for y, t in errors) / len(errors))):
            self.assertAlmostEqual(last["metrics"][key] / value, 1, places=4, msg=key)
        self.assertGreater(last["metrics"]["r2"], 0.9)

    def test_an_autoencoder(self):
        _, lines = self.same(
            prepare=lambda _: None, data=self.data(targets="input"), test_set={"values": "test-values.npy"},
            model__layers=[{"type": "Linear", "in_features": FEATURES, "out_features": 6}, {"type": "Tanh"},
                           {"type": "Linear", "in_features": 6, "out_features": FEATURES}],
            model__loss={"type": "MSELoss"}, site={"labels": "", "validation-fraction": 0.25})
        first, *_, last = [line["metrics"]["rmse"] for line in lines if line["phase"] == "train"]
        self.assertLess(last, first)

    def test_several_right_answers(self):
        def write(federation):
            draw = random.Random(6)
            for name, count in ("train", 600), ("test", 200):
                values = [draw.gauss(0, 1) for _ in range(count * FEATURES)]
                harness.write_npy(federation.path(name + "-v.npy"), "<f4", (count, FEATURES),
                                  struct.pack(f"<{len(values)}f", *values))
                answers = bytes(values[i * FEATURES + k] > 0 for i in range(count) for k in range(2))
                harness.write_npy(federation.path(name + "-t.npy"), "|u1", (count, 2), answers)
        _, lines = self.same(
            prepare=write, data=self.data(targets={"shape": [2]}), model__loss={"type": "BCEWithLogitsLoss"},
            test_set={"values": "test-v.npy", "labels": "test-t.npy"},
            site={"values": "train-v.npy", "labels": "train-t.npy", "validation-fraction": 0.25})
        self.assertGreater(lines[-1]["accuracy"], 0.8)  # chance is 0.25
        self.assertNotIn("metrics", lines[-1])


class Codecs(SameTest):
    """Codecs, and state that clients keep from round to round."""

    def same_with(self, **update):
        """Each round has some of the clients, so that residuals are from different rounds."""
        federation, lines = self.assert_same(
            update=update, clients=5, rounds__fraction_train=0.5, rounds__min_train_nodes=2,
            rounds__num_server_rounds=2 * ROUNDS)
        self.assertEqual(len(lines), 2 * ROUNDS)
        return federation.hashes(), lines[-1]["bytes_up"]

    def test_a_simulated_run_is_the_deployed_one(self):
        seen = set()
        for update in ({"up": "topk:0.1+int8+deflate"}, {"up": "topk:0.1+int8+deflate", "residual-half-life": 1},
                       {"up": "topk:0.1+int8+deflate", "error-feedback": "off"}, {"up": "ternary:0.05"},
                       {"up": "randk:0.2+int4"}, {"up": "int4"}, {"up": "int4", "error-feedback": "on"},
                       {"up": "ternary:0.05+int8+deflate", "layers": [{"tensors": "vectors", "codec": "none"},
                                                                      {"tensors": "0.*", "codec": "topk:0.1+int8"}]}):
            with self.subTest(update):
                hashes, _ = self.same_with(**update)
                seen.add(hashes[-1])
        self.assertEqual(len(seen), 8)  # all results differ

    def test_models_travel_as_deltas(self):
        """Clients that missed rounds catch up by several deltas, beginning with the model that the seed makes. The bits
        are the same in all cases."""
        seen, down = set(), {}
        for update in ({"up": "int8"}, {"up": "int8", "down": "int8+deflate"},
                       {"up": "topk:0.1+int8", "down": "topk:0.2+int4+deflate"},
                       {"up": "int8", "down": "int8+deflate", "layers": [
                           {"tensors": "vectors", "codec": "none"},
                           {"tensors": "0.*", "codec": "int4", "down": "topk:0.1+int4"}]}):
            with self.subTest(update):
                federation, lines = self.assert_same(
                    update=update, clients=5, hidden=400, rounds__fraction_train=0.5, rounds__min_train_nodes=2,
                    rounds__num_server_rounds=2 * ROUNDS)
                seen.add(federation.hashes()[-1])
                down[len(seen)] = (sum(line["bytes_down"] for line in federation.lines()),
                                            sum(line["bytes_down"] for line in lines))
        self.assertEqual(len(seen), 4)
        deployed, simulated = zip(*down.values())
        self.assertLess(deployed[1], 0.5 * deployed[0])  # no client gets a whole model
        for mine, theirs in zip(simulated[1:], deployed[1:]):
            self.assertLess(mine, theirs)
            self.assertLess(theirs, mine + 3000 * 6 * ROUNDS)  # tasks, with 8 deltas each

    def test_a_client_that_was_long_away_gets_a_delta(self):
        """Each round has one of five clients, so some of them miss more than eight rounds."""
        federation, lines = self.assert_same(
            update={"up": "int8", "down": "topk:0.01+int4"}, clients=5, hidden=400, rounds__fraction_train=0.2,
            rounds__min_train_nodes=1, rounds__num_server_rounds=24)
        whole = os.path.getsize(os.path.join(federation.run_folder(), "model.safetensors"))
        self.assertEqual(lines[0]["bytes_down"], 0)
        for of in (lines, federation.lines()):
            self.assertLess(max(line["bytes_down"] for line in of), 0.75 * whole)

    def test_models_travel_as_deltas_with_statistics(self):
        federation, _ = self.assert_same(
            prepare=points_as_images, data__shape=[3, 2, 2], model=batchnorm(),
            update={"up": "int8", "down": "int8+deflate"}, rounds__fraction_evaluate=1.0,
            site={"validation-fraction": 0.25})
        self.assertEqual(len(federation.lines()), 3)


# Each cohort has three of five clients, so that what the server knows of clients matters.
SAMPLERS = {
    "examples": {"minimum-share": 0.5},
    "available": {},
    "utility": {"inverse-probability": True},
}


class Samplers(SameTest):
    def test_some_of_the_clients_each_round(self):
        """The state of clients is from different rounds."""
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


def known():
    """Returns the strategies that a job may name. A unit test compares the schema with the program's table."""
    path = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "docs", "job.schema.json")
    with open(path, encoding="utf-8") as file:
        schema = json.load(file)
    prefix = "#/$defs/strategy-"
    return {choice["$ref"].removeprefix(prefix) for choice in schema["properties"]["strategy"]["oneOf"]}


def read_lines(path, phase):
    with open(path, encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["phase"] == phase]


def last_lines(path):
    """Returns hash and loss of the last line of each phase."""
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

    def interrupted(self, name, strategy, options):
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
        """Runs the job in the simulator. Returns the folder of its results."""
        out = federation.path("plain" if job else "simulation")
        harness.run("fedge-simulate", "--job", job or federation.job_path, "--data", federation.site_path, "--clients",
                    CLIENTS, "--threads", 2, "--out", out, *more)
        return out

    def plain(self, federation):
        """Returns the result of the same job with FedAvg and its defaults."""
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        job.get("update", {}).pop("control", None)  # FedAvg's clients do not send it
        out = self.simulated(federation, job=federation.write("plain.json", {**job, "strategy": {"type": "FedAvg"}}))
        return last_lines(os.path.join(out, "rounds.jsonl"))

    def check_order(self, lines, strategy):
        """Asynchronous strategies have updates that began in other rounds than the one in which they counted."""
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
        """Compares all models at the end of the runs."""
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
