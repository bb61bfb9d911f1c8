"""The rounds of cohorts.py in PyTorch on GPU 0: torch_cohort.py [--quick] [--seconds N]

A row of JSON for each model, cohort and way, in samples/s. One after another: each client loads the global model, takes
its steps and adds what it has changed to a sum. vmap: torch.func trains all clients at once, with weights of their own,
by one compiled step. Examples lie on the GPU as bytes, as fedge's do. A way that PyTorch cannot go (LSTM under vmap) or
that finds no memory is said on stderr and has no row. --quick: small sizes, on the CPU where there is no GPU."""

import json
import os
import sys
import time

import torch

from cohort_cases import BATCH, POOL, RATE, ROOT, example_bytes, selected

sys.path.insert(0, os.path.join(ROOT, "tests", "golden", "train"))

from torch_model import Model  # noqa: E402 (the path is set above)

MOST_ALONE = 10  # clients one after another: their rate does not depend on how many there are
REPEATS = 3


class Examples:
    """Of all clients: bytes (clients, examples, …) and labels."""

    def __init__(self, job, clients, each, device):
        values, labels = example_bytes(job, min(POOL, clients * each))
        shape = job["data"]["shape"]
        x = torch.frombuffer(bytearray(values), dtype=torch.uint8).reshape(-1, *shape)
        at = torch.arange(clients * each) % len(labels)
        self.x = x[at].reshape(clients, each, *shape).to(device)
        self.labels = torch.tensor(labels)[at].reshape(clients, each).to(device)
        norm = job["data"].get("normalisation")
        self.is_text = norm is None
        if norm:
            channels = (-1, *[1] * (len(shape) - 1))
            self.mean, self.std = (torch.tensor(norm[key], device=device).reshape(channels) for key in ("mean", "std"))
            self.divide_by = norm["divide-by"]

    def batch(self, which, first):
        """Of client [which], or of all: slice(None)."""
        x = self.x[which, first:first + BATCH] if isinstance(which, int) else self.x[:, first:first + BATCH]
        labels = (self.labels[which, first:first + BATCH] if isinstance(which, int)
                  else self.labels[:, first:first + BATCH])
        return x if self.is_text else (x.float() / self.divide_by - self.mean) / self.std, labels


def one_after_another(model, examples, clients, each):
    start = [p.detach().clone() for p in model.parameters()]
    sums = [torch.zeros_like(p) for p in start]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for client in range(clients):
        with torch.no_grad():
            torch._foreach_copy_(list(model.parameters()), start)
        for first in range(0, each, BATCH):
            x, labels = examples.batch(client, first)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()
        with torch.no_grad():
            torch._foreach_add_(sums, torch._foreach_sub([p.detach() for p in model.parameters()], start))
    with torch.no_grad():
        torch._foreach_copy_(list(model.parameters()), torch._foreach_add(start, sums, alpha=1.0 / clients))


def vmap_step(model, compiles):
    def loss(values, x, labels):
        return torch.nn.functional.cross_entropy(torch.func.functional_call(model, values, (x,)), labels)

    gradients = torch.func.vmap(torch.func.grad(loss), randomness="different")

    def step(values, x, labels):
        slopes = gradients(values, x, labels)
        return {name: value - RATE * slopes[name] for name, value in values.items()}

    return torch.compile(step) if compiles else step


def all_at_once(model, step, examples, clients, each):
    start = {name: p.detach() for name, p in model.named_parameters()}
    values = {name: p.expand(clients, *p.shape).clone() for name, p in start.items()}
    for first in range(0, each, BATCH):
        values = step(values, *examples.batch(slice(None), first))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(start[name] + (values[name] - start[name]).mean(0))


def rate(run, samples, device):
    def once():
        begin = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    once()
    return samples / sorted(once() for _ in range(REPEATS))[REPEATS // 2]


def put(case, way, value):
    print(json.dumps({"bench": "gpu", "case": f"{case} in PyTorch, {way}", "value": float(f"{value:.6g}"),
                      "unit": "samples/s"}), flush=True)


def attempt(case, way, run, samples, device):
    try:
        put(case, way, rate(run, samples, device))
    except Exception as error:  # what PyTorch cannot vectorise or compile, it says in many ways
        print(f"torch_cohort.py: {case}, {way}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)


def main():
    quick = "--quick" in sys.argv
    limit = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 150.0
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not quick:
        print("torch_cohort.py: PyTorch finds no GPU", file=sys.stderr)
        return 3
    end = time.monotonic() + limit
    for name, job, each, cohorts, _ in selected(quick):
        torch.manual_seed(1)
        model = Model(job["model"]["layers"]).to(device)
        step = vmap_step(model, device == "cuda")
        few = min(MOST_ALONE, max(cohorts))
        alone = Examples(job, few, each, device)
        for clients in cohorts:
            case = f"train {name}, B={BATCH}, cohort of {clients}"
            if time.monotonic() > end:
                print(f"torch_cohort.py: {case}: left out, {limit:.0f} s are over", file=sys.stderr)
                continue
            attempt(case, "one after another", lambda: one_after_another(model, alone, few, each), few * each, device)
            together = Examples(job, clients, each, device)
            attempt(case, "vmap", lambda: all_at_once(model, step, together, clients, each), clients * each, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
