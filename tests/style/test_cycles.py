"""Fails where sources use each other in a circle: test_cycles.py ROOT

A unit is a source with the header of its name. It uses another when it mentions a function that
the other alone defines, or when its header includes the other's. What is chosen when the program
is built (os_posix.c or os_none.c) is defined twice, and makes no circle.
"""

import os
import re
import sys
import tempfile

import source_tree

ROOMS = ("edge/", "secure/", "client/", "aggregator/")
# Circles that are there still: each may get smaller; when it is gone, so is its line.
KNOWN = ()
NAME = re.compile(r"\bfedge_\w+")
# The first line of a definition; of a declaration the last line ends with a semicolon.
BEGIN = re.compile(r"(?!static|typedef|extern|#|FEDGE_MUST_USE)[A-Za-z][\w *]*?\b(fedge_\w+)\(")
INCLUDE = re.compile(r'#\s*include\s*"([^"]+)"')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.S)


def definitions(text):
    """Names of the functions that a source defines for others."""
    names, lines = set(), text.split("\n")
    for i, line in enumerate(lines):
        begin = BEGIN.match(line)
        last = i
        while begin and last + 1 < len(lines) and not re.search(r"[;{]\s*$", lines[last]) and last < i + 12:
            last += 1
            if lines[last].startswith("{"):
                names.add(begin[1])
                break
    return names


def arrows(root):
    """For each unit: the units that it uses, with what of theirs."""
    sources, headers, units = {}, {}, set()
    for path in source_tree.files(root, source_tree.CODE):
        if path.startswith(ROOMS):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read()
            unit, kind = os.path.splitext(path)
            units.add(unit)
            if kind in (".h", ".cuh"):
                headers[unit] = INCLUDE.findall(text)
            else:
                sources[unit] = sources.get(unit, "") + COMMENT.sub(" ", text)
    owners = {}
    for unit, text in sources.items():
        for name in definitions(text):
            owners.setdefault(name, set()).add(unit)
    uses = {unit: {} for unit in units}
    for unit, text in sources.items():
        for name in set(NAME.findall(text)):
            for owner in owners.get(name, ()):
                if owner != unit and len(owners[name]) == 1:
                    uses[unit].setdefault(owner, set()).add(name)
    for unit, included in headers.items():
        if unit not in sources:  # of a unit with a source, what it defines says more
            for path in included:
                owner = os.path.splitext(path)[0]
                if owner != unit and owner in units and owner not in sources:
                    uses[unit].setdefault(owner, set()).add("#include")
    return uses


def circles(uses):
    """The sets of units of which each reaches each other (Tarjan 1972, without recursion)."""
    index, low, stack, found = {}, {}, [], []
    for start in sorted(uses):
        work = [(start, iter(sorted(uses[start])))] if start not in index else []
        while work:
            unit, others = work[-1]
            if unit not in index:
                index[unit] = low[unit] = len(index)
                stack.append(unit)
            for other in others:
                if other not in index:
                    work.append((other, iter(sorted(uses[other]))))
                    break
                if other in stack:
                    low[unit] = min(low[unit], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[unit])
                if low[unit] == index[unit]:
                    at = stack.index(unit)
                    if len(stack) - at > 1:
                        found.append(sorted(stack[at:]))
                    del stack[at:]
    return found


def check_with(root, known):
    uses = arrows(root)
    faults, seen = [], set()
    for circle in circles(uses):
        excuse = next((k for k in known if set(circle) <= set(k)), None)
        seen.add(excuse)
        if excuse is None:
            faults.append(f"{', '.join(circle)} use each other in a circle: move what is shared below them")
            for unit in circle:
                for other in sorted(set(uses[unit]) & set(circle)):
                    faults.append(f"    {unit} uses {', '.join(sorted(uses[unit][other]))} of {other}")
    for excuse in known:
        if excuse not in seen:
            faults.append(f"{', '.join(excuse)} are no circle any more: remove them from tests/style/test_cycles.py")
    return faults


def check(root):
    return check_with(root, KNOWN)


def self_test():
    """A circle of three and one of headers are found; layers, comments and choices make none."""
    body = "\n{\n    %s\n}\n"
    tree = {
        "edge/core/a.c": "int fedge_a(int x)" + body % "return fedge_b(x);",
        "edge/core/b.c": "int fedge_b(int x,\n            int y)" + body % "return fedge_c(x);",
        "edge/core/c.c": "int fedge_c(int x)" + body % "return fedge_a(x);",
        "edge/core/d.h": '#include "edge/core/e.h"\n',
        "edge/core/e.h": '#include "edge/core/d.h"\n',
        "edge/core/low.c": "void fedge_low(void)" + body % "fedge_os(); /* fedge_high() */",
        "edge/core/high.c": "void fedge_high(void)" + body % "fedge_low();",
        "edge/core/os_one.c": "void fedge_os(void)" + body % "fedge_low();",
        "edge/core/os_two.c": "void fedge_os(void)" + body % "fedge_low();",
        "edge/core/high.h": '#include "edge/core/low.h"\n',
        "edge/core/low.h": "void fedge_low(void);\n",
        "client/one.c": "void fedge_one(void)" + body % "fedge_two();",
        "client/two.c": "void fedge_two(void)" + body % "fedge_one();",
    }
    known = (("client/one", "client/two", "client/three"), ("client/four", "client/five"))
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            source_tree.write(root, path, text)
        faults = check_with(root, known)
    heads = [fault for fault in faults if not fault.startswith(" ")]
    assert len(heads) == 3, faults
    assert heads[0].startswith("edge/core/a, edge/core/b, edge/core/c use"), faults
    assert heads[1].startswith("edge/core/d, edge/core/e use"), faults
    assert heads[2].startswith("client/four, client/five are no circle"), faults


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
