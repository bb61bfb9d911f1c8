"""Fails when the debug preset would warn of a file with vectors: test_unoptimised.py BUILD

Without optimisation GCC's intrinsics are macros, so such a file is another text to the compiler than in a release. Each
of the build's is read once more as that preset has it; nothing is made.
"""

import json
import os
import shlex
import subprocess
import sys

RELEASE_ONLY = ("-O", "-g", "-D_FORTIFY_SOURCE", "-fstack-protector")


def has_vectors(path):
    with open(path, encoding="utf-8") as file:
        return "immintrin.h" in file.read()


def warnings_of(entry):
    kept, skip = [], False
    for word in shlex.split(entry["command"]):
        if skip or word in ("-o", "-c"):
            skip = word == "-o"
            continue
        if not word.startswith(RELEASE_ONLY):
            kept.append(word)
    done = subprocess.run([*kept, "-O0", "-Werror", "-fsyntax-only"], cwd=entry["directory"], capture_output=True,
                          text=True, check=False)
    return done.stderr if done.returncode else ""


def main(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = {entry["file"]: entry for entry in json.load(file)
                   if entry["file"].endswith(".c") and has_vectors(entry["file"])}
    faults = list(filter(None, map(warnings_of, entries.values())))
    print("\n".join(faults) or f"{len(entries)} files, no warnings")
    return len(faults) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.environ["FEDGE_BINARY_DIR"]))
