#!/usr/bin/env bash
# A federation on loopback, real processes and mutual TLS: how long a round and its parts take, what
# the aggregator costs in CPU and memory, what an idle client is, what connections cost.
#
#   tests/bench/federation.sh [--quick] [--json] [ROW...]
#
# ROW is one of: round tiny cpu client memory exchange profile threads ranks connections flood (default: all).
# Needs the Debian package dataset-fashion-mnist (cmake/setup.sh installs it); profile needs linux-perf
# and is left out without. The peer of the idle client's memory is a Python with PyTorch imported; PYTHON
# names it, and without one those columns are null. FEDGE_BENCH_PARAMETERS is the size of exchange's model. With
# FEDGE_BENCH_ONE_AT_A_TIME=1 its clients, codec none, work one after another through one round, and a client's files
# go when it ends. It says how much memory and disk that needs, and refuses with less.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments 'round|tiny|cpu|client|memory|exchange|profile|threads|ranks|connections|flood' "$@"
make_targets programs bench_exchange_fedge

export FEDGE_BIN_DIR
FEDGE_BIN_DIR=$(cd "$build/bin" && pwd)
exec python3 tests/bench/federation.py --python "${PYTHON:-$(first_with torch)}" \
    ${arguments[@]+"${arguments[@]}"}
