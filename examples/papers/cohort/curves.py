#!/usr/bin/env python3
"""Draws accuracy against the size of the cohort: curves.py OUT FILE.svg, OUT being what run.sh was given.

One curve for each scaling of the server's learning rate: the mean over the seeds of the last ten rounds' accuracy,
with a bar from the lowest to the highest seed.
"""

import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from table import SCALINGS, cohorts, load  # noqa: E402

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 60, 20, 20, 50
COLOURS = ("#0072b2", "#d55e00", "#009e73")


def draw(found):
    sizes = sorted(found)
    curves = {name: [(size, [100 * run["accuracy_last_10"] for run in found[size][name]])
                     for size in sizes if name in found[size]] for name, _ in SCALINGS}
    lowest = min(min(values) for curve in curves.values() for _, values in curve)
    highest = max(max(values) for curve in curves.values() for _, values in curve)
    low, high = 5 * math.floor(lowest / 5), max(5 * math.ceil(highest / 5), 5 * math.floor(lowest / 5) + 5)

    def x(size):
        span = math.log2(sizes[-1] / sizes[0]) or 1
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(size / sizes[0]) / span

    def y(value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
             f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    step = 5 if high - low <= 40 else 10
    for value in range(low, high + 1, step):
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>')
    for size in sizes:
        parts.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">clients in a round</text>'
                 f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">'
                 'test accuracy, %</text>')
    for at, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[at]
        points = [(x(size), y(sum(values) / len(values))) for size, values in curve]
        parts.append(f'<path d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in points)}" fill="none" stroke="{colour}" '
                     'stroke-width="2"/>')
        for size, values in curve:
            parts.append(f'<path d="M{x(size):.1f} {y(min(values)):.1f}V{y(max(values)):.1f}" stroke="{colour}"/>')
        top = HEIGHT - BOTTOM - 56 + 16 * at
        label = "no scaling" if name == "none" else f"{name} scaling"
        parts.append(f'<path d="M{LEFT + 10} {top - 4}h20" stroke="{colour}" stroke-width="2"/>'
                     f'<text x="{LEFT + 36}" y="{top}">{label}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = cohorts(load(sys.argv[1]))
    if not found:
        sys.exit(f"curves.py: {sys.argv[1]} has no runs of run.sh that have ended")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(found))


if __name__ == "__main__":
    main()
