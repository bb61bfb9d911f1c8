#!/usr/bin/env bash
# The server's step of each optimizer on the host: bytes that it reads and writes a second on one core, beside what
# one core reads from memory in the same run.
#
#   tests/bench/step.sh [--quick] [--json]

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '' "$@"
make_targets bench_step_fedge bench_reduce_fedge

exec python3 -B tests/bench/step_compare.py --fedge "$build/bin/bench_step_fedge" \
    --read "$build/bin/bench_reduce_fedge" ${arguments[@]+"${arguments[@]}"}
