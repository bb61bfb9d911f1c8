#!/bin/bash
# Every strategy over its client and server learning rates: bash run.sh images|text OUT [OPTION...], options
# being fedge-simulate's. It goes on where it was interrupted. text needs build/papers/text (README.md).
set -eu
here=$(dirname "$0")
task=$1
out=$2
shift 2
if [ "$task" = images ]; then
    common=(--job "$here/images.json" --clients 500 --partition dirichlet-client:0.1 --evaluate-every 10
        --validation-split 0.1)
    rates=0.01,0.03,0.1,0.3,1
    momentum=0.03,0.1,0.3,1
    adaptive=0.003,0.01,0.03,0.1
    seeds=3
else
    text=build/papers/text
    python3 - "$text" <<'PYTHON'
import csv, json, sys
job = json.load(open(sys.argv[1] + "/job.json"))  # that of ../shakespeare, with a smaller LSTM
job["name"] = "reddi-2021-text"
layers = job["model"]["layers"]
layers[1]["hidden_size"] = layers[3]["in_features"] = 64
job["rounds"].update({"num-server-rounds": 100, "fraction-train": 10 / 243})
json.dump(job, open(sys.argv[1] + "/reddi-2021.json", "w"), indent=2)
windows = {}
for window, client in list(csv.reader(open(sys.argv[1] + "/parts.csv")))[1:]:
    windows.setdefault(int(client), []).append(int(window))
with open(sys.argv[1] + "/reddi-2021.csv", "w") as file:  # the last tenth of each part is for validation: client -1
    print("example,client", file=file)
    for client, own in windows.items():
        for place, window in enumerate(own):
            print(f"{window},{client if place < len(own) - len(own) // 10 else -1}", file=file)
PYTHON
    common=(--job "$text/reddi-2021.json" --clients 243 --partition "file:$text/reddi-2021.csv" --evaluate-every 20)
    rates=1,3
    momentum=0.1,0.3,1
    adaptive=0.01,0.03,0.1
    seeds=1
fi
sweep() {
    local strategy=$1 server=$2
    shift 2
    fedge-simulate "${common[@]}" --out "$out/$strategy" --resume --quiet \
        --sweep strategy="$strategy" server-lr="$server" lr="$rates" seeds=$seeds "$@"
}
sweep FedAvg 0.3,1,3 "$@"
sweep FedAvgM "$momentum" "$@"
for strategy in FedAdagrad FedAdam FedYogi; do
    sweep "$strategy" "$adaptive" "$@"
done
