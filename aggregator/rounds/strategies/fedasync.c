/* FedAsync (Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019): each update is a
 * round,
 *
 *     x ← (1 − α_t) x + α_t (x_b + Δ),   α_t = η_s · α · w(s)
 *
 * x_b is the model that the client began with, s rounds before. α is 0.6 and w(s) = (1 + s)^−0.5 by
 * default, and η_s is 1; the paper's proximal term is training.proximal-mu. With several updates
 * each would have its fraction of α_t.
 */
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategies/asynchronous.h"

static const fedge_json_field ARGUMENTS[] = {
    {"alpha", NULL, FEDGE_JSON_F64, FEDGE_JSON_AT(fedge_asynchronous, alpha), .min = 1e-6, .max = 1,
     .fallback = 0.6},
    FEDGE_ASYNCHRONOUS_FIELDS,
    FEDGE_JSON_END,
};

static fedge_status derive(const fedge_json *json, fedge_job *job, void *settings, fedge_error *err)
{
    ((fedge_asynchronous *)settings)->buffer_size = 1;
    return fedge_asynchronous_derive(json, job, settings, err);
}

typedef struct pass {
    const fedge_strategy_vectors *state;
    const fedge_strategy_sum *sum;
    double rate; /* step of the model for an update of weight 1 in the sums */
    float *model;
} pass;

static void visit(void *user, size_t first, size_t count, const double *mean)
{
    const pass *self = user;
    const fedge_strategy_sum *sum = self->sum;
    for (size_t k = 0; k < count; k++) {
        const double x = (double)self->model[first + k];
        double move = self->rate * (double)sum->total_weight * mean[k];
        for (uint32_t i = 0; i < sum->num_updates; i++) {
            const uint32_t staleness = sum->facts[i].staleness;
            if (staleness == 0)
                continue;
            const float *base =
                fedge_asynchronous_base(self->state, sum->round - 1 - staleness) + first;
            const double weight = fedge_asynchronous_weight(self->state, sum->job, &sum->facts[i]);
            move += self->rate * weight * ((double)base[k] - x);
        }
        self->model[first + k] = (float)(x + move);
    }
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const fedge_asynchronous *with = self->settings;
    FEDGE_TRY(fedge_asynchronous_check(self, sum, err));
    float *before = malloc(self->num_values * sizeof(*before));
    if (!before)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu values", self->num_values);
    memcpy(before, model, self->num_values * sizeof(*before));
    pass of = {.state = self,
               .sum = sum,
               .rate = fedge_strategy_rate(&with->common, sum->round) * with->alpha /
                       fedge_asynchronous_unit(sum->job) / sum->num_updates,
               .model = model};
    const fedge_status status = fedge_strategy_each_mean(sum, &sum->delta, visit, &of, err);
    if (status == FEDGE_OK)
        fedge_asynchronous_keep(self, sum, before);
    free(before);
    return status;
}

const fedge_strategy_ops fedge_strategy_fedasync =
    FEDGE_ASYNCHRONOUS_OPS("FedAsync", ARGUMENTS, derive, step);
