"""examples/quickstart.sh as a user runs it, with fewer clients and rounds."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
SCRIPT = os.path.join(SOURCE, "examples", "quickstart.sh")
PATIENCE_S = 600  # nothing is asserted to be quick
DATA = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"


def processes_with(text):
    """Command lines of running processes that contain [text]."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(pid) != os.getpid():
            found.append(line)
    return found


def model_sha256(path):
    """The SHA-256 of a model file without its metadata, as docs/guides/running.md has it."""
    with open(path, "rb") as file:
        data = file.read()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    del header["__metadata__"]
    plain = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    plain += b" " * (-len(plain) % 8)
    return hashlib.sha256(len(plain).to_bytes(8, "little") + plain + data[end:]).hexdigest()


class Quickstart(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(DATA):
            self.skipTest("the package dataset-fashion-mnist is not installed")
        if os.environ.get("FEDGE_SANITIZE"):
            self.skipTest("60,000 images take minutes under a sanitizer; net_run has small ones")
        self.folder = tempfile.TemporaryDirectory(prefix="fedge-quickstart-")
        self.addCleanup(self.folder.cleanup)
        self.out = os.path.join(self.folder.name, "out")
        self.env = dict(os.environ, FEDGE_QUICKSTART_DIR=self.out)

    def start(self, *options):
        # A shell that runs the tests in the background lets them ignore SIGINT, and bash cannot trap it then.
        return subprocess.Popen(
            ["bash", SCRIPT, *options], env=self.env, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_to_end(self, *options):
        process = self.start(*options)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0, stderr)
        self.assertEqual(processes_with(self.folder.name), [])
        return stdout.strip().splitlines()

    def test_two_rounds_twice(self):
        models = []
        for _ in range(2):
            lines = self.run_to_end("--clients", "3", "--rounds", "2")
            result = json.loads(lines[-1])
            self.assertEqual(
                sorted(result), sorted(["rounds", "accuracy", "loss", "bytes_up", "bytes_down",
                                        "seconds", "model_sha256"]))
            self.assertEqual(result["rounds"], 2)
            self.assertGreater(result["accuracy"], 0.5)
            self.assertIn("1/2", lines[1])
            self.assertIn("2/2", lines[2])
            self.assertEqual(sorted(os.listdir(self.out)),
                             ["model.safetensors", "rounds.jsonl", "rounds.svg"])
            self.assertEqual(model_sha256(os.path.join(self.out, "model.safetensors")), result["model_sha256"])
            with open(os.path.join(self.out, "rounds.jsonl")) as file:
                self.assertEqual([json.loads(line)["round"] for line in file], [1, 2])
            models.append(result["model_sha256"])
        self.assertEqual(models[0], models[1])

    @unittest.skipUnless(os.environ.get("FEDGE_QUICKSTART_WHOLE"), "takes minutes; see the label soak")
    def test_as_it_is(self):
        """What README promises, without options."""
        result = json.loads(self.run_to_end()[-1])
        self.assertEqual(result["rounds"], 10)
        self.assertGreaterEqual(result["accuracy"], 0.85)

    def test_interrupt_stops_everything(self):
        process = self.start("--clients", "3", "--rounds", "1000", "--keep")
        log = os.path.join(self.out, "work", "logs", "aggregator.log")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if os.path.exists(log):
                with open(log) as file:
                    if "round-opened" in file.read():
                        break
            time.sleep(0.1)
        else:
            self.fail("no round began")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(processes_with(self.folder.name), [])
        self.assertTrue(os.path.exists(log), "--keep keeps the logs")

    def test_clients_without_the_data(self):
        config = os.path.join(self.folder.name, "client.json")
        with open(config, "w") as file:
            json.dump({"data": {"another": {"values": DATA, "labels": DATA}}}, file)
        process = self.start("--clients", "2", "--config", config)
        try:
            _, stderr = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        self.assertEqual(process.returncode, 1)
        self.assertIn("is not in this site's data; name its files there", stderr)
        self.assertRegex(stderr, r"client-[01] ended with exit code 8; logs are in ")
        self.assertEqual(processes_with(self.folder.name), [])

    def test_bad_options(self):
        for options in (["--clients", "0"], ["--rounds", "x"], ["--job", "/nowhere.json"], ["--config", "/nowhere.json"],
                        ["--clients"], ["--unknown"]):
            process = self.start(*options)
            _, stderr = process.communicate(timeout=PATIENCE_S)
            self.assertNotEqual(process.returncode, 0, options)
            self.assertIn(options[-1], stderr)


class Build(unittest.TestCase):
    """What the script builds, in a tree of its own whose cmake only notes what it is asked for."""

    CMAKE = """#!/bin/sh
echo "$*" >>"$CALLS"
case $1 in
--preset) echo '-- CUDA: left out, because this machine lacks a GPU (give -DFEDGE_CUDA_ARCHITECTURES=ALL to build for other machines)' ;;
--build) for i in 1 2 3 4 5 6 7 8; do echo "[$i/8] Building $i"; done; echo 'ninja: stopped here'; exit 1 ;;
esac
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fedge-quickstart-")
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for name in ("bin", "cmake", "build/release", "examples"):
            os.makedirs(os.path.join(self.root, name))
        shutil.copy(SCRIPT, os.path.join(self.root, "examples"))
        shutil.copytree(os.path.join(SOURCE, "examples", "quickstart"), os.path.join(self.root, "examples", "quickstart"))
        self.write("cmake/setup.sh", "")
        self.write("bin/cmake", self.CMAKE)
        os.chmod(os.path.join(self.root, "bin/cmake"), 0o755)

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w") as file:
            file.write(text)

    def build(self):
        """The calls of cmake, and what a user sees."""
        calls = os.path.join(self.root, "calls")
        env = {**os.environ, "CALLS": calls, "PATH": os.path.join(self.root, "bin") + ":" + os.environ["PATH"]}
        env.pop("FEDGE_BIN_DIR", None)
        done = subprocess.run(["bash", os.path.join(self.root, "examples", "quickstart.sh")], env=env, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1)
        with open(calls) as file:
            return file.read().splitlines(), done.stderr.splitlines()

    def test_three_programs_with_progress(self):
        calls, seen = self.build()
        self.assertEqual(len(calls), 2, calls)
        self.assertIn("--target fedge-keys fedge-aggregator fedge-client -j", calls[1])
        self.assertEqual(sum("-DFEDGE_CUDA_ARCHITECTURES=ALL" in line for line in seen[:4]), 1, seen)
        self.assertEqual([line.strip() for line in seen if line.endswith(" %")], ["25 %", "50 %", "75 %", "100 %"])
        self.assertIn("ninja: stopped here", seen)
        self.assertIn("the build failed", seen[-1])

    def test_a_build_tree_keeps_its_gpus(self):
        self.write("build/release/CMakeCache.txt", "FEDGE_CUDA_ARCHITECTURES:STRING=80;90\n")
        calls, _ = self.build()
        self.assertEqual(calls[0], "--preset release -DFEDGE_CUDA_ARCHITECTURES=80;90")


if __name__ == "__main__":
    unittest.main()
