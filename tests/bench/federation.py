"""The measuring half of federation.sh. Programs, jobs and the light client come from tests/net."""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "net"))

# The first file of a large model takes longer than the answers that tests wait for.
os.environ.setdefault("FEDGE_NET_PATIENCE_S", "600")

import exchange  # noqa: E402 (the path is set above)
import harness  # noqa: E402
import peer  # noqa: E402
from processes import Spent, pss_bytes, status_bytes, thread_seconds  # noqa: E402
from rows import Rows, load_average, note  # noqa: E402

# As users have it where it is not said: one for each two CPUs.
harness.NETWORK_THREADS = os.environ.get("FEDGE_TEST_NETWORK_THREADS")

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
PARTS = ("train", "encode", "upload", "validate", "journal", "sum", "step", "evaluate")

# McMahan et al. 2017: two 5x5 convolutions with 32 and 64 channels, 512 units; 1,663,370 parameters.
MCMAHAN_UNITS = 512
SMALL_UNITS = 16  # of the same CNN: 102,458 parameters


def mcmahan_cnn(units=MCMAHAN_UNITS):
    return [
        {"type": "Conv2d", "in_channels": 1, "out_channels": 32, "kernel_size": 5, "padding": 2},
        {"type": "ReLU"}, {"type": "MaxPool2d", "kernel_size": 2},
        {"type": "Conv2d", "in_channels": 32, "out_channels": 64, "kernel_size": 5, "padding": 2},
        {"type": "ReLU"}, {"type": "MaxPool2d", "kernel_size": 2}, {"type": "Flatten"},
        {"type": "Linear", "in_features": 3136, "out_features": units}, {"type": "ReLU"},
        {"type": "Linear", "in_features": units, "out_features": 10}]


def mcmahan_parameters(units=MCMAHAN_UNITS):
    return 32 * 26 + 64 * 801 + units * 3137 + 10 * (units + 1)


class Output(Rows):
    def __init__(self, as_json):
        super().__init__(as_json, f"{'bench':12} {'case':46} {'value':>13} {'unit':14} {'peer':>13} {'ratio':>7}")

    def row(self, bench, case, value, unit, peer_name=None, peer_value=None, ratio=None):
        other = f"{peer_value:>13,.4g} {ratio:>7.2f}" if peer_value else ""
        number = f"{value:>13,}" if isinstance(value, int) else f"{value:>13,.4g}"
        self.put((bench, case, value, unit, peer_name, peer_value, ratio),
                 f"{bench:12} {case:46} {number} {unit:14} {other}")


# --- federations ---------------------------------------------------------------------------------------


class Images(harness.Federation):
    """A federation whose job learns 28 x 28 images: random ones, a few, as only costs count here."""

    def __init__(self, clients, codec, deflate, keys, available=None, units=MCMAHAN_UNITS):
        super().__init__(keys, clients)
        draw = random.Random(1)
        count = 4 * clients
        harness.write_npy(self.path("train-values.npy"), "|u1", (count, 1, 28, 28),
                          draw.randbytes(784 * count))
        harness.write_npy(self.path("train-labels.npy"), "|u1", (count,),
                          bytes(i % 10 for i in range(count)))
        job = harness.make_job(
            data={"name": "points", "shape": [1, 28, 28], "dtype": "u8", "labels": 10},
            model={"input-shape": [1, 28, 28], "layers": mcmahan_cnn(units)},
            training={"local-steps": 1, "batch-size": 1, "learning-rate": 0.01},
            update={"codec": codec, "deflate": deflate},
            rounds={"num-server-rounds": 100000, "min-train-nodes": clients,
                    "min-available-nodes": available or clients})
        del job["test-set"]
        self.write("job.json", job)

    def after_round(self, number):
        """Waits for the round's end, then says what the aggregator has spent so far."""
        self.aggregator.wait_event("round-closed", round=number, timeout_s=600)
        return (self.metric("fedge_bytes_received_total"), self.metric("fedge_bytes_sent_total"),
                thread_seconds(self.aggregator.pid))


def timestamp(event):
    text = event["time"].rstrip("Z")
    seconds, millis = text.split(".")
    return time.mktime(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) + int(millis) / 1000


def quickstart_job(rounds, clients):
    with open(os.path.join(ROOT, "examples", "quickstart", "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    job["rounds"].update({"num-server-rounds": rounds, "min-available-nodes": clients,
                          "min-train-nodes": clients})
    return job


def quickstart(rounds, clients, available=None):
    federation = harness.Federation(harness.shared_keys(8), clients)
    federation.write("job.json", quickstart_job(rounds, available or clients))
    with open(os.path.join(ROOT, "examples", "quickstart", "client.json"), encoding="utf-8") as file:
        federation.write("site.json", json.load(file))
    return federation


# --- rows ----------------------------------------------------------------------------------------------


def bench_round(out, quick):
    """The quickstart's rounds. The parts do not add up to the whole: clients train side by side,
    workers work while uploads arrive."""
    rounds, clients = (3, 8) if quick else (10, 8)
    note(f"round: the quickstart's job, {clients} clients, {rounds} rounds")
    federation = quickstart(rounds, clients)
    aggregator = federation.start_aggregator()
    client = federation.start_clients()[0]
    aggregator.wait_event("round-closed", round=rounds - 1, timeout_s=600)
    peak = status_bytes(client.pid, "VmHWM")[0]
    result = federation.complete(timeout_s=600)
    lines = federation.lines()
    opened = [timestamp(event) for event in aggregator.events("round-opened")]
    saved = aggregator.events("checkpoint-saved")
    # In the first round clients load their data.
    full = [after - before for before, after in zip(opened[1:], opened[2:])]
    case = f"quickstart, {clients} clients: "

    def median_row(name, values):
        out.row("round", case + name, round(statistics.median(values), 5), "s")

    median_row("round, from opening to the next's", full)
    median_row("round, from opening to the last report", [line["seconds"] for line in lines[1:]])
    for part in PARTS:
        median_row(part, [line[f"seconds_{part}"] for line in lines])
    median_row("checkpoint", [event["seconds"] for event in saved])
    out.row("round", case + f"accuracy after {rounds} rounds", round(result["accuracy"], 4), "share")
    out.row("round", case + "bytes up a round",
            int(statistics.median(line["bytes_up"] for line in lines)), "bytes")
    out.row("round", case + "bytes down a round",
            int(statistics.median(line["bytes_down"] for line in lines)), "bytes")
    out.row("round", case + "a client's peak memory, data included", peak, "bytes")
    federation.stop()


def bench_tiny(out, quick):
    """Rounds of a model that takes no time, where what is left is the way of messages and the disk."""
    rounds, warm_up, clients = (120 if quick else 420), 20, 8
    for where, folder in (("on the disk", None), ("in memory (/dev/shm)", "/dev/shm")):
        note(f"tiny: 276 parameters, {clients} clients, {rounds} rounds, {where}")
        tempfile.tempdir = folder
        federation = harness.Federation(harness.shared_keys(8), clients, rounds__num_server_rounds=100000,
                                        rounds__min_train_nodes=clients, rounds__min_available_nodes=clients)
        aggregator = federation.start_aggregator()
        federation.start_clients()
        at = []
        for number in (warm_up, rounds):
            aggregator.wait_event("round-closed", round=number, timeout_s=600)
            at.append(time.monotonic())
        federation.stop()
        out.row("tiny", f"a round, {clients} clients, {where}", round((at[1] - at[0]) / (rounds - warm_up), 5),
                "s", *(("mark", 0.015, round(0.015 * (rounds - warm_up) / (at[1] - at[0]), 2))
                       if folder is None else ()))
    tempfile.tempdir = None


def bench_cpu(out, quick):
    """What receiving costs, from the end of the first round to that of the last."""
    rounds, clients = (6, 4) if quick else (31, 8)
    for codec, deflate in (("none", False), ("int8", False), ("int8", True)):
        name = codec + (" + deflate" if deflate else "")
        note(f"cpu: {name}, {mcmahan_parameters():,} parameters, {clients} clients, {rounds} rounds")
        federation = Images(clients, codec, deflate, harness.shared_keys(8))
        federation.start_aggregator()
        federation.start_clients()
        first, last = federation.after_round(1), federation.after_round(rounds)
        federation.stop()
        up, down = last[0] - first[0], last[1] - first[1]
        spent = Spent(first[2], last[2])
        case = f"McMahan CNN, {name}: "
        gigabytes = up / 1e9
        out.row("cpu", case + "all", round(spent.all / gigabytes, 3), "CPU s/GB in")
        out.row("cpu", case + "connections, both ways", round(spent.connections / ((up + down) / 1e9), 3),
                "CPU s/GB")
        out.row("cpu", case + "messages and rounds", round(spent.engine / gigabytes, 3), "CPU s/GB in")
        out.row("cpu", case + "validate, journal, sum", round(spent.workers / gigabytes, 3), "CPU s/GB in")
        out.row("cpu", case + "the same, each update", round(
            spent.workers * 1e3 / (clients * (rounds - 1)), 3), "CPU ms")
        out.row("cpu", case + "step, model, checkpoint", round(spent.closing / (rounds - 1), 4), "CPU s/round")
        out.row("cpu", case + "bytes in for each byte out", round(up / down, 3), "ratio")


def importing_python(python):
    """Resident memory of a Python that has what a federated client needs, at the least."""
    code = ("import sys, ssl, asyncio, numpy, torch\n"
            "print('ready', flush=True)\nsys.stdin.read()")
    with subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        if process.stdout.readline() != "ready\n":
            return None
        resident = status_bytes(process.pid, "VmRSS")[0]
        process.stdin.close()
    return resident


def idle_client(out, case, federation, against):
    federation.start_aggregator()
    client = federation.start_client(0, num_partitions=8)
    harness.wait_until("the client", lambda: federation.metric("fedge_clients") == 1)
    time.sleep(2)  # the plan is loaded and memory taken for it; data comes with the first task
    resident, data = status_bytes(client.pid, "VmRSS", "RssAnon")
    out.row("client", f"idle, {case}: resident", resident, "bytes",
            "python with torch imported" if against else None, against,
            round(against / resident, 2) if against else None)
    out.row("client", f"idle, {case}: proportional (PSS)", pss_bytes(client.pid), "bytes")
    out.row("client", f"idle, {case}: resident, its own", data, "bytes")
    federation.stop()


def bench_client(out, _quick, python):
    note("client: size stripped, memory while it waits for a round")
    program = os.path.join(harness.BIN, "fedge-client")
    stripped = os.path.join(harness.make_folder(), "fedge-client")
    subprocess.run(["strip", "-o", stripped, program], check=True)
    out.row("client", "program, stripped", os.path.getsize(stripped), "bytes")
    against = importing_python(python) if python else None
    keys = harness.shared_keys(8)
    small = harness.Federation(keys, 8)
    idle_client(out, "small MLP (276 parameters)", small, against)
    idle_client(out, "quickstart's CNN (56,714 parameters)", quickstart(1, 8), against)
    idle_client(out, "McMahan CNN (1,663,370 parameters)", Images(8, "none", False, keys), against)


def memory_of(out, clients, units, rounds):
    """The most that an aggregator had in memory over some rounds with codec none."""
    parameters = mcmahan_parameters(units)
    note(f"memory: {clients} clients, {parameters:,} parameters, {rounds} rounds")
    federation = Images(clients, "none", False, harness.make_keys(
        os.path.join(harness.make_folder(), "keys"), clients), units=units)
    federation.start_aggregator("--workers", "2")
    before = status_bytes(federation.aggregator.pid, "VmRSS")[0]
    federation.start_clients()
    federation.after_round(rounds)
    peak, now = status_bytes(federation.aggregator.pid, "VmHWM", "VmRSS")
    federation.stop()
    case = f"{parameters:,} parameters, none, {clients} clients: "
    out.row("memory", case + "before the first client", before, "bytes")
    out.row("memory", case + "peak (VmHWM)", peak, "bytes")
    out.row("memory", case + "after a round (VmRSS)", now, "bytes")
    return peak


def bench_memory(out, quick):
    """The aggregator's memory must follow the model and the connections, not the updates."""
    rounds = 2 if quick else 5
    few, many = 8, 64
    small = memory_of(out, few, SMALL_UNITS, rounds)
    grown = memory_of(out, many, SMALL_UNITS, rounds) - small
    out.row("memory", f"small model, peak, for each client from {few} to {many}", int(grown / (many - few)), "bytes")
    many = 16 if quick else 64
    base = memory_of(out, few, MCMAHAN_UNITS, rounds)
    more = (memory_of(out, many, MCMAHAN_UNITS, rounds) - base) / (many - few)
    update = 4 * mcmahan_parameters()
    out.row("memory", f"peak, for each client from {few} to {many}", int(more), "bytes",
            *(("one update of that model", update, round(update / more, 1)) if more > 0 else ()))
    # What comes with the model, without the program, its connections and what is as large for any model.
    units = 8 * MCMAHAN_UNITS
    grown = memory_of(out, few, units, rounds) - base
    each = grown / (mcmahan_parameters(units) - mcmahan_parameters())
    out.row("memory", "peak, for each parameter of a larger model", round(each, 1), "bytes", "mark", 20,
            round(20 / each, 2))


class Beat(threading.Thread):
    """Says on every connection, every 15 s, that its device is alive."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peers, self.ended = [], threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(15):
            for one in list(self.peers):
                try:
                    one.send_message(b"f", peer.PONG)
                except peer.Closed:
                    pass

    def stop(self):
        self.ended.set()
        self.join()


def connect_many(federation, count, beat, resume=None):
    """So many devices, eight at a time, each with its HELLO said: the connections, and the seconds of each."""
    times = [0.0] * count
    beat.peers.clear()

    def connect(index):
        start = time.monotonic()
        one = peer.Peer(federation, index, resume=resume[index] if resume else None)
        times[index] = time.monotonic() - start
        one.hello()
        beat.peers.append(one)
        return one

    with ThreadPoolExecutor(8) as pool:
        peers = list(pool.map(connect, range(count)))
    harness.wait_until("all of them", lambda: federation.metric("fedge_clients") == count)
    return peers, times


def close_many(federation, beat):
    peers = list(beat.peers)
    beat.peers.clear()
    for one in peers:
        one.close()
    harness.wait_until("their end", lambda: federation.metric("fedge_connections") == 0)


def bench_connections(out, quick):
    """Handshakes by one Python client, eight at a time; all idle; all back, with tickets and without; all back
    after the aggregator was killed, likewise."""
    count = int(os.environ.get("FEDGE_BENCH_CONNECTIONS", "1000" if quick else "10000"))
    note(f"connections: {count} devices, one idle connection each")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    keys = harness.make_keys(os.path.join(harness.make_folder(), "keys"), count)
    note("connections: keys are made")
    federation = harness.Federation(keys, 3, rounds__min_available_nodes=count + 1)
    federation.start_aggregator("--max-per-address", "65536", "--log-level", "warn")
    pid = federation.aggregator.pid
    with peer.Peer(federation, 0) as first:  # what is taken once, by the first connection
        first.hello()
    harness.wait_until("its end", lambda: federation.metric("fedge_connections") == 0)
    memory = status_bytes(pid, "VmRSS")[0]

    beat = Beat()

    def measured(name, resume=None):
        """Has them all connect, and says what it took."""
        pid = federation.aggregator.pid
        spent, start = sum(thread_seconds(pid).values()), time.monotonic()
        peers, times = connect_many(federation, count, beat, resume)
        taken = time.monotonic() - start
        cost = (sum(thread_seconds(pid).values()) - spent) / count
        if resume:
            assert all(one.resumed for one in peers)
        out.row("connections", f"{name}: aggregator's CPU, each", round(cost * 1e3, 3), "ms")
        out.row("connections", f"{name}: all {count}", round(taken, 2), "s")
        return peers, times

    peers, times = measured("TLS, upgrade and HELLO")
    out.row("connections", "TLS and upgrade, Python client, median", round(
        statistics.median(times) * 1e3, 2), "ms")
    each = (status_bytes(pid, "VmRSS")[0] - memory) / count
    seconds = 2 if quick else 40
    idle = sum(thread_seconds(pid).values())
    time.sleep(seconds)
    idle = (sum(thread_seconds(pid).values()) - idle) / seconds
    out.row("connections", f"idle, {count} of them: resident, each", int(each), "bytes", "mark", 32768,
            round(32768 / each, 2))
    out.row("connections", f"idle, {count} of them: CPU of a core", round(idle, 5), "share")
    close_many(federation, beat)
    peers, _ = measured("back")
    close_many(federation, beat)
    sessions, _ = measured("back, with tickets", peers)
    for name, tickets in (("back after a crash, with tickets", True), ("back after a crash", False)):
        federation.aggregator.kill()
        for one in beat.peers:
            one.close()
        federation.start_aggregator("--max-per-address", "65536", "--log-level", "warn")
        sessions, _ = measured(name, sessions if tickets else None)
    beat.stop()
    federation.stop()


FLOODER = """
import os, select, socket, ssl, sys
port, trust = int(sys.argv[1]), sys.argv[2]
context = ssl.create_default_context(cafile=trust)
context.set_ecdh_curve("prime256v1")  # or the server would only ask for that key
out = ssl.MemoryBIO()
try:
    context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
except ssl.SSLWantReadError:
    hello = out.read()
poll, open_now, number, answered = select.epoll(), {}, 0, 0
while True:
    while len(open_now) < 64:
        one = socket.socket()
        one.bind((f"127.0.0.{2 + number % 250}", 0))
        one.connect(("127.0.0.1", port))
        one.sendall(hello)
        number += 1
        open_now[one.fileno()] = one
        poll.register(one, select.EPOLLIN)
    for file, _ in poll.poll():
        one = open_now.pop(file)
        try:
            answered += bool(one.recv(65536))
        except ConnectionError:
            pass
        one.close()
    if number % 64 == 0:
        print(answered, flush=True)
"""


class Flood:
    """Handshakes without end from 250 addresses, none of which shows a certificate. One costs the flooder
    next to nothing: its half is always the same."""

    def __init__(self, federation):
        trust = os.path.join(f"{federation.keys}/trust", sorted(os.listdir(f"{federation.keys}/trust"))[0])
        self.log = federation.path("flood.txt")
        with open(self.log, "w", encoding="ascii") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", FLOODER, str(federation.port), trust], stdout=file)

    def answered(self):
        with open(self.log, encoding="ascii") as file:
            lines = file.read().split("\n")
        return int(lines[-2]) if len(lines) > 1 else 0

    def stop(self):
        self.process.kill()
        self.process.wait()


def bench_flood(out, quick):
    """What handshakes without certificates take from devices that are connected: rounds of the quickstart's
    model, and of a tiny one, in which messages are all that counts. In turn, as other work comes and goes."""
    clients, rounds, turns = 8, (3 if quick else 10), 2
    for name, make, rounds in (
            ("tiny model", lambda: harness.Federation(
                harness.shared_keys(8), clients, rounds__num_server_rounds=100000,
                rounds__min_train_nodes=clients, rounds__min_available_nodes=clients), 40 * rounds),
            ("quickstart", lambda: quickstart(100000, clients), rounds)):
        note(f"flood: {name}, {clients} clients, {turns} times {rounds} rounds with and without")
        federation = make()
        aggregator = federation.start_aggregator()
        federation.start_clients()
        seconds, done, rates = {False: 0, True: 0}, 2, []
        aggregator.wait_event("round-closed", round=done, timeout_s=600)
        for flooded in turns * (False, True):
            flood = Flood(federation) if flooded else None
            time.sleep(2)
            done = max(line["round"] for line in federation.lines()) + 1
            aggregator.wait_event("round-closed", round=done, timeout_s=600)
            start, before = time.monotonic(), flood.answered() if flood else 0
            aggregator.wait_event("round-closed", round=done + rounds, timeout_s=600)
            taken = time.monotonic() - start
            seconds[flooded] += taken / (turns * rounds)
            if flood:
                rates.append((flood.answered() - before) / taken)
                flood.stop()
        federation.stop()
        out.row("flood", f"{name}: a round", round(seconds[False], 5), "s")
        out.row("flood", f"{name}: a round, flooded", round(seconds[True], 5), "s", "without",
                round(seconds[False], 5), round(seconds[False] / seconds[True], 3))
        out.row("flood", f"{name}: handshakes answered", round(statistics.mean(rates), 1), "1/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("rows", nargs="*")
    args = parser.parse_args()
    benches = {"round": bench_round, "tiny": bench_tiny, "cpu": bench_cpu,
               "client": lambda out, quick: bench_client(out, quick, args.python),
               "memory": bench_memory, "exchange": exchange.bench_exchange, "profile": exchange.bench_profile,
               "threads": exchange.bench_threads, "ranks": exchange.bench_ranks,
               "connections": bench_connections,
               "flood": bench_flood}
    note(f"load average before: {load_average()}, {os.cpu_count()} cores")
    out = Output(args.json)
    for name in args.rows or benches:
        start = time.monotonic()
        benches[name](out, args.quick)
        note(f"{name}: {time.monotonic() - start:.1f} s")


main()
