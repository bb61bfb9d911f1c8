"""PyTorch's half of train.sh, one thread: train_pytorch.py JOB BATCH

Makes the job's model (torch_model.py of tests/golden/train) and prints "PyTorch VERSION". Then, for each line "SECONDS"
on stdin, trains as the job says on random examples for that long and prints "EXAMPLES_PER_S PEAK_BYTES"; seconds are of
CPU time, as in train_fedge.c.
"""

import json
import os
import sys
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden", "train"))

from torch_model import Model, make_optimizer  # noqa: E402 (the path is set above)

NUM_BATCHES = 16


def peak_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def make_examples(model, batch):
    shape, first = [NUM_BATCHES, batch] + model["input-shape"], model["layers"][0]
    if first["type"] == "Embedding":
        x = torch.randint(0, first["num_embeddings"], shape)
    else:
        x = torch.rand(shape)
    return x, torch.randint(0, model["layers"][-1]["out_features"], (NUM_BATCHES, batch))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    training, batch = job["training"], int(sys.argv[2])
    model = Model(job["model"]["layers"])
    x, labels = make_examples(job["model"], batch)
    loss_fn = torch.nn.CrossEntropyLoss()
    optimizer = make_optimizer(model.parameters(), training)
    print(f"PyTorch {torch.__version__.split('+')[0]}", flush=True)
    for line in sys.stdin:
        seconds, steps, start = float(line), 0, time.process_time()
        while time.process_time() - start < seconds:
            at = steps % NUM_BATCHES
            optimizer.zero_grad()
            loss_fn(model(x[at]), labels[at]).backward()
            if "clip-norm" in training:
                torch.nn.utils.clip_grad_norm_(model.parameters(), training["clip-norm"])
            optimizer.step()
            steps += 1
        elapsed = time.process_time() - start
        print(f"{steps * batch / elapsed:.1f} {peak_bytes()}", flush=True)


main()
