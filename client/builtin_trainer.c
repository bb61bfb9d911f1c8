#include "client/builtin_trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/data/dataset.h"
#include "edge/data/formats/file_list.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"

#define ALIGNMENT 64 /* alignment of a model's block and the trainer's scratch */

struct fedge_builtin {
    fedge_builtin_config config;
    const fedge_plan *plan;         /* the client's plan; NULL before the first */
    fedge_model *model, *evaluator; /* trains; [evaluator] may be the same model */
    void *block, *evaluator_block;
    fedge_dataset *dataset; /* NULL before the first task */
    fedge_view train, held_out;
    void *scratch;
    size_t scratch_size;
    uint32_t client_index; /* index by which the data set was divided */
    void *state; /* state of config.backend, with the data set; there are no models then */
};

static void *aligned_block(size_t size)
{
    return aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static void drop_data(fedge_builtin *t)
{
    if (t->state)
        t->config.backend->close(t->state);
    t->state = NULL;
    fedge_view_fini(&t->train);
    fedge_view_fini(&t->held_out);
    fedge_dataset_free(t->dataset);
    free(t->scratch);
    t->dataset = NULL;
    t->scratch = NULL;
}

static void drop_plan(fedge_builtin *t)
{
    drop_data(t);
    free(t->block);
    free(t->evaluator_block);
    t->block = t->evaluator_block = NULL;
    t->model = t->evaluator = NULL;
    t->plan = NULL;
}

/* Reports a lost device; other failures concern only the plan or the task. */
static fedge_status check_backend(const fedge_builtin *t, fedge_status status,
                                  const fedge_error *err)
{
    if (status == FEDGE_GPU_LOST && t->config.lost)
        t->config.lost(err);
    return status;
}

/* --- plan ------------------------------------------------------------------------------------ */

static fedge_status fail_undivided(const fedge_site_data *data, fedge_error *err)
{
    return fedge_fail(err, FEDGE_UNSUPPORTED,
                      "the client file names no 'partition' for data set '%s', but this client "
                      "is to take part %u of %u",
                      data->name, data->partition_id, data->num_partitions);
}

/* Fails here rather than in the first task: the client can still decline the plan with a reason. */
static fedge_status check_data(const fedge_builtin *t, const fedge_plan *plan, fedge_error *err)
{
    if (!plan->has_data)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "the plan names no data");
    const fedge_site_data *data;
    FEDGE_TRY(fedge_site_find_data(t->config.site, plan, &data, err));
    const char *const paths[] = {data->values, data->labels};
    for (int i = 0; i < 2; i++) {
        fedge_file_list files;
        const fedge_status status = fedge_file_list_open(&files, paths[i], err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "data set '%s'", data->name);
        fedge_file_list_close(&files);
    }
    return data->num_partitions == 0 || data->has_partition ? FEDGE_OK : fail_undivided(data, err);
}

static fedge_status make_model(const fedge_plan *plan, const fedge_model_options *options,
                               void **block, fedge_model **model, fedge_error *err)
{
    fedge_model_memory memory;
    FEDGE_TRY(fedge_model_size(&plan->model, options, &memory, err));
    *block = aligned_block(memory.total);
    if (!*block)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model of %zu bytes", memory.total);
    fedge_os_large_pages(*block, memory.total);
    return fedge_model_new(model, &plan->model, options, *block, memory.total, err);
}

static fedge_status on_check(void *user, fedge_client *client, const fedge_client_plan *view,
                             fedge_error *err)
{
    (void)client;
    fedge_builtin *t = user;
    drop_plan(t); /* its plan is gone */
    if (view->external) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "the model is external: it needs a trainer of its own (libfedge_client)");
    }
    FEDGE_TRY(check_data(t, view->full, err));
    return t->config.backend ? t->config.backend->check(view->full, err) : FEDGE_OK;
}

/* After on_check. */
static fedge_status on_plan(void *user, fedge_client *client, const fedge_client_plan *view,
                            fedge_error *err)
{
    (void)client;
    fedge_builtin *t = user;
    const fedge_plan *plan = view->full;
    fedge_model_options options = fedge_plan_model_options(plan);
    if (t->config.backend) {
        FEDGE_TRY(
            check_backend(t, t->config.backend->check_gpus(plan, t->config.settings, err), err));
    } else {
        FEDGE_TRY(make_model(plan, &options, &t->block, &t->model, err));
        /* One model for both, unless evaluation needs another batch or precision. */
        t->evaluator = t->model;
        if (fedge_plan_evaluation_options(plan, &options))
            FEDGE_TRY(make_model(plan, &options, &t->evaluator_block, &t->evaluator, err));
    }
    t->plan = plan;
    return FEDGE_OK;
}

/* --- data ------------------------------------------------------------------------------------ */

fedge_status fedge_builtin_load(const fedge_data_spec *spec, const fedge_site_data *data,
                                fedge_dataset **dataset, fedge_error *err)
{
    *dataset = NULL;
    if (data->num_partitions == 0)
        return fedge_dataset_load(spec, data->values, data->labels, dataset, err);
    if (!data->has_partition)
        return fail_undivided(data, err);
    return fedge_dataset_load_part(spec, data->values, data->labels, &data->partition,
                                   data->partition_id, data->num_partitions, dataset, err);
}

/* Loads what drop_data frees. */
static fedge_status open_data(fedge_builtin *t, fedge_error *err)
{
    const fedge_site_data *data;
    FEDGE_TRY(fedge_site_find_data(t->config.site, t->plan, &data, err));
    FEDGE_TRY(fedge_builtin_load(&t->plan->data, data, &t->dataset, err));
    t->train = (fedge_view){t->dataset, NULL, fedge_dataset_size(t->dataset)};
    FEDGE_TRY(fedge_view_split(&t->train, data->validation_fraction, t->plan->seed, t->client_index,
                               &t->held_out, err));
    /* One scratch for training and evaluation. */
    uint32_t most = t->train.count > t->held_out.count ? t->train.count : t->held_out.count;
    t->scratch_size = fedge_plan_scratch_size(t->plan, most, t->plan->training.batch_size);
    t->scratch = aligned_block(t->scratch_size);
    if (!t->scratch) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu bytes of scratch",
                          t->scratch_size);
    }
    return t->config.backend
               ? check_backend(t,
                               t->config.backend->open(t->plan, t->dataset, t->config.settings,
                                                       t->config.log, t->config.lost, &t->state,
                                                       err),
                               err)
               : FEDGE_OK;
}

static fedge_status load_data(fedge_builtin *t, uint32_t client_index, fedge_error *err)
{
    /* The division depends on the index, which may differ between two runs. */
    if (t->dataset && t->client_index == client_index)
        return FEDGE_OK;
    drop_data(t);
    t->client_index = client_index;
    const fedge_status status = open_data(t, err);
    if (status != FEDGE_OK)
        drop_data(t);
    return status;
}

/* --- work ------------------------------------------------------------------------------------ */

static bool cancelled(void *user)
{
    return fedge_client_cancelled(user);
}

static fedge_status fill_report(const fedge_trainer_result *result, fedge_client_report *report,
                                fedge_error *err)
{
    double seen = result->num_seen ? (double)result->num_seen : 1;
    report->num_examples = result->num_examples;
    report->num_steps = result->num_steps;
    FEDGE_TRY(fedge_client_metric(report, "loss", result->loss_sum / seen, err));
    return fedge_client_metric(report, "accuracy", (double)result->correct / seen, err);
}

/* Adds the errors of numbers that were evaluated. */
static fedge_status report_errors(const fedge_builtin *t, const fedge_trainer_result *result,
                                  fedge_client_report *report, fedge_error *err)
{
    double values[FEDGE_ERROR_METRICS], variation = 0.0;
    if (!FEDGE_WITH_TARGETS || !fedge_plan_has_errors(t->plan))
        return FEDGE_OK;
    FEDGE_TRY(fedge_view_variation(&t->held_out, &variation, err));
    fedge_errors_values(&result->errors, variation, values);
    for (int i = 0; i < FEDGE_ERROR_METRICS; i++) {
        if (isfinite(values[i]))
            FEDGE_TRY(fedge_client_metric(report, fedge_error_metric_names[i], values[i], err));
    }
    return FEDGE_OK;
}

static fedge_trainer_workspace workspace_of(const fedge_builtin *t, fedge_client *client)
{
    return (fedge_trainer_workspace){t->scratch, t->scratch_size, cancelled, client};
}

/* Evaluates [values] in a backend, or the model's values on the CPU. */
static fedge_status evaluate(fedge_builtin *t, fedge_model *model, const fedge_view *view,
                             const float *values, fedge_client *client,
                             fedge_trainer_result *result, fedge_error *err)
{
    if (t->config.backend) {
        const fedge_backend_call call = {view, NULL, NULL, cancelled, client};
        return check_backend(t, t->config.backend->evaluate(t->state, &call, values, result, err),
                             err);
    }
    const fedge_examples examples = fedge_view_examples(view);
    const fedge_trainer_workspace workspace = workspace_of(t, client);
    return fedge_trainer_evaluate(model, &examples, fedge_model_max_batch(model), &workspace,
                                  result, err);
}

/* Reports the loss before training. */
static fedge_status measure(fedge_builtin *t, const float *values, fedge_client *client,
                            fedge_client_report *report, fedge_error *err)
{
    fedge_trainer_result result;
    FEDGE_TRY(evaluate(t, t->model, &t->train, values, client, &result, err));
    return result.num_seen == 0
               ? FEDGE_OK
               : fedge_client_metric(report, FEDGE_START_LOSS,
                                     result.loss_sum / (double)result.num_seen, err);
}

/* Selects the model with the least loss on this device's examples, the first of equal ones;
 * *values: its values. */
static fedge_status choose(fedge_builtin *t, const fedge_client_task *task, const float **values,
                           fedge_client *client, uint32_t *chosen, fedge_error *err)
{
    const float *const first = *values;
    const size_t count = t->plan->schema.num_elements;
    double least = INFINITY;
    *chosen = 0;
    for (uint32_t i = 0; i <= fedge_plan_num_broadcast(t->plan); i++) {
        const float *at = i == 0 ? first : task->others + (i - 1) * count;
        fedge_trainer_result result;
        if (!t->config.backend)
            fedge_model_set_state(t->model, at);
        const fedge_status status = evaluate(t, t->model, &t->train, at, client, &result, err);
        /* A diverged model is skipped; the others may fit. */
        if (status != FEDGE_OK && status != FEDGE_NOT_FINITE)
            return status;
        if (status == FEDGE_OK && result.loss_sum < least) {
            least = result.loss_sum;
            *chosen = i;
            *values = at;
        }
    }
    return FEDGE_OK;
}

static fedge_status train_personal(fedge_builtin *t, fedge_client *client,
                                   const fedge_client_task *task, float *values,
                                   fedge_client_report *report, fedge_error *err)
{
    fedge_trainer_result result;
    const fedge_trainer_config config =
        fedge_plan_trainer_config(t->plan, task->round, task->client_index, task->learning_rate);
    const fedge_examples stored = fedge_view_examples(&t->train);
    fedge_augmented augmented;
    const fedge_examples examples = fedge_plan_augment(t->plan, &config, &stored, &augmented);
    const fedge_trainer_workspace workspace = workspace_of(t, client);
    const fedge_local_training with = {.plan = t->plan,
                                       .model = t->model,
                                       .examples = &examples,
                                       .config = &config,
                                       .workspace = &workspace};
    FEDGE_TRY(fedge_personal_train(&with, values, task->personal, &result, err));
    return fill_report(&result, report, err);
}

static fedge_status train_on_cpu(fedge_builtin *t, fedge_client *client,
                                 const fedge_trainer_config *config, float *values,
                                 fedge_trainer_result *result, fedge_error *err)
{
    const fedge_examples stored = fedge_view_examples(&t->train);
    fedge_augmented augmented;
    const fedge_examples examples = fedge_plan_augment(t->plan, config, &stored, &augmented);
    const fedge_trainer_workspace workspace = workspace_of(t, client);
    FEDGE_TRY(fedge_trainer_run(t->model, &examples, config, &workspace, result, err));
    fedge_model_get_trained(t->model, values);
    return FEDGE_OK;
}

static fedge_status on_train(void *user, fedge_client *client, const fedge_client_task *task,
                             float *values, fedge_client_report *report, fedge_error *err)
{
    fedge_builtin *t = user;
    fedge_trainer_result result;
    if (!t->plan)
        return fedge_fail(err, FEDGE_INTERNAL, "a task without a plan");
    const fedge_trainer_config config =
        fedge_plan_trainer_config(t->plan, task->round, task->client_index, task->learning_rate);
    FEDGE_TRY(load_data(t, task->client_index, err));
    if (task->personal)
        return train_personal(t, client, task, values, report, err);
    if (fedge_plan_is_clustered(t->plan)) {
        const float *best = values;
        FEDGE_TRY(choose(t, task, &best, client, &report->chosen, err));
        if (report->chosen > 0)
            memcpy(values, best, t->plan->schema.num_elements * sizeof(float));
    }
    if (!t->config.backend) {
        fedge_model_set_state(t->model, values);
        /* Momentum of an earlier task must not affect this one. */
        fedge_model_reset_optimizer(t->model);
        if (task->correction) {
            memcpy(fedge_model_correction(t->model), task->correction,
                   fedge_model_num_values(t->model) * sizeof(float));
        }
    }
    if (fedge_plan_measures(t->plan))
        FEDGE_TRY(measure(t, values, client, report, err));
    if (t->config.backend) {
        const fedge_backend_call call = {&t->train, &config, task->correction, cancelled, client};
        FEDGE_TRY(
            check_backend(t, t->config.backend->train(t->state, &call, values, &result, err), err));
    } else {
        FEDGE_TRY(train_on_cpu(t, client, &config, values, &result, err));
    }
    return fill_report(&result, report, err);
}

static fedge_status on_evaluate(void *user, fedge_client *client, const fedge_client_task *task,
                                const float *values, fedge_client_report *report, fedge_error *err)
{
    fedge_builtin *t = user;
    fedge_trainer_result result;
    if (!t->plan)
        return fedge_fail(err, FEDGE_INTERNAL, "a task without a plan");
    FEDGE_TRY(load_data(t, task->client_index, err));
    if (t->held_out.count == 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "no examples are held out: set 'validation-fraction' in the client file");
    }
    if (fedge_plan_is_clustered(t->plan))
        FEDGE_TRY(choose(t, task, &values, client, &report->chosen, err));
    if (!t->config.backend)
        fedge_model_set_state(t->evaluator, values);
    FEDGE_TRY(evaluate(t, t->evaluator, &t->held_out, values, client, &result, err));
    FEDGE_TRY(fill_report(&result, report, err));
    return report_errors(t, &result, report, err);
}

/* --- life ------------------------------------------------------------------------------------ */

fedge_status fedge_builtin_new(const fedge_builtin_config *config, fedge_builtin **trainer,
                               fedge_client_callbacks *callbacks, fedge_error *err)
{
    *trainer = NULL;
    fedge_builtin *t = calloc(1, sizeof(*t));
    if (!t)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a trainer");
    t->config = *config;
    *callbacks = (fedge_client_callbacks){.struct_size = sizeof(*callbacks),
                                          .user = t,
                                          .plan = on_plan,
                                          .train = on_train,
                                          .evaluate = on_evaluate,
                                          .check = on_check,
                                          .heeds_plan = true};
    *trainer = t;
    return FEDGE_OK;
}

void fedge_builtin_free(fedge_builtin *trainer)
{
    if (!trainer)
        return;
    drop_plan(trainer);
    free(trainer);
}
