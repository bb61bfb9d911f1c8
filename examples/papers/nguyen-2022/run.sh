#!/bin/bash
# FedAvg, with and without over-selection, against FedBuff and FedAsync in virtual time, and the table:
# bash run.sh OUT [OPTION...], options being fedge-simulate's. It goes on where it was interrupted.
set -eu
here=$(dirname "$0")
out=$1
shift
mkdir -p "$out"
# name | strategy | rounds, so that each trains about 8,000 times | more of "rounds"
rows=(
    'FedAvg|{"type": "FedAvg"}|400|{}'
    'FedAvg, over-selection 1.3|{"type": "FedAvg"}|400|{"over-selection": 1.3}'
    'FedBuff, K = 10|{"type": "FedBuff", "buffer-size": 10}|800|{}'
    'FedBuff, K = 5|{"type": "FedBuff", "buffer-size": 5}|1600|{}'
    'FedAsync|{"type": "FedAsync"}|8000|{}'
)
echo "| strategy | clients trained | virtual time | accuracy | 70 % after | 75 % after | 80 % after |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
for row in "${rows[@]}"; do
    IFS='|' read -r name strategy rounds more <<<"$row"
    folder=$out/${name//[ ,=]/}
    job=$folder.json
    python3 - "$here/job.json" "$strategy" "$more" "$job" <<'PYTHON'
import json, os, sys
job = json.load(open(sys.argv[1]))
job["strategy"] = json.loads(sys.argv[2])
job["rounds"].update(json.loads(sys.argv[3]))
for key, value in job["test-set"].items():
    job["test-set"][key] = os.path.join(os.path.abspath(os.path.dirname(sys.argv[1])), value)
json.dump(job, open(sys.argv[4], "w"))
PYTHON
    every=$((rounds / 200 > 0 ? rounds / 200 : 1))
    fedge-simulate --job "$job" --data "$here/client.json" --clients 200 --partition dirichlet:0.3 --rounds "$rounds" \
        --compute lognormal:500,1 --bandwidth lognormal:1000000,1 --evaluate-every "$every" --target 0.7,0.75,0.8 \
        --client-accuracy 0 --out "$folder" --resume --quiet "$@" >&2
    python3 - "$name" "$folder" <<'PYTHON'
import json, os, sys
name, folder = sys.argv[1:]
summary = json.load(open(os.path.join(folder, "summary.json")))
times = {}
for line in open(os.path.join(folder, "rounds.jsonl")):
    line = json.loads(line)
    times[line["round"]] = line["virtual_time"], line["accuracy"]
def first(target):
    reached = [time for time, accuracy in times.values() if accuracy is not None and accuracy >= target]
    return f"{min(reached):.0f} s" if reached else "—"
print("| " + " | ".join([name, str(summary["clients_trained"]), f"{summary['virtual_seconds']:.0f} s",
                         f"{100 * summary['accuracy_last_10']:.1f}", first(0.7), first(0.75), first(0.8)]) + " |")
PYTHON
done
