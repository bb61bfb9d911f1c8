/* FLTrust (Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust federated learning via trust
 * bootstrapping", NDSS 2021): the server trains on a small clean data set, the root set, and trusts
 * updates that point in the same direction,
 *
 *     x ← x + η_s Σ T_i (‖Δ_0‖ / ‖Δ_i‖) Δ_i / Σ T_i,   T_i = max(0, cos(Δ_i, Δ_0))
 *
 * Δ_0 is the update that a client with the root set would send, or the server's plugin has made
 * (root_trainer.h). When no client is
 * trusted x stays. The factors are integers in the sum, of at most 30 bits. By default η_s is 1, as
 * in the paper, and updates are not mixed; Δ_0 is never mixed.
 */
#include <math.h>
#include <stdlib.h>

#include "aggregator/rounds/robust/robust.h"
#include "aggregator/rounds/root_trainer.h"
#include "edge/plan/plan.h"

typedef struct settings {
    fedge_robust_settings robust;
    fedge_test_set root;
} settings;

static const fedge_json_field ROOT_SET[] = {
    {"values", NULL, FEDGE_JSON_LINES, FEDGE_JSON_REQUIRED, FEDGE_JSON_AT(fedge_test_set, images),
     .min = 1, .max = FEDGE_MAX_PATH - 1},
    {.key = "labels",
     .kind = FEDGE_JSON_LINES,
     FEDGE_JSON_AT(fedge_test_set, labels),
     .max = FEDGE_MAX_PATH - 1},
    FEDGE_JSON_END,
};

static const fedge_json_field ARGUMENTS[] = {
    {"root-set", "root_set", FEDGE_JSON_OBJECT, 0, FEDGE_JSON_AT(settings, root),
     .fields = ROOT_SET},
    FEDGE_ROBUST_MALICIOUS(0),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

typedef struct trust {
    settings *with; /* settings of the job */
    fedge_root_trainer *trainer;
} trust;

/* The server's update is the last row. */
static fedge_status select_updates(const fedge_robust_settings *with, const fedge_gram *gram,
                                   fedge_robust_choice *choice, fedge_error *err)
{
    (void)with;
    const uint32_t num = gram->num, last = num - 1;
    double *factors = calloc(num, sizeof(*factors)), trusted = 0.0;
    if (!factors)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u scores", (unsigned)num);
    const double root = sqrt(gram->dots[(size_t)last * num + last]);
    for (uint32_t i = 0; i < last; i++) {
        const double norm = sqrt(gram->dots[(size_t)i * num + i]);
        const double dot = gram->dots[(size_t)last * num + i];
        if (norm > 0.0 && root > 0.0 && dot > 0.0) {
            const double score = dot / (norm * root);
            factors[i] = score * root / norm;
            trusted += score;
        }
    }
    choice->divisor = fedge_robust_weigh(choice, factors) * trusted;
    free(factors);
    return FEDGE_OK;
}

static const fedge_robust_rule RULE = {.name = "FLTrust",
                                       .reduction = FEDGE_ROW_MEAN,
                                       .select = select_updates,
                                       .extent = FEDGE_GRAM_LAST,
                                       .num_root = 1};

static fedge_status derive(const fedge_json *json, fedge_job *job, void *of, fedge_error *err)
{
    settings *self = of;
    return self->root.images[0] == '\0' ||
                   (fedge_paths_resolve(json->options.name, self->root.images) &&
                    fedge_paths_resolve(json->options.name, self->root.labels))
               ? fedge_robust_derive(&RULE, json, job, &self->robust, err)
               : fedge_json_fail_at(json, "strategy.root-set", err,
                                    "has paths that are too long with the folder of the job before "
                                    "them: move the files nearer");
}

static fedge_status check(const fedge_json *json, const fedge_job *job, fedge_error *err)
{
    FEDGE_TRY(fedge_robust_check(json, job, err));
    const settings *self = job->strategy_settings;
    return fedge_root_trainer_check(json, job, &self->root, err);
}

static fedge_status init(const fedge_strategy_config *config, void **state, fedge_error *err)
{
    *state = NULL;
    trust *self = calloc(1, sizeof(*self));
    if (!self)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for FLTrust");
    self->with = config->job->strategy_settings;
    const fedge_status status =
        fedge_root_trainer_new(config->job, &self->with->root, &self->trainer, err);
    if (status != FEDGE_OK) {
        free(self);
        return status;
    }
    *state = self;
    return FEDGE_OK;
}

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    const trust *self = state;
    fedge_root_updates both = {.clients = sum->updates, .schema = sum->delta.schema};
    FEDGE_TRY(fedge_strategy_check_updates(sum, RULE.name, err));
    FEDGE_TRY(fedge_root_trainer_run(self->trainer, sum->round, model, sum->delta.bounds_log2,
                                     &both.root, err));
    const fedge_updates updates = fedge_root_updates_of(&both);
    fedge_strategy_sum with = *sum;
    with.updates = &updates;
    with.num_updates = updates.num;
    return fedge_robust_step(&RULE, self->with, &with, model, err);
}

static void free_state(void *state)
{
    trust *self = state;
    if (!self)
        return;
    fedge_root_trainer_free(self->trainer);
    free(self);
}

const fedge_strategy_ops fedge_strategy_fltrust = {
    .reader = {.name = "FLTrust",
               .arguments = ARGUMENTS,
               .settings_size = sizeof(settings),
               .derive = derive,
               .check = check},
    .weight = fedge_strategy_weigh_equally,
    .init = init,
    .step = step,
    .save = fedge_strategy_save_nothing,
    .load = fedge_strategy_load_nothing,
    .free = free_state,
    .collects = true,
};
