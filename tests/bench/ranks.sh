#!/usr/bin/env bash
# Ranks of this machine. ROW is one of (default: both):
#
#   tests/bench/ranks.sh [--quick] [--json] [ROW...]
#
#   close    the close of a round: sums joined on rank 0 and its step, beside an MPI_Allreduce of as many int64, and
#            beside what a close on shards of the coordinates could be
#   cohort   a simulated cohort on two ranks with a thread each, beside one process with two threads
#
# Uploads to an aggregator on two ranks: federation.sh ranks. One process has nothing to join: its close is the step alone. Medians of 21 passes (--quick: 5), all kinds in turn; a ratio over 1 means that fedge is faster.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments 'close|cohort' "$@"
make_targets bench_ranks_fedge fedge-simulate

passes=21 json=false rows= options=()
for word in ${arguments[@]+"${arguments[@]}"}; do
    case $word in
    --quick) passes=5 options+=("$word") ;;
    --json) json=true options+=("$word") ;;
    *) rows+=" $word" ;;
    esac
done
rows=${rows:-close cohort}
if [[ $rows == *cohort* ]]; then
    python3 tests/bench/ranks_compare.py --fedge "$build/bin/fedge-simulate" ${options[@]+"${options[@]}"}
fi
[[ $rows == *close* ]] || exit 0
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
