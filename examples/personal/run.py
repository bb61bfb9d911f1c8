#!/usr/bin/env python3
"""How evenly personalized models serve their clients: run.py OUT [ROUNDS]

Makes pictures up, divides them once so that clients see them differently (channels of other contrast and
brightness) and once so that they have other labels (Dirichlet 0.1), runs each strategy, and prints the
accuracies of the clients' models on what they hold out, as quantiles over the clients.
"""

import json
import os
import random
import subprocess
import sys

CLIENTS, EXAMPLES, CHANNELS, SIDE = 20, 150, 3, 12
STRATEGIES = [{"type": "FedAvg"}, {"type": "FedPer"}, {"type": "FedRep"}, {"type": "FedBN"},
              {"type": "Ditto", "lambda": 0.1}]
DIVISIONS = {"features": "file:owners.csv", "labels": "dirichlet:0.1"}
QUANTILES = "0", "0.1", "0.5", "0.9", "1"
LAYERS = [
    {"type": "Conv2d", "in_channels": CHANNELS, "out_channels": 8, "kernel_size": 3, "padding": 1},
    {"type": "BatchNorm2d", "num_features": 8},
    {"type": "ReLU"},
    {"type": "MaxPool2d", "kernel_size": 2},
    {"type": "Conv2d", "in_channels": 8, "out_channels": 16, "kernel_size": 3, "padding": 1},
    {"type": "BatchNorm2d", "num_features": 16},
    {"type": "ReLU"},
    {"type": "MaxPool2d", "kernel_size": 2},
    {"type": "Flatten"},
    {"type": "Linear", "in_features": 16 * (SIDE // 4) ** 2, "out_features": 10},
]


def generate(folder):
    subprocess.run(["fedge-simulate", "generate", f"images:{CHANNELS},{SIDE},{SIDE}", "--out", folder, "--clients",
                    str(CLIENTS), "--examples", str(EXAMPLES), "--test", "10", "--force"],
                   check=True, stdout=subprocess.DEVNULL)


def shift(folder):
    """Each client's channels have a contrast and a brightness of their own."""
    path = os.path.join(folder, "train-values.npy")
    with open(path, "rb") as file:
        data = file.read()
    begin = 10 + int.from_bytes(data[8:10], "little")
    picture, pixels = CHANNELS * SIDE * SIDE, SIDE * SIDE
    parts = [data[:begin]]
    for client in range(CLIENTS):
        draw = random.Random(client)
        tables = []
        for _ in range(CHANNELS):
            gain, offset = draw.uniform(0.2, 1), draw.uniform(-60, 60)
            tables.append(bytes(min(255, max(0, round(gain * (v - 128) + 128 + offset))) for v in range(256)))
        for example in range(client * EXAMPLES, (client + 1) * EXAMPLES):
            for channel, table in enumerate(tables):
                at = begin + example * picture + channel * pixels
                parts.append(data[at:at + pixels].translate(table))
    with open(path, "wb") as file:
        file.write(b"".join(parts))


def run(folder, division, strategy, rounds):
    with open(os.path.join(folder, "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    job.pop("test-set", None)
    job["model"]["layers"] = LAYERS
    job["strategy"] = strategy
    job["training"] = {"local-epochs": 2, "batch-size": 10, "learning-rate": 0.05}
    job["rounds"] = {"num-server-rounds": rounds, "fraction-evaluate": 1.0}
    path, out = (os.path.join(folder, strategy["type"] + end) for end in (".json", ""))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job, file, indent=1)
    site = os.path.join(folder, "client.json")
    with open(site, encoding="utf-8") as file:
        data = json.load(file)
    data["data"]["synthetic"].update({"partition": division, "validation-fraction": 0.25})
    with open(site, "w", encoding="utf-8") as file:
        json.dump(data, file)
    subprocess.run(["fedge-simulate", "--job", path, "--data", site, "--clients", str(CLIENTS), "--out", out, "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "rounds.jsonl"), encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["phase"] == "evaluate"][-1]["accuracy_quantiles"]


def main(out, rounds):
    print("| division | strategy | least | a tenth below | median | a tenth above | most |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, division in DIVISIONS.items():
        folder = os.path.join(out, name)
        generate(folder)
        if name == "features":
            shift(folder)
        for strategy in STRATEGIES:
            found = run(folder, division, strategy, rounds)
            print(f"| {name} | `{strategy['type']}` | " + " | ".join(f"{100 * found[q]:.1f}" for q in QUANTILES) + " |",
                  flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
