"""The same in Flower's simulation (Ray), a half of simulate.sh: flower_simulation.py CASE ACTORS

An actor per core, one CPU each; Flower's FedAvg and its loop. Answers like plain_pytorch.py, which see.
"""

import importlib.metadata
import logging
import os
import sys
import time

# Ray and Flower print to standard output, which here carries answers alone.
answers = os.fdopen(os.dup(1), "w", encoding="ascii")
os.dup2(2, 1)
os.environ.update({"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0",
                   "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"})

import torch  # noqa: E402 (after the environment that it reads)
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

import work  # noqa: E402

PATH, ACTORS = sys.argv[1], int(sys.argv[2])

client_app, server_app = ClientApp(), ServerApp()


def kept(path):
    """The case and a model, made once in each actor."""
    if not hasattr(work, "kept"):
        torch.set_num_threads(1)
        case = work.Case(path)
        work.kept = case, case.make_model()
    return work.kept


@client_app.train()
def train(message, context):
    case, model = kept(PATH)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    examples = case.train(model, case.optimizer(model), context.node_config["partition-id"])
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()),
                               "metrics": MetricRecord({"num-examples": examples})}), reply_to=message)


@server_app.main()
def serve(grid, _context):
    case = work.Case(PATH)
    model = case.make_model()
    arrays = ArrayRecord(model.state_dict())
    strategy = FedAvg(fraction_train=case.cohort / case.clients, fraction_evaluate=0.0, min_train_nodes=case.cohort,
                      min_available_nodes=case.clients)
    answer(f"Flower {importlib.metadata.version('flwr')}")
    for line in sys.stdin:
        start = time.monotonic()
        arrays = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=int(line)).arrays
        answer(time.monotonic() - start)
    model.load_state_dict(arrays.to_torch_state_dict())
    print(f"Flower: {case.describe(model)}", file=sys.stderr)


def answer(what):
    print(what, file=answers, flush=True)


def main():
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(server_app, client_app, work.Case(PATH).clients,
                   backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                                   "init_args": {"num_cpus": ACTORS, "log_to_driver": False}})


if __name__ == "__main__":
    main()
