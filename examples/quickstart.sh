#!/usr/bin/env bash
# Trains a CNN on Fashion-MNIST across simulated devices: one aggregator and N clients, each a
# process of its own, talking over websockets with mutual TLS on loopback.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: bash examples/quickstart.sh [--clients N] [--rounds N] [--job FILE] [--config FILE] [--keep]

Installs what is missing, builds, creates a private CA and identities, and runs a federation on
this machine: one fedge-aggregator and N fedge-client processes with mutual TLS.

  --clients N   how many clients (default 8)
  --rounds N    how many rounds (default: as the job says, 10)
  --job FILE    the job to run (default examples/quickstart/job.json)
  --config FILE the clients' file, which has the data that the job names (default
                examples/quickstart/client.json)
  --keep        keep identities, state and logs in build/quickstart/work

Leaves model.safetensors, rounds.jsonl and rounds.svg in build/quickstart. The last line on
standard output is JSON: rounds, accuracy, bytes_up, bytes_down, seconds, model_sha256. The last
is the SHA-256 of the model as clients download it, without the metadata in model.safetensors;
fedge-simulate model FILE, of a complete build, prints it.

FEDGE_BIN_DIR names a folder with the programs, to use those and build nothing; FEDGE_QUICKSTART_DIR
another folder for the results, which is emptied first.
TEXT
}

fail() {
    echo "quickstart: $*" >&2
    exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
clients=8
rounds=
job=$root/examples/quickstart/job.json
config=$root/examples/quickstart/client.json
keep=false
while [ $# -gt 0 ]; do
    case $1 in
    --clients | --rounds | --job | --config)
        [ $# -ge 2 ] || fail "$1 needs a value; see --help"
        case $1 in
        --clients) clients=$2 ;;
        --rounds) rounds=$2 ;;
        --job) job=$2 ;;
        --config) config=$2 ;;
        esac
        shift 2
        ;;
    --keep) keep=true; shift ;;
    --help) usage; exit 0 ;;
    *)
        echo "quickstart: unknown option '$1'; see --help" >&2
        exit 2
        ;;
    esac
done
[[ $clients =~ ^[1-9][0-9]{0,3}$ ]] || fail "--clients $clients: use a number from 1 to 9999"
[[ -z $rounds || $rounds =~ ^[1-9][0-9]{0,5}$ ]] || fail "--rounds $rounds: use a number from 1 to 999999"
[ -r "$job" ] || fail "cannot read the job file $job"
[ -r "$config" ] || fail "cannot read the clients' file $config"
job=$(cd "$(dirname "$job")" && pwd)/$(basename "$job")

# Shows how far ninja ("[12/340] …") or make ("[ 12%] …") is: on a terminal all along, elsewhere each quarter.
show_progress() {
    local line at all percent shown=0
    while IFS= read -r line; do
        printf '%s\n' "$line"
        if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
            at=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
            percent=$((at * 100 / all))
        elif [[ $line =~ ^\[\ *([0-9]+)%\] ]]; then
            percent=${BASH_REMATCH[1]}
        else
            continue
        fi
        if [ -t 3 ]; then
            printf '\r  %3d %%' "$percent" >&3
        elif [ $((percent / 25)) -gt "$shown" ]; then
            shown=$((percent / 25))
            printf '  %d %%\n' "$percent" >&3
        fi
    done
    [ ! -t 3 ] || printf '\r       \r' >&3
}

# Configures and builds what runs here. A build tree keeps the GPUs that it has been told to compile for.
build_programs() (
    cd "$root" || exit
    options=()
    cache=build/release/CMakeCache.txt
    if [ -f "$cache" ]; then
        gpus=$(sed -n 's/^FEDGE_CUDA_ARCHITECTURES:[A-Z]*=//p' "$cache")
        options=("-DFEDGE_CUDA_ARCHITECTURES=${gpus:-NATIVE}")
    elif command -v ninja >/dev/null; then
        options=(-G Ninja)
    fi
    cmake --preset release "${options[@]}" || exit
    sed -n 's/^-- \(.*-DFEDGE_CUDA_ARCHITECTURES=ALL.*\)/\1/p' "$log" >&3
    cmake --build --preset release --target fedge-keys fedge-aggregator fedge-client -j "$(nproc)" | show_progress
)

bin=${FEDGE_BIN_DIR:-}
if [ -z "$bin" ]; then
    echo "Preparing packages and libraries ..." >&2
    bash "$root/cmake/setup.sh" >&2
    log=$root/build/quickstart-build.log
    echo "Building three programs; what the compilers say goes to $log ..." >&2
    build_programs 3>&2 >"$log" 2>&1 || { tail -n 30 "$log" >&2; fail "the build failed; the whole log is in $log"; }
    bin=$root/build/release/bin
fi

out=${FEDGE_QUICKSTART_DIR:-$root/build/quickstart}
work=$out/work
rm -rf "$out"
mkdir -p "$work/logs"

# Every process is ended by its id, on any way out.
pids=()
stop_all() {
    trap - EXIT
    trap '' INT TERM # another Ctrl-C changes nothing
    [ ${#pids[@]} -eq 0 ] || kill -TERM "${pids[@]}" 2>/dev/null || true
    for _ in $(seq 50); do
        alive=0
        for pid in ${pids[@]+"${pids[@]}"}; do
            if kill -0 "$pid" 2>/dev/null; then alive=1; fi
        done
        [ $alive -eq 1 ] || break
        sleep 0.1
    done
    [ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    $keep || rm -rf "$work"
}
trap 'stop_all' EXIT
trap 'echo "quickstart: interrupted, stopping every process" >&2; stop_all; exit 130' INT TERM

# The job with the numbers asked for here.
/usr/bin/python3 - "$job" "$work/job.json" "$clients" "$rounds" <<'PYTHON'
import json, os, sys
source, target, clients, rounds = sys.argv[1:]
with open(source) as file:
    job = json.load(file)
section = job.setdefault("rounds", {})
for key in ("min-available-nodes", "min-train-nodes"):
    section[key] = int(clients)
if rounds:
    section["num-server-rounds"] = int(rounds)
for key in job.get("test-set", {}):
    job["test-set"][key] = os.path.join(os.path.dirname(source), job["test-set"][key])
if "initial-model" in job:
    job["initial-model"] = os.path.join(os.path.dirname(source), job["initial-model"])
with open(target, "w") as file:
    json.dump(job, file, indent=2)
PYTHON

"$bin/fedge-keys" demo --out "$work/keys" --clients "$clients" >"$work/logs/keys.log" ||
    fail "the identities could not be made (see the message above)"

"$bin/fedge-aggregator" --job "$work/job.json" --state "$work/state" \
    --identity "$work/keys/server" --trust "$work/keys/trust" --registry "$work/keys/registry" \
    --listen 127.0.0.1:0 --http off --port-file "$work/port" --result "$work/result.json" \
    2>"$work/logs/aggregator.log" &
aggregator=$!
pids+=("$aggregator")
until [ -s "$work/port" ]; do
    kill -0 "$aggregator" 2>/dev/null || break
    sleep 0.1
done
[ -s "$work/port" ] || { tail -n 5 "$work/logs/aggregator.log" >&2; fail "the aggregator did not start"; }
read -r port _ <"$work/port"

echo "Aggregator on 127.0.0.1:$port; starting $clients clients, mutual TLS ..." >&2
declare -A logs=([$aggregator]=aggregator)
for ((i = 0; i < clients; i++)); do
    "$bin/fedge-client" --server "wss://127.0.0.1:$port" \
        --identity "$work/keys/clients/$(printf %04d "$i")" --trust "$work/keys/trust" \
        --config "$config" --state "$work/clients/$i" \
        --partition-id "$i" --num-partitions "$clients" 2>"$work/logs/client-$i.log" &
    pids+=("$!")
    logs[$!]=client-$i
done

# Every client is needed: the rounds would wait for one that has given up.
ended=
while [ "$ended" != "$aggregator" ]; do
    status=0
    wait -n -p ended "${!logs[@]}" || status=$?
    if [ "$status" -ne 0 ]; then
        keep=true
        name=${logs[${ended:-$aggregator}]}
        tail -n 5 "$work/logs/$name.log" >&2
        fail "$name ended with exit code $status; logs are in $work/logs"
    fi
    unset "logs[$ended]"
done
{ read -r run; read -r result; } < <(/usr/bin/python3 - "$work/result.json" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as file:
    result = json.load(file)
print(result.pop("run_dir"))
print(json.dumps(result))
PYTHON
)
cp "$run/rounds.jsonl" "$run/rounds.svg" "$run/model.safetensors" "$out/"
stop_all
echo "Model, log and curve: $out/{model.safetensors,rounds.jsonl,rounds.svg}" >&2
echo "$result"
