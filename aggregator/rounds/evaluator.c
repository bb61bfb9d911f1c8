#include "aggregator/rounds/evaluator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/python_plugin.h"
#include "edge/data/dataset.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"

#define ALIGNMENT 64
#define MESSAGE 256

bool fedge_has_accuracy(const fedge_plan *plan)
{
    return plan->external || plan->model.loss == FEDGE_LOSS_CROSS_ENTROPY ||
           plan->model.loss == FEDGE_LOSS_BCE_WITH_LOGITS;
}

struct fedge_evaluator {
    bool has_accuracy, has_errors;
    double variation;                   /* variation of the targets (fedge_errors_values) */
    double errors[FEDGE_ERROR_METRICS]; /* errors of the last run */
    fedge_dataset *owned_dataset;       /* NULL: the caller owns the data set */
    fedge_view view;
    fedge_model *model; /* NULL: there is no test set */
    uint32_t num_outputs;
    void *block, *scratch;
    size_t scratch_size;
    const fedge_metric_plugin *metrics; /* NULL: none */
    void *counted;                      /* state of the plugin: metrics->state_size bytes */
    fedge_python_model *own;            /* the plugin's evaluation; NULL: none */
};

static void *aligned(size_t size)
{
    return aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static fedge_status set_up(fedge_evaluator *evaluator, const fedge_plan *plan,
                           const fedge_dataset *dataset, fedge_error *err)
{
    evaluator->has_accuracy = fedge_has_accuracy(plan);
    evaluator->num_outputs = fedge_model_num_classes(&plan->model);
    evaluator->view = (fedge_view){.dataset = dataset, .count = fedge_dataset_size(dataset)};
    evaluator->has_errors = fedge_plan_has_errors(plan);
    if (evaluator->has_errors)
        FEDGE_TRY(fedge_view_variation(&evaluator->view, &evaluator->variation, err));
    fedge_model_options options = {.max_batch = FEDGE_EVALUATOR_BATCH, .training = false};
    fedge_model_memory memory;
    FEDGE_TRY(fedge_model_size(&plan->model, &options, &memory, err));
    evaluator->scratch_size =
        fedge_plan_scratch_size(plan, evaluator->view.count, FEDGE_EVALUATOR_BATCH);
    evaluator->block = aligned(memory.total);
    evaluator->scratch = aligned(evaluator->scratch_size);
    if (!evaluator->block || !evaluator->scratch) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to evaluate the model (%zu bytes)",
                          memory.total + evaluator->scratch_size);
    }
    return fedge_model_new(&evaluator->model, &plan->model, &options, evaluator->block,
                           memory.total, err);
}

static fedge_status make(const fedge_job *job, const fedge_dataset *dataset,
                         fedge_evaluator **evaluator, fedge_error *err)
{
    fedge_evaluator *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the test set");
    fedge_status status = FEDGE_OK;
    if (!dataset) {
        status = fedge_dataset_load(&job->plan.data, job->test_set.images, job->test_set.labels,
                                    &fresh->owned_dataset, err);
        if (status != FEDGE_OK) {
            status = fedge_error_prefix(err, status, "test-set");
            goto failed;
        }
        dataset = fresh->owned_dataset;
    }
    FEDGE_TRY_OR(set_up(fresh, &job->plan, dataset, err), failed);
    *evaluator = fresh;
    return FEDGE_OK;

failed:
    fedge_evaluator_free(fresh);
    return status;
}

fedge_status fedge_evaluator_new(const fedge_job *job, fedge_evaluator **evaluator,
                                 fedge_error *err)
{
    *evaluator = NULL;
    return !job->test_set.present || job->plan.external ? FEDGE_OK
                                                        : make(job, NULL, evaluator, err);
}

fedge_status fedge_evaluator_new_on(const fedge_job *job, const fedge_dataset *dataset,
                                    fedge_evaluator **evaluator, fedge_error *err)
{
    *evaluator = NULL;
    return make(job, dataset, evaluator, err);
}

fedge_status fedge_evaluator_set_metrics(fedge_evaluator *evaluator,
                                         const fedge_metric_plugin *metrics, fedge_error *err)
{
    evaluator->metrics = metrics;
    free(evaluator->counted);
    /* One byte more, since a plugin may need no state and malloc(0) may return NULL. */
    evaluator->counted = metrics ? calloc(1, metrics->state_size + 1) : NULL;
    return !metrics || evaluator->counted
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for metrics (%zu bytes)",
                            metrics->state_size);
}

fedge_status fedge_evaluator_add_plugin(fedge_evaluator **evaluator, const fedge_job *job,
                                        const fedge_plugin *plugin, fedge_error *err)
{
    const fedge_metric_plugin *metrics = fedge_plugin_metrics(plugin);
    if (!*evaluator && fedge_plugin_evaluates(plugin)) {
        *evaluator = calloc(1, sizeof(**evaluator));
        if (!*evaluator)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to evaluate the model");
    }
    if (!*evaluator)
        return FEDGE_OK;
    if ((*evaluator)->model)
        FEDGE_TRY(fedge_evaluator_set_metrics(*evaluator, metrics, err));
    return fedge_plugin_evaluation(plugin, &job->plan.schema, &(*evaluator)->own, err);
}

void fedge_evaluator_free(fedge_evaluator *evaluator)
{
    if (!evaluator)
        return;
    fedge_python_model_free(evaluator->own);
    fedge_view_fini(&evaluator->view);
    fedge_dataset_free(evaluator->owned_dataset);
    free(evaluator->block);
    free(evaluator->scratch);
    free(evaluator->counted);
    free(evaluator);
}

fedge_status fedge_evaluator_run(fedge_evaluator *evaluator, const float *values, double *loss,
                                 double *accuracy, fedge_error *err)
{
    *loss = *accuracy = NAN;
    if (!evaluator->model)
        return FEDGE_OK;
    fedge_model_set_state(evaluator->model, values);
    fedge_examples examples = fedge_view_examples(&evaluator->view);
    const fedge_trainer_workspace workspace = {.scratch = evaluator->scratch,
                                               .scratch_size = evaluator->scratch_size};
    fedge_trainer_result result;
    fedge_status status = fedge_trainer_evaluate(evaluator->model, &examples, FEDGE_EVALUATOR_BATCH,
                                                 &workspace, &result, err);
    if (status != FEDGE_OK)
        result.errors = (fedge_errors){0};
    fedge_errors_values(&result.errors, evaluator->variation, evaluator->errors);
    /* A model that has diverged is a result for the round log, not an error. The run continues
     * until early stopping or its user ends it. */
    if (status == FEDGE_NOT_FINITE) {
        *loss = NAN;
        *accuracy = evaluator->has_accuracy ? 0.0 : NAN;
        return FEDGE_OK;
    }
    if (status == FEDGE_OK) {
        *loss = result.loss_sum / (double)result.num_seen;
        *accuracy =
            evaluator->has_accuracy ? (double)result.correct / (double)result.num_seen : NAN;
    }
    return status;
}

/* Batch by batch, since a model's outputs are valid until its next batch. */
static fedge_status count(fedge_evaluator *evaluator, fedge_error *err)
{
    const fedge_view *all = &evaluator->view;
    const fedge_trainer_workspace workspace = {.scratch = evaluator->scratch,
                                               .scratch_size = evaluator->scratch_size};
    uint32_t indices[FEDGE_EVALUATOR_BATCH];
    fedge_status status = FEDGE_OK;
    for (uint32_t at = 0; at < all->count && status == FEDGE_OK; at += FEDGE_EVALUATOR_BATCH) {
        const uint32_t left = all->count - at;
        const fedge_view part = {all->dataset, indices,
                                 left < FEDGE_EVALUATOR_BATCH ? left : FEDGE_EVALUATOR_BATCH};
        const fedge_examples examples = fedge_view_examples(&part);
        fedge_trainer_result result;
        for (uint32_t i = 0; i < part.count; i++)
            indices[i] = at + i;
        status = fedge_trainer_evaluate(evaluator->model, &examples, FEDGE_EVALUATOR_BATCH,
                                        &workspace, &result, err);
        if (status == FEDGE_OK) {
            const fedge_metric_batch batch = {.struct_size = sizeof(batch),
                                              .count = part.count,
                                              .num_outputs = evaluator->num_outputs,
                                              .outputs = fedge_model_outputs(evaluator->model),
                                              .labels = fedge_dataset_labels(all->dataset) + at};
            evaluator->metrics->add(evaluator->counted, &batch);
        }
    }
    return status;
}

/* Copies the metric [name] to *value if the plugin gave it. */
static void copy_metric(const fedge_metric_values *metrics, const char *name, double *value)
{
    for (uint32_t i = 0; i < metrics->num; i++) {
        if (strcmp(metrics->names[i], name) == 0)
            *value = metrics->values[i];
    }
}

static fedge_status measure_own(fedge_evaluator *evaluator, const float *values,
                                fedge_round_summary *summary, fedge_error *err)
{
    FEDGE_TRY(
        fedge_python_evaluate(evaluator->own, summary->round, values, &summary->metrics, err));
    if (!evaluator->model) {
        copy_metric(&summary->metrics, "loss", &summary->loss);
        copy_metric(&summary->metrics, "accuracy", &summary->accuracy);
    }
    return FEDGE_OK;
}

fedge_status fedge_evaluator_measure(fedge_evaluator *evaluator, const float *values,
                                     fedge_round_summary *summary, fedge_error *err)
{
    const fedge_metric_plugin *plugin = evaluator->metrics;
    fedge_metric_values *metrics = &summary->metrics;
    *metrics = (fedge_metric_values){0};
    if (evaluator->own)
        return measure_own(evaluator, values, summary, err);
    if (!plugin && evaluator->has_errors)
        fedge_metrics_set_errors(metrics, evaluator->errors);
    if (!plugin)
        return FEDGE_OK;
    char message[MESSAGE] = "";
    metrics->num = plugin->num_metrics;
    metrics->names = plugin->names;
    for (uint32_t i = 0; i < metrics->num; i++)
        metrics->values[i] = NAN;
    memset(evaluator->counted, 0, plugin->state_size);
    fedge_model_set_state(evaluator->model, values);
    const fedge_status status = count(evaluator, err);
    if (status == FEDGE_NOT_FINITE)
        return FEDGE_OK;
    const int failed =
        status == FEDGE_OK ? plugin->finish(evaluator->counted, metrics->values, message) : 0;
    message[MESSAGE - 1] = '\0';
    return failed == 0 ? status
                       : fedge_fail(err, FEDGE_INTERNAL, "metrics of --strategy-plugin: %d: %s",
                                    failed, message);
}
