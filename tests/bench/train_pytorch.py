"""PyTorch's half of train.sh, one thread: train_pytorch.py JOB BATCH

Makes the job's model (torch_model.py of tests/golden/train) and prints "PyTorch VERSION". Images are laid out as
PyTorch does by itself or with the channels last, whichever trains this model faster here. Then, for each line "SECONDS"
on stdin, trains as the job says on random examples for that long and prints "EXAMPLES_PER_S PEAK_BYTES"; seconds are of
CPU time, as in train_fedge.c.
"""

import json
import multiprocessing
import os
import sys
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden", "train"))

from torch_model import Model, make_optimizer  # noqa: E402 (the path is set above)

NUM_BATCHES = 16
TRIAL_SECONDS = 0.4  # of each layout


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


class Training:
    """Steps of a job on random examples, in one layout of images."""

    def __init__(self, job, batch, layout):
        torch.manual_seed(1)
        self.training = job["training"]
        self.model = Model(job["model"]["layers"]).to(memory_format=layout)
        x, self.labels = make_examples(job["model"], batch)
        self.x = [part.contiguous(memory_format=layout) if part.dim() == 4 else part for part in x]
        self.loss = torch.nn.CrossEntropyLoss()
        self.optimizer = make_optimizer(self.model.parameters(), self.training)

    def step(self, at):
        self.optimizer.zero_grad()
        self.loss(self.model(self.x[at]), self.labels[at]).backward()
        if "clip-norm" in self.training:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training["clip-norm"])
        self.optimizer.step()

    def run(self, seconds):
        """Steps per second of CPU time."""
        steps, start = 0, time.process_time()
        while time.process_time() - start < seconds:
            self.step(steps % NUM_BATCHES)
            steps += 1
        return steps / (time.process_time() - start)


def trial(job, batch, layout, results):
    training = Training(job, batch, layout)
    training.step(0)
    results.put(training.run(TRIAL_SECONDS))


def faster_layout(job, batch):
    """Tried in processes of their own, so that the other layout's memory is not counted."""
    if not any(layer["type"] == "Conv2d" for layer in job["model"]["layers"]):
        return torch.contiguous_format
    layouts, rates = [torch.contiguous_format, torch.channels_last], []
    context = multiprocessing.get_context("fork")
    for layout in layouts:
        results = context.SimpleQueue()
        process = context.Process(target=trial, args=(job, batch, layout, results))
        process.start()
        rates.append(results.get())
        process.join()
    chosen = layouts[rates.index(max(rates))]
    print(f"{job['name']} B={batch}: PyTorch {torch.__version__} with {str(chosen)[6:]}, "
          f"{max(rates) / min(rates):.2f} times as fast as the other layout", file=sys.stderr)
    return chosen


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    batch = int(sys.argv[2])
    torch.set_num_threads(1)
    training = Training(job, batch, faster_layout(job, batch))
    print(f"PyTorch {torch.__version__.split('+')[0]}", flush=True)
    for line in sys.stdin:
        print(f"{training.run(float(line)) * batch:.1f} {peak_bytes()}", flush=True)


main()
