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

from work import Case


def arrays(model):
    return [parameter.detach() for parameter in model.parameters()]


def work(case, weights, totals, pipe):
    torch.set_num_threads(1)
    model = case.make_model()
    own = arrays(model)
    while True:
        clients = pipe.recv()
        if clients is None:
            return
        for total in totals:
            total.zero_()
        count = 0
        for client in clients:
            for mine, weight in zip(own, weights):
                mine.copy_(weight)
            examples = case.train(model, case.optimizer(model), client)
            for total, mine in zip(totals, own):
                total.add_(mine, alpha=examples)
            count += examples
        pipe.send(count)


def main():
    multiprocessing.set_start_method("fork")  # the data is there once
    torch.set_num_threads(1)
    case, processes = Case(sys.argv[1]), int(sys.argv[2])
    model = case.make_model().share_memory()
    weights = arrays(model)
    workers = []
    for _ in range(processes):
        ours, theirs = multiprocessing.Pipe()
        totals = [torch.zeros_like(weight).share_memory_() for weight in weights]
        process = multiprocessing.Process(target=work, args=(case, weights, totals, theirs))
        process.start()
        workers.append((process, ours, totals))
    draw = numpy.random.default_rng(1)
    print(f"PyTorch {torch.__version__.split('+')[0]}", flush=True)
    for line in sys.stdin:
        start = time.monotonic()
        for _ in range(int(line)):
            cohort = draw.choice(case.clients, case.cohort, replace=False)
            for (_, pipe, _), clients in zip(workers, numpy.array_split(cohort, processes)):
                pipe.send(clients)
            count = sum(pipe.recv() for _, pipe, _ in workers)
            for weight, *totals in zip(weights, *(totals for _, _, totals in workers)):
                torch.div(sum(totals), count, out=weight)
        print(time.monotonic() - start, flush=True)
    for process, pipe, _ in workers:
        pipe.send(None)
        process.join()
    print(f"plain PyTorch: {case.describe(model)}", file=sys.stderr)


if __name__ == "__main__":
    main()
