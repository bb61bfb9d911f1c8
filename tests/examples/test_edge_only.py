"""examples/edge_only: a whole program of at most 40 lines that needs one header."""
import os
import re
import subprocess
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
PATIENCE_S = 600


class EdgeOnly(unittest.TestCase):
    def test_is_short_and_needs_one_header(self):
        with open(f"{SOURCE}/examples/edge_only/main.c", encoding="utf-8") as file:
            text = file.read()
        self.assertLessEqual(len(text.splitlines()), 40)
        self.assertEqual(re.findall(r'#include (\S+)', text), ['<fedge/train.h>'])

    def test_learns(self):
        program = f"{os.environ['FEDGE_BIN_DIR']}/edge-only"
        self.assertEqual(subprocess.run([program], check=False, timeout=PATIENCE_S).returncode, 0)


if __name__ == "__main__":
    unittest.main()
