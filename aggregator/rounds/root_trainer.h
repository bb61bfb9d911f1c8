/* Training on the server: what a client with the server's own examples would send.
 *
 * The same plan, trainer and kernels as a client's, on one thread of the CPU; the order of examples
 * is that of a client whose index no device has. So the same model and round give the same bits, in
 * deployment and in a simulation.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROOT_TRAINER_H
#define FEDGE_AGGREGATOR_ROUNDS_ROOT_TRAINER_H

#include <stdint.h>

#include "aggregator/rounds/updates.h"
#include "edge/core/status.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"

#define FEDGE_ROOT_CLIENT UINT32_MAX /* its index: above FEDGE_ROUNDS_MAX_CLIENTS */

typedef struct fedge_root_trainer fedge_root_trainer;

/* As a reader's check (edge/plan/plan.h): all of a built-in model has to be trained. */
FEDGE_MUST_USE fedge_status fedge_root_trainer_check(const fedge_json *json, const fedge_job *job,
                                                     fedge_error *err);

/* Loads [files] as the data of a job that was checked and takes the memory to train on them. Fails
 * as the files do, and with FEDGE_NO_MEMORY. The job outlives it. */
FEDGE_MUST_USE fedge_status fedge_root_trainer_new(const fedge_job *job,
                                                   const fedge_test_set *files,
                                                   fedge_root_trainer **trainer, fedge_error *err);
void fedge_root_trainer_free(fedge_root_trainer *trainer); /* NULL is fine */

/* Trains [model] (plan->num_parameters, not changed) as in [round]; *v is the change in fixed
 * point, clamped to [bounds_log2] of each tensor as a client does: (num_parameters), the trainer's
 * own, valid until the next call. FEDGE_NOT_FINITE: training diverged. */
FEDGE_MUST_USE fedge_status fedge_root_trainer_run(fedge_root_trainer *trainer, uint32_t round,
                                                   const float *model, const int8_t *bounds_log2,
                                                   const int32_t **v, fedge_error *err);

/* A round's updates with the server's own as the last; points to what others own. */
typedef struct fedge_root_updates {
    const fedge_updates *clients;
    const fedge_schema *schema; /* of the delta */
    const int32_t *root;        /* of fedge_root_trainer_run */
} fedge_root_updates;

/* [both] outlives what is returned. */
fedge_updates fedge_root_updates_of(fedge_root_updates *both);

#endif
