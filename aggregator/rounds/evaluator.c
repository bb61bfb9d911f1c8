#include "aggregator/rounds/evaluator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/io/dataset.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"

#define ALIGNMENT 64

bool fedge_has_accuracy(const fedge_plan *plan)
{
    return plan->external || plan->model.loss == FEDGE_LOSS_CROSS_ENTROPY ||
           plan->model.loss == FEDGE_LOSS_BCE_WITH_LOGITS;
}

struct fedge_evaluator {
    bool has_accuracy;
    fedge_dataset *dataset;
    fedge_view view;
    fedge_model *model;
    void *block, *scratch;
    size_t scratch_size;
};

static void *aligned(size_t size)
{
    return aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static fedge_status set_up(fedge_evaluator *evaluator, const fedge_job *job, fedge_error *err)
{
    const fedge_plan *plan = &job->plan;
    evaluator->has_accuracy = fedge_has_accuracy(plan);
    fedge_status status = fedge_dataset_load(&plan->data, job->test_set.images,
                                             job->test_set.labels, &evaluator->dataset, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "test-set");
    evaluator->view = (fedge_view){.dataset = evaluator->dataset,
                                   .count = fedge_dataset_size(evaluator->dataset)};
    fedge_model_options options = {.max_batch = FEDGE_EVALUATOR_BATCH, .training = false};
    fedge_model_memory memory;
    status = fedge_model_size(&plan->model, &options, &memory, err);
    if (status != FEDGE_OK)
        return status;
    evaluator->scratch_size =
        fedge_trainer_scratch_size(&plan->model, evaluator->view.count, FEDGE_EVALUATOR_BATCH);
    evaluator->block = aligned(memory.total);
    evaluator->scratch = aligned(evaluator->scratch_size);
    if (!evaluator->block || !evaluator->scratch) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to evaluate the model (%zu bytes)",
                          memory.total + evaluator->scratch_size);
    }
    return fedge_model_new(&evaluator->model, &plan->model, &options, evaluator->block,
                           memory.total, err);
}

fedge_status fedge_evaluator_new(const fedge_job *job, fedge_evaluator **evaluator,
                                 fedge_error *err)
{
    *evaluator = NULL;
    if (!job->test_set.present || job->plan.external)
        return FEDGE_OK;
    fedge_evaluator *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the test set");
    fedge_status status = set_up(fresh, job, err);
    if (status != FEDGE_OK) {
        fedge_evaluator_free(fresh);
        return status;
    }
    *evaluator = fresh;
    return FEDGE_OK;
}

void fedge_evaluator_free(fedge_evaluator *evaluator)
{
    if (!evaluator)
        return;
    fedge_view_fini(&evaluator->view);
    fedge_dataset_free(evaluator->dataset);
    free(evaluator->block);
    free(evaluator->scratch);
    free(evaluator);
}

fedge_status fedge_evaluator_run(fedge_evaluator *evaluator, const float *values, double *loss,
                                 double *accuracy, fedge_error *err)
{
    fedge_model_set_state(evaluator->model, values);
    fedge_examples examples = fedge_view_examples(&evaluator->view);
    fedge_trainer_result result;
    fedge_status status = fedge_trainer_evaluate(evaluator->model, &examples, FEDGE_EVALUATOR_BATCH,
                                                 evaluator->scratch, evaluator->scratch_size, NULL,
                                                 NULL, &result, err);
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
