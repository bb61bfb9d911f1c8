#!/usr/bin/env bash
# fedge-simulate on several ranks: test_mpi.sh SIMULATE [EMULATED], EMULATED being the one with emulated GPUs.
set -euo pipefail

simulate=$1 emulated=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/aggregator/command_line.sh
. "$here/../../command_line.sh"
# shellcheck source=tests/aggregator/simulate/run/mpi.sh
. "$here/mpi.sh"

"$simulate" generate fedprox --out g --clients 24 >/dev/null
options=(--data g/client.json --threads 1 --quiet)

# job NAME TEXT: g/NAME.json is the generated job with TEXT for its test set's key
job() {
    sed "s/\"test-set\"/$2, \"test-set\"/; s/\"num-server-rounds\": *[0-9]*/\"num-server-rounds\": 5/
         s/\"local-epochs\": *[0-9]*/\"local-epochs\": 2/" g/job.json >"g/$1.json"
}
job fedavg '"keep-checkpoints": 3'
job scaffold '"strategy": {"type": "SCAFFOLD"}'
job feddyn '"strategy": {"type": "FedDyn"}'
sed -i 's/"fraction-train"/"fraction-evaluate": 0.5, &/; s/"codec": *"none"/"codec": "int8"/' g/fedavg.json
sed 's/"partition"/"validation-fraction": 0.2, &/' g/client.json >g/holding.json

# same NAME "RANKS ..." SIMULATE OPTION...: they all leave what one process does
same() {
    local name=$1 numbers=$2 program=$3 ranks file
    shift 3
    rm -rf alone
    "$program" "${options[@]}" --out alone "$@" >said 2>&1 || fail "$name alone: $(cat said)"
    for file in rounds.svg partition.svg 'checkpoints/round-*/state.json' 'checkpoints/round-*/model.safetensors'; do
        compgen -G "alone/$file" >/dev/null || fail "$name alone left no $file"
    done
    for ranks in $numbers; do
        rm -rf together
        mpirun -n "$ranks" "$program" "${options[@]}" --out together "$@" >said 2>&1 ||
            fail "$name on $ranks ranks: $(cat said)"
        diff <(left alone) <(left together) >differs || fail "$name on $ranks ranks: $(cat differs)"
    done
}
same fedavg "2${FEDGE_TEST_LONG:+ 3}" "$simulate" --job g/fedavg.json --data g/holding.json --validation-split 0.1
same scaffold "${FEDGE_TEST_LONG:+2 3 }4" "$simulate" --job g/scaffold.json
same feddyn 3 "$simulate" --job g/feddyn.json
same time 2 "$simulate" --job g/scaffold.json --compute lognormal:1000,0.5 --fail 0.2
if [ -n "$emulated" ]; then
    export FEDGE_EMULATOR="gpus=2"
    same engine 2 "$emulated" --job g/scaffold.json --engine cuda --accumulator cuda
    same accumulator 3 "$emulated" --job g/scaffold.json --accumulator cuda
    for kind in nccl mpi; do
        mpirun -n 2 "$emulated" --data g/client.json --threads 1 --rounds 1 --job g/scaffold.json --accumulator cuda \
            --join "$kind" >said 2>&1 || fail "joined by $kind: $(cat said)"
        grep -q "sums-joined-by kind=$kind" said || fail "no word of $kind: $(cat said)"
    done
    unset FEDGE_EMULATOR
fi

# Ended in the middle and gone on with by 4 ranks, then by 2: what clients keep finds its way.
# Few and long rounds: ranks wait for each other at each end of a round, and the run can be ended within one.
sed 's/"num-server-rounds": *[0-9]*/"num-server-rounds": 100/; s/"local-epochs": *[0-9]*/"local-epochs": 16/' g/scaffold.json >g/long.json
"$simulate" "${options[@]}" --job g/long.json --out whole >said 2>&1
lines=1
for ranks in 1 4 2; do
    mpirun -n "$ranks" "$simulate" "${options[@]}" --job g/long.json --out parts --resume >said 2>&1 &
    pid=$!
    await has_lines parts/rounds.jsonl $lines
    pkill -TERM -P "$pid" || true # its ranks: mpirun itself would let them go on for a second
    wait "$pid" || true
    pid=
    lines=$(($(wc -l <parts/rounds.jsonl) + 1))
    [ $lines -lt 100 ] || break # it was faster
done
ends 0 "complete after 100 rounds" mpirun -n 3 "$simulate" "${options[@]}" --job g/long.json --out parts --resume
cmp whole/model.safetensors parts/model.safetensors || fail "the parts make another model"

# A rank that a signal meets ends the job with words, and --resume goes on: ends_by SIGNAL WORDS.
ends_by() {
    rm -rf parts
    FEDGE_RANK_SILENCE_S=8 mpirun -n 3 "$simulate" "${options[@]}" --job g/long.json --out parts >said 2>&1 &
    pid=$!
    await has_lines parts/rounds.jsonl 2
    pkill "-$1" -P "$pid" -n || true
    code=0
    wait "$pid" || code=$?
    pid=
    if [ "$code" != 0 ]; then # else it was sooner done than met
        grep -qE "$2" said || fail "no word of the rank: $(cat said)"
    fi
    ends 0 "complete after 100 rounds" mpirun -n 2 "$simulate" "${options[@]}" --job g/long.json --out parts --resume
    cmp whole/model.safetensors parts/model.safetensors || fail "after SIG$1 there is another model"
}
ends_by KILL "rank [012] with PID [0-9]+ on node .* exited on signal 9"
ends_by STOP "fedge-simulate: rank [012] on .*: rank [012] has said nothing for 8 s" # no beat comes from it

# A sweep's runs are dealt among the ranks, and shared by ranks that would have none.
sweep=(--job g/fedavg.json --data g/holding.json --sweep training.learning-rate=0.1,0.01 --sweep seeds=2 --threads 1 --json)
"$simulate" "${sweep[@]}" --out swept >alone.json 2>said
for ranks in 2 3 6; do # two runs each; one each, and the last by all; four runs by groups of two, two, one and one
    rm -rf dealt
    mpirun -n $ranks "$simulate" "${sweep[@]}" --out dealt >together.json 2>said || fail "sweep on $ranks ranks: $(cat said)"
    python3 - <<'PY' || fail "the tables differ: $(cat alone.json together.json)"
import json
def rows(path):
    return [{k: v for k, v in json.loads(line).items() if "second" not in k} for line in open(path)]
assert rows("alone.json") == rows("together.json") and len(rows("alone.json")) >= 2
PY
    for run in swept/*/; do
        diff <(left "$run") <(left "dealt/${run#swept/}") || fail "$run on $ranks ranks"
    done
done
ends 3 "has a simulation already" mpirun -n 2 "$simulate" "${sweep[@]}" --out dealt

# What differs between ranks is said before a round begins.
differ() { # WORDS, then the second rank's options
    local words=$1
    shift
    ends 3 "$words" mpirun -n 1 "$simulate" "${options[@]}" --job g/scaffold.json --out never : -n 1 "$simulate" --threads 1 "$@"
    [ ! -e never ] || fail "a folder was made"
}
differ "rank 1 on $(hostname): the job's SHA-256 is" --data g/client.json --job g/feddyn.json
differ "the simulation is 24 clients" --data g/client.json --job g/scaffold.json --seed 7
differ "cannot open g/nothing.json" --data g/nothing.json --job g/scaffold.json
if grep -qw avx2 /proc/cpuinfo; then
    ends 3 "rank 1 on $(hostname): the kind of CPU kernels is scalar, and on rank 0 avx" mpirun -n 1 "$simulate" "${options[@]}" --job g/scaffold.json --out never : \
        -n 1 env FEDGE_CPU_LEVEL=scalar "$simulate" "${options[@]}" --job g/scaffold.json
    [ ! -e never ] || fail "a folder was made"
fi
python3 - "$simulate" "$("$simulate" --version | sed -n 's/^fedge-simulate //p')" <<'PY'
import sys
program, release = sys.argv[1], sys.argv[2].encode()
with open(program, "rb") as file, open("another", "wb") as other:
    other.write(file.read().replace(release + b" (", release[:-1] + b"~ ("))
PY
chmod +x another
ends 3 "rank 1 on $(hostname): the release is" mpirun -n 1 "$simulate" "${options[@]}" --job g/scaffold.json --out never : \
    -n 1 ./another "${options[@]}" --job g/scaffold.json
[ ! -e never ] || fail "a folder was made"
cp -r g h
python3 - <<'PY'
data = bytearray(open("h/train-values.npy", "rb").read())
data[-1] ^= 1
open("h/train-values.npy", "wb").write(data)
PY
differ "the CRC-32 of the clients' data is" --data h/client.json --job g/scaffold.json
if [ -n "$emulated" ]; then
    export FEDGE_EMULATOR="gpus=1"
    ends 3 "rank 1 on $(hostname): the accumulator is cuda, and on rank 0 cpu: name one that all machines have" \
        mpirun -n 1 "$emulated" "${options[@]}" --job g/feddyn.json : -n 1 "$emulated" "${options[@]}" --job g/feddyn.json --accumulator cuda
fi

# Open MPI's own refusals begin no round either.
if [ "$(id -u)" = 0 ]; then
    ends 1 "mpirun has detected an attempt to run as root" env -u OMPI_ALLOW_RUN_AS_ROOT mpirun -n 2 "$simulate" --version
fi
ends 1 "not enough slots" env OMPI_MCA_rmaps_base_oversubscribe=0 mpirun -n 4096 "$simulate" --version
