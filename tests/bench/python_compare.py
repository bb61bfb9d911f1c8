"""The measuring half of python.sh. Federations come from tests/net; both sides of a ratio run in turn."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "net"))
os.environ.setdefault("FEDGE_NET_PATIENCE_S", "600")

import exchange  # noqa: E402 (the path is set above)
import harness  # noqa: E402
from processes import status_bytes, thread_seconds  # noqa: E402
from rows import Rows, load_average, note  # noqa: E402

PEERS = os.path.join(ROOT, "tests", "bench", "peers")
PACKAGE = os.path.join(os.environ["FEDGE_BINARY_DIR"], "python")

# As bench_exchange_fedge: every value gets a little and random amount.
EXCHANGE = """
import sys
import numpy as np, fedge
server, identity, trust, state, seed = sys.argv[1:]
app = fedge.Client({"w": np.broadcast_to(np.float32(0), PARAMETERS)})
BLOCK = 1 << 18

@app.train
def train(model, task):
    draw, w = np.random.Generator(np.random.SFC64([int(seed), task.round])), model["w"]
    for begin in range(0, len(w), BLOCK):
        part = w[begin:begin + BLOCK]
        part += draw.integers(-2**31, 2**31, len(part), np.int32) * np.float32(2**-36)
    return 1

app.run(server=server, config="site.json", identity=identity, trust=trust, state=state, log_json=True)
"""

TINY = """
import sys
import torch, fedge
server, identity, trust, state, seed = sys.argv[1:]
torch.set_num_threads(1)
model = torch.nn.Linear(12, 4)
app = fedge.Client(model)
x, y = torch.randn(64, 12), torch.randint(0, 4, (64,))

@app.train
def train(model, task):
    opt = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return len(x), {"loss": loss.item()}

app.run(server=server, config="site.json", identity=identity, trust=trust, state=state, log_json=True)
"""

# Both print the seconds of so many rounds, the start of processes not counted.
SIMULATED = """
import sys, time
import torch, fedge
torch.set_num_threads(1)
clients, processes, rounds = map(int, sys.argv[1:])
x, y = torch.randn(64, 12), torch.randint(0, 4, (64,))
app = fedge.Client(torch.nn.Linear(12, 4))

@app.train
def train(model, task):
    opt = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return len(x), {"loss": loss.item()}

def seconds(rounds):
    start = time.monotonic()
    fedge.simulate(app, "job.json", clients=clients, processes=processes, rounds=rounds, quiet=True)
    return time.monotonic() - start

print(seconds(rounds + 5) - seconds(5))
"""

FLOWER_SIMULATED = """
import logging, os, sys, time
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ.update({"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"})
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
clients, actors, rounds = map(int, sys.argv[1:])
client_app, server_app = ClientApp(), ServerApp()

@client_app.train()
def train(message, context):
    torch.set_num_threads(1)
    x, y = torch.randn(64, 12), torch.randint(0, 4, (64,))
    model = torch.nn.Linear(12, 4)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()),
                               "metrics": MetricRecord({"num-examples": len(x), "loss": loss.item()})}), reply_to=message)

@server_app.main()
def serve(grid, _context):
    arrays = ArrayRecord(torch.nn.Linear(12, 4).state_dict())
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    arrays = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1).arrays
    start = time.monotonic()
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds)
    print(time.monotonic() - start, file=answers, flush=True)

logging.getLogger("flwr").setLevel(logging.ERROR)
run_simulation(server_app, client_app, clients, backend_config={
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": actors, "log_to_driver": False}})
"""

IDLE_FLOWER = "import flwr, flwr.app, flwr.clientapp"
IDLE_FEDGE = "import fedge"
WAIT = "\nprint('ready', flush=True)\nsys.stdin.read()"


class Output(Rows):
    def __init__(self, as_json):
        super().__init__(as_json, f"{'case':58} {'value':>13} {'unit':8} {'peer':>13} {'ratio':>7}")

    def row(self, bench, case, value, unit, peer=None, peer_value=None):
        """Smaller values are better, but for rounds/s."""
        ratio = None
        if peer_value:
            ratio = round(value / peer_value if unit == "rounds/s" else peer_value / value, 3)
        other = f"{peer_value:>13,.4g} {ratio:>7.2f}" if peer_value else ""
        self.put((bench, case, value, unit, peer if peer_value else None, peer_value or None, ratio),
                 f"{case:58} {value:>13,.4g} {unit:8} {other}")


def start_python(federation, python, code, index):
    path = federation.path(f"client-{index}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(code)
    client = harness.Program(f"client-{index}", [
        shutil.which(python), "-B", path,
        f"wss://127.0.0.1:{federation.port}", f"{federation.keys}/clients/{index:04}", f"{federation.keys}/trust",
        federation.path(f"client-{index}"), index], federation.folder, {"PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"})
    federation.seen.append(client)
    return client


# --- memory ----------------------------------------------------------------------------------------------------------


def resident_of(python, code, environment=None):
    with subprocess.Popen([python, "-c", "import sys\n" + code + WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, env={**os.environ, **(environment or {})}) as process:
        assert process.stdout.readline() == "ready\n"
        resident = status_bytes(process.pid, "VmRSS")[0]
        process.stdin.close()
    return resident


def bench_memory(out, args):
    mine = resident_of(args.python, IDLE_FEDGE, {"PYTHONPATH": PACKAGE})
    theirs = resident_of(args.flower, IDLE_FLOWER) if args.flower else None
    out.row("memory", "imported, resident", mine, "bytes", "flwr", theirs)
    federation = exchange.Exchange(2, 100, "none", False)
    federation.write("site.json", {})
    federation.start_aggregator()
    client = start_python(federation, args.python, EXCHANGE.replace("PARAMETERS", "100"), 0)
    harness.wait_until("the client", lambda: federation.metric("fedge_clients") == 1)
    time.sleep(2)
    idle = status_bytes(client.pid, "VmRSS")[0]
    federation.stop()
    theirs = None
    if args.flower:
        done = subprocess.run([args.flower, os.path.join(PEERS, "flower_exchange.py"), "--parameters", "100",
                               "--clients", "1", "--rounds", "1", "--idle"], stdout=subprocess.PIPE, check=True)
        theirs = json.loads(done.stdout)["idle_client_bytes"]
    out.row("memory", "a client waiting for a round, resident", idle, "bytes", "flower-supernode", theirs)


# --- exchange --------------------------------------------------------------------------------------------------------


def exchange_of(args, parameters, rounds, in_python):
    """Seconds of a round, CPU seconds of the client in it, and its peak."""
    federation = exchange.Exchange(1, parameters, "none", False)
    federation.write("site.json", {})
    aggregator = federation.start_aggregator()
    client = (start_python(federation, args.python, EXCHANGE.replace("PARAMETERS", str(parameters)), 0) if in_python
              else federation.start_trainer(0))
    state = []
    for number in (1, rounds):
        aggregator.wait_event("round-closed", round=number, timeout_s=3600)
        state.append((time.monotonic(), sum(thread_seconds(client.pid).values())))
    peak = status_bytes(client.pid, "VmHWM")[0]
    federation.stop()
    return [(last - first) / (rounds - 1) for first, last in zip(*state)] + [peak]


def bench_exchange(out, args):
    parameters = int(os.environ.get("FEDGE_BENCH_PARAMETERS", 5_000_000 if args.quick else 50_000_000))
    rounds, repeats = (3, 1) if args.quick else (4, 3)
    mine, theirs = [], []
    for turn in range(repeats):
        note(f"exchange: {parameters:,} parameters, turn {turn + 1} of {repeats}, load {load_average()}")
        theirs.append(exchange_of(args, parameters, rounds, False))
        mine.append(exchange_of(args, parameters, rounds, True))
    for i, (name, unit) in enumerate((("a round", "s"), ("a round, the client's CPU", "CPU s"), ("the client's peak", "bytes"))):
        ours, c = (statistics.median(values[i] for values in side) for side in (mine, theirs))
        out.row("exchange", f"{parameters:,} parameters, NumPy: {name}", round(ours, 4), unit, "C client", round(c, 4))


# --- tiny ------------------------------------------------------------------------------------------------------------


def tiny_job(clients):
    job = harness.make_job(rounds={"num-server-rounds": 100000, "min-train-nodes": clients, "min-available-nodes": clients})
    job["model"] = {"type": "external", "tensors": [{"name": "weight", "shape": [4, 12]}, {"name": "bias", "shape": [4]}]}
    for key in ("test-set", "data"):
        job.pop(key, None)
    return job


def tiny_of(args, rounds, clients):
    """Rounds a second of a Linear layer."""
    federation = harness.Federation(harness.shared_keys(8), clients)
    federation.write("job.json", tiny_job(clients))
    federation.write("site.json", {})
    aggregator = federation.start_aggregator()
    for index in range(clients):
        start_python(federation, args.torch, TINY, index)
    at = []
    for number in (5, rounds + 5):
        aggregator.wait_event("round-closed", round=number, timeout_s=3600)
        at.append(time.monotonic())
    federation.stop()
    return rounds / (at[1] - at[0])


def flower_of(args, rounds, clients):
    done = subprocess.run([args.flower_torch, os.path.join(PEERS, "flower_exchange.py"), "--torch", "--parameters", "52",
                           "--clients", str(clients), "--rounds", str(rounds)], stdout=subprocess.PIPE, check=True)
    return 1 / json.loads(done.stdout)["round_s"]


def bench_tiny(out, args):
    clients = 2
    rounds, flower_rounds, repeats = (100, 3, 1) if args.quick else (300, 5, 3)
    mine, theirs = [], []
    for turn in range(repeats):
        note(f"tiny: {clients} clients, turn {turn + 1} of {repeats}, load {load_average()}")
        mine.append(tiny_of(args, rounds, clients))
        if args.flower_torch:
            theirs.append(flower_of(args, flower_rounds, clients))
        note(f"tiny: rounds/s so far: {mine} {theirs}")
    out.row("tiny", f"PyTorch's Linear(12, 4), {clients} clients, deployed", round(statistics.median(mine), 2), "rounds/s",
            "Flower", round(statistics.median(theirs), 4) if theirs else None)


def seconds_of(python, code, folder, *words, environment=None):
    done = subprocess.run([python, "-B", "-c", code, *map(str, words)], cwd=folder, stdout=subprocess.PIPE, check=True,
                          env={**os.environ, **(environment or {})})
    return float(done.stdout.split()[-1])


def bench_simulated(out, args):
    clients, processes = 10, 2
    rounds, flower_rounds, repeats = (200, 5, 1) if args.quick else (1000, 20, 3)
    folder = harness.make_folder()
    with open(os.path.join(folder, "job.json"), "w", encoding="utf-8") as file:
        json.dump(tiny_job(clients), file)
    path = {"PYTHONPATH": PACKAGE, "PATH": f"{harness.BIN}:{os.environ['PATH']}", "TMPDIR": folder}
    mine, theirs = [], []
    for turn in range(repeats):
        note(f"simulated: {clients} clients, {processes} processes, turn {turn + 1} of {repeats}, load {load_average()}")
        mine.append(rounds / seconds_of(args.torch, SIMULATED, folder, clients, processes, rounds, environment=path))
        if args.flower_ray:
            theirs.append(flower_rounds / seconds_of(args.flower_ray, FLOWER_SIMULATED, folder, clients, processes, flower_rounds))
        note(f"simulated: rounds/s so far: {mine} {theirs}")
    out.row("simulated", f"PyTorch's Linear(12, 4), {clients} clients, {processes} processes", round(statistics.median(mine), 2),
            "rounds/s", "Flower", round(statistics.median(theirs), 4) if theirs else None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    for name in ("python", "torch", "flower", "flower-torch", "flower-ray"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("rows", nargs="*", default=[])
    args = parser.parse_args()
    out = Output(args.json)
    benches = {"memory": bench_memory, "exchange": bench_exchange, "tiny": bench_tiny, "simulated": bench_simulated}
    for name, bench in benches.items():
        if not args.rows or name in args.rows:
            if name in ("tiny", "simulated") and not args.torch:
                note(f"{name}: left out, no Python has cffi, NumPy and PyTorch")
                continue
            bench(out, args)


if __name__ == "__main__":
    main()
