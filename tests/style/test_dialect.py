"""Fails on C that is not written in this tree's dialect: test_dialect.py ROOT [--fix]

  braces   A body of one line has none, a longer one has. Of if and else both have them or neither.
  NULL     !p, never p == NULL; and p, not p != NULL, in a condition. Where a bool is made, p != NULL stays.
  sizeof   sizeof(x), with parentheses.
  asserts  static_assert of <assert.h>, which is C++'s word too, never _Static_assert.
  status   FEDGE_TRY and FEDGE_TRY_OR pass a failed call's status on (edge/core/status.h); nobody returns it by hand,
           and no guard chains the next call. In the product.
  params   A function has at most 8 parameters, a CUDA kernel as many as a launch needs. In the product.

--fix rewrites what it finds, and has clang-format (see .clang-format) lay it out.
"""

import concurrent.futures
import os
import subprocess
import sys

import dialect
import source_tree

CODE = source_tree.CODE
PRODUCT = ("aggregator/", "client/", "edge/", "examples/", "secure/")
# Functions with the parameters of an mbedTLS interface, by which mbedTLS's callers reach them.
OF_MBEDTLS = {"secure/crypto/ciphers_gcrypt.c": ("gcm_crypt_and_tag", "gcm_auth_decrypt")}


def faults_in(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        source = dialect.Source(file.read())
    faults = dialect.faults_of(source)
    path = path.replace(os.sep, "/")
    if path.startswith(PRODUCT):
        faults += [*dialect.status_faults(source), *dialect.parameter_faults(source, OF_MBEDTLS.get(path, ()))]
    return [f"{path}:{fault.line}: {fault.what}" for fault in faults]


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
        assert faults_of(before), before
        assert dialect.mended(before) == after, (before, dialect.mended(before))
    for text in kept:
        assert not faults_of(text), (text, faults_of(text))
    check_statuses()
    check_parameters()


def faults_of(text):
    return dialect.faults_of(dialect.Source(text))


def check_statuses():
    """All spellings of what the macros do, and what only looks like it."""
    by_hand = (
        "status = f(a);\nif (status != FEDGE_OK)\n    return status;\n",
        "const fedge_status status = f(a);\nif (status)\n    return status;\n",
        "fedge_status made = f(a ? b : c);\nif (FEDGE_OK != made) {\n    return made;\n}\n",
        "if ((status = f(a)) != FEDGE_OK)\n    return status;\n",
        "status = f(a);\nif (status != FEDGE_OK)\n    goto done;\n",
        "g();\nif (status == FEDGE_OK)\n    status = f(a);\n",
        "if (!status) {\n    status = f(a);\n}\n",
        "if (FEDGE_OK == status)\n    status = f(a);\n",
    )
    kept = (
        "FEDGE_TRY(f(a));\n", "FEDGE_TRY_OR(f(a), done);\n", "int code = f(a);\nif (code)\n    return code;\n",
        "status = f(a);\nif (status != FEDGE_OK) {\n    g();\n    return status;\n}\n",
        "status = f(a);\ng();\nif (status != FEDGE_OK)\n    return status;\n",
        "status = f(a);\nif (status != FEDGE_OK)\n    return fedge_error_prefix(err, status, \"a\");\n",
        "if (status == FEDGE_OK)\n    a = b;\n", "if (status == FEDGE_OK)\n    status = f(a);\nelse\n    g();\n",
        "if (status == FEDGE_OK && a)\n    status = f(a);\n",
    )
    for text in by_hand:
        text = "int f(void)\n{\n" + text + "}\n"
        assert len(list(dialect.status_faults(dialect.Source(text)))) == 1, text
    for text in kept:
        text = "int f(void)\n{\n" + text + "}\n"
        assert not list(dialect.status_faults(dialect.Source(text))), text


def check_parameters():
    nine = "(int a, int b, int c, int d, int e, int f, int g, int h, void (*i)(int, int))"
    eight = nine.replace(" int h,", "")
    for text in ("int f" + nine + ";\n", "static inline a *f" + nine + "\n{\n    g();\n}\n",
                 "typedef int (*a)" + nine + ";\nint f" + nine + "\n{\n}\n", "#include \"a.h\"\nint f" + nine + ";\n",
                 "extern \"C\" {\nint f" + nine + ";\n}\n"):
        assert len(list(dialect.parameter_faults(dialect.Source(text)))) == 1, text
        assert not list(dialect.parameter_faults(dialect.Source(text), ("f",))), text
    for text in ("int f" + eight + ";\n", "template <int A>\n__global__ static void f" + nine + "\n{\n}\n",
                 "int f(void)\n{\n    g(1, 2, 3, 4, 5, 6, 7, 8, 9);\n}\n"):
        assert not list(dialect.parameter_faults(dialect.Source(text))), text


if __name__ == "__main__":
    if sys.argv[2:] == ["--fix"]:
        mend_all(sys.argv[1])
    sys.exit(source_tree.main(check, self_test))
