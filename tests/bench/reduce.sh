#!/usr/bin/env bash
# Sums of updates: how many encoded updates a second an accumulator decodes and adds, floats and int8, in
# queues of 1, 4 and 16, on one core and on all, beside what one core reads from memory in the same run and
# beside FedAvg's arithmetic on lists of NumPy arrays; other codecs in a queue of 16 on one core. And the memory that 10, 100 and 1,000 updates take.
#
#   tests/bench/reduce.sh [--quick] [--json] [--accumulator=KIND]
#
# FEDGE_BUILD names the build folder (default: build/release); build/gpu, that of
# tests/gpu/run.sh, will do.
# KIND is cpu (default) or cuda. PYTHON names a Python with NumPy (default: the first of python3 and
# /usr/bin/python3 that has it); without one the rows against NumPy are left out.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '--accumulator=[a-z]+' "$@"
make_targets bench_reduce_fedge

python=$(first_with numpy) || python=python3
exec "$python" -B tests/bench/reduce_compare.py --fedge "$build/bin/bench_reduce_fedge" \
    ${arguments[@]+"${arguments[@]}"}
