/* Strategies: how a round's updates become the next model.
 *
 * Each strategy is one file under strategies/, found by name in a table. A linear strategy needs
 * only the weighted sum S = Σ w·v and the total weight W = Σ w (edge/core/fixed.h). Memory does not
 * depend on the number of clients, and the step is a pure function: the same sums give the same
 * bits. A strategy that collects also reads the single updates, a range of coordinates at a time,
 * in limited memory (robust/robust.h). Client hooks (edge/plan/client_hooks.h) describe what a
 * strategy changes in clients' training.
 *
 * To add a strategy, write a file under strategies/ and a line in FEDGE_STRATEGY_MAP. One that
 * changes clients' training also needs a file under edge/plan/hooks and a line in
 * FEDGE_CLIENT_HOOKS_MAP. Add its tests and its rows in docs/strategies.md and
 * docs/job.schema.json, which a test compares with its arguments. Strategies outside fedge come
 * from shared objects (strategy_plugin.h).
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

/* The first is the default. */
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
    const fedge_schema *schema; /* layout of the trained parameters */
    const fedge_job *job;       /* its settings are derived and in the strategy's struct */
} fedge_strategy_config;

/* Metadata of an update. */
typedef struct fedge_update_facts {
    uint32_t round; /* round of its task, from 1 */
    uint32_t client;
    uint64_t num_examples;
    double loss;  /* mean training loss; 0 when not reported */
    double ratio; /* factor of its weight from the sampler (fedge_draw_ratio); 0: none */
    /* Set when the client hooks measure them; 0 when not reported. */
    double start_loss, squared_norm;
    uint64_t num_steps; /* optimizer's steps; 0: as many as the job says */
    uint32_t staleness; /* rounds closed since its client began */
    uint32_t cohort;    /* tasks of its round. Each counts once, so weights of up to 2^32 / cohort
                           cannot overflow. 0: the round began in a release without by_cohort */
    uint32_t cluster;   /* index of the trained model in a clustered strategy, from 0 */
} fedge_update_facts;

/* The sum of one section of a round's updates: S in units of 2^−F per tensor. */
typedef struct fedge_strategy_section {
    const fedge_schema *schema; /* its offsets are those in the accumulator; NULL: no section */
    const int8_t *bounds_log2;  /* (schema->num_tensors): b of each tensor, F = 30 − b */
} fedge_strategy_section;

/* The sums of one round's updates. Points into the caller's memory. */
typedef struct fedge_strategy_sum {
    const fedge_job *job;
    uint32_t round;        /* number of the round, from 1 */
    uint32_t num_updates;  /* ≥ 1 */
    uint64_t total_weight; /* W, 1 … FEDGE_FIXED_MAX_TOTAL_WEIGHT */
    fedge_accumulator *accumulator;
    bool unchanged; /* only the last step has written the model and the strategy's state */
    fedge_strategy_section delta;
    fedge_strategy_section hooks;    /* section of the strategy's client hooks */
    const fedge_update_facts *facts; /* (num_updates), in the order of the cohort's slots */
    const fedge_updates *updates;    /* single updates, if the strategy collects; else NULL */
    uint64_t memory;                 /* bytes that a step may use to read the updates */
    uint32_t num_threads;            /* threads that read the updates, ≥ 1 */
} fedge_strategy_sum;

/* values[i] += (float)(rate · (S[i] / W · 2^−F)) for a section; values: (schema->num_elements).
 * Runs on the accumulator's hardware, which caches the values, so nothing else in a step may write
 * to this section. After a failure the values are undefined. */
FEDGE_MUST_USE fedge_status fedge_strategy_move(const fedge_strategy_sum *sum,
                                                const fedge_strategy_section *section, double rate,
                                                float *values, fedge_error *err);

/* Moves values like fedge_strategy_move, but by an optimizer's step. moments:
 * (optimizer->num_moments) vectors of the strategy, schema->num_elements each, which nothing else
 * in a step may write. Runs on the host when the accumulator's hardware lacks memory for them. */
FEDGE_MUST_USE fedge_status fedge_strategy_optimize(const fedge_strategy_sum *sum,
                                                    const fedge_strategy_section *section,
                                                    double rate,
                                                    const fedge_optimizer_step *optimizer,
                                                    float *const moments[2], float *values,
                                                    fedge_error *err);

/* Calls [visit] with S[i] / W · 2^−F for a section, chunk by chunk in order: [mean] holds [count]
 * values from [first] on, counted from the start of the section. For steps on the host. */
FEDGE_MUST_USE fedge_status
fedge_strategy_each_mean(const fedge_strategy_sum *sum, const fedge_strategy_section *section,
                         void (*visit)(void *user, size_t first, size_t count, const double *mean),
                         void *user, fedge_error *err);

typedef struct fedge_strategy_ops {
    fedge_strategy_reader reader; /* name of the strategy, and its arguments in a job */

    /* The weight of an update in the sums, 1 to the job's max-weight, or to 2^32 / facts->cohort
     * with by_cohort. NULL: its examples. */
    uint32_t (*weight)(const void *state, const fedge_job *job, const fedge_update_facts *facts);
    /* Sets the number of clients, which a simulation knows, when the job leaves it out.
     * FEDGE_INVALID_ARGUMENT when the job gives another number. NULL: the strategy does not use it.
     */
    fedge_status (*count_clients)(void *settings, uint32_t num_clients, fedge_error *err);
    /* Makes the state. What [config] points to outlives it. */
    fedge_status (*init)(const fedge_strategy_config *config, void **state, fedge_error *err);
    /* Moves [model] (schema->num_elements floats) in place. FEDGE_INVALID_ARGUMENT leaves it
     * unchanged; after any other failure it is undefined. */
    fedge_status (*step)(void *state, const fedge_strategy_sum *sum, float *model,
                         fedge_error *err);
    /* Appends everything that the next step depends on (momenta, …) for the checkpoint. The same
     * state gives the same bytes. */
    fedge_status (*save)(const void *state, fedge_buffer *out, fedge_error *err);
    /* Restores into a new state what save wrote. FEDGE_CORRUPT when it does not fit. */
    fedge_status (*load)(void *state, const uint8_t *bytes, size_t size, fedge_error *err);
    void (*free)(void *state); /* NULL is fine */
    /* Bytes of state for each trained value and vector; about as much as save appends. */
    size_t state_per_value;
    /* The number of vectors in the state when it depends on the arguments. NULL: one. */
    uint32_t (*num_vectors)(const void *settings);
    unsigned num_moments; /* optimizer->num_moments in its calls of fedge_strategy_optimize */
    /* State that is sent with each model: (fedge_plan_num_broadcast, schema->num_elements). Lives
     * as long as the state; step and load change it. Set exactly when the client hooks have
     * [broadcasts]. */
    const float *(*broadcast)(const void *state);
    /* Forgets everything that depends on client state, since clients start again without it. Set
     * exactly when the client hooks have client state but not [local_state]. */
    void (*forget)(void *state);
    /* The model after [version] rounds, which is not the newest and at most max_staleness rounds
     * old; valid until the next step. Set exactly by strategies that set rounds.buffer_size in
     * derive. */
    const float *(*base)(const void *state, uint32_t version);
    bool collects;      /* its step reads the single updates of a round */
    bool uses_examples; /* its weight or step uses num_examples */
    bool by_cohort;     /* its weight uses facts->cohort */
} fedge_strategy_ops;

#define FEDGE_STRATEGY_DECLARE(name) extern const fedge_strategy_ops fedge_strategy_##name;
FEDGE_STRATEGY_MAP(FEDGE_STRATEGY_DECLARE)
#undef FEDGE_STRATEGY_DECLARE

/* The readers of all strategies in the map's order; ends with NULL. */
extern const fedge_strategy_reader *const fedge_strategy_readers[];

/* Calls fedge_job_parse_with with these readers, as the aggregator and the simulator read a job. */
FEDGE_MUST_USE fedge_status fedge_strategy_job_parse(const char *text, size_t size,
                                                     const char *name, fedge_job **job,
                                                     fedge_error *err);
/* Reads a job with another list of readers (strategy_plugin.h), which outlives the job. Each is the
 * reader of a fedge_strategy_ops. */
FEDGE_MUST_USE fedge_status
fedge_strategy_job_parse_with(const fedge_strategy_reader *const *readers, const char *text,
                              size_t size, const char *name, fedge_job **job, fedge_error *err);

/* The strategy of a job, from the readers that parsed it. FEDGE_NOT_FOUND: there were none. */
FEDGE_MUST_USE fedge_status fedge_strategy_of(const fedge_job *job, const fedge_strategy_ops **ops,
                                              fedge_error *err);
/* Finds a strategy of the table by name. FEDGE_NOT_FOUND. */
FEDGE_MUST_USE fedge_status fedge_strategy_find(const char *name, const fedge_strategy_ops **ops,
                                                fedge_error *err);

/* Bytes of state for each trained value, with the job's arguments. */
size_t fedge_strategy_state_per_value(const fedge_strategy_ops *ops, const fedge_job *job);

/* Helpers for strategies. */

/* A strategy's weight that gives every update weight 1. */
uint32_t fedge_strategy_weigh_equally(const void *state, const fedge_job *job,
                                      const fedge_update_facts *facts);
/* The server's learning rate in a round of a job whose settings begin with [common]. */
double fedge_strategy_rate(const fedge_strategy_common *common, uint32_t round);
/* FEDGE_INVALID_ARGUMENT, with the strategy's name, when there is nothing to average. */
FEDGE_MUST_USE fedge_status fedge_strategy_check_sum(const fedge_strategy_sum *sum,
                                                     const char *name, fedge_error *err);
/* Also checks that a strategy that collects has all single updates. */
FEDGE_MUST_USE fedge_status fedge_strategy_check_updates(const fedge_strategy_sum *sum,
                                                         const char *name, fedge_error *err);
/* Save and load vectors of floats as bytes. Load returns FEDGE_CORRUPT unless there are [count]. */
FEDGE_MUST_USE fedge_status fedge_strategy_save_floats(const float *values, size_t count,
                                                       fedge_buffer *out, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_strategy_load_floats(float *values, size_t count,
                                                       const uint8_t *bytes, size_t size,
                                                       const char *name, fedge_error *err);
/* These serve strategies whose next step depends only on the model. */
FEDGE_MUST_USE fedge_status fedge_strategy_save_nothing(const void *state, fedge_buffer *out,
                                                        fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_strategy_load_nothing(void *state, const uint8_t *bytes,
                                                        size_t size, fedge_error *err);

/* A reader's derive for strategies with personal layers. Fails when the job has a test set: the
 * server lacks those layers and cannot evaluate the model. */
FEDGE_MUST_USE fedge_status fedge_refuse_test_set(const struct fedge_json *json,
                                                  struct fedge_job *job, void *settings,
                                                  fedge_error *err);
/* These serve strategies whose state is just their settings. */
FEDGE_MUST_USE fedge_status fedge_strategy_init_settings(const fedge_strategy_config *config,
                                                         void **state, fedge_error *err);
void fedge_strategy_free_nothing(void *state);

/* ---- states of vectors ----------------------------------------------------------------------- */

/* The state of strategies that store vectors of floats, such as momenta. */

typedef struct fedge_strategy_vectors {
    const char *name;     /* name of the strategy */
    const void *settings; /* struct of the strategy's settings */
    size_t num_values;    /* values of each vector */
    uint32_t num_vectors;
    float values[]; /* one vector after another */
} fedge_strategy_vectors;

/* A state of [count] vectors, all 0. Freed by free. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_new(const fedge_strategy_config *config,
                                                       uint32_t count,
                                                       fedge_strategy_vectors **state,
                                                       fedge_error *err);
/* A strategy's init that makes a state of one vector. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_init_one(const fedge_strategy_config *config,
                                                            void **state, fedge_error *err);
/* A strategy's save and load; state is a fedge_strategy_vectors. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_save(const void *state, fedge_buffer *out,
                                                        fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_load(void *state, const uint8_t *bytes,
                                                        size_t size, fedge_error *err);
/* A strategy's forget that sets the state to 0. */
void fedge_strategy_vectors_forget(void *state);
/* The broadcast function of strategies that send all of their vectors. */
const float *fedge_strategy_broadcast_vectors(const void *state);

#endif
