#!/bin/bash
# Lets clients of other processors (QEMU) and this one's join an aggregator of this one over mutual
# TLS, each for a run of one round. The models must be those of this machine's scalar kernels, within
# the bounds that compare_models.py states.
set -eu
# shellcheck source=tests/cross/build.sh
. "$FEDGE_SOURCE_DIR/tests/cross/build.sh"
need aarch64-linux-gnu-gcc qemu-aarch64-static musl-gcc
for preset in aarch64 musl; do
    bash "$FEDGE_SOURCE_DIR/cmake/deps.sh" "$preset"
    build "$preset" --target fedge-client
done
foreign=$FEDGE_SOURCE_DIR/build/aarch64/bin/fedge-client
small=$FEDGE_SOURCE_DIR/build/musl/bin/fedge-client

work=$(mktemp -d)
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
"$FEDGE_BIN_DIR/fedge-keys" demo --out "$work/id" --clients 1 >/dev/null

# serve RUN JOB: starts $aggregator and waits until it listens.
serve() {
    local run=$1
    mkdir "$run"
    "$FEDGE_BIN_DIR/fedge-aggregator" --job "$2" \
        --state "$run/state" --identity "$work/id/server" --trust "$work/id/trust" \
        --registry "$work/id/registry" --listen 127.0.0.1:0 --http off --port-file "$run/port" \
        >"$run/aggregator.log" 2>&1 &
    aggregator=$!
    pids+=("$aggregator")
    while [ ! -s "$run/port" ]; do
        kill -0 "$aggregator" || { cat "$run/aggregator.log"; exit 1; }
        sleep 0.1
    done
}

# join RUN COMMAND...: starts $client, which COMMAND runs.
join() {
    local run=$1
    shift
    "$@" --server "wss://127.0.0.1:$(grep -o '[0-9]\+' "$run/port" | head -n 1)" \
        --identity "$work/id/clients/0000" --trust "$work/id/trust" \
        --config "$FEDGE_SOURCE_DIR/tests/cross/client_site.json" --state "$run/client" \
        --partition-id 0 --num-partitions 50 >"$run/client.log" 2>&1 &
    client=$!
    pids+=("$client")
}

# federate NAME COMMAND...: one round with the client that COMMAND runs; leaves NAME.safetensors.
federate() {
    local name=$1 run=$work/$1
    shift
    serve "$run" "$FEDGE_SOURCE_DIR/tests/cross/client_job.json"
    join "$run" "$@"
    wait "$client" && wait "$aggregator" || { tail -n 20 "$run"/*.log; exit 1; }
    mv "$(find "$run/state" -name '*.safetensors' | sort | tail -n 1)" "$work/$name.safetensors"
    echo "$name: a round is finished"
}

federate x86 env FEDGE_CPU_LEVEL=scalar "$FEDGE_BIN_DIR/fedge-client"
federate scalar qemu-aarch64-static -cpu cortex-a72 -E FEDGE_CPU_LEVEL=scalar "$foreign"
federate neon qemu-aarch64-static -cpu cortex-a72 "$foreign"
federate musl env FEDGE_CPU_LEVEL=scalar "$small"
/usr/bin/python3 -B "$FEDGE_SOURCE_DIR/tests/cross/compare_models.py" "$work"

# Each part of the small client has stack protectors.
objdump -d --no-show-raw-insn "$small" | awk '/>:$/ { f = $2 } /<__stack_chk_fail>/ { print f }' >"$work/protected"
for part in fedge_ lws_ mbedtls_; do
    grep -q "^<$part" "$work/protected" || { echo "no function $part… has a stack protector"; exit 1; }
done

# The small client waits for a second one that never comes: this is what it takes when idle.
strip -o "$work/stripped" "$small"
size=$(stat -c %s "$work/stripped")
sed 's/"min-available-nodes": 1/"min-available-nodes": 2/' "$FEDGE_SOURCE_DIR/tests/cross/client_job.json" >"$work/two.json"
serve "$work/idle" "$work/two.json"
join "$work/idle" "$work/stripped"
until grep -qs ' welcome ' "$work/idle/client.log"; do
    kill -0 "$client" || { cat "$work"/idle/*.log; exit 1; }
    sleep 0.1
done
resident=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$client/status")
echo "x86-64 musl client: $size bytes stripped, $resident KiB resident when idle"
if [ "$size" -gt 800000 ] || [ "$resident" -gt 3072 ]; then
    echo "over 800,000 bytes or 3,072 KiB"
    exit 1
fi
