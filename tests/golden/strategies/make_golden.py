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

    def keep(self, clients, model, updates=None, **more):
        """[updates]: for each client, more of what it sends; [more]: of the round."""
        self.case["rounds"].append({
            "updates": [{"examples": client[0], "delta": client[1].tolist(), **(updates[i] if updates else {})}
                        for i, client in enumerate(clients)],
            "model": model.tolist(), **more})

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


def reach(steps, momentum, nesterov, e):
    """How far so many steps of SGD go, in units of the learning rate, along a gradient of 1."""
    u = v = 0.0
    for _ in range(steps):
        slope = 1 - e * u
        v = momentum * v + slope
        u += slope + momentum * v if nesterov else v
    return u


def fednova(name, seed, training, rate=1.0):
    run = Run(name, {"type": "FedNova", "server-learning-rate": rate}, seed, training)
    optimizer = training.get("optimizer", {})
    x = run.start
    for _ in range(ROUNDS):
        clients = run.clients()
        n = np.array([client[0] for client in clients])
        steps = [training.get("local-steps") or training["local-epochs"] * -(-k // training["batch-size"]) for k in n]
        a = np.array([reach(k, optimizer.get("momentum", 0), optimizer.get("nesterov", False),
                            np.float32(training["learning-rate"]) * np.float64(training.get("proximal-mu", 0)))
                      for k in steps])
        # Weights are integers: n / a in units of 1/1024, for a max-weight of 2^20.
        weights = np.maximum(np.round(1024 * n / a), 1)
        p = weights * a / sum(weights * a)
        x = x + rate * sum(p * a) * sum(pi / ai * client[1] for pi, ai, client in zip(p, a, clients))
        run.keep(clients, x)
    return run


def fednova_epochs():
    return fednova("fednova", 9, {"learning-rate": 0.1, "local-epochs": 3, "batch-size": 8})


def fednova_momentum():
    return fednova("fednova-momentum", 10, {"learning-rate": 0.125, "local-epochs": 2, "batch-size": 16, "optimizer": {
        "type": "SGD", "momentum": 0.5, "nesterov": True}, "proximal-mu": 0.25}, 0.5)


def fednova_steps():
    return fednova("fednova-steps", 11, {"learning-rate": 0.1, "local-steps": 7, "optimizer": {
        "type": "SGD", "momentum": 0.75}})


def scaffold():
    run = Run("scaffold", {"type": "SCAFFOLD", "server-learning-rate": 0.5, "num-clients": 5}, 12)
    x, c = run.start, np.zeros(VALUES)
    for _ in range(ROUNDS):
        clients = run.clients()
        changes = [run.vector(0.5) for _ in clients]
        x = x + 0.5 * np.mean([delta for _, delta in clients], axis=0)
        c = c + len(clients) / 5 * np.mean(changes, axis=0)
        run.keep(clients, x, [{"hooks": change.tolist()} for change in changes], told=c.tolist())
    return run


def feddyn():
    run = Run("feddyn", {"type": "FedDyn", "alpha": 0.125, "num-clients": 6}, 13)
    x, h = run.start, np.zeros(VALUES)
    for _ in range(ROUNDS):
        clients = run.clients()
        change = np.mean([delta for _, delta in clients], axis=0)
        h = h - 0.125 * len(clients) / 6 * change
        x = x + change - h / 0.125
        run.keep(clients, x)
    return run


CASES = [fedavg, fedavg_cosine, fedprox, fedavgm, fedadagrad, fedadam, fedadam_arguments, fedyogi,
         fednova_epochs, fednova_momentum, fednova_steps, scaffold, feddyn]


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
