#!/usr/bin/env python3
"""Writes the divisions of NIID-Bench's own trials with K labels each, for --partition file:CSV.

    divisions.py OUTDIR [--labels-each K] [--labels FILE]

Who has which labels decides much of the accuracy when each of 10 parties has two of 10 labels. The authors' trials had
the seeds 0, 1 and 2 of Python's random numbers, which anyone can draw again: party i has label i, then uniform draws
from all labels until it has K different ones; those that share a label have equal parts of its examples. Which examples
these are is drawn here, since the authors drew them with NumPy's generator.

Writes OUTDIR/labels-K-trial-T.csv for T = 0, 1 and 2 (K: 2, unless said), each with the columns example and client,
and prints every party's labels. FILE is an idx file of labels, gzip or not (default: Fashion-MNIST's of Debian's
package dataset-fashion-mnist).
"""

import argparse
import gzip
import os
import random
import sys
import zlib

PARTIES = NUM_LABELS = 10
TRIALS = (0, 1, 2)
FASHION_MNIST = "/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz"
IDX_HEADER_BYTES = 8


def read_labels(path):
    """One byte for each example."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        sys.exit(f"divisions.py: cannot read {path}: {error}; give an idx file of labels with --labels")
    size = int.from_bytes(data[4:IDX_HEADER_BYTES], "big")
    labels = data[IDX_HEADER_BYTES:]
    if data[:4] != b"\0\0\x08\x01" or len(labels) != size or max(labels, default=NUM_LABELS) >= NUM_LABELS:
        sys.exit(f"divisions.py: {path} is not an idx file of labels from 0 to {NUM_LABELS - 1}")
    return labels


def labels_of_parties(count, generator):
    """The [count] labels of each party."""
    parties = []
    for party in range(PARTIES):
        own = [party % NUM_LABELS]
        while len(own) < count:
            label = generator.randint(0, NUM_LABELS - 1)
            if label not in own:
                own.append(label)
        parties.append(own)
    return parties


def divide(labels, parties, generator):
    """The party of each example."""
    owners = [0] * len(labels)
    for label in range(NUM_LABELS):
        examples = [at for at, value in enumerate(labels) if value == label]
        generator.shuffle(examples)
        sharing = [party for party, own in enumerate(parties) if label in own]
        for at, example in enumerate(examples):
            owners[example] = sharing[at * len(sharing) // len(examples)]
    return owners


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("outdir")
    parser.add_argument("--labels-each", metavar="K", type=int, choices=range(1, NUM_LABELS + 1), default=2)
    parser.add_argument("--labels", metavar="FILE", default=FASHION_MNIST)
    args = parser.parse_args()
    labels = read_labels(args.labels)
    try:
        os.makedirs(args.outdir, exist_ok=True)
    except OSError as error:
        sys.exit(f"divisions.py: cannot make {args.outdir}: {error.strerror}")
    for trial in TRIALS:
        generator = random.Random(trial)
        parties = labels_of_parties(args.labels_each, generator)
        path = os.path.join(args.outdir, f"labels-{args.labels_each}-trial-{trial}.csv")
        with open(path, "w", encoding="ascii") as file:
            file.write("example,client\n")
            file.writelines(f"{example},{owner}\n" for example, owner in enumerate(divide(labels, parties, generator)))
        print(f"{path}: {'; '.join(' '.join(map(str, own)) for own in parties)}")


if __name__ == "__main__":
    main()
