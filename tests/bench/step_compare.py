"""The measuring half of step.sh."""

import argparse
import json
import subprocess

from rows import Rows, load_average, note

STRATEGIES = {name: {"type": name} for name in ("FedAvg", "FedAvgM", "FedAdagrad", "FedAdam", "FedYogi")}


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], check=True, text=True, stdout=subprocess.PIPE)
    return [float(word) for word in done.stdout.split()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--read", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seconds = 0.7 if options.quick else 4.0
    rows = Rows(options.json, "| strategy | parameters | steps/s | GB/s | of reading |\n| --- | --- | --- | --- | --- |")
    for parameters in [1663370] if options.quick else [1663370, 25600000]:
        for name, strategy in STRATEGIES.items():
            before, = run(options.read, "read", seconds / 2)
            rate, size = run(options.fedge, json.dumps(strategy), parameters, seconds)
            after, = run(options.read, "read", seconds / 2)
            read = (before + after) / 2
            note(f"{name}: one core read {before / 1e9:.1f} and {after / 1e9:.1f} GB/s; load average {load_average()}")
            share = rate * size / read
            rows.put(("step", f"{name} {parameters}", round(rate * size / 1e9, 2), "GB/s", "one core's reads",
                      round(read / 1e9, 2), round(share, 3)),
                     f"| `{name}` | {parameters:,} | {rate:.0f} | {rate * size / 1e9:.1f} | {share:.2f} |")


if __name__ == "__main__":
    main()
