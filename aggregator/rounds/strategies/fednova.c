/* FedNova (Wang et al., "Tackling the objective inconsistency problem in heterogeneous federated
 * optimization", NeurIPS 2020): clients that take more steps get no more weight for it,
 *
 *     x ← x + η_s τ_eff Σ p_i Δ_i / a_i,   τ_eff = Σ p_i a_i,   p_i = n_i / Σ n
 *
 * a_i = ‖a_i‖₁ is the distance of K_i steps of SGD in units of η for a constant gradient: K_i
 * without momentum and proximal term; with momentum ρ and a term of μ (e = η μ)
 *
 *     v ← ρ v + (1 − e u),   u ← u + v        (Nesterov: u ← u + (1 − e u) + ρ v);   a_i = u
 *
 * after K_i such steps. K_i is local-steps, or local-epochs · ⌈n_i / batch-size⌉, or what a trainer
 * of one's own reports (edge/plan/hooks/fednova.c).
 *
 * Weights in the sums are integers: w_i = round(u n_i / a_i), at least 1, and p_i = w_i a_i / Σ w_j
 * a_j is computed from them, so u sets their resolution. With local-steps all a_i equal one a, u =
 * a, and nothing is rounded. With local-epochs u is the largest weight for the cohort's size, 2^32
 * / cohort, divided by the largest possible n_i / a_i: that of one batch. With a proximal term, and
 * with reported steps, n_i / a_i has no bound and is clamped to 1024, or to 16 times that of one
 * batch if that is more. A round begun in a release that did not record the cohort has u =
 * max-weight / 1024, rounded down to a power of two, and n_i / a_i clamped to 1024. By default η_s
 * is 1.
 */
#include <math.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/strategies/common.h"
#include "edge/core/fixed.h"
#include "edge/json/json.h"

#define MOST 1024        /* clamp of n_i / a_i when it has no bound */
#define HEADROOM 16      /* multiple of one batch's n_i / a_i */
#define WIDEST INT32_MAX /* largest weight of every summation (aggregator/reduce/sum.h) */

/* The linear map of a step on (v, u, 1), by rows. */
typedef struct matrix {
    double at[3][3];
} matrix;

static matrix product(const matrix *a, const matrix *b)
{
    matrix c = {{{0}}};
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            for (int k = 0; k < 3; k++)
                c.at[i][j] += a->at[i][k] * b->at[k][j];
        }
    }
    return c;
}

/* a_i of [num_steps] steps. */
static double path_length(const fedge_optimizer *optimizer, double learning_rate,
                          uint64_t num_steps)
{
    const double rho = (double)optimizer->momentum;
    const double e = (double)(float)learning_rate * (double)optimizer->proximal_mu;
    const double a = optimizer->nesterov ? rho : 1.0, b = optimizer->nesterov ? 1.0 : 0.0;
    /* v' = ρ v − e u + 1;  u' = u + a v' + b (1 − e u) */
    matrix step = {{{rho, -e, 1.0}, {a * rho, 1.0 - a * e - b * e, a + b}, {0.0, 0.0, 1.0}}};
    matrix all = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
    for (; num_steps > 0; num_steps >>= 1) {
        if (num_steps & 1)
            all = product(&all, &step);
        step = product(&step, &step);
    }
    return fmax(all.at[1][2], 1.0); /* u after the steps, when v = u = 0 at first */
}

static double client_path_length(const fedge_job *job, const fedge_update_facts *facts)
{
    const fedge_training_spec *training = &job->plan.training;
    const uint64_t examples = facts->num_examples < UINT32_MAX ? facts->num_examples : UINT32_MAX;
    const uint64_t batches = (examples + training->batch_size - 1) / training->batch_size;
    const uint64_t steps = facts->num_steps > 0        ? facts->num_steps
                           : training->local_steps > 0 ? training->local_steps
                                                       : training->local_epochs * batches;
    return path_length(&training->optimizer, fedge_plan_learning_rate(&job->plan, facts->round),
                       steps);
}

/* u, where [most] is the largest weight. */
static double unit_of(const fedge_job *job, const fedge_update_facts *facts, double most)
{
    const fedge_training_spec *training = &job->plan.training;
    const double rate = fedge_plan_learning_rate(&job->plan, facts->round);
    if (facts->cohort == 0)
        return most < MOST ? 1.0 : exp2(floor(log2(most / MOST)));
    if (training->local_steps > 0 && !job->plan.external)
        return path_length(&training->optimizer, rate, training->local_steps);
    /* Without a proximal term the distance per batch grows with the number of batches. */
    const double batch =
        training->batch_size / path_length(&training->optimizer, rate, training->local_epochs);
    const bool is_bounded = training->optimizer.proximal_mu <= 0.0f && !job->plan.external;
    return most / (is_bounded ? batch : fmax(MOST, HEADROOM * batch));
}

static uint32_t weight(const void *state, const fedge_job *job, const fedge_update_facts *facts)
{
    (void)state;
    const double largest = (double)FEDGE_FIXED_MAX_TOTAL_WEIGHT / fmax(facts->cohort, 1.0);
    const double most =
        facts->cohort == 0 ? (double)job->rounds.max_weight : fmin(floor(largest), WIDEST);
    const double value =
        rint(unit_of(job, facts, most) * (double)fedge_report_weight(job, facts->num_examples) /
             client_path_length(job, facts));
    return value < 1.0 ? 1 : value < most ? (uint32_t)value : (uint32_t)most;
}

static fedge_status derive(const fedge_json *json, fedge_job *job, void *settings, fedge_error *err)
{
    (void)settings;
    if (job->plan.training.optimizer.type != FEDGE_OPTIMIZER_SGD) {
        return fedge_json_fail_at(
            json, "training.optimizer", err,
            "FedNova counts the steps of SGD only; use SGD, with or without momentum, or FedAvg");
    }
    return FEDGE_OK;
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    const fedge_job *job = sum->job;
    double total = 0.0, effective = 0.0; /* Σ w a, Σ w a² */
    FEDGE_TRY(fedge_strategy_check_sum(sum, "FedNova", err));
    for (uint32_t i = 0; i < sum->num_updates; i++) {
        const double a = client_path_length(job, &sum->facts[i]);
        const double part = (double)weight(state, job, &sum->facts[i]) * a;
        total += part;
        effective += part * a;
    }
    /* The mean is Σ w Δ / W. */
    const double rate = fedge_strategy_rate(state, sum->round) * (effective / total) *
                        ((double)sum->total_weight / total);
    return fedge_strategy_move(sum, &sum->delta, rate, model, err);
}

const fedge_strategy_ops fedge_strategy_fednova = {
    .reader = {.name = "FedNova", .settings_size = sizeof(fedge_strategy_common), .derive = derive},
    .weight = weight,
    .uses_examples = true,
    .by_cohort = true,
    .init = fedge_strategy_init_settings,
    .step = step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = fedge_strategy_free_nothing,
};
