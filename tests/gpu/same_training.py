"""Five rounds of each job of the zoo: the same model from one GPU and from all, and the loss of the CPU's within 5 % and
0.01: same_training.py SIMULATOR [--quick]

A GPU's expf is not the CPU's, and of 1,000 examples a few may fall to the other side: accuracies that differ by more than
0.3 points are a warning.

The examples are made up, and labels can be learned from them: an accuracy near chance would say nothing of the GPUs, and is a
failure. --quick: one job, and sizes for emulated GPUs, to see that it runs."""

import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

from cohort_cases import ROOT, SEED, write_npy

ROUNDS = 5
CLIENTS, EACH, TESTED = 4, 20, 1000
QUICK_CLIENTS, QUICK_EACH, QUICK_TESTED = 2, 2, 8
POINTS = 0.3  # of accuracy; more is a warning
LOSS_SHARE, LOSS = 0.05, 0.01  # how far losses may differ: this part of the CPU's, and this much
LABELS = 10  # that examples have, at most: those of texts are 80, which five rounds do not tell apart
OWN = 0.9  # of an example's values are those of its label
BATCH, EPOCHS = 10, 10  # so that five rounds of few examples have enough steps to learn them
LEARNED = 3  # times chance
# What five rounds do not teach to tell labels apart, by its loss, beside that of equal chances for all outputs.
BY_LOSS = {"char-lstm": 0.75}


def zoo(quick):
    folder = os.path.join(ROOT, "examples/zoo")
    names = ["2nn.json"] if quick else sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            yield name.removesuffix(".json"), json.load(file)


def num_labels(data):
    return min(data["labels"], LABELS)


def examples(data, count, seed):
    """Values and labels: most of an example's values are those of its label, the others are drawn."""
    size = 1
    for extent in data["shape"]:
        size *= extent
    drawn = random.Random(SEED)
    most = data["labels"] if len(data["shape"]) == 1 else 256  # a text's characters are below the number of labels
    is_float = data["dtype"] == "f32"

    def some():
        return [drawn.gauss(0, 1) if is_float else drawn.randrange(most) for _ in range(size)]

    of_label = [some() for _ in range(num_labels(data))]
    drawn.seed(seed)
    values, labels = [], bytes(i % len(of_label) for i in range(count))
    for label in labels:
        values += [own if drawn.random() < OWN else other for own, other in zip(of_label[label], some())]
    return struct.pack(f"<{len(values)}f", *values) if is_float else bytes(values), labels


def write_examples(folder, name, data, count, seed):
    values, labels = examples(data, count, seed)
    paths = {"values": os.path.join(folder, f"{name}-values.npy"), "labels": os.path.join(folder, f"{name}-labels.npy")}
    write_npy(paths["values"], "<f4" if data["dtype"] == "f32" else "|u1", (count, *data["shape"]), values)
    write_npy(paths["labels"], "|u1", (count,), labels)
    return paths


def prepare(folder, name, job, clients, each, tested):
    files = {"data": {job["data"]["name"]: write_examples(folder, "train", job["data"], clients * each, 1)}}
    job["test-set"] = write_examples(folder, "test", job["data"], tested, 2)
    job["rounds"] = {"num-server-rounds": ROUNDS, "min-train-nodes": clients, "min-available-nodes": clients}
    job["training"].update({"batch-size": BATCH, "local-epochs": 1 if name in BY_LOSS else EPOCHS})
    job["update"]["deflate"] = False
    for part, content in ("job", job), ("client", files):
        with open(os.path.join(folder, f"{part}.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)


def simulate(simulator, folder, clients, *engine):
    """The last model's hash, its accuracy in percent and its loss."""
    done = subprocess.run([simulator, "--job", os.path.join(folder, "job.json"), "--clients", str(clients), "--partition",
                           "iid", "--evaluate-every", str(ROUNDS), "--quiet", "--json", "--engine", *engine],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or f"code {done.returncode}")
    summary = json.loads(done.stdout)
    digest, accuracy, loss = (summary.get(key) for key in ("model_sha256", "accuracy", "loss"))
    if (not isinstance(digest, str) or len(digest) != 64 or not isinstance(accuracy, (int, float))
            or not isinstance(loss, (int, float))):
        raise ValueError(f"{engine[0]}: no hash of 64 digits, no accuracy or no loss: {digest}, {accuracy}, {loss}")
    return digest, 100 * accuracy, loss


def check_learned(name, data, accuracy, loss):
    """ValueError if a model that knows nothing would do as well."""
    least, most = LEARNED * 100 / num_labels(data), BY_LOSS.get(name, 0) * math.log(data["labels"])
    if accuracy >= least or loss <= most:
        return
    demanded = f"a loss of {most:.3f} at most" if name in BY_LOSS else f"{least:.2f}, {LEARNED} times chance,"
    raise ValueError(f"nothing is learned that GPUs could get wrong: the CPU's accuracy is {accuracy:.2f}, its loss {loss}, "
                     f"and {demanded} is demanded")


def compare(simulator, folder, clients, name, data):
    """One line about both; ValueError if they are not as alike as they should be, or have learned nothing."""
    _, cpu, loss = simulate(simulator, folder, clients, "cpu")
    check_learned(name, data, cpu, loss)
    one, cuda, cuda_loss = simulate(simulator, folder, clients, "cuda", "--gpus", "0")
    every, _, _ = simulate(simulator, folder, clients, "cuda")
    said = (f"accuracies: cpu {cpu:.2f}, cuda {cuda:.2f}; losses: cpu {loss:.4f}, cuda {cuda_loss:.4f}; "
            f"one GPU {one}, all {every}")
    if one != every:
        raise ValueError(f"other bits on several GPUs; {said}")
    if not abs(loss - cuda_loss) <= LOSS_SHARE * loss + LOSS:
        raise ValueError(f"losses are further apart than {LOSS_SHARE:.0%} and {LOSS}; {said}")
    if not abs(cpu - cuda) <= POINTS + 1e-9:
        said += f"; WARNING: more than {POINTS} points apart"
    return said


def main():
    quick = "--quick" in sys.argv
    clients, each, tested = (QUICK_CLIENTS, QUICK_EACH, QUICK_TESTED) if quick else (CLIENTS, EACH, TESTED)
    failed = 0
    for name, job in zoo(quick):
        with tempfile.TemporaryDirectory() as folder:
            prepare(folder, name, job, clients, each, tested)
            try:
                print(f"{name}: {compare(sys.argv[1], folder, clients, name, job['data'])}", flush=True)
            except ValueError as error:
                failed = 1
                print(f"same_training.py: {name}: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
