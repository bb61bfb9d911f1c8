"""What a device has is not sent to it again: over restarts of both sides, and from a file beside the client."""

import glob
import hashlib
import json
import os
import random
import shutil
import struct

import harness
import relay
from harness import FEATURES, HIDDEN, LABELS, NetTest, wait_until, write_model

LARGE = {"hidden": HIDDEN, "rounds__num_server_rounds": 1}


class Known(NetTest):
    def model_of(self, federation):
        """The first model's file, as the server keeps it."""
        pattern = federation.path("state", "runs", "*", "checkpoints", "round-000000", "model.safetensors")
        return wait_until("the first checkpoint", lambda: glob.glob(pattern))[0]

    def only_messages(self, federation, size):
        """That no more went down than plans and tasks, less than a model of that size."""
        federation.complete()
        down = federation.lines()[0]["bytes_down"]
        self.assertGreater(down, 0)
        self.assertLess(down, size)

    def from_file(self, **job):
        """A job whose initial model clients cannot make."""
        federation = self.federation(**{"initial-model": "start.safetensors"}, **LARGE, **job)
        write_model(federation.path("start.safetensors"))
        return federation

    def test_a_model_that_the_seed_makes_is_not_sent(self):
        """Nor is it made again, or another kept beside it, once a client has been told of a later one."""
        federation = self.federation(**{**LARGE, "rounds__num_server_rounds": 2})
        federation.start_aggregator()
        size = os.path.getsize(self.model_of(federation))
        clients = federation.start_clients()
        self.only_messages(federation, size)
        self.assertGreater(federation.lines()[1]["bytes_down"], 2 * size)
        for index, client in enumerate(clients):
            self.assertEqual(client.wait(), 0, client.tail())
            self.assertLessEqual(len(os.listdir(federation.path(f"client-{index}", "blobs"))), 2)

    def test_neither_side_forgets_in_a_restart(self):
        federation = self.from_file(training__local_epochs=300)
        federation.start_aggregator()
        model = self.model_of(federation)
        with open(model, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        clients = federation.start_clients()
        for index, client in enumerate(clients):
            blob = federation.path(f"client-{index}", "blobs", digest)
            wait_until("the model", lambda path=blob: os.path.exists(path) and
                       os.path.getsize(path) == os.path.getsize(model))
        for program in (*clients, federation.aggregator):
            program.kill()
        federation.start_aggregator()
        federation.start_clients()
        self.only_messages(federation, os.path.getsize(model))

    def damaged(self, damage):
        """A run whose client is killed while the model comes, over a slow link, and goes on after damage(file, size)
        to the part that it has. What it says then, the model at the end, and what it fetches then over the model's size."""
        federation = self.from_file(clients=1, rounds__min_train_nodes=1)
        federation.start_aggregator()
        model = self.model_of(federation)
        size = os.path.getsize(model)
        with open(model, "rb") as file:
            part = federation.path("client-0", "blobs", hashlib.sha256(file.read()).hexdigest())
        way = relay.Relay(("127.0.0.1", federation.port), down_bytes_s=100000)
        self.addCleanup(way.close)
        client = federation.start_client(0, server=f"wss://127.0.0.1:{way.port}")
        wait_until("a part of the model", lambda: os.path.exists(part) and os.path.getsize(part) > size // 4)
        client.kill()
        self.assertLess(os.path.getsize(part), size)
        with open(part, "r+b") as file:
            damage(file, size)
        way = relay.Relay(("127.0.0.1", federation.port))
        self.addCleanup(way.close)
        client = federation.start_client(0, server=f"wss://127.0.0.1:{way.port}")
        federation.complete()
        self.assertEqual(client.wait(), 0, client.tail())
        return client.events("bad-blob"), federation.hashes(), way.bytes_down / size

    def test_a_damaged_part_of_a_model_is_fetched_again(self):
        """Once, and whole; also where more than the model lies there."""
        def flip(file, _):
            file.seek(1000)
            byte = file.read(1)
            file.seek(1000)
            file.write(bytes([byte[0] ^ 4]))

        def lengthen(file, size):
            file.seek(0, os.SEEK_END)
            file.write(bytes(size))
        said, expected, fetched = self.damaged(lambda *_: None)
        self.assertEqual(said, [])
        self.assertLess(fetched, 1)
        for damage in (flip, lengthen):
            with self.subTest(damage.__name__):
                said, hashes, fetched = self.damaged(damage)
                self.assertEqual([event["level"] for event in said], ["warn"])
                self.assertEqual(hashes, expected)
                self.assertGreater(fetched, 1)
                self.assertLess(fetched, 2)


def write_tensors(path, tensors):
    """A model file of (name, shape, bytes)."""
    header, data = {}, b""
    for name, shape, values in tensors:
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def draw_values(seed, count):
    draw = random.Random(seed)
    return struct.pack(f"<{count}f", *(draw.uniform(-0.1, 0.1) for _ in range(count)))


class Parts(NetTest):
    """A model of which most is frozen, or the same again, comes by parts."""

    TRAINED = 4 * HIDDEN * LABELS
    FROZEN = 4 * HIDDEN * (FEATURES + 1)
    BESIDE = 8192  # plan, tasks, lists of parts, headers and answers, for each client

    def frozen(self, **job):
        return self.federation(**{"hidden": HIDDEN, "model__train_last": 1, "rounds__num_server_rounds": 3,
                                  "rounds__min_train_nodes": 3, **job})

    def write_start(self, federation, seed):
        """A model whose frozen layer does not depend on the seed."""
        write_tensors(federation.path("start.safetensors"), (
            ("0.weight", [HIDDEN, FEATURES], draw_values(0, HIDDEN * FEATURES)),
            ("0.bias", [HIDDEN], draw_values(1, HIDDEN)),
            ("2.weight", [LABELS, HIDDEN], draw_values(seed, LABELS * HIDDEN)),
            ("2.bias", [LABELS], draw_values(seed + 1, LABELS))))

    def only_trained(self, line):
        self.assertGreater(line["bytes_down"], 3 * self.TRAINED)
        self.assertLess(line["bytes_down"], 3 * (self.TRAINED + self.BESIDE))

    def test_frozen_layers_are_sent_once(self):
        federation = self.frozen(**{"initial-model": "start.safetensors"})
        self.write_start(federation, 2)
        federation.start_aggregator()
        clients = federation.start_clients()
        federation.complete()
        first, *others = federation.lines()
        self.assertGreater(first["bytes_down"], 3 * (self.TRAINED + self.FROZEN))
        for line in others:
            self.only_trained(line)
        for index, client in enumerate(clients):
            self.assertEqual(client.wait(), 0, client.tail())
            self.assertLessEqual(len(os.listdir(federation.path(f"client-{index}", "blobs"))), 3)

    def test_what_the_seed_has_made_is_not_sent(self):
        federation = self.frozen()
        federation.start_aggregator()
        federation.start_clients()
        federation.complete()
        self.assertLess(federation.lines()[0]["bytes_down"], 3 * self.BESIDE)
        for line in federation.lines()[1:]:
            self.only_trained(line)

    def test_another_run_after_a_restart_of_both_sides(self):
        federation = self.frozen(**{"initial-model": "start.safetensors", "rounds__num_server_rounds": 1})
        for seed in (2, 4):
            self.write_start(federation, seed)
            shutil.rmtree(federation.state, ignore_errors=True)
            federation.start_aggregator()
            clients = federation.start_clients()
            federation.complete()
            for client in clients:
                self.assertEqual(client.wait(), 0, client.tail())
        self.only_trained(federation.lines()[0])

    def test_a_seed_blob_has_parts(self):
        federation = self.frozen(**{"initial-model": "start.safetensors", "rounds__num_server_rounds": 1})
        self.write_start(federation, 2)
        federation.start_aggregator()
        pattern = federation.path("state", "runs", "*", "checkpoints", "round-000000", "model.safetensors")
        model = shutil.copy(wait_until("the first checkpoint", lambda: glob.glob(pattern))[0], federation.path("seed"))
        federation.aggregator.kill()
        shutil.rmtree(federation.state)
        self.write_start(federation, 4)
        federation.start_aggregator()
        for index in range(3):
            federation.start_client(index, **{"seed-blob": model})
        federation.complete()
        self.only_trained(federation.lines()[0])

    def test_equal_tensors_are_sent_once(self):
        width, depth = 128, 6
        layers = [{"type": "Linear", "in_features": FEATURES, "out_features": width}]
        tensors = [("0.weight", [width, FEATURES], draw_values(0, width * FEATURES)),
                   ("0.bias", [width], draw_values(1, width))]
        for index in range(1, depth + 1):
            layers.append({"type": "Linear", "in_features": width, "out_features": width})
            tensors += [(f"{index}.weight", [width, width], draw_values(2, width * width)),
                        (f"{index}.bias", [width], draw_values(3, width))]
        layers.append({"type": "Linear", "in_features": width, "out_features": LABELS})
        tensors += [(f"{depth + 1}.weight", [LABELS, width], draw_values(4, LABELS * width)),
                    (f"{depth + 1}.bias", [LABELS], draw_values(5, LABELS))]
        federation = self.federation(**{"initial-model": "start.safetensors", "model__layers": layers,
                                        "rounds__num_server_rounds": 1, "rounds__min_train_nodes": 3})
        write_tensors(federation.path("start.safetensors"), tensors)
        federation.start_aggregator()
        federation.start_clients()
        federation.complete()
        down, matrix = federation.lines()[0]["bytes_down"], 4 * width * width
        self.assertGreater(down, 3 * matrix)
        self.assertLess(down, 3 * (matrix + 4 * width * FEATURES + depth * 4 * width + 4 * LABELS * width + self.BESIDE))


if __name__ == "__main__":
    harness.main()
