"""The measuring half of robust.sh."""

import argparse
import json
import subprocess
import time

import numpy as np

from rows import Rows, load_average, note

UPDATES, F = 64, 12


def squares(x):
    """By the Gram matrix, which is the fast way in NumPy."""
    gram = x @ x.T
    norms = np.diag(gram)
    return norms[:, None] + norms[None, :] - 2 * gram


def scores(x):
    d = squares(x)
    np.fill_diagonal(d, np.inf)
    return np.sort(d, axis=1)[:, :len(x) - F - 2].sum(axis=1)


def median(x):
    return np.median(x, axis=0)


def trimmed(x):
    cut = int(0.2 * len(x))
    return np.sort(x, axis=0)[cut:len(x) - cut].mean(axis=0)


def krum(x):
    return x[np.argmin(scores(x))]


def multi_krum(x):
    return x[np.argsort(scores(x))[:len(x) - F]].mean(axis=0)


def bulyan(x):
    left, chosen, d = list(range(len(x))), [], squares(x)
    while len(left) > 2 * F:
        part = d[np.ix_(left, left)]
        np.fill_diagonal(part, np.inf)
        best = np.argmin(np.sort(part, axis=1)[:, :max(len(left) - F - 2, 1)].sum(axis=1))
        chosen.append(left.pop(best))
    chosen = np.sort(x[chosen], axis=0)
    near = np.argsort(np.abs(chosen - np.median(chosen, axis=0)), axis=0)[:len(chosen) - 2 * F]
    return np.take_along_axis(chosen, near, axis=0).mean(axis=0)


def geometric_median(x):
    z = x.mean(axis=0)
    for _ in range(3):
        weights = 1 / np.maximum(1e-6, np.linalg.norm(x - z, axis=1))
        z = weights @ x / weights.sum()
    return z


def clipping(x):
    norms = np.linalg.norm(x, axis=1)
    return (x * np.minimum(1, np.median(norms) / norms)[:, None].astype(x.dtype)).mean(axis=0)


def mixed_median(x):
    order = np.argsort(squares(x), axis=1)[:, :len(x) - F]
    return np.median(np.stack([x[row].mean(axis=0) for row in order]), axis=0)


MALICIOUS = {"num-malicious-nodes": F}
RULES = {
    "FedMedian": (median, {}),
    "FedTrimmedAvg": (trimmed, {}),
    "Krum": (krum, MALICIOUS),
    "MultiKrum": (multi_krum, MALICIOUS),
    "Bulyan": (bulyan, MALICIOUS),
    "RFA": (geometric_median, {}),
    "NormClipping": (clipping, {}),
    "FedMedian, mixing": (mixed_median, {"mixing": True, **MALICIOUS}),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parameters, runs = (100000, 1) if options.quick else (1663370, 3)
    note(f"{UPDATES} updates of {parameters} parameters, one core's CPU time, the least of {runs}; "
         f"load average {load_average()}")
    jobs = [json.dumps({"type": name.split(",")[0], **arguments}) for name, (_, arguments) in RULES.items()]
    mine = subprocess.run([options.fedge, str(UPDATES), str(parameters), str(runs), *jobs], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.split()
    x = np.random.default_rng(1).standard_normal((UPDATES, parameters), dtype=np.float32) * np.float32(0.01)
    rows = Rows(options.json, "| rule | fedge, s | NumPy, s | ratio |\n| --- | --- | --- | --- |")
    for (name, (rule, _)), seconds in zip(RULES.items(), map(float, mine)):
        taken = []
        for _ in range(runs):
            start = time.process_time()
            rule(x)
            taken.append(time.process_time() - start)
        seconds, theirs = max(seconds, 1e-4), min(taken)
        rows.put(("robust", name, seconds, "s", "NumPy", theirs, theirs / seconds),
                 f"| `{name}` | {seconds:.2f} | {theirs:.2f} | {theirs / seconds:.1f} |")


if __name__ == "__main__":
    main()
