#!/usr/bin/env bash
# fedge-simulate on several ranks that have other clients' files: test_mpi_data.sh SIMULATE [EMULATED].
# Each rank works in a folder of its own, which stands for its machine's disk.
set -euo pipefail

simulate=$1 emulated=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/aggregator/command_line.sh
. "$here/../../command_line.sh"
# shellcheck source=tests/aggregator/simulate/run/mpi.sh
. "$here/mpi.sh"

clients=7
"$simulate" generate fedprox --out g --clients $clients >/dev/null
python3 - $clients <<'PY'
# The files of each client: clients/N.csv, and N/values.npy with N/labels.npy.
import array, ast, csv, os, re, sys
def npy(path, code):
    data = open(path, "rb").read()
    end = 10 + int.from_bytes(data[8:10], "little")
    return ast.literal_eval(data[10:end].decode())["shape"], array.array(code, data[end:])
def write(path, descr, shape, values):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    open(path, "wb").write(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head.encode() + values.tobytes())
(count, width), values = npy("g/train-values.npy", "f")
labels = npy("g/train-labels.npy", "i")[1]
owners = [int(row["client"]) for row in csv.DictReader(open("g/owners.csv"))]
os.makedirs("all/clients")
for client in range(int(sys.argv[1])):
    own = [i for i in range(count) if owners[i] == client]
    rows = [values[i * width:(i + 1) * width] for i in own]
    with open(f"all/clients/{client}.csv", "w") as out:
        for row, i in zip(rows, own):
            out.write(",".join("%.9g" % v for v in row) + f",{labels[i]}\n")
    os.makedirs(f"all/{client}")
    write(f"all/{client}/values.npy", "<f4", (len(own), width), array.array("f", [v for row in rows for v in row]))
    write(f"all/{client}/labels.npy", "<i4", (len(own),), array.array("i", [labels[i] for i in own]))
names = lambda what: ", ".join(f'"{client}/{what}.npy"' for client in range(int(sys.argv[1])))
data = lambda entry: '{"data": {"synthetic": {%s, "partition": "per-file", "validation-fraction": 0.2}}}' % entry
open("all/pattern.json", "w").write(data('"values": "clients/*.csv"'))
open("all/named.json", "w").write(data(f'"values": [{names("values")}], "labels": [{names("labels")}]'))
job = re.sub(r'("num-server-rounds"): *\d+', r'\1: 4', open("g/job.json").read())
job = re.sub(r'("local-epochs"): *\d+', r'\1: 2', job)
job = job.replace('"fraction-train"', '"fraction-evaluate": 0.5, "fraction-train"').replace('"test-set"', 'MORE"test-set"')
for name, more in ("fedavg", ""), ("scaffold", '"strategy": {"type": "SCAFFOLD"}, '):
    open(f"all/{name}.json", "w").write(job.replace("MORE", more))
PY
sed -i 's/"codec": *"none"/"codec": "int8"/' all/fedavg.json
cp g/test-*.npy all

# place "CLIENT ..." ...: rank N's folder rankN has the files of these clients; rank 0's has the test set
place() {
    local rank=0 client
    rm -rf rank*
    for own; do
        mkdir -p "rank$rank/clients"
        cp all/*.json "rank$rank"
        for client in $own; do
            cp "all/clients/$client.csv" "rank$rank/clients"
            cp -r "all/$client" "rank$rank"
        done
        rank=$((rank + 1))
    done
    cp all/test-*.npy rank0
    ranks=$rank
}
# on_ranks PROGRAM OPTION...: each rank in its folder
cat >in_folder <<'SH'
#!/bin/sh
cd "rank$OMPI_COMM_WORLD_RANK" && exec "$@"
SH
chmod +x in_folder
on_ranks() {
    mpirun -n "$ranks" ./in_folder "$@" --threads 1 --quiet
}
# same PROGRAM OPTION...: leaves what one process does that has all
same() {
    local program=$1
    shift
    rm -rf alone together
    (cd all && "$program" "$@" --threads 1 --quiet --out ../alone) >said 2>&1 || fail "$* alone: $(cat said)"
    on_ranks "$program" "$@" --out ../together >said 2>&1 || fail "$* on $ranks ranks: $(cat said)"
    diff <(left alone) <(left together) >differs || fail "$* on $ranks ranks: $(cat differs)"
    diff <(grep crc32 alone/simulation.json) <(grep crc32 together/simulation.json) || fail "other data: $*"
}
place "0 2 4 6" "1 3 5"
same "$simulate" --job fedavg.json --data pattern.json --validation-split 0.1
same "$simulate" --job scaffold.json --data named.json
place "0 1" "1 2 5" "3 4 5 6" # one that several have
same "$simulate" --job scaffold.json --data pattern.json
place "" "0 1 2 3 4" "5 6" # rank 0 leads, and has nobody
same "$simulate" --job fedavg.json --data named.json --validation-split 0.1
if [ -n "$emulated" ]; then
    export FEDGE_EMULATOR="gpus=1"
    same "$emulated" --job fedavg.json --data pattern.json --engine cuda --accumulator cuda
    unset FEDGE_EMULATOR
fi

# A run goes on where its data lie otherwise.
sed 's/"num-server-rounds": *[0-9]*/"num-server-rounds": 60/; s/"local-epochs": *[0-9]*/"local-epochs": 16/' all/scaffold.json >all/long.json
long=(--job long.json --data pattern.json)
place "0 1 2 3 4" "5 6"
rm -rf alone together
(cd all && "$simulate" "${long[@]}" --threads 1 --quiet --out ../alone) >said 2>&1
on_ranks "$simulate" "${long[@]}" --out ../together >said 2>&1 &
pid=$!
await has_lines together/rounds.jsonl 2
pkill -TERM -P "$(pgrep -P "$pid")" # the ranks
wait "$pid" || true
pid=
place "6 3" "0 1 2" "4 5 6"
on_ranks "$simulate" "${long[@]}" --out ../together --resume >said 2>&1 || fail "resumed: $(cat said)"
cmp alone/model.safetensors together/model.safetensors || fail "gone on with elsewhere: another model"

# Refused before the first round, and nothing is left.
refused() { # WORDS OPTION...
    ends 3 "$1" on_ranks "$simulate" --job fedavg.json --out ../never "${@:2}"
    [ ! -e never ] || fail "a folder was made"
}
host=$(hostname)
place "0 1 2" "4 5 6"
refused "client 3: no rank has its file" --data named.json
refused "3/values.npy (rank 0 on ${host:0:24} has 3, rank 1 on ${host:0:24} has 3 files)" --data named.json
refused "there are 6 files of values, but there are to be 7 clients" --data pattern.json --clients 7
place "0 1 2 3" "3 4 5 6"
sed -i '1s/[0-9]/8/' rank1/clients/3.csv
refused "the data of client 3 is another on rank 1 than on rank 0" --data pattern.json
place "0 1 2 3" "4 5 6"
header=$(seq -s, -f x%.0f 60),label
sed -i "1i$header" rank0/clients/*.csv
sed -i "1i${header/x1,x2,/x2,x1,}" rank1/clients/*.csv
refused "the files of rank 1 have a header that names other columns than those of rank 0" --data pattern.json
place "0 1 2 3" "4 5 6"
rm rank1/5/labels.npy
refused "5/values.npy: 1 files of values, but 0 of labels" --data named.json
place "0 1 2 3" "4 5 6"
mv rank0/test-values.npy rank1
refused "test-values.npy" --data pattern.json
