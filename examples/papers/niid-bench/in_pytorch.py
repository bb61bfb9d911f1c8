#!/usr/bin/env python3
"""Runs NIID-Bench's federated averaging in plain PyTorch, with a simulated run's division: is it the trainer or the
division that an accuracy is due to?

    in_pytorch.py RUN [--rounds N] [--seed S] [--go-on]

RUN is the folder of a run of this paper's job. PyTorch starts anew from weights and an order of its own, or with
--go-on from the model that the run ended with, and prints the accuracy on the test images after each round. On one
thread; needs PyTorch and NumPy.
"""

import argparse
import csv
import gzip
import json
import os

import numpy as np
import torch
from torch import nn

IDX_HEADER_BYTES = {"images": 16, "labels": 8}


def read_idx(path, what):
    with gzip.open(path, "rb") as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=IDX_HEADER_BYTES[what]).copy()


def examples(files):
    images = torch.from_numpy(read_idx(files["values"], "images").reshape(-1, 1, 28, 28)).float() / 255
    return images, torch.from_numpy(read_idx(files["labels"], "labels").astype(np.int64))


def model_of(path):
    """A safetensors file as a state_dict: a header of JSON, then the values, all of them floats."""
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(np.frombuffer(data, dtype="<f4", offset=8 + size + place["data_offsets"][0],
                                                 count=int(np.prod(place["shape"]))).reshape(place["shape"]).copy())
            for name, place in header.items()}


def new_model():
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


def train(model, images, labels, training):
    """A party's epochs; its momentum begins anew."""
    optimizer = torch.optim.SGD(model.parameters(), lr=training["learning-rate"],
                                momentum=training["optimizer"]["momentum"],
                                weight_decay=training["optimizer"]["weight_decay"])
    for _ in range(training["local-epochs"]):
        for batch in torch.randperm(len(labels)).split(training["batch-size"]):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


def run_round(model, parties, training):
    """Every party from the same weights; their mean, weighted by examples."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    mean = {name: torch.zeros_like(value) for name, value in start.items()}
    total = sum(len(labels) for _, labels in parties)
    for images, labels in parties:
        model.load_state_dict(start)
        train(model, images, labels, training)
        for name, value in model.state_dict().items():
            mean[name] += value * (len(labels) / total)
    model.load_state_dict(mean)


def accuracy(model, images, labels):
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--go-on", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    with open(os.path.join(args.run, "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "client.json"), encoding="utf-8") as file:
        images, labels = examples(json.load(file)["data"][job["data"]["name"]])
    with open(os.path.join(args.run, "partition.csv"), encoding="ascii", newline="") as file:
        owners = torch.tensor([int(owner) for _, owner in list(csv.reader(file))[1:]])
    parties = [(images[owners == party], labels[owners == party]) for party in range(int(owners.max()) + 1)]
    model, test = new_model(), examples(job["test-set"])
    if args.go_on:
        model.load_state_dict(model_of(os.path.join(args.run, "model.safetensors")))
        print(f"the run's model: {100 * accuracy(model, *test):.2f} %", flush=True)
    for number in range(1, args.rounds + 1):
        run_round(model, parties, job["training"])
        print(f"round {number}: {100 * accuracy(model, *test):.2f} %", flush=True)


if __name__ == "__main__":
    main()
