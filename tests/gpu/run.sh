#!/usr/bin/env bash
# Builds the GPU code, runs its tests on this machine's GPUs, and measures. Needs nvcc, CMake, a C compiler, python3, and
# the headers of cJSON and zlib; nothing of the network is built. NCCL and cuBLAS are found where the system has them, or
# in the packages of pip (nvidia-nccl-cu13, nvidia-cublas).
#
#   bash tests/gpu/run.sh [--out DIR] [--tests-only] [--seconds N]
#
#   --out DIR       where gpu.md and gpu.json go, with what each part wrote (default: build/gpu/report); what else
#                   is in it stays
#   --tests-only    measures nothing
#   --seconds N     for everything, the build included (default: 550). First all tests, four at a time; then
#                   compute-sanitizer on the kernels, a profile by Nsight Compute, and what is measured; then the tests
#                   again under compute-sanitizer. What the time does not suffice for is in the table as left out
#
# FEDGE_CUDA_ARCHITECTURES (default: this GPU's), FEDGE_BUILD (build/gpu), PYTHON (the one that has PyTorch).
#
# Exit codes: 0: what ran has passed; what was left out, or not ended in time, is in the table and does not
# count as failed. 1: a test failed, or the build, or something that is needed is missing. 2: the command line. 3: there
# is no GPU.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/../.."

build=${FEDGE_BUILD:-build/gpu}
out= measure=1 budget=550
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
command -v python3 >/dev/null || { echo "run.sh: python3 is missing: without it half of the checks would not run" >&2; exit 1; }
architectures=${FEDGE_CUDA_ARCHITECTURES:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader |
    tr -d . | sort -u | paste -sd ';')}
mkdir -p "$out"
rm -f "$out"/{rows.jsonl,tests.tsv,gpu.md,gpu.json}
# Folders of pip's packages that have NCCL or cuBLAS, which no linker knows.
for python in ${PYTHON-} python3; do
    found=$("$python" -c 'import glob, os, sys
print(":".join(sorted({os.path.dirname(file) for path in sys.path for name in ("libnccl.so*", "libcublas.so*")
                       for file in glob.glob(os.path.join(path, "nvidia", "*", "lib", name))})))' 2>/dev/null) || continue
    [ -z "$found" ] || export LD_LIBRARY_PATH="$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
{
    nvidia-smi --query-gpu=name,memory.total,driver_version,pcie.link.gen.max,pcie.link.width.max --format=csv,noheader
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem --format=csv
    echo "$(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    "${FEDGE_NVCC:-nvcc}" --version | tail -n 1
    echo "libraries of pip: ${found:-none}"
} | tee "$out/machine.txt"

echo "run.sh: building for sm $architectures"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DFEDGE_NETWORK=OFF -DFEDGE_TESTS=OFF -DFEDGE_CUDA=ON -DFEDGE_IO=ON \
    ${FEDGE_NVCC:+-DFEDGE_NVCC="$FEDGE_NVCC"} -DFEDGE_CUDA_ARCHITECTURES="$architectures" >"$out/build.txt" 2>&1 &&
    timeout "$budget" cmake --build "$build" --target gpu_programs programs -j "$(nproc)" >>"$out/build.txt" 2>&1 || {
    tail -n 30 "$out/build.txt"
    echo "run.sh: the build failed; its whole output is in $out/build.txt" >&2
    exit 1
}

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
    note "$name" "$result" $((SECONDS - start))
}
# profile SECONDS COMMAND...: one that does not work on this machine is no failure of what is profiled.
profile() {
    local result=passed start=$SECONDS
    if [ "$(left)" -lt "$1" ]; then
        result='left out'
    else
        timeout -k 5 "$1" "${@:2}" >"$out/profile.txt" 2>&1 || result="not measured (code $?): see profile.txt"
    fi
    note profile "$result" $((SECONDS - start))
}
check() {
    part "$1" "$2" "$out/$1.txt" "${@:3}"
}
measure() {
    part "$1" "$2" "$out/rows.jsonl" "${@:3}"
}
# beside COMMAND...: runs it beside others, four at a time.
beside() {
    while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n || true; done
    "$@" &
}
sanitize() {
    local tool=$1 test
    for test in "${@:2}"; do
        check "$tool-$test" 90 "$sanitizer" --tool "$tool" ${leaks[$tool]-} --error-exitcode 9 "$tests/gpu_test_$test"
    done
}
declare -A leaks=([memcheck]='--leak-check full')

tests=$build/bin
simulator=$tests/fedge-simulate
every=(nccl kernels cohort_kernels cohort_kernels_other accumulator_cuda cohort cohort_slots silo silo_limits silo_states
    chosen_cuda tile_cuda cohort_layers cohort_sequences cohort_losses cohort_factors cohort_members accumulator_cuda_limits)
for test in "${every[@]}"; do
    beside check "$test" 60 "$tests/gpu_test_$test"
done
wait
check same-model 60 bash tests/gpu/same_model.sh "$simulator"
check same-training 150 python3 -B tests/gpu/same_training.py "$simulator"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
    sanitize memcheck cohort_kernels cohort_kernels_other
    sanitize racecheck kernels
else
    echo "run.sh: compute-sanitizer is not here: memcheck, racecheck and synccheck are left out"
fi
if [ -n "$measure" ]; then
    if command -v ncu >/dev/null; then
        profile 90 python3 -B tests/gpu/profile_step.py "$simulator" "$out"
    else
        echo "run.sh: ncu (Nsight Compute) is not here: kernels are not profiled"
    fi
    measure bench-kernels 60 "$tests/bench_gpu" kernels
    measure bench-products 30 "$tests/bench_products"
    measure bench-cohort 60 "$tests/bench_cohort"
    measure bench-rounds 90 "$tests/bench_gpu" rounds
    measure bench-robust 60 "$tests/bench_robust"
    for python in ${PYTHON-} python3; do
        if "$python" -c 'import torch' 2>/dev/null; then
            measure torch-robust 60 "$python" -B tests/gpu/torch_robust.py
            measure torch-cohorts 120 "$python" -B tests/gpu/torch_cohort.py --seconds 80
            measure torch-rounds 60 "$python" -B tests/gpu/torch_round.py
            break
        fi
    done
    measure cohorts 120 python3 -B tests/gpu/cohorts.py "$simulator" --seconds 60
fi
if [ -n "$sanitizer" ]; then
    sanitize racecheck cohort_kernels cohort_kernels_other chosen_cuda tile_cuda
    sanitize synccheck kernels cohort_kernels
    for test in "${every[@]}"; do
        case $test in cohort_kernels | cohort_kernels_other | accumulator_cuda_limits) ;; *) sanitize memcheck "$test" ;; esac
    done
fi

awk -v folder="$out" -f tests/gpu/report.awk && cat "$out/gpu.md"
if grep -q "$(printf '\tFAILED\t')" "$out/tests.tsv"; then
    echo "run.sh: something failed; see above and in $out" >&2
    exit 1
fi
