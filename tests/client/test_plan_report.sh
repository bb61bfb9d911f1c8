#!/bin/bash
# fedge-client --plan: needs neither server nor identity; the parts make the total; a job that is
# wrong, or that no trainer of fedge's trains, is refused with a message.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
client=$FEDGE_BIN_DIR/fedge-client
job=$FEDGE_SOURCE_DIR/examples/quickstart/job.json

"$client" --plan "$job" >"$work/table"
"$client" --plan "$job" --json >"$work/json"
python3 - "$work/table" "$work/json" "$job" <<'PY'
import json, re, sys
table, plan, job = open(sys.argv[1]).read(), json.load(open(sys.argv[2])), json.load(open(sys.argv[3]))
block = ("parameters", "gradients", "optimizer", "activations", "scratch")
parts = (*block, "evaluation", "delta", "control", "batch", "transfer")
assert sum(plan[part] for part in block) == plan["model"], plan
assert sum(plan[part] for part in parts) == plan["total"], plan
assert [layer["type"] for layer in plan["layers"]] == [layer["type"] for layer in job["model"]["layers"]]
count = sum(layer["parameters"] for layer in plan["layers"])
assert plan["update-none"] == 4 * count and 0 < plan["delta"] - 8 * count < 16, plan
assert plan["transfer"] > 4 * count and plan["control"] == 0, plan
assert plan["update-int8"] < 1.02 * count + 3 * 16, plan
# fused stages: outputs and places of maxima are all that is kept
assert sum(layer["output"] + layer["saved"] for layer in plan["layers"]) == plan["activations"], plan
columns = ("values", "optimizer", "delta", "output", "saved", "gradient", "scratch")
assert all(sum(layer[key] for key in columns) == layer["total"] for layer in plan["layers"]), plan
assert all(layer["delta"] == 2 * layer["optimizer"] == 8 * layer["parameters"] for layer in plan["layers"]), plan
for key in (*parts, "total", "model", "update-none", "update-int8"):
    assert int(re.search(rf"^{key} +(\d+)  ", table, re.M).group(1)) == plan[key], key
PY

python3 - "$job" "$work/adam.json" <<'PY'
import json, sys
job = json.load(open(sys.argv[1]))
job["training"]["optimizer"] = {"type": "Adam"}
job["model"]["layers"][0]["name"] = "a.name.of.more.than.twenty.bytes"
json.dump(job, open(sys.argv[2], "w"))
PY
"$client" --plan "$work/adam.json" >"$work/adam.table"
"$client" --plan "$work/adam.json" --json >"$work/adam"
grep -q '^a.name.of.more.than.twenty.bytes ' "$work/adam.table"
python3 - "$work/adam" <<'PY'
import json, sys
plan = json.load(open(sys.argv[1]))
assert all(layer["optimizer"] == 8 * layer["parameters"] for layer in plan["layers"]), plan
assert 0 <= plan["optimizer"] - sum(layer["optimizer"] for layer in plan["layers"]) < 2 * 64, plan
PY

sed 's/"batch-size"/"evaluation": "int8", "batch-size"/' "$job" >"$work/int8.json"
"$client" --plan "$work/int8.json" --json >"$work/int8"
python3 - "$work/json" "$work/int8" <<'PY'
import json, sys
trained, int8 = (json.load(open(path)) for path in sys.argv[1:])
assert trained["evaluation"] == 0 and trained["parameters"] / 4 < int8["evaluation"] < trained["model"], int8
assert int8["total"] - trained["total"] == int8["evaluation"], int8
PY

refused() { # expected code, part of the message, arguments
    local code=0
    "$client" "${@:3}" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = "$1" ] && grep -q -- "$2" "$work/err" && [ ! -s "$work/out" ] ||
        { echo "exit code $code:"; cat "$work/err"; exit 1; }
}
refused 3 'external' --plan "$FEDGE_SOURCE_DIR/examples/own_trainer/job.json"
refused 3 'none.json' --plan "$work/none.json"
sed 's/"in_features": *[0-9]*/"in_features": 7/' "$job" >"$work/wrong.json"
refused 3 'in_features is 7' --plan "$work/wrong.json"
refused 2 '--json goes with --plan' --json
