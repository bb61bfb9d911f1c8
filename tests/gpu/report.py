"""Makes gpu.md and gpu.json of what run.sh left in a folder: report.py FOLDER.

rows.jsonl has a row of bench_gpu or torch_round.py a line, tests.tsv has name, result and seconds of each
test, machine.txt what the machine is."""

import json
import os
import sys


def lines(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file if line.strip()]


def against_torch(rows):
    """PyTorch's rounds have no ratio of their own: the GPU's round of the same case is put beside them."""
    ours = {row["case"]: row["value"] for row in rows if row["unit"] == "rounds/s"}
    for row in rows:
        mine = ours.get(row["case"].removesuffix(" in PyTorch"))
        if row["case"].endswith(" in PyTorch") and mine:
            yield {"bench": "gpu", "case": row["case"].replace(" in PyTorch", ": fedge"), "value": mine,
                   "unit": "rounds/s", "peer": "PyTorch on the same GPU", "peer_value": row["value"],
                   "ratio": float(f"{mine / row['value']:.4g}")}


def main():
    folder = sys.argv[1]
    rows = [json.loads(line) for line in lines(folder, "rows.jsonl")]
    rows += list(against_torch(rows))
    tests = [dict(zip(("name", "result", "seconds"), line.split("\t"))) for line in lines(folder, "tests.tsv")]
    machine = lines(folder, "machine.txt")
    with open(os.path.join(folder, "gpu.json"), "w", encoding="utf-8") as file:
        json.dump({"machine": machine, "tests": tests, "rows": rows}, file, indent=1)
        file.write("\n")
    with open(os.path.join(folder, "gpu.md"), "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in machine) + "\n")
        file.write("| test | result | seconds |\n| --- | --- | --- |\n")
        file.writelines(f"| {test['name']} | {test['result']} | {test['seconds']} |\n" for test in tests)
        file.write("\n| case | value | beside | ratio |\n| --- | --- | --- | --- |\n")
        for row in rows:
            peer = f"{row['peer']}: {row['peer_value']:.4g} {row['unit']}" if "peer" in row else ""
            file.write(f"| {row['case']} | {row['value']:.4g} {row['unit']} | {peer} | {row.get('ratio', '')} |\n")


if __name__ == "__main__":
    main()
