"""An app of the tests, in PyTorch, with dropout: torch_app.py [DIRECTORY]

With a directory it is a device; without one it simulates them all in a notebook's way, after it has trained a model
itself, and prints the models' hashes.
"""

import sys

import numpy as np
import torch
from torch import nn

import fedge

DEVICES = 4
model = nn.Sequential(nn.Linear(12, 4))
app = fedge.Client(model)
data = fedge.data.Arrays(np.load("train-values.npy"), np.load("train-labels.npy"))


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(nn.functional.dropout(model(x), 0.25), y)
    loss.backward()
    optimizer.step()
    return loss.item()


@app.train
def train(model, task):
    torch.manual_seed(int(task.generator().integers(2**31)))
    optimizer = torch.optim.SGD(model.parameters(), lr=task.learning_rate, momentum=task.momentum)
    part = data.part(task.client_index, DEVICES)
    losses = [step(model, optimizer, x, y) for x, y in task.batches(part)]
    return len(part), {"loss": sum(losses) / len(losses)}


if len(sys.argv) > 1:
    app.run(sys.argv[1], state=None)
else:
    torch.set_num_threads(2)  # starts threads, which a fork does not have
    alone = nn.Linear(256, 256)
    step(alone, torch.optim.SGD(alone.parameters(), lr=0.1), torch.randn(512, 256), torch.zeros(512, dtype=torch.int64))
    run = fedge.simulate(app, "job.json", DEVICES, processes=2, quiet=True)
    print(*[row["model_sha256"] for row in run.records()])
