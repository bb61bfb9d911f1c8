/* The memory a plan needs on a client, computed before any is allocated. fedge-client --plan prints
 * it, and a site's policy.max-ram limits it.
 *
 * It counts everything that grows with the model, the batch or the update, to the byte, as the
 * client's library (client/worker.c, client/client_state.c) and its built-in trainer allocate it;
 * of an external model all but the trainer's own. Not counted: the data set and 4 bytes for each of
 * its examples, whose number is in its files, and the program with its records of fixed size.
 */
#ifndef FEDGE_EDGE_SITE_CLIENT_MEMORY_H
#define FEDGE_EDGE_SITE_CLIENT_MEMORY_H

#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

typedef struct fedge_memory_row {
    const char *name, *what; /* "delta", "parameters as they are trained, then their changes" */
    const char *remedy;      /* how to reduce it: "lower batch-size" */
    uint64_t bytes;
} fedge_memory_row;

typedef enum fedge_memory_part {
    FEDGE_MEMORY_PARAMETERS, /* PARAMETERS to SCRATCH are those of fedge_model_memory */
    FEDGE_MEMORY_GRADIENTS,
    FEDGE_MEMORY_OPTIMIZER,
    FEDGE_MEMORY_ACTIVATIONS,
    FEDGE_MEMORY_SCRATCH,
    FEDGE_MEMORY_EVALUATION,
    FEDGE_MEMORY_DELTA,
    FEDGE_MEMORY_CONTROL,
    FEDGE_MEMORY_BATCH,
    FEDGE_MEMORY_TRANSFER,
    FEDGE_MEMORY_PARTS
} fedge_memory_part;

typedef struct fedge_client_memory {
    fedge_memory_row rows[FEDGE_MEMORY_PARTS]; /* indexed by fedge_memory_part */
    uint64_t model;                            /* the rows up to SCRATCH: the trainer's block */
    uint64_t total;                            /* all rows */
} fedge_client_memory;

/* Fails as fedge_model_size does if the model exceeds a limit. */
FEDGE_MUST_USE fedge_status fedge_client_memory_of(const fedge_plan *plan,
                                                   fedge_client_memory *memory, fedge_error *err);

#endif
