#!/usr/bin/env bash
# Local training, samples per second and peak memory: the jobs of examples/zoo in batches of 10 and 32,
# fedge against PyTorch, one thread each, on the same core in turn, medians. Seconds are of CPU
# time, so that other work on the machine stretches neither side. Also what the core can do at most, and
# which share of it fedge's matrix products reach.
#
#   tests/bench/train.sh [--quick] [--json] [MODEL...]
#
# MODEL is the name of a job of examples/zoo (default: all; with --quick four of them). PYTHON names one
# or more Pythons with PyTorch (default: the first of python3 and /usr/bin/python3 that has it). To get
# one: apt-get install python3-torch, or pip install torch in a virtual environment. Without one fedge is
# measured alone.
set -euo pipefail
cd "$(dirname "$0")/../.."

arguments=()
for arg in "$@"; do
    case "$arg" in
    -h | --help)
        sed -n '2,13s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --quick | --json | [!-]*) arguments+=("$arg") ;;
    *)
        echo "train.sh: unknown option $arg; see --help" >&2
        exit 2
        ;;
    esac
done

build=${FEDGE_BUILD:-build/release}
if [ ! -f "$build/CMakeCache.txt" ]; then
    cmake --preset release -B "$build" >&2
fi
cmake --build "$build" --target bench_train_fedge >&2

read -ra pythons <<<"${PYTHON:-}"
for candidate in python3 /usr/bin/python3; do
    if [ "${#pythons[@]}" = 0 ] && "$candidate" -c 'import torch' 2>/dev/null; then
        pythons=("$candidate")
    fi
done
if [ "${#pythons[@]}" = 0 ]; then
    echo "train.sh: no PyTorch found: the peer is left out (apt-get install python3-torch, or" \
        "pip install torch in a virtual environment and PYTHON=…/bin/python)" >&2
fi
for python in ${pythons[@]+"${pythons[@]}"}; do
    arguments+=("--python=$python")
done

exec python3 -B tests/bench/train_compare.py --fedge "$build/bin/bench_train_fedge" \
    ${arguments[@]+"${arguments[@]}"}
