"""Measures whether simulated federations find bugs: plants one bug at a time in a copy of the tree, and runs worlds.

  python3 -B tests/world/planted.py [option]...

  --only NAME    only this bug (tests/world/planted/NAME.patch), may be repeated
  --count N      N random bugs, which --seed draws; found.txt stays as it is
  --seed S       any text (default 1): the same text draws the same bugs
  --seconds N    time for each bug (default 60), on one core, from seed 1 on
  --place DIR    folder of the copy (default build/planted); runs at the same time need one each
  --jobs N       compilers at the same time (default: all cores)
  --wrap CMD     put before each build, e.g. "nice"
  --build        only builds the tree with each bug
  --list         prints each bug's name and what it breaks, and ends

A bug is found if a world fails with it but not without it. For each bug tests/world/planted/found.txt gets a line
"NAME SEED SECONDS MESSAGE". Exit code 1: some bug was not found. The tree itself is not changed.
"""

import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "mutation"))

import scratch  # noqa: E402

PATCHES = ROOT / "tests" / "world" / "planted"
FOUND = PATCHES / "found.txt"
KEYS = ("broken", "promise", "seen")
GRACE_S = 20  # time for the last world; a longer one hangs, which is no finding
MANY = 1_000_000_000  # seeds; the time ends first
LONGEST = 160  # characters of a message in the table


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- the bugs ----------------------------------------------------------------------------------


class Bug:
    """A patch. [comment]: its texts by key; [changes]: the lines that it removes or adds."""

    def __init__(self, path):
        self.path, self.name = path, path.stem
        head, self.diff = re.match(r"(.*?)(^diff --git .*)", path.read_text(), re.S | re.M).groups()
        text = re.sub(r"\n# {3}", " ", head)  # a continued line
        self.comment = dict(re.findall(r"^# (\w+): (.+)$", text, re.M))
        self.files = re.findall(r"^\+\+\+ b/(.+)$", self.diff, re.M)
        self.changes = [line for line in self.diff.splitlines() if re.match(r"[-+](?!--|\+\+)", line)]

    def apply(self, tree, *options):
        """Applies the patch to a tree. Returns why it does not apply, or None."""
        # Otherwise git would apply the patch to the repository around the copy.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
        done = subprocess.run(
            ["git", "apply", *options, self.path], cwd=tree, env=environment, capture_output=True, text=True
        )
        return done.stderr.strip() or "git apply failed" if done.returncode else None


def read_bugs():
    return [Bug(path) for path in sorted(PATCHES.glob("*.patch"))]


def choose(bugs, only, count, seed):
    unknown = set(only) - {bug.name for bug in bugs}
    if unknown:
        sys.exit(f"planted: there is no {', '.join(sorted(unknown))}")
    chosen = [bug for bug in bugs if not only or bug.name in only]
    if count is None:
        return chosen
    return random.Random(seed).sample(chosen, min(count, len(chosen)))


# ---- worlds ------------------------------------------------------------------------------------


class Finding:
    """The result of a run of worlds. [seed]: that of the failed world; None: the program did not report it."""

    def __init__(self, failed, seed, seconds, message):
        self.failed, self.seed, self.seconds = failed, seed, seconds
        self.message = " ".join(message.split())[:LONGEST]

    def line(self, name):
        return f"{name} {'-' if self.seed is None else self.seed} {self.seconds:.1f} {self.message}"


def judge(code, output, seconds):
    """[code] None: the time ran out, which is no finding."""
    failures = re.findall(r"^world: seed (\d+) failed: (.*)$", output, re.M)
    if failures and code not in (0, None):
        return Finding(True, int(failures[0][0]), seconds, failures[0][1])
    if code is not None and code < 0:
        return Finding(True, None, seconds, f"the program ended by signal {-code}")
    if code in (0, None):
        return Finding(False, None, seconds, "not found")
    last = output.strip().splitlines()[-1:] or ["no output"]
    return Finding(False, None, seconds, f"not found: exit code {code}: {last[0]}")


def run_worlds(program, seconds, seeds=MANY, first=1):
    command = [program, "--seeds", str(seeds), "--from", str(first), "--minutes", f"{seconds / 60:g}"]
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )
    code = None
    try:
        output, _ = process.communicate(timeout=seconds + GRACE_S)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return judge(code, output, time.monotonic() - started)


def look_for(program, sound, seconds):
    """Runs [program], which has a bug, until a world fails with it but not with [sound], which has no bug."""
    first, spent = 1, 0
    while True:
        finding = run_worlds(program, seconds - spent, first=first)
        spent += finding.seconds
        finding.seconds = spent
        if finding.seed is None or not run_worlds(sound, seconds, 1, finding.seed).failed:
            return finding
        first = finding.seed + 1
        if spent >= seconds:
            return Finding(False, None, spent, f"not found: world {finding.seed} fails without the bug, too")


# ---- the copy ----------------------------------------------------------------------------------


class Bench:
    def __init__(self, place, jobs, wrap):
        self.tree, self.build = place / "tree", place / "build"
        self.builder = scratch.Builder(self.build, jobs, wrap)
        place.mkdir(parents=True, exist_ok=True)
        scratch.copy_tree(ROOT, self.tree)
        scratch.configure(ROOT, self.tree, self.build)

    def make(self, *targets):
        """Builds the targets. Returns the compiler's messages if it fails, else None."""
        done = self.builder.build(*targets)
        return done.stdout[-2000:] or "ninja failed" if done.returncode else None

    def program(self):
        for path in (self.build / "tests" / "world" / "world", self.build / "bin" / "world"):
            if path.is_file():
                return path
        sys.exit("planted: the target world makes no program of that name")

    def keep_sound(self):
        """Copies the program that has no bug."""
        path = self.build / "world-without-a-bug"
        shutil.copy2(self.program(), path)
        return path

    def plant(self, bug, *targets):
        """Builds the tree with the bug, and restores the tree. Returns why it cannot be built, or None."""
        files = [self.tree / name for name in bug.files]
        texts = [file.read_bytes() for file in files]
        try:
            return bug.apply(self.tree) or self.make(*targets)
        finally:
            for file, text in zip(files, texts):
                file.write_bytes(text)


# ---- all of it ---------------------------------------------------------------------------------


def read_table(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split(" ", 1)[0]: line for line in lines if line}


def write_table(path, names, findings):
    """Keeps the lines of bugs that did not run, and drops those of bugs that no longer exist."""
    lines = {**read_table(path), **{name: finding.line(name) for name, finding in findings.items()}}
    path.write_text("".join(lines[name] + "\n" for name in sorted(names) if name in lines))


def read_options():
    parser = argparse.ArgumentParser(
        prog="tests/world/planted.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--place", type=pathlib.Path, default=ROOT / "build" / "planted")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--wrap", default="")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def try_bugs(bench, chosen, seconds):
    """Returns the findings by name. A bug that cannot be planted counts as not found."""
    failed = bench.make("world")
    if failed:
        sys.exit(f"planted: the tree as it is: {failed}")
    sound = bench.keep_sound()
    findings = {}
    for bug in chosen:
        broken = bench.plant(bug, "world")
        finding = Finding(False, None, 0, broken) if broken else look_for(bench.program(), sound, seconds)
        findings[bug.name] = finding
        say(f"{'found' if finding.failed else 'NOT FOUND'}: {finding.line(bug.name)}")
    return findings


def build_bugs(bench, chosen):
    """Returns how many bugs cannot be built."""
    failures = 0
    for bug in chosen:
        broken = bench.plant(bug, "fedge_server", "fedge_client")
        failures += broken is not None
        say(f"{bug.name}: {broken or 'builds'}")
    return failures


def main():
    options = read_options()
    bugs = read_bugs()
    chosen = choose(bugs, options.only, options.count, options.seed)
    if options.list:
        for bug in chosen:
            print(f"{bug.name}: {bug.comment['broken']}")
        return 0
    bench = Bench(options.place.resolve(), options.jobs, options.wrap)
    if options.build:
        return 1 if build_bugs(bench, chosen) else 0
    findings = try_bugs(bench, chosen, options.seconds)
    if options.count is None:
        write_table(FOUND, [bug.name for bug in bugs], findings)
    found = sum(finding.failed for finding in findings.values())
    print(f"{found} of {len(findings)} planted bugs were found")
    return 0 if found == len(findings) else 1


if __name__ == "__main__":
    sys.exit(main())
