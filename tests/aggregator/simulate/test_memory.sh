#!/usr/bin/env bash
# What becomes of a fedge-simulate that has too little memory: test_memory.sh SIMULATE
set -euo pipefail

simulate=$1
# shellcheck source=tests/aggregator/command_line.sh
. "$(dirname "$0")/../command_line.sh"

for i in $(seq 0 199); do
    echo "$((i % 7)).5,$((i % 5)).25,$((i % 2))"
done >points.csv
echo '{"data": {"points": {"values": "points.csv"}}}' >client.json
# SCAFFOLD over a million parameters: 4 MB for each of 20 clients
cat >job.json <<'JSON'
{"fedge-job": 1, "name": "points", "seed": 1,
 "model": {"input-shape": [2], "layers": [{"type": "Linear", "in_features": 2, "out_features": 200000},
                                          {"type": "Linear", "in_features": 200000, "out_features": 2}],
           "loss": {"type": "CrossEntropyLoss"}},
 "data": {"name": "points", "shape": [2], "dtype": "f32", "labels": 2},
 "training": {"local-epochs": 1, "batch-size": 5, "learning-rate": 0.000001},
 "rounds": {"num-server-rounds": 10, "fraction-train": 0.1, "min-train-nodes": 1, "min-available-nodes": 2},
 "strategy": {"type": "SCAFFOLD"}}
JSON
run=("$simulate" --job job.json --clients 20 --partition iid --threads 1 --quiet)

# address_space KB COMMAND...: memory that is not given, whatever the machine has
address_space() { (ulimit -v "$1" && shift && exec "$@"); }

# A client's work that lacks memory ends the run, and a sweep, at once: nobody declined.
if address_space 1000000 "$simulate" --version >/dev/null 2>&1; then # not with a sanitizer
    met=
    for ((size = 60000; size < 300000; size += 10000)); do
        rm -rf short
        if address_space "$size" "${run[@]}" --out short >said 2>&1; then break; fi
        if grep -qF 'in a row' said; then fail "lack of memory is taken for clients that decline: $(cat said)"; fi
        if ! grep -qE '^fedge-simulate: round [3-9]: client [0-9]+: no memory ' said; then continue; fi
        met=$size
        grep -qF "give the program more memory, or use fewer clients" said || fail "not what to change: $(cat said)"
        grep -qF "model and checkpoint of round" said || fail "what has closed is not kept: $(cat said)"
        [ -s short/model.safetensors ] && grep -qF '"ending":"failed"' short/summary.json || fail "no model or no summary"
        break
    done
    [ -n "$met" ] || fail "no size at which a round lacks memory"
    ends 1 "no memory " address_space "$met" "${run[@]}" --sweep seeds=2 --out swept
fi
