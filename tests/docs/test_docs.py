"""What the pages say is what there is: links, keys, options, limits, metrics, events, commands."""

import fnmatch
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import reference

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
BIN = os.environ["FEDGE_BIN_DIR"]
PATIENCE_S = 600
LINE = 120  # characters, outside tables
README_LINES = 140
ALL_PAGES = 260_000  # bytes
# The most that a page may have, in bytes, by the first pattern that fits: what is longer is not read.
PAGES = (
    ("docs/results.md", 15 << 10), ("docs/strategies.md", 17 << 10), ("docs/guides/*.md", 12 << 10),
    ("docs/reference/job.md", 21 << 10), ("docs/reference/protocol.md", 31 << 10), ("docs/reference/*.md", 12 << 10),
    ("*", 11 << 10),
)


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def pages():
    found = ["README.md"] + sorted(glob.glob("docs/**/*.md", root_dir=SOURCE, recursive=True))
    return {path: read(path) for path in found}


def section(page, heading):
    """The text from a heading to the next one of its level or above."""
    level = heading.split()[0]
    text = page[page.index(f"\n{heading}\n") + len(heading) + 2:]
    end = re.search(rf"^#{{1,{len(level)}}} ", text, re.MULTILINE)
    return text[:end.start()] if end else text


def anchors(page):
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for path, page in pages().items():
            for target in re.findall(r"\]\(([^)\s]+)\)", page):
                if target.startswith("http"):
                    continue
                file, _, anchor = target.partition("#")
                other = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
                with self.subTest(f"{path}: {target}"):
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, other)))
                    if anchor:
                        self.assertIn(anchor, anchors(read(other)))

    def test_versions_of_libraries(self):
        """Those that are pinned, Debian's revision with them where its patches are."""
        table = rows(section(read("docs/security.md"), "## Versions of libraries"))
        said = {tuple(cell.strip() for cell in row.split("|")[1:3]) for row in table[1:]}
        pinned = {}
        for path in glob.glob("cmake/sources*.sha256", root_dir=SOURCE):
            for name, version, kind in re.findall(r"  ([a-z]+)_(\S+)\.(orig|debian)\.tar\.", read(path)):
                if kind == "debian" or name not in pinned:
                    pinned[name] = version.rpartition("really")[2]
        self.assertEqual({(name.lower(), version) for name, version in said}, set(pinned.items()))

    def test_pages_are_short(self):
        """In bytes, and in the lengths of lines outside tables."""
        found = pages()
        self.assertLessEqual(sum(len(page.encode()) for page in found.values()), ALL_PAGES)
        self.assertLessEqual(len(found["README.md"].splitlines()), README_LINES)
        for path, page in found.items():
            most = next(most for pattern, most in PAGES if fnmatch.fnmatch(path, pattern))
            with self.subTest(path):
                self.assertLessEqual(len(page.encode()), most)
                self.assertEqual([line for line in page.splitlines()
                                  if len(line) > LINE and not line.lstrip().startswith("|")], [])

    def test_files_that_are_named_exist(self):
        named = re.compile(r"`((?:edge|secure|client|aggregator|tests|examples|cmake|docs)/[\w./]*[\w/])`")
        for path, page in pages().items():
            for file in named.findall(page):
                with self.subTest(f"{path}: {file}"):
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, file)))

    def test_every_key_of_a_job_is_described(self):
        page = read("docs/reference/job.md") + read("docs/reference/model.md") + read("docs/strategies.md")

        def keys(schema):
            if isinstance(schema, dict):
                for name, value in schema.get("properties", {}).items():
                    yield name
                    yield from keys(value)
                for name, value in schema.items():
                    if name != "properties":
                        yield from keys(value)
            elif isinstance(schema, list):
                for value in schema:
                    yield from keys(value)
        found = set(keys(json.loads(read("docs/job.schema.json"))))
        self.assertGreater(len(found), 50)
        for key in sorted(found):
            names = (key, key.replace("_", "-"))  # underscores may stand for hyphens
            with self.subTest(key):
                self.assertTrue(any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page) for name in names))

    def test_builds_take_no_more_jobs_than_cores(self):
        for path, page in pages().items():
            for command in re.findall(r"cmake --build [^\n`]*", page):
                with self.subTest(f"{path}: {command}"):
                    self.assertNotRegex(command, r" -j($| (?![\d\"$]))")  # make starts all that it can at once

    @unittest.skipUnless(shutil.which("readelf") and shutil.which("dpkg-query"), "Debian's packages are looked up")
    @unittest.skipIf(os.environ.get("FEDGE_SANITIZE"), "the sanitizers' libraries are for tests alone")
    def test_programs_need_the_packages_that_are_named(self):
        needed = set()
        for program in glob.glob(f"{BIN}/fedge-*"):
            said = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
            needed.update(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
        owners = subprocess.run(["dpkg-query", "-S", *(f"*/{name}" for name in needed)], capture_output=True, text=True)
        packages = {line.split(":")[0] for line in owners.stdout.splitlines() if not line.startswith("libc6")}
        self.assertIn("zlib1g", packages)
        for path in ("README.md", "docs/guides/install.md"):
            with self.subTest(path):
                self.assertLessEqual(packages, set(re.findall(r"`([\w.+-]+)`", read(path))))

    def test_mpirun_is_installed_by_what_is_said(self):
        setup = read("cmake/setup.sh")
        self.assertIn("openmpi-bin", re.search(r"^mpi_packages=\((.*)\)$", setup, re.M)[1])
        self.assertIn('--mpi) packages+=("${mpi_packages[@]}")', setup)
        for path in ("README.md", "docs/guides/install.md", "docs/guides/several-machines.md", "docs/guides/simulation.md"):
            with self.subTest(path):
                self.assertIn("`bash cmake/setup.sh --mpi`", read(path))

    def test_what_the_readme_runs_is_installed(self):
        """pkg-config by setup.sh alone, and the loader's cache by the line that installs the libraries."""
        setup = read("cmake/setup.sh")
        self.assertIn("pkgconf", re.search(r"^packages=\((.*?)\)$", setup, re.M | re.S)[1].split())
        for path in ("README.md", "docs/guides/install.md"):
            with self.subTest(path):
                self.assertRegex(read(path), r"\n    sudo cmake --install build/release --strip && sudo ldconfig ")

    def test_a_clone_ignores_what_the_readme_leaves_in_it(self):
        ignored = read(".gitignore").splitlines()
        page = read("README.md")
        own, simulated = section(page, "## Your own trainer, in C"), section(page, "## Simulate before you deploy")
        left = {f"/{re.search(option, text)[1]}{end}" for option, text, end in (
            (r" -o (\S+)", own, ""), (r"--out (\S+)", own, "/"), (r"--state (\S+)", own, "/"),
            (r"--out (\S+)", simulated, "/"))}
        self.assertEqual(left - set(ignored), set())

    def test_help_fits_a_screen_and_options_are_those_of_the_programs(self):
        page = read("docs/reference/command-lines.md")
        for program in ("fedge-aggregator", "fedge-client"):
            command = [f"{BIN}/{program}", "--help"]
            help_text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
            self.assertLessEqual(len(help_text.splitlines()), 24)  # a screen
            if "--help-all" in help_text:
                command[1] = "--help-all"
                help_text = subprocess.run(command, check=True, capture_output=True, text=True,
                                           timeout=PATIENCE_S).stdout
            there = set(re.findall(r"--[a-z][a-z-]+", help_text)) - {"--help", "--help-all", "--version"}
            text = section(page, f"## {program}")
            first_cells = " ".join(row.split("|")[1] for row in rows(text))
            with self.subTest(program):
                self.assertLessEqual(there, set(re.findall(r"--[a-z][a-z-]+", text)))
                self.assertLessEqual(set(re.findall(r"--[a-z][a-z-]+", first_cells)), there)
                self.assertEqual("--optimizer-states" in there,
                                 program == "fedge-client" and os.environ["FEDGE_HAVE_CUDA"] == "ON")

    def test_reference_says_what_programs_and_sources_say(self):
        """Help texts, metrics and limits; the help of a client that has GPUs says a little more."""
        found = list(reference.parts())
        self.assertGreater(len(found), 10)
        for path, name, said, now in found:
            if name == "help fedge-client" and os.environ["FEDGE_HAVE_CUDA"] == "ON":
                continue
            with self.subTest(f"{path}: {name}"):
                self.assertEqual(said, now, "run: python3 -B tests/docs/reference.py --write")

    def test_limits_are_those_of_the_headers(self):
        known = reference.definitions()
        page = read("docs/reference/limits.md")
        named = set(re.findall(r"`(FEDGE_\w+)`", page)) - {"FEDGE_RANK_SILENCE_S"}
        self.assertGreater(len(named), 30)
        self.assertEqual(named - set(known), set())
        table = [row for name in reference.LIMITS for row in rows(reference.limits(name))]
        self.assertGreater(len(table), 50)
        self.assertIn("| one message, from its first byte to its last | 45 s | `FEDGE_CONN_FRAME_TIMEOUT_MS` |", table)
        timeouts = {name for name in known if re.search(r"_TIMEOUT_M?S$", name)} - {
            "FEDGE_CUDA_TIMEOUT_MS", "FEDGE_CUDA_RANKS_TIMEOUT_MS", "FEDGE_SILO_TIMEOUT_MS"}  # docs/guides/gpus.md
        self.assertEqual(timeouts - named, set())
        security = " ".join(read("docs/security.md").split())
        for name, text in (("FEDGE_CONN_FRAME_TIMEOUT_MS", "does not finish a message within %d s"),
                           ("FEDGE_CONN_HELLO_TIMEOUT_MS", "says no HELLO within %d s"),
                           ("FEDGE_NEWCOMER_TIMEOUT_MS", "disconnected after %d s of silence")):
            self.assertIn(text % (reference.value_of(name, known) // 1000), security)

    def test_metrics_are_all_described(self):
        page = section(read("docs/reference/metrics-and-logs.md"), "## Metrics")
        code = set(re.findall(r'"((?:fedge|process)_\w+)"', read("aggregator/net/http.c")))
        said = set(re.findall(r"`((?:fedge|process)_\w+)[`{]", page))
        self.assertEqual(said - code, set())
        self.assertEqual(code - said, set())

    def test_events_are_all_described(self):
        page = section(read("docs/reference/metrics-and-logs.md"), "## Logs")
        said = set(re.findall(r"`([a-z-]+)`", page))
        count = 0
        for folder in ("aggregator", "client"):
            for path in glob.glob(f"{folder}/**/*.c", root_dir=SOURCE, recursive=True):
                for level, event in re.findall(
                        r'(?:FEDGE_LOG|fedge_log_failure)\([^;"]*?FEDGE_LOG_(\w+),\s*"([a-z-]+)"', read(path)):
                    if level != "DEBUG":
                        count += 1
                        with self.subTest(f"{path}: {event}"):
                            self.assertIn(event, said)
        self.assertGreater(count, 15)

    def test_units_start_again_what_a_new_start_mends(self):
        """The codes of the table that say "not restart" are those that the unit does not restart after."""
        page = read("docs/reference/exit-codes.md")
        tables = {program: section(page, f"## {program}") for program in ("fedge-aggregator", "fedge-client")}
        headers = {"fedge-aggregator": "aggregator/run/exit_codes.h", "fedge-client": "client/exit_codes.h"}
        for program, table in tables.items():
            advice = {int(row.split("|")[1]): row.split("|")[3].strip()
                      for row in rows(table) if row.split("|")[1].strip().isdigit()}
            found = re.findall(r"\bFEDGE_EXIT_[A-Z_]+ = (\d+)|\bX\([A-Z_]+, (\d+)", read(headers[program]))
            codes = {int(a or b) for a, b in found}
            unit = read(f"docs/systemd/{program}.service.in")
            never = {int(code) for code in re.search("^RestartPreventExitStatus=(.*)$", unit, re.M)[1].split()}
            with self.subTest(program):
                self.assertEqual(set(advice), codes)
                self.assertEqual({code for code, text in advice.items() if code and text.startswith("not ")}, never)


    def test_the_simulators_exit_codes_are_named(self):
        codes = {int(code) for code in re.findall(r"\bEXIT_[A-Z]+ = (\d+)", read("aggregator/simulate/main.c"))}
        text = section(read("docs/reference/exit-codes.md"), "## The other programs")
        said = re.search(r"`fedge-simulate` ends with (.*?)\.\n", text, re.S)[1]
        self.assertGreater(len(codes), 3)
        self.assertEqual({int(code) for code in re.findall(r"\d+", said)}, codes)

    def test_the_unit_allows_all_connections(self):
        headers = "".join(map(read, ("aggregator/net/transport.h", "aggregator/exchange/exchange.h", "aggregator/program/options.h")))

        def value(name):
            return int(re.search(rf"^#define FEDGE_{name} (\d+)", headers, re.M)[1])

        wanted = (value("DEFAULT_CONNECTIONS") + value("DEFAULT_UNAUTHENTICATED") + value("OTHER_FILES") +
                  value("FILES_PER_NETWORK_THREAD") * value("MAX_NETWORK_THREADS"))
        unit = read("docs/systemd/fedge-aggregator.service.in")
        self.assertEqual(int(re.search(r"^LimitNOFILE=(\d+)$", unit, re.M)[1]), wanted)


NAMES = {"server": "server", "device": "kitchen-1"}  # of requests and chains at the authority


class Deployment(unittest.TestCase):
    """The commands of README.md, as they stand there, with other names and ports."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="fedge-docs-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.running = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.running:
            process.kill()
            process.wait()

    def place(self, *parts):
        return os.path.join(self.folder, *parts)

    @staticmethod
    def steps():
        """The commands of each numbered step."""
        found = {}
        for number, text in re.findall(r"^(\d)\. (.*?)(?=^\d\. |^\S|\Z)", section(
                read("README.md"), "## Deploy one real client"), re.MULTILINE | re.DOTALL):
            joined = text.replace("\\\n", " ")
            found[int(number)] = [line.split("#")[0].split() for line in joined.splitlines()
                                  if line.startswith("       fedge-")]
        return found

    def do(self, where, command):
        done = subprocess.run([f"{BIN}/{command[0]}", *command[1:]], cwd=self.place(where), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}")

    def start(self, where, command):
        with open(self.place(where, f"{command[0]}.log"), "wb") as log:
            process = subprocess.Popen([f"{BIN}/{command[0]}", *command[1:]], cwd=self.place(where),
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def log(self, where, program):
        with open(self.place(where, f"{program}.log"), encoding="utf-8") as file:
            return file.read()

    def write(self, path, value):
        with open(self.place(path), "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))

    def make_job(self):
        self.write("server/job.json", {
            "fedge-job": 1, "name": "deployed",
            "model": {"input-shape": [2], "layers": [
                {"type": "Linear", "in_features": 2, "out_features": 2}]},
            "data": {"name": "points", "shape": [2], "dtype": "f32", "labels": 2},
            "training": {"learning-rate": 0.1},
            "rounds": {"num-server-rounds": 2, "min-available-nodes": 1, "min-train-nodes": 1}})
        self.write("device/client.json", {"data": {"points": {"values": "points.csv"}}})
        self.write("device/points.csv", "".join(f"{i % 2},{1 - i % 2},{i % 2}\n" for i in range(20)))

    def assert_no_server_by_a_device_s_line(self, steps):
        """Who sends the authority a request of a server in place of a device's gets nothing."""
        self.do("device", ["fedge-keys", "request", "--identity", "posing", "--role", "server", "--dns",
                           "fl.example.org"])
        shutil.copy(self.place("device", "posing", "request.pem"), self.place("authority", "posing.pem"))
        line = [word if word != "kitchen-1.request.pem" else "posing.pem" for word in steps[4][1]]
        self.assertIn("posing.pem", line)
        done = subprocess.run([f"{BIN}/{line[0]}", *line[1:]], cwd=self.place("authority"), text=True,
                              stderr=subprocess.PIPE, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("is for role server, not device", done.stderr)

    def test_one_real_client(self):
        steps = self.steps()
        self.assertEqual({number: len(commands) for number, commands in steps.items()},
                         {1: 1, 2: 1, 3: 1, 4: 2, 5: 1, 6: 2, 7: 1})
        for where in ("authority", "server", "device"):
            os.mkdir(self.place(where))
        self.make_job()
        self.do("authority", steps[1][0])
        for where, number in (("server", 2), ("device", 3)):
            shutil.copytree(self.place("authority", "trust"), self.place(where, "trust"))
            self.do(where, [word.replace("fl.example.org", "localhost") for word in steps[number][0]])
            shutil.copy(self.place(where, "identity", "request.pem"),
                        self.place("authority", f"{NAMES[where]}.request.pem"))
        self.assert_no_server_by_a_device_s_line(steps)
        for command in steps[4]:
            self.do("authority", [word.replace("fl.example.org", "localhost") for word in command])
        shutil.copytree(self.place("authority", "registry"), self.place("server", "registry"))
        for where in ("server", "device"):
            shutil.copy(self.place("authority", f"{NAMES[where]}.chain.pem"), self.place(where))
            self.do(where, [word.replace("server.chain.pem", f"{NAMES[where]}.chain.pem") for word in steps[5][0]])
        self.do("server", steps[6][0])
        aggregator = self.start("server", steps[6][1] + ["--listen", "127.0.0.1:0", "--http", "off",
                                                         "--port-file", "port"])
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(self.place("server", "port")):
            self.assertIsNone(aggregator.poll(), self.log("server", "fedge-aggregator"))
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        with open(self.place("server", "port"), encoding="ascii") as file:
            port = file.read().split()[0]
        device = self.start("device", [word.replace("fl.example.org:9092", f"localhost:{port}")
                                       for word in steps[7][0]])
        self.assertEqual(device.wait(PATIENCE_S), 0, self.log("device", "fedge-client"))
        self.assertEqual(aggregator.wait(PATIENCE_S), 0, self.log("server", "fedge-aggregator"))
        self.assertEqual(len(glob.glob(self.place("server/state/runs/*/model.safetensors"))), 1)


if __name__ == "__main__":
    unittest.main()
