"""examples/personal: the script runs as it stands there, for two rounds, and prints a row for each run."""

import os
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = os.environ["FEDGE_SOURCE_DIR"], os.environ["FEDGE_BIN_DIR"]


class Personal(unittest.TestCase):
    def test_it_prints_its_table(self):
        script = os.path.join(SOURCE, "examples", "personal", "run.py")
        with tempfile.TemporaryDirectory(prefix="fedge-personal-") as out:
            said = subprocess.run([sys.executable, "-B", script, out, "2"], check=True, capture_output=True, text=True,
                                  env=dict(os.environ, PATH=BIN + os.pathsep + os.environ["PATH"])).stdout
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines()[2:]]
        self.assertEqual([row[:2] for row in rows], [
            [division, f"`{name}`"] for division in ("features", "labels")
            for name in ("FedAvg", "FedPer", "FedRep", "FedBN", "Ditto")])
        for row in rows:
            values = [float(cell) for cell in row[2:]]
            self.assertEqual(values, sorted(values))


if __name__ == "__main__":
    unittest.main(verbosity=2)
