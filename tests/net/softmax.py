"""Softmax regression on clients whose data differ, as a job and once more in double precision.

Every step sees all of a client's examples, so that their order means nothing and what fedge does can
be compared with an algorithm written from its paper.
"""

import json
import math
import os
import random
import struct

import harness
from harness import FEATURES, LABELS, NetTest

EXAMPLES, STEPS, ROUNDS, RATE = 40, 3, 5, 0.5
# Single precision: 2^-24 of values below 2, times some tens of operations.
CLOSE = 2e-5


def read_model(path):
    """Values of a safetensors file: name to a list of bytes of four."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in tensor["data_offsets"])
            tensors[name] = [data[i:i + 4] for i in range(begin, end, 4)]
    return tensors


def job(**more):
    return {"model": {"input-shape": [FEATURES], "layers": [
                {"type": "Linear", "in_features": FEATURES, "out_features": LABELS}]},
            "rounds__num_server_rounds": ROUNDS,
            "training": {"local-steps": STEPS, "batch-size": 64, "learning-rate": RATE}, **more}


def scaffold_job(**more):
    return job(strategy={"type": "SCAFFOLD"}, **more)


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


class SoftmaxTest(NetTest):
    def non_iid(self, federation, index):
        """A client's own files: two labels of the four, unlike its neighbours'."""
        draw = random.Random(index)
        examples = []
        for _ in range(EXAMPLES + 8 * index):
            label = (index + draw.randrange(2)) % LABELS
            x = [draw.gauss((label + i) % 3 - 1, 1) for i in range(FEATURES)]
            examples.append((struct.unpack(f"<{FEATURES}f", struct.pack(f"<{FEATURES}f", *x)), label))
        harness.write_npy(federation.path(f"values-{index}.npy"), "<f4", (len(examples), FEATURES),
                          struct.pack(f"<{len(examples) * FEATURES}f", *(v for x, _ in examples for v in x)))
        harness.write_npy(federation.path(f"labels-{index}.npy"), "|u1", (len(examples),),
                          bytes(label for _, label in examples))
        federation.write(f"site-{index}.json", {"data": {"points": {
            "values": f"values-{index}.npy", "labels": f"labels-{index}.npy"}}})
        return examples

    def weights_of(self, path):
        model = read_model(path)
        flat = [struct.unpack(f"<{len(model[name])}f", b"".join(model[name])) for name in ("0.weight", "0.bias")]
        return [[*flat[0][k * FEATURES:(k + 1) * FEATURES], flat[1][k]] for k in range(LABELS)]

    def play(self, **more):
        """First and last weights, and each client's examples."""
        federation = self.federation(keep_checkpoints=ROUNDS + 1, update__codec="none", update__deflate=False,
                                     **more)
        examples = [self.non_iid(federation, i) for i in range(3)]
        federation.start_aggregator()
        for i in range(3):
            federation.start_client(i, config=federation.path(f"site-{i}.json"), partition_id=None,
                                    num_partitions=None)
        federation.complete()
        folder = os.path.join(federation.run_folder(), "checkpoints")
        first, last = (self.weights_of(os.path.join(folder, f"round-{r:06}", "model.safetensors"))
                       for r in (0, ROUNDS))
        return first, last, examples

    def distance(self, a, b):
        return max(abs(x - y) for rows in zip(a, b) for x, y in zip(*rows))
