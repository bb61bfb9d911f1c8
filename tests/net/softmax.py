"""Softmax regression as a job, every step of which sees all of a client's examples, and the values of a model's file."""

import json
import struct

from harness import FEATURES, LABELS

STEPS, ROUNDS, RATE = 3, 5, 0.5


def read_model(path):
    """Values of a safetensors file: name to a list of bytes of four."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in tensor["data_offsets"])
            tensors[name] = [data[i:i + 4] for i in range(begin, end, 4)]
    return tensors


def job(**more):
    return {"model": {"input-shape": [FEATURES], "layers": [
                {"type": "Linear", "in_features": FEATURES, "out_features": LABELS}]},
            "rounds__num_server_rounds": ROUNDS,
            "training": {"local-steps": STEPS, "batch-size": 64, "learning-rate": RATE}, **more}


def scaffold_job(**more):
    return job(strategy={"type": "SCAFFOLD"}, **more)
