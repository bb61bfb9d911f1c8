/* The model of the best round of a simulation:
 *
 *     OUT/checkpoints/best-RRRRRR.safetensors   as of the newest checkpoint, for --resume
 *     OUT/model-best.safetensors                at the end, with metadata
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_OUTPUT_BEST_MODEL_H
#define FEDGE_AGGREGATOR_SIMULATE_OUTPUT_BEST_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/selection.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

#define FEDGE_BEST_MODEL_NAME "model-best.safetensors"

/* Begins as all 0. */
typedef struct fedge_best_model {
    float *values;  /* malloc'ed, of the plan's schema; NULL: none yet */
    uint32_t round; /* round of [values] */
    uint32_t saved; /* round of the file in checkpoints/; 0: none */
} fedge_best_model;

void fedge_best_model_fini(fedge_best_model *best);

/* Copies the model of [round]. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_best_model_take(fedge_best_model *best, const fedge_plan *plan,
                                                  uint32_t round, const float *values,
                                                  fedge_error *err);

/* Before a checkpoint: writes the file that belongs to it, if it is new. The old file stays until
 * fedge_best_model_prune. */
FEDGE_MUST_USE fedge_status fedge_best_model_save(const fedge_best_model *best,
                                                  const fedge_plan *plan, const char *dir,
                                                  fedge_error *err);

/* After a checkpoint: removes the old file or, unless the checkpoint is [committed], the new one.
 */
FEDGE_MUST_USE fedge_status fedge_best_model_prune(fedge_best_model *best, const char *dir,
                                                   bool committed, fedge_error *err);

/* Reads the file. FEDGE_CORRUPT: it is not the model of [of]. */
FEDGE_MUST_USE fedge_status fedge_best_model_load(fedge_best_model *best, const fedge_plan *plan,
                                                  const char *dir, const fedge_selected *of,
                                                  fedge_error *err);

/* Is [name] in checkpoints/ another round's file, or half written, left by a program that was
 * killed? */
bool fedge_best_model_is_leftover(const char *name, uint32_t round);

/* Writes OUT/model-best.safetensors, if there is a best model. */
FEDGE_MUST_USE fedge_status fedge_best_model_export(const fedge_best_model *best,
                                                    const fedge_plan *plan, const char *dir,
                                                    const fedge_selected *of, fedge_error *err);

#endif
