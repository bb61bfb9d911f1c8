"""Tests that the planted bugs apply to the tree and name what they break, and that planted.py recognises findings."""

import pathlib
import tempfile
import unittest
import unittest.mock

import planted

PRODUCT = ("aggregator/", "client/", "edge/")


class Patches(unittest.TestCase):
    def setUp(self):
        self.bugs = planted.read_bugs()

    def test_there_are_enough(self):
        self.assertGreaterEqual(len(self.bugs), 30)

    def test_each_applies(self):
        for bug in self.bugs:
            with self.subTest(bug.name):
                self.assertIsNone(bug.apply(planted.ROOT, "--check"))

    def test_each_says_what_it_breaks(self):
        for bug in self.bugs:
            with self.subTest(bug.name):
                self.assertEqual(tuple(bug.comment), planted.KEYS)

    def test_each_is_small_and_of_the_product(self):
        for bug in self.bugs:
            with self.subTest(bug.name):
                self.assertIn(len(bug.changes), range(1, 9))
                self.assertTrue(bug.files and all(name.startswith(PRODUCT) for name in bug.files))

    def test_none_is_twice(self):
        for key in (lambda bug: bug.name, lambda bug: bug.comment["broken"], lambda bug: "".join(bug.changes)):
            seen = [key(bug) for bug in self.bugs]
            self.assertEqual(len(set(seen)), len(seen))

    def test_the_table_has_bugs_alone(self):
        names = {bug.name for bug in self.bugs}
        self.assertLessEqual(set(planted.read_table(planted.FOUND)), names)

    def test_drawn_by_the_seed(self):
        drawn = [bug.name for bug in planted.choose(self.bugs, [], 3, "a commit")]
        self.assertEqual(len(set(drawn)), 3)
        self.assertEqual(drawn, [bug.name for bug in planted.choose(self.bugs, [], 3, "a commit")])
        others = [planted.choose(self.bugs, [], 3, str(seed)) for seed in range(9)]
        self.assertGreater(len({bug.name for draw in others for bug in draw}), 3)


class Worlds(unittest.TestCase):
    """Scripts stand in for the program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)

    def script(self, name, text):
        path = self.place / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o700)
        return path

    def test_found(self):
        program = self.script("program", 'echo "seeds $*"\necho "world: seed 17 failed: an update is lost"\nexit 1\n')
        sound = self.script("sound", '[ "$*" = "--seeds 1 --from 17 --minutes 0.05" ]\n')
        finding = planted.look_for(program, sound, 3)
        self.assertTrue(finding.failed)
        self.assertRegex(finding.line("a-bug"), r"^a-bug 17 \d\.\d an update is lost$")

    def test_worlds_that_fail_anyway_are_passed_over(self):
        fails = 'echo "world: seed %s failed: an update is lost"\nexit 1\n'
        sound = self.script("sound", '[ "$4" = 18 ] || exit 0\n' + fails % "$4")
        program = self.script("program", 'seed=$4\n[ $seed -gt 17 ] || seed=18\n' + fails % "$seed")
        finding = planted.look_for(program, sound, 5)
        self.assertEqual((finding.failed, finding.seed), (True, 19))

    def test_only_worlds_that_fail_anyway(self):
        program = self.script("program", 'echo "world: seed $4 failed: an update is lost"\nexit 1\n')
        finding = planted.look_for(program, program, 0.05)
        self.assertFalse(finding.failed)
        self.assertIn("without the bug", finding.message)

    def test_not_found(self):
        self.assertFalse(planted.run_worlds(self.script("program", "exit 0\n"), 5).failed)

    def test_out_of_time(self):
        with unittest.mock.patch.object(planted, "GRACE_S", 0):
            finding = planted.run_worlds(self.script("program", "sleep 60\n"), 0.1)
        self.assertFalse(finding.failed)
        self.assertLess(finding.seconds, 30)

    def test_ended_by_a_signal(self):
        finding = planted.run_worlds(self.script("program", "kill -ABRT $$\n"), 5)
        self.assertTrue(finding.failed)
        self.assertRegex(finding.line("a-bug"), r"^a-bug - \d\.\d the program ended by signal 6$")

    def test_wrong_use_is_no_finding(self):
        finding = planted.run_worlds(self.script("program", "echo what is --seeds\nexit 2\n"), 5)
        self.assertFalse(finding.failed)
        self.assertIn("what is --seeds", finding.message)

    def test_table(self):
        table = self.place / "found.txt"
        first, second = planted.Finding(True, 3, 1.25, "a\nmessage"), planted.Finding(False, None, 60, "not found")
        planted.write_table(table, ["a", "b", "c"], {"b": first, "c": first})
        planted.write_table(table, ["a", "b"], {"a": second})
        self.assertEqual(table.read_text(), "a - 60.0 not found\nb 3 1.2 a message\n")


class Trees(unittest.TestCase):
    """The copy is in a folder of another repository, as build/planted is."""

    def test_applied_in_the_copy_and_taken_back(self):
        bug = planted.read_bugs()[0]
        (planted.ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=planted.ROOT / "build") as folder:
            bench = planted.Bench.__new__(planted.Bench)
            bench.tree = pathlib.Path(folder) / "tree"
            for name in bug.files:
                (bench.tree / name).parent.mkdir(parents=True, exist_ok=True)
                (bench.tree / name).write_bytes((planted.ROOT / name).read_bytes())
            texts = [(bench.tree / name).read_text() for name in bug.files]
            bench.make = lambda *targets: "".join((bench.tree / name).read_text() for name in bug.files)
            self.assertNotEqual(bench.plant(bug), "".join(texts))
            self.assertEqual([(bench.tree / name).read_text() for name in bug.files], texts)


if __name__ == "__main__":
    unittest.main()
