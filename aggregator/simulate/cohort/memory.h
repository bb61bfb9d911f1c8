/* The memory of a run, computed before it takes any: a system that overcommits would kill the
 * program in a later round, without a message. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_MEMORY_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* In bytes. Plain data. */
typedef struct fedge_memory {
    uint64_t present; /* the program and its data now */
    uint64_t model;   /* the global model, its sums, its strategy and its file */
    uint64_t threads; /* all threads */
    uint64_t states;  /* clients' states, with the pending ones of an open round */
    uint64_t tasks;   /* the tasks of a round */
    uint32_t num_threads;
} fedge_memory;

/* What determines the memory of a run. Plain data. */
typedef struct fedge_memory_demand {
    const fedge_job *job;
    uint32_t num_clients, num_threads;
    uint64_t thread_bytes;  /* fedge_sim_backend_ops.size: bytes per thread */
    size_t task_bytes;      /* bytes per task in the simulation */
    bool no_hashes;         /* no hashes of the rounds' models */
    bool is_distributed;    /* several ranks sum together */
    uint64_t state_memory;  /* fedge_client_states_limit.memory */
    uint64_t robust_memory; /* fedge_accumulator_config.robust_memory */
} fedge_memory_demand;

/* Bytes that the program may still take, at least 1; UINT64_MAX: unknown. */
uint64_t fedge_memory_left(void);

/* Allocates [size] bytes, aligned to a cache line or, if there are many, to a large page, and adds
 * them to *total. NULL: no memory. */
void *fedge_memory_allocate(size_t size, uint64_t *total);

/* The memory of a run, including what the program has now. */
FEDGE_MUST_USE fedge_status fedge_memory_count(fedge_memory *memory,
                                               const fedge_memory_demand *demand, fedge_error *err);

/* Bytes of clients' states to hold in memory where not all fit in [usable] (0: unknown): half of
 * what everything else leaves, at least 1. 0: all fit. */
uint64_t fedge_memory_state_budget(const fedge_memory *memory, uint64_t usable);

/* FEDGE_TOO_BIG when the sum exceeds [usable] (0: unknown, never); the message lists the parts, the
 * largest first, and what to change. */
FEDGE_MUST_USE fedge_status fedge_memory_check(const fedge_memory *memory, uint64_t usable,
                                               fedge_error *err);

#endif
