"""Draws curve.svg and writes the table of README.md: python curve.py [OUT]

OUT is what run.py was given; its figures become results.json. Without it both are made of results.json again.
"""

import json
import math
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = {"ffa": ("FFA-LoRA: A frozen, B averaged", "#14406b"), "factors": ("factors: A and B averaged", "#f5a742")}
PARAMETERS = {"ffa": 184320, "factors": 460800}
LEFT, RIGHT, TOP, BOTTOM = 60, 620, 20, 300  # of the plot


def perplexities(figures):
    """By round, from 0."""
    losses = [row["loss"] for row in figures["rounds"] if row["phase"] == "evaluate"]
    return [figures["perplexity"]["base"]] + [math.exp(loss) for loss in losses]


def draw(results):
    curves = {kind: perplexities(figures) for kind, figures in results.items()}
    every = [value for curve in curves.values() for value in curve]
    low, high = 10 * math.floor(min(every) / 10), 10 * math.ceil(max(every) / 10)
    rounds = max(len(curve) for curve in curves.values()) - 1

    def x(number):
        return LEFT + (RIGHT - LEFT) * number / rounds

    def y(value):
        return BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low)

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="640" height="350" viewBox="0 0 640 350">',
             "<style>text{font:12px sans-serif;fill:#333}.right{text-anchor:end}.middle{text-anchor:middle}</style>",
             '<rect width="100%" height="100%" fill="#fff"/>']
    for value in range(low, high + 1, 10):
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{RIGHT}" stroke="#ddd"/>'
                     f'<text class="right" x="{LEFT - 6}" y="{y(value) + 4:.1f}">{value}</text>')
    parts += [f'<text class="middle" x="{x(number):.1f}" y="{BOTTOM + 18}">{number}</text>' for number in range(rounds + 1)]
    parts.append(f'<text class="middle" x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 38}">round</text>'
                 f'<text class="middle" transform="translate(16 {(TOP + BOTTOM) / 2}) rotate(-90)">held-out perplexity</text>')
    for at, (kind, curve) in enumerate(curves.items()):
        name, colour = KINDS[kind]
        points = " ".join(f"{x(number):.1f},{y(value):.1f}" for number, value in enumerate(curve))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        top = TOP + 24 + 18 * at
        parts.append(f'<path d="M{RIGHT - 250} {top - 4}h24" stroke="{colour}" stroke-width="2"/>'
                     f'<text x="{RIGHT - 220}" y="{top}">{name}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def table(results):
    shown = (0, 1, 2, 4, 6, 8)  # rounds
    lines = ["| `lora` | parameters exchanged " + "".join(f"| perplexity, round {number} " for number in shown)
             + "| bytes up | bytes down | CPU seconds | seconds |", "|---" * (6 + len(shown)) + "|"]
    for kind, figures in results.items():
        curve = perplexities(figures)
        last = [row for row in figures["rounds"] if row["round"] == len(curve) - 1]
        up = next(row["bytes_up"] / row["clients"] for row in last if row["phase"] == "train")
        down = sum(row["bytes_down"] / row["clients"] for row in last)
        found = "".join(f"| {curve[number]:.1f} " if number < len(curve) else "| not run " for number in shown)
        lines.append(f"| `{kind}` | {PARAMETERS[kind]:,} {found}| {up:,.0f} | {down:,.0f} | {figures['cpu_seconds']:,} "
                     f"| {figures['seconds']:,} |")
    return "\n".join(lines)


def main():
    results = HERE / "results.json"
    if len(sys.argv) > 1:
        paths = {kind: Path(sys.argv[1], kind, "figures.json") for kind in KINDS}
        found = {kind: json.loads(path.read_text(encoding="utf-8")) for kind, path in paths.items() if path.exists()}
        results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    found = json.loads(results.read_text(encoding="utf-8"))
    (HERE / "curve.svg").write_text(draw(found), encoding="utf-8")
    readme = HERE / "README.md"
    text = re.sub(r"(<!-- table -->\n\n).*?(\n\n<!-- end of table -->)", lambda match: match[1] + table(found) + match[2],
                  readme.read_text(encoding="utf-8"), flags=re.DOTALL)
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
