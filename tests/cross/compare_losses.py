"""Fails when a board's report is not what it must be: compare_losses.py BOARD PC CORE

Both files hold the bits of one loss per step, and a last line with figures. The kernels are the same
arithmetic on both sides; only expf and log are another C library's. A difference
of one unit in the last place of a loss's gradient grows as training goes on, hence the bound.
"""

import re
import struct
import sys

LOSS_BOUND = 1e-6  # relative; 1.3e-7 was measured on M4, equal bits on M7 and M55
STEPS = 128
LIMITS = {"mlp": {"RAM": 210_000, "instructions per step": 150_000}, "cnn": {"RAM": 72_000}, "adam": {"RAM": 150_000}}


def losses(text):
    return [struct.unpack(">d", bytes.fromhex(bits))[0] for bits in re.findall(r"^loss ([0-9a-f]{16})$", text, re.M)]


def main(board_path, pc_path, core):
    with open(board_path, encoding="utf-8") as file:
        text = file.read()
    with open(pc_path, encoding="utf-8") as file:
        pc = losses(file.read())
    board = losses(text)
    assert len(board) == len(pc) == STEPS, f"{len(board)} and {len(pc)} losses, not {STEPS}"
    worst = max(abs(a - b) / abs(b) for a, b in zip(board, pc))
    equal = sum(a == b for a, b in zip(board, pc))
    first, last = sum(pc[:32]) / 32, sum(pc[-32:]) / 32
    print(f"{equal} of {STEPS} losses have the PC's bits, the others differ by {worst:.1e} at most; {first:.3f} to {last:.3f}")
    assert worst <= LOSS_BOUND, f"over the bound of {LOSS_BOUND}"
    assert last < first, "nothing was learnt"
    report = text.splitlines()[-1]
    for name, limit in LIMITS[report.split(":")[0]].items():
        value = int(re.search(name + r" (\d+)", report).group(1))
        assert value <= limit, f"Cortex-{core.upper()}: {name} is {value}, over {limit}"


main(*sys.argv[1:])
