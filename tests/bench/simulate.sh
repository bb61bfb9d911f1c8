#!/usr/bin/env bash
# Simulation on all cores: rounds, clients and samples per second, memory and start-up, beside the same
# work in plain PyTorch (a process per core) and in Flower's simulation; what the simulator costs over
# training alone, and what more cores give. One local epoch of plain SGD, updates as floats, no evaluation.
#
#   tests/bench/simulate.sh [--quick] [--json] [CASE...]
#
# CASE is one of: 2nn mcmahan-cnn logistic cifar-cnn (default: all; with --quick the first beside PyTorch and
# the third beside Flower). The first of the Pythons that PYTHON names, python3 and /usr/bin/python3 that has
# PyTorch is one peer, the first with Flower the other: pip install torch 'flwr[simulation]' in a virtual
# environment. Without them rows say so. Needs the Debian package dataset-fashion-mnist.
set -euo pipefail
cd "$(dirname "$0")/../.."

arguments=()
for arg in "$@"; do
    case "$arg" in
    -h | --help)
        sed -n '2,11s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --quick | --json | [!-]*) arguments+=("$arg") ;;
    *)
        echo "simulate.sh: unknown option $arg; see --help" >&2
        exit 2
        ;;
    esac
done

build=${FEDGE_BUILD:-build/release}
if [ ! -f "$build/CMakeCache.txt" ]; then
    cmake --preset release -B "$build" >&2
fi
cmake --build "$build" --target fedge-simulate bench_train_fedge >&2

first_with() { # MODULE...: the first Python that has them all
    local modules
    modules=$(printf "'%s'," "$@")
    for python in ${PYTHON-} python3 /usr/bin/python3; do
        if "$python" -c "import importlib.util as u, sys
sys.exit(any(u.find_spec(m) is None for m in ($modules)))" 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    echo "simulate.sh: no Python with $*: that peer is left out; see --help" >&2
}

exec python3 -B tests/bench/simulate_compare.py --fedge "$build/bin/fedge-simulate" \
    --train "$build/bin/bench_train_fedge" --pytorch="$(first_with numpy torch)" \
    --flower="$(first_with numpy torch flwr ray)" ${arguments[@]+"${arguments[@]}"}
