"""Fails when another processor's or C library's round is not this machine's: compare_models.py FOLDER

FOLDER holds the model after one round of one client each: x86.safetensors (scalar kernels),
scalar.safetensors and neon.safetensors (aarch64), musl.safetensors (x86-64, another C library). All
began with the same weights, so models differ as the deltas did, which are rounded to 2^-28 on their way.
"""

import struct
import sys

# Of the largest weight: the same arithmetic, but for a rounding in expf here and there; and NEON's
# fused, reordered sums, over 20 steps with momentum.
BOUNDS = {"scalar": 1e-6, "musl": 1e-6, "neon": 1e-5}


def values(path):
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    body = data[8 + size :]
    return struct.unpack(f"<{len(body) // 4}f", body)


def main(folder):
    x86 = values(f"{folder}/x86.safetensors")
    largest = max(map(abs, x86))
    assert len(x86) == 4 * 9 + 4 + 676 * 32 + 32 + 32 * 10 + 10, len(x86)
    for name, bound in BOUNDS.items():
        other = values(f"{folder}/{name}.safetensors")
        equal = sum(a == b for a, b in zip(x86, other))
        worst = max(abs(a - b) for a, b in zip(x86, other)) / largest
        print(f"{name}: {equal} of {len(x86)} weights have x86's bits, the others differ by {worst:.1e} at most")
        assert len(other) == len(x86) and worst <= bound, f"over the bound of {bound}"


main(sys.argv[1])
