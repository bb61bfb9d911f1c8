/* What the files of a simulation on several ranks share; nobody else includes it. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_RANKS_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_RANKS_INTERNAL_H

#include "aggregator/simulate/run/ranks.h"

/* What rank 0 says. */
typedef enum ranks_command_kind {
    RANKS_RUN,     /* the model if it moved, tasks → results, classes */
    RANKS_JOIN,    /* → sums */
    RANKS_COMMIT,  /* of a round */
    RANKS_DROP,    /* the open round */
    RANKS_COLLECT, /* → what clients keep and has moved */
    RANKS_SPREAD,  /* what all clients keep */
    RANKS_END
} ranks_command_kind;

typedef struct ranks_command {
    ranks_command_kind kind;
    uint32_t round;       /* RUN, KEEP, SPREAD */
    uint32_t num_tasks;   /* RUN */
    uint32_t num_clients; /* SPREAD: of whom something is kept */
    uint64_t state_size;  /* RUN: of the strategy, which tells clients of it; 0: not sent */
    bool has_model, has_bounds;
    int8_t bounds_log2[FEDGE_MAX_TENSORS];
} ranks_command;

/* A task as ranks send it to each other: the same program, so the same layout. */
typedef struct ranks_task {
    fedge_sim_backend_task task; /* with [view], but for its count, and [predicted] of no
                                  * meaning */
    fedge_placement_work work;
    uint32_t first; /* TEST: of its examples, in the client data's list or in the test set */
    bool wants_classes;
} ranks_task;

/* Whose tasks they are: the same on all ranks. rank_of: (num_tasks). FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status ranks_deal(const fedge_sim_ranks *self, const ranks_task *tasks,
                                       uint32_t num_tasks, uint32_t *rank_of, fedge_error *err);

#endif
