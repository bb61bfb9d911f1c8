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

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '[^-].*' "$@"
make_targets fedge-simulate bench_train_fedge

peer() { # MODULE...
    first_with "$@" || echo "simulate.sh: no Python with $*: that peer is left out; see --help" >&2
}

exec python3 -B tests/bench/simulate_compare.py --fedge "$build/bin/fedge-simulate" \
    --train "$build/bin/bench_train_fedge" --pytorch="$(peer numpy torch)" \
    --flower="$(peer numpy torch flwr ray)" ${arguments[@]+"${arguments[@]}"}
