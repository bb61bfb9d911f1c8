#!/usr/bin/env bash
# The programs start where there is no CUDA, NCCL or MPI, also those that can use them: none is among the
# libraries that they need. test_needed.sh WITH_CUDA, 1 or 0.
. "$(dirname "$0")/command_line.sh"

for program in fedge-aggregator fedge-simulate; do
    readelf -d "$FEDGE_BIN_DIR/$program" | grep -F '(NEEDED)' >needed || fail "$program needs no library at all"
    ! grep -E '\[lib(cuda|cudart|cublas|nccl|mpi)[._-]' needed || fail "$program does not start without these"
    if [ "$1" = 1 ]; then
        grep -qa 'libnccl\.so' "$FEDGE_BIN_DIR/$program" || fail "$program has no code for GPUs in it"
    fi
done
