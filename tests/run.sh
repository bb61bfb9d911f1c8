#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests. Ends with ctest's summary and exit code.
#
#   bash tests/run.sh [--all] [--preset NAME] [--label LABEL]... [--soak] [argument for ctest]...
#
#   (alone)         unit, net and style tests, and the fuzzers' corpora: some minutes on two cores
#   --all           and those labelled long (killed ranks, the papers' examples, benchmarks), on-4-threads (net tests
#                   again on four network threads), race (emulated GPUs under a race detector), fuzz (each fuzzer for
#                   20 s), torch (PyTorch clients), wheel (the Python package's wheel) and cross (builds for other
#                   processors), and more cases of others
#   --preset NAME   release (default), debug, asan or tsan (only what has threads); built in build/NAME
#   --label LABEL   only tests with this label: unit, net, style, or one of those above; net-1 to net-3, long-1 to
#                   long-6, unit-1 to unit-6: a part of those; threads: what has threads; with asan and tsan heavy,
#                   heavy-1 to heavy-3: unit tests of much arithmetic, which are not in unit then (may be repeated)
#   --soak          and those labelled soak, which take hours
#   further ones    for ctest: -R test_codec, -V, -j 4, --repeat until-fail:10
#
# CI=true makes warnings errors. FEDGE_FUZZ_SECONDS sets the time of each fuzzer, FEDGE_STACK_USE_AFTER_RETURN=ON
# lets the address sanitizer look for that, too; a label: in its tests. FEDGE_TEST_PYTHON names a Python with PyPI's
# newest torch (transformers, peft) for tests labelled torch; by default the python3 on PATH. docs/contributing.md: .ci/run.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
preset=release
labels=()
left_out=(long on-4-threads race fuzz torch wheel cross soak)
all= rest=()

fail() {
    printf 'tests/run.sh: %s\n' "$*" >&2
    exit 2
}

# in_list WORD ITEM...: whether WORD is one of them.
in_list() {
    [[ " ${*:2} " == *" $1 "* ]]
}

# run_too LABEL: tests with this label are not left out.
run_too() {
    local label kept=()
    for label in "${left_out[@]}"; do
        [ "$label" = "$1" ] || kept+=("$label")
    done
    left_out=("${kept[@]}")
}

while [ $# -gt 0 ]; do
    case $1 in
    --preset | --label)
        [ $# -ge 2 ] || fail "$1 needs a value"
        if [ "$1" = --preset ]; then preset=$2; else labels+=("$2"); fi
        shift
        ;;
    --all)
        for label in long on-4-threads race fuzz torch wheel cross; do run_too $label; done
        all=1
        export FEDGE_TEST_LONG=1
        ;;
    --soak) run_too soak ;;
    -h | --help)
        sed -n '2,22s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) rest+=("$1") ;;
    esac
    shift
done
for label in "${labels[@]}"; do
    run_too "${label%-[0-9]}"
done
case $preset in
release | debug | asan) ;;
tsan) run_too on-4-threads ;;
*) fail "there is no preset '$preset'; there are release, debug, asan and tsan" ;;
esac

cd "$root"
needs=(--tests)
if [ "$preset" = release ] && ! in_list cross "${left_out[@]}"; then
    needs+=(--cross) # the tests labelled cross are part of this preset only
fi
if ! in_list torch "${left_out[@]}" || ! in_list wheel "${left_out[@]}"; then
    needs+=(--torch)
fi
bash cmake/setup.sh "${needs[@]}"

long=OFF places=6
in_list long "${left_out[@]}" || long=ON places=4
options=(-DFEDGE_TESTS=ON -DFEDGE_NETWORK=ON -DFEDGE_AGGREGATOR=ON -DFEDGE_WERROR=OFF -DFEDGE_LONG_TESTS=$long
    -DFEDGE_FUZZ_SECONDS="${FEDGE_FUZZ_SECONDS:-20}"
    -DFEDGE_STACK_USE_AFTER_RETURN="${FEDGE_STACK_USE_AFTER_RETURN:-OFF}")
if [ "${CI:-}" = true ]; then
    options+=(-DFEDGE_WERROR=ON)
fi
# No test here runs on a GPU: with --all, one kind shows that nvcc compiles the code. A build that has code for GPUs
# keeps it.
cached() { sed -n "s/^$1:[A-Z]*=//p" "build/$preset/CMakeCache.txt" 2>/dev/null || true; }
gpus=$(cached FEDGE_CUDA_ARCHITECTURES)
cuda=$(cached FEDGE_CUDA)
if [ -n "$all" ] && [ "$cuda" != ON ]; then
    cuda=AUTO
    [ "${gpus:-NATIVE}" != NATIVE ] || gpus="NATIVE;90"
fi
options+=(-DFEDGE_CUDA_ARCHITECTURES="${gpus:-NATIVE}" -DFEDGE_CUDA="${cuda:-OFF}")
if [ ! -f "build/$preset/CMakeCache.txt" ] && command -v ninja >/dev/null; then
    export CMAKE_GENERATOR=Ninja
fi
mkdir -p "build/$preset"
cmake --preset "$preset" "${options[@]}" >"build/$preset/configure.log" 2>&1 || {
    cat "build/$preset/configure.log" >&2
    fail "the configuration failed"
}
grep -E '^-- .*: (on|left out)' "build/$preset/configure.log" || true
# Programs of fuzzers and of the race detector are built for their tests alone.
targets=()
in_list race "${left_out[@]}" || targets+=(race_programs)
{ in_list fuzz "${left_out[@]}" && in_list soak "${left_out[@]}"; } || targets+=(fuzz_programs)
for label in "${labels[@]:-}"; do
    in_list "$label" race fuzz || in_list all "${targets[@]}" || targets+=(all)
done
started=$SECONDS
cmake --build "build/$preset" -j "$(nproc)" --target "${targets[@]}"
printf '\ntests/run.sh: built in %d s\n' $((SECONDS - started))

chosen=()
# any_of LABEL...: a regular expression for ctest's -L and -LE.
any_of() (
    IFS='|'
    printf '^(%s)$' "$*"
)
[ ${#labels[@]} = 0 ] || chosen+=(-L "$(any_of "${labels[@]}")")
[ "$preset" != tsan ] || chosen+=(-L '^threads$')
if [ ${#left_out[@]} -gt 0 ]; then
    echo "Left out: tests with the labels ${left_out[*]} (see --help)"
    chosen+=(-LE "$(any_of "${left_out[@]}")")
fi
# Places for each core: tests that compute take two of them, and those that wait for sockets one.
exec ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$((places * $(nproc)))" "${chosen[@]}" "${rest[@]}" \
    </dev/null
