#!/usr/bin/env bash
# A federation on loopback, real processes and mutual TLS: how long a round and its parts take, what
# the aggregator costs in CPU and memory, what an idle client is, what connections cost.
#
#   tests/bench/federation.sh [--quick] [--json] [ROW...]
#
# ROW is one of: round cpu client memory connections (default: all). Needs the Debian package
# dataset-fashion-mnist (cmake/setup.sh installs it). The peer of the idle client's memory is a
# Python with PyTorch imported; PYTHON names it, and without one those columns are null.
set -euo pipefail
cd "$(dirname "$0")/../.."

options=() rows=()
for arg in "$@"; do
    case "$arg" in
    --quick | --json) options+=("$arg") ;;
    -h | --help)
        sed -n '2,10s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    round | cpu | client | memory | connections) rows+=("$arg") ;;
    *)
        echo "federation.sh: unknown argument $arg; see --help" >&2
        exit 2
        ;;
    esac
done

build=${FEDGE_BUILD:-build/release}
if [ ! -f "$build/CMakeCache.txt" ]; then
    cmake --preset release -B "$build" >&2
fi
cmake --build "$build" --target programs >&2

python=${PYTHON:-}
for candidate in python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$candidate" -c 'import torch' 2>/dev/null; then
        python=$candidate
    fi
done

export FEDGE_BIN_DIR
FEDGE_BIN_DIR=$(cd "$build/bin" && pwd)
exec python3 tests/bench/federation.py --python "$python" ${options[@]+"${options[@]}"} \
    ${rows[@]+"${rows[@]}"}
