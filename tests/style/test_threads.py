"""Fails on a unit test that can start threads and is not run by the thread sanitizer, and on one that is and cannot:
test_threads.py ROOT BUILD

FEDGE_TESTS_WITH_THREADS in tests/CMakeLists.txt has them. Whether a program can is read from it: a release contains
only what is reached. Tests of GPU code are left out: a race detector of their own looks after them.
"""

import json
import os
import re
import subprocess
import sys

EXEMPT = {
    "test_train_memory",  # gives a thread a stack that is too small for the sanitizer
    "test_world_network",  # has fibers for threads
    "test_world_scheduler",
}


def named(root):
    with open(os.path.join(root, "tests", "CMakeLists.txt"), encoding="utf-8") as file:
        return set(re.search(r"set\(FEDGE_TESTS_WITH_THREADS([^)]*)\)", file.read()).group(1).split())


def programs(build):
    """Unit tests with their programs, as far as these are built."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    found = {}
    for test in json.loads(listed.stdout)["tests"]:
        program = test.get("command", [build])[0]
        properties = {entry["name"]: entry["value"] for entry in test["properties"]}
        inside = os.path.relpath(program, build)
        if inside.startswith("tests/") and "unit" in properties["LABELS"] and os.path.isfile(program):
            found.setdefault(os.path.basename(program), inside)
    return {name: inside for name, inside in found.items() if not inside.startswith("tests/cuda/")}


def main(root, build):
    tests, expected, faults = programs(build), named(root), []
    assert len(tests) > 100, f"only {len(tests)} unit tests were found in {build}"
    for name, inside in sorted(tests.items()):
        symbols = subprocess.run(["nm", "--dynamic", "--undefined-only", os.path.join(build, inside)], check=True,
                                 capture_output=True, text=True).stdout
        if name in EXEMPT:
            continue
        starts = re.search(r"\bpthread_create\b", symbols) is not None
        if starts != (name in expected):
            faults.append(f"{name}: {'can start threads: add it to' if starts else 'starts no threads: take it out of'} "
                          "FEDGE_TESTS_WITH_THREADS")
    print("\n".join([*faults, f"{len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    places = sys.argv[1:] or [os.environ["FEDGE_SOURCE_DIR"], os.environ["FEDGE_BINARY_DIR"]]
    sys.exit(main(*map(os.path.abspath, places)))
