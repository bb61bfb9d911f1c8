/* SCAFFOLD on a client (Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for
 * federated learning", ICML 2020): its control variate c_i, kept from round to round.
 *
 *     every gradient   g ← g − c_i + c
 *     after K steps    c_i⁺ = c_i − c + (x − y_i) / (K · η)          option II of the paper
 *     the update has   Δc_i = c_i⁺ − c_i, in the section "control"
 *
 * c_i moves by what the server will decode, so that c stays the mean of the c_i, and only once the
 * server has acknowledged the update. It is kept in the store for the run; without it (a new
 * device, a lost disk) it is 0, as in the first round.
 */
#ifndef FEDGE_CLIENT_CONTROL_H
#define FEDGE_CLIENT_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "client/store.h"
#include "edge/core/status.h"
#include "edge/io/plan.h"
#include "edge/io/protocol.h"

/* Of one plan. [server], [own]: of what is trained; [correction]: c − c_i, of every parameter. */
typedef struct fedge_control {
    const fedge_plan *plan;
    float *server, *own, *correction;
    int32_t *decoded;
} fedge_control;

/* [plan] outlives it. */
FEDGE_MUST_USE fedge_status fedge_control_init(fedge_control *control, const fedge_plan *plan,
                                               fedge_error *err);
void fedge_control_fini(fedge_control *control); /* one that is all 0 is fine */

/* The round begins: c from [file] (a task's control file), c_i from the store; fills correction. */
FEDGE_MUST_USE fedge_status fedge_control_begin(fedge_control *control, const uint8_t *file,
                                                size_t size, fedge_store *store, const char *run_id,
                                                fedge_error *err);

/* Fills the control section of [sent], whose delta is there already. [num_steps]: K;
 * [learning_rate]: η. */
FEDGE_MUST_USE fedge_status fedge_control_change(const fedge_control *control, uint64_t num_steps,
                                                 double learning_rate, float *sent,
                                                 fedge_error *err);

/* Keeps c_i as it will be once this upload is acknowledged. */
FEDGE_MUST_USE fedge_status fedge_control_keep(fedge_control *control, fedge_store *store,
                                               const int8_t *bounds_log2,
                                               const fedge_upload *upload, const uint8_t *bytes,
                                               fedge_error *err);

/* The upload has been acknowledged; nothing happens without a c_i that was kept for it. May be
 * repeated. */
FEDGE_MUST_USE fedge_status fedge_control_commit(fedge_store *store, const fedge_upload *upload,
                                                 fedge_error *err);

#endif
