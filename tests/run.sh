#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests. Ends with ctest's summary and exit code.
#
#   bash tests/run.sh [--preset NAME] [--label LABEL]... [--soak] [argument for ctest]...
#
#   --preset NAME   release (default), debug, asan or tsan; built in build/NAME
#   --label LABEL   only tests with this label: unit, net, fuzz, style, cross (may be repeated)
#   --soak          the long tests too
#   further ones    for ctest: -R test_codec, -V, -j 4, --repeat until-fail:10
#
# CI=true makes warnings errors. FEDGE_FUZZ_SECONDS sets the time of each fuzzer (default 20).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
preset=release
labels=
soak=(-LE '^soak$')
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
    --soak) soak=() ;;
    -h | --help)
        sed -n '2,11s/^# \{0,1\}//p' "$0"
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
if [ "$preset" = release ] && [[ "|${labels:-cross}|" == *"|cross|"* ]]; then
    needs+=(--cross) # the tests labelled cross are part of this preset only
fi
bash cmake/setup.sh "${needs[@]}"

options=(-DFEDGE_TESTS=ON -DFEDGE_NETWORK=ON -DFEDGE_AGGREGATOR=ON -DFEDGE_WERROR=OFF)
if [ "${CI:-}" = true ]; then
    options+=(-DFEDGE_WERROR=ON)
fi
if [ -n "${FEDGE_FUZZ_SECONDS:-}" ]; then
    options+=(-DFEDGE_FUZZ_SECONDS="$FEDGE_FUZZ_SECONDS")
fi
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

[ -z "$labels" ] || rest=(-L "^($labels)\$" "${rest[@]}")
exec ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" "${soak[@]}" "${rest[@]}" \
    </dev/null
