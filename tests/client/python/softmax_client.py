"""A device of the tests, in NumPy: softmax_client.py DIRECTORY STATE [MISBEHAVIOUR]

Its model is the Linear layer of the tests' small job. What it has done goes to the file `done` in its working
directory, one line a task.
"""

import multiprocessing
import os
import sys
import time

import numpy as np

import fedge

directory, state, misbehaviour = (*sys.argv[1:], "")[:3]
names = {"name": "weights"} if misbehaviour == "name" else {}
shape = (4, 3) if misbehaviour == "shape" else (4, 12)
app = fedge.Client({names.get("name", "0.weight"): np.zeros(shape, np.float32), "0.bias": np.zeros(4, np.float32)})
data = fedge.data.Arrays(np.load("train-values.npy"), np.load("train-labels.npy"))


def probabilities(model, x):
    scores = x @ model["0.weight"].T + model["0.bias"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def misbehave(model, task):
    if misbehaviour == "raise":
        raise ValueError("the secret of this device is 42")
    if misbehaviour == "nan":
        model["0.bias"][0] = np.nan
        return len(data), {"loss": 1}
    elif misbehaviour == "grow":
        model["0.bias"] = np.zeros(5, np.float32)
        return len(data)
    elif misbehaviour == "hang":
        time.sleep(3600)
    elif misbehaviour == "batches":
        while True:
            for _ in task.batches(data):
                time.sleep(0.01)
    elif misbehaviour == "pool":
        with multiprocessing.Pool(1) as pool:  # ends its processes by SIGTERM
            pool.map(abs, [-1])
            pool.apply_async(time.sleep, [3600])
            time.sleep(0.2)
        pool.join()
        print("the pool has ended", file=sys.stderr, flush=True)
        return len(data)
    elif misbehaviour == "twice":
        other = fedge.Client(app._model)
        other.train(train)
        other.run(directory, state=None)
    elif misbehaviour == "none":
        return 0
    elif misbehaviour == "metric":
        return len(data), {"loss": float("inf")}
    return None


@app.train
def train(model, task):
    print(f"training {task.id} with {task.config}", file=sys.stderr, flush=True)
    result = misbehave(model, task)
    if result is not None:
        return result
    task.state["rounds"] = [*task.state.get("rounds", []), task.round][-20:]
    task.state["last"] = model["0.weight"]
    losses = []
    for x, y in task.batches(data):
        p = probabilities(model, x)
        losses.append(-np.log(p[np.arange(len(y)), y]).mean())
        p[np.arange(len(y)), y] -= 1
        model["0.weight"] -= task.learning_rate / len(y) * (p.T @ x)
        model["0.bias"] -= task.learning_rate / len(y) * p.sum(axis=0)
    with open("done", "a", encoding="ascii") as file:
        print(task.id, task.state["rounds"], file=file)
    return len(data), {"loss": np.mean(losses)}


@app.evaluate
def evaluate(model, task):
    p = probabilities(model, data.x)
    right = p.argmax(axis=1) == data.y
    return len(data), {"loss": -np.log(p[np.arange(len(p)), data.y]).mean(), "accuracy": right.mean()}


app.run(directory, state=None if state == "none" else state, log_json=True)
