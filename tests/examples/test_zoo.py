"""Every job of examples/zoo is one that the aggregator takes, and has its row in the README."""

import glob
import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
DATA = "/usr/share/datasets/fashion-mnist"
BIN = os.environ["FEDGE_BIN_DIR"]
ZOO = os.path.join(SOURCE, "examples", "zoo")


class Zoo(unittest.TestCase):
    def setUp(self):
        self.jobs = sorted(os.path.basename(path) for path in glob.glob(os.path.join(ZOO, "*.json")))
        self.assertGreaterEqual(len(self.jobs), 5)

    def test_the_aggregator_takes_each(self):
        with tempfile.TemporaryDirectory(prefix="fedge-zoo-") as folder:
            keys = os.path.join(folder, "keys")
            subprocess.run([os.path.join(BIN, "fedge-keys"), "demo", "--out", keys, "--clients", "1"],
                           check=True, stdout=subprocess.DEVNULL)
            for job in self.jobs:
                with self.subTest(job):
                    with open(os.path.join(ZOO, job), encoding="utf-8") as file:
                        if DATA in file.read() and not os.path.exists(DATA):
                            self.skipTest("the package dataset-fashion-mnist is not installed")
                    result = subprocess.run(
                        [os.path.join(BIN, "fedge-aggregator"), "--job", os.path.join(ZOO, job),
                         "--state", os.path.join(folder, "state"), "--identity", os.path.join(keys, "server"),
                         "--trust", os.path.join(keys, "trust"), "--registry", os.path.join(keys, "registry"),
                         "--check-config"], text=True, capture_output=True, timeout=600)
                    self.assertEqual(result.returncode, 0, result.stderr)

    def test_each_has_a_row_and_a_golden_file(self):
        with open(os.path.join(ZOO, "README.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| \[[\w-]+\]\(([\w-]+\.json)\) \|", file.read(), re.MULTILINE)
        self.assertEqual(sorted(rows), self.jobs)
        with open(os.path.join(SOURCE, "tests/golden/train/zoo/cases.txt"), encoding="utf-8") as file:
            cases = [line.split()[0] + ".json" for line in file]
        self.assertEqual(sorted(cases), self.jobs)


if __name__ == "__main__":
    unittest.main()
