#!/usr/bin/env bash
# Builds the GPU code, runs its tests on this machine's GPUs, and measures. Needs nvcc, CMake and a C
# compiler; with NCCL and two or more GPUs their joined sums are tested and measured, too. Nothing of the
# network is built. With cJSON and zlib the simulator is run, too.
#
#   bash tests/gpu/run.sh [--out DIR] [--tests-only] [--seconds N]
#
#   --out DIR       where gpu.md and gpu.json go, with what each part wrote (default: build/gpu/report); what else
#                   is in it stays
#   --tests-only    measures nothing
#   --seconds N     for everything, the build included (default: 465). Tests come first, then what is
#                   measured, then the tests again under compute-sanitizer; what the time does not suffice
#                   for is in the table as left out
#
# FEDGE_CUDA_ARCHITECTURES (default: this GPU's), FEDGE_BUILD (build/gpu).
#
# Exit codes: 0: what ran has passed; what was left out, or not ended in time, is in the table and does not
# count as failed. 1: a test failed, or the build. 2: the command line. 3: there is no GPU.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/../.."

build=${FEDGE_BUILD:-build/gpu}
out= measure=1 budget=465
while [ $# -gt 0 ]; do
    case $1 in
    --out)
        [ $# -ge 2 ] || { echo "run.sh: --out needs a folder" >&2; exit 2; }
        [[ $2 = /* ]] && out=$2 || out=$from/$2
        shift
        ;;
    --tests-only) measure= ;;
    --seconds)
        [[ ${2:-} =~ ^[0-9]+$ ]] || { echo "run.sh: --seconds needs a number" >&2; exit 2; }
        budget=$2
        shift
        ;;
    -h | --help)
        sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"
        exit 0
        ;;
    *)
        echo "run.sh: unknown argument $1; see --help" >&2
        exit 2
        ;;
    esac
    shift
done
out=${out:-$build/report}

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
    echo "run.sh: there is no GPU here, or no driver for it (nvidia-smi finds none)" >&2
    exit 3
fi
architectures=${FEDGE_CUDA_ARCHITECTURES:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader |
    tr -d . | sort -u | paste -sd ';')}
mkdir -p "$out"
rm -f "$out"/{rows.jsonl,tests.tsv,gpu.md,gpu.json}
{
    nvidia-smi --query-gpu=name,memory.total,driver_version,pcie.link.gen.max,pcie.link.width.max --format=csv,noheader
    echo "$(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    "${FEDGE_NVCC:-nvcc}" --version | tail -n 1
} | tee "$out/machine.txt"

echo "run.sh: building for sm $architectures"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DFEDGE_NETWORK=OFF -DFEDGE_TESTS=OFF -DFEDGE_CUDA=ON \
    ${FEDGE_NVCC:+-DFEDGE_NVCC="$FEDGE_NVCC"} -DFEDGE_CUDA_ARCHITECTURES="$architectures" >"$out/build.txt" 2>&1 &&
    timeout "$budget" cmake --build "$build" --target gpu_programs programs -j "$(nproc)" >>"$out/build.txt" 2>&1 || {
    tail -n 30 "$out/build.txt"
    echo "run.sh: the build failed; its whole output is in $out/build.txt" >&2
    exit 1
}

failed=0
# note NAME RESULT SECONDS: one line of tests.tsv.
note() {
    printf '%s\t%s\t%s\n' "$@" | tee -a "$out/tests.tsv"
}
left() {
    echo $((budget > SECONDS ? budget - SECONDS : 0))
}
# part NAME SECONDS FILE COMMAND...: runs it with its output in FILE, for so long or as long as is left.
part() {
    local name=$1 limit=$2 file=$3 result=passed start=$SECONDS code=0
    shift 3
    rm -f "$out/$name".{txt,log} # of the run before
    if [ "$(left)" -lt 1 ]; then
        note "$name" 'left out' 0
        return
    fi
    [ "$(left)" -ge "$limit" ] || limit=$(left)
    timeout -k 5 "$limit" "$@" >>"$file" 2>"$out/$name.log" || code=$?
    if [ $code = 124 ] || [ $code = 137 ]; then
        # Cut short by the whole's time it is not known to be wrong, only not to be right.
        [ "$(left)" -ge 1 ] && result=FAILED || result="not ended in $limit s"
    elif [ $code != 0 ]; then
        result=FAILED
    fi
    [ "$result" = passed ] || tail -q -n 20 "$file" "$out/$name.log"
    [ "$result" != FAILED ] || failed=1
    note "$name" "$result" $((SECONDS - start))
}
check() {
    part "$1" "$2" "$out/$1.txt" "${@:3}"
}
measure() {
    part "$1" "$2" "$out/rows.jsonl" "${@:3}"
}
tests=$build/bin
check kernels 60 "$tests/gpu_test_kernels"
check cohort-kernels 60 "$tests/gpu_test_cohort_kernels"
check cohort-kernels-other 60 "$tests/gpu_test_cohort_kernels_other"
check accumulator 120 "$tests/gpu_test_accumulator_cuda"
check cohort 60 "$tests/gpu_test_cohort"
for test in silo silo_limits silo_states; do
    check "${test//_/-}" 60 "$tests/gpu_test_$test"
done
check chosen 60 "$tests/gpu_test_chosen_cuda"
check tiles 60 "$tests/gpu_test_tile_cuda"
for test in layers sequences losses factors members slots; do
    check "cohort-$test" 60 "$tests/gpu_test_cohort_$test"
done
check limits 60 "$tests/gpu_test_accumulator_cuda_limits"
if [ -x "$build/bin/fedge-simulate" ]; then
    check simulator 60 bash tests/gpu/same_model.sh "$build/bin/fedge-simulate"
    if command -v python3 >/dev/null; then
        check training 150 python3 -B tests/gpu/same_training.py "$build/bin/fedge-simulate"
    fi
else
    echo "run.sh: cJSON or zlib is not here: the simulator is left out"
fi
if [ -n "$measure" ]; then
    measure bench-kernels 60 "$tests/bench_gpu" kernels
    measure bench-products 30 "$tests/bench_products"
    measure bench-cohort 60 "$tests/bench_cohort"
    measure bench-rounds 90 "$tests/bench_gpu" rounds
    measure bench-robust 60 "$tests/bench_robust"
    if [ -x "$build/bin/fedge-simulate" ] && command -v python3 >/dev/null; then
        measure cohorts 120 python3 -B tests/gpu/cohorts.py "$build/bin/fedge-simulate" --seconds 60
    else
        echo "run.sh: the simulator or python3 is not here: its cohorts are not measured"
    fi
    for python in ${PYTHON-} python3; do
        if "$python" -c 'import torch' 2>/dev/null; then
            measure torch-cohorts 120 "$python" -B tests/gpu/torch_cohort.py --seconds 80
            measure torch-rounds 60 "$python" -B tests/gpu/torch_round.py
            measure torch-robust 60 "$python" -B tests/gpu/torch_robust.py
            break
        fi
    done
fi
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
    for test in kernels cohort_kernels cohort_kernels_other chosen_cuda tile_cuda; do
        check "racecheck-$test" 90 "$sanitizer" --tool racecheck --error-exitcode 9 "$tests/gpu_test_$test"
    done
    for test in kernels cohort_kernels cohort_kernels_other accumulator_cuda cohort cohort_slots silo silo_limits \
        silo_states chosen_cuda tile_cuda cohort_layers cohort_sequences cohort_losses cohort_factors cohort_members; do
        check "memcheck-$test" 90 "$sanitizer" --tool memcheck --leak-check full --error-exitcode 9 "$tests/gpu_test_$test"
    done
else
    echo "run.sh: compute-sanitizer is not here: memcheck and racecheck are left out"
fi

awk -v folder="$out" -f tests/gpu/report.awk && cat "$out/gpu.md"
[ $failed = 0 ] || echo "run.sh: something failed; see above and in $out" >&2
exit $failed
