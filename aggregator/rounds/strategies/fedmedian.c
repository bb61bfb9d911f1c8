/* FedMedian (Yin et al., "Byzantine-robust distributed learning: towards optimal statistical
 * rates", ICML 2018): the median of each coordinate, of an even number the mean of the two,
 *
 *     x ← x + η_s · median(Δ_i)
 */
#include "aggregator/rounds/robust/robust.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_ROBUST_MALICIOUS(0),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

static const fedge_robust_rule RULE = {.name = "FedMedian", .middle = FEDGE_ROBUST_MEDIAN};

static fedge_status derive(const fedge_json *json, fedge_job *job, void *settings, fedge_error *err)
{
    return fedge_robust_derive(&RULE, json, job, settings, err);
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    return fedge_robust_step(&RULE, state, sum, model, err);
}

const fedge_strategy_ops fedge_strategy_fedmedian = {
    .reader = {.name = "FedMedian",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(fedge_robust_settings),
               .derive = derive},
    .step = step,
    FEDGE_ROBUST_OPS,
};
