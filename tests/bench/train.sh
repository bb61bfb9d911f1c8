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

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '[^-].*' "$@"
make_targets bench_train_fedge

read -ra pythons <<<"${PYTHON:-$(first_with torch)}"
if [ "${#pythons[@]}" = 0 ]; then
    echo "train.sh: no PyTorch found: the peer is left out (apt-get install python3-torch, or" \
        "pip install torch in a virtual environment and PYTHON=…/bin/python)" >&2
fi

exec python3 -B tests/bench/train_compare.py --fedge "$build/bin/bench_train_fedge" \
    ${pythons[@]+"${pythons[@]/#/--python=}"} ${arguments[@]+"${arguments[@]}"}
