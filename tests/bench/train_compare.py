"""Runs the halves of train.sh in turn and prints medians: a table, or a JSON object per row."""

import argparse
import glob
import os
import statistics

from half import Half
from rows import Rows, load_average, note

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ZOO = os.path.join(ROOT, "examples", "zoo")
BATCHES = (10, 32)
# One model of each kind, at the batch size where most is known of it.
QUICK = [("2nn", 10), ("mcmahan-cnn", 10), ("resnet-8-groupnorm", 32), ("char-lstm", 10)]
FUSED = ("2nn", "mcmahan-cnn", "lenet-5")  # rows of their own for other ways to train them
WAYS = ("dense", "bf16")


class Pinned(Half):
    """On one core."""

    def __init__(self, core, command):
        super().__init__(["taskset", "-c", str(core), *command])


class Table(Rows):
    def __init__(self, as_json):
        super().__init__(as_json, f"{'case':40}{'fedge':>16} {'unit':12}{'peer':>18}{'':>16}{'ratio':>8}")

    def row(self, case, value, unit, peer=None, peer_value=None, ratio=None):
        other = f"{peer:>18}{peer_value:>16,.1f}{ratio:>8.2f}" if peer else ""
        self.put(("train", case, value, unit, peer, peer_value, ratio and round(ratio, 3)),
                 f"{case:40}{value:>16,.1f} {unit:12}{other}")


def compare(args, table, name, batch, peak):
    """All halves in turn on one core; rows for each peer, then what the figures mean."""
    job = os.path.join(ZOO, name + ".json")
    fedge = [args.fedge, job, str(batch)]
    halves = [Pinned(args.core, fedge)]
    ways = WAYS if name in FUSED and not args.quick else ()
    halves += [Pinned(args.core, fedge + [way]) for way in ways]
    ours = len(halves)
    for python in args.python:
        halves.append(Pinned(args.core, [python, "-B", "tests/bench/train_pytorch.py", job, str(batch)]))
    for half in halves:
        half.turn(args.seconds / 4)  # warm up
    turns = [[half.turn(args.seconds) for half in halves] for _ in range(args.turns)]
    for half in halves:
        half.close()
    speeds = [statistics.median(turn[i][0] for turn in turns) for i in range(len(halves))]
    memory = [max(turn[i][1] for turn in turns) for i in range(len(halves))]
    _, flops, block = halves[0].about.split()
    case = f"{name} B={batch}"
    for i in range(ours, len(halves)):
        table.row(case, speeds[0], "samples/s", halves[i].about, speeds[i], speeds[0] / speeds[i])
        table.row(case + ": peak memory", memory[0], "bytes", halves[i].about, memory[i], memory[i] / memory[0])
    if ours == len(halves):
        table.row(case, speeds[0], "samples/s")
        table.row(case + ": peak memory", memory[0], "bytes")
    for way, speed in zip(ways, speeds[1:]):
        table.row(f"{case}, {way}", speed, "samples/s", "fp32", speeds[0], speed / speeds[0])
    table.row(case + ": the model's block", int(block), "bytes")
    rate = speeds[0] * float(flops)
    table.row(case + ": matrix products", rate / 1e9, "GFLOP/s", "the core's peak", peak / 1e9, rate / peak)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    args.turns, args.seconds = (5, 0.2) if args.quick else (5, 0.5)
    args.core = max(os.sched_getaffinity(0))
    found = {os.path.basename(path)[:-5] for path in glob.glob(os.path.join(ZOO, "*.json"))}
    cases = QUICK if args.quick else [(name, batch) for name in sorted(found) for batch in BATCHES]
    if args.models:
        cases = [(name, batch) for name in args.models for batch in BATCHES]
    table = Table(args.json)
    limits = Pinned(args.core, [args.fedge, "peak", "0.3" if args.quick else "2"])
    peak, read = (float(number) for number in limits.about.split())
    limits.close()
    table.row("one core, fused multiply-adds", peak / 1e9, "GFLOP/s")
    table.row("one core, reading memory", read / 1e9, "GB/s")
    for name, batch in cases:
        if name not in found:
            raise SystemExit(f"train.sh: examples/zoo has no {name}; it has {', '.join(sorted(found))}")
        note(f"{name} B={batch}, load average {load_average()}")
        compare(args, table, name, batch, peak)


main()
