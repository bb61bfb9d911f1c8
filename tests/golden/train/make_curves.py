"""Makes the curves of tests/edge/train/model/test_curves.c with PyTorch in double precision: make_curves.py

A curve is the batch's mean loss before each step of a job of examples/zoo, as the job says, from the start of
make_zoo.py; step s takes the examples hash(1002, s · batch + k) modulo their number. curves/cases.txt has a line
"NAME VALUES LABELS BATCH" for each, curves/NAME.safetensors the losses. The windows of text are LICENSE's, by
examples/zoo/text_windows.py with --stride 16. Fashion-MNIST is Debian's package dataset-fashion-mnist.
"""

import ast
import gzip
import json
import os
import struct

import torch

from make_golden import write_safetensors
from make_zoo import HERE, ZOO, hashes, start
from torch_model import Model, make_optimizer

ORDER = 1002
STEPS = 100


def load_array(path):
    """An idx (gzip) or npy file of bytes."""
    with (gzip.open(path) if path.endswith(".gz") else open(path, "rb")) as file:
        data = file.read()
    if data.startswith(b"\x93NUMPY"):
        begin = 10 + struct.unpack_from("<H", data, 8)[0]
        shape = ast.literal_eval(data[10:begin].decode("ascii").strip())["shape"]
    else:
        begin = 4 + 4 * data[3]
        shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return torch.frombuffer(bytearray(data[begin:]), dtype=torch.uint8).reshape(shape)


def load_data(job, values, labels):
    """All examples, normalised in single precision as a client does."""
    how = job["data"].get("normalisation", {})
    x = load_array(values).float().reshape([-1] + job["data"]["shape"])
    if how:
        x = (x / how["divide-by"] - how["mean"][0]) / how["std"][0]
    return x, load_array(labels).long()


def curve(job, x, labels, steps, batch, dtype):
    torch.manual_seed(0)
    training = job["training"]
    model = Model(job["model"]["layers"])
    start(model)
    model = model.to(dtype)
    optimizer = make_optimizer(model.parameters(), training)
    order = hashes(ORDER, steps * batch) % len(x)
    losses = []
    for step in range(steps):
        chosen = order[step * batch:(step + 1) * batch]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[chosen].to(dtype)), labels[chosen])
        losses.append(loss.item())
        loss.backward()
        if "clip-norm" in training:
            torch.nn.utils.clip_grad_norm_(model.parameters(), training["clip-norm"])
        optimizer.step()
    return losses


def load_job(name):
    with open(os.path.join(ZOO, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def main():
    torch.set_num_threads(1)
    folder = os.path.join(HERE, "curves")
    with open(os.path.join(folder, "cases.txt"), encoding="utf-8") as file:
        cases = [line.split() for line in file]
    for name, values, labels, batch in cases:
        job = load_job(name)
        x, y = load_data(job, os.path.join(folder, values), os.path.join(folder, labels))
        losses = curve(job, x, y, STEPS, int(batch), torch.float64)
        print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, highest {max(losses):.4f}")
        write_safetensors(os.path.join(folder, name + ".safetensors"),
                          {"loss": torch.tensor(losses, dtype=torch.float64)})


if __name__ == "__main__":
    main()
