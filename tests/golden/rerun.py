"""Are the golden files of a folder what its make_golden.py makes? rerun.py FOLDER

Numbers may differ in their last digits, as NumPy's sums do from machine to machine. 77: no Python here has NumPy.
"""

import json
import math
import os
import subprocess
import sys
import tempfile


def same(got, wanted):
    if isinstance(got, float) or isinstance(wanted, float):
        return math.isclose(got, wanted, rel_tol=1e-12, abs_tol=1e-12)
    if isinstance(got, dict):
        return (isinstance(wanted, dict) and list(got) == list(wanted)
                and all(same(got[key], wanted[key]) for key in got))
    if isinstance(got, list):
        return isinstance(wanted, list) and len(got) == len(wanted) and all(map(same, got, wanted))
    return got == wanted


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file) if name.endswith(".json") else file.read()


def with_numpy():
    """The first of the usual Pythons that has it; None: none has."""
    for python in os.environ.get("PYTHON"), sys.executable, "/usr/bin/python3":
        if python and os.path.exists(python) and subprocess.run(
                [python, "-c", "import numpy"], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


def main():
    python = with_numpy()
    if python is None:
        print("no NumPy")
        return 77
    folder, differ = sys.argv[1], []
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([python, "-B", os.path.join(folder, "make_golden.py"), made], check=True)
        names = {name for name in os.listdir(folder) if not name.endswith(".py") and not name.startswith("__")}
        for name in sorted(names | set(os.listdir(made))):
            if not all(os.path.exists(os.path.join(of, name)) for of in (folder, made)):
                differ.append(f"{name} is in one of the two only")
            elif not same(read(made, name), read(folder, name)):
                differ.append(f"{name} differs")
    print("\n".join(differ) or "all are the same")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
