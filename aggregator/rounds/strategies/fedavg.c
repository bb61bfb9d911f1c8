/* FedAvg (McMahan et al., "Communication-efficient learning of deep networks from decentralized
 * data", AISTATS 2017), with a server learning rate η_s, 1 by default:
 *
 *     x ← x + η_s · Σ w_i Δ_i / Σ w_i          w_i: the client's examples
 */
#include "aggregator/rounds/strategies/fedavg.h"

#include "edge/io/json.h"

fedge_status fedge_fedavg_init(const fedge_strategy_config *config, void **state, fedge_error *err)
{
    (void)err;
    *state = config->job->strategy_settings; /* all there is; the job's, which outlives this */
    return FEDGE_OK;
}

fedge_status fedge_fedavg_step(void *state, const fedge_strategy_sum *sum, float *model,
                               fedge_error *err)
{
    const fedge_strategy_common *common = state;
    const fedge_status status = fedge_strategy_check_sum(sum, "FedAvg", err);
    return status == FEDGE_OK
               ? fedge_strategy_move(sum, &sum->delta, fedge_strategy_rate(common, sum->round),
                                     model, err)
               : status;
}

void fedge_fedavg_free(void *state)
{
    (void)state;
}

fedge_status fedge_refuse_test_set(const fedge_json *json, fedge_job *job, void *settings,
                                   fedge_error *err)
{
    (void)settings;
    return job->test_set.present
               ? fedge_json_fail_at(json, "test-set", err,
                                    "does not go with %s: the layers that stay with clients are "
                                    "not trained in the server's model; remove it, and set "
                                    "rounds.fraction-evaluate to evaluate clients' own models",
                                    job->strategy)
               : FEDGE_OK;
}

const fedge_strategy_ops fedge_strategy_fedavg = {
    .reader = {.name = "FedAvg", .settings_size = sizeof(fedge_strategy_common)},
    .init = fedge_fedavg_init,
    .step = fedge_fedavg_step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = fedge_fedavg_free,
};
