#include "aggregator/simulate/cohort/evaluation_set.h"

#include <math.h>
#include <stdlib.h>

static uint32_t portions_of(const fedge_evaluation_set *set)
{
    return (set->view.count + FEDGE_EVALUATION_PORTION - 1) / FEDGE_EVALUATION_PORTION;
}

static fedge_trainer_engine_task portion_of(const fedge_evaluation_set *set, uint32_t at,
                                            bool may_stop)
{
    const uint32_t first = at * FEDGE_EVALUATION_PORTION, left = set->view.count - first;
    fedge_trainer_engine_task task = {.work = FEDGE_TRAINER_ENGINE_TEST,
                                      .view = set->view,
                                      .predicted = set->predicted ? set->predicted + first : NULL,
                                      .may_stop = may_stop,
                                      .own = set->own,
                                      .client = set->client};
    task.view.indices += first;
    task.view.count = left < FEDGE_EVALUATION_PORTION ? left : FEDGE_EVALUATION_PORTION;
    return task;
}

static fedge_status sum(fedge_evaluation_set *set, const fedge_trainer_engine_task *tasks,
                        fedge_error *err)
{
    double loss = 0.0;
    set->correct = 0;
    for (uint32_t i = 0; i < portions_of(set); i++) {
        if (tasks[i].status == FEDGE_NOT_FINITE) {
            loss = NAN; /* the model has diverged: a result, not a failure */
        } else if (tasks[i].status != FEDGE_OK) {
            return fedge_fail(err, tasks[i].status, "%s", tasks[i].message);
        } else {
            loss += tasks[i].result.loss_sum;
            set->correct += tasks[i].result.correct;
        }
    }
    const double count = (double)set->view.count;
    set->loss = loss / count;
    set->accuracy = isnan(loss) ? 0.0 : (double)set->correct / count;
    return FEDGE_OK;
}

fedge_status fedge_evaluate_sets(fedge_trainer_engine *engine, fedge_evaluation_set *sets,
                                 uint32_t num_sets, bool may_stop, fedge_error *err)
{
    uint32_t num_tasks = 0, at = 0;
    for (uint32_t s = 0; s < num_sets; s++)
        num_tasks += portions_of(&sets[s]);
    fedge_trainer_engine_task *tasks = calloc(num_tasks > 0 ? num_tasks : 1, sizeof(*tasks));
    if (!tasks)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to evaluate the model");
    for (uint32_t s = 0; s < num_sets; s++) {
        for (uint32_t i = 0; i < portions_of(&sets[s]); i++)
            tasks[at++] = portion_of(&sets[s], i, may_stop);
    }
    fedge_trainer_engine_run(engine, 0, NULL, tasks, num_tasks);
    fedge_status status = FEDGE_OK;
    at = 0;
    for (uint32_t s = 0; s < num_sets && status == FEDGE_OK; s++) {
        status = sum(&sets[s], tasks + at, err);
        at += portions_of(&sets[s]);
    }
    free(tasks);
    return status;
}
