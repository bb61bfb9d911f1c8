"""The measuring half of reduce.sh."""

import argparse
import functools
import io
import os
import statistics
import subprocess
import time

from rows import Rows, load_average, note

CNN = 1663370
LARGE = 25600000
DECODED = ("int4", "topk:0.01+int8", "ternary:0.01")  # to integers first, and then added
SHAPES = {CNN: [(32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)],
          LARGE: [(3200, 1000)] * 8}


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], check=True, text=True, stdout=subprocess.PIPE)
    return [float(word) for word in done.stdout.split()]


def numpy_rate(np, parameters, count, seconds):
    """Updates a second by FedAvg's arithmetic on lists of arrays: each update's bytes are loaded, every
    array is multiplied by its weight, the products are added and divided by the weights' sum. One thread
    does it; its CPU time counts, as on fedge's side."""
    draw = np.random.default_rng(1)
    encoded = []
    for _ in range(count):
        arrays = []
        for shape in SHAPES[parameters]:
            with io.BytesIO() as file:
                np.save(file, draw.standard_normal(shape, dtype=np.float32) * np.float32(0.01))
                arrays.append(file.getvalue())
        encoded.append(arrays)
    rates = []
    end = time.monotonic() + seconds
    while len(rates) < 3 or time.monotonic() < end:
        start = time.thread_time()
        weighted = [([np.load(io.BytesIO(data), allow_pickle=False) for data in arrays], 1 + i)
                    for i, arrays in enumerate(encoded)]
        total = sum(weight for _, weight in weighted)
        products = [[array * weight for array in arrays] for arrays, weight in weighted]
        means = [functools.reduce(np.add, layer) / total for layer in zip(*products)]
        rates.append(count / (time.thread_time() - start))
        del means
    return statistics.median(rates)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--accumulator", default="cpu")
    options = parser.parse_args()
    seconds = 0.7 if options.quick else 4.0
    try:
        import numpy as np
    except ImportError:
        np = None
        note("reduce.sh: no NumPy: its rows are left out (apt-get install python3-numpy)")
    cores = len(os.sched_getaffinity(0))
    rows = Rows(options.json, "case                                   updates/s     GB/s   against")
    read, = run(options.fedge, "read", seconds)
    note(f"one core reads {read / 1e9:.1f} GB/s; load {load_average()}")

    sizes = [CNN] if options.quick else [CNN, LARGE]
    peers = {size: numpy_rate(np, size, 16 if size == CNN else 4, seconds) for size in sizes} if np else {}
    for size in sizes:
        for codec in ("none", "int8"):
            for threads in dict.fromkeys((1, cores)):
                for batch in (1, 4, 16):
                    rate, update = run(options.fedge, "add", options.accumulator, codec, size, batch, threads,
                                       seconds)
                    case = f"{options.accumulator} {codec} {size} queue {batch} threads {threads}"
                    share = rate * update / read / threads
                    rows.put(("reduce", case, round(rate, 1), "updates/s", "one core's reads",
                              round(read / update * threads, 1), round(share, 3)),
                             f"{case:38s} {rate:9.0f} {rate * update / 1e9:8.1f}   {share:.2f} of reading")
                    if size in peers:
                        ratio = rate / peers[size]
                        rows.put(("reduce", f"{case} against NumPy", round(rate, 1), "updates/s", "NumPy",
                                  round(peers[size], 1), round(ratio, 1)),
                                 f"{'':38s} {peers[size]:9.0f}            {ratio:.0f} times NumPy's list of arrays")
    for codec in DECODED:
        rate, update = run(options.fedge, "add", options.accumulator, codec, CNN, 16, 1, seconds)
        case = f"{options.accumulator} {codec} {CNN} queue 16 threads 1"
        peer = peers.get(CNN)
        rows.put(("reduce", case, round(rate, 1), "updates/s", "NumPy" if peer else None, peer and round(peer, 1),
                  peer and round(rate / peer, 1)),
                 f"{case:38s} {rate:9.0f} {rate * update / 1e9:8.1f}" + (f"   {rate / peer:.0f} times NumPy's" if peer else ""))
    base = None
    for count in (10, 100, 1000):
        resident, = run(options.fedge, "memory", options.accumulator, "none", CNN, count)
        base = base or resident
        rows.put(("reduce", f"resident bytes, {count} updates", resident, "bytes", "10 updates", base,
                  round(base / resident, 3)),
                 f"{count:5d} updates of {CNN}: {resident / 1e6:.1f} MB resident, "
                 f"{resident / CNN:.1f} bytes a parameter, {resident / base:.3f} of 10 updates'")


if __name__ == "__main__":
    main()
