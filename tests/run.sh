#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests. Ends with ctest's summary and exit code.
#
#   bash tests/run.sh [--all] [--preset NAME] [--label LABEL]... [--soak] [argument for ctest]...
#
#   (alone)         unit, net and style tests and some seconds of each fuzzer: some minutes on two cores
#   --all           and those labelled long (net tests again on four network threads, ranks that die, emulated GPUs
#                   under the race detector, the papers' examples, benchmarks), more cases of others, longer fuzzers,
#                   and the builds for other processors
#   --preset NAME   release (default), debug, asan or tsan; built in build/NAME
#   --label LABEL   only tests with this label: unit, net, fuzz, style, long, cross (may be repeated)
#   --soak          and those labelled soak, which take hours
#   further ones    for ctest: -R test_codec, -V, -j 4, --repeat until-fail:10
#
# CI=true makes warnings errors. FEDGE_FUZZ_SECONDS sets the time of each fuzzer (1 alone, which makes 2, else 20).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
preset=release
labels=
all=
left_out='soak|long|cross'
long=ON places=4
rest=()

fail() {
    printf 'tests/run.sh: %s\n' "$*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --preset | --label)
        [ $# -ge 2 ] || fail "$1 needs a value"
        if [ "$1" = --preset ]; then preset=$2; else labels="${labels:+$labels|}$2"; fi
        shift
        ;;
    --all) all=1 ;;
    --soak) left_out="long|cross" ;;
    -h | --help)
        sed -n '2,15s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) rest+=("$1") ;;
    esac
    shift
done
case $preset in
release | debug | asan | tsan) ;;
*) fail "there is no preset '$preset'; there are release, debug, asan and tsan" ;;
esac

cd "$root"
needs=(--tests)
fuzz_seconds=20
if [ -n "$all$labels" ]; then
    left_out=${left_out%'long|cross'} left_out=${left_out%|}
elif [ "$left_out" = 'soak|long|cross' ]; then
    fuzz_seconds=1 long=OFF places=6 # libFuzzer ends a second later than it is told
fi
if [ "$preset" = release ] && [[ "|${labels:-${all:+cross}}|" == *"|cross|"* ]]; then
    needs+=(--cross) # the tests labelled cross are part of this preset only
fi
bash cmake/setup.sh "${needs[@]}"

options=(-DFEDGE_TESTS=ON -DFEDGE_NETWORK=ON -DFEDGE_AGGREGATOR=ON -DFEDGE_WERROR=OFF
    -DFEDGE_LONG_TESTS=$long -DFEDGE_FUZZ_SECONDS="${FEDGE_FUZZ_SECONDS:-$fuzz_seconds}")
if [ "${CI:-}" = true ]; then
    options+=(-DFEDGE_WERROR=ON)
fi
# No test here runs on a GPU: one kind shows that nvcc compiles the code, as the long ones want to see. A build
# that has code for GPUs keeps it.
cached() { sed -n "s/^$1:[A-Z]*=//p" "build/$preset/CMakeCache.txt" 2>/dev/null || true; }
gpus=$(cached FEDGE_CUDA_ARCHITECTURES)
cuda=$(cached FEDGE_CUDA)
if [ "$long" = ON ] && [ "$cuda" != ON ]; then
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
cmake --build "build/$preset" -j "$(nproc)"

[ -z "$left_out" ] || echo "Left out: tests with the labels ${left_out//|/, } (see --help)"
[ -z "$left_out" ] || rest=(-LE "^($left_out)\$" "${rest[@]}")
[ -z "$labels" ] || rest=(-L "^($labels)\$" "${rest[@]}")
[ -z "$all" ] || export FEDGE_TEST_LONG=1
# Places for each core: tests that compute take two of them, and those that wait for sockets one.
exec ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$((places * $(nproc)))" "${rest[@]}" \
    </dev/null
