"""The rounds of bench_gpu in PyTorch on GPU 0: torch_round.py [--tiny]

Encoded updates in host memory are copied to the GPU, decoded and summed there with their weights, divided
and added to the model, which goes back to the host. int8 is as fedge has it: blocks of 256 values and a
scale each. Sums are float32, as users of PyTorch would have them. A row of JSON for each case."""

import json
import statistics
import sys
import time

import torch

SIZES = {"1.66 M": 1663370, "25.6 M": 25557032, "355 M": 354827268}
TENSORS, BLOCK, REPEATS = 8, 256, 7


def num_updates(size, least):
    """As bench_gpu takes them."""
    return min(64, max(8, 2 * least // size))


def make_updates(parameters, codec, count):
    """A few different ones, used in turn."""
    pool = []
    for _ in range(max(2, min(count, 3 * 2**30 // (parameters * (4 if codec == "fp32" else 1))))):
        if codec == "fp32":
            pool.append((torch.rand(parameters) * 0.02 - 0.01).pin_memory())
        else:
            blocks = -(-parameters // BLOCK)
            pool.append((torch.randint(-127, 128, (blocks, BLOCK), dtype=torch.int8).pin_memory(),
                         torch.randint(1, 4096, (blocks, 1), dtype=torch.int32).pin_memory()))
    return pool


def add(sums, update, codec):
    if codec == "fp32":
        sums.add_(update.cuda(non_blocking=True), alpha=600.0)
    else:
        values, scales = (part.cuda(non_blocking=True) for part in update)
        sums.addcmul_(values.to(torch.float32), scales.to(torch.float32), value=600.0 * 2.0**-21)


def time_round(parameters, codec, pool, count):
    model = torch.zeros(parameters).pin_memory()
    start = time.perf_counter()
    sums = torch.zeros(parameters if codec == "fp32" else (-(-parameters // BLOCK), BLOCK), device="cuda")
    for i in range(count):
        add(sums, pool[i % len(pool)], codec)
    moved = model.cuda(non_blocking=True).add_(sums.flatten()[:parameters] / (600.0 * count))
    model.copy_(moved)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main():
    tiny = "--tiny" in sys.argv
    least = 2**16 if tiny else 2**30
    if not torch.cuda.is_available():
        print("torch_round.py: PyTorch finds no GPU", file=sys.stderr)
        return 3
    for name, parameters in ({"3 k": 3000} if tiny else SIZES).items():
        for codec in ("fp32", "int8"):
            blocks = -(-(parameters // TENSORS) // BLOCK) * TENSORS
            size = parameters * 4 if codec == "fp32" else parameters + 2 * blocks
            count = num_updates(size, least)
            pool = make_updates(parameters, codec, count)
            seconds = statistics.median([time_round(parameters, codec, pool, count) for _ in range(REPEATS + 1)][1:])
            print(json.dumps({"bench": "gpu", "case": f"round of {count} updates, {codec}, {name}, 1 GPU in PyTorch",
                              "value": float(f"{1 / seconds:.6g}"), "unit": "rounds/s"}), flush=True)
            del pool
    return 0


if __name__ == "__main__":
    sys.exit(main())
