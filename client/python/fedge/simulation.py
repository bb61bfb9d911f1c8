"""Simulations: virtual clients of an app in processes of this machine."""

from __future__ import annotations

import contextlib
import json
import numbers
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from typing import IO, Any, Iterator, List, Mapping, NoReturn, Optional, Sequence, Set, Tuple, Union

from ._programs import path_of
from .client import SIMULATOR, Client, Path
from .errors import Error
from .run import Run

GRACE = 2.0  # seconds for a process to end by itself
SPEAKER = "fedge-simulate: "


def program(name: str) -> str:
    """One of fedge's programs: the package's, or that of PATH."""
    path = path_of(name)
    found = path if os.path.exists(path) else shutil.which(name)
    if found is None:
        raise Error(f"there is no {path} and no {name} in PATH: reinstall the package fedge")
    return found


class _Tracebacks:
    """The trainers' exceptions: each of a process is shown once, and the first of all is kept in `file`."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.shown: Set[str] = set()

    def __call__(self, content: str) -> None:
        if content in self.shown or len(self.shown) == 100:
            return
        self.shown.add(content)
        print(content, file=sys.stderr, end="", flush=True)
        if os.fstat(self.file.fileno()).st_size == 0:
            self.file.write(content.encode(errors="replace"))
            self.file.flush()


def _become(app: Client, channel: socket.socket, output: int, first: IO[bytes]) -> NoReturn:
    """A trainer, in a fork of this process. Ctrl-C is the simulator's, whose end ends it."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
        os.environ[SIMULATOR] = str(channel.fileno())
        app._tracebacks = _Tracebacks(first)
        app._serve()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        pool = sys.modules.get("multiprocessing")
        for worker in pool.active_children() if pool else ():
            worker.kill()  # that the app has left, such as workers that read data; they would keep the output open
        os._exit(code)


class _Trainers:
    """Forks of this process, each with a channel to the simulator."""

    def __init__(self, app: Client, num: int, output: int, first: IO[bytes]) -> None:
        self.pids: List[int] = []
        self.channels: List[socket.socket] = []
        sys.stdout.flush()
        sys.stderr.flush()
        for _ in range(num):
            ours, theirs = socket.socketpair()
            self.channels.append(ours)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # the kernel of a notebook has threads
                pid = os.fork()
            if pid == 0:
                for channel in self.channels:
                    channel.close()
                _become(app, theirs, output, first)
            theirs.close()
            self.pids.append(pid)

    def close(self) -> None:
        for channel in self.channels:
            channel.close()

    def end(self) -> None:
        """Waits for them, whose channels are closed, and kills those that go on."""
        self.close()
        limit = time.monotonic() + GRACE
        for pid in self.pids:
            while os.waitpid(pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > limit:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)


@contextlib.contextmanager
def _file_of(job: Union[Path, Mapping[str, Any]]) -> Iterator[str]:
    """A job's file. That of a dict is in the working directory, which its paths are relative to."""
    if not isinstance(job, Mapping):
        yield os.fspath(job)
        return
    with tempfile.NamedTemporaryFile("w", dir=os.curdir, prefix=".fedge-job-", suffix=".json", encoding="utf-8") as file:
        json.dump(job, file)
        file.flush()
        yield file.name


class _Listener(threading.Thread):
    """Shows what simulator and trainers write until all have ended, and keeps the simulator's own messages."""

    def __init__(self, output: int) -> None:
        super().__init__(name="fedge-simulation", daemon=True)
        self.output = output
        self.said: List[str] = []

    def run(self) -> None:
        with open(self.output, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(SPEAKER):
                    self.said.append(line[len(SPEAKER):].rstrip())
                else:
                    sys.stderr.write(line)


def _wait(process: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C ends the simulator, a second one at once."""
    try:
        process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.wait()
        except KeyboardInterrupt:
            process.kill()
        raise


def _run(app: Client, command: List[str], processes: int, quiet: bool) -> Tuple[int, List[str], str]:
    with tempfile.TemporaryFile() as first:
        read, write = os.pipe()
        trainers = _Trainers(app, processes, write, first)
        listener = _Listener(read)
        try:
            numbers = [channel.fileno() for channel in trainers.channels]
            with subprocess.Popen([*command, "--trainer-channels", ",".join(map(str, numbers))], pass_fds=numbers,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if quiet else write, stderr=write,
                                  env={"FEDGE_PYTHON": sys.executable, **os.environ}) as process:
                trainers.close()
                listener.start()
                _wait(process)
        finally:
            os.close(write)
            trainers.end()
            if listener.ident is None:
                os.close(read)
            else:
                listener.join(10 * GRACE)  # a process that a killed trainer has left may keep its output open
        first.seek(0)
        return process.returncode, listener.said, first.read().decode(errors="replace")


def simulate(
    app: Client,
    job: Union[Path, Mapping[str, Any]],
    clients: int,
    *,
    processes: Optional[int] = None,
    seed: Optional[int] = None,
    rounds: Optional[int] = None,
    output: Optional[Path] = None,
    resume: bool = False,
    quiet: bool = False,
    options: Sequence[str] = (),
) -> Run:
    """Runs a job with virtual clients, which `app` trains, and returns what it has left.

    Sampler, codec, sums and strategy are the deployed ones: with the same job, seed and data a deployed run gives the
    same model, bit for bit, if the trainer is deterministic (torch on one thread) and draws its random numbers from
    task.generator() or task.seed. A trainer finds its part of the data by task.client_index, 0 to task.num_clients - 1.
    task.state lasts for each virtual client while the simulation runs.

    job: a job's file, or its dict, whose paths are relative to the working directory. clients: number of virtual clients. processes: trainers at a time; by default one
    for each processor. seed, rounds: in place of the job's. output: a new folder for results and checkpoints, by default a
    temporary one that stays (run.path). resume: continue the simulation in `output`, which was interrupted, to the model
    of an unbroken one; task.state is as it was, global variables of the app are not. quiet: only exceptions and the app's own output go to stderr. options: further options
    of fedge-simulate, such as ["--failure", "0.1"].

    Trainers are forks of this process, so that functions of a notebook work; they have torch on one thread. A GPU does not survive
    a fork: put the app in a file, and run fedge-simulate --trainer "python3 client.py". An exception in the trainer
    is shown once and counts as this client's failure. Raises Error, with the first exception, if the simulation fails.
    """
    if not isinstance(app, Client):
        raise Error(f"app is a fedge.Client with a trainer, not {type(app).__name__}")
    for name, given in ("clients", clients), ("processes", processes):
        if given is not None and (not isinstance(given, numbers.Integral) or given < 1):
            raise Error(f"{name} is {given!r}; it is an integer of at least 1")
    if app._train is None:
        raise Error("the client has no trainer: put @app.train before a function train(model, task)")
    if resume and output is None:
        raise Error("resume needs output, the folder of the simulation to continue")
    num = min(processes or len(os.sched_getaffinity(0)), clients)
    out = tempfile.mkdtemp(prefix="fedge-simulation-") if output is None else os.fspath(output)
    with _file_of(job) as file:
        command = [program("fedge-simulate"), "--job", file, "--clients", str(clients), "--out", out]
        for name, value in (("--seed", seed), ("--rounds", rounds)):
            command += [] if value is None else [name, str(value)]
        code, said, first = _run(app, [*command, *(["--quiet"] if quiet else []), *(["--resume"] if resume else []), *options], num, quiet)
    if code:
        message = "; ".join(said) or f"fedge-simulate has ended with code {code}"
        raise Error(message + (f"\n\nThe first exception of a trainer:\n{first}" if first else ""))
    return Run(out)
