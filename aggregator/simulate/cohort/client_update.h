/* Adds a client's update to the sums of the global model, as if it had been encoded, sent and
 * decoded, and runs the strategy's hooks. Each thread has one, with all its memory. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_UPDATE_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/simulate/cohort/training_backend.h"
#include "edge/core/status.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "edge/wire/deflate.h"

typedef struct fedge_client_update {
    const fedge_sim_backend_config *config;
    uint32_t lane; /* index in the global model's accumulator */
    float *values; /* trained values, then the changes to send; NULL: the trained values themselves
                      are changed and accumulated */
    int32_t *v;    /* the update in fixed point, where clients have states or the strategy
                      collects */
    const float *start;       /* the model that training began with */
    fedge_deflater *deflater; /* NULL, as the two below, when updates are not deflated */
    uint8_t *bytes, *packed;
    fedge_hooks_state hooks; /* used when the plan has hooks */
    uint64_t total;          /* bytes of all of these, and of the lane's sums */
} fedge_client_update;

/* Bytes that _init takes, and those of its lane's sums. [needs_copy]: the trainer's values are not
 * one array of floats, so a copy is made; hooks always need one. */
uint64_t fedge_client_update_size(const fedge_job *job, bool needs_copy);

/* [config] must outlive it. FEDGE_NO_MEMORY; call _fini also then. */
FEDGE_MUST_USE fedge_status fedge_client_update_init(fedge_client_update *update,
                                                     const fedge_sim_backend_config *config,
                                                     uint32_t lane, bool needs_copy,
                                                     fedge_error *err);
void fedge_client_update_fini(fedge_client_update *update); /* one that is all 0 is fine */

/* Called before [client] trains. *correction is added to its gradients, in schema order, and is
 * valid until the next call; NULL: none. FEDGE_NO_MEMORY: for its state. */
FEDGE_MUST_USE fedge_status fedge_client_update_begin(fedge_client_update *update, uint32_t client,
                                                      const float **correction, fedge_error *err);

/* Adds the update of a client that has trained, and sets facts, bytes_up and clamped of [task],
 * whose result is set. parameters and buffers: the trained values, whose sent part becomes the
 * global model's again; with update->values they are ignored. rate: the learning rate. */
FEDGE_MUST_USE fedge_status fedge_client_update_add(fedge_client_update *update,
                                                    fedge_sim_backend_task *task, uint32_t round,
                                                    const int8_t *bounds_log2, double rate,
                                                    float *parameters, float *buffers,
                                                    fedge_error *err);

/* Adds [update] (without its callback give) to a lane of [accumulator], chunk by chunk as it is
 * encoded (edge/plan/update.h): the same sums, bit for bit, and the same size as encoding, decoding
 * and adding it. v: NULL, or filled with the update in fixed point
 * (plan->sent.schema.num_elements). Adds nothing on a failure: FEDGE_NOT_FINITE names the tensor of
 * a change that is no number; else as fedge_accumulator_begin. Takes no memory. */
FEDGE_MUST_USE fedge_status fedge_accumulate_update(const fedge_update *update,
                                                    fedge_accumulator *accumulator, uint32_t lane,
                                                    uint32_t weight, int32_t *v,
                                                    fedge_update_made *made, fedge_error *err);

#endif
