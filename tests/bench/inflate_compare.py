"""The table of inflate.sh."""

import argparse
import os
import subprocess

from rows import Rows, load_average, note


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    size, turns = (8_000_000, 3) if args.quick else (64_000_000, 9)
    note(f"load average before: {load_average()}, {os.cpu_count()} cores; {size:,} bytes, {turns} turns")
    best = {}
    for _ in range(turns):
        said = subprocess.run([args.fedge, str(size)], check=True, stdout=subprocess.PIPE).stdout.decode()
        for line in said.splitlines():
            stream, library, how, packed, raw, seconds = line.split("\t")
            key = stream, library, how
            cost = float(seconds) / (int(packed) / 1e9), int(raw) / int(packed)  # where it deflates: the other way round
            best[key] = min(best.get(key, cost), cost)
    out = Rows(args.json, f"{'stream':18} {'library':12} {'how':10} {'CPU s/GB in':>12} {'of zlib':>8} {'out/in':>7}")
    for (stream, library, how), (cost, ratio) in best.items():
        zlib = best[stream, "zlib", "in pieces"][0]
        if how == "deflates":
            out.put(("inflate", f"{stream}: deflated by clients", round(cost, 3), "CPU s/GB in", None, None, None),
                    f"{stream:18} {library:12} {how:10} {cost:12.3f} {'':8} {ratio:7.2f}")
            continue
        out.put(("inflate", f"{stream}: {library}, {how}", round(cost, 3), "CPU s/GB in", "zlib", round(zlib, 3),
                 round(zlib / cost, 3)),
                f"{stream:18} {library:12} {how:10} {cost:12.3f} {cost / zlib:8.2f} {ratio:7.2f}")


main()
