/* A trainer that computes nothing.
 *
 * What it does with a task is drawn from a stream that the world's seed, the client and the task
 * name, so it depends on nothing that happens meanwhile: how long the task takes in virtual time,
 * whether it fails, what it reports, and by which values the model changes. Most changes lie within
 * the bounds of updates, some are 0, and some are to be clamped or refused.
 *
 * It also stores a value in some tasks, and knows which one the client's store may return: what
 * fedge_client_put has confirmed must outlive every crash.
 */
#ifndef FEDGE_TESTS_WORLD_STUB_TRAINER_H
#define FEDGE_TESTS_WORLD_STUB_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/fedge_client.h"

/* Chances in 1,000 of each task. */
typedef struct stub_trainer_chances {
    uint32_t fails;          /* with a drawn status */
    uint32_t is_late;        /* takes longer than the round */
    uint32_t ignores_cancel; /* works on to its end, and reports */
    uint32_t clamps;         /* some changes are over the bound */
    uint32_t zeros;          /* some or all changes are 0 */
    uint32_t is_not_finite;  /* one value is no number, so the client declines the task */
    uint32_t stores;         /* reads its value and replaces it */
} stub_trainer_chances;

/* Lives in the world's memory and outlives the client's process. */
typedef struct stub_trainer {
    uint64_t seed;
    uint32_t client; /* index in the federation, from 0 */
    uint64_t num_examples;
    stub_trainer_chances chances;
    bool may_lose; /* the store lost its state, or may be damaged: set by the world */
    uint32_t num_trained, num_evaluated, num_failed, num_cancelled;
    /* Numbers of the values given to fedge_client_put, from 1: the last that was confirmed, and the
     * last of all. */
    uint32_t confirmed, tried;
    /* Told of what training makes of a task's model; NULL: nobody is. Both have
     * plan->schema.num_elements. */
    void (*trained)(uint32_t client, uint64_t task_id, const float *before, const float *after);
} stub_trainer;

/* Draws the trainer's habits. In half of the worlds nothing fails and nothing is late. */
void stub_trainer_init(stub_trainer *trainer, uint64_t seed, uint32_t client);
/* From now on nothing fails and nothing is late, so that the run ends. */
void stub_trainer_calm(stub_trainer *trainer);

/* For fedge_client_new. The trainer outlives all clients that are made with it. */
fedge_client_callbacks stub_trainer_callbacks(stub_trainer *trainer);

#endif
