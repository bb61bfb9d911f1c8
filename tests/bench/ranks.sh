#!/usr/bin/env bash
# The close of a round over ranks of this machine: sums joined on rank 0 and its step, beside an
# MPI_Allreduce of as many int64, and beside what a close on shards of the coordinates could be.
#
#   tests/bench/ranks.sh [--quick] [--json]
#
# One process has nothing to join: its close is the step alone. Medians of 21 passes (--quick: 5), all kinds in turn; a ratio over 1 means that fedge is faster.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '' "$@"
make_targets bench_ranks_fedge

passes=21 json=false
for word in ${arguments[@]+"${arguments[@]}"}; do
    [ "$word" = --quick ] && passes=5
    [ "$word" = --json ] && json=true
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl=self,vader TMPDIR=/tmp
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
for parameters in 1663370 25600000; do
    for ranks in 2 4; do
        mpirun -n "$ranks" "$build/bin/bench_ranks_fedge" "$parameters" "$passes"
    done
done | awk -v json="$json" '
    { ratio = $5 / $3
      if (json == "true")
          printf "{\"bench\":\"ranks\",\"case\":\"close, %d ranks, %d parameters\",\"value\":%s,\"unit\":\"s\",\"peer\":\"MPI_Allreduce\",\"peer_value\":%s,\"ratio\":%.3f}\n", $1, $2, $3, $5, ratio
      else
          printf "%d ranks, %8d parameters: close %7.1f ms (step alone %6.1f), MPI_Allreduce %7.1f ms, on shards %7.1f ms\n", $1, $2, 1e3 * $3, 1e3 * $4, 1e3 * $5, 1e3 * $6 }'
