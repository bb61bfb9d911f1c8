#!/usr/bin/env bash
# Robust rules: seconds of one core for a round of 64 updates of 1,663,370 parameters, beside the same rule
# in NumPy as one writes it, on one thread.
#
#   tests/bench/robust.sh [--quick] [--json]
#
# PYTHON names a Python with NumPy (default: the first of python3 and /usr/bin/python3 that has it).

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '' "$@"
make_targets bench_robust_fedge

python=$(first_with numpy) || { echo "robust.sh: no Python with NumPy" >&2; exit 1; }
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
exec "$python" -B tests/bench/robust_compare.py --fedge "$build/bin/bench_robust_fedge" \
    ${arguments[@]+"${arguments[@]}"}
