#include "aggregator/rounds/strategies/adaptive.h"

#include <math.h>

#include "aggregator/rounds/strategies/vectors.h"

fedge_status fedge_adaptive_init(const fedge_strategy_config *config, void **state,
                                 fedge_error *err)
{
    const fedge_adaptive_settings *settings = config->job->strategy_settings;
    fedge_strategy_vectors *made = NULL;
    const fedge_status status = fedge_strategy_vectors_new(config, 2, &made, err);
    for (size_t i = 0; status == FEDGE_OK && i < made->num_values; i++)
        made->values[made->num_values + i] = (float)(settings->tau * settings->tau);
    *state = made;
    return status;
}

/* A round's step: for the visits of its means. */
typedef struct pass {
    const fedge_adaptive_settings *settings;
    double rate;
    double (*next)(double beta2, double v, double square);
    float *m, *v, *model;
} pass;

static void visit(void *user, size_t first, size_t count, const double *mean)
{
    const pass *self = user;
    const fedge_adaptive_settings *with = self->settings;
    for (size_t i = 0; i < count; i++) {
        float *m = &self->m[first + i], *v = &self->v[first + i];
        *m = (float)(with->beta1 * (double)*m + (1.0 - with->beta1) * mean[i]);
        *v = (float)self->next(with->beta2, (double)*v, mean[i] * mean[i]);
        self->model[first + i] += (float)(self->rate * (double)*m / (sqrt((double)*v) + with->tau));
    }
}

fedge_status fedge_adaptive_step(void *state, const fedge_strategy_sum *sum, float *model,
                                 double (*next)(double beta2, double v, double square),
                                 fedge_step_rule rule, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const fedge_adaptive_settings *settings = self->settings;
    pass of = {.settings = settings,
               .rate = fedge_strategy_rate(&settings->common, sum->round),
               .next = next,
               .m = self->values,
               .v = self->values + self->num_values,
               .model = model};
    const fedge_optimizer_step optimizer = {.rule = rule,
                                            .num_kept = 2,
                                            .beta1 = settings->beta1,
                                            .beta2 = settings->beta2,
                                            .tau = settings->tau};
    bool done = false;
    fedge_status status = fedge_strategy_check_sum(sum, self->name, err);
    if (status == FEDGE_OK) {
        status = fedge_strategy_optimize(sum, &sum->delta, of.rate, &optimizer,
                                         (float *const[2]){of.m, of.v}, model, &done, err);
    }
    return status == FEDGE_OK && !done ? fedge_strategy_each_mean(sum, &sum->delta, visit, &of, err)
                                       : status;
}
