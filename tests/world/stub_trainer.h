/* A trainer that computes nothing.
 *
 * The seed, the client and the task determine the random stream of a task, so nothing else
 * influences it: how long it takes in virtual time, whether it fails, what it reports, and by which
 * values the model changes. Most changes are within the bounds of updates, some are 0, and some
 * must be clamped or refused.
 *
 * In some tasks the trainer also stores a value. It knows which values the client's store may
 * return: what fedge_client_put has confirmed must survive every crash. */
#ifndef FEDGE_TESTS_WORLD_STUB_TRAINER_H
#define FEDGE_TESTS_WORLD_STUB_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/fedge_client.h"

/* Chances in 1,000 of each task. */
typedef struct stub_trainer_chances {
    uint32_t fails;          /* the task fails with a random status */
    uint32_t is_late;        /* takes longer than the round */
    uint32_t ignores_cancel; /* it ignores a cancellation and reports */
    uint32_t clamps;         /* some changes are over the bound */
    uint32_t zeros;          /* some or all changes are 0 */
    uint32_t is_not_finite;  /* one value is NaN, so the client declines the task */
    uint32_t stores;         /* it reads its stored value and replaces it */
} stub_trainer_chances;

/* State of a trainer, which outlives the client's process. */
typedef struct stub_trainer {
    uint64_t seed;
    uint32_t client; /* index in the federation, from 0 */
    uint64_t num_examples;
    stub_trainer_chances chances;
    const struct fedge_site *site; /* of the running client; NULL: it has none */
    bool may_lose;                 /* the store is lost or may be damaged: set by the world */
    uint32_t num_trained, num_evaluated, num_failed, num_cancelled;
    /* Numbers of the values given to fedge_client_put, from 1: the last confirmed one and the last
     * one. */
    uint32_t confirmed, tried;
    /* Called with the model before and after each training (plan->schema.num_elements); NULL: not
     * called. */
    void (*trained)(uint32_t client, uint64_t task_id, const float *before, const float *after);
} stub_trainer;

/* Draws how the trainer behaves. In half of the worlds nothing fails and nothing is late. */
void stub_trainer_init(stub_trainer *trainer, uint64_t seed, uint32_t client);
/* Ends failures and delays from now on, so that the run ends. */
void stub_trainer_calm(stub_trainer *trainer);

/* For fedge_client_new. The trainer outlives all clients that are made with it. */
fedge_client_callbacks stub_trainer_callbacks(stub_trainer *trainer);

#endif
