/* Strategies: how a round's updates become the next model.
 *
 * A table: one file per strategy under strategies/, found by name. A linear strategy needs
 * only the weighted sum S = Σ w·v and the total weight W = Σ w (edge/core/fixed.h), so memory does
 * not depend on the number of clients, and the step is a pure function of them: the same sums give
 * the same bits. One that collects has the updates too, some coordinates at a time, in memory that
 * is limited (robust/robust.h). What a strategy asks of clients is in its client hooks
 * (edge/plan/client_hooks.h).
 *
 * A new strategy is a file under strategies/ and a line in FEDGE_STRATEGY_MAP; with a part of the
 * clients' also a file under edge/plan/hooks and a line in FEDGE_CLIENT_HOOKS_MAP; its tests, its
 * rows in docs/strategies.md and docs/job.schema.json, which a test compares with its arguments.
 * One that is not part of fedge comes from a shared object (strategy_plugin.h).
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGY_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/updates.h"
#include "edge/core/bytes.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/plan/plan.h"

/* The first is a job's default. */
/* clang-format off */
#define FEDGE_STRATEGY_MAP(X) \
    X(fedavg) \
    X(fedprox) \
    X(fedavgm) \
    X(fedadagrad) \
    X(fedadam) \
    X(fedyogi) \
    X(fednova) \
    X(scaffold) \
    X(feddyn) \
    X(fedmedian) \
    X(fedtrimmedavg) \
    X(krum) \
    X(multikrum) \
    X(bulyan) \
    X(rfa) \
    X(normclipping) \
    X(fltrust) \
    X(qfedavg) \
    X(fedper) \
    X(fedrep) \
    X(fedbn) \
    X(ditto) \
    X(ifca) \
    X(fedbuff) \
    X(fedasync)
/* clang-format on */

#define FEDGE_STRATEGY_MAX_STATE ((size_t)1 << 35) /* bytes that save() may append */

typedef struct fedge_strategy_config {
    const fedge_schema *schema; /* of what is trained */
    const fedge_job *job;       /* with derived settings, of the strategy's struct */
} fedge_strategy_config;

/* What a client says of its update, besides values. */
typedef struct fedge_update_facts {
    uint32_t round; /* that it is of, from 1 */
    uint32_t client;
    uint64_t num_examples;
    double loss;  /* the mean while it trained; 0 when the client does not say */
    double ratio; /* how much more it weighs than it would; 0: no more (fedge_draw_ratio) */
    /* Where the client hooks measure; 0 when the client does not say. */
    double start_loss, squared_norm;
    uint32_t staleness; /* rounds that have closed since its client began */
    uint32_t cohort;    /* tasks of its round, of which none counts twice: weights of up to 2^32 /
                           cohort each cannot overflow. 0: the round began in a release whose
                           weights did not look at it (by_cohort) */
    uint32_t cluster;   /* where they choose: the model that was trained, from 0 */
} fedge_update_facts;

/* One section of a round's updates, summed: S in units of 2^−F per tensor. */
typedef struct fedge_strategy_section {
    const fedge_schema *schema; /* its tensors' offsets are those in the accumulator; NULL: there is
                                   no such section */
    const int8_t *bounds_log2;  /* b of each tensor, F = 30 − b; schema->num_tensors */
} fedge_strategy_section;

/* One round's updates, summed. Points into the caller's memory. */
typedef struct fedge_strategy_sum {
    const fedge_job *job;
    uint32_t round;        /* from 1 */
    uint32_t num_updates;  /* ≥ 1 */
    uint64_t total_weight; /* W, 1 … FEDGE_FIXED_MAX_TOTAL_WEIGHT */
    fedge_accumulator *accumulator;
    bool unchanged; /* nothing but the last step has written the model and the strategy's state */
    fedge_strategy_section delta;
    fedge_strategy_section hooks;    /* that of the strategy's client hooks */
    const fedge_update_facts *facts; /* (num_updates), in the order of the cohort's slots */
    const fedge_updates *updates;    /* one by one, for strategies that collect them; else NULL */
    uint64_t memory;                 /* bytes that a step may take to go through them */
    uint32_t num_threads;            /* for that, ≥ 1 */
} fedge_strategy_sum;

/* values[i] += (float)(rate · (S[i] / W · 2^−F)) for all of a section: values has
 * schema->num_elements. Runs where the sums are, which keeps a copy of the values: a strategy that
 * moves a section so writes it nowhere else in a step. After a failure the values are undefined. */
FEDGE_MUST_USE fedge_status fedge_strategy_move(const fedge_strategy_sum *sum,
                                                const fedge_strategy_section *section, double rate,
                                                float *values, fedge_error *err);

/* As fedge_strategy_move by an optimizer's step: kept[k] (optimizer->num_kept of them,
 * schema->num_elements each) are the strategy's vectors, which it writes nowhere else. On the host
 * where the sums' place has no room for them. */
FEDGE_MUST_USE fedge_status fedge_strategy_optimize(
    const fedge_strategy_sum *sum, const fedge_strategy_section *section, double rate,
    const fedge_optimizer_step *optimizer, float *const kept[2], float *values, fedge_error *err);

/* Calls [visit] with S[i] / W · 2^−F for all of a section, in order and piece by piece: [mean] has
 * those of [count] values from [first] on, counted from the section's first. For steps that are
 * taken on the host. */
FEDGE_MUST_USE fedge_status
fedge_strategy_each_mean(const fedge_strategy_sum *sum, const fedge_strategy_section *section,
                         void (*visit)(void *user, size_t first, size_t count, const double *mean),
                         void *user, fedge_error *err);

typedef struct fedge_strategy_ops {
    fedge_strategy_reader reader; /* its name, and its arguments in a job */

    /* The weight of an update in the sums, 1 to the job's max-weight, or to 2^32 / facts->cohort
     * when by_cohort. NULL: its examples. */
    uint32_t (*weight)(const void *state, const fedge_job *job, const fedge_update_facts *facts);
    /* The federation has so many clients, as a simulation knows: sets what the job left open.
     * FEDGE_INVALID_ARGUMENT when the job says another number. NULL: the strategy does not care. */
    fedge_status (*count_clients)(void *settings, uint32_t num_clients, fedge_error *err);
    /* Makes the state. What [config] points to outlives it. */
    fedge_status (*init)(const fedge_strategy_config *config, void **state, fedge_error *err);
    /* Moves [model] (schema->num_elements floats) in place. FEDGE_INVALID_ARGUMENT leaves it as it
     * is; after any other failure it is undefined. */
    fedge_status (*step)(void *state, const fedge_strategy_sum *sum, float *model,
                         fedge_error *err);
    /* Appends what the next step depends on (momenta, …) for the checkpoint; nothing when there is
     * nothing. The same state gives the same bytes. */
    fedge_status (*save)(const void *state, fedge_buffer *out, fedge_error *err);
    /* Restores what save wrote, into a fresh state. FEDGE_CORRUPT when it does not fit. */
    fedge_status (*load)(void *state, const uint8_t *bytes, size_t size, fedge_error *err);
    void (*free)(void *state); /* NULL is fine */
    /* What the state takes, in bytes for each value that is trained; about as much as save. */
    size_t state_per_value;
    /* How often, where arguments say so. NULL: once. */
    uint32_t (*num_vectors)(const void *settings);
    unsigned num_kept; /* vectors of it that fedge_strategy_optimize moves: optimizer->num_kept */
    /* State that is sent with each model: (fedge_plan_num_broadcast, schema->num_elements). Lives
     * as long as the state; step and load change it. Set exactly when the client hooks have
     * [broadcasts]. */
    const float *(*broadcast)(const void *state);
    /* Forgets what depends on what clients keep: they begin anew, as at first. Set exactly when the
     * client hooks have [keeps], and not [alone]. */
    void (*forget)(void *state);
    /* The model of [version], after so many rounds, which is not the newest and at most
     * max_staleness rounds older; lives until the next step. Set exactly by those that set
     * rounds.buffer_size in derive. */
    const float *(*base)(const void *state, uint32_t version);
    bool collects;      /* its step goes through the updates of a round one by one */
    bool uses_examples; /* its own weights, or its step, count clients' examples */
    bool by_cohort;     /* its weights look at facts->cohort */
} fedge_strategy_ops;

#define FEDGE_STRATEGY_DECLARE(name) extern const fedge_strategy_ops fedge_strategy_##name;
FEDGE_STRATEGY_MAP(FEDGE_STRATEGY_DECLARE)
#undef FEDGE_STRATEGY_DECLARE

/* All of them, in the map's order; ends with NULL. */
extern const fedge_strategy_reader *const fedge_strategy_readers[];

/* fedge_job_parse_with these strategies: how the aggregator and the simulator read a job. */
FEDGE_MUST_USE fedge_status fedge_strategy_job_parse(const char *text, size_t size,
                                                     const char *name, fedge_job **job,
                                                     fedge_error *err);
/* The same with a list of them that is another (strategy_plugin.h) and outlives the job; each is
 * the reader of a fedge_strategy_ops. */
FEDGE_MUST_USE fedge_status
fedge_strategy_job_parse_with(const fedge_strategy_reader *const *readers, const char *text,
                              size_t size, const char *name, fedge_job **job, fedge_error *err);

/* The strategy of a job, among those that it was read with. FEDGE_NOT_FOUND: it was read without.
 */
FEDGE_MUST_USE fedge_status fedge_strategy_of(const fedge_job *job, const fedge_strategy_ops **ops,
                                              fedge_error *err);
/* One of the table's by its name. FEDGE_NOT_FOUND for any other. */
FEDGE_MUST_USE fedge_status fedge_strategy_find(const char *name, const fedge_strategy_ops **ops,
                                                fedge_error *err);

/* state_per_value with the job's arguments. */
size_t fedge_strategy_state_per_value(const fedge_strategy_ops *ops, const fedge_job *job);

/* For strategies. */

/* Of those whose means are plain: every update has weight 1. */
uint32_t fedge_strategy_weigh_alike(const void *state, const fedge_job *job,
                                    const fedge_update_facts *facts);
/* The server's learning rate in a round of a job whose settings begin with [common]. */
double fedge_strategy_rate(const fedge_strategy_common *common, uint32_t round);
/* FEDGE_INVALID_ARGUMENT, with the strategy's name, when there is nothing to average. */
FEDGE_MUST_USE fedge_status fedge_strategy_check_sum(const fedge_strategy_sum *sum,
                                                     const char *name, fedge_error *err);
/* The same, and that a strategy which collects has all the updates one by one. */
FEDGE_MUST_USE fedge_status fedge_strategy_check_updates(const fedge_strategy_sum *sum,
                                                         const char *name, fedge_error *err);
/* Vectors of floats as bytes, for save and load. load: FEDGE_CORRUPT unless there are [count]. */
FEDGE_MUST_USE fedge_status fedge_strategy_save_floats(const float *values, size_t count,
                                                       fedge_buffer *out, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_strategy_load_floats(float *values, size_t count,
                                                       const uint8_t *bytes, size_t size,
                                                       const char *name, fedge_error *err);
/* For strategies whose next step depends on nothing but the model. */
FEDGE_MUST_USE fedge_status fedge_strategy_save_nothing(const void *state, fedge_buffer *out,
                                                        fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_strategy_load_nothing(void *state, const uint8_t *bytes,
                                                        size_t size, fedge_error *err);

/* As a reader's derive: fails where the job has a test set, which the server's model cannot be
 * evaluated on, for some of its layers are the clients' own. */
FEDGE_MUST_USE fedge_status fedge_refuse_test_set(const struct fedge_json *json,
                                                  struct fedge_job *job, void *settings,
                                                  fedge_error *err);
/* For strategies whose state is their settings alone. */
FEDGE_MUST_USE fedge_status fedge_strategy_init_settings(const fedge_strategy_config *config,
                                                         void **state, fedge_error *err);
void fedge_strategy_free_nothing(void *state);

/* ---- states of vectors ----------------------------------------------------------------------- */

/* The state of strategies that keep vectors of what is trained, as floats: momenta and the like. */

typedef struct fedge_strategy_vectors {
    const char *name;     /* of the strategy */
    const void *settings; /* of its struct */
    size_t num_values;    /* of each vector */
    uint32_t num_vectors;
    float values[]; /* one vector after another */
} fedge_strategy_vectors;

/* A state of [count] vectors, all 0. Freed by free. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_new(const fedge_strategy_config *config,
                                                       uint32_t count,
                                                       fedge_strategy_vectors **state,
                                                       fedge_error *err);
/* As a strategy's init: a state of one vector. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_init_one(const fedge_strategy_config *config,
                                                            void **state, fedge_error *err);
/* As a strategy's save and load; state is a fedge_strategy_vectors. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_save(const void *state, fedge_buffer *out,
                                                        fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_load(void *state, const uint8_t *bytes,
                                                        size_t size, fedge_error *err);
/* As a strategy's forget: all is 0 again. */
void fedge_strategy_vectors_forget(void *state);
/* The broadcast function of strategies that send all of their vectors. */
const float *fedge_strategy_broadcast_vectors(const void *state);

#endif
