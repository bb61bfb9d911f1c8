"""The exchange of federation.sh, by Flower: random tensors between one server and a few clients, one process each,
over TLS on loopback. Prints one line of JSON.

    python3 -m venv ENV && ENV/bin/pip install flwr numpy
    ENV/bin/python tests/bench/peers/flower_exchange.py --parameters 50000000 --clients 6 --rounds 4 [--repeated]

Each client adds to every value a random amount, another in each round and on each client, as bench_exchange_fedge
does; with --repeated all clients return what they were given, which Flower, knowing the content, does not send again.
With --torch a client trains one step of a Linear layer of PyTorch, for tests/bench/python.sh; --idle measures a client that
waits and runs nothing.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

APP = '''
import os
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()


def train_linear(message):
    """As python_compare.py's TINY."""
    import torch
    torch.set_num_threads(1)
    model = torch.nn.Linear(12, 4)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = torch.randn(64, 12), torch.randint(0, 4, (64,))
    opt = torch.optim.SGD(model.parameters(), lr=message.content["config"]["lr"])
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    metrics = MetricRecord({"num-examples": len(x), "loss": loss.item()})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@client.train()
def train(message: Message, context: Context):
    arrays = message.content["arrays"].to_numpy_ndarrays()
    if context.run_config["torch"]:
        return train_linear(message)
    if not context.run_config["repeated"]:
        seed = [context.node_id % 2**32, time.monotonic_ns()]
        words = np.random.Generator(np.random.SFC64(seed)).integers(-2**31, 2**31, arrays[0].size, np.int32)
        arrays = [arrays[0] + words.astype(np.float32) * np.float32(2**-36)]
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})}),
                   reply_to=message)


class Timed(FedAvg):
    def aggregate_train(self, server_round, replies):
        result = super().aggregate_train(server_round, replies)
        with open(os.environ["EXCHANGE_TIMES"], "a", encoding="ascii") as file:
            print(time.time(), file=file)
        return result


@server.main()
def main(grid: Grid, context: Context):
    config = context.run_config
    number = config["clients"]
    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=number, min_available_nodes=number)
    first = ArrayRecord([np.zeros(config["parameters"], np.float32)])
    if config["torch"]:
        import torch
        first = ArrayRecord(torch.nn.Linear(12, 4).state_dict())
    strategy.start(grid=grid, initial_arrays=first, num_rounds=config["rounds"], timeout=3600,
                   train_config=ConfigRecord({"lr": 0.1}))
'''

PROJECT = '''
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "exchange"
version = "1.0.0"
description = ""
license = "MIT"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "fedge"

[tool.flwr.app.components]
serverapp = "exchange_app:server"
clientapp = "exchange_app:client"

[tool.flwr.app.config]
parameters = {parameters}
clients = {clients}
rounds = {rounds}
repeated = {repeated}
torch = {torch}
'''

CONNECTION = '''
[superlink]
default = "local"

[superlink.local]
address = "127.0.0.1:{port}"
root-certificates = "{folder}/ca.pem"
'''


def make_certificates(folder):
    """A root, and the server's certificate for localhost and 127.0.0.1."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    with open(os.path.join(folder, "san.txt"), "w", encoding="ascii") as file:
        file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=root", "-days", "2")
    openssl("req", *key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial",
            "-out", "cert.pem", "-days", "2", "-extfile", "san.txt")


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def processes_below(pid):
    """This process and all it has started, as pid: (resident peak in bytes, CPU seconds, resident bytes)."""
    parents, found = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                words = file.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{name}/status", encoding="ascii") as file:
                sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if line[:5] in ("VmHWM", "VmRSS")}
        except OSError:
            continue
        parents[int(name)] = int(words[1])
        seconds = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        found[int(name)] = (sizes.get("VmHWM", 0), seconds, sizes.get("VmRSS", 0))

    def is_below(one):
        while one in parents and one != pid:
            one = parents[one]
        return one == pid
    return {one: figures for one, figures in found.items() if is_below(one)}


class Peak:
    """The most that a process and its children had resident together, and their CPU seconds."""

    def __init__(self, pid):
        self.pid, self.bytes, self.seconds = pid, 0, {}

    def look(self):
        below = processes_below(self.pid)
        self.bytes = max(self.bytes, sum(peak for peak, _, _ in below.values()))
        self.seconds.update({one: seconds for one, (_, seconds, _) in below.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=50_000_000)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeated", action="store_true")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--timeout-s", type=int, default=3600)
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="flower-exchange-")
    times = os.path.join(folder, "times.txt")
    environment = {**os.environ, "FLWR_HOME": os.path.join(folder, "home"), "EXCHANGE_TIMES": times,
                   "FLWR_TELEMETRY_ENABLED": "0",
                   "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    os.makedirs(environment["FLWR_HOME"])
    app = os.path.join(folder, "app")
    os.makedirs(app)
    make_certificates(folder)
    runtime, *clients = free_ports(1 + args.clients)
    for path, text in ((os.path.join(app, "exchange_app.py"), APP),
                       (os.path.join(app, "pyproject.toml"), PROJECT.format(
                           parameters=args.parameters, clients=args.clients, rounds=args.rounds,
                           repeated=str(args.repeated).lower(), torch=str(args.torch).lower())),
                       (os.path.join(environment["FLWR_HOME"], "config.toml"),
                        CONNECTION.format(port=runtime, folder=folder))):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    tls = ["--ssl-ca-certfile", f"{folder}/ca.pem", "--ssl-certfile", f"{folder}/cert.pem",
           "--ssl-keyfile", f"{folder}/key.pem"]
    started = []

    def start(name, *words):
        with open(os.path.join(folder, f"{name}.log"), "wb") as log:
            started.append(subprocess.Popen(words, env=environment, cwd=folder, stdout=log, stderr=log,
                                            start_new_session=True))
        return started[-1]

    try:
        link = start("link", "flower-superlink", *tls, "--disable-runtime-dependency-installation",
                     "--port", str(runtime))
        time.sleep(8)
        nodes = [start(f"node-{i}", "flower-supernode", "--root-certificates", f"{folder}/ca.pem", *tls,
                       "--superlink", f"127.0.0.1:{runtime}", "--port", str(port))
                 for i, port in enumerate(clients)]
        if args.idle:
            time.sleep(15)
            print(json.dumps({"idle_client_bytes": sum(now for _, _, now in processes_below(nodes[0].pid).values())}))
            return
        server, client = Peak(link.pid), Peak(nodes[0].pid)
        begin, at = time.time(), []
        start("run", "flwr", "run", app, "local")
        while len(at) < args.rounds and time.time() < begin + args.timeout_s:
            time.sleep(0.2)
            server.look()
            client.look()
            if os.path.exists(times):
                with open(times, encoding="ascii") as file:
                    at = [float(line) for line in file]
        if len(at) < args.rounds:
            for name in sorted(os.listdir(folder)):
                if name.endswith(".log"):
                    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                        print(f"--- {name}\n{file.read()[-3000:]}", file=sys.stderr)
            sys.exit("flower_exchange: the rounds did not end")
        print(json.dumps({
            "parameters": args.parameters, "clients": args.clients, "repeated": args.repeated,
            "round_s": (at[-1] - at[0]) / (args.rounds - 1), "server_peak_bytes": server.bytes,
            "client_peak_bytes": client.bytes, "server_cpu_s": sum(server.seconds.values()),
            "rounds": args.rounds}))
    finally:
        for one in started:
            try:
                os.killpg(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            one.wait()
        shutil.rmtree(folder, ignore_errors=True)


main()
