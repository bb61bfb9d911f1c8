"""Five rounds of personalized federated learning in double precision, from the papers: make_golden.py [DIR]

Each NAME.json has a job's model, training and strategy, the clients' examples, the first model, and
what comes of them: the server's model of the last round, and what each client has for itself. Batches
have all of a client's examples, so that their order means nothing.
"""

import json
import os
import sys

import numpy as np

ROUNDS, CLIENTS, FEATURES, LABELS, HIDDEN = 5, 3, 4, 3, 3
RATE, MOMENTUM, EPOCHS, EPS, BN_MOMENTUM = 0.25, 0.5, 2, 1e-5, 0.1


class Perceptron:
    """Linear, Tanh, Linear; parameters as the file of the model has them, in one list of arrays."""

    layers = [{"type": "Linear", "in_features": FEATURES, "out_features": HIDDEN}, {"type": "Tanh"},
              {"type": "Linear", "in_features": HIDDEN, "out_features": LABELS}]
    shape = [FEATURES]
    sizes = [(HIDDEN, FEATURES), (HIDDEN,), (LABELS, HIDDEN), (LABELS,)]
    statistics = []

    @staticmethod
    def gradients(values, x, labels):
        w1, b1, w2, b2 = values
        h = np.tanh(x @ w1.T + b1)
        error = softmax_error(h @ w2.T + b2, labels)
        inner = error @ w2 * (1 - h ** 2)
        return [inner.T @ x, inner.sum(0), error.T @ h, error.sum(0)]


class Convolution:
    """Conv2d of 1 by 1, BatchNorm2d, Tanh, Flatten, Linear; the statistics are last in the list."""

    channels, width = 2, FEATURES // 2
    layers = [{"type": "Conv2d", "in_channels": 2, "out_channels": HIDDEN, "kernel_size": 1},
              {"type": "BatchNorm2d", "num_features": HIDDEN}, {"type": "Tanh"}, {"type": "Flatten"},
              {"type": "Linear", "in_features": HIDDEN * 2, "out_features": LABELS}]
    shape = [2, 1, 2]
    sizes = [(HIDDEN, 2, 1, 1), (HIDDEN,), (HIDDEN,), (HIDDEN,), (LABELS, HIDDEN * 2), (LABELS,)]
    statistics = [(HIDDEN,), (HIDDEN,)]

    @classmethod
    def gradients(cls, values, x, labels):
        """Moves the statistics, as a forward pass in training does."""
        w, b, gamma, beta, w2, b2, mean, variance = values
        x = x.reshape(len(x), cls.channels, cls.width)
        z = np.einsum("oc,ncw->now", w[:, :, 0, 0], x) + b[None, :, None]
        mu, var = z.mean((0, 2)), z.var((0, 2))
        count = len(x) * cls.width
        mean += BN_MOMENTUM * (mu - mean)
        variance += BN_MOMENTUM * (var * count / (count - 1) - variance)
        root = np.sqrt(var + EPS)[None, :, None]
        normal = (z - mu[None, :, None]) / root
        h = np.tanh(gamma[None, :, None] * normal + beta[None, :, None])
        flat = h.reshape(len(x), -1)
        error = softmax_error(flat @ w2.T + b2, labels)
        inner = (error @ w2).reshape(h.shape) * (1 - h ** 2)
        d = inner * gamma[None, :, None]
        dz = (d - d.mean((0, 2), keepdims=True) - normal * (d * normal).mean((0, 2), keepdims=True)) / root
        return [np.einsum("now,ncw->oc", dz, x)[:, :, None, None], dz.sum((0, 2)),
                (inner * normal).sum((0, 2)), inner.sum((0, 2)), error.T @ flat, error.sum(0)]


def softmax_error(logits, labels):
    """Gradient of the mean cross-entropy."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    error = powers / powers.sum(1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    return error / len(labels)


def train(model, values, examples, steps, trained, pull=0.0, anchor=None):
    """SGD with momentum on the parameters of [trained]; [pull] toward [anchor]."""
    values = [v.copy() for v in values]
    velocity = [np.zeros_like(v) for v in values]
    for _ in range(steps):
        slopes = model.gradients(values, *examples)
        for i in trained:
            slope = slopes[i] + (pull * (values[i] - anchor[i]) if pull else 0)
            velocity[i] = MOMENTUM * velocity[i] + slope
            values[i] -= RATE * velocity[i]
    return values


def examples_of(draw, count):
    """Labels in unlike shares, and values around a centre for each label; floats exactly."""
    labels = draw.choice(LABELS, count, p=draw.dirichlet(np.ones(LABELS)))
    values = draw.normal(0, 0.5, (count, FEATURES)) + np.eye(FEATURES)[labels] * draw.uniform(0.5, 1.5)
    return np.round(values * 2 ** 12) / 2 ** 12, labels


def run(name, model, strategy, own, local, seed, clients_of=lambda t: range(CLIENTS)):
    """own: which arrays are a client's own. local(start, kept, examples) → (trained, kept)."""
    draw = np.random.default_rng(seed)
    clients = [examples_of(draw, int(draw.integers(12, 25))) for _ in range(CLIENTS)]
    start = [np.round(draw.normal(0, 0.5, size) * 2 ** 12) / 2 ** 12 for size in model.sizes]
    start += [np.zeros(size) if i == 0 else np.ones(size) for i, size in enumerate(model.statistics)]
    x, kept, replaces = start, [None] * CLIENTS, strategy["type"] != "Ditto"
    for t in range(ROUNDS):
        changes, weights = [], []
        for c in clients_of(t):
            begin = [kept[c][i] if replaces and kept[c] is not None and i in own else x[i] for i in range(len(x))]
            trained, mine = local(begin, kept[c], clients[c])
            kept[c] = mine
            changes.append([after - before for after, before in zip(trained, begin)])
            weights.append(len(clients[c][1]))
        mean = [sum(w * change[i] for w, change in zip(weights, changes)) / sum(weights) for i in range(len(x))]
        x = [x[i] if replaces and i in own else x[i] + mean[i] for i in range(len(x))]
    return name, {
        "model": {"input-shape": model.shape, "layers": model.layers}, "strategy": strategy,
        "training": {"local-epochs": EPOCHS, "batch-size": 32, "learning-rate": RATE,
                     "optimizer": {"type": "SGD", "momentum": MOMENTUM}},
        "rounds": ROUNDS,
        "clients": [{"values": values.tolist(), "labels": labels.tolist()} for values, labels in clients],
        "initial": flat(start), "final": flat(x),
        "own": [flat([mine[i] for i in range(len(x)) if i in own]) for mine in kept]}


def flat(arrays):
    return np.concatenate([array.ravel() for array in arrays]).tolist()


def per(name, strategy, own, seed, local=None, model=Perceptron):
    everything = range(len(model.sizes))

    def whole(begin, _, examples):
        trained = train(model, begin, examples, EPOCHS, everything)
        return trained, trained
    return run(name, model, strategy, own, local or whole, seed)


def fedper():
    return per("fedper", {"type": "FedPer", "personal-layers": 1}, {2, 3}, 1)


def fedrep():
    def local(begin, _, examples):
        trained = train(Perceptron, begin, examples, 3, (2, 3))
        trained = train(Perceptron, trained, examples, EPOCHS, (0, 1))
        return trained, trained
    return per("fedrep", {"type": "FedRep", "head-epochs": 3}, {2, 3}, 2, local)


def fedbn():
    return per("fedbn", {"type": "FedBN"}, {2, 3, 6, 7}, 3, model=Convolution)


def ditto(name, seed, model):
    count = len(model.sizes)

    def local(begin, kept, examples):
        mine = train(model, kept or begin, examples, EPOCHS, range(count), 0.5, begin)
        return train(model, begin, examples, EPOCHS, range(count)), mine
    return per(name, {"type": "Ditto", "lambda": 0.5}, set(range(count + len(model.statistics))), seed, local, model)


if __name__ == "__main__":
    for case, content in (fedper(), fedrep(), fedbn(), ditto("ditto", 4, Perceptron),
                          ditto("ditto-statistics", 5, Convolution)):
        folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(folder, f"{case}.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
            file.write("\n")
