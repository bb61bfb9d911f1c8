"""Cohorts of virtual clients on GPU 0, by the simulator: cohorts.py SIMULATOR [--quick] [--seconds N]

A row of JSON for each model and cohort, in samples/s: local SGD in batches of 10 from the global model, the sums of what
clients changed, and the step of the server. A round's time is that of six rounds less that of one, divided by five, so
that what is done once, such as bringing the examples to the GPU, is not in it. Then 150 of the 1,500 rounds of
pfl-research's benchmark (50 of 1,000 clients with 50 images, evaluated every 10 rounds), times ten, in fp32 and in TF32. --quick: sizes for
emulated GPUs, to see that it runs. What --seconds (120) do not suffice for is left out, and said."""

import json
import os
import subprocess
import sys
import tempfile
import time

from cohort_cases import BATCH, POOL, RATE, ROOT, example_bytes, selected, write_npy

MORE = 5  # rounds beside the first
PFL = {"kind": "images", "rounds": 150, "times": 10, "clients": 1000, "cohort": 50, "images": 50, "test": 10000}
PFL_QUICK = {"kind": "images:1,8,8", "rounds": 1, "times": 1, "clients": 2, "cohort": 2, "images": 2, "test": 2}
PRECISIONS = ("fp32", "tf32")


def put(case, value, unit, **more):
    print(json.dumps({"bench": "gpu", "case": case, "value": float(f"{value:.6g}"), "unit": unit, **more}), flush=True)


def write(path, content):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


def simulate(simulator, folder, *words):
    done = subprocess.run([simulator, "--job", os.path.join(folder, "job.json"), "--engine", "cuda", "--gpus", "0", "--quiet",
                           "--json", "--client-accuracy", "0", *map(str, words)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"code {done.returncode}")
    return json.loads(done.stdout)


def plain(job, cohort, clients):
    """The job with the same training in all cases, and nothing in its rounds but training."""
    job = dict(job, training={"local-epochs": 1, "batch-size": BATCH, "learning-rate": RATE},
               update={"codec": "none", "deflate": False},
               rounds={"num-server-rounds": 1, "fraction-train": cohort / clients, "min-train-nodes": cohort,
                       "min-available-nodes": clients})
    job.pop("test-set", None)
    return job


def measure(simulator, folder, job, examples, cohort):
    """Samples per second, and the model's parameters."""
    needed = cohort * examples
    values, labels = example_bytes(job, min(POOL, needed))
    times, rest = divmod(needed, len(labels))
    size = len(values) // len(labels)
    labels = labels * times + labels[:rest]
    write_npy(os.path.join(folder, "values.npy"), "|u1", (needed, *job["data"]["shape"]),
              values * times + values[:rest * size])
    write_npy(os.path.join(folder, "labels.npy"), "|u1", (needed,), bytes(labels))
    write(os.path.join(folder, "client.json"), {"data": {job["data"]["name"]: {"values": "values.npy", "labels": "labels.npy"}}})
    write(os.path.join(folder, "job.json"), plain(job, cohort, cohort))
    first, all_of_them = (simulate(simulator, folder, "--clients", cohort, "--partition", "iid", "--rounds", rounds)
                          for rounds in (1, 1 + MORE))
    seconds = max(all_of_them["seconds"] - first["seconds"], 1e-9)
    return (all_of_them["examples_trained"] - first["examples_trained"]) / seconds, first["parameters"]


def prepare_pfl(simulator, folder, sizes):
    """The benchmark's job; its examples are in [folder]."""
    subprocess.run([simulator, "generate", sizes["kind"], "--clients", str(sizes["clients"]), "--examples",
                    str(sizes["images"]), "--test", str(sizes["test"]), "--out", folder], check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "job.json"), encoding="utf-8") as file:
        made = json.load(file)
    with open(os.path.join(ROOT, "tests/bench/simulate/cifar-cnn.json"), encoding="utf-8") as file:
        job = plain(json.load(file), sizes["cohort"], sizes["clients"])
    job.update({"data": made["data"], "test-set": made["test-set"]})
    if sizes is PFL_QUICK:
        job["model"] = made["model"]
    return job


def run_pfl(simulator, folder, sizes, end):
    job = prepare_pfl(simulator, folder, sizes)
    times = sizes["times"]
    for precision in PRECISIONS:
        if time.monotonic() > end:
            print(f"cohorts.py: simulation, {precision}: left out, the time is over", file=sys.stderr)
            continue
        job["training"]["precision"] = precision
        write(os.path.join(folder, "job.json"), job)
        run = simulate(simulator, folder, "--rounds", sizes["rounds"], "--evaluate-every", 10)
        put(f"simulation, CIFAR-10-sized CNN, {times * sizes['rounds']} rounds × {sizes['cohort']} of {sizes['clients']} clients × "
            f"{sizes['images']} images (calculated from {sizes['rounds']} rounds), {precision}", times * run["seconds"], "s")


def main():
    quick = "--quick" in sys.argv
    limit = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 120.0
    end = time.monotonic() + limit
    failed = 0
    for name, job, examples, cohorts, flops in selected(quick):
        for cohort in cohorts:
            case = f"train {name}, B={BATCH}, cohort of {cohort}"
            if time.monotonic() > end:
                print(f"cohorts.py: {case}: left out, {limit:.0f} s are over", file=sys.stderr)
                continue
            try:
                with tempfile.TemporaryDirectory() as folder:
                    rate, parameters = measure(sys.argv[1], folder, job, examples, cohort)
                # A step reads weights forward and backward, writes gradients, and reads both and writes values.
                put(case, rate, "samples/s", flops=flops, bytes=6 * 4 * parameters / BATCH)
            except RuntimeError as error:
                failed = 1
                print(f"cohorts.py: {case}: {error}", file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run_pfl(sys.argv[1], folder, PFL_QUICK if quick else PFL, end)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        failed = 1
        print(f"cohorts.py: simulation: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
