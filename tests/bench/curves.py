"""Training curves of fedge over PyTorch's: curves.py --fedge PROGRAM --text FILE [--steps N] [--out FOLDER]

McMahan's CNN on Fashion-MNIST (Debian's package dataset-fashion-mnist) and the character LSTM on any text, batches
of ten as their jobs in examples/zoo say, from the same weights and on the same examples
(tests/golden/train/make_curves.py). PROGRAM is bench_curves_fedge of a build. Writes FOLDER/curves.svg and
FOLDER/curves.json (default docs), and prints the largest differences of a step's loss: of fedge from PyTorch, and
of each from PyTorch in double precision over the first steps (which is slow). Run it with a Python that has PyTorch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden", "train"))

FASHION_MNIST = "/usr/share/datasets/fashion-mnist/train-{}-ubyte.gz"
BATCH = 10
EXACT_STEPS = 100
SMOOTH = 20  # steps of which a point of the drawing is the mean
WIDTH, HEIGHT, MARGIN = 420, 260, 44


def fedge_curve(program, job, values, labels, steps):
    command = [program, os.path.join(ROOT, "examples", "zoo", job + ".json"), values, labels, str(steps), str(BATCH)]
    return [float(line) for line in subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()]


def differences(a, b):
    off = [abs(x - y) for x, y in zip(a, b)]
    return {"step": max(off), "of-first": max(off[:EXACT_STEPS]),
            "means": max(abs(x - y) for x, y in zip(means(a), means(b)))}


def make(program, name, values, labels, steps):
    import torch  # here, so that --help does without it

    from make_curves import curve, load_data, load_job

    torch.set_num_threads(1)
    job = load_job(name)
    x, y = load_data(job, values, labels)
    print(f"{name}: {len(x)} examples, {steps} steps of {BATCH}", file=sys.stderr)
    ours = fedge_curve(program, name, values, labels, steps)
    theirs = curve(job, x, y, steps, BATCH, torch.float32)
    exact = curve(job, x, y, min(steps, EXACT_STEPS), BATCH, torch.float64)
    result = {
        "job": name, "steps": steps, "batch": BATCH, "pytorch": torch.__version__.split("+")[0],
        "largest-difference": differences(ours, theirs),
        "fedge-from-fp64": differences(ours, exact)["step"],
        "pytorch-from-fp64": differences(theirs, exact)["step"],
        "fedge": [round(v, 6) for v in means(ours)], "pytorch-fp32": [round(v, 6) for v in means(theirs)],
    }
    print(json.dumps({k: v for k, v in result.items() if not isinstance(v, list)}))
    return result


def means(losses):
    return [sum(losses[i:i + SMOOTH]) / SMOOTH for i in range(0, len(losses) - SMOOTH + 1, SMOOTH)]


def panel(result, left):
    top = max(max(result["fedge"]), max(result["pytorch-fp32"]))
    across, down = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def points(values):
        return " ".join(f"{left + MARGIN + across * (i + 0.5) * SMOOTH / result['steps']:.1f},"
                        f"{MARGIN + down * (1 - v / top):.1f}" for i, v in enumerate(values))
    out = [f'<text x="{left + MARGIN}" y="20" class="head">{result["job"]}: loss over {result["steps"]} steps of '
           f'{result["batch"]}</text>',
           f'<text x="{left + MARGIN}" y="36">largest difference of the means: '
           f'{result["largest-difference"]["means"]:.1g}</text>',
           f'<path class="axis" d="M{left + MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{left + WIDTH - MARGIN}"/>']
    for k in range(5):
        y = MARGIN + down * (1 - k / 4)
        out.append(f'<text class="right" x="{left + MARGIN - 6}" y="{y + 4:.1f}">{top * k / 4:.2f}</text>')
        out.append(f'<text class="middle" x="{left + MARGIN + across * k / 4:.1f}" y="{HEIGHT - MARGIN + 16}">'
                   f'{result["steps"] * k // 4}</text>')
    out.append(f'<polyline class="theirs" points="{points(result["pytorch-fp32"])}"/>')
    out.append(f'<polyline class="ours" points="{points(result["fedge"])}"/>')
    return out


def draw(results):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(results)}" height="{HEIGHT}" '
           f'viewBox="0 0 {WIDTH * len(results)} {HEIGHT}">',
           "<style>text{font:11px sans-serif;fill:#333}.head{font-weight:bold}.right{text-anchor:end}"
           ".middle{text-anchor:middle}.axis{fill:none;stroke:#888}.theirs{fill:none;stroke:#f5a742;stroke-width:6}"
           ".ours{fill:none;stroke:#14406b;stroke-width:1.5}</style>",
           '<rect width="100%" height="100%" fill="#fff"/>']
    for i, result in enumerate(results):
        out += panel(result, i * WIDTH)
    y = HEIGHT - 10
    out += [f'<path class="theirs" d="M{MARGIN} {y - 4}h24"/><text x="{MARGIN + 30}" y="{y}">PyTorch '
            f'{results[0]["pytorch"]}, fp32</text>',
            f'<path class="ours" d="M{MARGIN + 160} {y - 4}h24"/><text x="{MARGIN + 190}" y="{y}">fedge, fp32 '
            f'(means of {SMOOTH} steps)</text>', "</svg>"]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", default=os.path.join(ROOT, "docs"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedge-curves-") as folder:
        subprocess.run([sys.executable, os.path.join(ROOT, "examples", "zoo", "text_windows.py"), args.text, folder,
                        "--stride", "7"], check=True, stdout=sys.stderr)
        cases = [("mcmahan-cnn", FASHION_MNIST.format("images-idx3"), FASHION_MNIST.format("labels-idx1")),
                 ("char-lstm", os.path.join(folder, "windows.npy"), os.path.join(folder, "labels.npy"))]
        results = [make(args.fedge, *case, args.steps) for case in cases]
    with open(os.path.join(args.out, "curves.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(result) for result in results) + "\n]\n")
    with open(os.path.join(args.out, "curves.svg"), "w", encoding="utf-8") as file:
        file.write(draw(results))


main()
