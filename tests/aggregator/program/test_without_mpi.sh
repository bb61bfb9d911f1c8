#!/usr/bin/env bash
# Programs load MPI when ranks need it, and one that was built without it says so:
# test_without_mpi.sh WITHOUT PROGRAM...; WITHOUT: fedge-aggregator as FEDGE_MPI=OFF makes it
set -euo pipefail

without=$1
# shellcheck source=tests/aggregator/command_line.sh
. "$(dirname "$0")/../command_line.sh"

for program in "$@"; do
    readelf -d "$program" >needs || fail "readelf $program"
    if grep -E 'NEEDED.*(libmpi|libopen-)' needs; then fail "$program needs MPI to be installed"; fi
done
words=(--job job.json --state state --identity identity --trust trust --registry registry)
ends 3 "mpirun has started 2 of this program, which was built without MPI" env OMPI_COMM_WORLD_SIZE=2 "$without" "${words[@]}"
[ ! -e state ] || fail "a state was made"
ends 3 "job.json" env OMPI_COMM_WORLD_SIZE=1 "$without" "${words[@]}" # alone under mpirun: its files are looked for
