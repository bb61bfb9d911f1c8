#!/usr/bin/env bash
# What becomes of a fedge-simulate that has too little memory, or too small a disk: test_limits.sh SIMULATE
set -euo pipefail

simulate=$1
# shellcheck source=tests/aggregator/command_line.sh
. "$(dirname "$0")/../../command_line.sh"

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

# Five clients a round keep more than a model's file takes, so their work is what memory ends for.
sed 's/"fraction-train": 0.1/"fraction-train": 0.25/' job.json >wide.json
wide=("$simulate" --job wide.json "${run[@]:3}")
# A client's work that lacks memory ends the run, and a sweep, at once: nobody declined.
if address_space 1000000 "$simulate" --version >/dev/null 2>&1; then # not with a sanitizer
    met=
    for ((size = 60000; size < 300000; size += 10000)); do
        rm -rf short
        if address_space "$size" "${wide[@]}" --out short >said 2>&1; then break; fi
        if grep -qF 'in a row' said; then fail "lack of memory is taken for clients that decline: $(cat said)"; fi
        if ! grep -qE '^fedge-simulate: round [2-9]: client [0-9]+: no memory ' said; then continue; fi
        met=$size
        grep -qF -e "--client-state-memory BYTES has them in a file" said || fail "not what to change: $(cat said)"
        grep -qF "checkpoint of round" said || fail "what has closed is not kept: $(cat said)"
        [ -s short/model.safetensors ] && grep -qF '"ending":"failed"' short/summary.json || fail "no model or no summary"
        break
    done
    [ -n "$met" ] || fail "no size at which a round lacks memory"
    ends 1 "no memory " address_space "$met" "${wide[@]}" --sweep seeds=2 --out swept
fi

# A limit that is made up, where the system lets us have files of our own where it tells of limits.
cat >made_up.sh <<'SH2'
bytes=$1
shift
while read -r mount file; do
    mount -t tmpfs none "$mount" && echo "$bytes" >"$mount/$file"
done < <(awk '{ type = ""; for (i = 6; i < NF; i++) if ($i == "-") { type = $(i + 1); options = $(i + 3) } }
              type == "cgroup2" { print $5, "memory.max" }
              type == "cgroup" && options ~ /(^|,)memory(,|$)/ { print $5, "memory.limit_in_bytes" }' /proc/self/mountinfo)
exec "$@"
SH2
made_up() { unshare -rm bash made_up.sh "$@"; }
made_up 1 "${run[@]}" >said 2>&1 || true
if grep -qF "0 MB for this program" said; then
    # 20 variates and 2 copies of 4 MB, and more: refused before the first round, by the parts together
    ends 3 "88 MB for clients' states" made_up 40000000 "${run[@]}" --out tight --client-state-memory 100000000
    grep -qF "40 MB for this program: use " said || fail "not what there is: $(cat said)"
    grep -qF "fewer clients or rounds" said || fail "not what to change: $(cat said)"
    # Without the option what clients keep has what the rest leaves, and the rest has to fit.
    ends 3 "for the global model" made_up 60000000 "${run[@]}" --out tight
    [ ! -e tight ] || fail "a folder for a run that was refused"
    needed=$(sed -n 's/^fedge-simulate: \([0-9]*\) MB are needed: .*/\1/p' said)
    ends 3 "MB are needed" made_up "$((needed - 3))000000" "${run[@]}" --out tight
    ends 0 "complete after 10 rounds" made_up "$((needed + 20))000000" "${run[@]}" --out tight
    grep -F client-states-on-disk said | grep -qF "memory has no room for all of it" || fail "nothing of the file: $(cat said)"
    ends 0 "complete after 10 rounds" made_up "$((needed + 95))000000" "${run[@]}" --out roomy
    if grep -F client-states-on-disk said; then fail "a file for what has room"; fi
    cmp tight/model.safetensors roomy/model.safetensors
    # data is compared before it is read: 80 MB of zeros that pack into little
    python3 - <<'PY'
import gzip, struct
with gzip.open('zeros.gz', 'wb', 1) as file:
    file.write(struct.pack('>HBBII', 0, 8, 2, 40000, 2000) + bytes(80000000))
with gzip.open('labels.gz', 'wb', 1) as file:
    file.write(struct.pack('>HBBI', 0, 8, 1, 40000) + bytes(40000))
PY
    sed 's/"shape": \[2\], "dtype": "f32"/"shape": [2000], "dtype": "u8"/; s/"input-shape": \[2\]/"input-shape": [2000]/
         s/"in_features": 2,/"in_features": 2000,/; s/200000/8/g' job.json >zeros.json
    echo '{"data": {"points": {"values": "zeros.gz", "labels": "labels.gz"}}}' >zeros-client.json
    zeros=("$simulate" --job zeros.json --data zeros-client.json --clients 20 --partition iid --threads 1)
    ends 3 "there are 60 MB for this program, use fewer or smaller examples: data 'points': 40000 examples of 2008 bytes are over" made_up 60000000 "${zeros[@]}"
fi

# A disk that has no room for the last checkpoint, of 8 MB, has it for what is told, and for the model of 4 MB.
if unshare -rm mount -t tmpfs none /mnt 2>/dev/null; then
    mkdir -p disk
    cat >on_disk.sh <<'SH3'
mount -t tmpfs -o size=7m none disk
"$@" --out disk/run >said 2>&1
echo "$?" >code
cp disk/run/{summary.json,rounds.svg,model.safetensors} .
ls disk/run/checkpoints >left
SH3
    unshare -rm bash on_disk.sh "${run[@]}" --rounds 2
    [ "$(cat code)" = 1 ] && grep -qF "No space left" said || fail "exit $(cat code) on a full disk: $(cat said)"
    grep -qF '"ending":"failed"' summary.json && [ -s rounds.svg ] && [ -s model.safetensors ] || fail "not all that had room"
    [ ! -s left ] || fail "half a checkpoint is left: $(cat left)"
fi

# A million clients, of whom 1,000 train in a round, each with an example of 10 values, fit in 2 GB with room to spare.
python3 - <<'PY'
import struct
open('many.idx', 'wb').write(struct.pack('>HBBII', 0, 8, 2, 1000000, 10) + bytes(range(250)) * 40000)
open('many-labels.idx', 'wb').write(struct.pack('>HBBI', 0, 8, 1, 1000000) + bytes([0, 1]) * 500000)
PY
sed 's/"shape": \[2\], "dtype": "f32"/"shape": [10], "dtype": "u8"/; s/"input-shape": \[2\]/"input-shape": [10]/
     s/"in_features": 2,/"in_features": 10,/; s/200000/8/g; s/"fraction-train": 0.1/"fraction-train": 0.001/
     /"strategy"/d; s/"min-available-nodes": 2},/"min-available-nodes": 2}}/' job.json >many.json
echo '{"data": {"points": {"values": "many.idx", "labels": "many-labels.idx"}}}' >many-client.json
many=("$simulate" --job many.json --data many-client.json --clients 1000000 --partition iid --rounds 3 --quiet)
# peak COMMAND...: the MB that it had at most, into the file; -1 when it fails
cat >peak.py <<'PY'
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(-1 if code else resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1000)
PY
for more in "" "--compute lognormal:20,1 --failure 0.01"; do
    # shellcheck disable=SC2086
    python3 peak.py "${many[@]}" $more >peak
    echo "a million clients${more:+ with client profiles}: $(cat peak) MB"
    [ "$(cat peak)" -ge 1 ] && [ "$(cat peak)" -le 2000 ] || fail "a million clients take $(cat peak) MB: ${many[*]} $more"
done
