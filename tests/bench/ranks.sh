#!/usr/bin/env bash
# Ranks of this machine. ROW is one of (default: both):
#
#   tests/bench/ranks.sh [--quick] [--json] [--accumulator=cuda] [--join=nccl|mpi] [ROW...]
#
#   close    the close of a round with the step on the ranks' shards, as served, and on rank 0, as simulated, beside an
#            MPI_Allreduce of as many int64
#   cohort   a simulated cohort on two ranks with a thread each, beside one process with two threads
#
# Uploads to an aggregator on two ranks: federation.sh ranks. One process has nothing to join: its close is the step
# alone. With --accumulator=cuda, for close, there are as many ranks as this machine has GPUs, and each sums on its own;
# --join says what joins the sums (default: auto, and standard error says what that is). Medians of 21 passes (--quick:
# 5), all kinds in turn; a ratio over 1 means that fedge is faster.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments 'close|cohort|--accumulator=(cpu|cuda)|--join=(auto|mpi|nccl)' "$@"
make_targets bench_ranks_fedge fedge-simulate

passes=21 json=false rows= options=() accumulator=cpu join=auto numbers='2 4' how=
for word in ${arguments[@]+"${arguments[@]}"}; do
    case $word in
    --quick) passes=5 options+=("$word") ;;
    --json) json=true options+=("$word") ;;
    --accumulator=*) accumulator=${word#*=} ;;
    --join=*) join=${word#*=} ;;
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
if [ "$accumulator" = cuda ]; then # NCCL wants a GPU of its own for each rank
    how=" on GPUs, joined by $join" numbers=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU || true)
    [ "$numbers" -ge 2 ] || { echo "ranks.sh: --accumulator=cuda needs two GPUs, and finds $numbers" >&2; exit 3; }
fi
for parameters in 1663370 25600000; do
    for ranks in $numbers; do
        mpirun -n "$ranks" "$build/bin/bench_ranks_fedge" "$parameters" "$passes" "$accumulator" "$join"
    done
done | awk -v json="$json" -v how="$how" '
    function row(name, seconds) {
        if (json == "true")
            printf "{\"bench\":\"ranks\",\"case\":\"close %s%s, %d ranks, %d parameters\",\"value\":%s,\"unit\":\"s\",\"peer\":\"MPI_Allreduce\",\"peer_value\":%s,\"ratio\":%.3f}\n", name, how, $1, $2, seconds, $6, $6 / seconds
        else
            printf "%d ranks, %8d parameters: close %-9s%s %7.1f ms (step alone %6.1f), MPI_Allreduce %7.1f ms\n", $1, $2, name, how, 1e3 * seconds, 1e3 * $5, 1e3 * $6 }
    { row("on shards", $3); row("on rank 0", $4) }'
