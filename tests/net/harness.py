"""Shared by the tests of the whole system: programs, jobs, data, identities and logs.

A test gets a folder of its own. Every program it starts is ended by its id, whatever happens: by the
test's clean-up, by the end of this process, or by the kernel when this process is killed.
"""

import atexit
import ctypes
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("FEDGE_BIN_DIR", "")
SANITIZED = bool(os.environ.get("FEDGE_SANITIZE"))
# No test asserts that something is quick. What takes longer than this hangs, even beside twenty busy processes.
PATIENCE_S = int(os.environ.get("FEDGE_NET_PATIENCE_S", "300")) * (2 if SANITIZED else 1)
SKIPPED = 77
LONG = bool(os.environ.get("FEDGE_TEST_LONG"))  # tests/run.sh --all: more cases of the same kind
NETWORK_THREADS = os.environ.get("FEDGE_TEST_NETWORK_THREADS", "1")  # threads of each aggregator
FAULTS = os.path.join(os.environ.get("FEDGE_NET_DIR", ""), "net_faults.so")

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_programs = []
_folders = []
_marks = []
_draw_port = random.Random(os.getpid())


def _end_everything():
    for program in _programs:
        program.kill()
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


atexit.register(_end_everything)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def make_folder():
    folder = tempfile.mkdtemp(prefix="fedge-net-")
    _folders.append(folder)
    return folder


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def reserve(port):
    """Reserves a port for this process until its end; false: another test has it. The name of a socket marks it."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0fedge-test-port-{port}")
    except OSError:
        mark.close()
        return False
    _marks.append(mark)
    return True


def reserve_ports(num):
    """Returns the first of [num] consecutive free ports, and reserves them for this process. They are below those
    that the system gives to connections, so a restarted aggregator finds them free."""
    while True:
        first = _draw_port.randrange(10000, 30000)
        if all(reserve(port) and is_free(port) for port in range(first, first + num)):
            return first


def memory_of(pid, key="VmRSS"):
    """Returns the resident bytes, or the most so far (VmHWM)."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key + ":"))


def wait_until(what, condition, timeout_s=PATIENCE_S):
    """Returns the first true value of condition(). Fails if there is none in time."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout_s} s in vain for {what}")
        time.sleep(0.02)


def preload(**variables):
    """Returns the environment of a program into which faults.c is loaded, with its [variables]."""
    environment = {"LD_PRELOAD": FAULTS, **variables}
    if SANITIZED:
        environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return environment


def fault(call, number, what, file=None):
    """Returns the environment of a program in which a call fails. [file]: part of a path."""
    environment = preload(FEDGE_FAULT=f"{call}:{number}:{what}")
    if call.startswith("MPI_"):
        environment["LD_PRELOAD"] = FAULTS.replace("net_faults.so", "net_mpi_faults.so")
    if file is not None:
        environment["FEDGE_FAULT_FILE"] = file
    return environment


def clock(path):
    """Returns the environment of a program whose clock is ahead by N seconds while [path] is a link to "N"."""
    return preload(FEDGE_CLOCK=path)


class Program:
    """A running program. Files receive its standard output and error."""

    def __init__(self, name, arguments, folder, environment=None, before=None, prefix=()):
        self.name = name
        self.log_path = os.path.join(folder, f"{name}.log")
        self.out_path = os.path.join(folder, f"{name}.out")

        def prepare():
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if before:
                before()

        command = [*prefix, os.path.join(BIN, arguments[0]), *map(str, arguments[1:])]
        with open(self.log_path, "ab") as log, open(self.out_path, "ab") as out:
            self.log_start = log.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=folder,
                env={**os.environ, **(environment or {})}, preexec_fn=prepare)
        self.pid = self._process.pid
        _programs.append(self)

    def running(self):
        return self._process.poll() is None

    def send(self, number):
        if self.running():
            os.kill(self.pid, number)

    def wait(self, timeout_s=PATIENCE_S):
        """Waits for its exit code; −N: signal N ended it."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended after {timeout_s} s:\n{self.tail()}") from None

    def stop(self, timeout_s=PATIENCE_S):
        self.send(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self):
        if self.running():
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def log(self):
        """Returns the log of this process, without that of an earlier one of the same name."""
        with open(self.log_path, "rb") as file:
            file.seek(self.log_start)
            return file.read().decode("utf-8", "replace")

    def out(self):
        with open(self.out_path, encoding="utf-8") as file:
            return file.read()

    def crashed(self):
        """Whether it ended by a signal that no test sent, or a sanitizer reported an error."""
        code = self._process.poll()
        if code is not None and -code in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL,
                                          signal.SIGFPE):
            return True
        log = self.log()
        return any(mark in log for mark in ("Sanitizer:", "runtime error:", "Assertion `"))

    def tail(self, lines=25):
        return "\n".join(self.log().splitlines()[-lines:])

    def events(self, name=None, **fields):
        """Returns log events with this name and these fields as dictionaries."""
        found = []
        for line in self.log().splitlines():
            if not line.startswith("{"):
                continue
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line may be half written
            if name in (None, event["event"]) and all(event.get(k) == v for k, v in fields.items()):
                found.append(event)
        return found

    def wait_event(self, name, count=1, timeout_s=PATIENCE_S, **fields):
        def look():
            running = self.running()  # queried first, so that the log is complete if it has ended
            found = self.events(name, **fields)
            if len(found) < count and not running:
                raise AssertionError(f"{self.name} ended ({self._process.returncode}) without "
                                     f"{name}:\n{self.tail()}")
            return found if len(found) >= count else None
        return wait_until(f"{count} × {name} in the log of {self.name}", look, timeout_s)[count - 1]


def run(*arguments, code=0):
    """Runs a program of fedge, checks its exit code and returns its two outputs."""
    done = subprocess.run([os.path.join(BIN, arguments[0]), *map(str, arguments[1:])], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False)
    if done.returncode != code:
        raise AssertionError(f"{' '.join(map(str, arguments))}: exit code {done.returncode}, expected "
                             f"{code}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def make_keys(folder, clients, **options):
    """An option is a text, or a list of them."""
    words = [word for key, value in options.items() for one in ([value] if isinstance(value, str) else value)
             for word in (f"--{key.replace('_', '-')}", one)]
    run("fedge-keys", "demo", "--out", folder, "--clients", clients, *words)
    return folder


_shared_keys = {}


def shared_keys(clients=8):
    """Identities that no test changes. They are made once."""
    if clients not in _shared_keys:
        _shared_keys[clients] = make_keys(os.path.join(make_folder(), "keys"), clients)
    return _shared_keys[clients]


def write_npy(path, kind, shape, data):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * ((-(10 + len(text) + 1)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)


FEATURES, LABELS = 12, 4


def write_examples(folder, name, count, seed):
    """Labels and points around their label's centre: easy to learn, but not in one step."""
    centres = [[random.Random(label * 100 + i).uniform(-1, 1) for i in range(FEATURES)]
               for label in range(LABELS)]
    draw = random.Random(seed)
    labels = [draw.randrange(LABELS) for _ in range(count)]
    values = [c + draw.gauss(0, 0.8) for label in labels for c in centres[label]]
    write_npy(os.path.join(folder, f"{name}-values.npy"), "<f4", (count, FEATURES),
              struct.pack(f"<{len(values)}f", *values))
    write_npy(os.path.join(folder, f"{name}-labels.npy"), "|u1", (count,), bytes(labels))


HIDDEN = 4000  # hidden values of a model that takes several messages


def write_model(path):
    """Writes a model with HIDDEN hidden values, which clients cannot make from the seed."""
    header, data = {}, b""
    for name, shape in (("0.weight", [HIDDEN, FEATURES]), ("0.bias", [HIDDEN]),
                        ("2.weight", [LABELS, HIDDEN]), ("2.bias", [LABELS])):
        values = struct.pack("<f", 0.01) * (shape[0] * (shape[1] if len(shape) > 1 else 1))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def make_job(**changes):
    """A small job. A change sets the value of a dotted key: rounds__num_server_rounds=5."""
    hidden = changes.pop("hidden", 16)
    job = {
        "fedge-job": 1,
        "name": "small",
        "seed": 7,
        "model": {
            "input-shape": [FEATURES],
            "layers": [
                {"type": "Linear", "in_features": FEATURES, "out_features": hidden},
                {"type": "ReLU"},
                {"type": "Linear", "in_features": hidden, "out_features": LABELS},
            ],
            "loss": {"type": "CrossEntropyLoss"},
        },
        "data": {"name": "points", "shape": [FEATURES], "dtype": "f32", "labels": LABELS},
        "training": {"local-epochs": 1, "batch-size": 16, "learning-rate": 0.05,
                     "optimizer": {"type": "SGD", "momentum": 0.9}},
        "rounds": {"num-server-rounds": 3, "min-train-nodes": 2, "min-available-nodes": 3,
                   "round-deadline-s": 300},
        "strategy": {"type": "FedAvg"},
        "update": {"codec": "int8", "deflate": True},
        "test-set": {"values": "test-values.npy", "labels": "test-labels.npy"},
        "min-free-disk": 0,
    }
    for dotted, value in changes.items():
        *path, last = [part.replace("_", "-") for part in dotted.split("__")]
        place = job
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return job


class Federation:
    """A job with its data, identities and state in a folder. Starts an aggregator and clients."""

    def __init__(self, keys=None, clients=3, examples=600, site=None, **job):
        self.folder = make_folder()
        self.keys = keys or shared_keys()
        self.clients = clients
        self.state = os.path.join(self.folder, "state")
        self.port = reserve_ports(2)
        self.http_port = self.port + 1
        self.aggregator = None
        self.seen = []
        job.setdefault("rounds__min_available_nodes", clients)
        self.job_path = self.write("job.json", make_job(**job))
        self.site_path = self.write("site.json", {"data": {"points": {
            "values": "train-values.npy", "labels": "train-labels.npy",
            "partition": "iid", "partition-seed": 1, **(site or {})}}})
        write_examples(self.folder, "train", examples, 1)
        write_examples(self.folder, "test", 200, 2)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, value):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
        return self.path(name)

    def aggregator_arguments(self, *more, **instead):
        values = {"job": self.job_path, "state": self.state, "identity": f"{self.keys}/server",
                  "trust": f"{self.keys}/trust", "registry": f"{self.keys}/registry",
                  "listen": f"127.0.0.1:{self.port}", "http": f"127.0.0.1:{self.http_port}",
                  "port-file": self.path("ports"), "workers": 2, "network-threads": NETWORK_THREADS, "result": self.path("result.json"),
                  **{key.replace("_", "-"): value for key, value in instead.items()}}
        return ["fedge-aggregator", *(word for key, value in values.items() if value is not None
                                      for word in (f"--{key}", str(value))), "--log-json", *more]

    def launch_aggregator(self, *more, environment=None, before=None, prefix=(), **instead):
        """Starts the aggregator without waiting until it listens."""
        if os.path.exists(self.path("ports")):
            os.unlink(self.path("ports"))
        self.aggregator = Program("aggregator", self.aggregator_arguments(*more, **instead), self.folder,
                                  environment, before, prefix)
        self.seen.append(self.aggregator)
        return self.aggregator

    def start_aggregator(self, *more, **options):
        """Starts the aggregator and waits until it listens. Later starts use the same ports, even if [instead] has port
        0."""
        aggregator = self.launch_aggregator(*more, **options)

        def ports():
            if not aggregator.running():
                raise AssertionError(f"the aggregator ended ({aggregator.wait()}):\n{aggregator.tail()}")
            try:
                with open(self.path("ports"), encoding="ascii") as file:
                    return file.read().split() or None
            except FileNotFoundError:
                return None
        found = wait_until("the aggregator's port file", ports)
        self.port, self.http_port = int(found[0]), int(found[1]) if len(found) > 1 else 0
        return aggregator

    def start_client(self, index, *more, environment=None, prefix=(), before=None, program="fedge-client",
                     **instead):
        values = {"server": f"wss://127.0.0.1:{self.port}",
                  "identity": f"{self.keys}/clients/{index:04}", "trust": f"{self.keys}/trust",
                  "config": self.site_path, "state": self.path(f"client-{index}"),
                  "partition-id": index, "num-partitions": self.clients,
                  **{key.replace("_", "-"): value for key, value in instead.items()}}
        words = [word for key, value in values.items() if value is not None
                 for word in (f"--{key}", str(value))]
        client = Program(f"client-{index}", [program, *words, "--log-json", *more], self.folder,
                         environment, before, prefix)
        self.seen.append(client)
        return client

    def start_clients(self, *indices):
        return [self.start_client(i) for i in (indices or range(self.clients))]

    def stop(self):
        for program in self.seen:
            program.kill()

    # Results of a run.

    def run_folder(self):
        runs = self.path("state", "runs")
        found = [name for name in os.listdir(runs) if not name.startswith(".")]
        if len(found) != 1:
            raise AssertionError(f"expected one run in {runs}, found {found}")
        return os.path.join(runs, found[0])

    def lines(self, phase="train"):
        with open(os.path.join(self.run_folder(), "rounds.jsonl"), encoding="utf-8") as file:
            return [line for line in map(json.loads, file) if line["phase"] == phase]

    def hashes(self):
        return [line["model_sha256"] for line in self.lines()]

    @staticmethod
    def model(path):
        """Returns the metadata of a model file, and its SHA-256 without them."""
        with open(path, "rb") as file:
            data = file.read()
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        said = header.pop("__metadata__", {})
        plain = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        plain += b" " * (-len(plain) % 8)
        digest = hashlib.sha256(len(plain).to_bytes(8, "little") + plain + data[end:])
        return said, digest.hexdigest()

    def result(self):
        with open(self.path("result.json"), encoding="utf-8") as file:
            return json.load(file)

    # State of a running aggregator.

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def health(self):
        status, body = self.get("/healthz")
        if status != 200:
            raise AssertionError(f"/healthz: {status} {body}")
        return json.loads(body)

    def metric(self, name):
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise AssertionError(f"/metrics has no {name}")

    def complete(self, timeout_s=PATIENCE_S):
        """Waits for the end of the run and returns its result."""
        code = self.aggregator.wait(timeout_s)
        if code != 0:
            raise AssertionError(f"the aggregator ended with {code}:\n{self.aggregator.tail()}")
        return self.result()


def external(federation, parameters):
    """Gives the job an external model of [parameters] values, which begin as zeros and are sent as floats."""
    federation.write("job.json", {
        "fedge-job": 1, "name": "memory", "seed": 1,
        "model": {"type": "external", "tensors": [{"name": "w", "shape": [parameters]}]},
        "training": {"local-epochs": 1, "batch-size": 1, "learning-rate": 1},
        "rounds": {"num-server-rounds": 3, "min-available-nodes": federation.clients,
                   "min-train-nodes": federation.clients},
        "strategy": {"type": "FedAvg"}, "update": {"codec": "none", "deflate": False}, "min-free-disk": 0})


def batchnorm(**more):
    """A model of images with BatchNorm layers."""
    return {"input-shape": [3, 2, 2], "layers": [
        {"type": "Conv2d", "in_channels": 3, "out_channels": 4, "kernel_size": 1},
        {"type": "BatchNorm2d", "name": "bn", "num_features": 4, **more},
        {"type": "ReLU"}, {"type": "Flatten"},
        {"type": "Linear", "in_features": 16, "out_features": LABELS}]}


def points_as_images(federation):
    """A federation with data__shape=[3, 2, 2] gets its points in that shape."""
    for name in ("train-values.npy", "test-values.npy"):
        with open(federation.path(name), "rb") as file:
            data = file.read()[128:]
        count = len(data) // (4 * FEATURES)
        write_npy(federation.path(name), "<f4", (count, 3, 2, 2), data)
    return federation


class NetTest(unittest.TestCase):
    """Ends all programs of the test. Prints the logs after a failure."""

    def setUp(self):
        self._federations = []
        self._started_s = time.monotonic()

    def federation(self, *arguments, **options):
        made = Federation(*arguments, **options)
        self._federations.append(made)
        return made

    def tearDown(self):
        outcome = self._outcome.result
        failed = any(test is self for test, _ in outcome.errors + outcome.failures)
        crashed = []
        for made in self._federations:
            made.stop()
            crashed += [program for program in made.seen if program.crashed()]
            for program in made.seen if failed else crashed:
                print(f"--- {program.name} ({program.wait()})\n{program.tail(60)}", file=sys.stderr)
            if not os.environ.get("FEDGE_NET_KEEP"):
                shutil.rmtree(made.folder, ignore_errors=True)
        print(f"[{time.monotonic() - self._started_s:.1f} s] ", end="", file=sys.stderr)
        self.assertEqual([program.name for program in crashed], [])


def undisturbed(rounds, **options):
    """Returns the models of a run without faults, round by round."""
    federation = Federation(rounds__num_server_rounds=rounds, **options)
    federation.start_aggregator()
    federation.start_clients()
    federation.complete()
    federation.stop()
    hashes = federation.hashes()
    if len(hashes) != rounds:
        raise AssertionError(f"the undisturbed run has {len(hashes)} rounds of {rounds}")
    shutil.rmtree(federation.folder, ignore_errors=True)
    return hashes


def main():
    if not os.path.isfile(os.path.join(BIN, "fedge-aggregator")):
        sys.exit("FEDGE_BIN_DIR does not name a folder with fedge's programs")
    unittest.main(verbosity=2)
