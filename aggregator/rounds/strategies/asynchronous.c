#include "aggregator/rounds/strategies/asynchronous.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "edge/plan/client_hooks.h"

const char *fedge_staleness_weight_name(unsigned weight)
{
    static const char *const NAMES[] = {"polynomial", "constant", "hinge"};
    return weight < FEDGE_STALENESS_COUNT ? NAMES[weight] : NULL;
}

static bool is_uniform(const fedge_rounds_spec *rounds)
{
    return rounds->sampler.type == FEDGE_SAMPLER_uniform;
}

fedge_status fedge_asynchronous_derive(const fedge_json *json, fedge_job *job, void *settings,
                                       fedge_error *err)
{
    const fedge_asynchronous *with = settings;
    fedge_rounds_spec *rounds = &job->rounds;
    const struct {
        bool is_wrong;
        const char *key, *why;
    } refused[] = {
        {rounds->over_selection > 1.0, "rounds.over-selection",
         "nobody waits for stragglers here, whose updates count later; remove it"},
        {rounds->fraction_evaluate > 0.0, "rounds.fraction-evaluate",
         "clients are at work when a round closes and cannot evaluate; remove it, and use a "
         "test-set"},
        {!is_uniform(rounds), "rounds.sampler",
         "clients are asked one by one as others finish; remove it"},
        {job->plan.update.down.values != NULL, "update.down",
         "models travel whole, since clients are at work on several; remove it"},
        /* Sparsifiers and residuals depend on the round. With a buffer a client may be at work when
           a round closes, and may get two tasks in another. */
        {fedge_plan_makes_residual(&job->plan), "update",
         "what clients keep of it needs rounds that wait for them; take a codec that does not "
         "choose, such as int8, without error-feedback"},
        {with->buffer_size > rounds->max_cohort, "strategy.buffer-size",
         "a round closes with this many updates, and at most max-cohort clients are at work; lower "
         "it, or raise rounds.max-cohort"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (refused[i].is_wrong) {
            return fedge_json_fail_at(json, refused[i].key, err, "does not go with %s: %s",
                                      job->strategy, refused[i].why);
        }
    }
    rounds->buffer_size = with->buffer_size;
    rounds->max_staleness = with->max_staleness;
    return FEDGE_OK;
}

fedge_status fedge_asynchronous_check_job(const fedge_json *json, const fedge_job *job,
                                          fedge_error *err)
{
    const fedge_plan *plan = &job->plan;
    return plan->num_parameters < plan->schema.num_elements ||
                   !fedge_section_is_whole(plan, &plan->sent.sections[0])
               ? fedge_json_fail_at(json, "model.layers", err,
                                    "%s needs a model that is trained whole, without BatchNorm: "
                                    "use GroupNorm and train all layers, or take FedAvg",
                                    job->strategy)
               : FEDGE_OK;
}

uint32_t fedge_asynchronous_num_vectors(const void *settings)
{
    return ((const fedge_asynchronous *)settings)->max_staleness;
}

fedge_status fedge_asynchronous_init(const fedge_strategy_config *config, void **state,
                                     fedge_error *err)
{
    fedge_strategy_vectors *made = NULL;
    *state = NULL;
    const fedge_status status = fedge_strategy_vectors_new(
        config, fedge_asynchronous_num_vectors(config->job->strategy_settings), &made, err);
    *state = made;
    return status;
}

double fedge_asynchronous_unit(const fedge_job *job)
{
    /* A power of two, so that weights are exact fractions of it. */
    return exp2(floor(log2((double)job->rounds.max_weight)));
}

static double weight_of(const fedge_asynchronous *with, uint32_t staleness)
{
    const double s = staleness, b = with->delay;
    switch (with->weight) {
    case FEDGE_STALENESS_POLYNOMIAL:
        return pow(1.0 + s, -with->exponent);
    case FEDGE_STALENESS_HINGE:
        return s <= b ? 1.0 : 1.0 / (with->slope * (s - b) + 1.0);
    default:
        return 1.0;
    }
}

uint32_t fedge_asynchronous_weight(const void *state, const fedge_job *job,
                                   const fedge_update_facts *facts)
{
    const fedge_strategy_vectors *self = state;
    const double value =
        rint(fedge_asynchronous_unit(job) * weight_of(self->settings, facts->staleness));
    return value < 1.0 ? 1 : (uint32_t)value;
}

const float *fedge_asynchronous_base(const void *state, uint32_t version)
{
    const fedge_strategy_vectors *self = state;
    /* A ring buffer large enough for the base of the oldest task that still counts. */
    return self->values + (size_t)(version % self->num_vectors) * self->num_values;
}

fedge_status fedge_asynchronous_check(const fedge_strategy_vectors *state,
                                      const fedge_strategy_sum *sum, fedge_error *err)
{
    const fedge_status status = fedge_strategy_check_sum(sum, state->name, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < sum->num_updates; i++) {
        const uint32_t staleness = sum->facts[i].staleness;
        if (staleness > state->num_vectors || staleness >= sum->round) {
            return fedge_fail(err, FEDGE_INTERNAL,
                              "%s: round %" PRIu32 " has an update of staleness %" PRIu32,
                              state->name, sum->round, staleness);
        }
    }
    return status;
}

void fedge_asynchronous_keep(fedge_strategy_vectors *state, const fedge_strategy_sum *sum,
                             const float *model)
{
    const size_t slot = (sum->round - 1) % state->num_vectors;
    memcpy(state->values + slot * state->num_values, model, state->num_values * sizeof(*model));
}
