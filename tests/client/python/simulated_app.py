"""An app of the tests, in NumPy, for devices and simulations alike: simulated_app.py DIRECTORY

A device's part of the data follows from its index. Its steps shrink with the rounds in which it has trained, which it
keeps in its state, so that a state that goes astray is seen in the model.
"""

import os
import sys

import numpy as np

import fedge

DEVICES = 4


def make(data, fails=(), ends=None):
    """fails: rounds in which clients 1 and 3 raise an exception; "all": every client always does. ends: the round in
    which client 3 ends its process after it has trained."""
    app = fedge.Client({"0.weight": np.zeros((4, 12), np.float32), "0.bias": np.zeros(4, np.float32)})

    def probabilities(model, x):
        scores = x @ model["0.weight"].T + model["0.bias"]
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    @app.train
    def train(model, task):
        if fails == "all" or task.round in fails and task.client_index in (1, 3):
            raise ValueError(f"client {task.client_index} of {task.num_clients} has no data")
        part = data.part(task.client_index, DEVICES)
        task.state["rounds"] = task.state.get("rounds", 0) + 1
        rate = task.learning_rate / task.state["rounds"]
        losses = []
        for x, y in task.batches(part):
            p = probabilities(model, x)
            losses.append(-np.log(p[np.arange(len(y)), y]).mean())
            p[np.arange(len(y)), y] -= 1
            weight, bias = p.T @ x / len(y), p.mean(axis=0)
            if task.correction is not None:
                weight, bias = weight + task.correction["0.weight"], bias + task.correction["0.bias"]
            model["0.weight"] -= np.float32(rate) * weight
            model["0.bias"] -= np.float32(rate) * bias
        if task.round == ends and task.client_index == 3:
            os._exit(1)
        return len(part), {"loss": float(np.mean(losses))}

    @app.evaluate
    def evaluate(model, task):
        part = data.part(task.client_index, DEVICES)
        p = probabilities(model, part.x)
        right = p.argmax(axis=1) == part.y
        return len(part), {"loss": float(-np.log(p[np.arange(len(p)), part.y]).mean()), "accuracy": float(right.mean())}

    return app


if __name__ == "__main__":
    make(fedge.data.Arrays(np.load("train-values.npy"), np.load("train-labels.npy"))).run(sys.argv[1], state=None)
