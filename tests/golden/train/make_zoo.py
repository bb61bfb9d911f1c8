"""Makes the golden files of tests/edge/train/test_zoo.c with PyTorch: make_zoo.py [NAME...]

For each job of examples/zoo that zoo/cases.txt names ("NAME BATCH" a line), the job's model and training in double
precision, ten steps on one batch at a tenth of the job's learning rate: at all of it so small a batch would be
learned by heart, and a loss of nothing proves nothing. Adam's eps is 1e-3: without it the rounding of a gradient that
is none (a bias that softmax takes away) becomes a whole step.

The weights are too large to keep, so both sides make the start and the batch by the formulas below, in integers, and
zoo/NAME.safetensors (F32) holds of the rest:

    loss                      (10) the batch's mean loss before each step
    y10                       outputs after the ten steps
    g/NAME                    of a tensor's gradient at the start, d: the values at 8 places spread evenly,
                              the sum of d², and the sum of d · u, u the tensor's own numbers below
    d10/NAME                  the same of what the ten steps added to it

u(stream, i), in [-1, 1): the upper 24 bits of hash(stream, i), less 2^23, over 2^23. hash(stream, i) scrambles
(i + 1) · 2654435761 + stream · 2246822519 modulo 2^32 (see scramble). Tensor t of the state_dict is stream t: u times
1 / sqrt(values of one output) for a weight of two or more dimensions; 1 + 0.2 u for a weight of one (a
normalisation's); 0.1 u for all others. Inputs are stream 1000: 1.7 u, or the hash modulo the number of embeddings;
labels are stream 1001, the hash modulo the number of outputs.
"""

import json
import math
import os
import sys

import torch

from make_golden import STEPS, write_safetensors
from torch_model import Model, make_optimizer

HERE = os.path.dirname(os.path.abspath(__file__))
ZOO = os.path.join(HERE, "..", "..", "..", "examples", "zoo")
MASK = 0xFFFFFFFF
INPUTS, LABELS, PLACES = 1000, 1001, 8


def scramble(x):
    """A 32-bit mixer: two rounds of multiply and shift."""
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & MASK
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & MASK
    return x ^ (x >> 16)


def hashes(stream, count):
    return scramble(((torch.arange(count) + 1) * 2654435761 + stream * 2246822519) & MASK)


def numbers(stream, count):
    return ((hashes(stream, count) >> 8) - (1 << 23)).double() / (1 << 23)


def single(x):
    return x.float().double()


def start(model):
    for stream, (name, parameter) in enumerate(model.named_parameters()):
        u, shape = numbers(stream, parameter.numel()), parameter.shape
        if not name.rpartition(".")[2].endswith("bias") and len(shape) > 1:
            u = u * (1 / math.sqrt(math.prod(shape[1:])))
        elif name.endswith("weight"):
            u = 1 + 0.2 * u
        else:
            u = 0.1 * u
        parameter.data = single(u).reshape(shape)


def make_batch(description, batch):
    shape = [batch] + description["input-shape"]
    first, last = description["layers"][0], description["layers"][-1]
    if first["type"] == "Embedding":
        x = (hashes(INPUTS, math.prod(shape)) % first["num_embeddings"]).double()
    else:
        x = single(1.7 * numbers(INPUTS, math.prod(shape)))
    return x.reshape(shape), hashes(LABELS, batch) % last["out_features"]


def sketch(stream, d):
    """What the file holds of one value for each parameter of a tensor."""
    d = d.flatten()
    places = [(2 * k + 1) * d.numel() // (2 * PLACES) for k in range(PLACES)]
    sums = torch.stack([(d * d).sum(), (d * numbers(stream, d.numel())).sum()])
    return torch.cat([d[places], sums])


def run(job, batch):
    model = Model(job["model"]["layers"]).double()
    start(model)
    x, labels = make_batch(job["model"], batch)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    training = dict(job["training"], **{"learning-rate": job["training"]["learning-rate"] / 10})
    if training["optimizer"]["type"] != "SGD":
        training["optimizer"] = dict(training["optimizer"], eps=1e-3)
    optimizer = make_optimizer(model.parameters(), training)
    losses, out = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            out = {"g/" + name: sketch(i, p.grad) for i, (name, p) in enumerate(model.named_parameters())}
        if "clip-norm" in training:
            torch.nn.utils.clip_grad_norm_(model.parameters(), training["clip-norm"])
        optimizer.step()
    changes = {"d10/" + name: sketch(i, p.detach() - before[name])
               for i, (name, p) in enumerate(model.named_parameters())}
    return {"loss": torch.tensor(losses, dtype=torch.float64), "y10": model(x), **out, **changes}


def main():
    torch.set_num_threads(1)
    with open(os.path.join(HERE, "zoo", "cases.txt"), encoding="utf-8") as file:
        cases = [line.split() for line in file]
    for name, batch in cases:
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            with open(os.path.join(ZOO, name + ".json"), encoding="utf-8") as file:
                out = run(json.load(file), int(batch))
            print(f"{name}: loss {out['loss'][0]:.4f} to {out['loss'][-1]:.4f}")
            write_safetensors(os.path.join(HERE, "zoo", name + ".safetensors"), out)


if __name__ == "__main__":
    main()
