/* The global model: its values, the accumulator of its updates, and the strategy that moves it.
 *
 *     fedge_global_model_init → _begin (or _load) → { updates added → _step → _reset } … →
 * _fini
 *
 * No files, no clock: the server keeps journals and checkpoints around it, the simulator does not,
 * and both take the same step. Used by one thread at a time, but for what accumulators allow.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_GLOBAL_MODEL_H
#define FEDGE_AGGREGATOR_ROUNDS_GLOBAL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/downlink.h"
#include "aggregator/rounds/sampler.h"
#include "aggregator/rounds/strategy.h"
#include "aggregator/rounds/updates.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

#define FEDGE_ROBUST_MEMORY ((uint64_t)1 << 30) /* bytes, unless something else is asked for */

/* Plain data; all of it is the model's own but the job. */
typedef struct fedge_global_model {
    const fedge_job *job;
    const fedge_plan *plan; /* &job->plan */
    fedge_accumulator accumulator;
    const fedge_strategy_ops *strategy;
    void *strategy_state;
    float *values;  /* parameters, then statistics: plan->schema.num_elements */
    float *trained; /* the strategy's part of them; NULL: it is all of them */
    bool unchanged; /* values and the strategy's state are as the accumulator's last step left them
                     */
    /* With a strategy that collects: updates that are nowhere else, and what a step may take. */
    fedge_kept_updates kept;
    uint64_t robust_memory; /* bytes, half of it for those that are kept */
    uint32_t num_threads;
    fedge_downlink downlink;
    fedge_client_history clients; /* empty when the job's sampler does not look back */
    /* Of the open phase; the caller sets both. */
    fedge_draw draw;
    uint32_t cohort; /* fedge_update_facts.cohort */
} fedge_global_model;

/* How updates of [plan] lie when they are not deflated. Points into the plan. */
fedge_layout fedge_plan_layout(const fedge_plan *plan);

/* Would the job's strategy begin: has it the memory, and the files of the server that it needs? */
FEDGE_MUST_USE fedge_status fedge_global_model_check(const fedge_job *job,
                                                     const fedge_accumulator_config *config,
                                                     fedge_error *err);

/* Takes the memory for [job], which outlives the model. [accumulator] is the kind's name, [config]
 * what it is opened with, but for the layout, which is the job's. The values are not set. */
FEDGE_MUST_USE fedge_status fedge_global_model_init(fedge_global_model *model, const fedge_job *job,
                                                    const char *accumulator,
                                                    const fedge_accumulator_config *config,
                                                    fedge_error *err);
void fedge_global_model_fini(fedge_global_model *model); /* also after a failed init */

/* The values before any training. */
FEDGE_MUST_USE fedge_status fedge_global_model_begin(fedge_global_model *model, fedge_error *err);
/* What a checkpoint has beside the values: the strategy's state, what was seen of
 * clients when the job's sampler wants it, then the downlink's. Appended. */
FEDGE_MUST_USE fedge_status fedge_global_model_save(const fedge_global_model *model,
                                                    fedge_buffer *state, fedge_error *err);
/* The values of a model file, and the state that fedge_global_model_save made beside them. */
FEDGE_MUST_USE fedge_status fedge_global_model_load(fedge_global_model *model, const uint8_t *file,
                                                    size_t size, const uint8_t *state,
                                                    size_t state_size, fedge_error *err);

/* Moves the values by the sums of the accumulator, which keeps them: the strategy's step on what is
 * trained, the weighted mean for statistics; with a downlink, as far as clients will know of it.
 * [bounds_log2]: of the tensors that were sent in this
 * round (fedge_sections_bounds). [facts]: of the updates in the sums, in the order of the cohort's
 * slots. [updates]: the same one by one when the strategy collects; else NULL. What the job's
 * sampler looks back at takes the facts in. After a failure the values are undefined. */
FEDGE_MUST_USE fedge_status fedge_global_model_step(fedge_global_model *model, uint32_t round,
                                                    const int8_t *bounds_log2,
                                                    const fedge_update_facts *facts,
                                                    const fedge_updates *updates, fedge_error *err);
/* [client] was asked in the round that closes and brought nothing, as its journal says: its task
 * has gone to another, or was open at the deadline. */
FEDGE_MUST_USE fedge_status fedge_global_model_miss(fedge_global_model *model, uint32_t client,
                                                    fedge_error *err);
/* Opens another accumulator in place of the present one, which is closed first: all sums are 0, and
 * what it held of GPUs is free. On failure there is none, and the model is of no use until this
 * succeeds. [accumulator], [config]: as for fedge_global_model_init. */
FEDGE_MUST_USE fedge_status fedge_global_model_reopen(fedge_global_model *model,
                                                      const char *accumulator,
                                                      const fedge_accumulator_config *config,
                                                      fedge_error *err);
/* The strategy forgets what depends on what clients keep; it can (ops->forget). */
void fedge_global_model_forget(fedge_global_model *model);
/* Empties the accumulator, and forgets the updates that were kept. */
FEDGE_MUST_USE fedge_status fedge_global_model_reset(fedge_global_model *model, fedge_error *err);

/* The model file (safetensors) of the present values, and behind it the file of what the
 * strategy tells clients, of [*broadcast_size] bytes, 0 when it tells nothing. *file is malloc'ed,
 * *size
 * + *broadcast_size long, or NULL on failure. */
FEDGE_MUST_USE fedge_status fedge_global_model_write(const fedge_global_model *model,
                                                     uint8_t **file, size_t *size,
                                                     size_t *broadcast_size, fedge_error *err);

/* The model before any training: the job's initial-model, or the initialisers (zeros for an
 * external model). values: schema->num_elements. Errors name the file. */
FEDGE_MUST_USE fedge_status fedge_initial_values(const fedge_job *job, float *values,
                                                 fedge_error *err);

/* The weight of a report on so many examples: at most the job's max-weight, at least 1. */
uint32_t fedge_report_weight(const fedge_job *job, uint64_t num_examples);

/* fedge_update_facts.ratio of an update in the open phase. */
double fedge_update_ratio(const fedge_global_model *model, uint32_t round, uint32_t client);

/* The weight of an update in the sums: the same, unless the strategy weighs them itself, or 1 when
 * the sampler has (fedge_sampler_ops.weighs). With a ratio it is that times the ratio, in 16ths, or
 * in 1024ths where all weigh the same; at most the job's max-weight, at least 1. */
uint32_t fedge_update_weight(const fedge_global_model *model, const fedge_update_facts *facts);

#endif
