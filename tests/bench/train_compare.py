"""Runs the two halves of train.sh in turn and prints medians: a table, or a JSON object per row."""

import argparse
import json
import os
import statistics
import subprocess
import sys

CASES = [(case, batch) for case in ("quickstart-cnn", "2nn", "mcmahan-cnn") for batch in (10, 32)]


class Half:
    """A program that trains for the seconds it reads on a line and answers with numbers."""

    def __init__(self, command):
        env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=env, text=True)

    def turn(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise SystemExit(f"{self.process.args[0]} ended early")
        return [float(number) for number in answer]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(args, case, batch):
    """Medians of both halves: [samples/s, resident bytes], the peer's None without PyTorch."""
    halves = [Half([args.fedge, case, str(batch)])]
    if args.python:
        halves.append(Half([args.python, "tests/bench/train_pytorch.py", case, str(batch)]))
    for half in halves:
        half.turn(args.seconds / 4)  # warm up
    turns = [[half.turn(args.seconds) for half in halves] for _ in range(args.turns)]
    for half in halves:
        half.close()
    medians = [[statistics.median(turn[i][column] for turn in turns) for column in (0, 1)]
               for i in range(len(halves))]
    return medians + [[None, None]] * (2 - len(halves))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--python", default="")
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--json", type=int, default=0)
    args = parser.parse_args()
    if not args.json:
        print(f"{'case':24}{'unit':>10}{'fedge':>14}{'PyTorch':>14}{'ratio':>8}")
    for case, batch in CASES:
        (speed, memory), (peer_speed, peer_memory) = compare(args, case, batch)
        rows = [("samples/s", speed, peer_speed, peer_speed and speed / peer_speed),
                ("bytes", memory, peer_memory, peer_memory and peer_memory / memory)]
        for unit, value, peer_value, ratio in rows:
            name = f"{case} B={batch}"
            if args.json:
                print(json.dumps({"bench": "train", "case": name, "value": value, "unit": unit,
                                  "peer": "pytorch" if args.python else None,
                                  "peer_value": peer_value,
                                  "ratio": ratio and round(ratio, 3)}))
            else:
                print(f"{name:24}{unit:>10}{value:>14,.0f}" +
                      (f"{peer_value:>14,.0f}{ratio:>8.2f}" if peer_value else ""))
            sys.stdout.flush()


main()
