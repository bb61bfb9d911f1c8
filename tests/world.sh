#!/usr/bin/env bash
# Simulates whole federations with faults: the real server and the real clients on simulated disks,
# networks and clocks, one world for each seed.
#
#   bash tests/world.sh [--preset NAME] [option]...
#
#   --seeds N       the number of worlds
#   --from S        the first seed (default: that of one of 20 blocks, by the commit's hash)
#   --minutes M     begins no world after this time (default: a third of a minute)
#   --seed S [--trace]   only this world; prints what happens, line by line
#   --shrink        removes what a failing world does not need, and prints the options for the rest
#   --preset NAME   builds build/NAME first: release (default) or asan
#   --program PATH  runs this program instead of building one
#
# Without a number of worlds the seeds of tests/world/regressions.txt come first. For further options
# see build/release/bin/world --help. Exit code 0: no world failed; 1: a world failed. Its seed is
# printed, and gives the same world on every machine.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
preset=release program='' options=() chosen='' from=''
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,19s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --preset | --program)
        [ $# -ge 2 ] || { echo "tests/world.sh: $1 needs a value" >&2; exit 2; }
        if [ "$1" = --preset ]; then preset=$2; else program=$2; fi
        shift
        ;;
    --seeds | --seed | --minutes | --from)
        [ $# -ge 2 ] || { echo "tests/world.sh: $1 needs a value" >&2; exit 2; }
        case $1 in
        --from) from=1 ;;
        --seed) from=1 chosen=1 ;;
        *) chosen=1 ;;
        esac
        options+=("$1" "$2")
        shift
        ;;
    *) options+=("$1") ;;
    esac
    shift
done
cd "$root"
if [ -z "$program" ]; then
    bash cmake/setup.sh --tests
    [ -f "build/$preset/CMakeCache.txt" ] || cmake --preset "$preset" >/dev/null
    cmake --build "build/$preset" -j "$(nproc)" --target world
    program=build/$preset/bin/world
fi
# Runs worlds that failed once.
if [ -z "$chosen" ]; then
    while read -r seed _; do
        [[ $seed != [0-9]* ]] || output=$("$program" --seed "$seed") || {
            printf '%s\n' "$output"
            exit 1
        }
    done <tests/world/regressions.txt
fi
# The commit selects one of 20 blocks of worlds. No world of these blocks fails, so a failure shows a wrong change.
if [ -z "$from" ]; then
    hash=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1)
    options+=(--from "$((16#$hash % 20 * 5000 + 1))")
fi
# Skips worlds whose bug is not fixed yet.
while read -r seed _; do
    [[ $seed != [0-9]* ]] || options+=(--skip "$seed")
done <tests/world/open.txt
[ -n "$chosen" ] || options+=(--seeds 5000 --minutes "${FEDGE_WORLD_MINUTES:-0.33}")
exec "$program" "${options[@]}"
