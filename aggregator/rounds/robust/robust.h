/* Robust rules: strategies that a minority of malicious clients cannot steer.
 *
 * A rule selects or weights updates by their Gram matrix (fedge_gram), then reduces the values of
 * each coordinate to one:
 *
 *     x ← x + η_s r,   r = Σ a_i Δ_i / divisor, or a median or trimmed mean of the selected Δ_i
 *
 * Updates count equally, whatever examples they claim. All arithmetic is on integers, or on doubles
 * in a fixed order, so the model does not depend on the machine.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROBUST_ROBUST_H
#define FEDGE_AGGREGATOR_ROUNDS_ROBUST_ROBUST_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/strategy.h"
#include "aggregator/rounds/tiles.h"
#include "edge/json/json.h"

/* ---- Gram matrices --------------------------------------------------------------------------- */

/* Gram matrices of a round's updates. Integer sums make them equal on every machine, with any
 * order, threads or instructions.
 *
 *     dots_ij = Σ_k u_ik u_jk,    squares_ij = ‖u_i − u_j‖² = dots_ii + dots_jj − 2 dots_ij
 *
 * u is an update rounded to 2^−24 of its bound. Both sums are exact, then rounded to doubles, in
 * units of 2^(2b − 48), where b is the delta's largest.
 */

typedef struct fedge_gram {
    uint32_t num;
    double unit;     /* length 1 in the matrix's units: 2^(b − 24) */
    double *dots;    /* (num, num); NULL for the extent SQUARES */
    double *squares; /* (num, num); NULL for any other extent */
} fedge_gram;

/* The part of the matrix that a rule reads. */
typedef enum fedge_gram_extent {
    FEDGE_GRAM_NOTHING,
    FEDGE_GRAM_NORMS,  /* the diagonal of dots */
    FEDGE_GRAM_LAST,   /* the diagonal, and the products of the last update with all others */
    FEDGE_GRAM_DOTS,   /* all dots */
    FEDGE_GRAM_SQUARES /* all squares */
} fedge_gram_extent;

/* Computes the matrix in one pass over the tiles; none for NOTHING. Dots beyond [extent] are 0. */
FEDGE_MUST_USE fedge_status fedge_gram_init(fedge_gram *gram, fedge_tiles *tiles,
                                            fedge_gram_extent extent, fedge_error *err);
void fedge_gram_fini(fedge_gram *gram); /* a gram of all 0 is fine */

/* The settings of all rules; each reads those of its arguments. */
typedef struct fedge_robust_settings {
    fedge_strategy_common common;
    uint32_t num_malicious; /* f */
    bool mixing;
    uint32_t num_selected; /* MultiKrum; 0: all but f */
    double beta;           /* FedTrimmedAvg */
    double norm;           /* NormClipping; 0: the median of the norms */
    double smoothing;      /* RFA */
    uint32_t iterations;   /* RFA */
} fedge_robust_settings;

#define FEDGE_ROBUST_MALICIOUS(flags_)                                                             \
    {                                                                                              \
        "num-malicious-nodes", "num_malicious_nodes", FEDGE_JSON_U32,                              \
            FEDGE_JSON_AT(fedge_robust_settings, num_malicious), .flags = (flags_), .min = 0,      \
                                                                 .max = 30000                      \
    }
#define FEDGE_ROBUST_MIXING                                                                        \
    {                                                                                              \
        "mixing", NULL, FEDGE_JSON_BOOL, FEDGE_JSON_AT(fedge_robust_settings, mixing)              \
    }

/* A rule's selection of one round's updates. */
typedef struct fedge_robust_choice {
    uint32_t num;      /* number of updates */
    uint32_t *weights; /* (num): a_i; 0: left out; all 1 at first */
    double divisor;    /* MEAN: the divisor; 0: Σ a_i */
    uint32_t cut;      /* trimmed mean: values left out at each end */
} fedge_robust_choice;

typedef struct fedge_robust_rule {
    const char *name;
    fedge_row_reduction reduction; /* reduces a coordinate's values: MEAN divides Σ a_i v_i by the
                                      divisor, the others by the number of values summed */
    /* The minimum number of updates. */
    uint32_t (*min_updates)(const fedge_robust_settings *settings);
    /* Sets the fields of [choice] that the rule needs. FEDGE_NO_MEMORY. NULL: all updates count. */
    fedge_status (*select)(const fedge_robust_settings *settings, const fedge_gram *gram,
                           fedge_robust_choice *choice, fedge_error *err);
    fedge_gram_extent extent; /* part of the matrix that select reads */
    uint32_t num_root;        /* trailing updates made by the server, which are not mixed */
} fedge_robust_rule;

/* The fewest updates that a round of the job may close with. */
uint32_t fedge_robust_min_updates(const fedge_job *job);
/* Serves a strategy's derive: fails when rounds of the job may close with too few updates. */
FEDGE_MUST_USE fedge_status fedge_robust_derive(const fedge_robust_rule *rule,
                                                const fedge_json *json, const fedge_job *job,
                                                const fedge_robust_settings *settings,
                                                fedge_error *err);
/* Serves a reader's check: a model with BatchNorm is refused. */
FEDGE_MUST_USE fedge_status fedge_robust_check(const fedge_json *json, const fedge_job *job,
                                               fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_robust_step(const fedge_robust_rule *rule, void *state,
                                              const fedge_strategy_sum *sum, float *model,
                                              fedge_error *err);
/* Sets the weights a_i to the coefficients c_i ≥ 0, scaled to as many bits as the sums can hold,
 * and choice->divisor to Σ a_i. Returns the scale: the a_i of c_i = 1. */
double fedge_robust_weigh(fedge_robust_choice *choice, const double *coefficients);
/* Krum's score of update [i] among those with alive[j]: the sum of its squared distances to the
 * [count] nearest others. [scratch]: (num). */
double fedge_robust_score(const fedge_gram *gram, const bool *alive, uint32_t i, uint32_t count,
                          double *scratch);

/* Defines fedge_strategy_NAME from the file's RULE and ARGUMENTS. */
#define FEDGE_ROBUST_STRATEGY(strategy, text)                                                      \
    static fedge_status derive(const fedge_json *json, fedge_job *job, void *settings,             \
                               fedge_error *err)                                                   \
    {                                                                                              \
        return fedge_robust_derive(&RULE, json, job, settings, err);                               \
    }                                                                                              \
    FEDGE_ROBUST_STRATEGY_WITH(strategy, text, derive)

/* Defines a strategy with another derive. */
#define FEDGE_ROBUST_STRATEGY_WITH(strategy, text, derive_)                                        \
    static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model,             \
                             fedge_error *err)                                                     \
    {                                                                                              \
        return fedge_robust_step(&RULE, state, sum, model, err);                                   \
    }                                                                                              \
    const fedge_strategy_ops fedge_strategy_##strategy = {                                         \
        .reader = {.name = (text),                                                                 \
                   .arguments = ARGUMENTS,                                                         \
                   .settings_size = sizeof(fedge_robust_settings),                                 \
                   .derive = (derive_),                                                            \
                   .check = fedge_robust_check},                                                   \
        .weight = fedge_strategy_weigh_equally,                                                    \
        .init = fedge_strategy_init_settings,                                                      \
        .step = step,                                                                              \
        .save = fedge_strategy_save_nothing,                                                       \
        .load = fedge_strategy_load_nothing,                                                       \
        .free = fedge_strategy_free_nothing,                                                       \
        .collects = true}

#endif
