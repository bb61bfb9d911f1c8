#include "client/training_backend.h"

#include <stdlib.h>

#include "edge/train/augment.h"
#include "edge/train/cuda/silo.h"

/* A silo and the data of its configuration. */
typedef struct backend {
    fedge_model_options options;
    fedge_augmented augmented;
    fedge_silo *silo;
    uint32_t *all; /* (count): every example, for views without indices */
} backend;

static fedge_silo_config config_of(const fedge_plan *plan, backend *self)
{
    const fedge_trainer_config any = {0}; /* only the augmentation's arguments are used */
    const fedge_examples none = {0};
    self->options = fedge_plan_model_options(plan);
    (void)fedge_plan_augment(plan, &any, &none, &self->augmented);
    return (fedge_silo_config){.cohort = {.model = &plan->model,
                                          .options = &self->options,
                                          .dtype = plan->data.dtype,
                                          .num_channels = plan->data.num_channels,
                                          .divide_by = plan->data.divide_by,
                                          .mean = plan->data.mean,
                                          .std = plan->data.std,
                                          .augmentation = plan->data.has_augmentation
                                                              ? &self->augmented.augmentation
                                                              : NULL},
                               .part = plan->training.micro_batch_size};
}

static fedge_status read_gpus(const char *text, fedge_silo_config *config, fedge_error *err)
{
    while (text && *text) {
        char *end = NULL;
        const unsigned long number = strtoul(text, &end, 10);
        const bool wrong = end == text || (*end && (*end != ',' || !end[1])) || *text < '0' ||
                           *text > '9' || number >= FEDGE_COHORT_MAX_GPUS;
        if (wrong || config->num_gpus == FEDGE_COHORT_MAX_GPUS) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "--gpus takes numbers of GPUs such as 0,1, below %d",
                              FEDGE_COHORT_MAX_GPUS);
        }
        for (uint32_t i = 0; i < config->num_gpus; i++) {
            if (config->gpus[i] == number)
                return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--gpus has GPU %lu twice", number);
        }
        config->gpus[config->num_gpus++] = (uint32_t)number;
        text = *end ? end + 1 : end;
    }
    return FEDGE_OK;
}

static fedge_status read_settings(const fedge_backend_settings *settings, fedge_silo_config *config,
                                  fedge_error *err)
{
    config->states_bf16 = settings->bf16_optimizer_states;
    return read_gpus(settings->gpus, config, err);
}

static fedge_status find(const fedge_backend_settings *settings, fedge_error *err)
{
    fedge_silo_config config = {.num_gpus = 0};
    uint32_t there = 0;
    FEDGE_TRY(read_settings(settings, &config, err));
    FEDGE_TRY(fedge_cohort_count_gpus(&there, err));
    for (uint32_t i = 0; i < config.num_gpus; i++) {
        if (config.gpus[i] >= there) {
            return fedge_fail(err, FEDGE_NOT_FOUND, "GPU %u is not there: there are 0 to %u",
                              (unsigned)config.gpus[i], (unsigned)there - 1);
        }
    }
    return FEDGE_OK;
}

static fedge_status check(const fedge_plan *plan, fedge_error *err)
{
    backend self;
    fedge_model_options evaluated;
    const fedge_silo_config config = config_of(plan, &self);
    if (fedge_plan_evaluation_options(plan, &evaluated))
        return fedge_fail(err, FEDGE_UNSUPPORTED, "GPUs cannot evaluate in int8: use --engine cpu");
    if (fedge_data_num_targets(&plan->data) > 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "GPUs learn classes, not numbers (data.targets): use --engine cpu");
    }
    if (fedge_plan_is_personal(plan)) {
        return fedge_fail(
            err, FEDGE_UNSUPPORTED,
            "GPUs cannot train a model that is partly this client's own: use --engine cpu");
    }
    return fedge_cohort_check(&config.cohort, err);
}

/* The client attributes FEDGE_NOT_FOUND to data; missing GPUs must be reported to the server. */
static fedge_status of_gpus(fedge_status status, fedge_error *err)
{
    if (status == FEDGE_NOT_FOUND)
        err->status = status = FEDGE_UNSUPPORTED;
    return status;
}

static fedge_status check_gpus(const fedge_plan *plan, const fedge_backend_settings *settings,
                               fedge_error *err)
{
    backend self;
    fedge_silo_config config = config_of(plan, &self);
    FEDGE_TRY(read_settings(settings, &config, err));
    return of_gpus(fedge_silo_check_gpus(&config, err), err);
}

static fedge_status bytes(const fedge_plan *plan, const fedge_backend_settings *settings,
                          uint64_t *all, uint64_t *least, fedge_error *err)
{
    backend self;
    fedge_silo_config config = config_of(plan, &self);
    config.states_bf16 = settings->bf16_optimizer_states;
    return fedge_silo_bytes(&config, 1, all, least, err);
}

static void close_backend(void *state)
{
    backend *self = state;
    if (self) {
        fedge_silo_free(self->silo);
        free(self->all);
    }
    free(self);
}

static void log_backend(const fedge_log *log, fedge_silo_facts facts)
{
    if (log) {
        FEDGE_LOG(log, FEDGE_LOG_INFO, "trainer-engine", fedge_log_str("kind", "cuda"),
                  fedge_log_int("gpus", facts.num_gpus), fedge_log_int("parts", facts.num_parts),
                  fedge_log_int("examples-each", facts.part),
                  fedge_log_int("parts-at-once", facts.at_once),
                  fedge_log_int("bytes-each", (int64_t)facts.memory.slot),
                  fedge_log_int("bytes-shared", (int64_t)facts.memory.shared),
                  fedge_log_str("optimizer-states", facts.states_bf16 ? "bf16" : "fp32"),
                  fedge_log_str("optimizer", facts.states_on_host ? "on the host" : "on the GPU"));
    }
}

static fedge_status open_backend(const fedge_plan *plan, const fedge_dataset *dataset,
                                 const fedge_backend_settings *settings, const fedge_log *log,
                                 void (*lost)(const fedge_error *err), void **state,
                                 fedge_error *err)
{
    backend *fresh = calloc(1, sizeof(*fresh));
    const uint32_t count = fedge_dataset_size(dataset);
    *state = NULL;
    if (fresh)
        fresh->all = calloc(count > 0 ? count : 1, sizeof(*fresh->all));
    if (!fresh || !fresh->all) {
        close_backend(fresh);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for GPUs' trainer");
    }
    for (uint32_t i = 0; i < count; i++)
        fresh->all[i] = i;
    fedge_silo_config config = config_of(plan, fresh);
    config.stuck = lost;
    config.cohort.sets[0] = (fedge_cohort_examples){fedge_dataset_values(dataset),
                                                    fedge_dataset_labels(dataset), count};
    fedge_status status;
    FEDGE_TRY_OR(read_settings(settings, &config, err), fail);
    FEDGE_TRY_OR(of_gpus(fedge_silo_new(&config, &fresh->silo, err), err), fail);
    log_backend(log, fedge_silo_facts_of(fresh->silo));
    *state = fresh;
    return FEDGE_OK;
fail:
    close_backend(fresh);
    return status;
}

static fedge_cohort_task task_of(const backend *self, const fedge_view *view)
{
    return (fedge_cohort_task){.examples = view->indices ? view->indices : self->all,
                               .num_examples = view->count};
}

static fedge_status train(void *state, const fedge_backend_call *call, float *values,
                          fedge_trainer_result *result, fedge_error *err)
{
    backend *self = state;
    fedge_cohort_task task = task_of(self, call->view);
    task.client_index = call->config->client_index;
    task.correction = call->correction;
    return fedge_silo_train(self->silo, &task, call->config, values, call->cancel,
                            call->cancel_user, result, err);
}

static fedge_status evaluate(void *state, const fedge_backend_call *call, const float *values,
                             fedge_trainer_result *result, fedge_error *err)
{
    backend *self = state;
    const fedge_cohort_task task = task_of(self, call->view);
    return fedge_silo_evaluate(self->silo, &task, values, call->cancel, call->cancel_user, result,
                               err);
}

const fedge_training_backend fedge_training_backend_cuda = {.name = "cuda",
                                                            .find = find,
                                                            .check = check,
                                                            .check_gpus = check_gpus,
                                                            .bytes = bytes,
                                                            .open = open_backend,
                                                            .close = close_backend,
                                                            .train = train,
                                                            .evaluate = evaluate};
