"""The package as users get it: cmake/wheel.sh makes the wheel, which is installed without a network and used.

FEDGE_WHEEL=DIR: takes the wheel in DIR instead of making one. Skipped where scikit-build-core cannot be installed. The installation sees Debian's NumPy, cffi and PyTorch (cmake/setup.sh
--torch), and gets what the notebook needs by pip.
"""

import glob
import os
import subprocess
import tarfile
import unittest

from python_client import HERE, harness

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
PROGRAMS = ("fedge-aggregator", "fedge-client", "fedge-keys", "fedge-simulate")
NO_TOOLS = 3
NOTEBOOK_NEEDS = ("nbmake", "ipykernel", "matplotlib", "numpy<2")  # Debian's PyTorch knows no newer NumPy


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = harness.make_folder()
        made = os.environ.get("FEDGE_WHEEL") or os.path.join(cls.folder, "dist")
        if not os.path.isdir(made):
            subprocess.run(["bash", os.path.join(SOURCE, "cmake/wheel.sh"), "--out", made], check=True)
        cls.wheel, = glob.glob(os.path.join(made, "fedge-*.whl"))
        cls.sdist, = glob.glob(os.path.join(made, "fedge-*.tar.gz"))
        cls.bin = os.path.join(cls.folder, "env", "bin")
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", os.path.dirname(cls.bin)], check=True)
        cls.run_python("-m", "pip", "install", "--quiet", "--no-index", cls.wheel)

    @classmethod
    def run_python(cls, *words, **more):
        return cls.run_installed("python", *words, **more)

    @classmethod
    def run_installed(cls, name, *words, environment=None, **more):
        path = f"{cls.bin}:{os.environ['PATH']}"
        return subprocess.run([os.path.join(cls.bin, name), *words], cwd=cls.folder, check=True,
                              env={**os.environ, "PATH": path, **(environment or {})}, **more)

    def test_names_say_what_it_runs_on(self):
        self.assertRegex(os.path.basename(self.wheel), r"^fedge-[0-9.]+-cp39-abi3-manylinux_2_\d+_x86_64\.whl$")
        with tarfile.open(self.sdist) as file:
            names = [name.split("/", 1)[1] for name in file.getnames()]
        for wanted in ("PKG-INFO", "pyproject.toml", "LICENSE.mbedtls", "client/python/fedge/py.typed", "cmake/deps.sh"):
            self.assertIn(wanted, names)
        self.assertEqual(len([name for name in names if name.startswith("sources/")]), 4)

    def test_the_package_is_the_installed_one(self):
        said = self.run_python("-c", "import fedge; print(fedge.__file__)", stdout=subprocess.PIPE, text=True).stdout
        self.assertTrue(said.startswith(os.path.dirname(self.bin)), said)

    def test_it_brings_the_programs(self):
        for name in PROGRAMS:
            said = self.run_installed(name, "--version", stdout=subprocess.PIPE, text=True).stdout
            self.assertIn(name, said)
        self.run_installed("fedge-simulate", "generate", "logistic", "--out", "data", "--clients", "10")
        self.run_installed("fedge-simulate", "--job", "data/job.json", "--data", "data/client.json", "--clients", "10",
                           "--rounds", "2", "--out", "run", "--quiet")
        code = "import fedge; run = fedge.Run('run'); print(len(run.records()), len(run.device(0)), *run.state_dict())"
        said = self.run_python("-c", code, stdout=subprocess.PIPE, text=True).stdout.split()
        self.assertEqual(said[:2], ["2", "2"])
        self.assertIn("0.weight", said[2:])

    def test_the_example_trains_as_from_the_build(self):
        done = subprocess.run([os.path.join(self.bin, "python"), "-B", os.path.join(HERE, "test_torch.py")],
                              env={**os.environ, "FEDGE_PACKAGE": "installed", "FEDGE_BIN_DIR": self.bin})
        if done.returncode == harness.SKIPPED:
            self.skipTest("there is no torch: bash cmake/setup.sh --torch")
        self.assertEqual(done.returncode, 0)

    def test_the_notebook_runs(self):
        try:
            self.run_python("-m", "pip", "install", "--quiet", *NOTEBOOK_NEEDS)
        except subprocess.CalledProcessError:
            self.skipTest(f"pip could not install {', '.join(NOTEBOOK_NEEDS)}")
        with open(os.path.join(SOURCE, "examples/notebook/simulate.ipynb"), encoding="utf-8") as file:
            content = file.read()
        self.assertNotIn('"output_type"', content)  # what is committed has not been run
        folder = os.path.join(self.folder, "notebook")
        os.makedirs(folder)
        with open(os.path.join(folder, "simulate.ipynb"), "w", encoding="utf-8") as file:
            file.write(content)
        self.run_python("-m", "pytest", "--nbmake", "-q", "-p", "no:cacheprovider", "notebook/simulate.ipynb")


if __name__ == "__main__":
    tools = ["bash", os.path.join(SOURCE, "cmake/wheel.sh"), "--tools"]
    if not os.environ.get("FEDGE_WHEEL") and subprocess.run(tools).returncode == NO_TOOLS:
        raise SystemExit(harness.SKIPPED)
    unittest.main(verbosity=2)
