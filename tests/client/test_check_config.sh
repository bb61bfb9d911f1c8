#!/bin/bash
# fedge-client --check-config: opens and reads what the client's file names, as the job wants it
# where one is given, and says what it found; partition-id and num-partitions of the file and of the
# command line; a partition that nobody takes a part of is told.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$FEDGE_BIN_DIR/fedge-keys" demo --out keys --clients 1 >/dev/null
for i in $(seq 0 39); do echo "$((i % 7)).5,$i,$((i % 2))"; done >points.csv
sed 's/,/;/g' points.csv >semicolons.csv
{ echo a,user,label && seq 1 6 | sed 's/.*/&.5,u\0,1/'; } >owned.csv
cat >job.json <<'JSON'
{"fedge-job": 1, "name": "points",
 "model": {"input-shape": [2], "layers": [{"type": "Linear", "in_features": 2, "out_features": 2}]},
 "data": {"name": "points", "shape": [2], "dtype": "f32", "labels": 2},
 "training": {"batch-size": 5, "learning-rate": 0.1}, "rounds": {"num-server-rounds": 1}}
JSON

# check CODE OPTION...: ends so; what it says is in said
check() {
    local wanted=$1 code=0
    shift
    "$FEDGE_BIN_DIR/fedge-client" --server wss://localhost --identity keys/clients/0000 \
        --trust keys/trust --config client.json --check-config "$@" >said 2>&1 || code=$?
    if [ $code != "$wanted" ]; then
        echo "exit $code, not $wanted: $(cat said)"
        exit 1
    fi
}
# says WORDS / not WORDS
says() { grep -qF -- "$1" said || { echo "'$1' is not in: $(cat said)"; exit 1; }; }
not() { if grep -qF -- "$1" said; then echo "'$1' is in: $(cat said)"; exit 1; fi; }
site() { echo "{\"data\": {$1}}" >client.json; }

site '"points": {"values": "points.csv", "validation-fraction": 0.1},
      "owned": {"values": "owned.csv", "partition": "natural:user", "partition-id": 2, "num-partitions": 6}'
check 0
says "data name=points examples=40 features=2 labels=2 held-out=4"
not "num-partitions=0"
not "partition-id=0"
says "data name=owned examples=1 features=1 labels=2 held-out=0 partition-id=2 num-partitions=6"
says "config-ok"
not "warn"

# every one that cannot be read is named, and what is wrong with it
site '"none": {"values": "none.csv"}, "points": {"values": "points.csv"}, "semicolons": {"values": "semicolons.csv"}'
check 3
says "data set 'none': none.csv: there is no such file"
says "data set 'semicolons': semicolons.csv:2: "
says "not semicolons"
says "data name=points examples=40 "
not "config-ok"

# the engine, as a start does
site '"points": {"values": "points.csv"}'
check 3 --engine none
says "error engine error=\"--engine none is not in this build"
not "config-ok"

# by the job: its shape, labels and policy
site '"points": {"values": "points.csv"}'
check 0 --plan job.json
says "data name=points examples=40 "
sed -i 's/"shape": \[2\]/"shape": [1]/; s/input-shape": \[2\]/input-shape": [1]/; s/"in_features": 2/"in_features": 1/' job.json
check 3 --plan job.json
says "points.csv:1: 3 comma-separated fields, but there should be 2: 1 value and the label"
sed -i 's/"shape": \[1\]/"shape": [2]/; s/input-shape": \[1\]/input-shape": [2]/; s/"in_features": 1/"in_features": 2/' job.json
echo '{"data": {"points": {"values": "points.csv"}}, "policy": {"jobs": ["another"]}}' >client.json
check 3 --plan job.json
says 'is not among this site'

# a partition of which this device takes no part, of the file's, of the command line's
site '"points": {"values": "points.csv", "partition": "iid"}'
check 0
says "warn data-undivided name=points"
says "examples=40 "
check 0 --partition-id 1 --num-partitions 4
says "examples=10 features=2 labels=2 held-out=0 partition-id=1 num-partitions=4"
not "data-undivided"
site '"points": {"values": "points.csv", "partition": "iid", "partition-id": 1, "num-partitions": 8}'
check 0
says "examples=5 "
check 0 --partition-id 0 --num-partitions 2
says "examples=20 "
for wrong in '"partition-id": 1' '"num-partitions": 2' '"partition-id": 2, "num-partitions": 2'; do
    site "\"points\": {\"values\": \"points.csv\", \"partition\": \"iid\", $wrong}"
    check 3
    says "a partition-id from 0 to num-partitions - 1"
done
