"""What a device has is not sent to it again: over restarts of both sides, and from a file beside the client."""

import glob
import json
import os
import random
import shutil
import struct

import harness
from harness import FEATURES, HIDDEN, LABELS, NetTest, wait_until

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
