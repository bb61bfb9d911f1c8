/* Which jobs are simulated, and which are refused before anything is made for them. */
#include <inttypes.h>

#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/run/simulation_internal.h"
#include "edge/plan/client_hooks.h"

static bool holds_out(const fedge_client_data *client_data)
{
    for (uint32_t c = 0; c < client_data->num_clients; c++) {
        if (fedge_client_data_held_out(client_data, c).count > 0)
            return true;
    }
    return false;
}

fedge_status fedge_simulation_check_clients(const fedge_rounds_spec *spec, uint32_t num_clients,
                                            fedge_error *err)
{
    const uint32_t needed = fedge_cohort_needed(spec, FEDGE_TASK_TRAIN);
    return needed <= num_clients
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "the job's rounds need %" PRIu32 " clients (min-available-nodes, "
                            "min-train-nodes), and there are %" PRIu32 ": lower them or raise "
                            "--clients",
                            needed, num_clients);
}

/* Is there something to evaluate on, and one model to evaluate? */
static fedge_status check_evaluation(const fedge_simulation_config *config, fedge_error *err)
{
    if (config->job->rounds.fraction_evaluate > 0 && !holds_out(config->client_data)) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT,
            "the job's fraction-evaluate is over 0, and no client holds out examples: "
            "set 'validation-fraction' in the clients' file, high enough for one "
            "example of a client, or fraction-evaluate to 0");
    }
    if (fedge_plan_replaces(&config->job->plan) &&
        fedge_client_data_validation(config->client_data).count > 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--validation-split evaluates the server's model, and with %s some of "
                          "its layers belong to the clients: use rounds.fraction-evaluate",
                          config->job->strategy);
    }
    if (fedge_plan_chooses(&config->job->plan) &&
        fedge_client_data_validation(config->client_data).count > 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--validation-split evaluates the server's model, and with %s there are "
                          "several: use rounds.fraction-evaluate",
                          config->job->strategy);
    }
    return FEDGE_OK;
}

fedge_status fedge_simulation_check_shared(const fedge_job *job, fedge_error *err)
{
    const fedge_strategy_ops *strategy = NULL;
    FEDGE_TRY(fedge_strategy_of(job, &strategy, err));
    if (strategy->collects) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s looks at a round's updates one by one, and each update stays with "
                          "the rank that made it: start this simulation without mpirun",
                          job->strategy);
    }
    if (job->rounds.buffer_size > 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s has clients train from several models, which other ranks do not "
                          "have: start this simulation without mpirun",
                          job->strategy);
    }
    return FEDGE_OK;
}

fedge_status fedge_simulation_check(const fedge_simulation_config *config, fedge_error *err)
{
    const fedge_rounds_spec *spec = &config->job->rounds;
    const uint32_t clients = config->client_data->num_clients;
    if (config->job->plan.external) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "the job's model is external: only built-in models are simulated");
    }
    FEDGE_TRY(fedge_simulation_check_clients(spec, clients, err));
    const fedge_strategy_ops *strategy = NULL;
    FEDGE_TRY(fedge_strategy_of(config->job, &strategy, err));
    if (!fedge_collective_is_alone(config->collective))
        FEDGE_TRY(fedge_simulation_check_shared(config->job, err));
    if (spec->buffer_size > 0 && config->profiles && config->profiles->availability) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "--availability does not go with %s, whose clients are always there: "
                          "remove it, and use --compute and --failure",
                          config->job->strategy);
    }
    if (config->replay && (spec->buffer_size == 0 || config->profiles)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          spec->buffer_size == 0
                              ? "--replay: the rounds of %s follow from the job alone: remove it"
                              : "--replay says what rounds of %s have, and needs no virtual "
                                "time: remove --compute, --failure and the like",
                          config->job->strategy);
    }
    if (fedge_attack_lies(&config->attack) && !strategy->collects) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "--attack: malicious clients look at a round's updates, but %s sums "
                          "them as they come: use a robust rule (FedTrimmedAvg with \"beta\": 0 "
                          "is the plain mean), or the attack label-flip or backdoor",
                          config->job->strategy);
    }
    if (strategy->count_clients)
        FEDGE_TRY(strategy->count_clients(config->job->strategy_settings, clients, err));
    FEDGE_TRY(check_evaluation(config, err));
    if (config->evaluate_every == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "evaluate-every is 0: at least 1");
    return FEDGE_OK;
}
