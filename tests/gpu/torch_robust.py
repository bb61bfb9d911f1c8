"""The robust rules of bench_robust in PyTorch on GPU 0: torch_robust.py [--tiny]

64 updates of float32 are on the GPU: the median and the trimmed mean of each coordinate, some at a time so that
what they sort fits, and Krum by one product of matrices. A row of JSON for each."""

import json
import statistics
import sys
import time

import torch

UPDATES, F, REPEATS = 64, 12, 7
PIECE = 1 << 22  # coordinates at a time


def pieces(x, rule):
    return torch.cat([rule(part) for part in x.split(PIECE, dim=1)])


def median(x):
    """PyTorch's median is the lower of the two; a quantile of 0.5 is slower than both."""
    def both(part):
        return (part.kthvalue(UPDATES // 2, dim=0).values + part.kthvalue(UPDATES // 2 + 1, dim=0).values) / 2
    return pieces(x, both)


def lower_median(x):
    return pieces(x, lambda part: part.median(dim=0).values)


def sorted_median(x):
    return pieces(x, lambda part: part.sort(dim=0).values[UPDATES // 2 - 1:UPDATES // 2 + 1].mean(dim=0))


def trimmed(x):
    cut = UPDATES // 5
    return pieces(x, lambda part: part.sort(dim=0).values[cut:UPDATES - cut].mean(dim=0))


def krum(x):
    gram = x @ x.T
    norms = gram.diagonal()
    squares = norms[:, None] + norms[None, :] - 2 * gram
    squares.fill_diagonal_(float("inf"))
    scores = squares.sort(dim=1).values[:, :UPDATES - F - 2].sum(dim=1)
    return x[scores.argmin().item()].clone()


def seconds_of(rule, x):
    taken = []
    for _ in range(REPEATS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        rule(x)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def main():
    tiny = "--tiny" in sys.argv
    if not torch.cuda.is_available():
        print("torch_robust.py: PyTorch finds no GPU", file=sys.stderr)
        return 3
    name, parameters = ("3 k", 3000) if tiny else ("25.6 M", 25557032)
    x = torch.rand(UPDATES, parameters, device="cuda") * 0.02 - 0.01
    # Of the ways to a median the fastest is the peer.
    rows = {"median": min(seconds_of(rule, x) for rule in (median, lower_median, sorted_median)),
            "trimmed mean": seconds_of(trimmed, x), "Krum": seconds_of(krum, x)}
    for rule, seconds in rows.items():
        print(json.dumps({"bench": "gpu", "case": f"{rule} of {UPDATES} × {name} in PyTorch",
                          "value": float(f"{1 / seconds:.6g}"), "unit": "rounds/s"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
