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
assert plan["update-none"] == 4 * count and 0 < plan["delta"] - 4 * count < 16, plan
assert plan["update-int8"] <= plan["transfer"] <= 2 * plan["update-int8"] and plan["control"] == 0, plan
assert plan["update-int8"] < 1.02 * count + 3 * 16, plan
# fused stages: outputs and places of maxima are all that is kept
assert sum(layer["activations"] + layer["saved"] for layer in plan["layers"]) == plan["activations"], plan
columns = ("values", "optimizer", "delta", "activations", "saved", "gradient", "scratch")
assert all(sum(layer[key] for key in columns) == layer["total"] for layer in plan["layers"]), plan
assert all(layer["delta"] == layer["optimizer"] == 4 * layer["parameters"] for layer in plan["layers"]), plan
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

# Layer by layer: clip-norm, micro-batches, statistics, frozen layers and SCAFFOLD
python3 - "$client" "$job" "$work" <<'PY'
import json, math, subprocess, sys
client, job, work = sys.argv[1:]
base = json.load(open(job))
base["model"] = {"input-shape": [1, 16, 16], "loss": {"type": "CrossEntropyLoss"}, "layers": [
    {"type": "Conv2d", "in_channels": 1, "out_channels": 8, "kernel_size": 3, "padding": 1},
    {"type": "BatchNorm2d", "num_features": 8},
    {"type": "Tanh"}, {"type": "MaxPool2d", "kernel_size": 2}, {"type": "Flatten"},
    {"type": "Linear", "in_features": 512, "out_features": 10}]}
base["data"]["shape"] = [1, 16, 16]
base["data"]["normalisation"] = {"divide-by": 255}
base["training"]["optimizer"] = {"type": "SGD"}
del base["test-set"]
BYTES = ("values", "optimizer", "delta", "activations", "saved", "gradient", "scratch")
PARAMETERS, STATISTICS = [80, 16, 0, 0, 0, 5130], [0, 16, 0, 0, 0, 0]
OUTPUT = 10 * 4 # bytes of an example

def aligned(size):
    return -size % 64 + size

def ask(batch, layers=(), strategy=None, **training):
    plan = json.loads(json.dumps(base))
    plan["training"] |= {"batch-size": batch, "micro-batch-size": batch} | training
    plan["strategy"] = strategy or plan["strategy"]
    for i, keys in layers:
        plan["model"]["layers"][i] |= keys
    json.dump(plan, open(work + "/variant.json", "w"))
    told = json.loads(subprocess.run([client, "--plan", work + "/variant.json", "--json"], check=True,
                                     stdout=subprocess.PIPE).stdout)
    rows = told["layers"]
    column = lambda key: [row[key] for row in rows]
    assert all(sum(row[key] for key in BYTES) == row["total"] for row in rows), told
    assert column("parameters") == PARAMETERS, told
    assert column("values") == [4 * (n + m) for n, m in zip(PARAMETERS, STATISTICS)], told
    assert told["parameters"] == aligned(4 * sum(PARAMETERS)) + aligned(4 * sum(STATISTICS)), told
    assert 0 <= told["optimizer"] - sum(column("optimizer")) < 3 * 64, told
    assert 0 <= told["delta"] - sum(column("delta")) <= 4 * len(rows), told # a byte for each tensor
    kept = told["gradients"] != 0
    assert told["gradients"] == (aligned(4 * sum(PARAMETERS)) if kept else 0), told
    assert all(row["scratch"] >= 4 * row["parameters"] for row in rows if kept), told
    in_turn = sum(sum(column(key)) for key in ("activations", "saved", "gradient", "scratch"))
    in_turn -= 4 * sum(PARAMETERS) if kept else 0
    assert told["activations"] <= in_turn + aligned(OUTPUT * batch), told
    return told

def differ(a, b): # the columns in which they do, and whose rows
    return {(key, i) for i, (x, y) in enumerate(zip(a["layers"], b["layers"])) for key in BYTES if x[key] != y[key]}

plain, clipped = ask(32), ask(32, **{"clip-norm": 1})
assert plain["gradients"] == 0 and clipped["gradients"] > 0, clipped
assert {key for key, _ in differ(plain, clipped)} == {"scratch"}, clipped
assert {i for _, i in differ(plain, clipped)} == {0, 1, 5}, clipped # those with parameters

parts, part = ask(32, **{"micro-batch-size": 8}), ask(8, **{"clip-norm": 1})
assert parts["micro-batch-size"] == 8 and not differ(parts, part), parts
assert parts["gradients"] == part["gradients"] and parts["gradients"] > 0, parts
assert parts["activations"] == part["activations"] + aligned(OUTPUT * 32), parts # of all parts

delta = lambda told: [row["delta"] // 4 for row in told["layers"]]
values = [n + m for n, m in zip(PARAMETERS, STATISTICS)]
assert delta(plain) == values and plain["control"] == 0, plain
scaffold = {"type": "SCAFFOLD"}
control = ask(32, strategy=scaffold)
changed = {(key, i) for key in ("optimizer", "delta") for i in (0, 1, 5)}
assert differ(plain, control) == changed | {("scratch", 5)}, control # no step without a gradient in memory
assert delta(control) == [n + m for n, m in zip(values, PARAMETERS)], control
assert [row["optimizer"] for row in control["layers"]] == [4 * n for n in PARAMETERS], control
assert control["control"] == 3 * 4 * sum(PARAMETERS), control

frozen = ask(32, [(0, {"train": "none"}), (1, {"frozen": True}), (5, {"train": "bias"})], scaffold)
assert delta(frozen) == values, frozen # the update is smaller than the model
bias = ask(32, [(0, {"train": "bias"}), (1, {"frozen": True})], scaffold)
assert delta(bias) == [2 * 8, 2 * 16, 0, 0, 0, 2 * 5130], bias
PY

# Operations: those of cohort_cases.py, and of single layers by hand
python3 -B - "$client" "$work" "$FEDGE_SOURCE_DIR" <<'PY'
import json, subprocess, sys
client, work, source = sys.argv[1:]
sys.path.insert(0, source + "/tests/gpu")
from cohort_cases import CASES

def ask(path):
    text = subprocess.run([client, "--plan", path, "--json"], check=True, stdout=subprocess.PIPE).stdout
    told = json.loads(text)
    for key in ("flop-forward", "flop-backward"):
        assert told[key] == sum(layer[key] for layer in told["layers"]), told
    return told

for name, (path, _, flop) in CASES.items():
    told = ask(f"{source}/{path}")
    assert told["flop-forward"] + told["flop-backward"] == flop, (name, told)

job = json.load(open(source + "/examples/quickstart/job.json"))
job["model"] = {"input-shape": [2, 5, 5], "loss": {"type": "CrossEntropyLoss"}, "layers": [
    {"type": "ConvTranspose2d", "in_channels": 2, "out_channels": 3, "kernel_size": 2, "stride": 2},
    {"type": "ReLU"}, {"type": "Conv2d", "in_channels": 3, "out_channels": 6, "kernel_size": 3, "groups": 3},
    {"type": "Flatten"}, {"type": "Linear", "in_features": 384, "out_features": 10, "r": 2}]}
job["data"]["shape"] = [2, 5, 5]
job["data"]["normalisation"] = {"divide-by": 255}
del job["test-set"]
LORA = 2 * (384 + 10) * 2
FORWARD = [2 * 50 * 4 * 3, 0, 2 * 6 * 64 * 9, 0, 2 * 384 * 10 + LORA]

def check(train, backward):
    for layer, words in zip((0, 2, 4), train):
        job["model"]["layers"][layer]["train"] = words
    json.dump(job, open(work + "/flop.json", "w"))
    layers = ask(work + "/flop.json")["layers"]
    assert [layer["flop-forward"] for layer in layers] == FORWARD, layers
    assert [layers[i]["flop-backward"] for i in (0, 2, 4)] == backward, layers

first, second, last = FORWARD[0], FORWARD[2], FORWARD[4]
check(("all", "all", "all"), [first, 2 * second, last + LORA]) # the input's gradient is not made
check(("none", "all", "all"), [0, second, last + LORA])
check(("none", "bias", "all"), [0, 0, last + LORA])
check(("all", "none", "all"), [first, second, last + LORA])
PY
table=$("$client" --plan "$job")
grep -q ' flop-forward  flop-backward$' <<<"$table"
grep -Eq '^flop-forward +[0-9]+  ' <<<"$table"

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
