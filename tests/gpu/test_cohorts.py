"""cohorts.py on an emulated GPU, and what report.awk makes of its rows and of PyTorch's: test_cohorts.py SIMULATOR.

Every row is there and well formed; the figures mean nothing."""

import json
import os
import subprocess
import sys
import tempfile

from cohort_cases import CASES, ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
CASE = "train 2NN, B=10, cohort of 2"


def measure(emulated):
    return subprocess.run([sys.executable, "-B", os.path.join(HERE, "cohorts.py"), sys.argv[1], "--quick"], text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, "FEDGE_EMULATOR": emulated})


def fails(folder, job, *words):
    with open(os.path.join(folder, "job.json"), "w", encoding="utf-8") as file:
        json.dump(job, file)
    done = subprocess.run([sys.argv[1], "--job", os.path.join(folder, "job.json"), "--engine", "cuda", *words], text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
                          env={**os.environ, "FEDGE_EMULATOR": "gpus=2"})
    assert done.returncode == 3 and not done.stdout, done
    return done.stderr


def bad_input(folder):
    """Shapes that do not fit, and a GPU that is not there: told with the numbers, before the first round."""
    for name, rows in ("a", "0.1,0.2,0\n0.3,0.1,1\n"), ("b", "0.1,0.2,0.4,0\n0.3,0.1,0.2,1\n"):
        with open(os.path.join(folder, f"{name}.csv"), "w", encoding="ascii") as file:
            file.write(rows)
    with open(os.path.join(folder, "client.json"), "w", encoding="ascii") as file:
        file.write('{"data":{"points":{"values":"*.csv","partition":"per-file"}}}')

    def job(shape, features):
        return {"fedge-job": 1, "name": "points", "seed": 4,
                "model": {"input-shape": [2], "loss": {"type": "CrossEntropyLoss"},
                          "layers": [{"type": "Linear", "in_features": features, "out_features": 3}]},
                "data": {"name": "points", "shape": [shape], "dtype": "f32", "labels": 3},
                "training": {"local-epochs": 1, "batch-size": 8, "learning-rate": 0.1},
                "rounds": {"num-server-rounds": 1, "min-train-nodes": 1, "min-available-nodes": 2}}

    assert "b.csv:1: 4 comma-separated fields, but there should be 3: 2 values and the label" in fails(folder, job(2, 2))
    assert "in_features is 5 but the layer before gives 2" in fails(folder, job(2, 5))
    assert "data.shape: is [3], but model.input-shape is [2]" in fails(folder, job(3, 2))
    with open(os.path.join(folder, "b.csv"), "w", encoding="ascii") as file:
        file.write("0.1,0.2,1\n")
    assert "GPU 3 is not there: there are 0 to 1" in fails(folder, job(2, 2), "--gpus", "0,3")

    # What docs/guides/simulation.md says that GPUs refuse (FedBN, which needs BatchNorm, is one of the personal ones).
    made = job(2, 2)
    made["model"]["layers"] = [{"type": "Linear", "in_features": 2, "out_features": 4}, {"type": "ReLU"},
                               {"type": "Linear", "in_features": 4, "out_features": 3}]
    for kinds, words in ((("QFedAvg",), "needs the loss before training"),
                         (("FedBuff", "FedAsync"), "trains from several models at a time"),
                         (("IFCA",), "has clients choose among models"),
                         (("FedPer", "FedRep", "Ditto"), "keeps a part of the model on clients")):
        for kind in kinds:
            assert f"{kind} {words}" in fails(folder, {**made, "strategy": {"type": kind}}), kind
    made["training"]["evaluation"] = "int8"
    assert "GPUs cannot evaluate in int8" in fails(folder, made)


def main():
    with tempfile.TemporaryDirectory() as folder:
        bad_input(folder)
    done = measure("gpus=1 unprotected=1")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(row["bench"] == "gpu" and row["value"] > 0 for row in rows), rows
    assert [row["case"].rpartition(", ")[2] for row in rows[-2:]] == ["fp32", "tf32"], rows
    assert rows[0]["case"] == CASE and rows[0]["flops"] == 879200, rows
    assert rows[0]["bytes"] == 6 * 4 * 199210 / 10, rows
    assert all(os.path.exists(os.path.join(ROOT, job)) for job, _, _ in CASES.values())

    rows[0]["value"] = 3000.0
    rows += [{"bench": "gpu", "case": f"{CASE} in PyTorch, vmap", "value": 1000.0, "unit": "samples/s"},
             {"bench": "gpu", "case": "matrix peak, fp32", "value": 8.792e10, "unit": "FLOP/s"}]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        subprocess.run(["awk", "-v", f"folder={folder}", "-f", os.path.join(HERE, "report.awk")], check=True)
        with open(os.path.join(folder, "gpu.json"), encoding="utf-8") as file:
            made = {row["case"]: row for row in json.load(file)["rows"]}
    assert made[f"{CASE}: fedge"]["ratio"] == 3.0, made
    assert made[f"{CASE}: fedge"]["peer"] == "PyTorch on the same GPU, vmap", made
    assert made[f"{CASE}: share of the matrix peak, fp32"]["value"] == 3.0, made

    without = measure("gpus=0")
    assert without.returncode == 1 and "no GPU is found" in without.stderr, without.stderr
    # Neither keeps the other from being tried.
    assert "cohorts.py: simulation: " in without.stderr and f"cohorts.py: {CASE}: " in without.stderr, without.stderr


if __name__ == "__main__":
    main()
