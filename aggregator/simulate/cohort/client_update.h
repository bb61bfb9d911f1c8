/* What becomes of a client's training: its change is added to the sums of the global model, as if
 * it had been encoded, sent and decoded, and the strategy's hooks are run.
 *
 * One is made for each thread, with all the memory that it takes.
 */
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
    uint32_t lane;      /* of the global model's accumulator */
    float *values;      /* as trained, then what travels of it; NULL: it is accumulated where the
                           trained values lie */
    int32_t *v;         /* where clients keep something, or the strategy collects: the update
                           in fixed point */
    const float *start; /* the model that training began with */
    fedge_deflater *deflater; /* NULL when updates are not deflated, as what follows */
    uint8_t *bytes, *packed;
    fedge_hooks_state hooks; /* when the plan has hooks */
    uint64_t total;          /* bytes of all of it, with the lane's sums */
} fedge_client_update;

/* Bytes that _init takes, and the sums of its lane. [apart]: the trained values do not lie as
 * floats in one piece of memory of the trainer's; with hooks they are apart in any case. */
uint64_t fedge_client_update_size(const fedge_job *job, bool apart);

/* [config] outlives it. FEDGE_NO_MEMORY; _fini is to be called also then. */
FEDGE_MUST_USE fedge_status fedge_client_update_init(fedge_client_update *update,
                                                     const fedge_sim_backend_config *config,
                                                     uint32_t lane, bool apart, fedge_error *err);
void fedge_client_update_fini(fedge_client_update *update); /* one that is all 0 is fine */

/* Before [client] trains. *correction: what is added to its gradients, in schema order,
 * until the next call; NULL: nothing is. FEDGE_NO_MEMORY: for what it keeps. */
FEDGE_MUST_USE fedge_status fedge_client_update_begin(fedge_client_update *update, uint32_t client,
                                                      const float **correction, fedge_error *err);

/* Adds what became of the model in this round, and sets facts, bytes_up and clamped of [task],
 * whose result is there.
 * parameters and buffers: the trained values, which are taken back to the global model's as far as
 * they travel; with update->values they are there already. rate: of training. */
FEDGE_MUST_USE fedge_status fedge_client_update_add(fedge_client_update *update,
                                                    fedge_sim_backend_task *task, uint32_t round,
                                                    const int8_t *bounds_log2, double rate,
                                                    float *parameters, float *buffers,
                                                    fedge_error *err);

/* Encoding and accumulating: what training made of a client's model is added to the sums of an
 * accumulator, piece by piece as it is encoded (edge/plan/update.h). Encoding an update, decoding
 * it and adding it gives the same sums, bit for bit, and the same size.
 */

/* Adds to a lane of [accumulator]; [update] without its give. v: NULL, or the update in fixed point
 * is left here (plan->sent.schema.num_elements). Nothing is added when it fails with
 * FEDGE_NOT_FINITE, for a change that is no number, with its tensor, or as fedge_accumulator_begin
 * does. What is not given as changes is finite. Takes no memory. */
FEDGE_MUST_USE fedge_status fedge_accumulate_update(const fedge_update *update,
                                                    fedge_accumulator *accumulator, uint32_t lane,
                                                    uint32_t weight, int32_t *v,
                                                    fedge_update_made *made, fedge_error *err);

#endif
