"""The job of 355 million parameters loads, and the sizes in its README are those that the programs print.
Nothing of that size is allocated: both print what they would take."""

import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
BIN = os.environ["FEDGE_BIN_DIR"]
EMULATED = os.path.join(os.environ["FEDGE_EMULATED_DIR"], "emulated-check")
FOLDER = os.path.join(SOURCE, "examples", "gpt2-medium-sized")
JOB = os.path.join(FOLDER, "job.json")
PARAMETERS = 354827268


def run(*arguments, **environment):
    done = subprocess.run(arguments, text=True, capture_output=True, timeout=600,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


class Gpt2MediumSized(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(FOLDER, "README.md"), encoding="utf-8") as file:
            self.readme = file.read()
        folder = tempfile.TemporaryDirectory(prefix="fedge-gpt2-")
        self.addCleanup(folder.cleanup)
        self.keys = os.path.join(folder.name, "keys")
        self.assertEqual(run(os.path.join(BIN, "fedge-keys"), "demo", "--out", self.keys, "--clients", "1")[0], 0)

    def check(self, program, *more, **environment):
        return run(program, "--job", JOB, "--identity", os.path.join(self.keys, "server"),
                   "--trust", os.path.join(self.keys, "trust"), "--registry", os.path.join(self.keys, "registry"),
                   "--check-config", *more, **environment)

    def test_the_aggregator_takes_it(self):
        code, said, problems = self.check(os.path.join(BIN, "fedge-aggregator"), "--accumulator", "cpu")
        self.assertEqual(code, 0, problems)
        self.assertTrue(said.startswith(f"CPU: {PARAMETERS * 8} bytes of sums"), said)

    def test_the_clients_sizes_are_the_readmes(self):
        code, said, problems = run(os.path.join(BIN, "fedge-client"), "--plan", JOB)
        self.assertEqual(code, 0, problems)
        sizes = dict(re.findall(r"^([a-z0-9-]+) +(\d+)  ", said, re.MULTILINE))
        self.assertEqual(int(sizes["update-none"]), PARAMETERS * 4)
        self.assertIn(f"{PARAMETERS:,} parameters", self.readme)
        self.assertIn(f"{int(sizes['update-int8']):,} bytes", self.readme)
        self.assertIn(f"takes {int(sizes['total']) / 1e9:.2f} GB", self.readme)

    @unittest.skipUnless(os.path.exists(EMULATED), "the program for emulated GPUs is not built")
    def test_the_gpus_sizes_are_the_readmes(self):
        expected = []
        for gpus, shard in ((1, "auto"), (2, "clients"), (2, "coordinates")):
            code, said, problems = self.check(EMULATED, "--accumulator", "cuda", "--shard", shard,
                                              FEDGE_EMULATOR=f"gpus={gpus} memory={24 << 30}")
            self.assertEqual(code, 0, problems)
            expected += [line for line in said.splitlines() if line.startswith("GPU ")]
        self.assertEqual(re.findall(r"^    (GPU .*)$", self.readme, re.MULTILINE), expected)

    @unittest.skipUnless(os.path.exists(EMULATED), "the program for emulated GPUs is not built")
    def test_less_than_the_least_is_refused(self):
        least = int(re.search(r"one GPU needs (\d+) bytes", self.readme)[1])
        for memory, expected in ((least, 0), (least - 1, 8)):
            code, _, problems = self.check(EMULATED, "--accumulator", "cuda",
                                           FEDGE_EMULATOR=f"gpus=1 memory={memory}")
            self.assertEqual(code, expected, problems)
        each = int(re.search(r"by clients down to (\d+) bytes", self.readme)[1])
        self.assertLess(each, least)
        for memory, shard in ((each, "clients"), (each - 1, "coordinates")):
            code, said, problems = self.check(EMULATED, "--accumulator", "cuda",
                                              FEDGE_EMULATOR=f"gpus=2 memory={memory}")
            self.assertEqual(code, 0, problems)
            self.assertIn(f"by {shard}", said)


if __name__ == "__main__":
    unittest.main()
