"""The tests of PyTorch clients, and of examples/lora, by the Python that FEDGE_TEST_PYTHON names, or else by the python3 on
PATH: for PyPI's newest torch, transformers and peft in a virtual environment. Skipped where that is Debian's, or has no torch.
"""

import os
import shutil
import subprocess
import unittest

from python_client import HERE, harness

PYTHON = shutil.which(os.environ.get("FEDGE_TEST_PYTHON", "python3")) or ""
LORA = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "tests", "examples", "test_lora.py")
NEEDED = "import cffi, numpy, sys, torch; print('torch', torch.__version__); sys.exit(sys.prefix == '/usr')"


class Newest(unittest.TestCase):
    def test_all_passes_with_it(self):
        for script, *words in (("test_package.py",), ("test_layers.py",), ("test_training.py", "Torch"), ("test_torch.py",),
                               (LORA, "Federation")):
            with self.subTest(script):
                done = subprocess.run([PYTHON, "-B", os.path.join(HERE, script), *words], check=False)
                self.assertIn(done.returncode, (0, harness.SKIPPED) if script == LORA else (0,))


if __name__ == "__main__":
    if not PYTHON or subprocess.run([PYTHON, "-c", NEEDED], stderr=subprocess.DEVNULL, check=False).returncode:
        print(f"skipped: '{PYTHON}' has no torch, NumPy and cffi besides Debian's: set FEDGE_TEST_PYTHON")
        raise SystemExit(harness.SKIPPED)
    unittest.main(verbosity=2)
