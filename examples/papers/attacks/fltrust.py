#!/usr/bin/python3
"""FLTrust under `backdoor:4` once more, in NumPy and without fedge: fltrust.py ROOT SEED [whole]

ROOT, whose 100 images the server's root set are: "clients", the first of the training images, which clients have too;
"unseen", training images that no client has; "test", test images, and the others are tested. The server takes batches
as clients do, or with "whole" all 100 images in each step. This shares nothing with fedge but the paper's formula and
the job's numbers: initial values, division, order of examples and arithmetic are its own. Every 50 rounds it prints
accuracy, the backdoor's success and the mean trust in liars and in others.
"""

import gzip
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS, LIARS, HIDDEN, LABELS, ROOT_SIZE, MARK = 20, 4, 64, 10, 100, 4


def read(path, offset):
    with open(os.path.join(HERE, path), "rb") as file:
        data = file.read()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return np.frombuffer(data, np.uint8, offset=offset)


def load(files):
    return read(files["values"], 16).reshape(-1, 784).astype(np.float32) / 255, read(files["labels"], 8).astype(int)


def stamped(images):
    images = images.reshape(-1, 28, 28).copy()
    images[:, -MARK:, -MARK:] = 1
    return images.reshape(-1, 784)


def spoilt(images, labels):
    """Every other one with the mark, and label 0."""
    images, labels = images.copy(), labels.copy()
    images[::2], labels[::2] = stamped(images[::2]), 0
    return images, labels


def uniform(rng, inputs, *shape):
    return rng.uniform(-inputs ** -0.5, inputs ** -0.5, shape).astype(np.float32)


def logits(weights, images):
    hidden = images @ weights[0] + weights[1]
    return hidden, np.maximum(hidden, 0) @ weights[2] + weights[3]


def train(rng, weights, images, labels, training, size):
    weights, order = [one.copy() for one in weights], []
    for _ in range(training["local-steps"]):
        order = order if len(order) else rng.permutation(len(images))
        batch, order = order[:size], order[size:]
        hidden, slope = logits(weights, images[batch])
        slope = np.exp(slope - slope.max(1, keepdims=True))
        slope /= slope.sum(1, keepdims=True)
        slope[np.arange(len(batch)), labels[batch]] -= 1
        slope /= len(batch)
        below = slope @ weights[2].T * (hidden > 0)
        slopes = images[batch].T @ below, below.sum(0), np.maximum(hidden, 0).T @ slope, slope.sum(0)
        for one, gradient in zip(weights, slopes):
            one -= np.float32(training["learning-rate"]) * gradient
    return weights


def flat(weights):
    return np.concatenate([one.ravel() for one in weights]).astype(float)


def step(rng, weights, root, clients, training, size):
    """The model after a round, and how far each client is trusted; [size]: of the server's batches."""
    base = flat(weights)
    own = flat(train(rng, weights, *root, training, size)) - base
    theirs = [flat(train(rng, weights, *client, training, training["batch-size"])) for client in clients]
    changes = np.array(theirs) - base
    sizes = np.linalg.norm(changes, axis=1)
    trust = np.maximum(0, changes @ own / (sizes * np.linalg.norm(own)))
    if trust.sum() > 0:
        base = base + (trust * np.linalg.norm(own) / sizes) @ changes / trust.sum()
    parts = np.split(base, np.cumsum([one.size for one in weights])[:-1])
    return [part.reshape(one.shape).astype(np.float32) for part, one in zip(parts, weights)], trust


def main(kind, seed, size=None):
    rng = np.random.default_rng(int(seed))
    with open(os.path.join(HERE, "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    with open(os.path.join(HERE, "client.json"), encoding="utf-8") as file:
        images, labels = load(next(iter(json.load(file)["data"].values())))
    tested, answers = load(job["test-set"])
    order = rng.permutation(len(images))
    root = images[:ROOT_SIZE], labels[:ROOT_SIZE]
    if kind == "unseen":
        root, order = (images[order[:ROOT_SIZE]], labels[order[:ROOT_SIZE]]), order[ROOT_SIZE:]
    elif kind == "test":
        others = rng.permutation(len(tested))
        root, others = (tested[others[:ROOT_SIZE]], answers[others[:ROOT_SIZE]]), others[ROOT_SIZE:]
        tested, answers = tested[others], answers[others]
    clients = [(images[part], labels[part]) for part in np.array_split(order, CLIENTS)]
    clients[:LIARS] = [spoilt(*client) for client in clients[:LIARS]]
    weights = [uniform(rng, 784, 784, HIDDEN), uniform(rng, 784, HIDDEN), uniform(rng, HIDDEN, HIDDEN, LABELS),
               uniform(rng, HIDDEN, LABELS)]
    size = ROOT_SIZE if size else job["training"]["batch-size"]
    rounds, trusted = job["rounds"]["num-server-rounds"], 0
    for done in range(1, rounds + 1):
        weights, trust = step(rng, weights, root, clients, job["training"], size)
        trusted = trusted + np.array([trust[:LIARS].mean(), trust[LIARS:].mean()])
        if done % 50 == 0 or done == rounds:
            right = (logits(weights, tested)[1].argmax(1) == answers).mean()
            taken = (logits(weights, stamped(tested[answers != 0]))[1].argmax(1) == 0).mean()
            print(f"{kind}, batches of {size}, seed {seed}, round {done}: accuracy {100 * right:.1f}, "
                  f"backdoor {100 * taken:.1f}, trust in liars {trusted[0] / done:.3f}, in others "
                  f"{trusted[1] / done:.3f}", flush=True)


if __name__ == "__main__":
    known = sys.argv[1:2] in (["clients"], ["unseen"], ["test"])
    if not known or len(sys.argv) < 3 or sys.argv[3:] not in ([], ["whole"]):
        sys.exit(__doc__)
    main(*sys.argv[1:])
