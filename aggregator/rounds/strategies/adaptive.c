#include "aggregator/rounds/strategies/adaptive.h"

#include "aggregator/rounds/strategy_vectors.h"

fedge_status fedge_adaptive_init(const fedge_strategy_config *config, void **state,
                                 fedge_error *err)
{
    const fedge_adaptive_settings *settings = config->job->strategy_settings;
    fedge_strategy_vectors *made = NULL;
    const fedge_status status = fedge_strategy_vectors_new(config, 2, &made, err);
    /* v is τ² at first, the least that the paper's algorithm 2 takes (Reddi et al. 2021). */
    for (size_t i = 0; status == FEDGE_OK && i < made->num_values; i++)
        made->values[made->num_values + i] = (float)(settings->tau * settings->tau);
    *state = made;
    return status;
}

fedge_status fedge_adaptive_step(void *state, const fedge_strategy_sum *sum, float *model,
                                 fedge_step_rule rule, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const fedge_adaptive_settings *settings = self->settings;
    const fedge_optimizer_step optimizer = {.rule = rule,
                                            .num_kept = 2,
                                            .beta1 = settings->beta1,
                                            .beta2 = settings->beta2,
                                            .tau = settings->tau};
    float *const kept[2] = {self->values, self->values + self->num_values};
    FEDGE_TRY(fedge_strategy_check_sum(sum, self->name, err));
    return fedge_strategy_optimize(sum, &sum->delta,
                                   fedge_strategy_rate(&settings->common, sum->round), &optimizer,
                                   kept, model, err);
}
