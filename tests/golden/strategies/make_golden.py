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
MIN_TRAIN_NODES = 11  # of the jobs of robust rules


class Run:
    """Draws the clients of each round, and writes down what the strategy makes of them."""

    def __init__(self, name, strategy, seed, training=None, size=0.25):
        self.name, self.seed, self.size = name, seed, size
        self.draw = np.random.default_rng(seed)
        self.start = self.vector(1.0)
        self.case = {"strategy": strategy, "training": training or {},
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
            json.dump(self.case, file, indent=None if "rounds-spec" in self.case else 1)  # those are long
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
        p = n / sum(n)
        x = x + rate * sum(p * a) * sum(pi / ai * client[1] for pi, ai, client in zip(p, a, clients))
        run.keep(clients, x)
    return run


def fednova_epochs():
    return fednova("fednova", 9, {"learning-rate": 0.1, "local-epochs": 3, "batch-size": 8})


def fednova_momentum():
    return fednova("fednova-momentum", 10, {"learning-rate": 0.125, "local-epochs": 2, "batch-size": 16, "optimizer": {
        "type": "SGD", "momentum": 0.5, "nesterov": True}, "proximal-mu": 0.25}, 0.5)


def fednova_heavy():
    return fednova("fednova-heavy", 12, {"learning-rate": 0.1, "local-epochs": 5, "batch-size": 10, "optimizer": {
        "type": "SGD", "momentum": 0.9}})


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


def attacked(run, f):
    """Clients of which the last [f] send something far off; the number of clients is that of the job or more."""
    trend = run.vector(run.size)
    num = MIN_TRAIN_NODES + int(run.draw.integers(0, 4))
    changes = [run.vector(run.size / 2) + trend for _ in range(num)]
    for i in run.draw.choice(num, f, replace=False):
        changes[i] = run.vector(3 * run.size) - 3 * trend
    return [(int(run.draw.integers(1, 200)), change) for change in changes]


def squares(changes):
    return np.array([[np.sum((a - b) ** 2) for b in changes] for a in changes])


def mix(changes, f):
    """Each is the mean of its n - f nearest, itself one of them."""
    order = np.argsort(squares(changes), axis=1, kind="stable")
    return [np.mean([changes[j] for j in row[:len(changes) - f]], axis=0) for row in order]


def scores(changes, near):
    """Krum's: the squares of the distances to the nearest others."""
    d = squares(changes)
    return [np.sum(np.sort(np.delete(row, i))[:near]) for i, row in enumerate(d)]


def robust(name, strategy, seed, rule, f=2):
    """A rule that makes one change of those of a round: rule(changes, f)."""
    run = Run(name, strategy, seed)
    run.case["rounds-spec"] = {"min-train-nodes": MIN_TRAIN_NODES, "min-available-nodes": MIN_TRAIN_NODES}
    x = run.start
    for _ in range(ROUNDS):
        clients = attacked(run, f)
        changes = [change for _, change in clients]
        if strategy.get("mixing"):
            changes = mix(changes, f)
        x = x + rule(changes, f)
        run.keep(clients, x)
    return run


def median(changes, _):
    return np.median(changes, axis=0)


def trimmed(changes, beta):
    cut = int(beta * len(changes))
    return np.mean(np.sort(changes, axis=0)[cut:len(changes) - cut], axis=0)


def krum(changes, f):
    return changes[int(np.argmin(scores(changes, len(changes) - f - 2)))]


def multi_krum(changes, f, keep=None):
    order = np.argsort(scores(changes, len(changes) - f - 2), kind="stable")
    return np.mean([changes[i] for i in order[:keep or len(changes) - f]], axis=0)


def bulyan(changes, f):
    left, chosen = list(changes), []
    while len(left) > 2 * f:
        chosen.append(left.pop(int(np.argmin(scores(left, max(len(left) - f - 2, 1))))))
    middle = np.median(chosen, axis=0)
    ordered = np.sort(chosen, axis=0)
    nearest = np.argsort(np.abs(ordered - middle), axis=0, kind="stable")[:len(chosen) - 2 * f]
    return np.mean(np.take_along_axis(ordered, nearest, axis=0), axis=0)


def geometric_median(changes, iterations, smoothing):
    z = np.mean(changes, axis=0)
    for _ in range(iterations):
        weights = [1 / max(smoothing, np.linalg.norm(z - change)) for change in changes]
        z = np.average(changes, axis=0, weights=weights)
    return z


def clipped(changes, most=None):
    norms = [np.linalg.norm(change) for change in changes]
    most = most or np.median(norms)
    return np.mean([change * min(1, most / norm) for change, norm in zip(changes, norms)], axis=0)


ROOT_EXAMPLES = 12  # of FLTrust's server


def root_set():
    """Points of two labels, in quarters, which a text has exactly."""
    draw = np.random.default_rng(50)
    labels = draw.integers(0, 2, ROOT_EXAMPLES)
    points = np.round(4 * (draw.normal(0, 1, (ROOT_EXAMPLES, 2)) + 2 * labels[:, None] - 1)) / 4
    return points, labels


def descend(x, points, labels, rate, steps):
    """Gradient descent on the mean cross-entropy of Linear(2, 2), its weights and then its biases."""
    weights, biases = x[:4].reshape(2, 2).copy(), x[4:].copy()
    for _ in range(steps):
        outputs = points @ weights.T + biases
        shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        slopes = (shares / shares.sum(axis=1, keepdims=True) - np.eye(2)[labels]) / len(labels)
        weights -= rate * slopes.T @ points
        biases -= rate * slopes.sum(axis=0)
    return np.concatenate([weights.ravel(), biases])


def fltrust(name, seed, rate, steps, f=0):
    """[f]: so many clients send something far off, and the others' changes are mixed."""
    run = Run(name, {"type": "FLTrust", "root-set": {"values": "fltrust-root.csv"}, "server-learning-rate": rate,
                     **({"mixing": True, "num-malicious-nodes": f} if f else {})},
              seed, {"learning-rate": 0.5, "local-steps": steps, "batch-size": ROOT_EXAMPLES})
    if f:
        run.case["rounds-spec"] = {"min-train-nodes": MIN_TRAIN_NODES, "min-available-nodes": MIN_TRAIN_NODES}
    points, labels = root_set()
    x = run.start
    for _ in range(ROUNDS):
        clients = attacked(run, f) if f else run.clients()
        changes = [change for _, change in clients]
        changes = mix(changes, f) if f else changes
        own = descend(x, points, labels, 0.5, steps) - x
        norms = [np.linalg.norm(change) for change in changes]
        trust = [max(0, own @ change / np.linalg.norm(own) / norm) for change, norm in zip(changes, norms)]
        if sum(trust) > 0:
            x = x + rate * sum(t * np.linalg.norm(own) / norm * change
                               for t, change, norm in zip(trust, changes, norms)) / sum(trust)
        run.keep(clients, x)
    return run


def fltrust_default():
    return fltrust("fltrust", 51, 1.0, 1)


def fltrust_steps():
    return fltrust("fltrust-steps", 52, 0.5, 4)


def fltrust_mixing():
    return fltrust("fltrust-mixing", 53, 0.5, 2, f=3)


def ifca(name, seed, k, rate=1.0):
    run = Run(name, {"type": "IFCA", "num-clusters": k, "server-learning-rate": rate}, seed)
    models = [run.start] + [run.vector(1.0) for _ in range(k - 1)]
    run.case["initial-told"] = np.concatenate(models[1:]).tolist()
    for _ in range(ROUNDS):
        clients = run.clients()
        chosen = [int(run.draw.integers(0, k)) for _ in clients]
        for j in range(k):
            own = [client for client, at in zip(clients, chosen) if at == j]
            if own:
                models[j] = models[j] + rate * mean(own)
        run.keep(clients, models[0], [{"cluster": j} for j in chosen], told=np.concatenate(models[1:]).tolist())
    return run


def ifca_default():
    return ifca("ifca", 53, 2)


def ifca_more():
    return ifca("ifca-more", 54, 4, 0.5)


def stale_clients(run, models, num, most):
    """Clients that began with one of the last [most] + 1 models: numbers of rounds that have closed since, and changes."""
    clients = [(int(run.draw.integers(1, 200)), run.vector(run.size)) for _ in range(num)]
    return clients, [int(run.draw.integers(0, min(len(models) - 1, most) + 1)) for _ in clients]


def fedbuff(name, seed, weight, k, rate=1.0, most=20, **arguments):
    run = Run(name, {"type": "FedBuff", "buffer-size": k, "server-learning-rate": rate, **arguments}, seed)
    models = [run.start]
    for _ in range(ROUNDS):
        clients, stale = stale_clients(run, models, k, most)
        models.append(models[-1] + rate / k * sum(weight(s) * change for s, (_, change) in zip(stale, clients)))
        run.keep(clients, models[-1], [{"staleness": s} for s in stale])
    return run


def fedasync(name, seed, weight, share=0.6, most=20, **arguments):
    run = Run(name, {"type": "FedAsync", **arguments}, seed)
    models = [run.start]
    for _ in range(ROUNDS):
        clients, stale = stale_clients(run, models, 1, most)
        a = share * weight(stale[0])
        models.append((1 - a) * models[-1] + a * (models[-1 - stale[0]] + clients[0][1]))
        run.keep(clients, models[-1], [{"staleness": s} for s in stale])
    return run


def hinge(a, b):
    return lambda s: 1 if s <= b else 1 / (a * (s - b) + 1)


def asynchronous_cases():
    return [
        fedbuff("fedbuff", 55, lambda s: 1 / np.sqrt(1 + s), 3),
        fedbuff("fedbuff-arguments", 56, hinge(2, 1), 2, 0.5, 3, **{
            "staleness-weight": "hinge", "hinge-slope": 2, "hinge-delay": 1, "max-staleness": 3}),
        fedasync("fedasync", 57, lambda s: (1 + s) ** -0.5),
        fedasync("fedasync-arguments", 58, lambda s: 1, 0.25, 2, **{
            "alpha": 0.25, "staleness-weight": "constant", "max-staleness": 2}),
    ]


def robust_cases():
    f = {"num-malicious-nodes": 2}
    return [
        robust("fedmedian", {"type": "FedMedian"}, 20, median),
        robust("fedmedian-mixing", {"type": "FedMedian", "mixing": True, **f}, 21, median),
        robust("fedtrimmedavg", {"type": "FedTrimmedAvg"}, 22, lambda c, _: trimmed(c, 0.2)),
        robust("fedtrimmedavg-mixing", {"type": "FedTrimmedAvg", "beta": 0.3, "mixing": True, **f}, 23,
               lambda c, _: trimmed(c, 0.3)),
        robust("krum", {"type": "Krum", **f}, 24, krum),
        robust("krum-mixing", {"type": "Krum", "mixing": True, **f}, 25, krum),
        robust("multikrum", {"type": "MultiKrum", **f}, 26, multi_krum),
        robust("multikrum-keep", {"type": "MultiKrum", "num-nodes-to-keep": 3, **f}, 27,
               lambda c, k: multi_krum(c, k, 3)),
        robust("bulyan", {"type": "Bulyan", **f}, 28, bulyan),
        robust("bulyan-mixing", {"type": "Bulyan", "mixing": True, **f}, 29, bulyan),
        robust("rfa", {"type": "RFA"}, 30, lambda c, _: geometric_median(c, 3, 1e-6)),
        robust("rfa-arguments", {"type": "RFA", "num-iterations": 20, "smoothing": 0.25, "mixing": True, **f}, 31,
               lambda c, _: geometric_median(c, 20, 0.25)),
        robust("normclipping", {"type": "NormClipping"}, 32, lambda c, _: clipped(c)),
        robust("normclipping-norm", {"type": "NormClipping", "norm": 0.375}, 33, lambda c, _: clipped(c, 0.375)),
    ]


def qfedavg(name, strategy, seed, q, rate=1.0):
    run = Run(name, {"type": "QFedAvg", **strategy}, seed, {"learning-rate": 0.125, "local-epochs": 1})
    lipschitz, unit, x = 8, 2 ** 14, run.start  # 2^20 / 64
    for _ in range(ROUNDS):
        clients = run.clients()
        losses = np.abs(run.vector(2.0))[:len(clients)] + 0.25
        squares = [float(np.sum(change ** 2)) for _, change in clients]
        powers = np.clip(np.round(unit * losses ** q), 1, 2 ** 20) / unit
        h = [q * p / f * lipschitz ** 2 * s + p * lipschitz for p, f, s in zip(powers, losses, squares)]
        x = x + rate * sum(p * lipschitz * change for p, (_, change) in zip(powers, clients)) / sum(h)
        run.keep(clients, x, [{"start-loss": float(f), "squared-norm": s} for f, s in zip(losses, squares)])
    return run


def qfedavg_default():
    return qfedavg("qfedavg", {}, 40, 0.2)


def qfedavg_arguments():
    return qfedavg("qfedavg-arguments", {"q": 3, "server-learning-rate": 0.5}, 41, 3, 0.5)


CASES = [fedavg, fedavg_cosine, fedprox, fedavgm, fedadagrad, fedadam, fedadam_arguments, fedyogi,
         fednova_epochs, fednova_momentum, fednova_heavy, fednova_steps, scaffold, feddyn,
         qfedavg_default, qfedavg_arguments, fltrust_default, fltrust_steps, fltrust_mixing,
         ifca_default, ifca_more]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    names = []
    for run in [case() for case in CASES] + robust_cases() + asynchronous_cases():
        run.write(folder)
        names.append(run.name)
    with open(os.path.join(folder, "fltrust-root.csv"), "w", encoding="utf-8") as file:
        file.write("".join(f"{a},{b},{label}\n" for (a, b), label in zip(*root_set())))
    with open(os.path.join(folder, "cases.txt"), "w", encoding="utf-8") as file:
        file.write("".join(f"{name}\n" for name in names))


if __name__ == "__main__":
    main()
