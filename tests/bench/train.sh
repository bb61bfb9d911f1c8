#!/usr/bin/env bash
# Local training, samples per second and resident memory: fedge against PyTorch on one thread each, in
# turn, medians. Three networks on (1, 28, 28) inputs: the quickstart's CNN, McMahan's 2NN
# (784-200-200-10) and McMahan's CNN (1,663,370 parameters), in batches of 10 and 32.
#
#   tests/bench/train.sh [--quick] [--json]
#
# PYTHON names a Python with PyTorch (default: the first of python3 and /usr/bin/python3 that has it). To
# get one: apt-get install python3-torch, or pip install torch numpy in a virtual environment. Without
# it the peer's columns are null.
set -euo pipefail
cd "$(dirname "$0")/../.."

turns=7 seconds=2 json=0
for arg in "$@"; do
    case "$arg" in
    --quick) turns=5 seconds=0.25 ;;
    --json) json=1 ;;
    -h | --help)
        sed -n '2,11s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
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

python=${PYTHON:-}
for candidate in python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$candidate" -c 'import torch' 2>/dev/null; then
        python=$candidate
    fi
done
if [ -z "$python" ]; then
    echo "train.sh: no PyTorch found: the peer is left out (apt-get install python3-torch, or" \
        "pip install torch numpy in a virtual environment and PYTHON=…/bin/python)" >&2
fi

exec python3 tests/bench/train_compare.py --fedge "$build/bin/bench_train_fedge" \
    --python "$python" --turns "$turns" --seconds "$seconds" --json "$json"
