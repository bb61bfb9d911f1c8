"""A simulated run is the deployed one: the same models, round by round, bit for bit."""

import json
import os
import random
import struct

import harness
import test_sections
from harness import FEATURES, LABELS, NetTest
from softmax import scaffold_job

ROUNDS = 3


def own_files(federation):
    """Files of one client each, unlike in length, in another order by their bytes than by their numbers."""
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


WIDE = 24  # features: more than the channels of images


def wide_table(federation):
    """Columns of very unlike sizes; the label is in all of them."""
    draw = random.Random(3)
    for name, count in ("train", 600), ("test", 200):
        labels = [draw.randrange(LABELS) for _ in range(count)]
        values = [10.0 ** (i % 7 - 3) * (i + (label + i) % 3 + draw.gauss(0, 0.7))
                  for label in labels for i in range(WIDE)]
        harness.write_npy(federation.path(f"{name}-values.npy"), "<f4", (count, WIDE),
                          struct.pack(f"<{len(values)}f", *values))
        harness.write_npy(federation.path(f"{name}-labels.npy"), "|u1", (count,), bytes(labels))


class Simulation(NetTest):
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
        model = test_sections.batchnorm(frozen=True)
        plain, _ = self.assert_same(prepare=test_sections.points_as_images, data__shape=[3, 2, 2], model=model)
        changed, lines = self.assert_same(
            prepare=test_sections.points_as_images, data__shape=[3, 2, 2], model=model, training__local_epochs=2,
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
        self.assert_same(model=test_sections.mlp(first={"train": "none"}))

    def test_scaffold(self):
        self.assert_same(**scaffold_job())

    def test_statistics(self):
        self.assert_same(prepare=test_sections.points_as_images, data__shape=[3, 2, 2],
                         model=test_sections.batchnorm())

    def test_statistics_in_a_codec_of_their_own(self):
        self.assert_same(prepare=test_sections.points_as_images, data__shape=[3, 2, 2],
                         model=test_sections.batchnorm(), update={"up": "topk:0.5+int8", "buffers": "bf16"})


if __name__ == "__main__":
    harness.main()
