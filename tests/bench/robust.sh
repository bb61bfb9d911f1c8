#!/usr/bin/env bash
# Robust rules: seconds for a round of 64 updates of 1,663,370 parameters (or with --large of 25,600,000), beside the
# same rule in NumPy as one writes it, on one thread and on two where there are as many cores.
#
#   tests/bench/robust.sh [--quick] [--large] [--json]
#
# PYTHON names a Python with NumPy (default: the first of python3 and /usr/bin/python3 that has it).

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '--large' "$@"
make_targets bench_robust_fedge

python=$(first_with numpy) || { echo "robust.sh: no Python with NumPy" >&2; exit 1; }
for threads in 1 2; do
    [ "$threads" -le "$(nproc)" ] || break
    OPENBLAS_NUM_THREADS=$threads OMP_NUM_THREADS=$threads "$python" -B tests/bench/robust_compare.py \
        --fedge "$build/bin/bench_robust_fedge" --threads "$threads" ${arguments[@]+"${arguments[@]}"}
done
