/* The steps of the server's strategies as docs/strategies.md describes them, one value after the
 * other. */
#ifndef FEDGE_TESTS_WORLD_PLAIN_STEP_H
#define FEDGE_TESTS_WORLD_PLAIN_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/plan/plan.h"

enum { PLAIN_MAX_UPDATES = 64 };

/* An update that counts. */
typedef struct plain_update {
    const int32_t *v; /* (plan->sent.schema.num_elements) */
    const int8_t *bounds_log2;
    uint64_t num_examples;
    double start_loss, squared_norm; /* as the client reported them; 0: not */
    const float *base;               /* the model that it began with */
    uint32_t staleness;
} plain_update;

/* A model and the strategy's state. */
typedef struct plain_model {
    float *values;     /* (plan->schema.num_elements) */
    float *moments[2]; /* (values of the section "delta") */
} plain_model;

typedef struct plain_round {
    const fedge_job *job;
    uint32_t round, num_clients;
    uint32_t variant; /* below plain_step_variants: what the updates leave open, such as ties */
    uint32_t num_updates;
    plain_update updates[PLAIN_MAX_UPDATES]; /* in the order of their clients */
} plain_round;

bool plain_step_models(const fedge_job *job);
/* The state before the first round; values are not set. */
void plain_step_begin(const fedge_job *job, plain_model *model);
uint32_t plain_step_variants(const plain_round *round);
/* False: no step is possible with these updates. [after] has the memory of a model. */
bool plain_step(const plain_round *round, const plain_model *before, plain_model *after);

#endif
