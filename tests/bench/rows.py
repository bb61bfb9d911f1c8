"""What a benchmark says: rows on stdout, notes on stderr."""

import json
import sys

KEYS = ("bench", "case", "value", "unit", "peer", "peer_value", "ratio")


class Rows:
    """A JSON object for each row, or a table with this heading."""

    def __init__(self, as_json, heading):
        self.as_json = as_json
        if not as_json:
            print(heading)

    def put(self, values, line):
        """The values of KEYS; a ratio over 1: fedge is better. [line] is the same for people."""
        print(json.dumps(dict(zip(KEYS, values))) if self.as_json else line, flush=True)


def note(text):
    print(text, file=sys.stderr, flush=True)


def load_average():
    with open("/proc/loadavg", encoding="ascii") as file:
        return file.read().split()[0]
