#!/usr/bin/env python3
"""Makes a text file into examples for char-lstm.json and transformer-small.json.

    text_windows.py FILE OUTDIR [--stride N]

Writes OUTDIR/windows.npy (examples × 80, u8: each character's place in ALPHABET), OUTDIR/labels.npy (the character
behind each window) and OUTDIR/client.json, a client's file that names both. Windows begin every N characters
(default 80: none overlap, so that held-out windows are really unseen).
"""

import argparse
import json
import os
import struct

LENGTH = 80  # characters in a window
# All clients of a job need the same one. What is not in it becomes place 0.
ALPHABET = ("\0\n !\"&'(),-./:;?[]=" + "0123456789" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "abcdefghijklmnopqrstuvwxyz")[:80]


def write_npy(path, kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("ascii") + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("outdir")
    parser.add_argument("--stride", type=int, default=LENGTH)
    args = parser.parse_args()
    with open(args.file, encoding="utf-8", errors="replace") as file:
        text = bytes(max(ALPHABET.find(character), 0) for character in file.read())
    starts = range(0, len(text) - LENGTH, max(args.stride, 1))
    if not starts:
        parser.error(f"{args.file} has {len(text)} characters; {LENGTH + 1} are the least")
    os.makedirs(args.outdir, exist_ok=True)
    windows = b"".join(text[start:start + LENGTH] for start in starts)
    labels = bytes(text[start + LENGTH] for start in starts)
    write_npy(os.path.join(args.outdir, "windows.npy"), "|u1", (len(starts), LENGTH), windows)
    write_npy(os.path.join(args.outdir, "labels.npy"), "|u1", (len(starts),), labels)
    client = {"data": {"text-windows": {"values": "windows.npy", "labels": "labels.npy", "validation-fraction": 0.1,
                                        "partition": "iid", "partition-seed": 1}}}
    with open(os.path.join(args.outdir, "client.json"), "w", encoding="utf-8") as file:
        json.dump(client, file, indent=2)
        file.write("\n")
    print(f"{len(starts)} windows of {LENGTH} characters in {args.outdir}")


if __name__ == "__main__":
    main()
