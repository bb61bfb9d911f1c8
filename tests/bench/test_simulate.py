"""simulate.sh measures what it says: its rows, for a case so short that the figures mean nothing."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
BIN = os.environ["FEDGE_BIN_DIR"]
SCRIPT = os.path.join(SOURCE, "tests", "bench", "simulate.sh")
COMPARE = os.path.join(SOURCE, "tests", "bench", "simulate_compare.py")
KEYS = ["bench", "case", "value", "unit", "peer", "peer_value", "ratio"]


@unittest.skipUnless(os.path.exists("/usr/share/datasets/fashion-mnist"),
                     "dataset-fashion-mnist is not installed")
class Simulate(unittest.TestCase):
    def rows(self, *options):
        result = subprocess.run(
            [sys.executable, "-B", COMPARE, "--fedge", f"{BIN}/fedge-simulate", "--train", f"{BIN}/bench_train_fedge",
             "--json", "--turns=1", "--seconds=0.02", *options], check=True, capture_output=True, text=True,
            timeout=1400)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        for row in rows:
            self.assertEqual(list(row), KEYS)
            self.assertEqual(row["bench"], "simulate")
            self.assertGreater(row["value"], 0)
        return rows

    def test_fedge_alone(self):
        rows = self.rows("logistic")
        units = {row["case"].split(": ", 1)[1]: row["unit"] for row in rows}
        units.setdefault("samples, one thread's CPU time", "samples/s")  # left out of turns shorter than noise
        self.assertEqual(units, {"100 rounds": "s", "100 rounds, in all": "s", "rounds": "rounds/s",
                                 "samples, one thread's CPU time": "samples/s", "rounds, int8 and deflate": "rounds/s",
                                 "rounds, topk:0.01+int8": "rounds/s", "rounds, int4 with error feedback": "rounds/s",
                                 "rounds, topk:0.01+int8, residuals on disk": "rounds/s",
                                 f"rounds, {len(os.sched_getaffinity(0))} threads": "rounds/s"})
        cores = len(os.sched_getaffinity(0))
        self.assertEqual([row["peer"] for row in rows if row["case"].endswith(" threads")],
                         ["one thread", f"{cores} runs side by side"])
        self.assertEqual([row["peer"] for row in rows[-2:]], ["PyTorch: not found", "Flower: not found"])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no PyTorch")
    def test_beside_pytorch(self):
        rows = [row for row in self.rows(f"--pytorch={sys.executable}", "logistic")
                if (row["peer"] or "").startswith("PyTorch ")]
        units = {row["case"].split(": ")[1]: row["unit"] for row in rows}
        self.assertEqual(units, {"rounds": "rounds/s", "clients": "clients/s", "samples": "samples/s",
                                 "peak memory": "bytes", "start to the end of a round": "s"})
        for row in rows:
            higher_is_better = row["unit"].endswith("/s")
            ratio = row["value"] / row["peer_value"] if higher_is_better else row["peer_value"] / row["value"]
            self.assertAlmostEqual(row["ratio"], ratio, delta=1e-4 + 1e-3 * ratio)
        by_case = {row["case"].split(": ")[1]: row for row in rows}
        for side in ("value", "peer_value"):  # 10 clients of 60 examples
            rounds = by_case["rounds"][side]
            self.assertAlmostEqual(by_case["clients"][side] / rounds, 10, places=6)
            self.assertAlmostEqual(by_case["samples"][side] / rounds, 600, places=6)

    def test_options(self):
        said = subprocess.run([SCRIPT, "--help"], check=True, capture_output=True, text=True).stdout
        self.assertIn("simulate.sh [--quick] [--json] [CASE...]", said)
        self.assertEqual(subprocess.run([SCRIPT, "--fast"], capture_output=True, check=False).returncode, 2)
        wrong = subprocess.run([sys.executable, "-B", COMPARE, "--fedge=no", "--train=no", "3nn"], capture_output=True,
                               text=True, check=False)
        self.assertIn("there is no case 3nn; there are 2nn, mcmahan-cnn, logistic, cifar-cnn", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
