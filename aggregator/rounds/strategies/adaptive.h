/* What FedAdagrad, FedAdam and FedYogi share (Reddi et al., "Adaptive federated optimization", ICLR
 * 2021, algorithm 2), with Δ = mean(Δ_i):
 *
 *     m ← β1 m + (1 − β1) Δ
 *     v ← what tells them apart
 *     x ← x + η_s m / (√v + τ)
 *
 * m is 0 and v is τ² at first. There is no correction of bias, as in the paper: the first steps are
 * small in m and in v. τ is 1e-3 by default, and no less than that will do for most models: it is
 * the size of a change below which the step is not scaled up any more.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_ADAPTIVE_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_ADAPTIVE_H

#include "aggregator/rounds/strategy.h"
#include "edge/json/json.h"

#define FEDGE_ADAPTIVE_RATE 0.01 /* η_s by default */

typedef struct fedge_adaptive_settings {
    fedge_strategy_common common;
    double beta1, beta2, tau;
} fedge_adaptive_settings;

#define FEDGE_ADAPTIVE_BETA1(default_value)                                                        \
    {                                                                                              \
        .key = "beta1", .kind = FEDGE_JSON_F64, FEDGE_JSON_AT(fedge_adaptive_settings, beta1),     \
        .min = 0, .max = 0.9999, .fallback = (default_value)                                       \
    }
#define FEDGE_ADAPTIVE_BETA2                                                                       \
    {                                                                                              \
        .key = "beta2", .kind = FEDGE_JSON_F64, FEDGE_JSON_AT(fedge_adaptive_settings, beta2),     \
        .min = 0, .max = 0.999999, .fallback = 0.99                                                \
    }
#define FEDGE_ADAPTIVE_TAU                                                                         \
    {                                                                                              \
        .key = "tau", .kind = FEDGE_JSON_F64, FEDGE_JSON_AT(fedge_adaptive_settings, tau),         \
        .min = 1e-12, .max = 1e3, .fallback = 1e-3                                                 \
    }

FEDGE_MUST_USE fedge_status fedge_adaptive_init(const fedge_strategy_config *config, void **state,
                                                fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_adaptive_step(void *state, const fedge_strategy_sum *sum,
                                                float *model, fedge_step_rule rule,
                                                fedge_error *err);

#endif
