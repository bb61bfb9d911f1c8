#!/usr/bin/env bash
# The Python client: what it takes in memory, beside Flower's; what a large model costs, beside the C client; rounds a
# second of a tiny PyTorch model, deployed and simulated, beside Flower's.
#
#   tests/bench/python.sh [--quick] [--json] [ROW...]
#
# ROW is one of: memory exchange tiny simulated (default: all). PYTHON names Pythons: the first with cffi and NumPy, for
# tiny and simulated also PyTorch, runs fedge's clients, and the first with flwr Flower's (pip install torch
# 'flwr[simulation]' in a virtual environment); without one the peer's columns are null. FEDGE_BENCH_PARAMETERS is the
# size of exchange's model (50 million; with --quick 5 million).

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments 'memory|exchange|tiny|simulated' "$@"
make_targets programs bench_exchange_fedge python_package

export FEDGE_BIN_DIR FEDGE_BINARY_DIR
FEDGE_BINARY_DIR=$(cd "$build" && pwd)
FEDGE_BIN_DIR=$FEDGE_BINARY_DIR/bin
exec python3 tests/bench/python_compare.py --python "$(first_with cffi numpy)" --torch "$(first_with cffi numpy torch)" \
    --flower "$(first_with flwr)" --flower-torch "$(first_with flwr torch)" --flower-ray "$(first_with flwr torch ray)" \
    ${arguments[@]+"${arguments[@]}"}
