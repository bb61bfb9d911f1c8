"""What cohorts.py and torch_cohort.py both measure: models, batches, clients, and examples that are made up."""

import json
import os
import random
import struct

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COHORTS = (10, 100, 1000)
BATCH, RATE, SEED = 10, 0.01, 7
POOL = 2000  # different examples; each client has some of them

# name: job, examples of a client, FLOP of an example as edge/train/flops.h counts them
CASES = {
    "2NN": ("examples/zoo/2nn.json", 100, 879200),
    "McMahan's CNN": ("examples/zoo/mcmahan-cnn.json", 100, 72384512),
    "CIFAR-10-sized CNN": ("tests/bench/simulate/cifar-cnn.json", 50, 99456000),
    "ResNet-8": ("examples/zoo/resnet-8-groupnorm.json", 50, 74125056),
    "character LSTM": ("examples/zoo/char-lstm.json", 20, 381542400),
    "small transformer": ("examples/zoo/transformer-small.json", 50, 52193280),
}
QUICK = {"2NN": ((2,), 2)}  # cohorts, examples of a client


def selected(quick):
    """name, job, examples of a client, cohorts, FLOP of an example."""
    for name, (path, examples, flops) in CASES.items():
        if not quick or name in QUICK:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                job = json.load(file)
            cohorts, few = QUICK[name] if quick else (COHORTS, examples)
            yield name, job, few, cohorts, flops


def example_bytes(job, count):
    """Values and labels of so many examples; characters of a text are below the number of labels."""
    drawn = random.Random(SEED)
    size = 1
    for extent in job["data"]["shape"]:
        size *= extent
    values = drawn.randbytes(count * size)
    if len(job["data"]["shape"]) == 1:
        values = bytes(value % job["data"]["labels"] for value in values)
    return values, [drawn.randrange(job["data"]["labels"]) for _ in range(count)]


def write_npy(path, kind, shape, content):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode("ascii")
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content)
