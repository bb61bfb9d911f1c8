/* Training on the server: the update that a client with the server's examples would send.
 *
 * It uses a client's plan, trainer and kernels on one CPU thread, with the example order of a
 * client index that no device has. The same model and round give the same bits in deployment and in
 * a simulation.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROOT_TRAINER_H
#define FEDGE_AGGREGATOR_ROUNDS_ROOT_TRAINER_H

#include <stdint.h>

#include "aggregator/rounds/updates.h"
#include "edge/core/status.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"

#define FEDGE_ROOT_CLIENT UINT32_MAX /* index of the server, above FEDGE_ROUNDS_MAX_CLIENTS */

typedef struct fedge_root_trainer fedge_root_trainer;

/* Serves a reader's check: requires a built-in model with all parameters trained. */
FEDGE_MUST_USE fedge_status fedge_root_trainer_check(const fedge_json *json, const fedge_job *job,
                                                     fedge_error *err);

/* Loads [files] as data of a checked job and allocates the memory to train. Fails like
 * fedge_dataset_load, and with FEDGE_NO_MEMORY. The job outlives it. */
FEDGE_MUST_USE fedge_status fedge_root_trainer_new(const fedge_job *job,
                                                   const fedge_test_set *files,
                                                   fedge_root_trainer **trainer, fedge_error *err);
void fedge_root_trainer_free(fedge_root_trainer *trainer); /* NULL is fine */

/* Trains on a copy of [model] (plan->num_parameters) as in [round]. *v (num_parameters) is the
 * change in fixed point, clamped to [bounds_log2] of each tensor as a client does; the trainer owns
 * it, valid until the next call. FEDGE_NOT_FINITE: training diverged. */
FEDGE_MUST_USE fedge_status fedge_root_trainer_run(fedge_root_trainer *trainer, uint32_t round,
                                                   const float *model, const int8_t *bounds_log2,
                                                   const int32_t **v, fedge_error *err);

/* A round's updates, then the server's as the last. Owns nothing. */
typedef struct fedge_root_updates {
    const fedge_updates *clients;
    const fedge_schema *schema; /* layout of the delta */
    const int32_t *root;        /* the server's update, made by fedge_root_trainer_run */
} fedge_root_updates;

/* [both] outlives what is returned. */
fedge_updates fedge_root_updates_of(fedge_root_updates *both);

#endif
