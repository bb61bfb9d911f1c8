/* The global model: its values, the accumulator of its updates, and the strategy that moves it.
 *
 *     fedge_global_model_init → _begin (or _load) → { updates added → _step → _reset } … →
 * _fini
 *
 * It has no files and no clock. The server adds journals and checkpoints, the simulator does not,
 * and both take the same step. One thread at a time uses it, except where accumulators allow more.
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

#define FEDGE_ROBUST_MEMORY ((uint64_t)1 << 30) /* default robust_memory, in bytes */

/* Plain data that owns everything but the job. */
typedef struct fedge_global_model {
    const fedge_job *job;
    const fedge_plan *plan; /* &job->plan */
    fedge_accumulator accumulator;
    const fedge_strategy_ops *strategy;
    void *strategy_state;
    float *values;  /* parameters, then statistics: plan->schema.num_elements */
    float *trained; /* copy of the trained values for the strategy; NULL: all values are trained */
    bool unchanged; /* only the accumulator's last step has written values and strategy state */
    /* Updates that no journal has, and a step's memory, for strategies that collect. */
    fedge_stored_updates stored;
    uint64_t robust_memory; /* bytes; half of them for stored updates */
    uint32_t num_threads;
    fedge_downlink downlink;
    fedge_client_history clients; /* empty unless the job's sampler uses it */
    /* The caller sets the two fields of the open phase. */
    fedge_draw draw;
    uint32_t cohort; /* fedge_update_facts.cohort */
} fedge_global_model;

/* The layout of updates of [plan] before deflate. Points into the plan. */
fedge_update_layout fedge_plan_update_layout(const fedge_plan *plan);

/* Checks that the job's strategy could begin: that it has the memory and the server's files. */
FEDGE_MUST_USE fedge_status fedge_global_model_check(const fedge_job *job,
                                                     const fedge_accumulator_config *config,
                                                     fedge_error *err);

/* Allocates the memory for [job], which outlives the model. [accumulator] names the accumulator's
 * kind. [config] opens it, with the job's layout in place of its own. The values are not set. */
FEDGE_MUST_USE fedge_status fedge_global_model_init(fedge_global_model *model, const fedge_job *job,
                                                    const char *accumulator,
                                                    const fedge_accumulator_config *config,
                                                    fedge_error *err);
void fedge_global_model_fini(fedge_global_model *model); /* a model whose init failed is fine */

/* Sets the values before any training. */
FEDGE_MUST_USE fedge_status fedge_global_model_begin(fedge_global_model *model, fedge_error *err);
/* Appends what a checkpoint stores beside the values: the strategy's state, the client history if
 * the job's sampler uses it, and the downlink's state. */
FEDGE_MUST_USE fedge_status fedge_global_model_save(const fedge_global_model *model,
                                                    fedge_buffer *state, fedge_error *err);
/* Loads the values of a model file and the state from fedge_global_model_save. */
FEDGE_MUST_USE fedge_status fedge_global_model_load(fedge_global_model *model, const uint8_t *file,
                                                    size_t size, const uint8_t *state,
                                                    size_t state_size, fedge_error *err);

/* Moves the values by the accumulator's sums, which stay: trained values by the strategy's step,
 * statistics to their weighted mean. With a downlink they move by what clients will decode.
 * [bounds_log2]: of the tensors sent in this round (fedge_sections_bounds). [facts]: of the updates
 * in the sums, in the order of the cohort's slots; they enter the client history. [updates]: the
 * single updates when the strategy collects; else NULL. After a failure the values are undefined.
 */
FEDGE_MUST_USE fedge_status fedge_global_model_step(fedge_global_model *model, uint32_t round,
                                                    const int8_t *bounds_log2,
                                                    const fedge_update_facts *facts,
                                                    const fedge_updates *updates, fedge_error *err);
/* Notes that [client] missed its task in the closing round, as its journal says: the task went to
 * another client or was open at the deadline. */
FEDGE_MUST_USE fedge_status fedge_global_model_miss(fedge_global_model *model, uint32_t client,
                                                    fedge_error *err);
/* Closes the accumulator, which frees its GPU memory, and opens another with all sums 0. On failure
 * there is none, and the model is unusable until this succeeds. [accumulator], [config]: as for
 * fedge_global_model_init. */
FEDGE_MUST_USE fedge_status fedge_global_model_reopen(fedge_global_model *model,
                                                      const char *accumulator,
                                                      const fedge_accumulator_config *config,
                                                      fedge_error *err);
/* Calls ops->forget, which the strategy must have. */
void fedge_global_model_forget(fedge_global_model *model);
/* Empties the accumulator and the stored updates. */
FEDGE_MUST_USE fedge_status fedge_global_model_reset(fedge_global_model *model, fedge_error *err);

/* Writes the model file (safetensors), then the file of the strategy's broadcast state, of
 * [*broadcast_size] bytes; 0 when there is none. *file is malloc'ed, *size + *broadcast_size long,
 * or NULL on failure. */
FEDGE_MUST_USE fedge_status fedge_global_model_write(const fedge_global_model *model,
                                                     uint8_t **file, size_t *size,
                                                     size_t *broadcast_size, fedge_error *err);

/* The model before any training: the job's initial-model, or the initialisers (zeros for an
 * external model). values: schema->num_elements. Errors name the file. */
FEDGE_MUST_USE fedge_status fedge_initial_values(const fedge_job *job, float *values,
                                                 fedge_error *err);

/* Reads a model's file. values: schema->num_elements. */
FEDGE_MUST_USE fedge_status fedge_read_model(const char *path, const fedge_schema *schema,
                                             float *values, fedge_error *err);

/* The weight of a report: its examples, clamped to 1 … the job's max-weight. */
uint32_t fedge_report_weight(const fedge_job *job, uint64_t num_examples);

/* fedge_update_facts.ratio of an update in the open phase. */
double fedge_update_ratio(const fedge_global_model *model, uint32_t round, uint32_t client);

/* The weight of an update in the sums: the strategy's, or 1 when the sampler weighs examples, or
 * fedge_report_weight. With a ratio it is multiplied by the ratio in units of 1/16, or of 1/1024
 * for a strategy's own weights. Clamped to 1 … the job's max-weight. */
uint32_t fedge_update_weight(const fedge_global_model *model, const fedge_update_facts *facts);

#endif
