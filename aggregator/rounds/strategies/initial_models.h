/* Files of the further models with which a strategy of several models begins, if the job's model is
 * external: there are no initialisers, and the models must begin unlike each other. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_INITIAL_MODELS_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_INITIAL_MODELS_H

#include "aggregator/rounds/strategy.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"

typedef struct fedge_initial_models {
    char paths[FEDGE_MAX_PATHS]; /* one a line; "": none */
} fedge_initial_models;

/* The argument in the settings [type]. */
#define FEDGE_INITIAL_MODELS_FIELD(type, member)                                                   \
    {                                                                                              \
        "initial-models", "initial_models", FEDGE_JSON_LINES, FEDGE_JSON_AT(type, member.paths),   \
            .min = 1, .max = FEDGE_MAX_PATH - 1                                                    \
    }

/* Checks that an external job has [wanted] files and others have none, and makes the paths relative
 * to the job's folder. Fails at "strategy.initial-models". */
FEDGE_MUST_USE fedge_status fedge_initial_models_check(const fedge_json *json, const fedge_job *job,
                                                       uint32_t wanted, fedge_initial_models *of,
                                                       fedge_error *err);
/* Reads all of them. values: (number of files, schema's elements). */
FEDGE_MUST_USE fedge_status fedge_initial_models_read(const fedge_job *job,
                                                      const fedge_initial_models *of, float *values,
                                                      fedge_error *err);

#endif
