"""The driver of tests/mutation.sh, which says what it does."""

import argparse
import collections
import difflib
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import mutants
import scratch

ROOT = pathlib.Path(__file__).resolve().parents[2]
JUDGED = ROOT / "tests" / "mutation" / "judged.txt"
DEFAULT = [
    *("edge/core", "edge/json", "edge/wire", "edge/plan", "edge/data", "edge/site", "aggregator/rounds", "aggregator/reduce", "aggregator/store"),
    *("aggregator/exchange", "aggregator/net", "aggregator/run", "aggregator/cluster", "aggregator/program"),
    *("client", "secure"),
]
SKIPPED = 77  # a test's exit code
SLOWEST = 10  # times as long as before: the mutant hangs
LEAST_S = 10  # but no test is stopped before

KILLED, SURVIVED, EQUIVALENT, STILLBORN = "killed", "survived", "equivalent", "stillborn"


def say(text):
    print(text, file=sys.stderr, flush=True)


def read_options():
    parser = argparse.ArgumentParser(prog="tests/mutation.sh", add_help=False)
    parser.add_argument("--files", action="append")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--net", action="store_true")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--tests", default="")
    parser.add_argument("--place", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--wrap", default="")
    parser.add_argument("--minutes", type=float, default=0)
    options = parser.parse_args()
    usual = ROOT / "build" / ("mutation-sanitized" if options.sanitize else "mutation")
    options.place = (options.place or usual).resolve()
    return options


OPTIONS = read_options()
PLACE = OPTIONS.place
TREE = PLACE / "tree"
BUILD = PLACE / "build"


# ---- what is drawn -----------------------------------------------------------------------------


def sources(names):
    files = []
    for name in names:
        path = ROOT / name
        if path.is_dir():
            files += sorted(p for p in path.rglob("*.c") if not p.name.endswith("_none.c"))
        elif path.suffix == ".c" and path.is_file():
            files.append(path)
        else:
            sys.exit(f"tests/mutation.sh: {name} is no C file and no folder")
    return files


def judged():
    """The verdicts by key: lines "KEY verdict FILE: reason"."""
    verdicts = {}
    for line in JUDGED.read_text().splitlines() if JUDGED.exists() else []:
        match = re.match(r"([0-9a-f]{10}) (\w+) ", line)
        if match:
            verdicts[match[1]] = match[2]
    return verdicts


def draw(options):
    """All mutants in the order in which they are tried: files and operators in equal shares."""
    verdicts = judged()
    by_kind = collections.defaultdict(list)
    for path in sources(options.files or DEFAULT):
        name = str(path.relative_to(ROOT))
        for mutant in mutants.mutants_of(name, path.read_text()):
            if options.only:
                if mutant.key in options.only:
                    by_kind[""].append(mutant)
            elif verdicts.get(mutant.key) != EQUIVALENT:
                by_kind[mutant.operator].append(mutant)
    rng = random.Random(options.seed)
    for kind in sorted(by_kind):
        rng.shuffle(by_kind[kind])
    order = []
    while any(by_kind.values()):
        for kind in sorted(by_kind):
            if by_kind[kind]:
                order.append(by_kind[kind].pop())
    return order


# ---- building ----------------------------------------------------------------------------------


def objects(path):
    """The object files of a source, in whatever targets it is: in a folder of CMakeFiles that ends as its path does."""
    source = pathlib.Path(path)
    found = []
    for item in BUILD.rglob(f"{source.name}.o"):
        place = re.sub(r"CMakeFiles/[^/]+\.dir/", "", str(item.relative_to(BUILD).with_suffix("")))
        if place == path or place.endswith("/" + path):
            found.append(item)
    return sorted(found)


def code_of(path):
    """What of the objects becomes part of programs."""
    found = []
    for item in objects(path):
        bare = PLACE / "bare.o"
        subprocess.run(["objcopy", "--strip-debug", item, bare], check=True)
        found.append(bare.read_bytes())
    return found


# ---- testing -----------------------------------------------------------------------------------


class Test:
    def __init__(self, entry):
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name = entry["name"]
        self.command = entry.get("command", [])
        self.folder = properties.get("WORKING_DIRECTORY", str(BUILD))
        self.labels = properties.get("LABELS", [])
        self.environment = dict(item.split("=", 1) for item in properties.get("ENVIRONMENT", []))
        self.seconds = 0.0

    def mirrors(self, path):
        folder = pathlib.Path(self.folder).relative_to(BUILD)
        return folder == pathlib.Path("tests") / pathlib.Path(path).parent

    def targets(self):
        """What ninja builds for it: the programs that it names, and for a script all programs."""
        named = {pathlib.Path(word).name for word in self.command if str(BUILD) in word}
        return named if str(BUILD) in self.command[0] else named | {"programs"}

    def programs(self):
        named = [pathlib.Path(word) for word in self.command if str(BUILD) in word]
        scripted = [] if str(BUILD) in self.command[0] else sorted((BUILD / "bin").iterdir())
        return [path for path in named + scripted if path.is_file()]

    def run(self, limit_s=3600):
        """Its exit code, 124 when it took too long, and the seconds."""
        process = subprocess.Popen(
            self.command, cwd=self.folder, env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started = time.monotonic()
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = 124
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what it has left running, too
        except ProcessLookupError:
            pass
        process.wait()
        return code, time.monotonic() - started


def read_tests(net):
    shown = subprocess.run(
        ["ctest", "--show-only=json-v1"], cwd=BUILD, check=True, capture_output=True, text=True
    ).stdout
    tests = [Test(entry) for entry in json.loads(shown)["tests"]]
    wanted = {"unit", "heavy", "net"} if net else {"unit", "heavy"}
    chosen = [t for t in tests if t.command and wanted & set(t.labels) and "long" not in t.labels]
    return [t for t in chosen if re.search(OPTIONS.tests, t.name)]


class Programs:
    """Which programs are other ones than in the beginning: only their tests can fail."""

    def __init__(self, tests):
        self.hashes = {path: self.hash(path) for test in tests for path in test.programs()}

    @staticmethod
    def hash(path):
        return hashlib.sha1(path.read_bytes()).digest()

    def differ(self, test):
        return any(self.hash(path) != self.hashes.get(path) for path in test.programs())


class Bench:
    """The built tree and its tests, and one mutant at a time in it."""

    def __init__(self, options):
        self.builder = scratch.Builder(BUILD, options.jobs, options.wrap)
        kind, sanitizers = ("Debug", "address,undefined") if options.sanitize else ("Release", "")
        scratch.copy_tree(ROOT, TREE)
        scratch.configure(ROOT, TREE, BUILD, kind, sanitizers)
        say("mutation: builds the tree as it is")
        built = self.builder.build()
        if built.returncode:
            sys.exit(built.stdout[-3000:])
        self.tests = read_tests(options.net)  # ctest knows the commands of what is built
        say(f"mutation: runs its {len(self.tests)} tests")
        for test in list(self.tests):
            code, test.seconds = test.run()
            if code not in (0, SKIPPED):
                say(f"mutation: {test.name} fails as it is ({code}) and is left out")
            if code:
                self.tests.remove(test)
        self.tests.sort(key=lambda test: test.seconds)
        self.programs = Programs(self.tests)
        self.code = {}  # of the objects of a source, before it was first changed

    def build(self, tests, objects_too=()):
        targets = set(objects_too).union(*(test.targets() for test in tests))
        return self.builder.build(*sorted(targets)).returncode == 0

    def first_failure(self, tests):
        for test in filter(self.programs.differ, tests):
            code, _ = test.run(max(LEAST_S, SLOWEST * test.seconds))
            if code not in (0, SKIPPED):
                return test.name + (" (hangs)" if code == 124 else "")
        return None

    def try_mutant(self, mutant):
        """(verdict, the test that killed it)."""
        path, target = mutant.path, TREE / mutant.path
        compiled = [str(item.relative_to(BUILD)) for item in objects(path)]
        if not compiled:
            return STILLBORN, "not part of this build"
        original = self.code.setdefault(path, code_of(path))
        mirrored = [test for test in self.tests if test.mirrors(path)]
        others = [test for test in self.tests if not test.mirrors(path)]
        others.sort(key=lambda test: "net" in test.labels)
        text = target.read_text()
        try:
            target.write_text(mutant.apply(text))
            if not self.build(mirrored, compiled):
                return STILLBORN, "does not compile"
            if code_of(path) == original:
                return EQUIVALENT, "the same code"
            killer = self.first_failure(mirrored)
            if not killer:
                killer = self.first_failure(others) if self.build(others) else "the linker"
            return (KILLED, killer) if killer else (SURVIVED, "")
        finally:
            target.write_text(text)  # built again with the next one


# ---- all of it ---------------------------------------------------------------------------------


def diff_of(mutant):
    text = (TREE / mutant.path).read_text()
    lines = difflib.unified_diff(
        text.splitlines(), mutant.apply(text).splitlines(),
        f"a/{mutant.path}", f"b/{mutant.path}", n=2, lineterm="",
    )
    return f"{mutant.key} ({mutant.operator})\n" + "\n".join(lines) + "\n"


def main():
    options = OPTIONS
    order = draw(options)
    if options.list:
        for mutant in order[: options.count]:
            print(f"{mutant.key} {mutant.path}:{mutant.line}: {mutant.before}  =>  {mutant.after}")
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    tally = collections.Counter()
    survivors = PLACE / f"survivors-{options.seed}.txt"
    survivors.write_text("")
    started = time.monotonic()
    for mutant in order:
        if tally[KILLED] + tally[SURVIVED] >= options.count:
            break
        if options.minutes and time.monotonic() - started > options.minutes * 60:
            say("mutation: the time is over")
            break
        verdict, why = bench.try_mutant(mutant)
        tally[verdict] += 1
        say(f"{verdict:10} {mutant.key} {mutant.path}:{mutant.line} {mutant.operator}: {why}")
        if verdict == SURVIVED:
            print(diff_of(mutant), flush=True)
            with survivors.open("a") as file:
                file.write(diff_of(mutant) + "\n")
    tried = tally[KILLED] + tally[SURVIVED]
    share = 100 * tally[KILLED] / tried if tried else 0
    print(f"{tally[KILLED]} of {tried} mutants killed ({share:.0f} %), seed {options.seed}; "
          f"{tally[EQUIVALENT]} gave the same code, {tally[STILLBORN]} did not compile")


if __name__ == "__main__":
    main()
