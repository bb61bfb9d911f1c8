#!/bin/bash
# Every strategy over its client and server learning rates: bash run.sh images|text OUT [OPTION...], options
# being fedge-simulate's. It goes on where it was interrupted. text needs build/papers/text (README.md).
set -eu
here=$(dirname "$0")
task=$1
out=$2
shift 2
if [ "$task" = images ]; then
    common=(--job "$here/images.json" --clients 500 --partition dirichlet-client:0.1 --evaluate-every 10)
    rates=0.01,0.03,0.1,0.3
    seeds=3
else
    text=build/papers/text
    python3 - "$text" <<'PYTHON'
import json, sys
job = json.load(open(sys.argv[1] + "/job.json"))  # that of ../shakespeare, with a smaller LSTM
job["name"] = "reddi-2021-text"
layers = job["model"]["layers"]
layers[1]["hidden_size"] = layers[3]["in_features"] = 64
job["rounds"].update({"num-server-rounds": 150, "fraction-train": 10 / 243})
json.dump(job, open(sys.argv[1] + "/reddi-2021.json", "w"), indent=2)
PYTHON
    common=(--job "$text/reddi-2021.json" --clients 243 --partition "file:$text/parts.csv" --evaluate-every 5)
    rates=0.3,1,3
    seeds=1
fi
sweep() {
    local strategy=$1 server=$2
    shift 2
    fedge-simulate "${common[@]}" --validation-split 0.1 --out "$out/$strategy" --resume --quiet \
        --sweep strategy="$strategy" server-lr="$server" lr="$rates" seeds=$seeds "$@"
}
sweep FedAvg 0.3,1,3 "$@"
sweep FedAvgM 0.03,0.1,0.3,1 "$@"
for strategy in FedAdagrad FedAdam FedYogi; do
    sweep "$strategy" 0.003,0.01,0.03,0.1 "$@"
done
