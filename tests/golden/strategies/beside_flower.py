#!/usr/bin/env python3
"""The golden rounds again, by Flower's own strategies: beside_flower.py [--check]

Feeds what clients send in each NAME.json here to the strategy of the same name in flwr.serverapp.strategy, in
double precision, and prints how far Flower's models are from the golden ones, which fedge's tests hold it to. Where
Flower's formula is another one by intent, a second row has what makes them equal, written as a change to Flower's
object. --check ends with 1 where a row that should be equal is not. Needs a Python with flwr: pip install flwr.
"""

import importlib.metadata
import json
import logging
import os
import sys
import types

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import multikrum

HERE = os.path.dirname(os.path.abspath(__file__))
EQUAL = 1e-5  # golden models are doubles; QFedAvg's weights are rounded to 2^-14ths, as docs/strategies.md says


def record(values):
    return ArrayRecord({"0": Array(np.asarray(values, dtype=np.float64))})


def reply(model, update, plain):
    """What a client sends: its model and numbers. [plain]: its examples have no weight."""
    metrics = {"num-examples": 1 if plain else update["examples"]}
    if "start-loss" in update:
        metrics["train-loss"] = update["start-loss"]
    content = RecordDict({"arrays": record(model + np.asarray(update["delta"])), "metrics": MetricRecord(metrics)})
    return types.SimpleNamespace(content=content, has_error=lambda: False)


def distance(name, make, plain=False, before=None):
    """The largest difference of a value in any round. before(strategy, round from 1, replies): changes
    Flower's object."""
    with open(os.path.join(HERE, f"{name}.json"), encoding="utf-8") as file:
        case = json.load(file)
    strategy, model, worst = make(), np.asarray(case["initial"]), 0.0
    for number, golden in enumerate(case["rounds"], 1):
        if isinstance(strategy, flower.fedopt.FedOpt):
            strategy.current_arrays = {"0": model.copy()}
        elif isinstance(strategy, (flower.FedAvgM, flower.QFedAvg)):
            strategy.current_arrays = record(model)
        if before:
            before(strategy, number, len(golden["updates"]))
        arrays, _ = strategy.aggregate_train(number, [reply(model, update, plain) for update in golden["updates"]])
        worst = max(worst, float(np.max(np.abs(arrays["0"].numpy() - golden["model"]))))
        model = np.asarray(golden["model"])  # each round is judged alone
    return worst


def adaptive(kind, **arguments):
    return lambda: kind(eta=0.01, eta_l=0.1, **arguments)


def like_the_paper(strategy, number, _):
    """Algorithm 2: v is tau² at first, and nothing is corrected for bias."""
    if number == 1:
        strategy.v_t = {"0": np.full(6, strategy.tau ** 2)}
    if isinstance(strategy, flower.FedAdam):
        if number == 1:
            strategy.paper_eta = strategy.eta
        norm = np.sqrt(1 - strategy.beta_2 ** (number + 1)) / (1 - strategy.beta_1 ** (number + 1))
        strategy.eta = strategy.paper_eta / norm


def all_but_the_malicious(strategy, _, replies):
    strategy.num_nodes_to_select = replies - 2


def one_after_another(contents, num_malicious, num_chosen):
    """Bulyan's selection as its paper has it: by Krum, again and again among those that are left."""
    left, chosen = list(contents), []
    while len(chosen) < num_chosen:
        best = multikrum.select_multikrum(left, num_malicious, 1)[0]
        chosen.append(left.pop(next(i for i, content in enumerate(left) if content is best)))
    return chosen


BIAS, START = "v starts at τ², no correction of bias", "v starts at τ²"
# Golden file, Flower's strategy, whether all weights are 1, a change, the change in words (None: not to be equal).
ROWS = [
    ("fedavg", lambda: flower.FedAvgM(server_learning_rate=0.7), False, None, ""),
    ("fedprox", lambda: flower.FedProx(proximal_mu=0.5), False, None, ""),
    ("fedavgm", lambda: flower.FedAvgM(server_learning_rate=0.5, server_momentum=0.8), False, None, ""),
    ("fedadagrad", adaptive(flower.FedAdagrad), False, None, None),
    ("fedadagrad", adaptive(flower.FedAdagrad), False, like_the_paper, START),
    ("fedadam", adaptive(flower.FedAdam), False, None, None),
    ("fedadam", adaptive(flower.FedAdam), False, like_the_paper, BIAS),
    ("fedyogi", adaptive(flower.FedYogi), False, None, None),
    ("fedyogi", adaptive(flower.FedYogi), False, like_the_paper, START),
    ("qfedavg", lambda: flower.QFedAvg(client_learning_rate=0.125, q=0.2, train_loss_key="train-loss"), False, None, ""),
    ("fedmedian", flower.FedMedian, False, None, ""),
    ("fedtrimmedavg", lambda: flower.FedTrimmedAvg(beta=0.2), False, None, ""),
    ("krum", lambda: flower.Krum(num_malicious_nodes=2), True, None, ""),
    ("multikrum", lambda: flower.MultiKrum(num_malicious_nodes=2, num_nodes_to_select=9), True, all_but_the_malicious,
     "m = n − f in each round"),
    ("multikrum-keep", lambda: flower.MultiKrum(num_malicious_nodes=2, num_nodes_to_select=3), True, None, ""),
    ("bulyan", lambda: flower.Bulyan(num_malicious_nodes=2), True, None, None),
    ("bulyan", lambda: flower.Bulyan(num_malicious_nodes=2, selection_rule=one_after_another), True, None,
     "selection one after another, by Krum among those left"),
]


def main():
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"Flower {importlib.metadata.version('flwr')}, NumPy {np.__version__}\n")
    print("| golden file | Flower | with | largest difference |\n| --- | --- | --- | --- |")
    unequal = 0
    for name, make, plain, before, words in ROWS:
        worst = distance(name, make, plain, before)
        unequal += words is not None and worst > EQUAL
        print(f"| `{name}` | `{type(make()).__name__}` | {words or ('' if words == '' else 'as it is')} | {worst:.1e} |")
    if "--check" in sys.argv[1:] and unequal:
        sys.exit(f"{unequal} rows that should be equal are not")


if __name__ == "__main__":
    main()
