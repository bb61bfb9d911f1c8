"""The rows of federation.sh in which clients only move bytes: an external model that they change at random."""

import json
import os
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time

import harness
import peer
import ranks
import sampling
from processes import Spent, status_bytes, thread_seconds, written_bytes
from rows import load_average, note


def write_model(path, parameters):
    """Safetensors of one tensor of random values from 0.5 to 1 and their negatives. No part of it comes twice, as
    a client would fetch that once."""
    block = 1 << 18
    keep, add = (int.from_bytes(word * block, "little") for word in (b"\xff\xff\x7f\x80", b"\x00\x00\x00\x3f"))
    draw, left = random.Random(1), 4 * parameters
    head = json.dumps({"w": {"dtype": "F32", "shape": [parameters], "data_offsets": [0, left]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        while left > 0:
            values = (draw.getrandbits(32 * block) & keep | add).to_bytes(4 * block, "little")
            left -= file.write(values[:left])


class Exchange(harness.Federation):
    """A federation that only moves bytes: clients change each value of an external model at random. [started]: from
    a model in a file, which clients cannot make themselves, so that the first round sends it too."""

    def __init__(self, clients, parameters, codec, deflate, started=False):
        harness.Federation.__init__(self, harness.shared_keys(8), clients)
        if started:
            write_model(self.path("start.safetensors"), parameters)
        self.write("job.json", {
            "fedge-job": 1, "name": "exchange", "seed": 1,
            "model": {"type": "external", "tensors": [{"name": "w", "shape": [parameters]}]},
            "training": {"local-epochs": 1, "batch-size": 1, "learning-rate": 1},
            "rounds": {"num-server-rounds": 100000, "min-available-nodes": clients,
                       "min-train-nodes": clients, "round-deadline-s": 3600},
            "strategy": {"type": "FedAvg"}, "update": {"codec": codec, "deflate": deflate}, "min-free-disk": 0,
            **({"initial-model": "start.safetensors"} if started else {})})

    def start_trainer(self, index):
        client = harness.Program(
            f"client-{index}", ["bench_exchange_fedge", f"wss://127.0.0.1:{self.port}",
                                f"{self.keys}/clients/{index:04}", f"{self.keys}/trust",
                                self.path(f"client-{index}"), index], self.folder)
        self.seen.append(client)
        return client

    def stop(self):
        """Its files, which are of gigabytes, go at once."""
        super().stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def exchange(out, parameters, codec, deflate, clients, rounds):
    name = codec + (" + deflate" if deflate else "")
    note(f"exchange: {clients} clients, {parameters:,} parameters, {name}, {rounds} rounds")
    federation = Exchange(clients, parameters, codec, deflate)
    aggregator = federation.start_aggregator()
    before = status_bytes(aggregator.pid, "VmRSS")[0]
    trainers = [federation.start_trainer(index) for index in range(clients)]
    state = []
    for number in (1, rounds):
        aggregator.wait_event("round-closed", round=number, timeout_s=3600)
        state.append((federation.metric("fedge_bytes_received_total"),
                      federation.metric("fedge_bytes_sent_total"), thread_seconds(aggregator.pid),
                      time.monotonic(), [written_bytes(program.pid) for program in (aggregator, *trainers)]))
    peak, resident = status_bytes(aggregator.pid, "VmHWM", "VmRSS")
    theirs = max(status_bytes(client.pid, "VmHWM")[0] for client in trainers)
    federation.stop()
    (up0, down0, threads0, at0, written0), (up1, down1, threads1, at1, written1) = state
    written = [(last - first) // (rounds - 1) for first, last in zip(written0, written1)]
    spent, gigabytes = Spent(threads0, threads1), (up1 - up0) / 1e9
    case = f"{clients} clients, {parameters:,} parameters, {name}: "
    out.row("exchange", case + "a round", round((at1 - at0) / (rounds - 1), 2), "s")
    out.row("exchange", case + "both ways", round(
        (up1 - up0 + down1 - down0) / 1e9 / (at1 - at0), 3), "GB/s")
    exchange_costs(out, case, parameters, (spent, gigabytes), (before, peak, resident, theirs), written)


def exchange_costs(out, case, parameters, cpu, memory, written):
    """The rows that say what moving an update has cost both sides; written: by the aggregator, then by clients."""
    spent, gigabytes = cpu
    before, peak, resident, theirs = memory
    for name in ("all", "connections", "engine", "workers", "closing"):
        out.row("exchange", case + name, round(getattr(spent, name) / gigabytes, 3), "CPU s/GB in")
    out.row("exchange", case + "aggregator before the first client", before, "bytes")
    out.row("exchange", case + "aggregator, peak (VmHWM)", peak, "bytes")
    out.row("exchange", case + "the same, each parameter", round(peak / parameters, 1), "bytes")
    out.row("exchange", case + "aggregator after a round (VmRSS)", resident, "bytes")
    out.row("exchange", case + "a client, peak", theirs, "bytes")
    out.row("exchange", case + "the same, each parameter", round(theirs / parameters, 1), "bytes")
    out.row("exchange", case + "aggregator, written in a round", written[0], "bytes")
    out.row("exchange", case + "a client, written in a round, the most", max(written[1:]), "bytes")


def demand_room(clients, parameters):
    """Ends, before anything is written, where one client at a time does not fit beside the aggregator."""
    # By the rows of smaller models. On the disk: two models and the clients' updates, a client's model and update.
    needs = 25 * parameters + 2 ** 28, 4 * (clients + 4) * parameters + 2 ** 28
    folder = tempfile.gettempdir()
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    has = free, shutil.disk_usage(folder).free
    told = [f"{memory / 1e9:.1f} GB of memory and {disk / 1e9:.1f} GB in {folder} (TMPDIR)"
            for memory, disk in (needs, has)]
    note(f"exchange: needs {told[0]}")
    if any(one > other for one, other in zip(needs, has)):
        sys.exit(f"exchange: {parameters:,} parameters need {told[0]}; free are {told[1]}")


def exchange_one_at_a_time(out, parameters, clients):
    """A round of clients of which one is there at a time. A round asks those who are connected as it opens, and who
    loses the connection keeps the task: connections without a client open it, and each client comes for its task."""
    note(f"exchange: {clients} clients one after another, {parameters:,} parameters, none, one round")
    demand_room(clients, parameters)
    federation = Exchange(clients, parameters, "none", False, started=True)
    aggregator = federation.start_aggregator()
    os.unlink(federation.path("start.safetensors"))  # the run has it as its first checkpoint
    before = status_bytes(aggregator.pid, "VmRSS")[0]
    openers = [peer.Peer(federation, index) for index in range(clients)]
    for opener in openers:
        opener.hello()
    aggregator.wait_event("round-opened", round=1, timeout_s=3600)
    for opener in openers:
        opener.close()
    harness.wait_until("their end", lambda: federation.metric("fedge_connections") == 0)
    names = "fedge_bytes_received_total", "fedge_bytes_sent_total"
    moved, threads = [federation.metric(name) for name in names], thread_seconds(aggregator.pid)
    written, own, theirs, start = [written_bytes(aggregator.pid)], [], [], time.monotonic()
    for index in range(clients):
        began = time.monotonic()
        trainer = federation.start_trainer(index)
        trainer.wait_event("accepted", timeout_s=3600)
        own.append(time.monotonic() - began)
        theirs.append(status_bytes(trainer.pid, "VmHWM")[0])
        written.append(written_bytes(trainer.pid))
        trainer.kill()
        shutil.rmtree(federation.path(f"client-{index}"))
        note(f"client {index}: {own[-1]:.1f} s, load average {load_average()}")
    aggregator.wait_event("round-closed", round=1, timeout_s=3600)
    seconds, spent = time.monotonic() - start, Spent(threads, thread_seconds(aggregator.pid))
    moved = [federation.metric(name) - earlier for name, earlier in zip(names, moved)]
    aggregator.wait_event("checkpoint-saved", round=1, timeout_s=3600)
    written[0] = written_bytes(aggregator.pid) - written[0]
    memory = (before, *status_bytes(aggregator.pid, "VmHWM", "VmRSS"), max(theirs))
    federation.stop()
    case = f"{clients} clients one after another, {parameters:,} parameters, none: "
    out.row("exchange", case + "the first's start to the round's end", round(seconds, 2), "s")
    out.row("exchange", case + "from start to acknowledgement, all clients' together", round(sum(own), 2), "s")
    out.row("exchange", case + "received", int(moved[0]), "bytes")
    out.row("exchange", case + "sent", int(moved[1]), "bytes")
    out.row("exchange", case + "aggregator", round(spent.all, 2), "CPU s")
    exchange_costs(out, case, parameters, (spent, moved[0] / 1e9), memory, written)


def bench_exchange(out, quick):
    """Large models: rounds, bytes a second, and the memory of both sides."""
    parameters = int(os.environ.get("FEDGE_BENCH_PARAMETERS", 5_000_000 if quick else 50_000_000))
    if os.environ.get("FEDGE_BENCH_ONE_AT_A_TIME"):
        exchange_one_at_a_time(out, parameters, 6)
        return
    for codec, deflate in (("none", False), ("none", True), ("int8", False)):
        exchange(out, parameters, codec, deflate, 6, 4)


def bench_profile(out, quick):
    """The share of the aggregator's CPU time that each of its threads spends in each part, of 0.5 % and more."""
    if not sampling.available():
        note("profile: left out, as Linux's perf is not there or may not sample (kernel.perf_event_paranoid)")
        return
    parameters, clients, rounds = 5_000_000 if quick else 50_000_000, 4, 9
    for codec in ("none", "int8"):
        federation = Exchange(clients, parameters, codec, False)
        aggregator = federation.start_aggregator()
        for index in range(clients):
            federation.start_trainer(index)
        aggregator.wait_event("round-closed", round=1, timeout_s=3600)
        profile = sampling.Profile(aggregator.pid, federation.folder)
        up, threads = federation.metric("fedge_bytes_received_total"), thread_seconds(aggregator.pid)
        aggregator.wait_event("round-closed", round=rounds, timeout_s=3600)
        up = federation.metric("fedge_bytes_received_total") - up
        spent = Spent(threads, thread_seconds(aggregator.pid))
        shares = profile.stop()
        federation.stop()
        case = f"{parameters:,} parameters, {codec}: "
        out.row("profile", case + "all", round(spent.all / (up / 1e9), 3), "CPU s/GB in")
        for thread, part, share in shares:
            if share >= 0.005:
                thread = "network" if thread.startswith("fedge-agg") else thread
                out.row("profile", case + f"{thread}, {part}", round(100 * share, 1), "%")


class ExchangeOnRanks(Exchange, ranks.Ranks):
    """The same, its clients spread over the ranks of one aggregator."""

    def __init__(self, number, clients, parameters):
        Exchange.__init__(self, clients, parameters, "none", False)
        self.use(number)

    def start_trainer(self, index):
        first = self.port
        self.port = first + 2 * (index % self.ranks)
        client = super().start_trainer(index)
        self.port = first
        return client

    def stop(self):
        """In order: ranks outlive an mpirun that is killed."""
        self.aggregator.stop()
        super().stop()


def upload_on(number, clients, parameters, rounds):
    """GB/s that one aggregator receives on so many ranks, and of each rank CPU s/GB in all and between ranks."""
    federation = ExchangeOnRanks(number, clients, parameters)
    aggregator = federation.start_aggregator()
    for index in range(clients):
        federation.start_trainer(index)
    state = []
    for closed in (1, rounds):
        aggregator.wait_event("round-closed", round=closed, timeout_s=3600)
        state.append((federation.metric("fedge_bytes_received_total"), time.monotonic(),
                      [thread_seconds(federation.pid_of(rank)) for rank in range(number)]))
    federation.stop()
    (up0, at0, spent0), (up1, at1, spent1) = state
    gigabytes = (up1 - up0) / 1e9
    return (gigabytes / (at1 - at0),
            *(value / gigabytes for first, last in zip(spent0, spent1)
              for value in (Spent(first, last).all, last.get("ranks", 0) - first.get("ranks", 0))))


def in_turn(what, measure, quick):
    """What measure(1 or 2 of them, …) gives, a speed first, taken in turn: of each the number, a name, and medians."""
    parameters, clients, rounds, turns = (2_000_000, 6, 6, 5) if quick else (20_000_000, 6, 4, 7)
    note(f"{what}: {clients} clients, {parameters:,} parameters, none, {rounds} rounds, {turns} turns")
    runs = {1: [], 2: []}
    for _ in range(turns):
        for number, of in runs.items():
            of.append(measure(number, clients, parameters, rounds))
        note(f"load average {load_average()}: {runs[1][-1][0]:.3f} GB/s, {runs[2][-1][0]:.3f} GB/s")
    return [(number, f"{number} {what}, {clients} clients, {parameters:,} parameters, none: ",
             [round(statistics.median(values), 3) for values in zip(*of)]) for number, of in runs.items()]


def beside_one(cases, number, name):
    """The columns of a row of speeds that say how it is with one of them."""
    (_, _, (one, *_)), (_, _, (two, *_)) = cases
    return (name, one, round(two / one, 2)) if number > 1 else ()


def bench_ranks(out, quick):
    """Uploads to one aggregator on one and two ranks: bytes a second, and the CPU of each rank."""
    cases = in_turn("ranks", upload_on, quick)
    for number, case, (speed, *cpu) in cases:
        out.row("ranks", case + "received", speed, "GB/s", *beside_one(cases, number, "1 rank"))
        for rank in range(number):
            out.row("ranks", case + f"rank {rank}", cpu[2 * rank], "CPU s/GB in")
            out.row("ranks", case + f"rank {rank}, of it between ranks", cpu[2 * rank + 1], "CPU s/GB in")


def moved_on(threads, clients, parameters, rounds):
    """GB/s both ways on so many network threads, and CPU s/GB of the connections."""
    federation = Exchange(clients, parameters, "none", False)
    aggregator = federation.start_aggregator(network_threads=threads)
    for index in range(clients):
        federation.start_trainer(index)
    state = []
    for closed in (1, rounds):
        aggregator.wait_event("round-closed", round=closed, timeout_s=3600)
        state.append((federation.metric("fedge_bytes_received_total") + federation.metric("fedge_bytes_sent_total"),
                      time.monotonic(), thread_seconds(aggregator.pid)))
    federation.stop()
    (bytes0, at0, spent0), (bytes1, at1, spent1) = state
    gigabytes = (bytes1 - bytes0) / 1e9
    return gigabytes / (at1 - at0), Spent(spent0, spent1).connections / gigabytes


def bench_threads(out, quick):
    """The exchange on one and two network threads: bytes a second both ways, and the CPU of connections."""
    cases = in_turn("network threads", moved_on, quick)
    for number, case, (speed, cpu) in cases:
        out.row("threads", case + "both ways", speed, "GB/s", *beside_one(cases, number, "1 thread"))
        out.row("threads", case + "connections", cpu, "CPU s/GB")
