#!/usr/bin/env python3
"""Prints vectors.json: sections in each codec, made from docs/protocol.md alone.

This is a second implementation of the codecs; test_codec_vectors.c compares fedge's with it byte for
byte, both ways. Vectors of a released codec never change: add new ones at the end.

    make_vectors.py > vectors.json"""
import json
import struct

BLOCK = 256


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def fixed(x, bound):
    """v of a value within ±2^bound: Python's round is to nearest, ties to even, and the product is exact."""
    return round(x * 2.0 ** (30 - bound))


def cut(x, bound):
    return max(-2.0**bound, min(2.0**bound, x))


def blocks(values):
    return [values[i:i + BLOCK] for i in range(0, len(values), BLOCK)]


def none(values, bound):
    return b"".join(struct.pack("<f", cut(x, bound)) for x in values), [fixed(cut(x, bound), bound) for x in values]


def integers(values, bound, most, shift):
    """Blocks of q with a scale: (m, q list) for each."""
    for block in blocks([fixed(cut(x, bound), bound) for x in values]):
        unit = most << shift
        m = min(65535, -(-max(map(abs, block)) // unit))
        yield m, [max(-most, min(most, round_quotient(v, m << shift))) if m else 0 for v in block]


def round_quotient(a, b):
    """a / b to nearest, ties to even, in integers."""
    down, rest = divmod(a, b)
    return down + (2 * rest > b or (2 * rest == b and down % 2))


def int8(values, bound):
    out, v = b"", []
    for m, q in integers(values, bound, 127, 7):
        out += struct.pack("<H", m) + struct.pack(f"<{len(q)}b", *q)
        v += [x * m << 7 for x in q]
    return out, v


def int4(values, bound):
    out, v = b"", []
    for m, q in integers(values, bound, 7, 11):
        nibbles = [x & 15 for x in q] + [0] * (len(q) % 2)
        out += struct.pack("<H", m) + bytes(a | b << 4 for a, b in zip(nibbles[::2], nibbles[1::2]))
        v += [x * m << 11 for x in q]
    return out, v


def f16(values, bound):
    halves = [struct.pack("<e", single(cut(x, bound) * 2.0 ** (15 - bound))) for x in values]
    return b"".join(halves), [fixed(struct.unpack("<e", h)[0], 15) for h in halves]


def bf16(values, bound):
    out, v = b"", []
    for x in values:
        bits = struct.unpack("<I", struct.pack("<f", cut(x, bound)))[0]
        half = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        out += struct.pack("<H", half)
        v.append(fixed(struct.unpack("<f", struct.pack("<I", half << 16))[0], bound))
    return out, v


CODECS = {"none": none, "int8": int8, "f16": f16, "bf16": bf16, "int4": int4}


def draw(count, seed, size):
    """Numbers of many sizes, most of them small, with zeros and a few beyond ±size."""
    values, state = [], seed
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        a = (state >> 40) / 2**23 - 1
        kind = state >> 36 & 15
        values.append(single(0.0 if kind == 0 else 3 * size * a if kind == 1 else size * a**9))
    return values


# Tensors of a section: shape, b, values.
SHORT = [([5], 0, [0.5, -0.25, 0.125, 1.0, -0.001])]
LONG = [([20, 30], 2, draw(600, 1, 4.0)), ([7], -3, draw(7, 2, 0.125)), ([], 5, [17.0]),
        ([3, 100], 18, draw(300, 3, 2.0**18))]


def vector(text, tensors):
    encoded = [CODECS[text](values, bound) for _, bound, values in tensors]
    return {"codec": text,
            "tensors": [{"shape": shape, "bound-log2": bound} for shape, bound, _ in tensors],
            "values": b"".join(struct.pack("<f", x) for _, _, values in tensors for x in values).hex(),
            "bytes": b"".join(out for out, _ in encoded).hex(),
            "v": [x for _, v in encoded for x in v]}


if __name__ == "__main__":
    print("[" + ",\n ".join(json.dumps(vector(text, tensors), separators=(",", ":"))
                            for text in CODECS for tensors in (SHORT, LONG)) + "]")
