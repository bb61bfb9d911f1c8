#!/usr/bin/env python3
"""Makes a play into a federated data set: one client for each speaking part.

    speaking_parts.py TEXT OUTDIR [--stride N] [--test SHARE] [--min-lines N]

TEXT is any plain text of speeches with blank lines between them: a line "NAME:", then what is said. A part has at
least --min-lines lines (default 2); the first of them are for training, the last SHARE (default 0.2, one line at
least) for the server's test set, as in McMahan et al. 2017. Parts of one name are one part. Each part's lines make
windows of 80 characters, one every N (default 40), each with the character behind it, as text_windows.py of the model
zoo makes them; a part whose training lines are too short for one is left out.

Writes into OUTDIR windows.npy and labels.npy, test-windows.npy and test-labels.npy, parts.csv (which window is which
client's, for --partition file:OUTDIR/parts.csv), client.json and a copy of the job, and says how many clients there
are.
"""

import argparse
import json
import math
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "zoo"))
from text_windows import ALPHABET, LENGTH, write_npy  # noqa: E402


def speeches(text):
    """(name, lines) of each; what has no name, such as a stage direction, is left out."""
    block = []
    for line in text.splitlines() + [""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            if block[0].endswith(":") and len(block) > 1:
                yield block[0][:-1], block[1:]
            block = []


def windows(lines, stride):
    """Bytes of windows and of what follows them."""
    text = bytes(max(ALPHABET.find(character), 0) for character in "\n".join(lines))
    starts = range(0, len(text) - LENGTH, stride)
    return b"".join(text[at:at + LENGTH] for at in starts), bytes(text[at + LENGTH] for at in starts)


def write(outdir, prefix, values, labels):
    write_npy(os.path.join(outdir, prefix + "windows.npy"), "|u1", (len(labels), LENGTH), values)
    write_npy(os.path.join(outdir, prefix + "labels.npy"), "|u1", (len(labels),), labels)


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        sys.exit(f"speaking_parts.py: cannot read {path}: {error.strerror}; give the path of a play as a text file")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text")
    parser.add_argument("outdir")
    parser.add_argument("--stride", type=int, default=40)
    parser.add_argument("--test", type=float, default=0.2)
    parser.add_argument("--min-lines", type=int, default=2)
    args = parser.parse_args()
    if args.stride < 1 or not 0 < args.test < 1 or args.min_lines < 2:
        parser.error("--stride is at least 1, --test between 0 and 1, --min-lines at least 2")
    parts = {}
    for name, lines in speeches(read_text(args.text)):
        parts.setdefault(name, []).extend(lines)
    train, train_labels, test, test_labels, owners = [], [], [], [], []
    clients = 0
    for lines in parts.values():
        if len(lines) < args.min_lines:
            continue
        kept = len(lines) - math.ceil(args.test * len(lines))
        values, labels = windows(lines[:kept], args.stride)
        if not labels:
            continue
        train.append(values)
        train_labels.append(labels)
        owners += [clients] * len(labels)
        clients += 1
        values, labels = windows(lines[kept:], args.stride)
        test.append(values)
        test_labels.append(labels)
    if clients < 2 or not any(test_labels):
        parser.error(f"{args.text} has {len(parts)} speaking parts, of which {clients} have {LENGTH + 1} characters to "
                     "train with; two clients and a test set are the least. Is each speech a line 'NAME:' and its "
                     "lines, with a blank line behind?")
    try:
        os.makedirs(args.outdir, exist_ok=True)
    except OSError as error:
        sys.exit(f"speaking_parts.py: cannot make the folder {args.outdir}: {error.strerror}; choose another OUTDIR")
    write(args.outdir, "", b"".join(train), b"".join(train_labels))
    write(args.outdir, "test-", b"".join(test), b"".join(test_labels))
    with open(os.path.join(args.outdir, "parts.csv"), "w", encoding="utf-8") as file:
        file.write("example,client\n" + "".join(f"{i},{owner}\n" for i, owner in enumerate(owners)))
    with open(os.path.join(args.outdir, "client.json"), "w", encoding="utf-8") as file:
        json.dump({"data": {"text-windows": {"values": "windows.npy", "labels": "labels.npy"}}}, file, indent=2)
        file.write("\n")
    shutil.copyfile(os.path.join(HERE, "job.json"), os.path.join(args.outdir, "job.json"))
    print(f"{len(owners)} windows of {clients} clients, {sum(map(len, test_labels))} to test with, in {args.outdir}; "
          f"left out {len(parts) - clients} of {len(parts)} parts")


if __name__ == "__main__":
    main()
