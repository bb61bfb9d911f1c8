"""Federated averaging in plain PyTorch, a half of simulate.sh: plain_pytorch.py CASE PROCESSES

A process per core, one thread each; a round's clients are divided among them. Models travel through shared memory: each
process copies the global model into its own, trains a client, and adds the weights to its sum. Prints "PyTorch VERSION"
once it is ready; then, for each line "ROUNDS" on stdin, the seconds that they took.
"""

import sys
import time

import numpy
import torch
import torch.multiprocessing as multiprocessing
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from work import Case


def own_memory(model):
    """All weights of a model as one array, which the model uses from now on."""
    flat = parameters_to_vector(model.parameters()).detach().clone()
    vector_to_parameters(flat, model.parameters())
    return flat


def work(case, weights, total, pipe):
    torch.set_num_threads(1)
    model = case.make_model()
    own = own_memory(model)
    while True:
        clients = pipe.recv()
        if clients is None:
            return
        total.zero_()
        count = 0
        for client in clients:
            own.copy_(weights)
            examples = case.train(model, case.optimizer(model), client)
            total.add_(own, alpha=examples)
            count += examples
        pipe.send(count)


def main():
    multiprocessing.set_start_method("fork")  # the data is there once
    torch.set_num_threads(1)
    case, processes = Case(sys.argv[1]), int(sys.argv[2])
    model = case.make_model()
    weights = own_memory(model).share_memory_()
    vector_to_parameters(weights, model.parameters())
    workers = []
    for _ in range(processes):
        ours, theirs = multiprocessing.Pipe()
        total = torch.zeros_like(weights).share_memory_()
        process = multiprocessing.Process(target=work, args=(case, weights, total, theirs))
        process.start()
        workers.append((process, ours, total))
    draw = numpy.random.default_rng(1)
    print(f"PyTorch {torch.__version__.split('+')[0]}", flush=True)
    for line in sys.stdin:
        start = time.monotonic()
        for _ in range(int(line)):
            cohort = draw.choice(case.clients, case.cohort, replace=False)
            for (_, pipe, _), clients in zip(workers, numpy.array_split(cohort, processes)):
                pipe.send(clients)
            count = sum(pipe.recv() for _, pipe, _ in workers)
            torch.div(sum(total for _, _, total in workers), count, out=weights)
        print(time.monotonic() - start, flush=True)
    for process, pipe, _ in workers:
        pipe.send(None)
        process.join()
    print(f"plain PyTorch: {case.describe(model)}", file=sys.stderr)


if __name__ == "__main__":
    main()
