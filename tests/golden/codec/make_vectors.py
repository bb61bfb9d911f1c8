#!/usr/bin/env python3
"""Prints vectors.json: sections in each codec, made from docs/reference/protocol.md alone.

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


def bit_bytes(bits):
    bits = bits + [0] * (-len(bits) % 8)
    return bytes(sum(b << i for i, b in enumerate(bits[at:at + 8])) for at in range(0, len(bits), 8))


def rice_code(gap, r):
    return [1] * (gap >> r) + [0] + [gap >> i & 1 for i in range(r)]


def rice_bits(n, k):
    r = 0
    while r < 13 and 2 ** (r + 1) <= n * 45426 // (k << 16):
        r += 1
    return r


def groups(n, k, places, signs):
    """The index, and the gaps of each group, with a sign behind each where signs has them."""
    index, gaps = b"", b""
    for begin in range(0, n, 32768):
        bits, last, count = [], begin - 1, 0
        for i, place in enumerate(places):
            if begin <= place < begin + 32768:
                bits += rice_code(place - last - 1, rice_bits(n, k)) + ([signs[i]] if signs else [])
                last, count = place, count + 1
        index += struct.pack("<HH", count, len(bit_bytes(bits)))
        gaps += bit_bytes(bits)
    return index, gaps


def chosen(values, share):
    return -(-len(values) * share // 1000000)


def largest(values, k):
    return sorted(sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:k])


def topk(values, bound, share, write, key):
    values, k = [cut(x, bound) for x in values], chosen(values, share)
    places = largest(values, k)
    index, gaps = groups(len(values), k, places, None)
    out, v = write([values[p] for p in places], bound)
    return index + out + gaps, spread(len(values), places, v)


def ternary(values, bound, share, write, key):
    values, k = [cut(x, bound) for x in values], chosen(values, share)
    places = largest(values, k)
    signs = [1 if struct.pack("<f", values[p])[3] & 128 else 0 for p in places]
    magnitude = (sum(abs(fixed(values[p], bound)) for p in places) + k // 2) // k
    index, gaps = groups(len(values), k, places, signs)
    return (index + struct.pack("<I", magnitude) + gaps,
            spread(len(values), places, [-magnitude if s else magnitude for s in signs]))


def philox(counter, key):
    x, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [b >> 32 ^ x[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ x[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


def randk(values, bound, share, write, key):
    values, n, k, places = [cut(x, bound) for x in values], len(values), chosen(values, share), []
    for i in range(k):
        u = philox([i // 4, 14 << 16, 0, 0], [key & 0xFFFFFFFF, key >> 32])[i % 4]
        begin, end = i * n // k, (i + 1) * n // k
        places.append(begin + (u * (end - begin) >> 32))
    out, v = write([values[p] for p in places], bound)
    return struct.pack("<Q", key) + out, spread(n, places, v)


def spread(n, places, v):
    all_of_them = [0] * n
    for place, x in zip(places, v):
        all_of_them[place] = x
    return all_of_them


CHOOSE = {"topk": topk, "randk": randk, "ternary": ternary}


def encode(text, tensors):
    """Each tensor's bytes and v. Keys are drawn with seed 0 in round 0, one for each tensor."""
    stages = text.split("+")
    name, _, share = stages[0].partition(":")
    for index, (shape, bound, values) in enumerate(tensors):
        if name in CHOOSE and len(shape) >= 2:
            low, high = philox([0, 14 << 16, 0, index], [0, 0])[:2]
            yield CHOOSE[name](values, bound, round(float(share) * 1000000),
                               CODECS[stages[1] if len(stages) > 1 else "none"], high << 32 | low)
        else:
            yield CODECS[stages[-1] if stages[-1] in CODECS else "none"](values, bound)


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
MATRIX = [([1, 5], *SHORT[0][1:])]
LONG = [([20, 30], 2, draw(600, 1, 4.0)), ([7], -3, draw(7, 2, 0.125)), ([], 5, [17.0]),
        ([3, 100], 18, draw(300, 3, 2.0**18))]


def vector(text, tensors):
    encoded = list(encode(text, tensors))
    return {"codec": text,
            "tensors": [{"shape": shape, "bound-log2": bound} for shape, bound, _ in tensors],
            "values": b"".join(struct.pack("<f", x) for _, _, values in tensors for x in values).hex(),
            "bytes": b"".join(out for out, _ in encoded).hex(),
            "v": [x for _, v in encoded for x in v]}


if __name__ == "__main__":
    vectors = [vector(text, tensors)
               for text in [*CODECS, "topk:0.02", "topk:0.5+int8", "randk:0.1+int8", "ternary:0.05+int8"]
               for tensors in (SHORT, LONG)]
    vectors += [vector(text, MATRIX) for text in ("topk:0.4+int8", "randk:0.4+int8", "ternary:0.4")]
    print("[" + ",\n ".join(json.dumps(made, separators=(",", ":")) for made in vectors) + "]")
