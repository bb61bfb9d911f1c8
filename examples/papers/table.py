#!/usr/bin/env python3
"""Prints a paper's table, in Markdown, from the folders that its sweeps have left.

    table.py niid-bench|mcmahan-2017|shakespeare|hsu-2019|reddi-2021|wang-2020|cohort OUT [--into README]

OUT is what the commands of the paper's README gave to --out, or the folder of several of these. Runs that are not
there, have not ended or had not the paper's --target stand as "not yet run"; an accuracy after fewer rounds than the
paper's says so, and stands only where there is none of the whole run. The published figures are those of the papers.
--into writes the table into a README, between its lines "<!-- table -->" and "<!-- end of table -->".
"""

import argparse
import contextlib
import io
import json
import math
import os
import statistics

HERE = os.path.dirname(os.path.abspath(__file__))
MISSING = "not yet run"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def paper_rounds(paper):
    """Of the paper's job, which its runs have unless they are told otherwise."""
    return read(os.path.join(HERE, paper), "job.json")["rounds"]["num-server-rounds"]


def load(out):
    """Settings and summary of every run below [out] that has ended; other jobs than the papers' are passed over."""
    runs = []
    for folder, _, files in os.walk(out):
        if "summary.json" not in files or read(folder, "summary.json")["ending"] in ("interrupted", "failed"):
            continue
        job, summary = read(folder, "job.json"), read(folder, "summary.json")
        training = job.get("training", {})
        runs.append({"job": job["name"], "epochs": training.get("local-epochs"), "batch": training.get("batch-size"),
                     "lr": training.get("learning-rate"), "fraction": job["rounds"].get("fraction-train", 1),
                     "strategy": job.get("strategy", {}).get("type"),
                     "server_lr": job.get("strategy", {}).get("server-learning-rate"),
                     "validation_accuracy_best": (summary.get("validation") or {}).get("accuracy_best"),
                     "planned": summary["num_server_rounds"], **summary})
    return runs


def pick(runs, **wanted):
    return [run for run in runs if all(run[key] == value for key, value in wanted.items())]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def mean_and_spread(values):
    if not values:
        return MISSING
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread} ({len(values)} seed{'s' if len(values) > 1 else ''})"


def accuracy_text(runs, key, rounds):
    """Mean and spread of an accuracy after [rounds], or when no run has so many, after the most that some have."""
    most = max((run["rounds"] for run in runs), default=rounds)
    least = min(rounds, most)
    words = mean_and_spread([100 * run[key] for run in runs if run["rounds"] >= least])
    return words if least == rounds else f"{words} after {least} of {rounds} rounds"


def asked(run, target):
    """Had the run this accuracy in its --target?"""
    return any(each["accuracy"] == target for each in run["targets"])


def reached(run, target):
    """Rounds to an accuracy; None: not reached."""
    return next(each["rounds"] for each in run["targets"] if each["accuracy"] == target)


def rounds_text(run, target, base=None):
    """With how many times fewer rounds these are than those of [base]."""
    rounds = reached(run, target)
    if rounds is None:
        return f"over {run['planned']}"
    return f"{rounds:.0f}" if base in (None, run) else f"{rounds:.0f} ({gain(base, run, target)})"


def gain(slow, fast, target):
    """How many times fewer rounds [fast] needs."""
    if reached(slow, target) is None:
        return f"over {math.floor(10 * slow['planned'] / reached(fast, target)) / 10:.1f}×"  # no more than is known
    return f"{reached(slow, target) / reached(fast, target):.1f}×"


# ---- NIID-Bench ------------------------------------------------------------------------------------------------------

# Li et al. 2022, Table 3: Fashion-MNIST, FedAvg.
NIID_BENCH = [("iid", "IID (`iid`)", "89.23 ± 0.45"),
              ("dirichlet:0.5", "label shares from Dir(0.5) (`dirichlet:0.5`)", "88.09 ± 0.29"),
              ("labels:3", "three labels each (`labels:3`)", "82.43 ± 1.5"),
              ("labels:2", "two labels each (`labels:2`)", "78.10 ± 2.5"),
              ("labels-2-trial-", "two labels each, the authors' divisions", "78.10 ± 2.5")]
TRIALS = ("labels-2-trial-",)  # of divisions.py: how its files' names begin


def niid_bench(runs):
    rows, rounds = [], paper_rounds("niid-bench")
    runs = pick(runs, job="niid-bench")
    for partition, words, published in NIID_BENCH:
        found = [run for run in runs if run["partition"] == partition or
                 (partition in TRIALS and os.path.basename(run["partition"].partition(":")[2]).startswith(partition))]
        rows.append([words, published,
                     accuracy_text(found, "accuracy", rounds), accuracy_text(found, "accuracy_last_10", rounds)])
    table(["division", "published, %", "ours, %", "ours, mean of the last ten rounds, %"], rows)


# ---- McMahan et al. 2017 ---------------------------------------------------------------------------------------------

FRACTIONS = {0.01: "0 (one client)", 0.1: "0.1", 0.2: "0.2", 0.5: "0.5", 1: "1"}
TARGETS = (0.75, 0.8, 0.85)
# Table 1, rounds to 97 % (2NN, E = 1) and 99 % (CNN, E = 5) on MNIST; None: not reached.
PUBLISHED = {("2nn", "iid"): {600: (1455, 1474, 1658, None, None), 10: (316, 87, 77, 75, 70)},
             ("2nn", "shards:2"): {600: (4278, 1796, 1528, None, None), 10: (3275, 664, 619, 443, 380)},
             ("cnn", "iid"): {600: (387, 339, 337, 164, 246), 10: (50, 18, 18, 18, 16)}}
# Table 2, rounds to 99 % on MNIST, IID, C = 0.1: FedSGD first.
TABLE_2 = [(1, 600, 626), (5, 600, 179), (1, 10, 34), (5, 10, 20), (20, 10, 18)]


def best(runs):
    """Of runs that differ in the learning rate only: the one that is first at the highest target, or gets furthest."""
    def order(run):
        return [float("inf") if reached(run, target) is None else reached(run, target)
                for target in reversed(TARGETS)] + [-run["accuracy_best"]]
    return min(runs, key=order, default=None)


def most_used_rate(runs):
    """The learning rate that most fractions were run with; the pilot tried the others at one of them."""
    rates = [rate for rate, _ in {(run["lr"], run["fraction"]) for run in runs}]
    return max(sorted(rates), key=rates.count, default=None)


def ours_at(run, base):
    if run is None:
        return MISSING
    return " / ".join(rounds_text(run, target, base if target == TARGETS[-1] else None) for target in TARGETS)


def published_at(column, at):
    value = column[at]
    if value is None:
        return "not reached"
    return f"{value}" + (f" ({column[0] / value:.1f}×)" if at > 0 else "")


def fractions_table(runs, model, partition, rates):
    """One block of Table 1: C by B, and what B = 10 gains over B = ∞ at each C."""
    published = PUBLISHED[model, partition]
    chosen = {(fraction, batch): best(pick(runs, job=f"mcmahan-2017-{model}", partition=partition, fraction=fraction,
                                           batch=batch, epochs=1 if model == "2nn" else 5, lr=rates[batch]))
              for fraction in FRACTIONS for batch in (600, 10)}
    rows = []
    for at, (fraction, words) in enumerate(FRACTIONS.items()):
        row = [words]
        for batch in (600, 10):
            row += [ours_at(chosen[fraction, batch], chosen[0.01, batch]), published_at(published[batch], at)]
        slow, fast = chosen[fraction, 600], chosen[fraction, 10]
        known = slow and fast and reached(fast, TARGETS[-1]) is not None
        rows.append(row + [gain(slow, fast, TARGETS[-1]) if known else "-",
                           f"{published[600][at] / published[10][at]:.1f}×" if published[600][at] else "-"])
    table(["C", "B = ∞: ours", "theirs", "B = 10: ours", "theirs", "B = ∞ / B = 10: ours", "theirs"], rows)


def computation_table(runs):
    """Table 2: the CNN at C = 0.1, IID, by E and B."""
    rows = []
    sgd = best(pick(runs, job="mcmahan-2017-cnn", partition="iid", fraction=0.1, batch=600, epochs=1))
    for epochs, batch, published in TABLE_2:
        run = best(pick(runs, job="mcmahan-2017-cnn", partition="iid", fraction=0.1, batch=batch, epochs=epochs))
        name = "FedSGD" if (epochs, batch) == (1, 600) else "FedAvg"
        rows.append([name, str(epochs), "∞" if batch == 600 else str(batch),
                     MISSING if run is None else f"{run['lr']:g}", ours_at(run, sgd),
                     f"{published}" + ("" if name == "FedSGD" else f" ({TABLE_2[0][2] / published:.1f}×)")])
    table(["", "E", "B", "learning rate", "ours", "theirs"], rows)


def rates_table(runs):
    """The pilot: all learning rates at C = 0.1."""
    rows = []
    for model, partition, batch, epochs in [(m, p, b, e) for m, p, e in
                                            (("2nn", "iid", 1), ("2nn", "shards:2", 1), ("cnn", "iid", 5))
                                            for b in (600, 10)]:
        found = pick(runs, job=f"mcmahan-2017-{model}", partition=partition, batch=batch, epochs=epochs, fraction=0.1)
        for rate in sorted({run["lr"] for run in found}):
            run = best([each for each in found if each["lr"] == rate])
            rows.append([model.upper(), partition, "∞" if batch == 600 else "10", f"{run['lr']:g}",
                         ours_at(run, None), f"{100 * run['accuracy_best']:.2f}"])
    table(["model", "division", "B", "learning rate", "rounds to 75 / 80 / 85 %", "best, %"], rows)


def mcmahan_2017(runs):
    runs = [run for run in runs if all(asked(run, target) for target in TARGETS)]
    for model, partition, words in (("2nn", "iid", "2NN, E = 1, IID"),
                                    ("2nn", "shards:2", "2NN, E = 1, two shards each"),
                                    ("cnn", "iid", "CNN, E = 5, IID")):
        rates = {batch: most_used_rate(pick(runs, job=f"mcmahan-2017-{model}", partition=partition, batch=batch,
                                            epochs=1 if model == "2nn" else 5)) for batch in (600, 10)}
        print(f"**{words}**" + "".join(f"; B = {'∞' if batch == 600 else batch}: learning rate {rate:g}"
                                       for batch, rate in rates.items() if rate) + "\n")
        fractions_table(runs, model, partition, rates)
    print("**CNN, IID, C = 0.1: more computation per client**\n")
    computation_table(runs)
    print("**Learning rates at C = 0.1**\n")
    rates_table(runs)


# ---- Shakespeare -----------------------------------------------------------------------------------------------------


# McMahan et al. 2017, Table 2: FedAvg with E = 1 and B = 10, rounds to 54 %.
SHAKESPEARE = {True: 164, False: 460}


def shakespeare(runs):
    found = pick(runs, job="shakespeare-lstm")
    targets = sorted({each["accuracy"] for run in found for each in run["targets"]})
    rows = []
    for natural in (True, False):
        mine = [run for run in found if run["partition"].startswith("file:") == natural]
        row = ["speaking parts" if natural else "IID"]
        for target in targets:
            values = [(run, reached(run, target)) for run in mine if asked(run, target)]
            row.append(", ".join(f"over {run['planned']}" if value is None else f"{value:.0f}"
                                 for run, value in values) or MISSING)
        rows.append(row + [accuracy_text(mine, "accuracy", paper_rounds("shakespeare")), str(SHAKESPEARE[natural])])
    table(["clients", *(f"rounds to {100 * target:g} %" for target in targets), "accuracy at the end, %",
           "theirs: rounds to 54 %"], rows)


# ---- Hsu et al. 2019 -------------------------------------------------------------------------------------------------


def percent(runs, key="accuracy"):
    return mean_and_spread([100 * run[key] for run in runs])


def best_mean(groups, key):
    """Of {setting: runs} the setting whose runs have the highest mean."""
    return max(groups, key=lambda setting: statistics.mean(run[key] for run in groups[setting]), default=None)


def hsu_2019(runs):
    runs = pick(runs, job="hsu-2019")
    rates = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)
    rows = []
    for partition in ("dirichlet-client:0.1", "dirichlet-client:0.01"):
        for strategy in ("FedAvg", "FedAvgM"):
            mine = pick(runs, partition=partition, strategy=strategy)
            groups = {rate: pick(mine, lr=rate) for rate in rates}
            best_rate = best_mean({rate: found for rate, found in groups.items() if found}, "accuracy_last_10")
            cells = [f"**{percent(found, 'accuracy_last_10')}**" if rate == best_rate else
                     percent(found, "accuracy_last_10") for rate, found in groups.items()]
            rows.append([partition.split(":")[1], strategy, *cells])
    table(["α", "strategy", *(f"η = {rate:g}" for rate in rates)], rows)


# ---- Reddi et al. 2021 -----------------------------------------------------------------------------------------------

OPTIMIZERS = ("FedAvg", "FedAvgM", "FedAdagrad", "FedAdam", "FedYogi")


def reddi_2021(runs):
    """The rates with the best validation accuracy, and what they give on the test set."""
    rows = []
    for job, words in (("reddi-2021-images", "Fashion-MNIST"), ("reddi-2021-text", "characters")):
        for strategy in OPTIMIZERS:
            groups = {}
            for run in pick(runs, job=job, strategy=strategy):
                if run["validation_accuracy_best"] is None:
                    continue  # not of run.sh, which tunes by it
                groups.setdefault((run["lr"], run["server_lr"]), []).append(run)
            chosen = best_mean(groups, "validation_accuracy_best")
            if chosen is None:
                rows.append([words, strategy] + [MISSING] * 5)
                continue
            lows = [statistics.mean(100 * run["accuracy_last_10"] for run in found) for found in groups.values()]
            within = sum(low >= max(lows) - 5 for low in lows)
            rows.append([words, strategy, f"{chosen[0]:g}", f"{chosen[1]:g}", percent(groups[chosen]),
                         percent(groups[chosen], "accuracy_last_10"), f"{within} of {len(lows)}"])
    table(["task", "strategy", "η", "η_s", "last accuracy, %", "mean of the last ten evaluations, %",
           "settings within 5 points of the best"], rows)


# ---- Wang et al. 2020 ------------------------------------------------------------------------------------------------


def wang_2020(runs):
    """All evaluations are among the last ten, eight of them."""
    rows = []
    for epochs in (1, 4):
        for strategy in ("FedAvg", "FedNova"):
            mine = pick(runs, job="unequal-steps", strategy=strategy, epochs=epochs)
            rows.append([strategy, str(epochs), percent(mine), percent(mine, "accuracy_last_10")])
    table(["strategy", "epochs", "after round 40, %", "mean of all evaluations, %"], rows)


# ---- Cohorts ---------------------------------------------------------------------------------------------------------

SCALINGS = (("none", lambda m: 1), ("square root", lambda m: m ** 0.5), ("linear", lambda m: m))


def cohorts(runs):
    """{cohort: {scaling: runs}}"""
    found = {}
    for run in pick(runs, job="cohort"):
        cohort = round(1000 * run["fraction"])
        for name, scale in SCALINGS:
            if math.isclose(run["server_lr"], scale(cohort / 10), rel_tol=1e-4):
                found.setdefault(cohort, {}).setdefault(name, []).append(run)
    return found


def cohort(runs):
    found = cohorts(runs)
    rows = [[str(size), f"{16000 // size}", *(percent(found.get(size, {}).get(name, []), "accuracy_last_10")
                                             for name, _ in SCALINGS)] for size in (10, 20, 40, 80, 160, 320)]
    table(["cohort", "rounds", *(f"{name} scaling" if name != "none" else "η_s = 1" for name, _ in SCALINGS)], rows)


def main():
    papers = {"niid-bench": niid_bench, "mcmahan-2017": mcmahan_2017, "shakespeare": shakespeare,
              "hsu-2019": hsu_2019, "reddi-2021": reddi_2021, "wang-2020": wang_2020,
              "cohort": cohort}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paper", choices=papers)
    parser.add_argument("out")
    parser.add_argument("--into", metavar="README")
    args = parser.parse_args()
    if not os.path.isdir(args.out):
        parser.error(f"there is no folder {args.out}: give what --out was when the paper's runs were made")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        papers[args.paper](load(args.out))
    if not args.into:
        print(text.getvalue().rstrip())
        return
    with open(args.into, encoding="utf-8") as file:
        page = file.read()
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        parser.error(f"{args.into} has no lines '{BEGIN}' and '{END}'")
    with open(args.into, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n\n{text.getvalue().rstrip()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
