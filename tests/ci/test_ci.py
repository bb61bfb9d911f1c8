"""What .ci/run does for which commit, in which order, and how its log ends."""

import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
LAST_LINES = 20


def program(name):
    """A program of .ci as a module."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(SOURCE, ".ci", name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


plan, why = program("plan"), program("reason")
COMMITS = [f"{i:040x}" for i in range(500)]


class Plan(unittest.TestCase):
    def test_every_turn_comes(self):
        self.assertEqual({plan.turn(commit, "third", 3) for commit in COMMITS}, {0, 1, 2})
        for changed in ([], ["docs/reference/job.md"], ["edge/core/os.h"]):
            self.assertEqual({part for commit in COMMITS for part in plan.extra(commit, changed)}, set(plan.TURNS))
        files = [f"edge/core/{i}.c" for i in range(70)]
        self.assertEqual({path for commit in COMMITS for path in plan.tidy(files, commit, [])}, set(files))
        self.assertEqual({plan.turn(commit, "net", 2) for commit in COMMITS}, {0, 1})
        self.assertEqual({plan.turn(commit, "stack", 6) for commit in COMMITS}, set(range(6)))

    def test_a_commit_has_one_plan(self):
        for commit in COMMITS[:20]:
            self.assertEqual(plan.extra(commit, ["edge/core/os.h"]), plan.extra(commit, ["edge/core/os.h"]))

    def test_the_slot_ends_in_time(self):
        for changed in ([], ["docs/reference/job.md"], ["edge/core/os.h"], ["edge/train/cuda/kernels/step.cu"], None):
            for commit in COMMITS:
                parts = plan.extra(commit, changed)
                self.assertGreater(len(parts), 0)
                self.assertEqual(len(parts), len(set(parts)))
                self.assertLessEqual(sum(plan.TURNS[part] for part in parts), plan.SLOT_S)

    def test_what_changed_runs(self):
        for commit in COMMITS:
            for path in ("edge/core/os.h", "client/main.c", "secure/crypto/hash.c", "cmake/deps.sh"):
                self.assertTrue(any(part.startswith("cross:") for part in plan.extra(commit, [path])), path)
            for path in ("aggregator/reduce/cuda/kernels.cu", "edge/train/cuda/math.cuh", "tests/cuda/emulator/race.c"):
                self.assertIn("race", plan.extra(commit, [path]))
            every = plan.extra(commit, None)
            self.assertTrue("race" in every and any(part.startswith("cross:") for part in every))

    def test_tidy(self):
        files = ["edge/core/os.c", "edge/core/os.h", "tests/edge/core/test_os.c", *(f"secure/{i}.c" for i in range(700))]
        for commit in COMMITS[:20]:
            chosen = plan.tidy(files, commit, ["edge/core/os.h", "secure/7.c", "README.md"])
            self.assertTrue({"edge/core/os.c", "secure/7.c"} <= set(chosen))
            self.assertTrue(40 < len(chosen) < 110, len(chosen))
        every = [path for path in files if path.endswith(".c") and not path.startswith("tests")]
        self.assertEqual(plan.tidy(files, COMMITS[0], None), every)


class Reason(unittest.TestCase):
    def test_of_tests(self):
        log = ["[1/9] Building C object", "  Start 1: test_a", "1/4 Test #1: test_a ......   Passed    0.01 sec",
               "2/4 Test #2: net_b ......***Failed    3.00 sec", *(f"noise {i}" for i in range(40)),
               "AssertionError: 3 != 4", "Ran 4 tests in 2 s", "",
               "3/4 Test #3: test_c ......Subprocess aborted***Exception:   0.17 sec", "Assertion `x' failed",
               "4/4 Test #4: test_d ......***Skipped   0.00 sec", "not here", "50% tests passed, 2 tests failed out of 4"]
        self.assertEqual(why.reason(log), ["net_b failed and 1 more: test_c; it said:", "AssertionError: 3 != 4"])

    def test_of_a_test_that_says_nothing_telling(self):
        log = ["1/1 Test #2: net_b ......***Timeout  60.00 sec", *(f"line {i}" for i in range(40)), "", "Total Test time"]
        self.assertEqual(len(why.reason(log)), why.MOST_LINES)

    def test_of_a_compiler(self):
        log = ["[1/9] Building C object", "edge/core/os.c:3:5: error: no such thing", *["ninja goes on"] * 40]
        self.assertEqual(why.reason(log), [log[1]])

    def test_of_anything_else(self):
        self.assertEqual(why.reason([f"line {i}" for i in range(40)])[-1], "line 39")
        self.assertEqual(why.reason([]), [])


class Tree(unittest.TestCase):
    """A repository whose builds and tests only say that they were asked for."""

    SAY = '#!/bin/sh\necho "CALL ${0##*/} $*"\n'

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fedge-ci-")
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(folder.name, "tree")
        self.bin = os.path.join(folder.name, "bin")
        for name in (self.root, self.bin, os.path.join(self.root, "edge"), os.path.join(self.root, "build", "tidy")):
            os.makedirs(name)
        shutil.copytree(os.path.join(SOURCE, ".ci"), os.path.join(self.root, ".ci"))
        for name in ("cmake", "clang-format", "run-clang-tidy"):
            self.write(os.path.join(self.bin, name), self.SAY)
        self.write("cmake/setup.sh", self.SAY)
        self.write("tests/run.sh", self.SAY)
        self.write("edge/a.c", "int x;\n")
        self.write(".gitignore", "build\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "A tree")

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def git(self, *words):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=n", "-c", "user.email=e", *words], check=True)

    def call(self, *command):
        env = {**os.environ, "PATH": self.bin + ":" + os.environ["PATH"], "CI": "", "FEDGE_TEST_LONG": ""}
        done = subprocess.run(command, env=env, text=True, timeout=600, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/")
        return done.returncode, done.stdout.splitlines()


class Choice(Tree):
    """What tests/run.sh installs, builds and runs for its options."""

    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(SOURCE, "tests", "run.sh"), os.path.join(self.root, "tests"))
        self.write(os.path.join(self.bin, "ctest"), self.SAY)

    def calls(self, *options):
        status, log = self.call("bash", os.path.join(self.root, "tests", "run.sh"), *options)
        self.assertEqual(status, 0, log)
        build, = (line.split("--target ")[1] for line in log if line.startswith("CALL cmake --build"))
        self.assertTrue(log[-1].startswith("CALL ctest "), log)
        return build, log[-1], "\n".join(log)

    def test_alone(self):
        built, run, log = self.calls()
        self.assertEqual(built, "all")
        self.assertTrue(run.endswith(" -LE ^(long|on-4-threads|race|fuzz|torch|wheel|cross|soak)$"), run)
        self.assertIn("CALL setup.sh --tests\n", log)

    def test_everything(self):
        built, run, log = self.calls("--all")
        self.assertEqual(built, "race_programs fuzz_programs all")
        self.assertTrue(run.endswith(" -LE ^(soak)$"), run)
        self.assertIn("CALL setup.sh --tests --cross --torch\n", log)
        self.assertNotIn("-LE", self.calls("--all", "--soak")[1])

    def test_labels(self):
        for labels, targets, chosen, left_out in (
                (["race"], "race_programs", "race", "long|on-4-threads|fuzz|torch|wheel|cross|soak"),
                (["fuzz"], "fuzz_programs", "fuzz", "long|on-4-threads|race|torch|wheel|cross|soak"),
                (["long-2"], "all", "long-2", "on-4-threads|race|fuzz|torch|wheel|cross|soak"),
                (["unit", "net-3"], "all", "unit|net-3", "long|on-4-threads|race|fuzz|torch|wheel|cross|soak"),
                (["unit", "race"], "race_programs all", "unit|race", "long|on-4-threads|fuzz|torch|wheel|cross|soak")):
            built, run, _ = self.calls(*(word for label in labels for word in ("--label", label)), "-R", "x")
            self.assertEqual(built, targets)
            self.assertTrue(run.endswith(f" -L ^({chosen})$ -LE ^({left_out})$ -R x"), run)

    def test_threads_alone(self):
        built, run, _ = self.calls("--preset", "tsan", "--label", "unit")
        self.assertEqual(built, "all")
        self.assertTrue(run.endswith(" -L ^(unit)$ -L ^threads$ -LE ^(long|race|fuzz|torch|wheel|cross|soak)$"), run)


class Run(Tree):
    """.ci/run, from the first part to the last line of its log."""

    def run_ci(self, *options):
        return self.call(os.path.join(self.root, ".ci", "run"), *options)

    def test_green(self):
        status, log = self.run_ci()
        self.assertEqual(status, 0, log)
        self.assertEqual(log[-1], "CALL run.sh ")
        calls = [line for line in log if line.startswith("CALL run.sh")]
        asan, tsan = (re.match(rf"CALL run.sh --preset {preset} --label unit --label heavy-[123]( --label net-[123])?$", call)
                      for preset, call in zip(("asan", "tsan"), calls))
        self.assertTrue(asan and tsan, calls)
        self.assertNotEqual(asan[1] is None, tsan[1] is None)
        seconds = log[log.index("ci: seconds of each part") + 1:]
        for part in ("setup", "clang-format", "clang-tidy", "address and undefined sanitizers", "thread sanitizer", "in turn: "):
            self.assertTrue(any(part in line and " s  " in line for line in seconds), (part, seconds))

    def test_all(self):
        status, log = self.run_ci("--all")
        self.assertEqual(status, 0, log)
        self.assertIn("CALL run.sh --preset asan --label unit --label heavy-1 --label net-1 --label heavy-2 --label net-2 --label heavy-3 "
                      "--label net-3", log)
        self.assertEqual(log[-1], "CALL run.sh --all")

    def test_help_and_unknown_arguments_run_nothing(self):
        for options, status, said in ((["--help"], 0, ".ci/run --all"), (["-h"], 0, ".ci/run --all"),
                                      (["--everything"], 2, '"--everything"'), (["--all", "x"], 2, '"x"')):
            with self.subTest(options):
                ended, log = self.run_ci(*options)
                self.assertEqual(ended, status)
                self.assertIn(said, "\n".join(log))
                self.assertFalse([line for line in log if line.startswith("CALL")], log)

    def test_red(self):
        self.write("tests/run.sh", "#!/bin/sh\necho '1/1 Test #1: net_x ...***Failed  1 sec'\n"
                   "echo 'AssertionError: no model'\nfor i in $(seq 90); do echo; echo \"Ran $i\"; done\nexit 8\n")
        status, log = self.run_ci()
        self.assertEqual(status, 8)
        end = "\n".join(log[-LAST_LINES:])
        self.assertIn("net_x failed", end)
        self.assertIn("AssertionError: no model", end)
        self.assertRegex(log[-1], r"^ci: FAILED \(address and undefined sanitizers\) after \d+ s")

    def test_red_before_any_test(self):
        self.write("cmake/setup.sh", "#!/bin/sh\necho 'no mirror'\nexit 1\n")
        status, log = self.run_ci()
        self.assertEqual(status, 1)
        self.assertIn("no mirror", log[-LAST_LINES:])

    def test_red_by_clang_tidy(self):
        self.write(os.path.join(self.bin, "run-clang-tidy"), "#!/bin/sh\necho '/x/edge/a.c:1:1: warning: bad'\nexit 1\n")
        status, log = self.run_ci()
        self.assertNotEqual(status, 0)
        self.assertIn("/x/edge/a.c:1:1: warning: bad", log[-LAST_LINES:])


if __name__ == "__main__":
    unittest.main()
