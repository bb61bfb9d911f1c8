"""The measuring half of simulate.sh: fedge-simulate and its peers in turn, medians; a table, or JSON rows."""

import argparse
import concurrent.futures
import json
import os
import select
import statistics
import subprocess
import tempfile
import time

from half import Half
from rows import Rows, load_average, note

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
IMAGES = 50  # made up for each client

# name: job, clients, clients in a round
CASES = {
    "2nn": ("examples/zoo/2nn.json", 100, 10),
    "mcmahan-cnn": ("examples/zoo/mcmahan-cnn.json", 100, 10),
    "logistic": ("tests/bench/simulate/logistic.json", 1000, 10),
    "cifar-cnn": ("tests/bench/simulate/cifar-cnn.json", 1000, 50),
}
WHOLE_RUN = 100  # rounds of logistic's whole run
PLAIN = {"codec": "none", "deflate": False}
TOPK = {"up": "topk:0.01+int8"}
# What updates may be in place of PLAIN, and options for it; all but the first keep residuals.
UPDATES = {"int8 and deflate": ({"codec": "int8", "deflate": True}, ()), "topk:0.01+int8": (TOPK, ()),
           "topk:0.01+int8, residuals on disk": (TOPK, ("--client-state-memory", "1000000")),
           "int4 with error feedback": ({"up": "int4", "error-feedback": "on"}, ())}
ONE_CLIENT = {"num-server-rounds": 1, "min-train-nodes": 1, "min-available-nodes": 1}
QUICK = {"2nn": ("alone", "PyTorch"), "logistic": ("in all", "Flower")}  # the parts of each case
PEERS = {"PyTorch": "plain_pytorch.py", "Flower": "flower_simulation.py"}  # in tests/bench/simulate


def median(values):
    return statistics.median(values)


class Table(Rows):
    def __init__(self, as_json):
        super().__init__(as_json, f"{'case':58}{'value':>16} {'unit':14}{'peer':>24}{'':>16}{'ratio':>8}")

    def row(self, case, value, unit, peer=None, peer_value=None, more_is_better=True):
        ratio = None
        if peer_value:
            ratio = round(value / peer_value if more_is_better else peer_value / value, 4)
        other = f"{peer:>24}" + (f"{peer_value:>16,.4g}{ratio:>8.2f}" if ratio else "") if peer else ""
        self.put(("simulate", case, value, unit, peer, peer_value, ratio), f"{case:58}{value:>16,.4g} {unit:14}{other}")


# --- cases -----------------------------------------------------------------------------------------------


class Case:
    """A job to which nothing but rounds belongs: no test set, updates as they are, a fixed number of clients."""

    def __init__(self, args, folder, name):
        path, self.clients, self.cohort = CASES[name]
        self.name, self.folder, self.zoo = name, folder, os.path.join(ROOT, path)
        with open(self.zoo, encoding="utf-8") as file:
            self.job = json.load(file)
        self.job.pop("test-set", None)
        self.job["rounds"] = {"num-server-rounds": 1, "fraction-train": self.cohort / self.clients,
                              "min-train-nodes": self.cohort, "min-available-nodes": self.clients}
        self.batch = self.job["training"]["batch-size"]
        self.path = self.write("job", dict(self.job, update=PLAIN))
        if self.job["data"]["name"] == "fashion-mnist":
            values, labels = (f"{FASHION_MNIST}/train-{kind}.gz" for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
            if not os.path.exists(values):
                raise SystemExit("simulate.sh: no Fashion-MNIST: apt-get install dataset-fashion-mnist")
        else:
            subprocess.run([args.fedge, "generate", "images", "--clients", str(self.clients), "--examples", str(IMAGES),
                            "--out", folder], check=True, stdout=subprocess.DEVNULL)
            values, labels = (os.path.join(folder, f"train-{kind}.npy") for kind in ("values", "labels"))
        files = {"values": values, "labels": labels}
        self.site = self.write("client", {"data": {self.job["data"]["name"]: files}})
        self.for_peers = self.write("case", {"job": self.path, "clients": self.clients, "cohort": self.cohort, **files})
        self.title = f"{name}, {self.cohort} of {self.clients} clients, B={self.batch}"

    def write(self, kind, content):
        path = os.path.join(self.folder, f"{self.name}-{kind}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        return path


# --- the three -------------------------------------------------------------------------------------------


class Run:
    """One run of fedge-simulate: seconds of its rounds, of the process, of its CPU time; its largest memory."""

    def __init__(self, args, case, rounds, threads, job=None, clients=None, core=None, prefix=(), environment=None,
                 options=()):
        command = [args.fedge, "--job", job or case.path, "--data", case.site, "--partition", "iid", "--clients",
                   str(clients or case.clients), "--rounds", str(rounds), "--threads", str(threads),
                   "--client-accuracy", "0", "--json", *options]
        start = time.monotonic()
        process = subprocess.Popen([*prefix, *(["taskset", "-c", str(core)] if core is not None else []), *command],
                                   stdout=subprocess.PIPE, env={**os.environ, **(environment or {})})
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        self.wall = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed")
        summary = json.loads(text)
        self.seconds, self.examples = summary["seconds"], summary["examples_trained"]
        self.model = summary["model_sha256"]
        self.round = self.seconds / rounds
        self.cpu, self.memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def family(pid):
    """A process and all that come from it."""
    children = {}
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{other}/stat", encoding="utf-8", errors="replace") as file:
                children.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(other))
        except OSError:  # it has ended
            pass
    found = [pid]
    for one in found:
        found.extend(children.get(one, []))
    return found


def pss_bytes(pid):
    """Memory of a process and its children, each shared page once (PSS)."""
    total = 0
    for one in family(pid):
        try:
            with open(f"/proc/{one}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
        except OSError:
            pass
    return total


def peak_bytes(half, rounds):
    """The most of a turn that counts for nothing else, looked at five times a second."""
    half.ask(rounds)
    peak = pss_bytes(half.process.pid)
    while not select.select([half.process.stdout], [], [], 0.2)[0]:
        peak = max(peak, pss_bytes(half.process.pid))
    half.answer()
    return peak


# --- rows ------------------------------------------------------------------------------------------------


def as_many(args, seconds):
    """Rounds of so many seconds that make a turn."""
    return min(max(round(args.seconds / seconds), 1), 1000)


def against_peer(args, table, case, python, script):
    """Both in turn on all cores. Memory and start-up are those of whole processes."""
    start = time.monotonic()
    script = os.path.join(ROOT, "tests", "bench", "simulate", script)
    half = Half([python, "-B", script, case.for_peers, str(args.cores)])
    half.turn(1)
    begun = time.monotonic() - start
    rounds = as_many(args, half.turn(1)[0])
    ours, theirs = [], []
    for _ in range(args.turns):
        ours.append(Run(args, case, case.rounds, args.cores).round)
        theirs.append(half.turn(rounds)[0] / rounds)
    memory = peak_bytes(half, rounds)
    half.close()
    mine, other = median(ours), median(theirs)
    table.row(case.title + ": rounds", 1 / mine, "rounds/s", half.about, 1 / other)
    table.row(case.title + ": clients", case.cohort / mine, "clients/s", half.about, case.cohort / other)
    table.row(case.title + ": samples", case.examples / mine, "samples/s", half.about, case.examples / other)
    table.row(case.title + ": peak memory", case.memory, "bytes", half.about, memory, False)
    table.row(case.title + ": start to the end of a round", case.begun, "s", half.about, begun, False)


def side_by_side(args, case):
    """Rounds per second of a run of one thread on each core, all at once: what the machine can give."""
    cores = sorted(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(len(cores)) as pool:
        runs = pool.map(lambda core: Run(args, case, case.rounds, 1, core=core), cores)
        return sum(1 / run.round for run in runs)


def alone(args, table, case):
    """fedge by itself, on one core: training on random floats in a cache, training on the case's data as one client's,
    and simulating. Then what the other cores give, to one run and to one of their own."""
    one, many, apart, simulated, trainer, training = [], [], [], [], [], []
    half = Half(["taskset", "-c", str(args.core), args.train, case.zoo, str(case.batch)])
    half.turn(args.seconds / 4)
    steps = max(case.rounds * case.examples // case.batch, 2)
    alone_jobs = [case.write(f"{count}-steps", dict(case.job, update=PLAIN, rounds=ONE_CLIENT,
                                                    training=dict(case.job["training"], **{"local-steps": count})))
                  for count in (1, steps)]
    for _ in range(args.turns):
        training.append(half.turn(args.seconds)[0])
        short, long = (Run(args, case, 1, 1, job=job, clients=1, core=args.core) for job in alone_jobs)
        trainer.append((steps - 1) * case.batch / (long.cpu - short.cpu))
        short, long = (Run(args, case, rounds, 1, core=args.core) for rounds in (1, case.rounds + 1))
        simulated.append((long.examples - short.examples) / (long.cpu - short.cpu))
        one.append(Run(args, case, case.rounds, 1, core=args.core).round)
        many.append(Run(args, case, case.rounds, args.cores).round)
        apart.append(side_by_side(args, case))
    half.close()
    per_core = case.title + ": samples, one thread's CPU time"
    if min(*simulated, *trainer) > 0:  # of turns so short that noise is longer nothing can be said
        table.row(per_core, median(simulated), "samples/s", "training alone", median(training))
        table.row(per_core, median(simulated), "samples/s", "one client's training", median(trainer))
    for other, rate in (("one thread", 1 / median(one)), (f"{args.cores} runs side by side", median(apart))):
        table.row(f"{case.title}: rounds, {args.cores} threads", 1 / median(many), "rounds/s", other, rate)


def with_codecs(args, table, case):
    for name, (update, options) in UPDATES.items():
        path = case.write("codec", dict(case.job, update=update))
        pairs = [(Run(args, case, case.rounds, args.cores, job=path, options=options).round,
                  Run(args, case, case.rounds, args.cores).round) for _ in range(args.turns)]
        mine, plain = (1 / median(side) for side in zip(*pairs))
        table.row(f"{case.title}: rounds, {name}", mine, "rounds/s", "codec none", plain)


def in_all(args, table, case):
    """From the start of the process to its end."""
    runs = [Run(args, case, WHOLE_RUN, args.cores) for _ in range(args.turns)]
    table.row(f"{case.title}: {WHOLE_RUN} rounds", median([run.seconds for run in runs]), "s")
    table.row(f"{case.title}: {WHOLE_RUN} rounds, in all", median([run.wall for run in runs]), "s")


def measure(args, table, case):
    first = Run(args, case, 1, args.cores)
    case.begun, case.examples = first.wall, first.examples
    case.rounds = as_many(args, first.round)
    case.rounds = as_many(args, Run(args, case, case.rounds, args.cores).round)
    run = Run(args, case, case.rounds, args.cores)
    case.memory = run.memory
    parts = args.quick and QUICK.get(case.name) or ("in all", "alone", "codecs", *PEERS)
    if "in all" in parts and case.name == "logistic":
        in_all(args, table, case)
    if "alone" in parts:
        alone(args, table, case)
    if "codecs" in parts:
        with_codecs(args, table, case)
    for name, script in PEERS.items():
        python = getattr(args, name.lower())
        if python and name in parts:
            against_peer(args, table, case, python, script)
        else:
            table.row(case.title + ": rounds", 1 / run.round, "rounds/s",
                      f"{name}: not measured" if python else f"{name}: not found")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedge", required=True)
    parser.add_argument("--train", required=True)
    parser.add_argument("--pytorch", default="")
    parser.add_argument("--flower", default="")
    parser.add_argument("--turns", type=int)
    parser.add_argument("--seconds", type=float, help="of a turn")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    for name in args.cases:
        if name not in CASES:
            parser.error(f"there is no case {name}; there are {', '.join(CASES)}")
    turns, seconds = (3, 0.3) if args.quick else (5, 1)
    args.turns, args.seconds = args.turns or turns, args.seconds or seconds
    args.cores, args.core = len(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    table = Table(args.json)
    for name in args.cases or (QUICK if args.quick else CASES):
        note(f"{name}, load average {load_average()}, {args.cores} cores")
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fedge-simulate-") as folder:
            measure(args, table, Case(args, folder, name))
        note(f"{name}: {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
