/* IFCA (Ghosh, Chung, Yin, Ramchandran, "An efficient framework for clustered federated learning",
 * NeurIPS 2020), with averages of models (algorithm 1, option II): there are k models; a client
 * trains the one with the lowest loss on its examples, j(i) (edge/plan/hooks/ifca.c), and
 *
 *     x_j ← x_j + η_s · Σ w_i Δ_i / Σ w_i       over the clients with j(i) = j; w_i: examples
 *
 * A model that no client trained stays. x_0 is the run's model; the others are the strategy's
 * broadcast state. Each is initialized with a different seed, or, if the model is external, from
 * its file in initial-models. k is 2 by default.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/strategies/common.h"
#include "aggregator/rounds/strategies/initial_models.h"
#include "aggregator/rounds/tiles.h"
#include "edge/core/fixed.h"
#include "edge/json/json.h"
#include "edge/plan/client_hooks.h"
#include "edge/train/model.h"

#define SEED_BITS 53 /* bits of a job's seed */

typedef struct settings {
    fedge_strategy_common common;
    fedge_hooks_arguments with;
    fedge_initial_models initial;
} settings;

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_NUM_CLUSTERS_FIELD(settings, with.num_clusters),
    FEDGE_INITIAL_MODELS_FIELD(settings, initial),
    FEDGE_JSON_END,
};

static fedge_status derive(const fedge_json *json, fedge_job *job, void *of, fedge_error *err)
{
    settings *with = of;
    if (job->test_set.present) {
        return fedge_json_fail_at(json, "test-set", err,
                                  "does not go with IFCA: which of its models is to be evaluated, "
                                  "only a client's training examples tell; remove it, and set "
                                  "rounds.fraction-evaluate");
    }
    return job->initial_model[0] == '\0' || job->plan.external
               ? fedge_initial_models_check(json, job, with->with.num_clusters - 1, &with->initial,
                                            err)
               : fedge_json_fail_at(json, "initial-model", err,
                                    "does not go with IFCA, whose models must begin unlike each "
                                    "other; remove it");
}

static uint32_t num_vectors(const void *of)
{
    return ((const settings *)of)->with.num_clusters - 1;
}

static fedge_status init(const fedge_strategy_config *config, void **state, fedge_error *err)
{
    const fedge_plan *plan = &config->job->plan;
    const settings *with = config->job->strategy_settings;
    fedge_strategy_vectors *made;
    *state = NULL;
    FEDGE_TRY(fedge_strategy_vectors_new(config, num_vectors(with), &made, err));
    *state = made;
    for (uint32_t j = 0; !plan->external && j < made->num_vectors; j++) {
        fedge_model_init_values(&plan->model, plan->seed + ((uint64_t)(j + 1) << SEED_BITS),
                                made->values + j * made->num_values);
    }
    return fedge_initial_models_read(config->job, &with->initial, made->values, err);
}

typedef struct pass {
    const fedge_strategy_sum *sum;
    uint32_t num_clusters;
    const double *totals; /* (num_clusters): total weight of each cluster */
    double rate;
    float *model;
    fedge_strategy_vectors *others;
} pass;

static uint32_t weight_of(const fedge_strategy_sum *sum, uint32_t i)
{
    return fedge_report_weight(sum->job, sum->facts[i].num_examples);
}

static fedge_status visit(void *user, const fedge_tile *tile, fedge_error *err)
{
    (void)err;
    const pass *self = user;
    const int8_t bound = self->sum->delta.bounds_log2[tile->tensor];
    int64_t sums[FEDGE_UPDATES_CHUNK];
    for (uint32_t j = 0; j < self->num_clusters; j++) {
        float *x = j == 0 ? self->model
                          : self->others->values + (size_t)(j - 1) * self->others->num_values;
        if (self->totals[j] == 0.0)
            continue;
        memset(sums, 0, tile->count * sizeof(*sums));
        for (uint32_t i = 0; i < tile->num; i++) {
            if (self->sum->facts[i].cluster == j)
                fedge_fixed_accumulate(sums, tile->rows[i], tile->count, weight_of(self->sum, i));
        }
        fedge_fixed_step(x + tile->first, sums, tile->count, (uint64_t)self->totals[j], bound,
                         self->rate);
    }
    return FEDGE_OK;
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const settings *with = self->settings;
    const uint32_t clusters = with->with.num_clusters;
    double totals[FEDGE_MAX_CLUSTERS] = {0};
    fedge_tiles tiles = {0};
    fedge_strategy_sum on_cpu = *sum; /* visit reads the rows on the CPU */
    on_cpu.accumulator = NULL;
    FEDGE_TRY(fedge_strategy_check_updates(sum, "IFCA", err));
    FEDGE_TRY(fedge_tiles_init(&tiles, &on_cpu, false, err));
    for (uint32_t i = 0; i < sum->num_updates; i++)
        totals[sum->facts[i].cluster < clusters ? sum->facts[i].cluster : 0] += weight_of(sum, i);
    pass of = {.sum = sum,
               .num_clusters = clusters,
               .totals = totals,
               .rate = fedge_strategy_rate(&with->common, sum->round),
               .model = model,
               .others = self};
    const fedge_status status = fedge_tiles_each(&tiles, visit, &of, err);
    fedge_tiles_fini(&tiles);
    return status;
}

const fedge_strategy_ops fedge_strategy_ifca = {
    .reader = {.name = "IFCA",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(settings),
               .derive = derive},
    .init = init,
    .step = step,
    .save = fedge_strategy_vectors_save,
    .load = fedge_strategy_vectors_load,
    .free = free,
    .state_per_value = sizeof(float),
    .num_vectors = num_vectors,
    .broadcast = fedge_strategy_broadcast_vectors,
    .collects = true,
    .uses_examples = true,
};
