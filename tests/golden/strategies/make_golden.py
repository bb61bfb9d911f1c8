"""Rounds of each strategy in double precision, from the papers: make_golden.py [DIR]

Each NAME.json has a job's strategy (and what of training goes with it), a model of six values, and five
rounds: what clients send, and the model that the paper's formulas make of it. Changes are multiples of
2^-20, which fixed point has exactly.
"""

import json
import os
import sys

import numpy as np

ROUNDS, VALUES, CLIENTS = 5, 6, 4


class Run:
    """Draws the clients of each round, and writes down what the strategy makes of them."""

    def __init__(self, name, strategy, seed, training=None, size=0.25):
        self.name, self.seed, self.size = name, seed, size
        self.draw = np.random.default_rng(seed)
        self.start = self.vector(1.0)
        self.case = {"strategy": {"type": strategy.pop("type"), **strategy}, "training": training or {},
                     "initial": self.start.tolist(), "rounds": []}

    def vector(self, size):
        return np.round(self.draw.normal(0, size, VALUES) * 2 ** 20) / 2 ** 20

    def clients(self):
        """Numbers of examples, and changes."""
        trend = self.vector(self.size)
        return [(int(self.draw.integers(1, 200)), self.vector(self.size / 2) + trend)
                for _ in range(int(self.draw.integers(2, CLIENTS + 1)))]

    def keep(self, clients, model, more=None):
        self.case["rounds"].append({
            "updates": [{"examples": client[0], "delta": client[1].tolist(), **(more(i) if more else {})}
                        for i, client in enumerate(clients)],
            "model": model.tolist()})

    def write(self, folder):
        with open(os.path.join(folder, f"{self.name}.json"), "w", encoding="utf-8") as file:
            json.dump(self.case, file, indent=1)
            file.write("\n")


def mean(clients):
    return sum(n * delta for n, delta in clients) / sum(n for n, _ in clients)


def linear(name, strategy, seed, step, **more):
    """A strategy that needs nothing but the mean: step(x, mean, round from 0)."""
    run = Run(name, strategy, seed, **more)
    x = run.start
    for t in range(ROUNDS):
        clients = run.clients()
        x = step(x, mean(clients), t)
        run.keep(clients, x)
    return run


def fedavg():
    return linear("fedavg", {"type": "FedAvg", "server-learning-rate": 0.7}, 1, lambda x, d, t: x + 0.7 * d)


def fedavg_cosine():
    """Hyperparameters of CosineAnnealingLR: T_max 4, eta_min 0.1; no warm-up."""
    return linear("fedavg-cosine", {"type": "FedAvg", "server-learning-rate": 2, "server-schedule": {
        "type": "CosineAnnealingLR", "T_max": 4, "eta_min": 0.125}}, 2,
        lambda x, d, t: x + (0.125 + (2 - 0.125) * (1 + np.cos(np.pi * min(t, 4) / 4)) / 2) * d)


def fedprox():
    return linear("fedprox", {"type": "FedProx", "proximal-mu": 0.5}, 3, lambda x, d, t: x + d)


def fedavgm():
    state = np.zeros(VALUES)

    def step(x, d, _):
        nonlocal state
        state = 0.8 * state + d
        return x + 0.5 * state
    return linear("fedavgm", {"type": "FedAvgM", "server-momentum": 0.8, "server-learning-rate": 0.5}, 4, step)


def adaptive(name, strategy, seed, second, rate=0.01, beta1=0.9, beta2=0.99, tau=1e-3):
    """Algorithm 2 of Reddi et al. 2021; second(v, square, beta2)."""
    m, v = np.zeros(VALUES), np.full(VALUES, tau ** 2)

    def step(x, d, _):
        nonlocal m, v
        m = beta1 * m + (1 - beta1) * d
        v = second(v, d ** 2, beta2)
        return x + rate * m / (np.sqrt(v) + tau)
    return linear(name, strategy, seed, step)


def fedadagrad():
    return adaptive("fedadagrad", {"type": "FedAdagrad"}, 5, lambda v, s, b: v + s, beta1=0)


def fedadam():
    return adaptive("fedadam", {"type": "FedAdam"}, 6, lambda v, s, b: b * v + (1 - b) * s)


def fedadam_arguments():
    return adaptive("fedadam-arguments", {
        "type": "FedAdam", "server-learning-rate": 0.1, "beta1": 0.5, "beta2": 0.75, "tau": 0.125}, 7,
        lambda v, s, b: b * v + (1 - b) * s, 0.1, 0.5, 0.75, 0.125)


def fedyogi():
    return adaptive("fedyogi", {"type": "FedYogi"}, 8, lambda v, s, b: v - (1 - b) * s * np.sign(v - s))


CASES = [fedavg, fedavg_cosine, fedprox, fedavgm, fedadagrad, fedadam, fedadam_arguments, fedyogi]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    names = []
    for case in CASES:
        run = case()
        run.write(folder)
        names.append(run.name)
    with open(os.path.join(folder, "cases.txt"), "w", encoding="utf-8") as file:
        file.write("".join(f"{name}\n" for name in names))


if __name__ == "__main__":
    main()
