"""The measuring half of robust.sh."""

import argparse
import json
import os
import subprocess
import tempfile
import time

import numpy as np

from rows import Rows, load_average, note

UPDATES, F = 64, 12
CNN, LARGE = 1663370, 25600000
PIECE = 1600000  # coordinates that NumPy has at a time of the larger model: all would be 6.6 GB and more


class Pieces:
    """A round of so many coordinates: the same updates again and again, as often as it takes. Calling it with a
    function gives what that makes of each piece, and counts how long it takes."""

    def __init__(self, updates, parameters, clock):
        self.updates, self.clock, self.taken = updates, clock, 0.0
        self.count = -(-parameters // updates.shape[1])

    def __call__(self, function):
        results = []
        for _ in range(self.count):
            start = self.clock()
            results.append(function(self.updates))
            self.taken += self.clock() - start
        return results

    def make(self, function):
        """The model's change, of which nothing is kept."""
        self(lambda x: function(x).sum())


def squares(each):
    """By the Gram matrix, which is the fast way in NumPy."""
    gram = sum(each(lambda x: x @ x.T))
    norms = np.diag(gram)
    return norms[:, None] + norms[None, :] - 2 * gram


def scores(each):
    d = squares(each)
    np.fill_diagonal(d, np.inf)
    return np.sort(d, axis=1)[:, :UPDATES - F - 2].sum(axis=1)


def median(each):
    each.make(lambda x: np.median(x, axis=0))


def trimmed(each):
    cut = int(0.2 * UPDATES)
    each.make(lambda x: np.sort(x, axis=0)[cut:UPDATES - cut].mean(axis=0))


def krum(each):
    best = np.argmin(scores(each))
    each.make(lambda x: x[best])


def multi_krum(each):
    best = np.argsort(scores(each))[:UPDATES - F]
    each.make(lambda x: x[best].mean(axis=0))


def bulyan(each):
    left, chosen, d = list(range(UPDATES)), [], squares(each)
    while len(left) > 2 * F:
        part = d[np.ix_(left, left)]
        np.fill_diagonal(part, np.inf)
        best = np.argmin(np.sort(part, axis=1)[:, :max(len(left) - F - 2, 1)].sum(axis=1))
        chosen.append(left.pop(best))

    def nearest(x):
        x = np.sort(x[chosen], axis=0)
        near = np.argsort(np.abs(x - np.median(x, axis=0)), axis=0)[:len(x) - 2 * F]
        return np.take_along_axis(x, near, axis=0).mean(axis=0)
    each.make(nearest)


def geometric_median(each):
    weights = np.ones(UPDATES, dtype=np.float32)
    for _ in range(3):
        shares = weights / weights.sum()
        far = np.sqrt(sum(each(lambda x, shares=shares: np.linalg.norm(x - shares @ x, axis=1) ** 2)))
        weights = (1 / np.maximum(1e-6, far)).astype(np.float32)
    each.make(lambda x: weights @ x / weights.sum())


def clipping(each):
    norms = np.sqrt(sum(each(lambda x: np.linalg.norm(x, axis=1) ** 2)))
    shares = np.minimum(1, np.median(norms) / norms)[:, None].astype(np.float32)
    each.make(lambda x: (x * shares).mean(axis=0))


def trust(each):
    """The last row stands for the server's update, which fedge trains in its time on a few examples."""
    dots = sum(each(lambda x: x @ x[-1]))
    norms = np.sqrt(sum(each(lambda x: np.linalg.norm(x, axis=1) ** 2)))
    trusted = np.maximum(0, dots / (norms * norms[-1]))
    shares = (trusted / trusted.sum() * norms[-1] / norms).astype(np.float32)
    each.make(lambda x: shares @ x)


def mixed_median(each):
    order = np.argsort(squares(each), axis=1)[:, :UPDATES - F]
    each.make(lambda x: np.median(np.stack([x[row].mean(axis=0) for row in order]), axis=0))


MALICIOUS = {"num-malicious-nodes": F}
ROOT = {"root-set": {"values": "root-values.npy", "labels": "root-labels.npy"}}
RULES = {
    "FedMedian": (median, {}),
    "FedTrimmedAvg": (trimmed, {}),
    "Krum": (krum, MALICIOUS),
    "MultiKrum": (multi_krum, MALICIOUS),
    "Bulyan": (bulyan, MALICIOUS),
    "RFA": (geometric_median, {}),
    "NormClipping": (clipping, {}),
    "FedMedian, mixing": (mixed_median, {"mixing": True, **MALICIOUS}),
    "FLTrust": (trust, ROOT),  # last: the process's growth is counted up to it
}


def measured(options, parameters, threads, runs):
    """What fedge says: seconds of each rule, and the bytes that the process has grown by."""
    jobs = [json.dumps({"type": name.split(",")[0], **arguments}) for name, (_, arguments) in RULES.items()]
    with tempfile.TemporaryDirectory() as folder:
        np.save(os.path.join(folder, ROOT["root-set"]["values"]), np.linspace(-1, 1, 32, dtype=np.float32)[:, None])
        np.save(os.path.join(folder, ROOT["root-set"]["labels"]), np.arange(32) // 16)
        return subprocess.run([os.path.abspath(options.fedge), str(UPDATES), str(parameters), str(runs), str(threads),
                               *jobs], check=True, text=True, stdout=subprocess.PIPE, cwd=folder).stdout.split()


def compare(options, rows, parameters, threads, runs):
    *mine, grown = measured(options, parameters, threads, runs)
    note(f"{parameters} parameters, {threads} threads: the process grew by {int(grown) / 2 ** 20:.0f} MiB")
    size = parameters if parameters <= PIECE * 1.1 else PIECE
    x = np.random.default_rng(1).standard_normal((UPDATES, size), dtype=np.float32) * np.float32(0.01)
    for (name, (rule, _)), seconds in zip(RULES.items(), map(float, mine)):
        taken = []
        for _ in range(runs):
            each = Pieces(x, parameters, time.process_time if threads == 1 else time.perf_counter)
            rule(each)
            taken.append(each.taken)
        seconds, theirs = max(seconds, 1e-4), min(taken)
        rows.put(("robust", f"{name}, {parameters} parameters, threads {threads}", seconds, "s", "NumPy", theirs,
                  theirs / seconds),
                 f"| `{name}` | {parameters:,} | {threads} | {seconds:.2f} | {theirs:.2f} | {theirs / seconds:.1f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = 1 if options.quick or options.large else 3
    note(f"{UPDATES} updates; of one thread CPU time, else the clock's; the least of {runs}; "
         f"load average {load_average()}")
    rows = Rows(options.json, "| rule | parameters | threads | fedge, s | NumPy, s | ratio |\n"
                              "| --- | --- | --- | --- | --- | --- |")
    compare(options, rows, 100000 if options.quick else LARGE if options.large else CNN, options.threads, runs)


if __name__ == "__main__":
    main()
