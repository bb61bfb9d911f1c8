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
    """PyTorch's rows have no ratio of their own: the GPU's of the same case is put beside them."""
    ours = {(row["case"], row["unit"]): row["value"] for row in rows}
    for row in rows:
        case, told, way = row["case"].partition(" in PyTorch")
        mine = ours.get((case, row["unit"]))
        if told and mine:
            yield {"bench": "gpu", "case": f"{case}: fedge", "value": mine, "unit": row["unit"],
                   "peer": f"PyTorch on the same GPU{way}", "peer_value": row["value"],
                   "ratio": float(f"{mine / row['value']:.4g}")}


def shares(rows):
    """Of the matrix peak and of memory's bandwidth in the same run, for rows that say what a sample takes."""
    found = {row["case"].partition(", GPU")[0]: row for row in rows}
    for row in rows:
        for what, key, scale, of in (("matrix peak, fp32", "flops", 1.0, "the matrix peak, fp32"),
                                     ("memory, read only", "bytes", 1e9, "the bandwidth of memory, by parameters alone")):
            if key in row and what in found:
                share = row["value"] * row[key] / (found[what]["value"] * scale)
                yield {"bench": "gpu", "case": f"{row['case']}: share of {of}", "value": float(f"{100 * share:.4g}"),
                       "unit": "%"}


def main():
    folder = sys.argv[1]
    rows = [json.loads(line) for line in lines(folder, "rows.jsonl")]
    rows += [*against_torch(rows), *shares(rows)]
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
