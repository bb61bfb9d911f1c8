"""A device of the tests for any strategy: training_client.py DIRECTORY STATE [HOW]

Two Linear layers, and a batch of all examples: what fedge's own trainer computes of the same files. HOW: "torch", with
PyTorch rather than NumPy, or what it leaves out, "correct" or "loss".
"""

import sys

import numpy as np

directory, state, how = (*sys.argv[1:], "")[:3]
if how == "torch":
    import torch
import fedge

NAMES = ("0.weight", "0.bias", "1.weight", "1.bias")
SHAPES = ((5, 12), (5,), (4, 5), (4,))
if how == "torch":
    app = fedge.Client(torch.nn.Sequential(torch.nn.Linear(12, 5), torch.nn.Linear(5, 4)))
else:
    app = fedge.Client({name: np.zeros(shape, np.float32) for name, shape in zip(NAMES, SHAPES)})


def data_of(task):
    return fedge.data.Arrays(*(np.load(f"part-{task.client_index}-{kind}.npy") for kind in ("values", "labels")))


def forward(model, x, y):
    hidden = x @ model["0.weight"].T + model["0.bias"]
    scores = hidden @ model["1.weight"].T + model["1.bias"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = powers / powers.sum(axis=1, keepdims=True)
    return hidden, p, float(-np.log(p[np.arange(len(y)), y]).mean())


def train_arrays(model, task):
    data, loss = data_of(task), 0.0
    for x, y in task.batches(data):
        hidden, p, loss = forward(model, x, y)
        p[np.arange(len(y)), y] -= 1
        p /= len(y)
        back = p @ model["1.weight"]
        gradients = dict(zip(NAMES, (back.T @ x, back.sum(axis=0), p.T @ hidden, p.sum(axis=0))))
        if how != "correct":
            task.correct_gradients(gradients)
        for name, gradient in gradients.items():
            model[name] -= np.float32(task.learning_rate) * gradient
    return len(data), {"loss": loss}


def train_torch(model, task):
    optimizer = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
    data = data_of(task)
    for x, y in task.batches(data):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y.long())
        loss.backward()
        task.correct_gradients()
        optimizer.step()
    return len(data), {"loss": loss.item()}


app.train(train_torch if how == "torch" else train_arrays)


@app.evaluate
def evaluate(model, task):
    data = data_of(task)
    _, p, loss = forward(model, data.x, data.y)
    return len(data), {"loss": loss, "accuracy": (p.argmax(axis=1) == data.y).mean()}


if how != "loss":
    @app.loss
    def start_loss(model, task):
        data = data_of(task)
        return forward(model, data.x, data.y)[2]


app.run(directory, state=None if state == "none" else state, log_json=True)
