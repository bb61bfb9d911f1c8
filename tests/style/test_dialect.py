"""Fails on C that is not written in this tree's dialect: test_dialect.py ROOT [--fix]

  braces   A body of one line has none, a longer one has. Of if and else both have them or neither.
  NULL     !p, never p == NULL; and p, not p != NULL, in a condition. Where a bool is made, p != NULL stays.
  sizeof   sizeof(x), with parentheses.
  asserts  static_assert of <assert.h>, which is C++'s word too, never _Static_assert.

--fix rewrites what it finds, and has clang-format (see .clang-format) lay it out.
"""

import concurrent.futures
import os
import subprocess
import sys

import dialect
import source_tree

CODE = source_tree.CODE


def faults_in(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return [f"{path}:{fault.line}: {fault.what}" for fault in dialect.faults_of(file.read())]


def check(root):
    faults = []
    for path in source_tree.files(root, CODE):
        faults += faults_in(root, path)
    return faults


def mend(full_path):
    """Again until nothing changes: what becomes shorter may fit a line."""
    for _ in range(8):
        with open(full_path, encoding="utf-8") as file:
            text = file.read()
        better = dialect.mended(text)
        if better == text:
            return
        with open(full_path, "w", encoding="utf-8") as file:
            file.write(better)
        subprocess.run(["clang-format", "-i", full_path], check=True)


def mend_all(root):
    paths = [os.path.join(root, path) for path in source_tree.files(root, CODE)]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        list(pool.map(mend, paths))


def self_test():
    """Each rule is broken in all ways, and mended; what keeps them stays as it is."""
    cases = {
        "if (a) {\n    b();\n}\n": "if (a) \n    b();\n",
        "if (a)\n    b(1,\n      2);\n": "if (a) {\n    b(1,\n      2);\n}\n",
        "if (a)\n    b();\nelse {\n    c();\n    d();\n}\n": "if (a) {\n    b();\n}\nelse {\n    c();\n    d();\n}\n",
        "while (a) {\n    b(); /* why */\n}\n": "while (a) \n    b(); /* why */\n",
        "for (;;)\n    if (a)\n        b();\n": "for (;;) {\n    if (a)\n        b();\n}\n",
        "for (;;)\n    if (a)\n        b(1,\n          2);\n": "for (;;) {\n    if (a) {\n        b(1,\n          2);\n}\n}\n",
        "if (a == NULL || b->c[1] != NULL)\n    d();\n": "if (!a || b->c[1])\n    d();\n",
        "return *a(b) == NULL;\n": "return !*a(b);\n",
        "if ((a = b()) == NULL)\n    c();\n": "if (!(a = b()))\n    c();\n",
        "x = sizeof a->b[1] / sizeof *c;\n": "x = sizeof(a->b[1]) / sizeof(*c);\n",
        "#define N(a) sizeof a\n": "#define N(a) sizeof(a)\n",
        "_Static_assert(a == 1, \"why\");\n": "static_assert(a == 1, \"why\");\n",
    }
    kept = (
        "if (a)\n    b();\nelse\n    c();\n", "if (a) {\n    /* why */\n    b();\n}\n", "do {\n    a();\n} while (b);\n",
        "if (a) {\n    b();\n} else if (c) {\n    d();\n    e();\n}\n", "bool a = b != NULL;\n", "f(a != NULL);\n",
        "if ((a != NULL) == (b != NULL))\n    c();\n", "while (a)\n    ;\n", "for (;;) {\n}\n", "/* sizeof a == NULL */\n",
        "static_assert(a, \"_Static_assert\");\n",
        "#define A(b) if (b) { c(); }\n", "if (a) {\n#if B\n    c();\n#endif\n}\n", "if (a) {\n    int b = c;\n}\n",
    )
    for before, after in cases.items():
        assert dialect.faults_of(before), before
        assert dialect.mended(before) == after, (before, dialect.mended(before))
    for text in kept:
        assert not dialect.faults_of(text), (text, dialect.faults_of(text))


if __name__ == "__main__":
    if sys.argv[2:] == ["--fix"]:
        mend_all(sys.argv[1])
    sys.exit(source_tree.main(check, self_test))
