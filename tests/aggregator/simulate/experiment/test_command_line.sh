#!/usr/bin/env bash
# fedge-simulate's options, files, messages and exit codes: test_command_line.sh SIMULATE
set -euo pipefail

simulate=$1
# shellcheck source=tests/aggregator/command_line.sh
. "$(dirname "$0")/../../command_line.sh"

for i in $(seq 0 199); do
    echo "$((i % 7)).5,$((i % 5)).25,$((i % 2))"
done >points.csv
cp points.csv test.csv
cat >job.json <<'JSON'
{"fedge-job": 1, "name": "points", "seed": 1,
 "model": {"input-shape": [2], "layers": [{"type": "Linear", "in_features": 2, "out_features": 2}],
           "loss": {"type": "CrossEntropyLoss"}},
 "data": {"name": "points", "shape": [2], "dtype": "f32", "labels": 2},
 "training": {"local-epochs": 1, "batch-size": 5, "learning-rate": 0.1},
 "rounds": {"num-server-rounds": 4, "min-available-nodes": 2, "min-train-nodes": 2},
 "test-set": {"values": "test.csv"}}
JSON
run=("$simulate" --job job.json --clients 10 --partition iid)
# "${terminal[@]}" COMMAND...: runs it on one
terminal=(python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))')

# what is in a file does not steer the terminal
{ cat points.csv && printf "1,\033[31m2,0\n"; } >steering.csv
echo '{"data": {"points": {"values": "steering.csv"}}}' >steering.json
ends 3 'column 2: "?[31m2" is not a number' "${run[@]}" --data steering.json

# 0 and 2: what needs no files
ends 0 "Usage: fedge-simulate" "$simulate" --help
ends 0 "fedge-simulate " "$simulate" --version
ends 2 "--job is missing" "$simulate"
ends 2 "unknown option '--nonsense'" "$simulate" --nonsense

# 3: job, data, division
ends 3 "nothing.json" "$simulate" --job nothing.json --clients 2
ends 3 "say with --data FILE where the training data is" "${run[@]}"
echo '{"data": {"others": {"values": "points.csv"}}}' >client.json
ends 3 "no data set 'points'" "${run[@]}"
echo '{"data": {"points": {"values": "points.csv"}}}' >client.json
ends 3 "does not say how 'points' is divided" "$simulate" --job job.json --clients 10
ends 3 "--clients is missing" "$simulate" --job job.json --partition iid
ends 3 "--partition" "$simulate" --job job.json --clients 10 --partition dirichlett:1
ends 3 "201" "$simulate" --job job.json --clients 201 --partition iid
ends 3 "there are 1" "$simulate" --job job.json --clients 1 --partition iid
ends 3 "labels" "$simulate" --job job.json --clients 10 --partition labels:3
{ echo example,client && seq 0 199 | sed 's/$/,-1/'; } >nobody.csv
ends 3 "nobody.csv: every row's client is -1" "$simulate" --job job.json --partition file:nobody.csv
{ echo example,client && seq 0 199 | awk '{ print $1 "," ($1 > 0) }'; } >few.csv
ends 3 "set less apart" "$simulate" --job job.json --partition file:few.csv --validation-split 0.99
sed 's/"input-shape": \[2\], "layers": .*/"type": "external", "tensors": [{"name": "w", "shape": [2]}]},/
     /"loss":/d; /"data":/d; /"training":/d; /"test-set"/d; s/"min-train-nodes": 2},/"min-train-nodes": 2}}/' job.json >external.json
ends 3 "the model is external: say with --trainer COMMAND how to start its trainer" "$simulate" --job external.json --clients 10

sed 's/"min-train-nodes": 2/"min-train-nodes": 2, "fraction-evaluate": 1/' job.json >evaluate.json
ends 3 "no client holds out examples" "$simulate" --job evaluate.json --clients 10 --partition iid

# 200 examples for 3 clients: 67, 67 and 66, so that one or two are left for the last batch
sed 's/"input-shape": \[2\], "layers": \[/"input-shape": [2, 1, 1], "layers": [{"type": "BatchNorm2d", "num_features": 2}, {"type": "Flatten"}, /
     s/"shape": \[2\]/"shape": [2, 1, 1]/; s/"batch-size": 5/"batch-size": 6/' job.json >norm.json
ends 3 "1 of 3 clients can be trained, and a round needs 3; client 0: 67 examples in batches of 6, choose another size: layer 0 (BatchNorm2d \"0\")" \
    "$simulate" --job norm.json --clients 3 --partition iid
sed -i 's/"min-train-nodes": 2/&, "fraction-train": 0.2/' norm.json # 11 clients: two of 19 examples, nine of 18
ends 0 "complete after 4 rounds" "$simulate" --job norm.json --clients 11 --partition iid
sed 's/"learning-rate": 0.1/&, "schedule": {"type": "ExponentialLR", "gamma": 20}/' job.json >rising.json
ends 3 "training.schedule.gamma: makes the learning rate of round 7 6.4e+06" "$simulate" --job rising.json --clients 3 --partition iid --rounds 9

# a first layer of 8,192 values for each of 65,536 examples, 256 times: over 1 TB
sed 's/"out_features": 2}\]/"out_features": 8192}, {"type": "Linear", "in_features": 8192, "out_features": 2}]/
     s/"batch-size": 5/"batch-size": 65536/' job.json >vast.json
ends 3 "MB for this program: use fewer --threads" "$simulate" --job vast.json --clients 2 --partition iid --threads 256

# 0: with and without a folder, lines or JSON
ends 0 "complete after 4 rounds" "${run[@]}"
grep -qF "4/4" said || fail "no line of the last round"
ends 0 "complete after 4 rounds" "${run[@]}" --quiet
if grep -qF "4/4" said; then fail "lines although --quiet"; fi
"${run[@]}" --json --target 0.01,1 >first.json
grep -q '^{"job":"points","ending":"complete","partition":"iid","seed":1,"clients":10,' first.json
"${run[@]}" --json --threads 1 >second.json
hash() { grep -o '"model_sha256":"[0-9a-f]*"' "$1" | tail -1; }
[ "$(hash first.json)" = "$(hash second.json)" ] || fail "threads change the model"
"${run[@]}" --json --seed 2 >second.json
[ "$(hash first.json)" != "$(hash second.json)" ] || fail "--seed changes nothing"
"${run[@]}" --json --partition-seed 2 >second.json
[ "$(hash first.json)" != "$(hash second.json)" ] || fail "--partition-seed changes nothing"

echo '{"data": {"points": {"values": "points.csv", "partition-seed": 2}}}' >seeded.json
"${run[@]}" --json --data seeded.json >first-seeded.json
[ "$(hash first-seeded.json)" = "$(hash second.json)" ] || fail "partition-seed beside no partition is not taken"

# streams that are full or closed
for what in "${run[*]}" "${run[*]} --json" "$simulate --help" "${run[*]} --json --sweep seeds=1"; do
    code=0
    $what >/dev/full 2>said || code=$?
    [ "$code" = 1 ] && grep -qF "cannot write to the standard output" said || fail "$what: exit $code on a full disk"
done
"${run[@]}" --out closed <&- >&- 2>&-
[ "$(wc -l <closed/rounds.jsonl)" = 4 ] || fail "rounds.jsonl was taken for a stream that is closed"

# the folder, and what is written there
ends 0 "rounds.jsonl" "${run[@]}" --out out
for file in job.json simulation.json rounds.jsonl rounds.svg partition.csv summary.json model.safetensors; do
    [ -s "out/$file" ] || fail "no out/$file"
done
cmp -s job.json out/job.json || fail "out/job.json is not the job"
[ "$(wc -l <out/rounds.jsonl)" = 4 ] || fail "not four lines in rounds.jsonl"
[ "$(hash out/summary.json)" = "$(hash first.json)" ] || fail "another model with --out"
# what a model file says of itself; its name is that of its tensors
ends 0 "model_sha256: $(hash first.json | cut -d'"' -f4)" "$simulate" model out/model.safetensors
for line in "format: pt" "job: points" "round: 4" "accuracy: 0."; do
    grep -qF "$line" said || fail "no '$line' in: $(cat said)"
done
if grep -q "^run:" said; then fail "a simulation is of no run: $(cat said)"; fi
ends 0 '"metadata":{"format":"pt",' "$simulate" model --json out/model.safetensors
"$simulate" model --json out/model.safetensors >said.json
[ "$(hash said.json)" = "$(hash first.json)" ] || fail "model_sha256 is not model.safetensors'"
ends 0 "round: 4" "$simulate" model out/checkpoints/../model.safetensors
cp out/model.safetensors changed.safetensors
printf '\001\001' | dd of=changed.safetensors bs=1 seek=$(($(stat -c %s changed.safetensors) - 2)) conv=notrunc 2>/dev/null
ends 1 "they were changed later" "$simulate" model changed.safetensors
ends 3 "nothing.safetensors" "$simulate" model nothing.safetensors
ends 3 "job.json" "$simulate" model job.json
ends 2 "model needs one file" "$simulate" model
ends 2 "unknown option '--out' (see fedge-simulate model --help)" "$simulate" model --out x
ends 0 "Usage: fedge-simulate model" "$simulate" model --help
checkpoint=$(echo out/checkpoints/round-*/model.safetensors)
[ "$(sha256sum "$checkpoint" | cut -d' ' -f1)" = "$(hash first.json | cut -d'"' -f4)" ] ||
    fail "model_sha256 is not the plain file's"
# it can be begun with
sed 's/"rounds": {/"initial-model": "out\/model.safetensors", &/' job.json >again.json
ends 0 "complete" "$simulate" --job again.json "${run[@]:3}"
ends 3 "continue it with --resume" "${run[@]}" --out out
ends 0 "fresh has no simulation yet" "${run[@]}" --out fresh --resume
[ "$(hash fresh/summary.json)" = "$(hash first.json)" ] || fail "--resume of nothing is another run"
if "${run[@]}" --out fresh --resume 2>&1 | grep -qF "no simulation yet"; then fail "a simulation was not seen"; fi
ends 3 "evaluate_every was 1, and now it is 2" "${run[@]}" --out out --resume --evaluate-every 2
ends 3 "out/simulation.json differs" "${run[@]}" --out out --resume --seed 2
grep -qF "seed was 1, and now it is 2" said || fail "not what differs: $(cat said)"
echo '{"data": {"points": {"values": "points.csv", "validation-fraction": 0.5}}}' >held.json
ends 3 "out/simulation.json differs" "${run[@]}" --out out --resume --data held.json
head -n 190 points.csv >fewer.csv
echo '{"data": {"points": {"values": "fewer.csv"}}}' >fewer.json
ends 3 "the training data has other contents now" "${run[@]}" --out out --resume --data fewer.json
# what is divided as before, and a folder of a program that did not sum its data
cp -r out unsummed
sed -i 's/,"data_crc32":[0-9]*,"test_crc32":[0-9]*//' unsummed/simulation.json
sed '7s/^[0-9.]*/99/' points.csv >changed.csv
echo '{"data": {"points": {"values": "changed.csv"}}}' >changed.json
ends 3 "the training data has other contents now: restore the old" "${run[@]}" --out out --resume --data changed.json
cp test.csv before.csv
sed -i '7s/^[0-9.]*/99/' test.csv
ends 3 "the test set has other contents now" "${run[@]}" --out out --resume
ends 0 "complete after 4 rounds" "${run[@]}" --out unsummed --resume
ends 3 "not how the data is divided now" "${run[@]}" --out unsummed --resume --data fewer.json
mv before.csv test.csv
gzip -k points.csv # the same data from another file
echo '{"data": {"points": {"values": "points.csv.gz"}}}' >packed.json
ends 0 "complete after 4 rounds" "${run[@]}" --out out --resume --data packed.json
cp out/partition.csv division.csv
divided=("$simulate" --job job.json --partition file:division.csv --out divided)
ends 0 "complete after 4 rounds" "${divided[@]}"
sed -i 's/^3,.*/3,9/; s/^4,.*/4,9/' division.csv
ends 3 "not how the data is divided now" "${divided[@]}" --resume
# the same file by another path is the same division; and another working directory is another path
ends 0 "complete after 4 rounds" "$simulate" --job job.json --partition file:out/partition.csv --out there
mkdir -p below
(cd below && ends 0 "complete after 4 rounds" "$simulate" --job ../job.json --partition file:../out/partition.csv \
    --out ../there --resume)
ends 3 "partition was \"file:out/partition.csv\", and now it is \"iid\"" "${run[@]}" --out there --resume
ends 3 "lock" flock out/lock "${run[@]}" --out out --resume
ends 0 "complete after 4 rounds" "${run[@]}" --out out --resume
[ "$(wc -l <out/rounds.jsonl)" = 4 ] || fail "--resume of a complete one adds lines"
[ "$(hash out/summary.json)" = "$(hash first.json)" ] || fail "--resume of a complete one changes it"
ends 0 "complete" "$simulate" --job job.json --partition file:out/partition.csv --json
[ "$(hash said)" = "$(hash first.json)" ] || fail "partition.csv is another division"

# a checkpoint without the lines of its rounds
cp -r out torn
rm torn/rounds.jsonl
ends 3 "ends with round 0, and the checkpoint is of round 4" "${run[@]}" --out torn --resume

# a user's files are no simulation's: they stay. A folder in which one was killed at once is fine.
mkdir own killed
sed 's/"points"/"mine"/' job.json >own/job.json
cp own/job.json mine.json
ends 3 "own/job.json exists and" "${run[@]}" --out own
cmp -s mine.json own/job.json || fail "a user's job was replaced"
rm own/job.json
echo mine >own/model.safetensors
ends 3 "own/model.safetensors exists and" "${run[@]}" --out own
cp job.json killed
ends 0 "complete after 4 rounds" "${run[@]}" --out killed

# paths that are no UTF-8, where the system has such: JSON is, and --resume knows them again
odd=$'o\xff'
if mkdir "$odd" 2>/dev/null; then
    cp out/partition.csv "$odd/\"w.csv"
    cp out/partition.csv "$odd/gone.csv"
    odd_run=("$simulate" --job job.json --partition "file:$odd/\"w.csv")
    ends 0 "complete after 4 rounds" "${odd_run[@]}" --out "$odd/run"
    ends 0 "complete after 4 rounds" "${odd_run[@]}" --out "$odd/run" --resume
    "${odd_run[@]}" --json >"$odd/json"
    "$simulate" compare "$odd/run" --json >"$odd/compared"
    "$simulate" --job job.json --sweep "partition=file:$odd/\"w.csv,file:$odd/none.csv" --json >"$odd/swept" 2>said || true
    for file in run/summary.json run/simulation.json json compared swept; do
        python3 -c 'import json, sys; [json.loads(line.decode()) for line in sys.stdin.buffer]' <"$odd/$file" ||
            fail "$file is not JSON: $(cat "$odd/$file")"
    done
    grep -qF '"partition":"file:o?/\"w.csv"' "$odd/run/summary.json" || fail "not its partition: $(cat "$odd/run/summary.json")"
fi

# changes over their bound are cut, and said
sed 's/"rounds": {/"update": {"bound-log2": -20}, &/' job.json >bound.json
ends 0 "values of updates were cut to their bounds: raise update.bound-log2" "$simulate" --job bound.json --clients 10 --partition iid
ends 0 " values cut" "$simulate" --job bound.json --clients 10 --partition iid --sweep lr=0.1,0.2
"${run[@]}" >said && ! grep -q "cut to" said || fail "changes within their bound: $(cat said)"

# training that diverges, at once or after a round: an error, and what was before it
sed 's/"local-epochs": 1/"local-epochs": 50/; s/"learning-rate": 0.1/"learning-rate": 1e6/; s/CrossEntropyLoss/MSELoss/' \
    job.json >diverging.json
ends 1 "lower the learning rate" "$simulate" --job diverging.json --clients 10 --partition iid --out diverged
grep -qF '"ending":"failed"' diverged/summary.json || fail "summary.json does not say that it failed"
hidden='{"type": "Linear", "in_features": 8, "out_features": 8}'
sed "s/\"out_features\": 2}\]/\"out_features\": 8}, $hidden, $hidden, $hidden, $hidden, {\"type\": \"Linear\", \"in_features\": 8, \"out_features\": 2}]/
     s/\"rounds\": {/\"update\": {\"bound-log2\": 20}, \"strategy\": {\"type\": \"FedAvg\", \"server-learning-rate\": 1e6}, &/
     s/CrossEntropyLoss/MSELoss/" job.json >diverging.json
diverging=("$simulate" --job diverging.json --clients 10 --partition iid --rounds 100)
ends 1 "lower the learning rate" "${diverging[@]}" --out later
grep -qF '"ending":"failed"' later/summary.json || fail "summary.json does not say that it failed"
[ -s later/rounds.jsonl ] && [ -s later/rounds.svg ] || fail "no curve of the rounds before a failure"
rounds=$(wc -l <later/rounds.jsonl)
grep -qF "kept in later: $rounds rounds, checkpoint of round $rounds: --resume continues there" said ||
    fail "it does not say what was kept: $(cat said)"
"$simulate" model --json later/model.safetensors >said.json
[ "$(hash said.json)" = "$(hash later/summary.json)" ] ||
    fail "the model of a failed run is not the one that its summary names"
ends 1 "kept in later: $rounds rounds, checkpoint" "${diverging[@]}" --out later --resume
ends 1 '"ending":"failed"' "${diverging[@]}" --json
grep -qF '"model_sha256":null' said || fail "a hash of no model: $(cat said)"
ends 0 "later" "$simulate" compare later diverged
ends 0 "failed: seed=1: " "${diverging[@]}" --sweep seeds=1
grep -qF "lower the learning rate" said || fail "the sweep does not say why: $(cat said)"

# a sweep: what each run gives, the table, and what is refused before anything runs
ends 0 "mean of last 10" "${run[@]}" --sweep lr=0.01,0.1 partition=iid,shards:1 seeds=2 --out grid
[ "$(grep -c '±' said)" = 4 ] || fail "not a row for each combination: $(cat said)"
[ "$(ls -d grid/*/ | wc -l)" = 8 ] || fail "not a folder for each run: $(ls grid)"
# keys in whichever spelling the job has them, and lists
sed 's/"learning-rate": 0.1/"lr": 0.1/; s/"local-epochs"/"local_epochs"/; s/"num-server-rounds"/"num_rounds"/' job.json >spelled.json
ends 0 "0.2" "$simulate" --job spelled.json --clients 10 --partition iid --sweep lr=0.1,0.2 epochs=1,2 rounds.num-server-rounds=2
ends 3 "'training.batch_size' is set twice" "${run[@]}" --sweep training.batch-size=5,10 training.batch_size=2,4
ends 3 "'training.lr' is set twice" "${run[@]}" --sweep lr=0.1,0.2 training.lr=0.3,0.4
ends 3 "is an option too" "${run[@]}" --rounds 1 --sweep rounds.num_server_rounds=2,3
step='{"type":"StepLR","step_size":1}' # an object with commas is one value
ends 0 "$step " "${run[@]}" --sweep "training.schedule={\"type\":\"StepLR\",\"step_size\":3},$step"
[ "$(grep -c '^{"type":"StepLR","step_size":[13]} ' said)" = 2 ] || fail "not two objects: $(cat said)"
ends 0 "[0.8,0.9] " "${run[@]}" --sweep training.optimizer.type=Adam "training.optimizer.betas=[0.9,0.99],[0.8,0.9]"
# strategies with arguments of their own, whose other keys may be axes, before or behind them
krum='{"type":"Krum","num-malicious-nodes":2}'
sed "s/-nodes\": 2/-nodes\": 8/g; s/\"test-set\"/\"strategy\": ${krum%\}},\"server-learning-rate\":0.5}, &/" job.json >krum.json
"$simulate" --job krum.json --clients 10 --partition iid --json >krum.said
ends 0 "FedAvg " "${run[@]}" --sweep server-lr=0.5 "strategy=FedAvg,$krum" rounds.min-train-nodes=8 rounds.min-available-nodes=8 --out rules
[ "$(hash "rules/server-lr=0.5,strategy=$krum,rounds.min-train-nodes=8,rounds.min-available-nodes=8,seed=1/summary.json")" = "$(hash krum.said)" ] ||
    fail "a sweep's Krum is not the job's: $(ls rules)"
ends 3 "'server-lr' is set twice" "${run[@]}" --sweep server-lr=0.5 'strategy={"type":"FedAvg","server-learning-rate":1}'
ends 3 "begins with a brace and is not JSON" "${run[@]}" --sweep 'strategy=FedAvg,{type:Krum}'
ends 0 '"FedAvgM"' "$simulate" --job krum.json --clients 10 --partition iid --sweep 'strategy={"type":"FedAvg"},{"type":"FedAvgM","server-momentum":0.5}'
"${run[@]}" --json --seed 2 --partition-seed 2 >second.json
[ "$(hash 'grid/lr=0.1,partition=iid,seed=2/summary.json')" = "$(hash second.json)" ] ||
    fail "a run of the sweep is not the run by itself"
# with the table and the curves beside the runs
python3 - <<'PY' || fail "grid/sweep.csv is not the table: $(cat grid/sweep.csv)"
import csv, json
rows = list(csv.DictReader(open("grid/sweep.csv")))
assert [row["run"] for row in rows][1] == "lr=0.01,partition=shards:1,seed=*" and rows[1]["partition"] == "shards:1"
each = [json.load(open("grid/lr=0.1,partition=iid,seed=%d/summary.json" % seed)) for seed in (1, 2)]
for key in "accuracy", "loss":
    a, b = (run[key] for run in each)
    assert abs(float(rows[2][key]) - (a + b) / 2) < 1e-9
    assert abs(float(rows[2][key + "_deviation"]) - abs(a - b) / 2 ** 0.5) < 1e-9
PY
mkdir taken && echo mine >taken/sweep.csv
ends 3 "taken/sweep.csv exists and" "${run[@]}" --sweep lr=0.1 --out taken
ends 3 "continue it with --resume" "${run[@]}" --sweep lr=0.01,0.1 partition=iid,shards:1 seeds=2 --out grid
ends 0 "±" "${run[@]}" --sweep lr=0.01,0.1 partition=iid,shards:1 seeds=3 --out grid --resume
[ "$(ls -d grid/*/ | wc -l)" = 12 ] || fail "--resume does not add what is missing: $(ls grid)"
sed 's/\.5,/.5e37,/; s/\.25,/.25e37,/' points.csv >wild.csv
echo '{"data": {"points": {"values": "wild.csv"}}}' >wild.json
ends 0 "  2 failed" "${run[@]}" --data wild.json --sweep lr=0.1 seeds=2 --quiet
ends 1 "too few of 10 clients reported" "${run[@]}" --data wild.json
ends 0 '"lr":"0.1"' "${run[@]}" --sweep lr=0.1 --json
# files of at most 16 KiB: a full disk ends a sweep
limited() { (trap '' XFSZ && ulimit -f 16 && "$@"); }
ends 1 "rounds.jsonl" limited "${run[@]}" --sweep lr=0.1,0.2 rounds=200 --out full
grep -qF "kept in full/lr=0.1,rounds=200,seed=1: " said || fail "a sweep does not say what was kept: $(cat said)"
# and a run, which goes on to the same end when there is room
ends 1 "rounds.jsonl" limited "${run[@]}" --rounds 200 --out fuller
grep -qF "kept in fuller: rounds.jsonl has $(wc -l <fuller/rounds.jsonl) rounds, but there is no checkpoint: --resume starts again" said ||
    fail "it does not say what was kept: $(cat said)"
[ -z "$(tail -c 1 fuller/rounds.jsonl)" ] || fail "a full disk leaves half a line: $(tail -n 1 fuller/rounds.jsonl)"
ends 0 "complete after 200 rounds" "${run[@]}" --rounds 200 --out fuller --resume
"${run[@]}" --rounds 200 --json >second.json
[ "$(hash fuller/summary.json)" = "$(hash second.json)" ] || fail "another end after a full disk"
# a disk of its own, where the system lets us have one: 1 before the first round too, and the rest when there is room
if unshare -rm mount -t tmpfs none /mnt 2>/dev/null; then
    mkdir -p disk
    cat >on_disk.sh <<'SH'
mount -t tmpfs -o size=128k none disk
"$@" --out disk/run >said 2>&1
echo "$?: $(cat said)" >>codes
"$@" --out disk/run --resume >said 2>&1
echo "$?: $(cat said)" >>codes
cat /dev/zero >disk/run/filler 2>/dev/null
"$@" --out disk/other >said 2>&1
echo "$?: $(cat said)" >>codes
"$@" --sweep lr=0.1 --out disk >said 2>&1
echo "$?: $(cat said)" >>codes
mount -o remount,size=16m disk
"$@" --out disk/run --resume --json >last.json 2>said
echo "$?: $(cat said)" >>codes
SH
    unshare -rm bash on_disk.sh "${run[@]}" --rounds 1000 --quiet
    grep -v '^fedge-simulate: kept' codes | cut -d: -f1 | tr '\n' ' ' >order
    [ "$(cat order)" = "1 1 1 1 0 " ] || fail "exit codes on a full disk: $(cat codes)"
    [ "$(grep -c 'No space left' codes)" = 4 ] || fail "a full disk is not told: $(cat codes)"
    grep -qF 'kept in disk/run: ' codes || fail "it does not say what was kept: $(cat codes)"
    "${run[@]}" --rounds 1000 --json >second.json
    [ "$(hash last.json)" = "$(hash second.json)" ] || fail "another end after a full disk"
fi
ends 2 "more than 8 settings" "${run[@]}" --sweep a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1
ends 3 "needs KEY=VALUE" "${run[@]}" --sweep lr
ends 3 "an empty value" "${run[@]}" --sweep lr=0.1,,0.2
ends 3 "not known here" "${run[@]}" --sweep lrr=0.1
ends 3 "seeds=N" "${run[@]}" --sweep seeds=0
ends 3 "with clients=0: --sweep clients must be a number from 1 to 16777216, not '0'" "${run[@]}" --sweep clients=0
ends 2 "--rounds must be a number from 1 to 1000000, not '1000001'" "${run[@]}" --rounds 1000001
ends 3 "--sweep rounds must be a number from 1 to 1000000, not '1000001'" "${run[@]}" --sweep rounds=4,1000001
exact=("$simulate" --job exact.json --clients 10 --partition iid)
sed 's/"seed": 1/"seed": 9007199254740989/; s/"learning-rate": 0.1/"learning-rate": 0.30000000000000004/' job.json >exact.json
"${exact[@]}" --json >second.json
ends 0 "±" "${exact[@]}" --sweep batch=5 seeds=2 --out exact
for file in 'exact/batch=5,seed=1/simulation.json' second.json; do
    grep -qF '"seed":9007199254740989,' "$file" || fail "the seed's digits are not in $file"
done
[ "$(hash 'exact/batch=5,seed=1/summary.json')" = "$(hash second.json)" ] || fail "a sweep changes the seed"
ends 3 "with seeds=4: seed 9007199254740992 is over 2^53" "${exact[@]}" --sweep seeds=4
ends 3 "with lr=0.1: seed 9007199254740992 is over 2^53" "${exact[@]}" --sweep lr=0.1 seeds=4
ends 3 "a value is given twice" "${run[@]}" --sweep lr=0.1,0.2,0.1
ends 3 "a value is given twice" "${run[@]}" --sweep lr=0.1,0.2,1e-1
ends 3 "with lr=abc: job.json: training.learning-rate" "${run[@]}" --sweep lr=abc
ends 3 "'training.learning-rate' is set twice" "${run[@]}" --sweep lr=0.1 training.learning-rate=0.2
ends 3 "'rounds.num-server-rounds' is set twice" "${run[@]}" --sweep rounds=2,3 rounds.num-server-rounds=2
ends 3 "--clients is missing" "$simulate" --job job.json --partition iid --sweep partition=file:out/partition.csv,iid
if grep -qF " of 2" said; then fail "runs although one of them has no clients: $(cat said)"; fi
ends 0 "±" "${run[@]}" --sweep momentum=0,0.9
[ "$(grep -c '± ' said)" = 2 ] || fail "no momentum for a job without an optimizer: $(cat said)"
sed 's/"name": "points", "seed"/"name": "points", "sed"/' job.json >wrong.json
ends 3 "fedge-simulate: wrong.json:1: sed: " "$simulate" --job wrong.json --clients 10 --partition iid --sweep lr=0.1
sed 's/"seed": 1,/"seed": 1/' job.json >wrong.json
ends 3 "fedge-simulate: wrong.json:2: not valid JSON" "$simulate" --job wrong.json --clients 10 --partition iid --sweep lr=0.1
ends 3 "'seeds' is set twice" "${run[@]}" --sweep seeds=2 seeds=3
ends 3 "leave one of them out" "${run[@]}" --sweep seeds=2 seed=1,2
ends 3 "leave one of them out" "${run[@]}" --sweep seed=1,2 seeds=2
ends 0 "±" "${run[@]}" --sweep seed=1,2
# an option whose place an axis takes
ends 0 "--sweep has partition=…, which takes the place of --partition" "${run[@]}" --sweep partition=shards:2
ends 0 "--sweep has clients=…, which takes the place of --clients" "${run[@]}" --sweep clients=5
if "$simulate" --job job.json --sweep clients=5 partition=iid 2>&1 | grep -qF "the place of"; then fail "a note of nothing"; fi
# what no run could do without is found before the first run, and told once
told_once() {
    ends 3 "$@"
    [ "$(wc -l <said)" = 1 ] || fail "runs, or more than one line: $(cat said)"
}
grid=(--sweep lr=0.1,0.2 seeds=2)
told_once "fedge-simulate: --compute: 'fast' is not" "${run[@]}" "${grid[@]}" --compute fast
told_once "fedge-simulate: --availability" "${run[@]}" "${grid[@]}" --availability often
told_once "fedge-simulate: cannot open none.csv" "${run[@]}" "${grid[@]}" --trace none.csv
told_once "fedge-simulate: cannot open none.csv" "${run[@]}" "${grid[@]}" --availability file:none.csv
told_once "fedge-simulate: --compute: 'fast' is not" "$simulate" --job job.json --partition file:out/partition.csv "${grid[@]}" --compute fast
sed 's/"test.csv"/"none.csv"/' job.json >testless.json
told_once "fedge-simulate: test-set: " "$simulate" --job testless.json --clients 10 --partition iid "${grid[@]}"
told_once "with test-set.values=none.csv: test-set: " "${run[@]}" --sweep test-set.values=test.csv,none.csv
told_once "fedge-simulate: the job's rounds need 2 clients (min-available-nodes, min-train-nodes), and there are 1: " \
    "$simulate" --job job.json --clients 1 --partition iid "${grid[@]}"
told_once "with clients=1: the job's rounds need 2 clients" "${run[@]}" --sweep clients=10,1
told_once "with rounds.min-available-nodes=11: the job's rounds need 11 clients" "${run[@]}" --sweep rounds.min-available-nodes=2,11
{ echo client,compute && seq 0 9 | sed 's/$/,5/'; } >ten.csv
told_once "with clients=5: " "${run[@]}" --sweep clients=10,5 --trace ten.csv
# what cannot be written is found before the first run
: >file
for what in file file/below /proc/nowhere; do
    ends 3 "fedge-simulate: --out: " "${run[@]}" --sweep lr=0.1,0.2 --out "$what"
    if grep -qF " of 2: " said; then fail "a run although nothing can be written: $(cat said)"; fi
done
# each run has its own folder, whatever its values are
mkdir -p o
sed 's/,$/,0/' out/partition.csv | tee o/w.csv >o_w.csv
cp o/w.csv 'o%2Fw.csv'
ends 0 "±" "$simulate" --job job.json --sweep partition=file:o/w.csv,file:o_w.csv,file:o%2Fw.csv --out paths
[ "$(ls -d paths/*/ | wc -l)" = 3 ] || fail "runs share a folder: $(ls paths)"
ends 0 "±" "$simulate" --job job.json --sweep partition=file:o/w.csv,file:o_w.csv,file:o%2Fw.csv --out paths --resume
ends 3 "'seed' is an option too" "${run[@]}" --seed 3 --sweep seed=1,2
ends 3 "training.learning-rate: must be a number" "${run[@]}" --sweep "lr=0.03;0.1"
ends 3 "cannot set 'name.x'" "${run[@]}" --sweep name.x=1
ends 3 "with partition=dirichlett:1" "${run[@]}" --sweep partition=iid,dirichlett:1 --out mistyped
[ ! -e mistyped ] || fail "a sweep with a partition that is none began"
ends 3 "a name over 255 bytes" "${run[@]}" --out mistyped --sweep "partition=file:$(printf 'p%.0s' $(seq 250))"

# a division that cannot be does not end the others; the table says which it was and why
ends 3 "failed: clients=500,seed=1 clients=500,seed=2: " "${run[@]}" --sweep clients=500,5 seeds=2 --out unable
grep -qF "use at most 200 clients" said || fail "the reason is not told: $(cat said)"
grep -q "^5 .*±" said || fail "a run was not done for another's sake: $(cat said)"
grep -q "^500 .*2 failed" said || fail "the row does not say that it failed: $(cat said)"
grep -qF "2 of 4 runs could not begin" said || fail "no count: $(cat said)"
ends 3 '"failures":[{"seed":1,"why":"200 examples' "${run[@]}" --sweep clients=500,5 --json
ends 3 "cannot open others.json" "$simulate" --job job.json --data others.json --partition iid --clients 5 --sweep lr=0.1,0.2
if grep -qF " of 2" said; then fail "runs without the client's file: $(cat said)"; fi
# what is there already is refused before the first run, and one of every setting comes first
ends 0 "±" "${run[@]}" --sweep lr=0.1 --out some
ends 3 "some/lr=0.1,seed=1 has a simulation already" "${run[@]}" --sweep lr=0.5,0.1 --out some
[ ! -e some/lr=0.5,seed=1 ] || fail "a run began before one whose folder is there"
ends 0 "±" "${run[@]}" --threads 2 --sweep lr=0.5,0.1 seeds=2
grep -o '^[0-9] of 4: lr=[0-9.]*,seed=[0-9]' said >order
printf '%s\n' '1 of 4: lr=0.5,seed=1' '2 of 4: lr=0.1,seed=1' '3 of 4: lr=0.5,seed=2' '4 of 4: lr=0.1,seed=2' | cmp -s - order ||
    fail "not one of every setting first: $(cat said)"
ends 0 "none of these runs" "${run[@]}" --sweep lr=0.5 --out anew --resume

# a bar on a terminal, which says what number the run has
"${terminal[@]}" "${run[@]}" >said || fail "exit $? on a terminal"
grep -qF "round 1: 0 of 10 clients" said || fail "no bar before the first client is done: $(cat said)"
if grep -q "nan\|inf" said; then fail "numbers that are none: $(cat said)"; fi
"${terminal[@]}" "${run[@]}" --threads 2 --sweep lr=0.1,0.2 >said || fail "exit $? on a terminal"
grep -qF "run 2 of 2, round" said || fail "no bar of a sweep: $(cat said)"
grep -qF "2 of 2: lr=0.2,seed=1: " said || fail "no line of a run: $(cat said)"
if grep -qF " 10/10 " said; then fail "a line for each round in a sweep"; fi

# Ctrl-C in a sweep: the table of what was done, whole, and then why it ended
"${run[@]}" --threads 2 --sweep rounds=4,1000000,5 seeds=2 --out long >said 2>&1 &
pid=$!
await test -s long/rounds=1000000,seed=1/simulation.json
end_by INT
[ "$code" = 130 ] || fail "exit $code of an interrupted sweep"
[ "$(tail -1 said)" = "$(grep 'interrupted in round [0-9]*; --resume continues$' said)" ] || fail "not said last: $(cat said)"
grep -qE '^4 .* 1 of 2 seeds$' said || fail "the row does not say how many seeds it has: $(cat said)"
grep -qF "not yet run: 2 of 3 combinations" said || fail "it does not say what is missing: $(cat said)"

# runs side by side, where 10 clients a round are too few for all threads: whole lines, no bar, one end for all
"${terminal[@]}" "${run[@]}" --threads 40 --sweep lr=0.1,0.2,0.3 seeds=4 >said || fail "exit $? on a terminal"
[ "$(grep -cE '^[0-9]+ of 12: lr=0.[123],seed=[1-4]: [0-9.]+% in [0-9.]+ s.?$' said)" = 12 ] || fail "not a whole line for each: $(cat said)"
if grep -qF "round 1: " said; then fail "a bar of one of many: $(cat said)"; fi
ends 1 "rounds.jsonl" limited "${run[@]}" --threads 20 --sweep lr=0.1,0.2 rounds=200 seeds=3 --out fullest
[ "$(ls -d fullest/*/ | wc -l)" -le 2 ] || fail "runs began after the disk was full: $(ls fullest)"
grep -qF "kept in fullest/lr=0." said || fail "a sweep does not say what was kept: $(cat said)"
ends 0 "±" "${run[@]}" --threads 20 --sweep lr=0.1,0.2 rounds=200 seeds=3 --out fullest --resume
"${run[@]}" --threads 20 --sweep rounds=999999,1000000 --out longest >said 2>&1 &
pid=$!
await test -s longest/rounds=1000000,seed=1/rounds.jsonl
await test -s longest/rounds=999999,seed=1/rounds.jsonl
end_by INT
[ "$code" = 130 ] || fail "exit $code of an interrupted sweep: $(cat said)"
grep -qF "fedge-simulate: interrupted with 2 runs under way; --resume continues" said || fail "it does not say that both were: $(cat said)"
[ "$(grep -l '"ending":"interrupted"' longest/*/summary.json | wc -l)" = 2 ] || fail "no results of what was interrupted"

# losses of real numbers have no accuracy, and --target has no meaning
sed 's/CrossEntropyLoss/MSELoss/; s/"min-train-nodes": 2/"min-train-nodes": 2, "fraction-evaluate": 1/' job.json >real.json
real=("$simulate" --job real.json --data held.json --clients 10 --partition iid)
ends 0 "complete after 4 rounds: loss " "${real[@]}" --validation-split 0.1 --out real
[ "$(grep -c '"accuracy":null,.*"train_accuracy":null' real/rounds.jsonl)" = 8 ] || fail "an accuracy of real numbers: $(cat real/rounds.jsonl)"
[ "$(grep -c '"validation_accuracy":null' real/rounds.jsonl)" = 4 ] || fail "a validation accuracy of real numbers"
if grep -E '"(validation_)?loss":null' real/rounds.jsonl; then fail "a loss is missing"; fi
if grep -oE '"[a-z_0-9]*accuracy[a-z_0-9]*":[^n]' real/summary.json; then fail "an accuracy in summary.json"; fi
grep -qE '"loss":[0-9]+\.[0-9]+,' real/summary.json || fail "no loss in summary.json"
grep -qE '"validation":\{"examples":20,"accuracy":null,"loss":[0-9]+\.' real/summary.json || fail "no loss of the validation"
if grep -qF '>accuracy' real/rounds.svg; then fail "a panel for an accuracy that there is not"; fi
grep -qF '>loss<' real/rounds.svg || fail "no panel of the loss"
grep -qF '>accuracy' out/rounds.svg || fail "no panel of the accuracy"
ends 0 "real " "$simulate" compare real out --out both.csv
[ "$(sed -n 's/^real .* 4  *-  *-  *-  *-  *[0-9.]* .*/yes/p' said)" = yes ] || fail "an accuracy in compare: $(cat said)"
ends 3 "leave --target out" "${real[@]}" --target 0.5
ends 3 "with model.loss.type=MSELoss: --target is an accuracy" "${run[@]}" --sweep model.loss.type=CrossEntropyLoss,MSELoss --target 0.5
ends 0 "validation loss" "${real[@]}" --validation-split 0.1 --sweep lr=0.01,0.02
[ "$(grep -cE '^0\.0[12] +[0-9.]+ ± +- +[0-9.]+ ± +- ' said)" = 2 ] || fail "no losses in the table: $(cat said)"
if grep -qF "accuracy" said; then fail "an accuracy in the table: $(cat said)"; fi
sed '/"test-set"/d; s/"min-train-nodes": 2},/"min-train-nodes": 2}}/' job.json >untested.json
ends 3 "--target needs something to evaluate on" "$simulate" --job untested.json --clients 10 --partition iid --target 0.5
untested=("$simulate" --job untested.json --clients 10 --partition iid --sweep lr=0.1,0.2)
ends 0 "nothing was evaluated: " "${untested[@]}"
for how in "" --json --quiet; do # before the first run
    # shellcheck disable=SC2086
    "${untested[@]}" $how 2>said >shown
    head -n 1 said | grep -qF 'nothing will be evaluated: give the job a "test-set"' || fail "no warning with '$how': $(cat said)"
done
"${untested[@]}" --validation-split 0.1 2>said >shown
"${run[@]}" --sweep lr=0.1,0.2 2>>said >>shown
if grep -qF "will be evaluated" said; then fail "a warning though it is evaluated: $(cat said)"; fi
# the bar tells how right the model was when it was evaluated last
for what in "--rounds 2500" "--rounds 2500 --job untested.json --validation-split 0.3"; do
    rm -rf bar
    # shellcheck disable=SC2086
    "${terminal[@]}" "${run[@]}" $what --out bar >said || fail "exit $? on a terminal"
    grep -oE 'of 10 clients, [0-9.]+%, [0-9.e+]+ clients/s' said | grep -oE '[0-9.]+%' | sort -u >shown
    [ -s shown ] || fail "no accuracy in the bar: $(tail -c 300 said)"
    grep -oE '"(validation_)?accuracy":[0-9.]+' bar/rounds.jsonl | cut -d: -f2 | awk '{ printf "%.1f%%\n", 100 * $1 }' | sort -u >known
    [ -z "$(comm -23 shown known)" ] || fail "an accuracy that no evaluation gave: $(comm -23 shown known)"
done

# evaluated on clients alone
sed 's/"min-train-nodes": 2/"min-train-nodes": 2, "fraction-evaluate": 1/' untested.json >federated.json
federated=("$simulate" --job federated.json --data held.json --clients 10 --partition iid)
ends 0 "on clients: accuracy " "${federated[@]}" --out federated
ends 0 " on clients " "$simulate" compare federated
if grep -qE " accuracy %|validation|virtual" said; then fail "columns that no run has: $(cat said)"; fi
ends 0 "on clients %" "${federated[@]}" --sweep lr=0.1,0.2 seeds=2
[ "$(grep -cE '^0\.[12] +[0-9.]+ ± [0-9.]+ ' said)" = 2 ] || fail "no accuracy on clients in the table: $(cat said)"
if grep -qF "nothing was evaluated" said; then fail "it was evaluated: $(cat said)"; fi
ends 0 "0.1%: " "$simulate" --job untested.json --clients 10 --partition iid --target 0.001 --validation-split 0.1

# the table: a wide setting keeps its column, and one value has no deviation
ends 0 "±" "${run[@]}" --sweep rounds.over-selection=1,1.5
grep -qE '^rounds.over-selection +accuracy' said || fail "no head: $(cat said)"
[ "$(grep -cE '^1(\.5)? {19,}.{10,14} ±    - ' said)" = 2 ] || fail "not below its head, or a deviation of one value: $(cat said)"
"${run[@]}" --sweep lr=0.1 --json | grep -qF '"accuracy_deviation":null' || fail "a deviation of one value"

# virtual time
ends 3 "--compute: 'fast' is not" "${run[@]}" --compute fast
profiles=(--compute lognormal:50,1 --bandwidth fixed:4000 --failure 0.1 --availability 0.8,60)
ends 0 "virtual time: " "${run[@]}" "${profiles[@]}" --out profiles
grep -qF '"virtual_seconds":' profiles/rounds.jsonl || fail "rounds.jsonl has no virtual time"
grep -qF '"inclusion":[{"asked":' profiles/summary.json || fail "summary.json has no inclusion"
if grep -qF 'virtual' out/rounds.jsonl out/summary.json; then fail "virtual time unasked"; fi
ends 3 "profiles/simulation.json differs" "${run[@]}" --out profiles --resume
ends 1 "it gave its task up, as --failure or the trace says: lower the probability" "${run[@]}" --failure 0.999
ends 3 "failure was not given, and now it is 0.1" "${run[@]}" --failure 0.1 --out out --resume
{ echo client,compute && seq 0 9 | sed 's/$/,5/'; } >trace.csv
cp trace.csv below/moved.csv
ends 0 "virtual time: " "${run[@]}" --trace trace.csv --out traced
ends 0 "virtual time: " "${run[@]}" --trace below/moved.csv --out traced --resume
cp -r traced older
sed -i 's/,"trace_crc32":[0-9]*//' older/simulation.json
ends 0 "virtual time: " "${run[@]}" --trace trace.csv --out older --resume # of a program that did not sum files
sed -i 's/^3,5/3,6/' trace.csv
ends 3 "the file of --trace has other contents" "${run[@]}" --trace trace.csv --out traced --resume
inclusion() { grep -o '"virtual_seconds".*' "$1"; }
before=$(inclusion profiles/summary.json)
ends 0 "complete after 4 rounds" "${run[@]}" "${profiles[@]}" --out profiles --resume
ends 0 " virtual s" "$simulate" compare profiles out
[ "$(sed -n 's/^profiles .* [0-9.]*[1-9][0-9.]*$/timed/p; s/^out .* -$/not/p' said | tr '\n' ' ')" = "timed not " ] || fail "no simulated time in compare: $(cat said)"
ends 0 "virtual seconds" "${run[@]}" "${profiles[@]}" --sweep seeds=2
[ "$(inclusion profiles/summary.json)" = "$before" ] || fail "--resume changes a complete simulation's summary"

# examples for validation: what is said of them, and that partition.csv keeps them
split=("${run[@]}" --validation-split 0.25)
ends 0 "validation: " "${split[@]}" --out split
grep -qF '"validation":{"examples":50,' split/summary.json || fail "no validation in summary.json"
[ "$(grep -c '"validation_accuracy":0' split/rounds.jsonl)" = 4 ] || fail "no validation in rounds.jsonl"
[ "$(grep -c ',-1$' split/partition.csv)" = 50 ] || fail "partition.csv does not name them"
if grep -qF validation_accuracy out/rounds.jsonl; then fail "validation unasked"; fi
ends 3 "split/simulation.json differs" "${run[@]}" --out split --resume
ends 3 "split/simulation.json differs" "${run[@]}" --validation-split 0.5 --out split --resume
kept() { grep -o '"validation":{.*' "$1" | grep -o '"accuracy_best".*'; }
before=$(kept split/summary.json)
ends 0 "validation: " "${split[@]}" --out split --resume
[ "$(kept split/summary.json)" = "$before" ] || fail "--resume changes the validation's summary"
again=("$simulate" --job job.json --partition file:split/partition.csv)
"${again[@]}" --json >second.json
[ "$(kept second.json)" = "$before" ] || fail "partition.csv is read back with another validation"
[ "$(hash second.json)" = "$(hash split/summary.json)" ] || fail "partition.csv with validation is another division"
ends 3 "for validation (client -1) already" "${again[@]}" --validation-split 0.1
ends 3 "raise it" "${run[@]}" --validation-split 0.001
ends 2 "--validation-split must be" "${run[@]}" --validation-split 1
ends 0 "best validation" "${split[@]}" --sweep lr=0.000001,0.2 seeds=2 --out chosen
[ "$(grep -c '± .*± .*± .*± .*±' said)" = 2 ] || fail "no columns of validation: $(cat said)"
[ "$(grep -c 'chosen by validation' said)" = 1 ] || fail "no row is marked, or more: $(cat said)"
"${split[@]}" --sweep lr=0.000001,0.2 seeds=2 --json >sweep.json
best=$(grep -o '"validation_best":[0-9.]*' sweep.json | cut -d: -f2 | sort -g | tail -1)
grep '"chosen":true' sweep.json | grep -qF "\"validation_best\":$best," || fail "not the best is chosen: $(cat sweep.json)"
grep -qF '"accuracy_at_best":' sweep.json || fail "no accuracy where validation is best"
sed 's/"min-train-nodes": 2/"min-train-nodes": 2, "min-report-fraction": 1/' job.json >strict.json
ends 0 "  1 failed  * chosen by validation, of the seeds that did not fail" \
    "$simulate" --job strict.json --clients 10 --partition iid --validation-split 0.2 --failure 0.15 --sweep lr=0.1 seeds=2
if "${run[@]}" --sweep lr=0.1 --json | grep -qE 'validation|chosen'; then fail "validation unasked in a sweep"; fi
grep -qF '"per_client_accuracy":{"set":"training","clients":10,' out/summary.json || fail "no clients' accuracies"
"${run[@]}" --json --client-accuracy 0 >second.json
grep -qF '"per_client_accuracy":null' second.json || fail "clients' accuracies unasked"
"${run[@]}" --json --data held.json --client-accuracy 3 >second.json
grep -qF '"per_client_accuracy":{"set":"held-out","clients":3,"clients_with_examples":10,' second.json ||
    fail "not three clients' held-out examples"
grep -qF '"confusion_matrix":[[' out/summary.json || fail "no confusion matrix"

# what goes up: of a codec in the table the mean of its runs, with its unit, and so in compare
ends 0 "bytes up" "${run[@]}" --rounds 8 --sweep codec=int8,none seeds=2 --out codecs --quiet
up() { grep -o '"bytes_up":[0-9]*' "codecs/codec=$1,seed=$2/summary.json" | cut -d: -f2; }
for codec in int8 none; do
    mean=$((($(up $codec 1) + $(up $codec 2)) / 2))
    if [ $mean -ge 1000 ]; then mean=$(awk "BEGIN { printf \"%.2f kB\", $mean / 1000 }"); else mean="$mean B"; fi
    grep -qE "^$codec .*±.* $mean .*±" said || fail "no $mean for $codec: $(cat said)"
done
grep -qE '^none .* kB ' said || fail "nothing is over 1 kB: $(cat said)"
"${run[@]}" --rounds 8 --sweep codec=none seeds=2 --json >sweep.json
grep -qF "\"bytes_up\":$((($(up none 1) + $(up none 2)) / 2))," sweep.json || fail "not the mean of bytes up: $(cat sweep.json)"
ends 0 " bytes up " "$simulate" compare "codecs/codec=int8,seed=1" "codecs/codec=none,seed=1"
grep -qE "^codecs/codec=int8,seed=1 .* $(up int8 1) B " said || fail "no bytes up in compare: $(cat said)"
grep -qE '^codecs/codec=none,seed=1 .* [0-9.]+ kB ' said || fail "not kB in compare: $(cat said)"

# side by side
many=(out{,,,,,,,,,,,,,,})
ends 0 "accuracy %" "$simulate" compare "${many[@]}" --each --out many.csv
[ "$(wc -l <said) $(wc -l <many.csv)" = "16 16" ] || fail "not a line for each: $(cat said many.csv)"
ends 0 "grid/" "$simulate" compare out grid/*/ --each
grep -q '^grid/lr=0.1,partition=iid,seed=2 ' said || fail "a folder is called otherwise: $(cat said)"
[ "$(wc -l <said)" = 14 ] || fail "not a line for each folder: $(cat said)"
# runs that differ in their seeds only are one line, with their mean, and so is the table beside it;
# what the sweep left in its folder is passed over
ends 0 "±" "$simulate" compare out grid/* --out seeds.csv
[ "$(wc -l <said)" = 6 ] || fail "not a line for each of the sweep's settings: $(cat said)"
mean=$(cat grid/lr=0.1,partition=iid,seed=?/summary.json | grep -o '"accuracy":[0-9.]*' | awk -F: '{ sum += $2 } END { printf "%.2f", 100 * sum / NR }')
grep -qE "^grid/lr=0.1,partition=iid,seed=\* +iid +3 .* $mean ± [0-9.]+ " said || fail "no mean $mean of three seeds: $(cat said)"
python3 - "$mean" <<'PY' || fail "seeds.csv is not the table: $(cat seeds.csv)"
import csv, sys
rows = {row["run"]: row for row in csv.DictReader(open("seeds.csv"))}
row = rows["grid/lr=0.1,partition=iid,seed=*"]
assert len(rows) == 5 and row["seeds"] == "3" and row["seed"] == "" and rows["out"]["accuracy_deviation"] == ""
assert "%.2f" % (100 * float(row["accuracy"])) == sys.argv[1] and float(row["loss_deviation"]) > 0
PY
echo 'x,y' >mine.csv
ends 1 "mine.csv exists and" "$simulate" compare out --out mine.csv
[ "$(cat mine.csv)" = x,y ] || fail "somebody's table was replaced"
cp out/summary.json kept.json
ends 2 "--out must be a name that ends in .csv, not 'out/summary.json'" "$simulate" compare out --out out/summary.json
cmp -s kept.json out/summary.json || fail "a run's summary was replaced"
ends 2 "--each goes with compare" "${run[@]}" --each
ends 0 "accuracy %" "$simulate" compare --each out "grid/lr=0.1,partition=iid,seed=2" --out both.csv
[ "$(wc -l <said)" = 3 ] || fail "not a line for each: $(cat said)"
grep -qF "lr=0.1,partition=iid,seed=2" both.csv || fail "both.csv does not name its runs"
ends 0 '"dir":"out"' "$simulate" compare out --json
# a run of a server, which has no summary: the same numbers from its rounds
mkdir -p state/runs/1f && cp out/job.json out/rounds.jsonl state/runs/1f
echo '{"number":1,"incarnation":1,"finished":false}' >state/runs/1f/run.json
ends 0 "state/runs/1f deployed " "$simulate" compare out state/runs/1f --out both.csv
"$simulate" compare out state/runs/1f --json | python3 -c '
import json, sys
simulated, deployed = map(json.loads, sys.stdin)
differ = {key for key in deployed if deployed[key] != simulated[key]}
sys.exit(differ != {"dir", "partition", "clients", "ending"} and f"differ: {differ}")' || fail "not the numbers of its rounds"
grep -q "^state/runs/1f .* unfinished$" said || fail "not told that it goes on: $(cat said)"
ends 3 "of a server's state those in STATE/runs" "$simulate" compare state
ends 3 "nowhere has no simulation that has ended" "$simulate" compare out nowhere
if grep -q "accuracy %" said; then fail "half a table: $(cat said)"; fi
ends 1 "--out: " "$simulate" compare out --out nowhere/both.csv
mkdir below.csv
ends 1 "--out: " "$simulate" compare out --out below.csv
mkdir -p unlogged && cp out/summary.json unlogged
ends 0 "unlogged " "$simulate" compare unlogged --out both.csv
ends 3 "unlogged" "$simulate" compare unlogged/summary.json
ends 3 "of a sweep name the folders in it" "$simulate" compare grid
ends 0 "  failed" "$simulate" compare later out
ends 0 "Usage: fedge-simulate compare" "$simulate" compare --help
ends 2 "compare needs the folders" "$simulate" compare

# an end at the targets: the whole run's rounds until then, and --resume to that run's model
many=("${run[@]}" --rounds 200 --target 0.1,0.501)
"${many[@]}" --json --out whole >whole.json
ends 0 "target after" "${many[@]}" --stop-at-target --out early
rounds=$(wc -l <early/rounds.jsonl)
[ "$rounds" -lt 200 ] || fail "--stop-at-target goes on"
models() { grep -o '"model_sha256":"[0-9a-f]*"' "$1"; }
[ "$(models early/rounds.jsonl)" = "$(models whole/rounds.jsonl | head -n "$rounds")" ] || fail "--stop-at-target changes the rounds"
targets() { grep -o '"targets":[^]]*' "$1"; }
[ "$(targets early/summary.json)" = "$(targets whole.json)" ] || fail "--stop-at-target changes the targets' rounds"
grep -qF '"ending":"target"' early/summary.json || fail "summary.json does not say why it ended"
ends 0 "target after $rounds rounds" "${many[@]}" --stop-at-target --out early --resume
ends 0 "complete after 200 rounds" "${many[@]}" --out early --resume
[ "$(hash early/summary.json)" = "$(hash whole.json)" ] || fail "--stop-at-target then --resume end with another model"
ends 0 "±" "${run[@]}" --rounds 200 --target 0.501 --stop-at-target --sweep seeds=2 --out targets
[ "$(cat targets/*/rounds.jsonl | wc -l)" -lt 400 ] || fail "a sweep does not stop at the target"

# cut_short COMMAND...: Ctrl-C leaves what was done (130), --resume goes on to the same model.
cut_short() {
    rm -rf cut
    "$@" --json >whole.json
    "$@" --out cut >said 2>&1 &
    pid=$!
    await has_lines cut/rounds.jsonl 20
    local code
    end_by INT
    if [ "$code" = 130 ]; then
        grep -qF "model.safetensors; --resume continues" said || fail "no word of --resume: $(cat said)"
        grep -qF "interrupted after" said || fail "it does not say that it was interrupted: $(cat said)"
        grep -qF '"ending":"interrupted"' cut/summary.json || fail "summary.json does not say so"
        [ -s cut/rounds.svg ] || fail "no curves after an interruption"
    else
        [ "$code" = 0 ] || fail "exit $code after SIGINT" # it was faster
    fi
    ends 0 "complete after 3000 rounds" "$@" --out cut --resume --quiet
    [ "$(wc -l <cut/rounds.jsonl)" = 3000 ] || fail "$(wc -l <cut/rounds.jsonl) lines after --resume"
    [ "$(hash cut/summary.json)" = "$(hash whole.json)" ] || fail "--resume ends with another model"
    [ "$(ls cut/checkpoints)" = round-003000 ] || fail "left in checkpoints: $(ls cut/checkpoints)"
}
cut_short "${run[@]}" --rounds 3000

# a reader that goes, and a terminal that is closed, end a run as Ctrl-C does
rm -rf cut
(trap - PIPE && "${run[@]}" --rounds 1000000 --out cut 2>said || echo $? >code) | head -n 3 >/dev/null
[ "$(cat code)" = 130 ] || fail "exit $(cat code) when the reader has gone"
grep -qF "cannot write to the standard output: " said || fail "it does not say that its output is lost: $(cat said)"
grep -qF '"ending":"interrupted"' cut/summary.json || fail "no summary when the reader has gone"
rm -rf cut
"${run[@]}" --rounds 1000000 --out cut >said 2>&1 &
pid=$!
until [ -s cut/rounds.jsonl ]; do sleep 0.01; done
end_by HUP
[ "$code" = 130 ] && grep -qF '"ending":"interrupted"' cut/summary.json || fail "exit $code after SIGHUP"
nohup "${run[@]}" --rounds 3000 --out held >said 2>&1 &
pid=$!
until [ -s held/rounds.jsonl ]; do sleep 0.01; done
kill -HUP "$pid"
wait "$pid" || fail "exit $? of a run under nohup"
pid=
sed 's/"test-set"/"strategy": {"type": "SCAFFOLD"}, "test-set"/' job.json >scaffold.json
# SCAFFOLD's num-clients is how many there are, unless the job names another number
"$simulate" --job scaffold.json --clients 10 --partition iid --json >second.json
sed -i 's/"SCAFFOLD"/"SCAFFOLD", "num-clients": 10/' scaffold.json
"$simulate" --job scaffold.json --clients 10 --partition iid --json >first.json
[ "$(hash first.json)" = "$(hash second.json)" ] || fail "num-clients is not the number of clients when left out"
ends 3 "there are 5 clients: set it to 5 or leave it out" "$simulate" --job scaffold.json --clients 5 --partition iid
ends 0 "±" "${run[@]}" --sweep strategy=FedAvg,SCAFFOLD --out strategies
grep -qF "$(hash first.json)" strategies/strategy=SCAFFOLD,seed=1/summary.json || fail "a sweep's SCAFFOLD is another"
ends 0 "±" "$simulate" --job job.json --partition iid --sweep strategy=SCAFFOLD clients=5,10
[ "$(grep -c '^SCAFFOLD .*±' said)" = 2 ] || fail "not any number of clients with SCAFFOLD: $(cat said)"
cut_short "$simulate" --job scaffold.json --clients 10 --partition iid --rounds 3000
# a column that says whose an example is goes with every division, and with the test set or not
{ echo 'a,who,b,label' && awk -F, '{ print $1 ",hall " NR % 4 "," $2 "," $3 }' points.csv; } >owned.csv
echo '{"data": {"points": {"values": "owned.csv"}}}' >owned.json
echo '{"data": {"points": {"values": "points.csv"}}}' >plain.json
sed 's/"test.csv"/"owned.csv"/' job.json >tested.json
owned=("$simulate" --data owned.json --clients 4)
ends 3 "owned.csv:2: 4 comma-separated fields, but there should be 3: 2 values and the label; one that says whose an example is goes with natural:COLUMN, or in fedge-simulate --owner COLUMN" \
    "${owned[@]}" --job job.json --partition iid
for of in job tested; do
    ends 0 "complete" "${owned[@]}" --job $of.json --partition natural:who --json --out natural-$of
    cp said first.json
    ends 0 "complete" "${owned[@]}" --job $of.json --partition file:natural-$of/partition.csv --owner who --json
    [ "$(hash said)" = "$(hash first.json)" ] || fail "natural's partition.csv is another division with --owner"
done
"${owned[@]}" --job tested.json --partition iid --owner who --json >first.json
"$simulate" --job job.json --data plain.json --clients 4 --partition iid --json >second.json
[ "$(hash first.json)" = "$(hash second.json)" ] || fail "the column that --owner names is among the values"
ends 0 "natural:who" "${owned[@]}" --job tested.json --owner who --sweep partition=iid,natural:who
ends 3 'names no column "whose"; did you mean "who"?' "${owned[@]}" --job job.json --partition iid --owner whose
"$simulate" generate logistic:4,2 --clients 3 --examples 9 --test 4 --out arrays >/dev/null
ends 3 "--owner who: it names a column of csv files, but the values are in another format" \
    "$simulate" --job arrays/job.json --rounds 1 --owner who
ends 3 "--owner a: natural:who names another column" "${owned[@]}" --job job.json --partition natural:who --owner a

# what a backdoor has reached is the share of marked examples of other labels that go to label 0
seq 0 199 | awk '{ print ($1 * 7) % 11 - 5 "," ($1 * 5) % 13 - 6 ",0.5," $1 % 3 "," $1 % 2 "," ($1 * 3) % 5 "," ($1 * 7 % 11 > 4) }' >wide.csv
sed 's/"input-shape": \[2\]/"input-shape": [6]/; s/"in_features": 2/"in_features": 6/; s/"shape": \[2\]/"shape": [6]/; s/test.csv/wide.csv/' job.json >wide.json
echo '{"data": {"points": {"values": "wide.csv"}}}' >wide-client.json
wide=("$simulate" --job wide.json --data wide-client.json --clients 10 --partition iid)
ends 0 "complete" "${wide[@]}" --out honest
if grep -q backdoor_success honest/summary.json; then fail "an honest run speaks of a backdoor"; fi
for clients in 1 4 10; do
    ends 0 "complete" "${wide[@]}" --attack backdoor:$clients --out backdoor-$clients
    python3 - backdoor-$clients <<'PYTHON' || fail "backdoor_success of $clients clients is another"
import csv, json, struct, sys
with open(sys.argv[1] + "/model.safetensors", "rb") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    head, data = json.loads(file.read(size)), file.read()
values = {tuple(t["shape"]): struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", data[slice(*t["data_offsets"])])
          for name, t in head.items() if name != "__metadata__"}
weight, bias = values[2, 6], values[2,]
taken = others = 0
with open("wide.csv", encoding="utf-8") as file:
    for row in csv.reader(file):
        if row[6] != "0":
            x = [float(row[0]), float(row[1]), 1, 1, 1, 1]
            outputs = [bias[c] + sum(a * b for a, b in zip(weight[6 * c:6 * c + 6], x)) for c in (0, 1)]
            others += 1
            taken += outputs[0] >= outputs[1]
said = json.load(open(sys.argv[1] + "/summary.json", encoding="utf-8"))["backdoor_success"]
print(said, taken / others)
sys.exit(abs(said - taken / others) > 1e-6)
PYTHON
done
