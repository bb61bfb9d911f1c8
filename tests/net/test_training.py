"""What jobs ask of training, from the job's key to the model: against the papers' formulas."""

import math

import harness
from harness import FEATURES, LABELS
from softmax import CLOSE, RATE, ROUNDS, STEPS, SoftmaxTest, combine, gradient, job, scaffold_job, zeros


def fedavg(weights, clients, rates, change):
    """McMahan et al. 2017, with a change to each gradient: change(gradient, present, first weights)."""
    total = sum(map(len, clients))
    for rate in rates:
        mean = zeros()
        for examples in clients:
            y = weights
            for _ in range(STEPS):
                y = combine(y, change(gradient(y, examples), y, weights), -rate)
            mean = combine(mean, combine(y, weights, -1), len(examples) / total)
        weights = combine(weights, mean)
    return weights


def unchanged(step, _present, _first):
    return step


def scaffold(weights, clients, rounds):
    """Algorithm 1 of Karimireddy et al. 2020 with option II, all clients in each round."""
    mean, own = zeros(), [zeros() for _ in clients]
    for _ in range(rounds):
        moves, changes = zeros(), zeros()
        for i, examples in enumerate(clients):
            y = weights
            for _ in range(STEPS):
                y = combine(y, combine(combine(gradient(y, examples), mean), own[i], -1), -RATE)
            move = combine(y, weights, -1)
            change = combine(combine(zeros(), mean, -1), move, -1 / (STEPS * RATE))
            own[i] = combine(own[i], change)
            moves, changes = combine(moves, move), combine(changes, change)
        weights = combine(weights, moves, 1 / len(clients))
        mean = combine(mean, changes, 1 / len(clients))
    return weights


def feddyn(weights, clients, rounds, alpha):
    """Algorithm 1 of Acar et al. 2021, with so many steps of SGD for each minimum; all clients in each round."""
    state, own = zeros(), [zeros() for _ in clients]
    for _ in range(rounds):
        mean = zeros()
        for i, examples in enumerate(clients):
            y = weights
            for _ in range(STEPS):
                step = combine(combine(gradient(y, examples), own[i], -1), combine(y, weights, -1), alpha)
                y = combine(y, step, -RATE)
            move = combine(y, weights, -1)
            own[i] = combine(own[i], move, -alpha)
            mean = combine(mean, move, 1 / len(clients))
        state = combine(state, mean, -alpha)
        weights = combine(combine(weights, mean), state, -1 / alpha)
    return weights


class Training(SoftmaxTest):
    def check(self, rates=None, change=unchanged, **training):
        """The run is what the formula says, and not what it would be without the keys."""
        settings = job()
        settings["training"].update(training)
        first, last, examples = self.play(**settings)
        self.assertLess(self.distance(last, fedavg(first, examples, rates or [RATE] * ROUNDS, change)), CLOSE)
        self.assertGreater(self.distance(last, fedavg(first, examples, [RATE] * ROUNDS, unchanged)), 100 * CLOSE)

    def test_fedprox(self):
        self.check(change=lambda step, y, first: combine(step, combine(y, first, -1), 0.5), **{"proximal-mu": 0.5})

    def test_clipping(self):
        def clip(step, _present, _first):
            norm = math.sqrt(sum(x * x for row in step for x in row))
            return combine(zeros(), step, min(1, 0.1 / (norm + 1e-6)))
        self.check(change=clip, **{"clip-norm": 0.1})

    def test_schedules(self):
        after = range(ROUNDS)
        self.check([RATE * 0.5 ** (t // 2) for t in after], schedule={"type": "StepLR", "step_size": 2, "gamma": 0.5})
        self.check([RATE * 0.75 ** t for t in after], schedule={"type": "ExponentialLR", "gamma": 0.75})
        self.check([0.125 + (RATE - 0.125) * (1 + math.cos(math.pi * min(t, 3) / 3)) / 2 for t in after],
                   schedule={"type": "CosineAnnealingLR", "T_max": 3, "eta_min": 0.125})
        self.check([RATE * min(1, (t + 1) / 4) for t in after], schedule={"type": "ConstantLR", "warmup-rounds": 3})

    def test_scaffold(self):
        first, last, examples = self.play(**scaffold_job())
        self.assertLess(self.distance(last, scaffold(first, examples, ROUNDS)), CLOSE)
        self.assertGreater(self.distance(last, fedavg(first, examples, [RATE] * ROUNDS, unchanged)), 100 * CLOSE)
        self.assertEqual((len(first), len(first[0])), (LABELS, FEATURES + 1))

    def test_feddyn(self):
        first, last, examples = self.play(**job(strategy={"type": "FedDyn", "alpha": 0.25}))
        self.assertLess(self.distance(last, feddyn(first, examples, ROUNDS, 0.25)), 2 * CLOSE)
        self.assertGreater(self.distance(last, feddyn(first, examples, ROUNDS, 0.125)), 100 * CLOSE)


if __name__ == "__main__":
    harness.main()
