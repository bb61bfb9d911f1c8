"""The files that the style tests look at, and how they report."""

import os
import sys
import tempfile

CODE = (".c", ".h", ".cu", ".cuh")
SCRIPTS = (".sh", ".py", ".cmake")


def files(root, suffixes, names=()):
    """Paths, from the root, of the files with these suffixes or names, without build and hidden folders."""
    found = []
    for folder, below, here in os.walk(root):
        below[:] = sorted(d for d in below if not d.startswith(".") and d != "__pycache__")
        if folder == root and "build" in below:
            below.remove("build")
        for name in sorted(here):
            if name.endswith(suffixes) or name in names:
                found.append(os.path.relpath(os.path.join(folder, name), root))
    return found


def lines(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read().splitlines()


def write(root, path, text):
    """Makes a file of a self-test's tree."""
    full = os.path.join(root, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="utf-8") as file:
        file.write(text)


def expect(check, good, bad, found_in=None):
    """A self-test: in a tree of these files (path: text) the check finds one fault in each of [found_in] (all of bad),
    and none elsewhere."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**good, **bad}.items():
            write(root, path, text)
        found = sorted(fault.split(":")[0].replace(os.sep, "/") for fault in check(root))
    expected = sorted(bad if found_in is None else found_in)
    assert found == expected, f"the self-test expected {expected}, found {found}"


def main(check, self_test):
    """Runs the self-test and then the check of the tree named on the command line, or else by FEDGE_SOURCE_DIR."""
    self_test()
    faults = check(sys.argv[1] if len(sys.argv) > 1 else os.environ["FEDGE_SOURCE_DIR"])
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0
