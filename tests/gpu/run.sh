#!/usr/bin/env bash
# Builds the GPU code, runs its tests on this machine's GPUs, and measures. Needs nvcc, CMake and a C
# compiler; with NCCL and two or more GPUs their joined sums are tested and measured, too. Nothing of the
# network is built. With cJSON and zlib the simulator is run, too.
#
#   bash tests/gpu/run.sh [--out DIR] [--tests-only]
#
#   --out DIR       where gpu.md and gpu.json go (default: build/gpu/report)
#   --tests-only    measures nothing
#
# FEDGE_CUDA_ARCHITECTURES (default: this GPU's), FEDGE_BUILD (build/gpu). Exit code 3: there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${FEDGE_BUILD:-build/gpu}
out= measure=1
while [ $# -gt 0 ]; do
    case $1 in
    --out)
        [ $# -ge 2 ] || { echo "run.sh: --out needs a folder" >&2; exit 2; }
        out=$2
        shift
        ;;
    --tests-only) measure= ;;
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
    cmake --build "$build" --target gpu_programs programs -j "$(nproc)" >>"$out/build.txt" 2>&1 || {
    tail -n 30 "$out/build.txt"
    echo "run.sh: the build failed; its whole output is in $out/build.txt" >&2
    exit 1
}

failed=0
# check NAME SECONDS COMMAND...: one line of tests.tsv.
check() {
    local name=$1 limit=$2 result=passed start=$SECONDS
    shift 2
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || {
        result=FAILED failed=1
        tail -n 20 "$out/$name.txt"
    }
    printf '%s\t%s\t%s\n' "$name" "$result" $((SECONDS - start)) | tee -a "$out/tests.tsv"
}
tests=$build/bin
check kernels 60 "$tests/gpu_test_kernels"
check accumulator 120 "$tests/gpu_test_accumulator_cuda"
check chosen 60 "$tests/gpu_test_chosen_cuda"
check cohort-kernels 60 "$tests/gpu_test_cohort_kernels"
check cohort 60 "$tests/gpu_test_cohort"
for test in factors layers losses members sequences; do
    check "cohort-$test" 60 "$tests/gpu_test_cohort_$test"
done
check silo 60 "$tests/gpu_test_silo"
check limits 120 "$tests/gpu_test_accumulator_cuda_limits"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
    for test in kernels accumulator_cuda chosen_cuda cohort_kernels cohort cohort_factors cohort_layers cohort_losses \
        cohort_members cohort_sequences silo; do
        check "memcheck-$test" 120 "$sanitizer" --tool memcheck --leak-check full --error-exitcode 9 "$tests/gpu_test_$test"
    done
    for test in kernels chosen_cuda cohort_kernels; do
        check "racecheck-$test" 120 "$sanitizer" --tool racecheck --error-exitcode 9 "$tests/gpu_test_$test"
    done
else
    echo "run.sh: compute-sanitizer is not here: memcheck and racecheck are left out"
fi
if [ -x "$build/bin/fedge-simulate" ]; then
    check simulator 60 bash tests/gpu/same_model.sh "$build/bin/fedge-simulate"
    check training 120 bash tests/gpu/same_training.sh "$build/bin/fedge-simulate"
else
    echo "run.sh: cJSON or zlib is not here: the simulator is left out"
fi

if [ -n "$measure" ]; then
    "$tests/bench_gpu" kernels rounds >"$out/rows.jsonl" || failed=1
    "$tests/bench_cohort" >>"$out/rows.jsonl" || failed=1
    for python in ${PYTHON-} python3; do
        if "$python" -c 'import torch' 2>/dev/null; then
            "$python" -B tests/gpu/torch_round.py >>"$out/rows.jsonl" || failed=1
            break
        fi
    done
fi
if command -v python3 >/dev/null; then
    python3 -B tests/gpu/report.py "$out" && cat "$out/gpu.md"
else
    cat "$out/tests.tsv" "$out/rows.jsonl"
fi
[ $failed = 0 ] || echo "run.sh: something failed; see above and in $out" >&2
exit $failed
