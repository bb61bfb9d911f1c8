/* A plain version of the strategies' steps, which follows docs/strategies.md one value after the
 * other. */
#ifndef FEDGE_TESTS_WORLD_PLAIN_STEP_H
#define FEDGE_TESTS_WORLD_PLAIN_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/plan/plan.h"

enum { PLAIN_MAX_UPDATES = 64 };

/* What a client reports with its update; 0: not reported. The struct has no padding. */
typedef struct plain_said {
    uint64_t num_examples;
    double start_loss, loss, squared_norm;
    double cluster;    /* number of the model that it trained */
    double state_lost; /* > 0: the client has lost its state of the strategy */
} plain_said;

/* An update that counts. */
typedef struct plain_update {
    const int32_t *v; /* (plan->sent.schema.num_elements) */
    const int8_t *bounds_log2;
    plain_said said;
    const float *base; /* the model from which its training began */
    uint32_t staleness;
    double ratio;  /* the inverse of the probability that its client was drawn; 0: not asked for */
    uint32_t slot; /* in the cohort, by the round's journal */
} plain_update;

/* A model and the strategy's state. */
typedef struct plain_model {
    float *values;     /* (plan->schema.num_elements) */
    float *moments[2]; /* (values of the section "delta") */
    float *residual; /* (values of the section "delta"): the part of the model's change that "down"
                        has not sent yet */
} plain_model;

typedef struct plain_round {
    const fedge_job *job;
    uint32_t round, num_clients;
    uint32_t cohort;  /* clients that the round has asked; 0: not known */
    uint32_t variant; /* < plain_step_variants: selects one way to resolve what the updates leave
                         open, such as ties */
    uint32_t num_updates;
    const float *root; /* FLTrust: the change by the server's training (values of the section
                          "delta") */
    bool in_slots;     /* the updates are ordered by slot, as for the server; false: by client */
    plain_update updates[PLAIN_MAX_UPDATES];
} plain_round;

bool plain_step_models(const fedge_job *job);
/* Initialises the strategy's state before the first round, but not the values. */
void plain_step_begin(const fedge_job *job, plain_model *model);
uint32_t plain_step_variants(const plain_round *round);
/* Makes the step from [before] to [after], which has the memory of a model. False: these updates
 * permit no step. */
bool plain_step(const plain_round *round, const plain_model *before, plain_model *after);

/* Whether the weights follow from the cohort's size, of which each is a variant if it is not
 * known. */
bool plain_needs_cohort(const fedge_job *job);
/* Whether the step depends on the order of the updates: of equally good ones the first counts. */
bool plain_needs_slots(const fedge_job *job);
/* Whether the product computes this strategy's steps in another order, and rounds otherwise. */
bool plain_rounds_otherwise(const fedge_job *job);
/* Whether the step from [before] to [ours] is that to [theirs]: bit for bit, except for roundings
 * of strategies that round otherwise. [theirs] may lie at any address. */
bool plain_step_is(const fedge_job *job, const float *before, const float *ours,
                   const void *theirs);

/* ---- inverse probabilities: plain_inverse.c -------------------------------------------------- */

/* What a sampler knows of a client. All 0: it has not been seen. */
typedef struct plain_history {
    uint64_t examples; /* of its last update, as are the loss and the round */
    double loss;
    uint32_t last_round, reported, missed;
} plain_history;

/* How a cohort was drawn, as its journal has it (aggregator/rounds/sampler.h). */
typedef struct plain_draw {
    uint64_t total;
    uint32_t count, unknown, floor, asked, available;
} plain_draw;

/* The mean probability of a draw over that of a client. */
double plain_ratio(const fedge_job *job, const plain_draw *draw, const plain_history *of,
                   uint32_t round);
/* [weight] over the probability; [is_of_strategy]: it is not the number of examples. */
uint32_t plain_inverse_weight(const fedge_job *job, const plain_update *update, uint32_t weight,
                              bool is_of_strategy);

/* ---- for plain_nova.c ------------------------------------------------------------------------ */

/* n, at most max-weight. */
uint32_t plain_examples_weight(const fedge_job *job, const plain_update *update);
/* a of [steps] steps of a client: how far they go, in units of the learning rate, where the
 * gradient stays the same. */
double plain_nova_path(const fedge_job *job, uint32_t round, uint64_t steps);
uint32_t plain_nova_weight(const plain_round *round, const plain_update *update);
/* The factor of the weighted mean, without the server's learning rate. */
double plain_nova_rate(const plain_round *round, double total_weight);

/* ---- for plain_robust.c ---------------------------------------------------------------------- */

bool plain_is(const fedge_job *job, const char *strategy);
/* Whether the strategy is in the list. Each name has a space on both sides. */
bool plain_is_one_of(const fedge_job *job, const char *strategies);
/* A setting of the strategy by its key in the job; 0: it has none. */
double plain_argument(const fedge_job *job, const char *key);

#define PLAIN_ROBUST " FedMedian FedTrimmedAvg Krum MultiKrum Bulyan NormClipping RFA FLTrust "
/* Whether the strategy trusts updates by one that the server makes itself. */
bool plain_needs_root(const fedge_job *job);
/* Computes the sums of a robust rule and their divisor. False: there are too few updates, or the
 * server has not trained. */
bool plain_robust_sums(const plain_round *round, int64_t *sums, size_t num_values, double *divisor);

#endif
