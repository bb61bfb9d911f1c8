/* What a run takes of the machine's memory, found before it takes any. Memory is promised before it
 * is there: a program that fills more than there is for it is ended without a word, in some round.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_MEMORY_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* In bytes. Plain data. */
typedef struct fedge_memory {
    uint64_t present; /* what the program has by now, its data with it */
    uint64_t model;   /* the global one, its sums, its strategy and its file */
    uint64_t threads; /* of all together */
    uint64_t states;  /* what clients keep for the strategy, with the copies of an open round */
    uint64_t tasks;   /* a round's */
    uint32_t num_threads;
} fedge_memory;

/* What decides how much a run takes. Plain data. */
typedef struct fedge_memory_demand {
    const fedge_job *job;
    uint32_t num_clients, num_threads;
    uint64_t thread_bytes;  /* of one: fedge_sim_backend_ops.size */
    size_t task_bytes;      /* of one, as the simulation keeps it */
    bool no_hashes;         /* of the rounds' models */
    bool joins_ranks;       /* sums of several are joined */
    uint64_t state_memory;  /* as fedge_client_states_limit has it */
    uint64_t robust_memory; /* as fedge_accumulator_config has it */
} fedge_memory_demand;

/* What the program may still take, at least 1; UINT64_MAX when that is unknown. */
uint64_t fedge_memory_left(void);

/* What a run takes, with what is there now. */
FEDGE_MUST_USE fedge_status fedge_memory_count(fedge_memory *memory,
                                               const fedge_memory_demand *demand, fedge_error *err);

/* How much of what clients keep may be in memory where not all of it fits beside the rest: half of
 * what the rest leaves of [usable] (0: unknown), at least 1 byte. 0: it fits. */
uint64_t fedge_memory_state_budget(const fedge_memory *memory, uint64_t usable);

/* FEDGE_TOO_BIG when all of it is more than [usable] (0: unknown, nothing is too much): the message
 * has the parts, the largest first, and what to change. */
FEDGE_MUST_USE fedge_status fedge_memory_check(const fedge_memory *memory, uint64_t usable,
                                               fedge_error *err);

#endif
