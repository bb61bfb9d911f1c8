/* Internals of a simulation on several ranks. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_RANKS_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_RANKS_INTERNAL_H

#include "aggregator/simulate/run/ranks.h"

/* Rank 0's commands. */
typedef enum ranks_command_kind {
    RANKS_RUN,     /* the model if it changed, tasks → results, classes */
    RANKS_JOIN,    /* → sums */
    RANKS_COMMIT,  /* the closed round */
    RANKS_DROP,    /* the open round */
    RANKS_COLLECT, /* → changed states of clients */
    RANKS_SPREAD,  /* the states of all clients */
    RANKS_END
} ranks_command_kind;

typedef struct ranks_command {
    ranks_command_kind kind;
    uint32_t round;       /* RUN, COMMIT, SPREAD */
    uint32_t num_tasks;   /* RUN */
    uint32_t num_clients; /* SPREAD: clients with a state */
    uint64_t state_size;  /* RUN: bytes of the strategy's broadcast state; 0: not sent */
    bool has_model, has_bounds;
    int8_t bounds_log2[FEDGE_MAX_TENSORS];
} ranks_command;

/* A task as ranks send it: they run the same program, so its layout is the same. */
typedef struct ranks_task {
    fedge_sim_backend_task task; /* only the count of [view] is valid; [predicted] is not */
    fedge_placement_work work;
    uint32_t first; /* TEST: index of its examples in the client data's list or in the test set */
    bool wants_classes;
} ranks_task;

/* Deals tasks to ranks, with the same result on all. rank_of: (num_tasks). FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status ranks_deal(const fedge_sim_ranks *self, const ranks_task *tasks,
                                       uint32_t num_tasks, uint32_t *rank_of, fedge_error *err);

#endif
