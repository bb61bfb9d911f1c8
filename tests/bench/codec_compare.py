"""The measuring half of codec.sh."""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
import zlib

from codec_picture import picture
from rows import Rows, load_average, note

VALUES = 1663  # thousand: those of McMahan's CNN
SPEED = ("none", "f16", "bf16", "int8", "int4", "topk:0.01+int8", "topk:0.001+int8", "randk:0.01+int8", "ternary:0.01")
# What goes up, with and without error feedback; and what goes down as well.
LOSSY = ("f16+deflate", "int8+deflate", "int4+deflate", "topk:0.1+int4+deflate", "topk:0.05+int8+deflate",
         "topk:0.01+int8+deflate", "topk:0.001+int8+deflate", "ternary:0.05+int8+deflate", "ternary:0.01+int8+deflate",
         "randk:0.1+int8+deflate")
RATE = [("f32", None, None), *((up, feedback, None) for up in LOSSY for feedback in ("on", "off")),
        ("topk:0.05+int8+deflate", "on", "topk:0.1+int8+deflate"),
        ("ternary:0.1+int8+deflate", "on", "ternary:0.027+int8+deflate")]
PARTITIONS = ("iid", "dirichlet:0.3")
JOB, SITE = "examples/quickstart/job.json", "examples/quickstart/client.json"


def numpy_rates(np, codec, seconds):
    """Bytes of floats a second that NumPy encodes and decodes on one thread, or None where it has no such thing."""
    x = (np.random.default_rng(1).standard_normal(VALUES * 1000, dtype=np.float32) * np.float32(0.01))
    name, _, rest = codec.partition(":")
    k = int(float(rest.partition("+")[0]) * x.size) if rest else 0

    def blocks(most):
        def encode():
            rows = np.pad(x, (0, -x.size % 256)).reshape(-1, 256)
            scale = np.abs(rows).max(axis=1, keepdims=True) / most
            return scale, np.rint(rows / scale).astype(np.int8)
        return encode, lambda made: (made[0] * made[1]).ravel()[:x.size]

    def scatter(made):
        out = np.zeros(x.size, dtype=np.float32)
        out[made[0]] = made[1]
        return out

    def largest():
        places = np.sort(np.argpartition(np.abs(x), x.size - k)[x.size - k:])
        return places, x[places]
    ways = {"f16": (lambda: x.astype(np.float16), lambda made: made.astype(np.float32)),
            "int8": blocks(127), "int4": blocks(7), "topk": (largest, scatter)}
    if name not in ways:
        return None
    rates = []
    made = ways[name][0]()
    for work in (ways[name][0], lambda: ways[name][1](made)):
        runs, start = 0, time.thread_time()
        while time.thread_time() < start + seconds:
            work()
            runs += 1
        rates.append(runs * 4 * x.size / (time.thread_time() - start))
    return rates


def speed(options, rows):
    seconds = 0.2 if options.quick else 2.0
    try:
        import numpy as np
    except ImportError:
        np = None
        note("codec.sh: no NumPy: its columns are left out (apt-get install python3-numpy)")
    note(f"one thread, {VALUES},000 values; load {load_average()}")
    read = float(subprocess.run([options.reader, "read", str(seconds)], check=True, text=True,
                                stdout=subprocess.PIPE).stdout)
    rows.put(("codec", "a core reads memory", round(read / 1e9, 2), "GB/s", None, None, None),
             f"a core reads memory: {read / 1e9:.2f} GB/s")
    for codec in SPEED:
        done = subprocess.run([options.fedge, codec, str(VALUES), str(seconds)], check=True, text=True,
                              stdout=subprocess.PIPE)
        *mine, size = (float(word) for word in done.stdout.split())
        theirs = (numpy_rates(np, codec, seconds) if np else None) or (None, None)
        for what, rate, peer in zip(("encode", "decode"), mine, theirs):
            ratio = round(rate / peer, 1) if peer else None
            rows.put(("codec", f"{what} {codec}", round(rate / 1e9, 2), "GB/s of floats", "NumPy" if peer else None,
                      round(peer / 1e9, 2) if peer else None, ratio),
                     f"{what} {codec:22} {rate / 1e9:7.2f} GB/s {'' if not peer else f'NumPy {peer / 1e9:.2f}, {ratio}×':20}"
                     f" {4000 * VALUES / size:6.1f}× fewer bytes")


def cases(options):
    """What goes up and down: how it is called, and a job's "update"."""
    if options.update:
        return [("f32", {"up": "f32"}), (json.dumps(options.update), options.update)]
    if options.up:
        return [(up, {"up": up}) for up in ("f32", *options.up.split(","))][:2 if options.quick else None]
    return [(" ".join(filter(None, [up, feedback and f"error feedback {feedback}", down and f"down {down}"])),
             {"up": up, **({"error-feedback": feedback} if feedback else {}), **({"down": down} if down else {})})
            for up, feedback, down in (RATE[:2] if options.quick else RATE)]


def simulated(options, folder, partition, case, update, rounds):
    """What one simulation says, from DIR where it is there."""
    short = case if len(case) < 100 else f"update {zlib.crc32(case.encode()):08x}"
    model = os.path.splitext(os.path.basename(options.model))[0] if options.model != JOB else ""
    words = [model, partition, short, f"seed {options.seed}" if options.seed != 1 else "", f"{rounds} rounds"]
    name = "-".join(re.sub(r"[^\w.+-]", "", word.replace(" ", "-")) for word in words if word)
    path = os.path.join(folder, f"{name}.json")
    if not os.path.exists(path):
        with open(options.model, encoding="utf-8") as file:
            job = json.load(file)
        job["seed"], job["update"] = options.seed, update
        job["rounds"].update({"num-server-rounds": rounds, "fraction-train": 0.1, "min-train-nodes": 10,
                              "min-available-nodes": 100})
        with open(os.path.join(folder, f"{name}.job"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        done = subprocess.run([options.simulate, "--job", file.name, "--data", SITE, "--clients", "100", "--partition",
                               partition, "--evaluate-every", "10", "--quiet", "--json"], check=True, text=True,
                              stdout=subprocess.PIPE)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(done.stdout)
        os.rename(file.name, path)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def rate(options, rows, folder):
    rounds = 3 if options.quick else options.rounds
    points = []
    for partition in [options.partition] if options.partition else PARTITIONS[:1] if options.quick else PARTITIONS:
        plain = None
        for what, update in cases(options):
            found = simulated(options, folder, partition, what, update, rounds)
            plain = plain or found
            fewer = plain["bytes_up"] / found["bytes_up"]
            both = (plain["bytes_up"] + plain["bytes_down"]) / (found["bytes_up"] + found["bytes_down"])
            case = f"{partition} {what}"
            rows.put(("codec", case, round(100 * found["accuracy"], 2), "% accuracy", "f32",
                      round(100 * plain["accuracy"], 2), round(fewer, 1)),
                     f"{case:62} {100 * found['accuracy']:6.2f} % {fewer:7.1f}× fewer bytes up, {both:5.1f}× both ways")
            points.append((partition, what, found["bytes_up"], found["accuracy"]))
    with open(os.path.join(folder, "rate.svg"), "w", encoding="utf-8") as file:
        file.write(picture(points))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--simulate", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--out")
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--update", type=json.loads)
    parser.add_argument("--model", default=JOB)
    parser.add_argument("--up")
    parser.add_argument("--partition", choices=PARTITIONS)
    options = parser.parse_args()
    rows = Rows(options.json, "codec")
    if options.only != "rate":
        speed(options, rows)
    if options.only == "speed":
        return
    if not os.path.exists("/usr/share/datasets/fashion-mnist"):
        note("codec.sh: no Fashion-MNIST: accuracy is left out (apt-get install dataset-fashion-mnist)")
        return
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        rate(options, rows, options.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        rate(options, rows, folder)


if __name__ == "__main__":
    main()
