"""same_training.py on emulated GPUs, and with simulators that are wrong: test_same_training.py SIMULATOR"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(simulator, emulated="gpus=2 unprotected=1"):
    return subprocess.run([sys.executable, "-B", os.path.join(HERE, "same_training.py"), simulator, "--quick"], text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, "FEDGE_EMULATOR": emulated})


def summary(digest, accuracy, loss=1.0):
    return json.dumps({"model_sha256": digest, "accuracy": accuracy, "loss": loss})


def with_summaries(folder, cpu, one, every):
    """What is said when the CPU, one GPU and all print this."""
    path = os.path.join(folder, "simulator")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\ncase \"$*\" in *'--engine cpu'*) echo '{cpu}';; *'--gpus 0'*) echo '{one}';; "
                   f"*) echo '{every}';; esac\n")
    os.chmod(path, 0o755)
    return run(path)


def wrong(folder):
    some, other = "a" * 64, "b" * 64
    good = summary(some, 0.75)
    for accuracy, loss, warns in (0.75, 1.0, False), (0.753, 1.05, False), (0.747, 0.96, False), (0.7535, 1.0, True):
        done = with_summaries(folder, summary(other, accuracy, loss), good, good)
        assert done.returncode == 0 and "2nn: accuracies: cpu" in done.stdout and ("WARNING" in done.stdout) == warns, done
    for words, *said in (("apart", summary(other, 0.75, 1.07), good, good), ("apart", summary(other, 0.75, 0.93), good, good),
                         ("no loss", summary(other, 0.75, None), good, good),
                         ("other bits", good, good, summary(other, 0.75)),
                         ("nothing is learned", *3 * (summary(some, 0.299),)),
                         ("nothing is learned", *3 * (summary(some, 0.1),)),
                         ("no hash", "{}", good, good), ("no hash", good, "{}", "{}"),
                         ("no hash", good, summary("", 0.75), summary("", 0.75)),
                         ("no accuracy", summary(some, None), good, good), ("no accuracy", good, summary(some, None), good),
                         ("Expecting value", "", "", "")):
        done = with_summaries(folder, *said)
        assert done.returncode == 1 and words in done.stderr and not done.stdout, (said, done)


def main():
    with tempfile.TemporaryDirectory() as folder:
        wrong(folder)
    done = run(sys.argv[1])
    assert done.returncode == 0 and done.stdout.startswith("2nn: accuracies: cpu"), done
    done = run(sys.argv[1], "gpus=0")
    assert done.returncode == 1 and "no GPU is found" in done.stderr, done


if __name__ == "__main__":
    main()
