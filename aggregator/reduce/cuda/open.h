/* Which GPUs an accumulator takes, how they share the work, and what will lie on each.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_OPEN_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_OPEN_H

#include "aggregator/reduce/cuda/team.h"

#define FEDGE_CUDA_MAX_SLOTS 33 /* two batches, and a spare slot */
#define FEDGE_CUDA_MIN_SLOTS 2  /* one, and a spare slot */

typedef struct fedge_cuda_choice {
    fedge_shard shard;  /* clients or coordinates; clients for one GPU */
    uint32_t num_slots; /* of each GPU, with the spare one */
} fedge_cuda_choice;

/* What lies on one GPU. */
typedef struct fedge_cuda_place {
    int ordinal;
    bool by_clients;
    uint32_t num_slots;
    fedge_cuda_bytes bytes;
} fedge_cuda_place;

/* All of it. */
size_t fedge_cuda_place_bytes(const fedge_cuda_place *place);

/* A line without an end, for people; gives its length. size ≥ 1. */
size_t fedge_cuda_describe_place(const fedge_cuda_place *place, char *text, size_t size);

/* Chooses as fedge_cuda_open_team does, and fails as it does, but takes nothing: a line for each
 * GPU says what would lie there. */
FEDGE_MUST_USE fedge_status fedge_cuda_forecast_team(const fedge_cuda_geometry *geometry,
                                                     const fedge_accumulator_config *config,
                                                     char *text, size_t size, fedge_error *err);

/* Opens the GPUs that [config] names, or all, and NCCL where they join their sums. With
 * FEDGE_SHARD_AUTO by clients where the sums of all coordinates and two updates fit on each GPU and
 * NCCL can be had and starts, else by coordinates. FEDGE_NOT_FOUND: no driver, no GPU, not this
 * GPU, no NCCL (FEDGE_UNSUPPORTED: too old a one); FEDGE_NO_MEMORY: it does not fit. The messages
 * say what to do. [team] is to be closed also on failure. */
FEDGE_MUST_USE fedge_status fedge_cuda_open_team(fedge_cuda_team *team,
                                                 const fedge_cuda_geometry *geometry,
                                                 const fedge_accumulator_config *config,
                                                 fedge_cuda_choice *choice, fedge_error *err);

#endif
