"""The tables of docs/guides/scaling.md from measured costs: scaling.py prints them, scaling.py --check FILE finds rows that FILE lacks."""

import sys

P = 1_663_370  # parameters of McMahan's CNN
MODEL, UPDATE = 4 * P, P  # bytes: floats down, int8 up
SHARE = 0.01  # of the devices in a round
FEDERATIONS = (10**4, 10**6, 10**8)
MOST_WEIGHT = 2**20

# Measured, as docs/results.md has them.
HANDSHAKE_S, TICKET_S = 7.3e-3, 1.89e-3  # CPU for each device
CONNECTION = 22e3  # bytes
CONNECTIONS, MESSAGES, WORKERS = 0.69, 0.15, 1.1  # CPU s/GB: of both directions, and twice of what is received
PARAMETER, JOINING = 16, 8  # bytes; the second on one of several ranks
STEP_S = 0.016
JOIN = 2.24  # s/GB of sums, on two ranks
WORDS_S = 1e-3  # CPU for each update of another rank, at most
DISK, LINK = 175e6, 1.25e9  # bytes/s


def digits(value):
    """Two of them."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"


def seconds(value):
    for unit, most in (("s", 100), ("min", 100 * 60), ("h", 72 * 3600)):
        if value < most:
            return f"{digits(value / {'s': 1, 'min': 60, 'h': 3600}[unit])} {unit}"
    return f"{digits(value / 86400)} days"


def size(value):
    for unit, one in (("TB", 1e12), ("GB", 1e9)):
        if value >= one:
            return f"{digits(value / one)} {unit}"
    return f"{digits(value / 1e6)} MB"


def needs(devices, ranks=1):
    """What one of [ranks] needs of a federation."""
    cohort = devices * SHARE
    down, up = MODEL * cohort / ranks, UPDATE * cohort / ranks
    weight = min(MOST_WEIGHT, int(2**32 // cohort))
    return {
        "in a round": f"{cohort:,.0f}",
        "memory for connections": size(CONNECTION * devices / ranks),
        "memory for the model": size((PARAMETER + (JOINING if ranks > 1 else 0)) * P),
        "all back after a start": seconds(HANDSHAKE_S * devices / ranks),
        "… with tickets": seconds(TICKET_S * devices / ranks),
        "down, up": f"{size(down)}, {size(up)}",
        "connections, one thread": seconds(CONNECTIONS * (down + up) / 1e9),
        "messages and rounds, on rank 0": seconds(MESSAGES * up * ranks / 1e9),
        "words between ranks, on rank 0": seconds(WORDS_S * cohort) if ranks > 1 else "none",
        "workers, one core": seconds(WORKERS * up / 1e9),
        "journal, at 175 MB/s": seconds(up / DISK),
        "10 Gbit/s down": seconds(down / LINK),
        "step": seconds(STEP_S),
        "join of the sums": seconds(JOIN * 8 * P / 1e9) if ranks > 1 else "none",
        "`max-weight` at most": "2²⁰, the default" if weight == MOST_WEIGHT else f"{weight:,}",
    }


def rows():
    """One process with each federation, and the largest on 100 ranks."""
    columns = [needs(devices) for devices in FEDERATIONS] + [needs(FEDERATIONS[-1], 100)]
    return [f"| {name} | {' | '.join(column[name] for column in columns)} |" for name in columns[0]]


def main(words):
    if words[:1] == ["--check"]:
        with open(words[1], encoding="utf-8") as file:
            lines = file.read().splitlines()
        missing = [row for row in rows() if row not in lines]
        print("\n".join(missing))
        return 1 if missing else 0
    print("\n".join(rows()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
