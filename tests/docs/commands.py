"""The commands that pages and comments tell a reader to type: those of code blocks in Markdown, and of the comment at
the head of a file."""

import collections
import os
import re

Command = collections.namedtuple("Command", "path heading line text")

TOOLS = """apt apt-get awk bash cat cc chmod clang cmake cp ctest curl docker gcc gdb git grep kill ln make mkdir mpicc mpirun mv
ninja npm nsys ncu nvcc openssl perf pip pkg-config python python3 rm rsync scp sed sh sshd ssh strip sudo sysctl
systemctl tail tar tc tcpdump valgrind wget""".split()
FIRST_WORD = re.compile(
    r"(?:[A-Z_]+=(?:\"[^\"]*\"|\S*) +)*"  # of the environment
    rf"(?:(?:{'|'.join(map(re.escape, TOOLS))}|qemu-[\w-]+|PYTHON-WITH-\w+|/usr/bin/\w+|\./[\w-]+|"
    r"(?:[\w.-]+/)*(?:fedge-\w+|[\w-]+\.(?:sh|py)))(?= |$)|for \w+ in .*; do )")


def joined(lines):
    """With what a backslash continues."""
    whole = ""
    for number, text in lines:
        start = number if not whole else start
        whole += text
        if whole.endswith("\\"):
            whole = whole[:-1].rstrip() + " "
        else:
            yield start, whole
            whole = ""


def of_markdown(text):
    """(heading, line, text) of each line in a block that is fenced or indented."""
    heading, fence, before = "", None, ""
    block = False
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r" *```(\w*)", line)
        if mark:
            fence = None if fence is not None else mark[1]
        elif fence is not None:
            if fence in ("", "sh", "bash", "console"):
                yield heading, number, line.strip()
        elif line.startswith("#"):
            heading = line
        else:
            block = bool(re.match(r" {4,}\S", line)) and (block or not before.strip())
            if block:
                yield heading, number, line.strip()
        before = line


def of_head(path, text):
    """(line, text) of each line that is indented in the comment at the head of a file."""
    if path.endswith((".c", ".h", ".cu", ".cuh")):
        head, indented = text.split("*/")[0] if text.startswith("/*") else "", r" \* {4,}(\S.*)"
    elif path.endswith(".py"):
        found = re.match(r'(?:#!.*\n)?"""(.*?)"""', text, re.S)
        head, indented = found[1] if found else "", r" {2,}(\S.*)"
    else:
        head, indented = re.match(r"(?:#.*\n)*", text)[0], r"# {2,}(\S.*)"
    for number, line in enumerate(head.splitlines(), 1):
        found = re.fullmatch(indented, line)
        if found:
            yield number, found[1].rstrip()


def commands(root, path):
    """Of one file; a line with [--option] shows what there is to say and is none."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".md"):
        lines = list(of_markdown(text))
        headings = {number: heading for heading, number, _ in lines}
        lines = [(number, line) for _, number, line in lines]
    else:
        lines, headings = list(of_head(path, text)), {}
    return [Command(path, headings.get(number, ""), number, re.sub(r" +# .*| {3,}\S.*", "", line))
            for number, line in joined(lines) if FIRST_WORD.match(line) and not re.search(r"\[-|\[[A-Z]", line)]


def within(root, path):
    """Those that stand in the sentences of a page, `so`: to be read rather than typed, with … for what is left out."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    return [Command(path, "", text.count("\n", 0, found.start()) + 1, re.sub(r"\s+", " ", found[1]))
            for found in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text) if FIRST_WORD.match(found[1])]


def of_section(root, path, heading):
    """The texts of a section's commands, without those of the sections in it."""
    return [command.text for command in commands(root, path) if command.heading == heading]
