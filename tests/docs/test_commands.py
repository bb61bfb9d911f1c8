"""Each command of a page, or of the comment at the head of a file, is run by a test: here or where ELSEWHERE says, as it
stands but for what would take long; those of EXCEPT are not, for the reason given. What a command names must be there."""

import fnmatch
import glob
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import commands

SOURCE, BIN = os.environ["FEDGE_SOURCE_DIR"], os.environ["FEDGE_BIN_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "style"))
import source_tree  # noqa: E402

PATIENCE_S = 300  # for what hangs
INSTALL, PAPERS = "tests/install/test_install.py", "tests/examples/test_papers.py"
# Pages, or a section of one, whose commands a test takes from there.
ELSEWHERE = {
    ("README.md", "## Deploy one real client"): "tests/docs/test_docs.py",
    ("README.md", "## Your own trainer, in C"): INSTALL,
    ("docs/guides/python.md", "## A device in twenty lines"): "tests/client/python/test_torch.py",
    ("docs/guides/python.md", "## All on one machine"): "tests/client/python/test_torch.py",
    ("docs/guides/own-trainer.md", "## Link it"): INSTALL,
    ("docs/strategies.md", "## A strategy of your own"): INSTALL,
    ("docs/strategies.md", "### A metric of your own"): INSTALL,
    ("examples/edge_only/README.md", "*"): INSTALL,
    ("examples/own_strategy/strategy.c", "*"): INSTALL,
    ("examples/own_metric/metric.c", "*"): INSTALL,
    ("examples/papers/*/README.md", "*"): PAPERS,
}
# What no test runs, and why.
EXCEPT = (
    (r"(bash )?cmake/(setup|deps)\.sh.*", "whoever builds has run it: it installs packages and builds libraries"),
    (r"(bash cmake/setup\.sh && )?cmake --preset .*", "whoever runs tests has built; tests/cross builds other processors"),
    (r"cmake --build .*", "likewise"),
    (r"(bash cmake/setup\.sh && )?pip install .*", "with packages that Debian does not have"),
    (r"python -m fedge init .*", "tests/client/python/test_torch.py runs the guide's; the others are alike"),
    (r"sudo cmake --install .*", "for /usr/local; tests/install does it elsewhere"),
    (r"bash tests/run\.sh.*", "it runs this test"),
    (r"bash examples/quickstart\.sh", "it builds; tests/examples/test_quickstart.py runs it on what is built"),
    (r"ctest .*|qemu-system-arm .*", "tests/cross, and soak tests, which take hours"),
    (r"mpirun .*--host .*", "on other machines; tests/net and tests/aggregator/simulate/run have ranks on this one"),
    (r".*--accumulator cuda.*|.*--engine cuda.*|bash tests/gpu/run\.sh", "on a GPU; tests/net/test_gpu.py has emulated ones"),
    (r"(\w+=(\S+|\"[^\"]*\") )*tests/bench/.*", "minutes and more; those labelled long run the parts that have tests"),
    (r"PYTHON-WITH-.*|python3 -m venv .*", "with packages that Debian does not have"),
    (r"(bash tests/world\.sh|python3 -B tests/world/planted\.py).*", "minutes and more; ctest's test_world and .ci/run run both"),
    (r"make_vectors\.py > vectors\.json", "the vectors are in the tree, and what reads them is tested"),
    (r"(python3 -B tests/compat/)?record\.py .*", "it adds a new release to the tree, once for each"),
    (r"cmake/wheel\.sh.*", "minutes, and packages of PyPI; tests/client/python/test_wheel.py runs it where they are"),
    (r"(\w+=\S+ )?python (examples/lora/\w+|client)\.py .*", "a pretrained model and packages of PyPI; tests/examples/test_lora.py has a tiny one"),
    (r"fedge-simulate .*--trainer .*", "tests/client/test_own_trainer.sh and tests/client/python/test_simulate.py have fewer clients"),
    (r"examples/personal/run\.py OUT 40", "40 rounds; tests/examples/test_personal.py has two"),
)
SHIM = """#!/bin/bash
# One round, unless the program is to do something else.
words=()
while [ $# -gt 0 ]; do
    if [ "$1" = --rounds ]; then shift 2; else words+=("$1"); shift; fi
done
[[ " ${words[*]} " != *" --job "* ]] || words+=(--rounds 1)
exec "$FEDGE_BIN_DIR/fedge-simulate" "${words[@]}"
"""


def files():
    return source_tree.files(SOURCE, source_tree.CODE + source_tree.SCRIPTS + (".md",), ("CMakeLists.txt",))


def all_commands():
    return [command for path in sorted(files()) for command in commands.commands(SOURCE, path)]


def exception_of(command):
    return next((pattern for pattern, _ in EXCEPT if re.fullmatch(pattern, command.text)), None)


def test_of(command):
    return next((test for (path, heading), test in ELSEWHERE.items()
                 if fnmatch.fnmatch(command.path, path) and heading in ("*", command.heading)), None)


class Found(unittest.TestCase):
    def test_each_is_run_or_an_exception(self):
        found = all_commands()
        self.assertGreater(len(found), 100)
        lost = [f"{c.path}:{c.line}: {c.text}" for c in found
                if not exception_of(c) and not test_of(c) and (c.path, c.heading) not in Run.HERE]
        self.assertEqual(lost, [], "no test runs these: add them to tests/docs/test_commands.py")

    def test_nothing_is_listed_in_vain(self):
        found = all_commands()
        for pattern, _ in EXCEPT:
            with self.subTest(pattern):
                self.assertTrue([c for c in found if exception_of(c) == pattern])
        for (path, heading), test in ELSEWHERE.items():
            with self.subTest(f"{path} {heading}"):
                self.assertTrue([c for c in found if fnmatch.fnmatch(c.path, path) and heading in ("*", c.heading)])
                with open(os.path.join(SOURCE, test), encoding="utf-8") as file:
                    text = file.read()
                self.assertTrue(os.path.basename(path) in text and heading.strip("* ") in text, f"{test} does not name it")

    def test_what_is_told_is_found(self):
        page = ("# Top\n\n    fedge-keys ca \\\n        --ca ca  # once\n\n1. A list that goes on\n    bash no.sh\n\n"
                "## Next\n\n```\nA=\"b c\" tests/x.sh --y\noutput\n```\n\n```json\nbash no.sh\n```\n")
        with tempfile.TemporaryDirectory() as root:
            for name, text in (("page.md", page), ("a.c", "/* Head\n *\n *     cc a.c\n *     for is in it\n */\n/*     cc b */"),
                               ("b.sh", "#!/bin/sh\n# Says\n#   b.sh --all   all of it\n#   b.sh [--all]\n\n#   no.sh\n"),
                               ("c.py", '"""Head\n\n    python3 c.py > out"""\n')):
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(text)
            told = [(c.heading, c.text) for name in ("page.md", "a.c", "b.sh", "c.py")
                    for c in commands.commands(root, name)]
        self.assertEqual(told, [("# Top", "fedge-keys ca --ca ca"), ("## Next", 'A="b c" tests/x.sh --y'),
                                ("", "cc a.c"), ("", "b.sh --all"), ("", "python3 c.py > out")])

    def test_what_is_named_is_there(self):
        """Files of this tree, presets, and options, also of commands that no test runs."""
        with open(os.path.join(SOURCE, "CMakePresets.json"), encoding="utf-8") as file:
            presets = {preset["name"] for preset in json.load(file)["configurePresets"]}
        helps = {}
        spoken = [command for path in sorted(files()) if path.endswith(".md") for command in commands.within(SOURCE, path)]
        self.assertGreater(len(spoken), 50)
        for command in all_commands() + spoken:
            with self.subTest(f"{command.path}:{command.line}: {command.text}"):
                for path in re.findall(r"(?<![\w/.])(?:cmake|docs|examples|tests)/[\w./-]*\w", command.text):
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, path)), path)
                self.assertLessEqual(set(re.findall(r"--preset (\S+)", command.text)), presets)
                program = re.search(r"\b(fedge-(?:aggregator|client|simulate))(?: (generate|compare))? -", command.text)
                if program and os.path.exists(f"{BIN}/{program[1]}"):
                    helps[program[0]] = helps.get(program[0]) or self.help(*filter(None, program.groups()))
                    told = set(re.findall(r"(?<=\s)--[a-z][\w-]+", command.text[program.start():]))
                    self.assertLessEqual(told, helps[program[0]])

    def help(self, program, *words):
        said = subprocess.run([f"{BIN}/{program}", *words, "--help"], capture_output=True, text=True, timeout=PATIENCE_S)
        if "--help-all" in said.stdout:
            said = subprocess.run([f"{BIN}/{program}", "--help-all"], capture_output=True, text=True, timeout=PATIENCE_S)
        return set(re.findall(r"--[a-z][\w-]+", said.stdout))


@unittest.skipIf(os.environ.get("FEDGE_SANITIZE"), "60,000 images take minutes under a sanitizer")
class Run(unittest.TestCase):
    HERE = {
        ("README.md", "## Simulate before you deploy"), ("docs/guides/simulation.md", "# Simulation"),
        ("docs/guides/simulation.md", "### Made-up data"), ("docs/guides/sweeps.md", "## Sweeps"),
        ("docs/guides/sweeps.md", "## Side by side"), ("docs/guides/certificates.md", "## Renew"),
        *(("docs/tutorial.md", f"## {name}") for name in ("Data", "The devices", "Train", "Use the model")),
        ("examples/zoo/README.md", "## Data"), ("examples/gpt2-medium-sized/README.md", "## Memory of the GPUs"),
        ("docs/results.md", "## Simulation"),
    }

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fedge-commands-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.symlink(os.path.join(SOURCE, "examples"), self.place("examples"))
        os.mkdir(self.place("shim"))
        with open(self.place("shim", "fedge-simulate"), "w", encoding="utf-8") as file:
            file.write(SHIM)
        os.chmod(self.place("shim", "fedge-simulate"), 0o755)
        self.env = {**os.environ, "PATH": os.pathsep.join((self.place("shim"), BIN, os.environ["PATH"])),
                    "FEDGE_QUICKSTART_DIR": self.place("quickstart")}

    def place(self, *parts):
        return os.path.join(self.folder, *parts)

    def bash(self, command):
        done = subprocess.run(["timeout", str(PATIENCE_S), "bash", "-c", command], cwd=self.folder, env=self.env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout[-2000:]}")
        return done.stdout

    def run_section(self, path, heading, *changes):
        """Its commands; a change is a text and what stands for it."""
        self.assertIn((path, heading), self.HERE)
        found = [c for c in commands.commands(SOURCE, path) if c.heading == heading and not exception_of(c)]
        self.assertTrue(found)
        for command in found:
            text = command.text
            for old, new in changes:
                text = text.replace(old, new)
            self.bash(text)

    def needs_images(self):
        if not os.path.exists("/usr/share/datasets/fashion-mnist"):
            self.skipTest("the package dataset-fashion-mnist is not installed")

    def test_the_quickstarts_job_is_simulated(self):
        self.needs_images()
        self.run_section("README.md", "## Simulate before you deploy")
        self.assertTrue(os.path.exists(self.place("simulation", "model.safetensors")))
        self.run_section("docs/guides/simulation.md", "# Simulation")

    def test_made_up_data(self):
        self.run_section("docs/guides/simulation.md", "### Made-up data")
        self.run_section("docs/guides/sweeps.md", "## Sweeps", (" JOB ", " synthetic/job.json "))
        runs = sorted(glob.glob(self.place("grid", "*", "")))
        self.assertEqual(len(runs), 18)
        self.run_section("docs/guides/sweeps.md", "## Side by side", ("A B …", f"'{runs[0]}' '{runs[1]}'"))
        self.assertTrue(os.path.exists(self.place("both.csv")))

    def test_a_million_clients(self):
        self.run_section("docs/results.md", "## Simulation", ("/usr/bin/time -v ", ""))

    def test_a_certificate_is_renewed(self):
        self.bash("fedge-keys demo --out keys --clients 1 && mv keys/ca keys/registry . && mv keys/clients/0000 identity")
        self.run_section("docs/guides/certificates.md", "## Renew", ("--request request.pem", "--request identity/request.pem"))

    def test_the_tutorial(self):
        """Its files and its commands in their order, with a port that is free."""
        path = "docs/tutorial.md"
        with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
            blocks = re.findall(r"```(?:python|json)\n(.*?)```", file.read(), re.S)
        for name, text in zip(("make_data.py", "job.json", "client-0.json"), blocks, strict=True):
            with open(self.place(name), "w", encoding="utf-8") as file:
                file.write(text)
        script = "\n".join(command.text.replace(
            " &", " --listen 127.0.0.1:0 --http off --port-file ports &\nuntil [ -s ports ]; do sleep 0.05; done\n"
            "read -r port _ <ports", 1) if "aggregator" in command.text
            else command.text.replace("localhost:9092", "localhost:${port:-9092}")
            for command in commands.commands(SOURCE, path))
        said = self.bash(f"set -e\n{script}")
        accuracy = float(re.search(r"^accuracy: ([\d.]+)$", said, re.M)[1])
        self.assertGreater(accuracy, 0.95)

    def test_a_text(self):
        rng = random.Random(1)
        with open(self.place("TEXT"), "w", encoding="ascii") as file:
            file.write("".join(rng.choice("to be or not, ") for _ in range(2000)))
        self.run_section("examples/zoo/README.md", "## Data", (" --clients 4 ", " --clients 4 --rounds 1 "))
        self.assertTrue(os.path.exists(self.place("quickstart", "model.safetensors")))

    def test_the_job_of_gpt2(self):
        """On the CPU, with demonstration keys."""
        self.bash("fedge-keys demo --out keys --clients 1 && mv keys/trust keys/registry . && mv keys/server identity")
        command, = commands.of_section(SOURCE, "examples/gpt2-medium-sized/README.md", "## Memory of the GPUs")
        self.bash(command.replace("--accumulator cuda", "--accumulator cpu"))


if __name__ == "__main__":
    unittest.main()
