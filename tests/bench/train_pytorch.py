"""PyTorch's half of train.sh, one thread: for each line "SECONDS" on stdin, trains on random examples
for that long and prints "SAMPLES_PER_S RESIDENT_BYTES". Usage: train_pytorch.py CASE BATCH"""

import sys
import time

import torch
from torch import nn

NUM_BATCHES = 16


def cnn(channels, kernel, hidden):
    """Two convolutions with padding, each pooled, and two fully connected layers."""
    return nn.Sequential(
        nn.Conv2d(1, channels, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * channels * 49, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def make_model(case):
    if case == "quickstart-cnn":
        return cnn(16, 3, 64)
    if case == "mcmahan-cnn":
        return cnn(32, 5, 512)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200),
                         nn.ReLU(), nn.Linear(200, 10))


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, batch = make_model(sys.argv[1]), int(sys.argv[2])
    x = torch.rand(NUM_BATCHES, batch, 1, 28, 28)
    labels = torch.randint(0, 10, (NUM_BATCHES, batch))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for line in sys.stdin:
        seconds, steps, start = float(line), 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            at = steps % NUM_BATCHES
            optimizer.zero_grad()
            loss_fn(model(x[at]), labels[at]).backward()
            optimizer.step()
            steps += 1
        elapsed = time.perf_counter() - start
        print(f"{steps * batch / elapsed:.1f} {resident_bytes()}", flush=True)


main()
