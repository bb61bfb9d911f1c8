"""The measuring half of ranks.sh's row cohort: one process with two threads and two ranks with one each, in turn."""

import argparse
import os
import statistics
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "net"))

from ranks import ENVIRONMENT  # noqa: E402 (the path is set above)
from rows import load_average, note  # noqa: E402
from simulate_compare import Case, Run, Table  # noqa: E402

RANKS = 2
CASES = ("2nn", "mcmahan-cnn")


def measure(args, table, case):
    on_ranks = {"prefix": ("mpirun", "-n", str(RANKS)), "environment": ENVIRONMENT}
    begun = Run(args, case, 1, RANKS)
    rounds = max(1, round(args.seconds / begun.round))
    runs = [], []
    for _ in range(args.turns):
        alone = Run(args, case, rounds, RANKS)
        together = Run(args, case, rounds, 1, **on_ranks)
        if alone.model != together.model:
            raise SystemExit(f"{case.title}: {RANKS} ranks make another model than one process")
        note(f"{case.name}, {rounds} rounds, load average {load_average()}: {alone.seconds:.2f} s, {together.seconds:.2f} s")
        runs[0].append(alone)
        runs[1].append(together)
    alone, together = (statistics.median(run.seconds for run in of) / rounds for of in runs)
    pairs = statistics.median(one.seconds / two.seconds for one, two in zip(*runs))
    table.row(f"{case.title}: {RANKS} ranks", 1 / together, "rounds/s", f"{RANKS} threads", 1 / alone)
    table.row(f"{case.title}: {RANKS} ranks, median of pairs", pairs, "of one process")
    for name, of in (("one process", runs[0]), (f"{RANKS} ranks", runs[1])):
        table.row(f"{case.title}: {name}, start and end", statistics.median(run.wall - run.seconds for run in of), "s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.turns, args.seconds = (5, 2) if args.quick else (9, 6)
    table = Table(args.json)
    for name in CASES:
        with tempfile.TemporaryDirectory(prefix="fedge-ranks-") as folder:
            measure(args, table, Case(args, folder, name))


if __name__ == "__main__":
    main()
