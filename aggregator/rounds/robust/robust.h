/* Robust rules: strategies that a minority of clients which send anything they like cannot steer.
 *
 * A rule chooses among the updates, or weighs them, by their Gram matrix (fedge_gram), and then
 * makes one value of those of each coordinate:
 *
 *     x ← x + η_s r,   r = Σ a_i Δ_i / divisor, or a median or trimmed mean of the chosen Δ_i
 *
 * coordinate by coordinate.
 *
 * Every update counts alike, whatever examples it claims. All comes from integers and from doubles
 * in one order, so that the model does not depend on the machine.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROBUST_ROBUST_H
#define FEDGE_AGGREGATOR_ROUNDS_ROBUST_ROBUST_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/strategy.h"
#include "aggregator/rounds/tiles.h"
#include "edge/json/json.h"

/* ---- Gram matrices --------------------------------------------------------------------------- */

/* Gram matrices of a round's updates, from integers: what a rule chooses by is the same on every
 * machine, whatever the order, the threads or the instructions.
 *
 *     dots_ij = Σ_k u_ik u_jk,    squares_ij = ‖u_i − u_j‖² = dots_ii + dots_jj − 2 dots_ij
 *
 * u is an update rounded to 2^−24 of its bound; both sums are exact, then rounded to doubles, and
 * in units of 2^(2b − 48), b being the largest of the delta's.
 */

typedef struct fedge_gram {
    uint32_t num;
    double unit;     /* what a length of 1 is worth: 2^(b − 24) */
    double *dots;    /* (num, num); NULL where squares are asked for */
    double *squares; /* (num, num); NULL where dots are */
} fedge_gram;

typedef enum fedge_gram_extent {
    FEDGE_GRAM_NOTHING,
    FEDGE_GRAM_NORMS,  /* the diagonal of dots */
    FEDGE_GRAM_LAST,   /* the same, and those of the last update with all */
    FEDGE_GRAM_DOTS,   /* all of them */
    FEDGE_GRAM_SQUARES /* all of these: one of the two matrices is all that a rule needs */
} fedge_gram_extent;

/* One pass over the tiles, mixed if they are; none for NOTHING. What of dots is beyond [extent] is
 * 0. */
FEDGE_MUST_USE fedge_status fedge_gram_init(fedge_gram *gram, fedge_tiles *tiles,
                                            fedge_gram_extent extent, fedge_error *err);
void fedge_gram_fini(fedge_gram *gram); /* one that is all 0 is fine */

/* Of all rules; each reads those that it has. */
typedef struct fedge_robust_settings {
    fedge_strategy_common common;
    uint32_t num_malicious; /* f */
    bool mixing;
    uint32_t num_kept;   /* MultiKrum; 0: all but f */
    double beta;         /* FedTrimmedAvg */
    double norm;         /* NormClipping; 0: the median of the norms */
    double smoothing;    /* RFA */
    uint32_t iterations; /* RFA */
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

/* Of one round. */
typedef struct fedge_robust_choice {
    uint32_t num;      /* updates */
    uint32_t *weights; /* (num): a_i; 0: left out; all 1 at first */
    double divisor;    /* of MEAN; Σ a_i when it is 0 */
    uint32_t cut;
} fedge_robust_choice;

typedef struct fedge_robust_rule {
    const char *name;
    fedge_row_reduction reduction; /* of a coordinate's values: MEAN divides Σ a_i v_i by the
                                      divisor, the others by the number of values summed */
    /* The least number of updates. */
    uint32_t (*least)(const fedge_robust_settings *settings);
    /* Sets what it wants of [choice]. FEDGE_NO_MEMORY. NULL: all count. */
    fedge_status (*choose)(const fedge_robust_settings *settings, const fedge_gram *gram,
                           fedge_robust_choice *choice, fedge_error *err);
    fedge_gram_extent looks_at; /* what choose does; the rest of [gram] is not set */
    uint32_t num_own;           /* the last updates, which are the server's and are not mixed */
} fedge_robust_rule;

/* The fewest updates that a round of the job may close with. */
uint32_t fedge_robust_min_updates(const fedge_job *job);
/* As a strategy's derive: may rounds of the job close with too few updates for the rule? */
FEDGE_MUST_USE fedge_status fedge_robust_derive(const fedge_robust_rule *rule,
                                                const fedge_json *json, const fedge_job *job,
                                                const fedge_robust_settings *settings,
                                                fedge_error *err);
/* As a reader's check: a model with BatchNorm is refused. */
FEDGE_MUST_USE fedge_status fedge_robust_check(const fedge_json *json, const fedge_job *job,
                                               fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_robust_step(const fedge_robust_rule *rule, void *state,
                                              const fedge_strategy_sum *sum, float *model,
                                              fedge_error *err);
/* a_i ← c_i to as many bits as the sums have room for: c_i ≥ 0, the largest has them all.
 * choice->divisor becomes Σ a_i; the return value is a_i of a c_i of 1. */
double fedge_robust_weigh(fedge_robust_choice *choice, const double *coefficients);
/* Krum's score of update [i] among those with alive[j]: the sum of the squares of its distances to
 * the [count] nearest others. [scratch]: (num). */
double fedge_robust_score(const fedge_gram *gram, const bool *alive, uint32_t i, uint32_t count,
                          double *scratch);

/* The table of a rule, fedge_strategy_NAME, of the file's RULE and ARGUMENTS. */
#define FEDGE_ROBUST_STRATEGY(strategy, text)                                                      \
    static fedge_status derive(const fedge_json *json, fedge_job *job, void *settings,             \
                               fedge_error *err)                                                   \
    {                                                                                              \
        return fedge_robust_derive(&RULE, json, job, settings, err);                               \
    }                                                                                              \
    FEDGE_ROBUST_STRATEGY_WITH(strategy, text, derive)

/* The same of a rule whose derive checks more. */
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
        .weight = fedge_strategy_weigh_alike,                                                      \
        .init = fedge_strategy_init_settings,                                                      \
        .step = step,                                                                              \
        .save = fedge_strategy_save_nothing,                                                       \
        .load = fedge_strategy_load_nothing,                                                       \
        .free = fedge_strategy_free_nothing,                                                       \
        .collects = true}

#endif
