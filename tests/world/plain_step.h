/* The steps of the server's strategies as docs/strategies.md describes them, one value after the
 * other. */
#ifndef FEDGE_TESTS_WORLD_PLAIN_STEP_H
#define FEDGE_TESTS_WORLD_PLAIN_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/plan/plan.h"

enum { PLAIN_MAX_UPDATES = 64 };

/* What a client says of its update; 0: nothing. Without padding. */
typedef struct plain_said {
    uint64_t num_examples;
    double start_loss, squared_norm;
    double cluster;    /* the model that it trained */
    double state_lost; /* above 0: what the client kept of the strategy is lost */
} plain_said;

/* An update that counts. */
typedef struct plain_update {
    const int32_t *v; /* (plan->sent.schema.num_elements) */
    const int8_t *bounds_log2;
    plain_said said;
    const float *base; /* the model that it began with */
    uint32_t staleness;
} plain_update;

/* A model and the strategy's state. */
typedef struct plain_model {
    float *values;     /* (plan->schema.num_elements) */
    float *moments[2]; /* (values of the section "delta") */
    float *residual;   /* likewise: what "down" has not told clients yet */
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

/* ---- for plain_robust.c ---------------------------------------------------------------------- */

bool plain_is(const fedge_job *job, const char *strategy);
/* Whether the strategy is one of these, each between two spaces. */
bool plain_is_one_of(const fedge_job *job, const char *strategies);
/* A number of the strategy's settings by its key in the job; 0: it has none. */
double plain_argument(const fedge_job *job, const char *key);

#define PLAIN_ROBUST " FedMedian FedTrimmedAvg Krum MultiKrum Bulyan NormClipping RFA "
/* The sums of a robust rule, and by what they are divided. False: too few updates. */
bool plain_robust_sums(const plain_round *round, int64_t *sums, size_t num_values, double *divisor);

#endif
