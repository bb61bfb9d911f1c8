/* Training on the server: the update that a client with the server's examples would send.
 *
 * It uses a client's plan, trainer and kernels on one CPU thread, with the example order of a
 * client index that no device has. The same model and round give the same bits in deployment and in
 * a simulation. Without a root set the server's plugin trains (fedge_job.root), also an external
 * model.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROOT_TRAINER_H
#define FEDGE_AGGREGATOR_ROUNDS_ROOT_TRAINER_H

#include <stdint.h>

#include "aggregator/rounds/strategy_plugin_api.h"
#include "aggregator/rounds/updates.h"
#include "edge/core/status.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"

#define FEDGE_ROOT_CLIENT UINT32_MAX /* index of the server, above FEDGE_ROUNDS_MAX_CLIENTS */

typedef struct fedge_root_trainer fedge_root_trainer;

/* A trainer of the server's plugin. */
typedef struct fedge_root_ops {
    /* The job outlives *state. */
    fedge_status (*open)(const struct fedge_root_ops *ops, const fedge_job *job, void **state,
                         fedge_error *err);
    /* Trains values (task->num_values) in place. */
    fedge_status (*train)(void *state, const fedge_plugin_root_task *task, float *values,
                          fedge_error *err);
    void (*close)(void *state); /* NULL is fine */
} fedge_root_ops;

/* Serves a reader's check: requires a model with all parameters trained, and with [files], which
 * are empty without a root set, one of fedge's layers. */
FEDGE_MUST_USE fedge_status fedge_root_trainer_check(const fedge_json *json, const fedge_job *job,
                                                     const fedge_test_set *files, fedge_error *err);

/* Loads [files] as data of a checked job and allocates the memory to train; without files opens
 * job->root. Fails like fedge_dataset_load, and with FEDGE_NO_MEMORY. FEDGE_UNSUPPORTED: there is
 * neither. The job outlives it. */
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
