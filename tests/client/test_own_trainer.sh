#!/bin/bash
# Runs examples/own_trainer: an aggregator and three devices whose trainer is their own, or a device for
# each of the programs that are named as arguments. All must end with 0, and the model must have become
# the one that made the data.
set -eu
work=$(mktemp -d)
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT

bin=$FEDGE_BIN_DIR
[ $# -gt 0 ] || set -- "$bin/own-trainer" "$bin/own-trainer" "$bin/own-trainer"
"$bin/fedge-keys" demo --out "$work/id" --clients $# >/dev/null
sed "s/\"min-available-nodes\": 3/\"min-available-nodes\": $#/" "$FEDGE_SOURCE_DIR/examples/own_trainer/job.json" \
    >"$work/job.json"
"$bin/fedge-aggregator" --job "$work/job.json" \
    --state "$work/state" --identity "$work/id/server" --trust "$work/id/trust" \
    --registry "$work/id/registry" --listen 127.0.0.1:0 --http off --port-file "$work/port" \
    2>"$work/aggregator.log" >/dev/null &
aggregator=$!
pids+=("$aggregator")
clients=()
while [ ! -s "$work/port" ]; do
    kill -0 "$aggregator" || { cat "$work/aggregator.log"; exit 1; }
    sleep 0.1
done
port=$(grep -o '[0-9]\+' "$work/port" | head -1)
i=0
for program; do
    "$program" "wss://127.0.0.1:$port" "$work/id/clients/000$i" "$work/id/trust" "$i" \
        2>"$work/client$i.log" &
    pids+=($!)
    clients+=($!)
    i=$((i + 1))
done
for pid in "${clients[@]}" "$aggregator"; do
    wait "$pid" || { echo "exit code $?"; tail -n 20 "$work"/*.log; exit 1; }
done

# What a trainer has not reported is in no log.
if grep -E ' trained .* accuracy=' "$work"/client*.log; then exit 1; fi
grep -qE ' trained .* loss=[0-9]' "$work/client0.log"
grep -qE ' evaluated .* loss=[0-9.e-]+ accuracy=[0-9]' "$work/client0.log"
if grep -E '=nan|=""' "$work/aggregator.log"; then exit 1; fi
grep -qE ' round-closed .* model=[0-9a-f]' "$work/aggregator.log"

# Simulated, by processes of the first of the programs, the same model comes of it.
"$bin/fedge-simulate" --job "$work/job.json" --clients $# --threads 2 --trainer "$1 - - - 0" --out "$work/simulated" \
    --quiet >"$work/simulate.log" 2>&1 || { cat "$work/simulate.log"; exit 1; }
deployed=$(grep -o '"model_sha256":"[0-9a-f]*"' "$work"/state/runs/*/rounds.jsonl | tail -1 | cut -d: -f2)
grep -q "\"model_sha256\":$deployed" "$work/simulated/summary.json" || {
    cat "$work/simulated/summary.json" "$work"/state/runs/*/rounds.jsonl
    exit 1
}

model=$(find "$work/state" -name '*.safetensors' | sort | tail -1)
/usr/bin/python3 - "$model" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
start = 8 + size + header["weight"]["data_offsets"][0]
weight = struct.unpack("<4f", data[start:start + 16])
print("weight", weight)
assert all(abs(a - b) < 0.1 for a, b in zip(weight, (1, -2, 3, -4)))
PY
