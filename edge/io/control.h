/* SCAFFOLD's control variates of one client (Karimireddy et al., "SCAFFOLD: Stochastic controlled
 * averaging for federated learning", ICML 2020):
 *
 *     every gradient   g ← g − c_i + c
 *     after K steps    c_i⁺ = c_i − c + (x − y_i) / (K · η)          option II of the paper
 *     the update has   Δc_i = c_i⁺ − c_i, in the section "control"
 *
 * c_i moves by what the server will decode, so that c stays the mean of the c_i. Where c_i is kept
 * from round to round is the caller's business.
 */
#ifndef FEDGE_EDGE_IO_CONTROL_H
#define FEDGE_EDGE_IO_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/io/plan.h"

/* The metric, not 0, of an update whose client lost the c_i that c has a part of. */
#define FEDGE_CONTROL_LOST "control-lost"

/* Of one plan. [server] (c) and [own] (c_i): of what is trained, num_trained values each;
 * [correction]: c − c_i, of every parameter. */
typedef struct fedge_control {
    const fedge_plan *plan;
    size_t num_trained;
    float *server, *own, *correction;
} fedge_control;

/* Takes the memory, all 0. [plan] outlives it. */
FEDGE_MUST_USE fedge_status fedge_control_init(fedge_control *control, const fedge_plan *plan,
                                               fedge_error *err);
void fedge_control_fini(fedge_control *control); /* one that is all 0 is fine */

/* Fills [correction] from [server] and [own]. */
void fedge_control_correct(fedge_control *control);

/* Fills the control section of [sent], whose delta is there already. [num_steps]: K;
 * [learning_rate]: η. FEDGE_INVALID_ARGUMENT when either is 0. */
FEDGE_MUST_USE fedge_status fedge_control_change(const fedge_control *control, uint64_t num_steps,
                                                 double learning_rate, float *sent,
                                                 fedge_error *err);

/* own[] ← own[] + Δc_i, of the update as the server decodes it: v has all that is sent. */
void fedge_control_move(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v,
                        float *own);

#endif
