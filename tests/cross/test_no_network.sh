#!/usr/bin/env bash
# A build without the network libraries: the simulator is there and makes the model that this build's
# simulator makes, and hashes are made without mbedTLS. Where nvcc is, the programs for a machine with
# GPUs are built, too; with no GPU to be seen each of them fails, so that none passes for want of one.
set -euo pipefail

build=$FEDGE_BINARY_DIR/no-network
job=$FEDGE_SOURCE_DIR/tests/cross/client_job.json

rm -rf "$build"
cmake -S "$FEDGE_SOURCE_DIR" -B "$build" -DCMAKE_BUILD_TYPE=Release -DFEDGE_NETWORK=OFF \
    -DFEDGE_DEPS="$build/nothing" -DFEDGE_CUDA_ARCHITECTURES=90 -DFEDGE_TESTS=ON >"$build.log" 2>&1 || {
    cat "$build.log"
    exit 1
}
targets=(programs)
! grep -q '^-- CUDA: on' "$build.log" || targets+=(gpu_programs) # what tests/gpu/run.sh builds
cmake --build "$build" -j "$(nproc)" --target "${targets[@]}" >>"$build.log" 2>&1 || {
    tail -n 50 "$build.log"
    exit 1
}
# The tests of other parts do without a part that is left out, too.
for part in AGGREGATOR IO; do
    cmake -S "$FEDGE_SOURCE_DIR" -B "$build/less" -DFEDGE_$part=OFF -DFEDGE_CUDA=OFF -DFEDGE_TESTS=ON >"$build.log" 2>&1 || {
        cat "$build.log"
        exit 1
    }
    rm -rf "$build/less"
done
for program in fedge-aggregator fedge-client fedge-keys; do
    [ ! -e "$build/bin/$program" ] || { echo "$program was built without its libraries"; exit 1; }
done
for program in "$build"/bin/gpu_test_* "$build"/bin/bench_gpu "$build"/bin/bench_cohort; do
    [ -x "$program" ] || continue
    if CUDA_VISIBLE_DEVICES= "$program" >"$build.run" 2>&1; then
        cat "$build.run"
        echo "${program##*/} found nothing wrong without a GPU"
        exit 1
    fi
done
if strings "$build/bin/fedge-simulate" | grep -q mbedtls_; then
    echo "the simulator has mbedTLS in it"
    exit 1
fi

# hash SIMULATOR: of the model of a generated job.
rm -rf "$build/data"
"$FEDGE_BIN_DIR/fedge-simulate" generate logistic --out "$build/data" >/dev/null
hash_of() {
    "$1" --job "$build/data/job.json" --clients 100 --rounds 2 --quiet --json | sed -n 's/.*"model_sha256": *"\([0-9a-f]*\)".*/\1/p'
}
with=$(hash_of "$FEDGE_BIN_DIR/fedge-simulate") without=$(hash_of "$build/bin/fedge-simulate")
echo "with the network libraries $with, without $without"
[ ${#with} = 64 ] && [ "$with" = "$without" ]
