"""The benches of GPUs and report.awk on emulated ones: test_bench_gpu.py BENCH_GPU BENCH_COHORT BENCH_ROBUST
BENCH_PRODUCTS.

Every row is there and well formed; the figures mean nothing."""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def bench(program, emulated, *parts):
    environment = {**os.environ, "FEDGE_EMULATOR": emulated}
    return subprocess.run([program, "--tiny", *parts], env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def main():
    program = sys.argv[1]
    done = bench(program, "gpus=4", "kernels", "rounds")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    cases = [row["case"] for row in rows]
    assert all(row["bench"] == "gpu" and row["value"] > 0 for row in rows), rows
    for word in ("memory, read only", "pinned memory to GPU 0", "stage fp32", "stage int8",
                 "accumulate fp32", "accumulate int8"):
        assert any(case.startswith(word) for case in cases), (word, cases)
    for codec in ("fp32", "int8", "topk", "randk", "ternary"):
        for where in ("CPU", "1 GPU", "2 GPUs by clients", "2 GPUs by coordinates", "4 GPUs by clients",
                      "4 GPUs by coordinates"):
            assert any(f"{codec}, 3 k, {where}" in case for case in cases), (codec, where, cases)

    trained = bench(sys.argv[2], "gpus=1")
    assert trained.returncode == 0, trained.stderr
    more = [json.loads(line) for line in trained.stdout.splitlines()]
    assert all(row["value"] > 0 and row["peer_value"] > 0 for row in more), more
    assert {row["case"] for row in more} == {f"train {model}, B=2, {clients} clients at once"
                                             for model in ("2NN", "CNN") for clients in (1, 4)}, more
    assert bench(sys.argv[2], "gpus=0").returncode == 3

    products = bench(sys.argv[4], "gpus=1")
    assert products.returncode == 0 and "cuBLAS is not here" in products.stderr, products.stderr
    multiplied = [json.loads(line) for line in products.stdout.splitlines()]
    assert [row["case"] for row in multiplied] == [f"products of 2 clients, 3 × 20 by 20 × 5, {precision}"
                                                   for precision in ("fp32", "tf32")], multiplied
    assert bench(sys.argv[4], "gpus=0").returncode == 3

    robust = bench(sys.argv[3], "gpus=1")
    assert robust.returncode == 0, robust.stderr
    ruled = [json.loads(line) for line in robust.stdout.splitlines()]
    assert all(row["value"] > 0 and row["unit"] == "rounds/s" for row in ruled), ruled
    hosts = [f"{what}, updates on the host, 8 threads{gpu}" for gpu in (" and 1 GPU,", ",")
             for what in ("median", "distances")]
    assert [row["case"] for row in ruled] == [f"{case} of 64 × 3 k" for case in
                                              ("median", "trimmed mean", "Krum", *hosts)], ruled
    assert bench(sys.argv[3], "gpus=0").returncode == 3

    none = bench(program, "gpus=0", "kernels")
    assert none.returncode == 3 and "no GPU" in none.stderr, none
    wrong = bench(program, "gpus=1", "kernel")
    assert wrong.returncode == 2 and "neither" in wrong.stderr, wrong

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as file:
            file.write(done.stdout)
        with open(os.path.join(folder, "tests.tsv"), "w", encoding="utf-8") as file:
            file.write("kernels\tpassed\t12\naccumulator_cuda\tFAILED\t3\n")
        subprocess.run(["awk", "-v", f"folder={folder}", "-f", os.path.join(HERE, "report.awk")], check=True)
        with open(os.path.join(folder, "gpu.md"), encoding="utf-8") as file:
            table = file.read()
        with open(os.path.join(folder, "gpu.json"), encoding="utf-8") as file:
            report = json.load(file)
    assert len(report["rows"]) == len(rows) and report["tests"][1]["result"] == "FAILED", report
    assert all(f"| {case} |" in table for case in cases) and "| kernels | passed | 12 |" in table, table


if __name__ == "__main__":
    main()
