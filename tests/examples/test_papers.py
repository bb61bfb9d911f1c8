"""examples/papers: the commands of each README run as they stand there, on few examples and for a round, and make its
table."""

import collections
import glob
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
import commands  # noqa: E402

BIN = os.environ["FEDGE_BIN_DIR"]
PAPERS = os.path.join("examples", "papers")
PATIENCE_S = 1200


def write_idx(path, shape, data):
    with open(path, "wb") as file:
        file.write(bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", size) for size in shape) + data)


def write_images(folder, prefix, count):
    """Images of one grey for each label, so that they can be learnt."""
    labels = bytes(i % 10 for i in range(count))
    write_idx(os.path.join(folder, prefix + "-images"), (count, 28, 28),
              b"".join(bytes([25 * label]) * 784 for label in labels))
    write_idx(os.path.join(folder, prefix + "-labels"), (count,), labels)


def play(parts):
    """Speeches by turns; one of 30 lines each, and one part that says too little."""
    rng = random.Random(1)
    words = ["what", "light", "through", "yonder", "window", "breaks", "it", "is", "the", "east"]
    text = "A ROOM IN THE CASTLE\n\n"
    for _ in range(5):
        for part in range(parts):
            lines = [" ".join(rng.choices(words, k=8)) for _ in range(6)]
            text += f"PART {part}:\n" + "\n".join(lines) + "\n\n"
    return text + "SERVANT:\nMy lord?\n"


class Papers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fedge-papers-")
        self.addCleanup(self.folder.cleanup)
        self.root = self.folder.name
        for part in ("papers", "zoo"):
            shutil.copytree(os.path.join(SOURCE, "examples", part), os.path.join(self.root, "examples", part))
        self.env = dict(os.environ, PATH=BIN + os.pathsep + os.environ["PATH"])

    def shorten(self, paper):
        """One round, and for images few of them."""
        if os.environ.get("FEDGE_SANITIZE"):
            self.skipTest("dozens of runs take minutes under a sanitizer; the simulator's own tests have small ones")
        folder = os.path.join(self.root, PAPERS, paper)
        write_images(folder, "train", 400)
        write_images(folder, "test", 20)
        for path in glob.glob(os.path.join(folder, "*.json")):
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            if "rounds" in content:
                content["rounds"]["num-server-rounds"] = 1
                if content["data"]["name"] == "fashion-mnist":
                    content["test-set"] = {"values": "test-images", "labels": "test-labels"}
            else:
                content["data"]["fashion-mnist"] = {"values": "train-images", "labels": "train-labels"}
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)
        for path in glob.glob(os.path.join(folder, "*.sh")):
            with open(path, encoding="utf-8") as file:
                text = re.sub(r"rounds=\d+", "rounds=1", file.read())
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def commands(self, paper):
        return [command.text for command in commands.commands(SOURCE, os.path.join(PAPERS, paper, "README.md"))
                if not command.text.startswith("PYTHON-WITH-")]

    def run_all(self, paper, table=-1):
        """The output of the last command, which is the table, or of another."""
        commands = self.commands(paper)
        self.assertTrue(commands)
        said = []
        for command in commands:
            result = subprocess.run(["bash", "-c", command], cwd=self.root, env=self.env, text=True,
                                    capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
            said.append(result.stdout)
        return said[table]

    def test_niid_bench(self):
        self.shorten("niid-bench")
        script = os.path.join(self.root, PAPERS, "niid-bench", "divisions.py")
        with open(script, encoding="utf-8") as file:
            text = file.read()
        labels = "/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz"
        self.assertEqual(text.count(labels), 1)
        with open(script, "w", encoding="utf-8") as file:
            file.write(text.replace(labels, os.path.join(self.root, PAPERS, "niid-bench", "train-labels")))
        table = self.run_all("niid-bench")
        self.assertNotIn("not yet run", table)
        self.assertEqual(table.count("(3 seeds)"), 10, table)

    def test_the_authors_divisions(self):
        """Of random's seeds 0, 1 and 2, each label's examples in equal parts."""
        write_images(self.root, "train", 400)
        script = os.path.join(self.root, PAPERS, "niid-bench", "divisions.py")

        def run(labels, *more):
            return subprocess.run(["python3", "-B", script, os.path.join(self.root, "out"), "--labels", labels, *more],
                                  cwd=self.root, text=True, capture_output=True, timeout=PATIENCE_S)
        said = run("train-labels")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("labels-2-trial-0.csv: 0 6; 1 6; 2 0; 3 4; 4 8; 5 7; 6 4; 7 5; 8 9; 9 3\n", said.stdout)
        self.assertIn("labels-3-trial-2.csv: 0 1 5; 1 2 4; 2 4 9; 3 9 0; 4 9 2; ",
                      run("train-labels", "--labels-each", "3").stdout)
        with open(os.path.join(self.root, "out", "labels-2-trial-0.csv"), encoding="utf-8") as file:
            rows = [tuple(map(int, line.split(","))) for line in file.read().splitlines()[1:]]
        self.assertEqual([example for example, _ in rows], list(range(400)))
        held = collections.Counter((owner, example % 10) for example, owner in rows)
        self.assertEqual(held[1, 1], 40)
        self.assertEqual((held[0, 0], held[2, 0]), (20, 20))
        self.assertEqual([held[party, 6] for party in (0, 1, 6)], [14, 13, 13])
        self.assertEqual(sum(held.values()), 400)
        for bad, words in (("nothing", "No such file"), ("train-images", "is not an idx file of labels")):
            refused = run(bad)
            self.assertEqual(refused.returncode, 1)
            self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
            self.assertIn(words, refused.stderr)

    def test_mcmahan_2017(self):
        self.shorten("mcmahan-2017")
        command = next(command for command in self.commands("mcmahan-2017") if command.startswith("bash"))
        result = subprocess.run(["bash", "-c", command], cwd=self.root, env=self.env, text=True, capture_output=True,
                                timeout=PATIENCE_S)
        self.assertEqual(result.returncode, 0, result.stderr[-2000:])
        table = result.stdout[result.stdout.index("**2NN, E = 1, IID**"):]
        self.assertNotIn("not yet run", table)

    def test_attacks(self):
        self.shorten("attacks")
        self.replace("attacks", ("in iid dirichlet:0.3;", "in iid;"), ("sign-flip:4:4 ipm:4:0.5 ", ""),
                     (" alie:4:1.5 label-flip:4 backdoor:4", ""))
        table = self.run_all("attacks", 0)
        self.assertEqual(len(re.findall(r"^\| \w[\w, ]* \|(?: \d+\.\d \|){2}$", table, re.MULTILINE)), 10, table)

    def test_nguyen_2022(self):
        self.shorten("nguyen-2022")
        self.replace("nguyen-2022", ("|400|", "|2|"), ("|800|", "|4|"), ("|1600|", "|4|"), ("|8000|", "|4|"),
                     ("--clients 200", "--clients 8"))
        table = self.run_all("nguyen-2022")
        self.assertEqual(len(re.findall(r"^\| Fed\w+[^|]* \| \d+ \| \d+ s \| \d+\.\d \|(?: [^|]+ \|){3}$", table,
                                        re.MULTILINE)), 5, table)

    def test_attacks_tell_a_backdoor(self):
        self.shorten("attacks")
        self.replace("attacks", ("in iid dirichlet:0.3;", "in iid;"),
                     ("(none sign-flip:4:4 ipm:4:0.5 ipm:4:10 alie:4:1.5 label-flip:4 backdoor:4)", "(backdoor:4)"))
        table = self.run_all("attacks", 0)
        self.assertEqual(len(re.findall(r"^\| \w[\w, ]* \| \d+\.\d \(\d+\.\d\) \|$", table, re.MULTILINE)), 10, table)

    def test_wang_2020(self):
        self.shorten("wang-2020")
        self.replace("wang-2020", ("--clients 20", "--clients 4"), ("seeds=3", "seeds=1"))
        said = self.run_all("wang-2020")
        self.assertEqual(said.count("(1 seed)"), 8, said)

    def replace(self, paper, *pairs):
        """In a paper's run.sh; each text must be there."""
        script = os.path.join(self.root, PAPERS, paper, "run.sh")
        with open(script, encoding="utf-8") as file:
            text = file.read()
        for old, new in pairs:
            self.assertIn(old, text)
            text = text.replace(old, new)
        with open(script, "w", encoding="utf-8") as file:
            file.write(text)

    def test_hsu_2019(self):
        self.shorten("hsu-2019")
        self.replace("hsu-2019", ("--clients 100", "--clients 20"), ("seeds=3", "seeds=2"))
        table = self.run_all("hsu-2019")
        self.assertNotIn("not yet run", table)
        self.assertEqual(table.count("(2 seeds)"), 28, table)

    def test_reddi_2021(self):
        self.shorten("reddi-2021")
        with open(os.path.join(self.root, "TEXT"), "w", encoding="utf-8") as file:
            file.write(play(4))
        self.replace("reddi-2021", ("--clients 500", "--clients 20"), ("--clients 243", "--clients 4"), ("seeds=3", "seeds=1"),
                     ('"num-server-rounds": 100', '"num-server-rounds": 1'), ("10 / 243", "1"), (" = 64", " = 4"))
        table = self.run_all("reddi-2021")
        self.assertNotIn("not yet run", table)
        self.assertEqual(len(re.findall(r"^\| (?:Fashion-MNIST|characters) \| Fed\w+ \|", table, re.MULTILINE)), 10, table)

    def test_cohort(self):
        self.shorten("cohort")
        self.replace("cohort", ("16000 / cohort", "1"), ("rounds / 50", "1"), ("--clients 1000", "--clients 400"), ("seeds=3", "seeds=1"),
                     ("10 20 40 80 160 320", "10 40"))
        table = self.run_all("cohort")
        self.assertEqual(table.count("(1 seed)"), 6, table)
        with open(os.path.join(self.root, "build/papers/cohort.svg"), encoding="utf-8") as file:
            self.assertEqual(file.read().count('fill="none"'), 3)

    def test_shakespeare(self):
        self.shorten("shakespeare")
        with open(os.path.join(self.root, "TEXT"), "w", encoding="utf-8") as file:
            file.write(play(4))
        commands = [command.replace("--clients 243", "--clients 4") for command in self.commands("shakespeare")]
        self.assertIn("speaking_parts.py TEXT", commands[0])
        said = []
        for command in commands:
            result = subprocess.run(["bash", "-c", command], cwd=self.root, env=self.env, text=True,
                                    capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(result.returncode, 0, f"{command}\n{result.stderr[-2000:]}")
            said.append(result.stdout)
        # 24 of 30 lines are for training, 6 for testing: windows that fit, one every 40 characters.
        owners, test = {}, 0
        for part in range(4):
            lines = [line for speech in play(4).split("\n\n") if speech.startswith(f"PART {part}:")
                     for line in speech.splitlines()[1:]]
            owners[part] = len(range(0, len("\n".join(lines[:24])) - 80, 40))
            test += len(range(0, len("\n".join(lines[24:])) - 80, 40))
        self.assertIn(f"{sum(owners.values())} windows of 4 clients, {test} to test with", said[0])
        self.assertIn("left out 1 of 5 parts", said[0])
        with open(os.path.join(self.root, "build/papers/text/parts.csv"), encoding="utf-8") as file:
            rows = [tuple(map(int, line.split(","))) for line in file.read().splitlines()[1:]]
        self.assertEqual([example for example, _ in rows], list(range(len(rows))))
        self.assertEqual([sum(1 for _, owner in rows if owner == part) for part in range(4)], list(owners.values()))
        self.assertNotIn("not yet run", said[-1])

    def made(self, folder, job="niid-bench/job.json", **more):
        """A run's folder: the job is the paper's, the summary what the simulator leaves."""
        path = os.path.join(self.root, "out", folder)
        os.makedirs(path)
        shutil.copy(os.path.join(SOURCE, PAPERS, job), os.path.join(path, "job.json"))
        with open(os.path.join(path, "job.json"), encoding="utf-8") as file:
            name = json.load(file)["name"]
        with open(os.path.join(path, "summary.json"), "w", encoding="utf-8") as file:
            json.dump({"job": name, "ending": "complete", "partition": "iid", "num_server_rounds": 50,
                       "rounds": 50, "accuracy": 0.5, "accuracy_last_10": 0.4, "targets": [], **more}, file)

    def table(self, out, code=0, paper="niid-bench"):
        result = subprocess.run(["python3", "-B", os.path.join(self.root, PAPERS, "table.py"), paper, out],
                                text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout or result.stderr

    def test_fewer_rounds_are_no_row_of_the_paper(self):
        out = os.path.join(self.root, "out")
        self.assertIn(f"no folder {out}", self.table(out, code=2))
        self.made("pilot", num_server_rounds=20, rounds=20, accuracy=0.9)
        self.made("stopped", rounds=10, accuracy=0.95, ending="target")
        self.assertIn("| 90.00 (1 seed) after 20 of 50 rounds | 40.00 (1 seed) after 20 of 50 rounds |", self.table(out))
        self.made("whole")
        self.assertIn("| 50.00 (1 seed) | 40.00 (1 seed) |", self.table(out))
        with open(os.path.join(out, "pilot", "job.json"), "w", encoding="utf-8") as file:
            json.dump({"name": "another", "rounds": {}, "training": {"local-steps": 3}}, file)
        self.assertIn("| 50.00 (1 seed) | 40.00 (1 seed) |", self.table(out))

    def test_a_run_without_the_targets_is_no_row(self):
        out, without = os.path.join(self.root, "out"), [{"accuracy": 0.8, "rounds": 7}]
        os.mkdir(out)
        empty = self.table(out, paper="mcmahan-2017")
        self.made("2nn", job="mcmahan-2017/2nn.json", accuracy_best=0.8, targets=without)
        self.assertEqual(self.table(out, paper="mcmahan-2017"), empty)
        targets = [{"accuracy": target, "rounds": 30} for target in (0.75, 0.8, 0.85)]
        self.made("all", job="mcmahan-2017/2nn.json", accuracy_best=0.9, targets=targets)
        self.assertIn("| 30 / 30 / 30 | 90.00 |", self.table(out, paper="mcmahan-2017"))
        self.made("lstm", job="shakespeare/job.json", targets=[{"accuracy": 0.5, "rounds": 40}])
        self.made("more", job="shakespeare/job.json", targets=[{"accuracy": 0.54, "rounds": 90}])
        self.assertIn("| IID | 40 | 90 | ", self.table(out, paper="shakespeare"))

    def test_a_play_that_cannot_be_read(self):
        for path, words in (os.path.join(self.root, "nothing"), "No such file"), (self.root, "Is a directory"):
            result = subprocess.run(["python3", "-B", os.path.join(self.root, PAPERS, "shakespeare",
                                                                   "speaking_parts.py"), path,
                                     os.path.join(self.root, "out")], text=True, capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(f"cannot read {path}: {words}", result.stderr)

    def test_a_play_needs_parts(self):
        path = os.path.join(self.root, "prose")
        with open(path, "w", encoding="utf-8") as file:
            file.write("It was a dark night.\n" * 100)
        result = subprocess.run(["python3", "-B", os.path.join(self.root, PAPERS, "shakespeare", "speaking_parts.py"),
                                 path, os.path.join(self.root, "out")], text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(result.returncode, 2)
        self.assertIn("has 0 speaking parts", result.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.root, "out")))

    def test_each_is_listed_and_has_its_tables(self):
        with open(os.path.join(SOURCE, PAPERS, "README.md"), encoding="utf-8") as file:
            listed = re.findall(r"^\| \[([\w-]+)\]\(\1/README\.md\) \|", file.read(), re.MULTILINE)
        folders = [name for name in os.listdir(os.path.join(SOURCE, PAPERS))
                   if os.path.isdir(os.path.join(SOURCE, PAPERS, name)) and name != "__pycache__"]
        self.assertEqual(sorted(listed), sorted(folders))
        for paper in set(folders) - {"attacks", "nguyen-2022"}:  # whose scripts print their tables themselves
            path = os.path.join(self.root, PAPERS, paper, "README.md")
            command = ["python3", "-B", os.path.join(self.root, PAPERS, "table.py"), paper, self.root, "--into", path]
            subprocess.run(command, check=True, timeout=PATIENCE_S)
            with open(path, encoding="utf-8") as file:
                self.assertIn("not yet run", file.read(), "an empty folder gives an empty table")


if __name__ == "__main__":
    unittest.main()
