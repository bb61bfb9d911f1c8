/* Arguments, steps and scores that several strategies share. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_COMMON_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_COMMON_H

#include <stdbool.h>

#include "aggregator/rounds/robust/robust.h"
#include "aggregator/rounds/strategy.h"
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"

/* ---- the argument num-clients ---------------------------------------------------------------- */

/* N, for strategies that relate a round's clients to the whole federation. */
typedef struct fedge_num_clients {
    uint32_t count; /* N; 0 until it is derived */
    bool given;     /* the job sets it */
} fedge_num_clients;

/* A field of the struct [type], whose member [member] is a fedge_num_clients. */
#define FEDGE_NUM_CLIENTS_FIELD(type, member)                                                      \
    {                                                                                              \
        "num-clients", "num_clients", FEDGE_JSON_U32, FEDGE_JSON_AT(type, member.count),           \
            .min = 1, .max = UINT32_MAX                                                            \
    }

/* Sets N to min-available-nodes when the job leaves it out. Fails when the job gives a lower one.
 */
FEDGE_MUST_USE fedge_status fedge_num_clients_derive(const fedge_json *json, const fedge_job *job,
                                                     fedge_num_clients *clients, fedge_error *err);
/* Implements fedge_strategy_ops.count_clients. */
FEDGE_MUST_USE fedge_status fedge_num_clients_count(fedge_num_clients *clients,
                                                    uint32_t num_clients, fedge_error *err);
/* min(|S| / N, 1): more clients may take part than the job says. */
double fedge_num_clients_fraction(const fedge_num_clients *clients, uint32_t num_updates);

/* ---- FedAdagrad, FedAdam and FedYogi --------------------------------------------------------- */

/* Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2, with Δ = mean(Δ_i):
 *
 *     m ← β1 m + (1 − β1) Δ
 *     v ← by each strategy's rule
 *     x ← x + η_s m / (√v + τ)
 *
 * m starts at 0 and v at τ². As in the paper there is no bias correction, so m and v are small in
 * the first steps. Steps smaller than τ are not scaled up; the default is 1e-3. */
#define FEDGE_ADAPTIVE_RATE 0.01 /* default of η_s */

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

/* ---- FedAvg's step --------------------------------------------------------------------------- */

/* FedAvg's step, also for strategies that differ from it in what clients do. */
FEDGE_MUST_USE fedge_status fedge_fedavg_step(void *state, const fedge_strategy_sum *sum,
                                              float *model, fedge_error *err);

/* ---- FedPer and FedRep ----------------------------------------------------------------------- */

/* The server averages the layers that clients share. FedPer and FedRep differ only in their
 * arguments and client hooks. */
typedef struct fedge_personal_settings {
    fedge_strategy_common common;
    fedge_hooks_arguments with;
} fedge_personal_settings;

/* The ops of a strategy with this name and these arguments. */
#define FEDGE_PERSONAL_OPS(title, fields)                                                          \
    {                                                                                              \
        .reader = {.name = (title),                                                                \
                   .arguments = (fields),                                                          \
                   .settings_size = sizeof(fedge_personal_settings),                               \
                   .derive = fedge_refuse_test_set},                                               \
        .init = fedge_strategy_init_settings, .step = fedge_fedavg_step,                           \
        .save = fedge_strategy_save_nothing, .load = fedge_strategy_load_nothing,                  \
        .free = fedge_strategy_free_nothing,                                                       \
    }

/* ---- Krum, MultiKrum and Bulyan -------------------------------------------------------------- */

/* Implements fedge_robust_rule.min_updates: 2 f + 3. */
uint32_t fedge_krum_min_updates(const fedge_robust_settings *settings);

/* Gives weight 1 to the [count] updates with the lowest scores and 0 to the others. Of equal scores
 * the first slots win. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_krum_select(const fedge_robust_settings *settings,
                                              const fedge_gram *gram, uint32_t count,
                                              fedge_robust_choice *choice, fedge_error *err);

#endif
