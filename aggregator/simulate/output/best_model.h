/* The model of the best round, kept while a simulation goes on:
 *
 *     OUT/checkpoints/best-RRRRRR.safetensors   of the newest checkpoint's time, for --resume
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

/* All 0 at first. */
typedef struct fedge_best_model {
    float *values;  /* malloc'ed, of the plan's schema; NULL: none yet */
    uint32_t round; /* whose they are */
    uint32_t saved; /* round of the file in checkpoints/; 0: none */
} fedge_best_model;

void fedge_best_model_fini(fedge_best_model *best);

/* Copies the model of [round]. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_best_model_take(fedge_best_model *best, const fedge_plan *plan,
                                                  uint32_t round, const float *values,
                                                  fedge_error *err);

/* Before a checkpoint: writes the file that it goes with, if it is not there. The one before stays
 * until fedge_best_model_keep. */
FEDGE_MUST_USE fedge_status fedge_best_model_save(const fedge_best_model *best,
                                                  const fedge_plan *plan, const char *dir,
                                                  fedge_error *err);

/* After it: removes the file of the other round. [kept]: the checkpoint is there; else the new file
 * goes. */
FEDGE_MUST_USE fedge_status fedge_best_model_keep(fedge_best_model *best, const char *dir,
                                                  bool kept, fedge_error *err);

/* Reads it back. FEDGE_CORRUPT when it is not the model that is named in [of]. */
FEDGE_MUST_USE fedge_status fedge_best_model_load(fedge_best_model *best, const fedge_plan *plan,
                                                  const char *dir, const fedge_selected *of,
                                                  fedge_error *err);

/* Is [name], in checkpoints/, what a program that was killed has left of another round's, or half
 * written? */
bool fedge_best_model_is_left(const char *name, uint32_t round);

/* Leaves OUT/model-best.safetensors; nothing while there is none. */
FEDGE_MUST_USE fedge_status fedge_best_model_export(const fedge_best_model *best,
                                                    const fedge_plan *plan, const char *dir,
                                                    const fedge_selected *of, fedge_error *err);

#endif
