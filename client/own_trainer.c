#include "client/own_trainer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/client_hooks.h"

/* Small clients have fedge's trainer only. */
#ifdef FEDGE_SMALL
#define IS_OWN(call) false
#else
#define IS_OWN(call) (!(call)->heeds_plan)
#endif

/* --- for trainers ---------------------------------------------------------------------------- */

void fedge_client_correct(const fedge_client_task *task, const float *values, float *gradients,
                          fedge_client_report *report)
{
    const fedge_schema *schema = task->plan->schema;
    const size_t count = task->plan->num_parameters;
    report->corrected = true;
    /* The order of fedge's own trainer, which gives the same bits. */
    for (size_t i = 0; task->correction && i < count; i++)
        gradients[i] += task->correction[i];
    for (size_t i = 0; task->proximal_mu > 0 && i < count; i++)
        gradients[i] += task->proximal_mu * (values[i] - task->anchor[i]);
    for (uint32_t t = 0; task->trained && t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        if (!task->trained[t] && tensor->offset < count)
            memset(gradients + tensor->offset, 0, tensor->count * sizeof(*gradients));
    }
}

/* --- memory ---------------------------------------------------------------------------------- */

fedge_status fedge_own_trainer_init(fedge_own_trainer *self, const fedge_plan *plan,
                                    const fedge_client_callbacks *call, float *values,
                                    fedge_error *err)
{
    const size_t count = plan->schema.num_elements;
    *self = (fedge_own_trainer){0};
    if (!IS_OWN(call))
        return FEDGE_OK;
    if ((fedge_plan_measures(plan) || fedge_plan_is_clustered(plan)) && !call->loss) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s needs the loss of models on this device's examples: give the trainer "
                          "the callback loss (in Python a function loss(model, task) with "
                          "@app.loss)",
                          plan->hooks->name);
    }
    if (call->typed_tensors)
        FEDGE_TRY(fedge_typed_init(&self->typed, &plan->schema, values, err));
    if (!fedge_plan_keeps_anchor(plan))
        return FEDGE_OK;
    self->anchor = malloc(count * sizeof(*self->anchor));
    self->trained = malloc(plan->schema.num_tensors * sizeof(*self->trained));
    if (self->anchor && self->trained)
        return FEDGE_OK;
    fedge_own_trainer_fini(self);
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model of %zu values to stay near",
                      count);
}

void fedge_own_trainer_fini(fedge_own_trainer *self)
{
    free(self->anchor);
    free(self->trained);
    fedge_typed_fini(&self->typed);
    *self = (fedge_own_trainer){0};
}

/* --- tasks ----------------------------------------------------------------------------------- */

/* One task at work. */
typedef struct work {
    const fedge_own_trainer *memory;
    const fedge_client_callbacks *call;
    fedge_client *client;
    const fedge_plan *plan;
    fedge_client_task task; /* as the trainer is to see it */
    float *values;          /* (plan->schema.num_elements) */
    size_t count;           /* plan->schema.num_elements */
} work;

static work begin(const fedge_own_trainer *memory, const fedge_client_callbacks *call,
                  fedge_client *client, const fedge_client_task *task, float *values)
{
    const fedge_plan *plan = task->plan->full;
    work w = {.memory = memory,
              .call = call,
              .client = client,
              .plan = plan,
              .task = *task,
              .values = values,
              .count = plan->schema.num_elements};
    w.task.personal = NULL;
    w.task.others = NULL;
    w.task.tensors = memory->typed.tensors;
    return w;
}

/* Calls the trainer, and refuses what would make another strategy of this one. */
static fedge_status train(const work *w, fedge_client_report *report, fedge_error *err)
{
    const fedge_client_task *task = &w->task;
    const char *strategy = w->plan->hooks ? w->plan->hooks->name : "proximal-mu";
    memset(report, 0, sizeof(*report));
    fedge_typed_load(&w->memory->typed);
    FEDGE_TRY(w->call->train(w->call->user, w->client, task, w->values, report, err));
    fedge_typed_store(&w->memory->typed);
    if ((task->correction || task->proximal_mu > 0 || task->trained) && !report->corrected) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s changes every gradient, and the trainer has not let it: call "
                          "fedge_client_correct (in Python task.correct_gradients()) between "
                          "gradient and step",
                          strategy);
    }
    if (fedge_plan_counts_steps(w->plan) && report->num_steps == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s needs the number of steps: set report->num_steps (in Python loop "
                          "over task.batches, or count in task.num_steps)",
                          strategy);
    }
    return FEDGE_OK;
}

/* The mean loss of the model in w->values. */
static fedge_status loss_of(const work *w, double *loss, fedge_error *err)
{
    fedge_typed_load(&w->memory->typed);
    return w->call->loss(w->call->user, w->client, &w->task, w->values, loss, err);
}

/* Puts the model with the least loss into w->values, the first of equal ones. */
static fedge_status choose(const work *w, const float *others, uint32_t *chosen, fedge_error *err)
{
    const uint32_t num = fedge_plan_num_broadcast(w->plan);
    const size_t size = w->count * sizeof(float);
    double least = INFINITY;
    *chosen = 0;
    /* The best so far may be the task's own model, of which this is the only copy. */
    float *best = malloc(size);
    if (!best)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a further model of %zu bytes", size);
    memcpy(best, w->values, size);
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; status == FEDGE_OK && i <= num; i++) {
        double loss = INFINITY;
        if (i > 0)
            memcpy(w->values, others + (i - 1) * w->count, size);
        status = loss_of(w, &loss, err);
        if (status == FEDGE_OK && loss < least) {
            least = loss;
            *chosen = i;
        }
    }
    memcpy(w->values, *chosen == 0 ? best : others + (*chosen - 1) * w->count, size);
    free(best);
    return status;
}

static bool is_personal(const fedge_plan *plan, size_t offset)
{
    bool is = false;
    for (uint32_t i = 0; i < plan->personal.num_parts; i++) {
        const fedge_personal_part *part = &plan->personal.parts[i];
        is = is || (offset >= part->offset && offset - part->offset < part->count);
    }
    return is;
}

/* Copies the personal values between two models. */
static void copy_personal(const fedge_plan *plan, float *to, const float *from)
{
    for (uint32_t i = 0; i < plan->personal.num_parts; i++) {
        const fedge_personal_part *part = &plan->personal.parts[i];
        memcpy(to + part->offset, from + part->offset, part->count * sizeof(*to));
    }
}

/* FedRep: the personal tensors, then the others. */
static fedge_status train_in_turn(work *w, fedge_client_report *report, fedge_error *err)
{
    const fedge_plan *plan = w->plan;
    const size_t size = w->count * sizeof(float);
    float *anchor = w->memory->anchor;
    fedge_client_plan head = *w->task.plan;
    const fedge_client_plan *whole = w->task.plan;
    assert(anchor && w->memory->trained); /* fedge_plan_keeps_anchor */
    head.local_steps = 0;
    head.local_epochs = plan->hooks_arguments.head_epochs;
    w->task.trained = w->memory->trained;
    for (uint32_t t = 0; t < plan->schema.num_tensors; t++)
        w->memory->trained[t] = is_personal(plan, plan->schema.tensors[t].offset);
    w->task.plan = &head;
    const fedge_status status = train(w, report, err);
    w->task.plan = whole;
    FEDGE_TRY(status);
    /* Whatever the trainer did to tensors that were to stay is undone. */
    copy_personal(plan, anchor, w->values);
    memcpy(w->values, anchor, size);
    for (uint32_t t = 0; t < plan->schema.num_tensors; t++)
        w->memory->trained[t] = !w->memory->trained[t];
    FEDGE_TRY(train(w, report, err));
    copy_personal(plan, w->values, anchor);
    return FEDGE_OK;
}

/* Ditto: the device's own model, near the server's. */
static fedge_status train_beside(work *w, float *personal, fedge_client_report *report,
                                 fedge_error *err)
{
    const float mu = w->task.proximal_mu;
    assert(personal && w->memory->anchor); /* fedge_plan_keeps_anchor */
    fedge_personal_put(w->plan, personal, w->values);
    w->task.personal_model = true;
    w->task.proximal_mu = w->plan->hooks_arguments.lambda;
    FEDGE_TRY(train(w, report, err));
    fedge_personal_take(w->plan, w->values, personal);
    w->task.personal_model = false;
    w->task.proximal_mu = mu;
    memcpy(w->values, w->memory->anchor, w->count * sizeof(float));
    return FEDGE_OK;
}

static fedge_status train_task(work *w, const fedge_client_task *task, fedge_client_report *report,
                               fedge_error *err)
{
    const fedge_client_hooks *hooks = w->plan->hooks;
    uint32_t chosen = 0;
    double start_loss = 0;
    w->task.proximal_mu = w->plan->training.optimizer.proximal_mu;
    if (fedge_plan_is_clustered(w->plan))
        FEDGE_TRY(choose(w, task->others, &chosen, err));
    if (fedge_plan_measures(w->plan))
        FEDGE_TRY(loss_of(w, &start_loss, err));
    if (w->memory->anchor) {
        memcpy(w->memory->anchor, w->values, w->count * sizeof(float));
        w->task.anchor = w->memory->anchor;
    }
    if (hooks && hooks->trains_both)
        FEDGE_TRY(train_beside(w, task->personal, report, err));
    FEDGE_TRY(hooks && hooks->personal_first ? train_in_turn(w, report, err)
                                             : train(w, report, err));
    report->chosen = chosen;
    return fedge_plan_measures(w->plan)
               ? fedge_client_metric(report, FEDGE_START_LOSS, start_loss, err)
               : FEDGE_OK;
}

static fedge_status evaluate_task(const work *w, const fedge_client_task *task,
                                  fedge_client_report *report, fedge_error *err)
{
    uint32_t chosen = 0;
    if (fedge_plan_is_clustered(w->plan))
        FEDGE_TRY(choose(w, task->others, &chosen, err));
    fedge_typed_load(&w->memory->typed);
    const fedge_status status =
        w->call->evaluate(w->call->user, w->client, &w->task, w->values, report, err);
    report->chosen = chosen;
    return status;
}

fedge_status fedge_own_trainer_call(const fedge_own_trainer *self,
                                    const fedge_client_callbacks *call, fedge_client *client,
                                    const fedge_client_task *task, bool trains, float *values,
                                    fedge_client_report *report, fedge_error *err)
{
    memset(report, 0, sizeof(*report));
    if (!trains && !call->evaluate)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "this client's trainer does not evaluate");
    if (IS_OWN(call)) {
        work w = begin(self, call, client, task, values);
        return trains ? train_task(&w, task, report, err) : evaluate_task(&w, task, report, err);
    }
    return trains ? call->train(call->user, client, task, values, report, err)
                  : call->evaluate(call->user, client, task, values, report, err);
}
