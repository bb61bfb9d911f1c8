"""What a case is to the peers of simulate.sh: model, examples, and what a client does in a round.

A case is a JSON file with "job" (a fedge job: model and training are read from it), "values" and "labels" (npy, or idx
with gzip), "clients" and "cohort". Examples are shuffled and cut into equal parts, one for each client.
"""

import gzip
import json
import os
import struct
import sys

import numpy
import torch

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden", "train"))

from torch_model import make_layer, make_optimizer  # noqa: E402 (the path is set above)

SEED = 1


def read_array(path):
    if path.endswith(".npy"):
        return numpy.load(path, mmap_mode="r")
    with gzip.open(path) as file:
        data = file.read()
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * data[3]).reshape(shape)


class Case:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            case = json.load(file)
        with open(case["job"], encoding="utf-8") as file:
            job = json.load(file)
        self.clients, self.cohort = case["clients"], case["cohort"]
        self.layers, self.shape, self.training = job["model"]["layers"], job["model"]["input-shape"], job["training"]
        scale = job["data"]["normalisation"]
        divide_by, (mean,), (std,) = scale["divide-by"], scale["mean"], scale["std"]
        self.factor, self.shift = 1 / (divide_by * std), -mean / std
        self.values, self.labels = read_array(case["values"]), read_array(case["labels"])
        shuffled = numpy.random.default_rng(SEED).permutation(len(self.labels))
        self.parts = [numpy.sort(part) for part in numpy.array_split(shuffled, self.clients)]
        self.loss_fn = torch.nn.CrossEntropyLoss()

    def make_model(self):
        """Channels last is a sixth faster with these convolutions than PyTorch's default."""
        torch.manual_seed(SEED)
        layers = torch.nn.Sequential(*[make_layer(spec) for spec in self.layers])
        return layers.to(memory_format=torch.channels_last)

    def examples(self, client):
        """A client's examples in a new order: floats as they enter the model, and labels."""
        order = numpy.random.permutation(self.parts[client])
        x = torch.from_numpy(self.values[order].reshape(-1, *self.shape))
        return (x.float().mul_(self.factor).add_(self.shift),
                torch.from_numpy(self.labels[order].astype(numpy.int64)))

    def train(self, model, optimizer, client):
        """One local epoch, plain SGD. Returns the number of examples."""
        batch = self.training["batch-size"]
        x, labels = self.examples(client)
        for batch_x, batch_labels in zip(x.split(batch), labels.split(batch)):
            optimizer.zero_grad()
            self.loss_fn(model(batch_x), batch_labels).backward()
            optimizer.step()
        return len(labels)

    def optimizer(self, model):
        return make_optimizer(model.parameters(), self.training)

    def describe(self, model):
        """Accuracy and loss on some of all examples, for those who doubt that it learns."""
        with torch.no_grad():
            losses, correct, count = 0.0, 0, 0
            for client in range(min(self.clients, 10)):
                x, labels = self.examples(client)
                outputs = model(x)
                losses += float(torch.nn.functional.cross_entropy(outputs, labels, reduction="sum"))
                correct += int((outputs.argmax(1) == labels).sum())
                count += len(labels)
        return f"on {count} examples loss {losses / count:.3f}, accuracy {correct / count:.3f}"
