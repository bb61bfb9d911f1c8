#include "aggregator/rounds/root_trainer.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/fixed.h"
#include "edge/core/os.h"
#include "edge/data/dataset.h"
#include "edge/plan/sections.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"

#define ALIGNMENT 64

struct fedge_root_trainer {
    const fedge_plan *plan;
    fedge_dataset *dataset;
    fedge_view view;
    fedge_model *model;
    void *block, *scratch;
    size_t scratch_size;
    const fedge_root_ops *ops; /* the plugin's; NULL: fedge trains, with the above */
    void *state;               /* state that [ops] have opened */
    float *values;             /* (num_parameters): the trained values */
    int32_t *v;                /* (num_parameters): their change in fixed point */
};

static bool has_files(const fedge_test_set *files)
{
    return files->images[0] != '\0';
}

static void *aligned(size_t size)
{
    return aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

fedge_status fedge_root_trainer_check(const fedge_json *json, const fedge_job *job,
                                      const fedge_test_set *files, fedge_error *err)
{
    const fedge_plan *plan = &job->plan;
    if (plan->external && has_files(files)) {
        return fedge_json_fail_at(json, "strategy.root-set", err,
                                  "is for models of fedge's layers: the server cannot train an "
                                  "external one. Remove it, and give the server a "
                                  "--strategy-plugin with a function root_train (in Python "
                                  "@fedge.root_train) that does; or take a rule without one, such "
                                  "as FedTrimmedAvg or Krum");
    }
    const char *why = has_files(files) && !plan->has_data ? "is of a job that names no data"
                      : fedge_section_is_whole(plan, &plan->sent.sections[0]) ? NULL
                      : plan->external ? "has tensors that are frozen or I64"
                                       : "has layers that are not trained";
    return !why ? FEDGE_OK
                : fedge_json_fail_at(json, "model", err,
                                     "%s, so the server cannot train it on its root set as %s has "
                                     "it do: change that, or take another strategy",
                                     why, job->strategy);
}

static fedge_status take_memory(fedge_root_trainer *self, fedge_error *err)
{
    const fedge_plan *plan = self->plan;
    const fedge_model_options options = fedge_plan_model_options(plan);
    fedge_model_memory memory;
    FEDGE_TRY(fedge_model_size(&plan->model, &options, &memory, err));
    self->scratch_size = fedge_plan_scratch_size(plan, self->view.count, plan->training.batch_size);
    self->block = aligned(memory.total);
    self->scratch = aligned(self->scratch_size);
    if (!self->block || !self->scratch) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "no memory to train on the server's root set (%zu bytes)",
                          memory.total + self->scratch_size);
    }
    return fedge_model_new(&self->model, &plan->model, &options, self->block, memory.total, err);
}

/* Train once, so that an error ends the start and not the first round. */
static fedge_status check_training(const fedge_root_trainer *self, fedge_error *err)
{
    const fedge_trainer_config config =
        fedge_plan_trainer_config(self->plan, 1, FEDGE_ROOT_CLIENT, 0.0);
    const fedge_status status = fedge_trainer_check(self->model, self->view.count, &config, err);
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "the server's root set");
}

static fedge_status open_fedges(fedge_root_trainer *self, const fedge_test_set *files,
                                fedge_error *err)
{
    const fedge_status status =
        fedge_dataset_load(&self->plan->data, files->images, files->labels, &self->dataset, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "the server's root set");
    self->view = (fedge_view){.dataset = self->dataset, .count = fedge_dataset_size(self->dataset)};
    FEDGE_TRY(take_memory(self, err));
    return check_training(self, err);
}

static fedge_status open_plugins(fedge_root_trainer *self, const fedge_job *job, fedge_error *err)
{
    if (!job->root) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s compares updates with one of the server's: %sgive the server a "
                          "--strategy-plugin with a function root_train (in Python "
                          "@fedge.root_train), which makes it",
                          job->strategy,
                          job->plan.external ? "" : "give the strategy a \"root-set\", or ");
    }
    FEDGE_TRY(job->root->open(job->root, job, &self->state, err));
    self->ops = job->root;
    return FEDGE_OK;
}

fedge_status fedge_root_trainer_new(const fedge_job *job, const fedge_test_set *files,
                                    fedge_root_trainer **trainer, fedge_error *err)
{
    *trainer = NULL;
    fedge_root_trainer *self = calloc(1, sizeof(*self));
    if (!self)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the server's root set");
    self->plan = &job->plan;
    self->values = malloc(job->plan.schema.num_elements * sizeof(*self->values));
    self->v = malloc(job->plan.num_parameters * sizeof(*self->v));
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(self->values && self->v
                     ? FEDGE_OK
                     : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the server's update"),
                 failed);
    FEDGE_TRY_OR(has_files(files) ? open_fedges(self, files, err) : open_plugins(self, job, err),
                 failed);
    *trainer = self;
    return FEDGE_OK;

failed:
    fedge_root_trainer_free(self);
    return status;
}

void fedge_root_trainer_free(fedge_root_trainer *trainer)
{
    if (!trainer)
        return;
    if (trainer->ops)
        trainer->ops->close(trainer->state);
    fedge_view_fini(&trainer->view);
    fedge_dataset_free(trainer->dataset);
    free(trainer->block);
    free(trainer->scratch);
    free(trainer->values);
    free(trainer->v);
    free(trainer);
}

/* Trains trainer->values with the plugin. */
static fedge_status train_with_plugin(const fedge_root_trainer *trainer, uint32_t round,
                                      fedge_error *err)
{
    const fedge_plan *plan = trainer->plan;
    const fedge_training_spec *training = &plan->training;
    const fedge_plugin_root_task task = {.struct_size = sizeof(task),
                                         .round = round,
                                         .learning_rate = fedge_plan_learning_rate(plan, round),
                                         .local_epochs = training->local_epochs,
                                         .local_steps = training->local_steps,
                                         .batch_size = training->batch_size,
                                         .seed = plan->seed,
                                         .momentum = training->optimizer.momentum,
                                         .weight_decay = training->optimizer.weight_decay,
                                         .config = plan->config ? plan->config : "{}",
                                         .num_values = plan->num_parameters};
    return trainer->ops->train(trainer->state, &task, trainer->values, err);
}

/* Trains trainer->values. */
static fedge_status train(const fedge_root_trainer *trainer, uint32_t round, fedge_error *err)
{
    const fedge_plan *plan = trainer->plan;
    const fedge_trainer_config config = fedge_plan_trainer_config(
        plan, round, FEDGE_ROOT_CLIENT, fedge_plan_learning_rate(plan, round));
    const fedge_examples stored = fedge_view_examples(&trainer->view);
    fedge_augmented augmented;
    const fedge_examples examples = fedge_plan_augment(plan, &config, &stored, &augmented);
    fedge_trainer_result result;
    fedge_model_set_state(trainer->model, trainer->values);
    fedge_model_reset_optimizer(trainer->model);
    const fedge_trainer_workspace workspace = {.scratch = trainer->scratch,
                                               .scratch_size = trainer->scratch_size};
    FEDGE_TRY(fedge_trainer_run(trainer->model, &examples, &config, &workspace, &result, err));
    fedge_model_get_trained(trainer->model, trainer->values);
    return FEDGE_OK;
}

fedge_status fedge_root_trainer_run(fedge_root_trainer *trainer, uint32_t round, const float *model,
                                    const int8_t *bounds_log2, const int32_t **v, fedge_error *err)
{
    const fedge_plan *plan = trainer->plan;
    float *values = trainer->values;
    memcpy(values, model, plan->num_parameters * sizeof(*values));
    const fedge_status status =
        trainer->ops ? train_with_plugin(trainer, round, err) : train(trainer, round, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "the server's root set");
    const fedge_schema *schema = &plan->sent.sections[0].schema;
    uint64_t clamped = 0, not_finite = 0;
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        const size_t at = tensor->offset - schema->tensors[0].offset;
        for (size_t k = 0; k < tensor->count; k++)
            values[at + k] -= model[at + k];
        fedge_fixed_quantise(values + at, tensor->count, bounds_log2[t], trainer->v + at, &clamped,
                             &not_finite);
    }
    *v = trainer->v;
    return not_finite == 0
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NOT_FINITE,
                            "the server's update has %llu values that are not finite: lower the "
                            "learning rate",
                            (unsigned long long)not_finite);
}

static fedge_status read_update(void *user, uint32_t index, uint32_t tensor, size_t at,
                                size_t count, int32_t *v, fedge_error *err)
{
    const fedge_root_updates *self = user;
    if (index < self->clients->num)
        return self->clients->read(self->clients->user, index, tensor, at, count, v, err);
    const fedge_tensor_spec *tensors = self->schema->tensors;
    memcpy(v, self->root + (tensors[tensor].offset - tensors[0].offset) + at, count * sizeof(*v));
    return FEDGE_OK;
}

fedge_updates fedge_root_updates_of(fedge_root_updates *both)
{
    return (fedge_updates){.num = both->clients->num + 1, .read = read_update, .user = both};
}
