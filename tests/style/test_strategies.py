"""Fails where a strategy, a sampler or client hooks have more than 150 lines, where a strategy's file does not begin
with its paper's year, its formula and its defaults, or where code beside a strategy's own files says its name:
test_strategies.py ROOT

Strategies are found by name in a table (aggregator/rounds/strategy.h). What knows one of them otherwise is a special
case: a text that is exactly its name, or its table. Comments, and messages that recommend one, may name it.
"""

import json
import os
import re
import sys

import source_tree

MAX_LINES = 150
OWN = tuple(os.path.join(*path.split("/")) + os.sep for path in (
    "aggregator/rounds/strategies", "aggregator/rounds/samplers", "edge/plan/hooks"))
LISTS = tuple(os.path.join(*path.split("/")) for path in ("aggregator/rounds/strategy.h", "edge/plan/client_hooks.h"))
OTHERS = ("tests" + os.sep, "examples" + os.sep)
SCHEMA = os.path.join("docs", "job.schema.json")
MAP = re.compile(r"#define FEDGE_STRATEGY_MAP\(X\)(.*?[^\\])\n", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
DEFINES = re.compile(r"\bconst fedge_strategy_ops fedge_strategy_\w+ =|^FEDGE_ROBUST_STRATEGY", re.M)
TELLS = (("the year of its paper", re.compile(r"\b20\d\d\b")), ("its formula", re.compile("x(_j)? ← ")),
         ("its defaults", re.compile(r"\bdefaults?\b", re.I)))


def names(root):
    """As in a job, and as in the list."""
    with open(os.path.join(root, SCHEMA), encoding="utf-8") as file:
        choices = json.load(file)["properties"]["strategy"]["oneOf"]
    listed = MAP.search("\n".join(source_tree.lines(root, LISTS[0])) + "\n").group(1)
    return [choice["$ref"].split("strategy-")[1] for choice in choices], re.findall(r"X\((\w+)\)", listed)


def untold(lines):
    """What the first comment of a strategy's file lacks."""
    text = "\n".join(lines)
    first = COMMENT.match(text)
    return [what for what, found in TELLS if not (first and found.search(first.group()))] if DEFINES.search(text) else []


def check(root):
    faults = []
    said, listed = names(root)
    known = re.compile(r'"(%s)"|\bfedge_(?:strategy|client_hooks)_(%s)\b' % ("|".join(said), "|".join(listed)))
    for path in source_tree.files(root, source_tree.CODE):
        lines = source_tree.lines(root, path)
        if path.startswith(OWN):
            if len(lines) > MAX_LINES:
                faults.append(f"{path}: {len(lines)} lines, {MAX_LINES} are the most of a strategy, a sampler or hooks")
            faults += [f"{path}: begins without {what}" for what in untold(lines)]
        elif path not in LISTS and not path.startswith(OTHERS):
            text = COMMENT.sub(lambda found: "\n" * found.group().count("\n"), "\n".join(lines))
            faults += [f"{path}:{number}: names a strategy: {line.strip()}"
                       for number, line in enumerate(text.splitlines(), 1) if known.search(line)]
    return faults


def self_test():
    """Each rule is broken once, in a tree of its own, and must be found; its limit must pass."""
    schema = json.dumps({"properties": {"strategy": {"oneOf": [{"$ref": "#/$defs/strategy-FedAvg"},
                                                               {"$ref": "#/$defs/strategy-Krum"}]}}})
    good = {
        LISTS[0]: "#define FEDGE_STRATEGY_MAP(X) \\\n    X(fedavg) \\\n    X(krum)\n\n",
        OWN[0] + "krum.c": '/* Krum, 2017: x ← x + Δ; f has no default. */\nconst fedge_strategy_ops '
                           'fedge_strategy_krum = {\n' + 'x = "Krum";\n' * (MAX_LINES - 2),
        "comment.c": '/* "Krum" and\n * fedge_strategy_krum */\nconst char *x = "use Krum, or FedAvg";\n',
        OTHERS[0] + "test.c": 'x = "Krum";\n',
    }
    bad = {
        OWN[0] + "long.c": "int x;\n" * (MAX_LINES + 1),
        OWN[1] + "long.c": "int x;\n" * (MAX_LINES + 1),
        OWN[2] + "long.c": "int x;\n" * (MAX_LINES + 1),
        OWN[0] + "year.c": '/* x ← x + Δ; no default. */\nconst fedge_strategy_ops fedge_strategy_krum = {\n',
        OWN[0] + "formula.c": '/* 2017; no default. */\nFEDGE_ROBUST_STRATEGY(krum, "Krum");\n',
        OWN[0] + "default.c": '/* 2017: x ← x + Δ */\nFEDGE_ROBUST_STRATEGY(krum, "Krum");\n',
        "text.c": 'if (strcmp(name, "FedAvg") == 0)\n',
        "table.c": "use(&fedge_strategy_krum);\n",
    }
    source_tree.expect(check, {**good, SCHEMA: schema}, bad)


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
