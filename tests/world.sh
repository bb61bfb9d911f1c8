#!/usr/bin/env bash
# Simulates whole federations with faults: the real server and the real clients on simulated disks,
# networks and clocks, one world for each seed.
#
#   bash tests/world.sh [--preset NAME] [option]...
#
#   --seeds N       so many worlds
#   --from S        the first seed (default: that of one of 20 blocks, by the commit's hash)
#   --minutes M     ends after so long (default: a third of a minute)
#   --seed S [--trace]   one world, and its story line by line
#   --shrink        makes a world that fails smaller, and prints how to run what is left
#   --preset NAME   builds build/NAME first: release (default) or asan
#   --program PATH  runs this program instead of building one
#
# Without a number of worlds the seeds of tests/world/regressions.txt come first. Further options are
# those of the program: build/release/bin/world --help. Exit code 0: all held; 1: a world failed; its
# seed is printed, and gives the same world on every machine.
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
# Worlds that failed once.
if [ -z "$chosen" ]; then
    while read -r seed _; do
        [[ $seed != [0-9]* ]] || output=$("$program" --seed "$seed") || {
            printf '%s\n' "$output"
            exit 1
        }
    done <tests/world/regressions.txt
fi
# By the commit one of 20 blocks of worlds, all of which have been run: a change is to break none of them.
if [ -z "$from" ]; then
    hash=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1)
    options+=(--from "$((16#$hash % 20 * 5000 + 1))")
fi
# Worlds whose fault is not mended yet.
while read -r seed _; do
    [[ $seed != [0-9]* ]] || options+=(--skip "$seed")
done <tests/world/open.txt
[ -n "$chosen" ] || options+=(--seeds 5000 --minutes "${FEDGE_WORLD_MINUTES:-0.33}")
exec "$program" "${options[@]}"
