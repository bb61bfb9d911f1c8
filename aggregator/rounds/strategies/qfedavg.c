/* QFedAvg (Li, Sanjabi, Beirami, Smith, "Fair resource allocation in federated learning", ICLR
 * 2020): the weight of a client is the power q of its loss,
 *
 *     x ← x + η_s Σ F_i^q L Δ_i / Σ h_i,   h_i = q F_i^(q−1) ‖L Δ_i‖² + F_i^q L,   L = 1 / η
 *
 * F_i is the mean loss of x on the client's examples (edge/plan/hooks/qfedavg.c). q is 0.2 by
 * default; 0 is a plain mean. Weights in the sums are integers: w_i = round(2^k F_i^q), 1 to
 * max-weight, where 2^k is max-weight / 64, and F_i^q in the formula is w_i / 2^k, clamped to 64.
 * Losses are at least 1e-10, and ‖Δ_i‖² is at most Σ B², the maximum of values within their bounds.
 * Clients report both, so a malicious one can stop the model from moving: the strategy is not
 * robust.
 */
#include <math.h>

#include "aggregator/rounds/strategies/common.h"
#include "edge/json/json.h"

#define MOST 64 /* F^q up to this is not clamped, if max_weight is as large */
#define LEAST_LOSS 1e-10

typedef struct settings {
    fedge_strategy_common common;
    double q;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    {"q", "q_param q-param", FEDGE_JSON_F64, FEDGE_JSON_AT(settings, q), .min = 0, .max = 10,
     .fallback = 0.2},
    FEDGE_JSON_END,
};

static double unit_of(const fedge_job *job)
{
    const uint32_t most = job->rounds.max_weight;
    return most < MOST ? 1.0 : exp2(floor(log2((double)most / MOST)));
}

/* Values that are missing or invalid count as the minimum. */
static double loss_of(const fedge_update_facts *facts)
{
    return facts->start_loss > LEAST_LOSS ? facts->start_loss : LEAST_LOSS;
}

static uint32_t weight(const void *state, const fedge_job *job, const fedge_update_facts *facts)
{
    const settings *with = state;
    const double most = (double)job->rounds.max_weight;
    const double value = rint(unit_of(job) * pow(loss_of(facts), with->q));
    return value < 1.0 ? 1 : value < most ? (uint32_t)value : job->rounds.max_weight;
}

/* Σ B² of the delta. */
static double most_squared_norm(const fedge_strategy_section *delta)
{
    double most = 0.0;
    for (uint32_t t = 0; t < delta->schema->num_tensors; t++)
        most += ldexp((double)delta->schema->tensors[t].count, 2 * delta->bounds_log2[t]);
    return most;
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    const settings *with = state;
    FEDGE_TRY(fedge_strategy_check_sum(sum, "QFedAvg", err));
    const double unit = unit_of(sum->job);
    const double lipschitz = 1.0 / fedge_plan_learning_rate(&sum->job->plan, sum->round);
    const double most = most_squared_norm(&sum->delta);
    double h = 0.0;
    for (uint32_t i = 0; i < sum->num_updates; i++) {
        const fedge_update_facts *facts = &sum->facts[i];
        const double power = (double)weight(state, sum->job, facts) / unit;
        const double square = facts->squared_norm > 0.0 ? fmin(facts->squared_norm, most) : 0.0;
        h += with->q * power / loss_of(facts) * lipschitz * lipschitz * square + power * lipschitz;
    }
    /* The mean is Σ w Δ / W. */
    const double rate = fedge_strategy_rate(&with->common, sum->round) * lipschitz *
                        ((double)sum->total_weight / unit) / h;
    return fedge_strategy_move(sum, &sum->delta, rate, model, err);
}

const fedge_strategy_ops fedge_strategy_qfedavg = {
    .reader = {.name = "QFedAvg",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(settings),
               .divides_by_rate = true},
    .weight = weight,
    .init = fedge_strategy_init_settings,
    .step = step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = fedge_strategy_free_nothing,
};
