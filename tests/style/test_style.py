"""Fails on files over 800 lines, functions over 70, marks of unfinished work, functions that may leave
what they make unset, and scripts that empty the file to which their output goes: test_style.py ROOT

A function is what stands between a line "{" and the next line "}", both at column 0: .clang-format
puts them there, and a brace elsewhere is a fault too.

What makes something sets the pointer that it fills to NULL first (edge/core/status.h).

The top level holds the rooms and what every project has there, nothing else. In a git checkout only what
git knows counts: builds and notes may lie beside it.
"""

import os
import re
import subprocess
import sys
import tempfile

import source_tree

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 70
TOP_LEVEL = {
    "aggregator", "client", "cmake", "docs", "edge", "examples", "secure", "tests",
    "CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md",
}
# Written in two parts so that this file does not find itself.
MARKS = re.compile(r"\b(" + "|".join(["TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK"]) + r")\b|^(<<<<<<<|>>>>>>>) ")
# Opened by its name, a file is emptied of all that was written to it: a descriptor (>&2) is not.
REOPENED = re.compile(r"/dev/std(out|err)\b")
ATTACHED_BRACE = re.compile(r"[A-Za-z_].*\).*\{$")


def function_faults(path, lines):
    faults = []
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            length = number - start + 1
            if length > MAX_FUNCTION_LINES:
                faults.append(f"{path}:{start}: a function of {length} lines, {MAX_FUNCTION_LINES} are the most")
            start = None
        elif start is None and ATTACHED_BRACE.match(line) and "=" not in line and not line.startswith("extern"):
            faults.append(f"{path}:{number}: the brace of a function belongs on its own line (run clang-format)")
    return faults

# A function that makes something: its name, its parameters and its body.
MAKER = re.compile(r"^fedge_status\s+(fedge_\w+_(?:new|open|load|parse|create|recover|allocate)\w*)\(([^{;]*?)\)\n"
                   r"\{\n(.*?)^\}", re.S | re.M)
MADE = re.compile(r"(?<!const )\b\w+ \*\*(\w+)")


def maker_faults(path, lines):
    text = "\n".join(lines) + "\n"
    faults = []
    for function in MAKER.finditer(text):
        name, parameters, body = function.groups()
        for made in MADE.findall(parameters):
            if made != "argv" and f"*{made} = NULL;" not in body.split("return")[0]:
                number = text.count("\n", 0, function.start()) + 1
                faults.append(f"{path}:{number}: {name} does not begin with *{made} = NULL")
    return faults


def top_level_names(root):
    if os.path.exists(os.path.join(root, ".git")):
        try:
            known = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True, text=True)
            return {path.split("/")[0] for path in known.stdout.split("\0") if path}
        except (OSError, subprocess.CalledProcessError):
            pass  # no git, or it does not trust who owns the checkout
    return set(os.listdir(root))


def top_level_faults(root):
    return [f"{name}: not for the top level (a file that a test left?)" for name in sorted(top_level_names(root))
            if not name.startswith(".") and name not in TOP_LEVEL]


def check(root):
    faults = top_level_faults(root)
    for path in source_tree.files(root, source_tree.CODE + source_tree.SCRIPTS, ("CMakeLists.txt",)):
        lines = source_tree.lines(root, path)
        if len(lines) > MAX_FILE_LINES:
            faults.append(f"{path}: {len(lines)} lines, {MAX_FILE_LINES} are the most")
        for number, line in enumerate(lines, 1):
            mark = MARKS.search(line)
            if mark:
                faults.append(f"{path}:{number}: a mark of unfinished work: {mark.group().strip()}")
            if path.endswith(".sh") and REOPENED.search(line):
                faults.append(f"{path}:{number}: output is opened by its name: use its number, as in >&2")
        if path.endswith(source_tree.CODE):
            faults.extend(function_faults(path, lines))
        if path.endswith(".c") and not path.startswith("tests"):
            faults.extend(maker_faults(path, lines))
    return faults


def self_test():
    """Each rule is broken once, in a tree of its own, and must be found; its limit must pass."""

    def function(lines):
        return "int f(void)\n{\n" + "    g();\n" * (lines - 2) + "}\n"

    maker = "fedge_status fedge_a_new(int n, char **a,\n                         fedge_error *err)\n{\n    return g(a);\n}\n"
    good = {
        "file.c": "int x;\n" * MAX_FILE_LINES,
        "function.c": "struct s {\n    int a;\n};\nint a[] = {\n    1,\n};\n" + function(MAX_FUNCTION_LINES) * 2,
        "made.c": maker.replace("return", "*a = NULL;\n    return"),
        "name.sh": "mktemp -d /tmp/name.XXXXXX >&2\n",
    }
    # Of a name at the top level: those that every tree has, one that is hidden and one that is not known.
    top = {"README.md": "", ".hidden": "", "left.json": ""}
    bad = {
        "long.h": "int x;\n" * (MAX_FILE_LINES + 1),
        "function_long.c": function(MAX_FUNCTION_LINES) + function(MAX_FUNCTION_LINES + 1),
        "mark.py": "# TO" "DO: later\n",
        "conflict.c": "<<<<<<< ours\n",
        "attached.c": "int f(void) {\n}\n",
        "reopened.sh": "mktemp 2>/dev/stderr\n",
        "unset.c": maker,
        "unset_late.c": maker.replace("}", "    *a = NULL;\n}"),
    }
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**good, **bad}.items():
            source_tree.write(root, os.path.join("edge", path), text)
        for path, text in top.items():
            source_tree.write(root, path, text)
        found = sorted(fault.split(":")[0] for fault in check(root))
    expected = sorted(["left.json", *(os.path.join("edge", path) for path in bad)])
    assert found == expected, f"the self-test expected {expected}, found {found}"


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
