/* The accumulator on a machine's GPUs (aggregator/reduce/accumulator.h).
 *
 * Encoded bytes are copied to a GPU as they are read, through pinned buffers, checked and laid on
 * planes there, and summed several updates at a time. Nothing is decoded on the host. GPUs share
 * the work by clients (each sums some updates; the sums are joined by NCCL in the step) or by
 * coordinates (each has a part of every update). An update for which no room is left on the GPUs is
 * only checked by validate, and is read again by add.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_ACCUMULATOR_CUDA_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_ACCUMULATOR_CUDA_H

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/cuda/team.h"

/* The GPUs of one that is open, for scatter_nccl.c. */
fedge_cuda_team *fedge_accumulator_cuda_team(void *state);

#endif
