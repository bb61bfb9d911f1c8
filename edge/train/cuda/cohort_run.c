/* Running a cohort's work: slots take tasks, runs of steps are uploaded, models are copied back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"
#include "edge/train/cuda/cohort_internal.h"

/* One call of fedge_cohort_run. */
typedef struct running {
    fedge_cohort *cohort;
    const fedge_cohort_work *work;
    fedge_cohort_step step; /* the optimizer's arguments */
    bool wants_predicted;   /* a task in a slot wants predictions */
    bool no_more_tasks;     /* tasks */
} running;

static const fedge_trainer_config *training_of(const running *self, const fedge_cohort_task *task)
{
    return self->work->members[task->member].training;
}

static bool trains(const running *self)
{
    return self->work->members[0].training != NULL;
}

/* True when each slot has a copy of its model. Evaluation of a single model reads the start. */
static bool has_slot_models(const running *self)
{
    return trains(self) || self->work->num_members > 1;
}

static fedge_status check(const running *self, cudaError_t error, const char *doing,
                          fedge_error *err)
{
    return fedge_cohort_cuda(self->cohort, error, doing, err);
}

/* Copies [count] floats to the GPU through pinned memory. */
static fedge_status stage(running *self, float *to, const float *from, size_t count,
                          fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    /* One buffer is filled while the other is copied. */
    const uint32_t at = cohort->next_staging++ % 2;
    cudaError_t error = cudaEventSynchronize(cohort->staged[at]);
    if (error == cudaSuccess) {
        memcpy(cohort->staging[at], from, count * sizeof(float));
        error = cudaMemcpyAsync(to, cohort->staging[at], count * sizeof(float),
                                cudaMemcpyHostToDevice, cohort->stream);
    }
    if (error == cudaSuccess)
        error = cudaEventRecord(cohort->staged[at], cohort->stream);
    return check(self, error, "copying to it", err);
}

/* Copies the chunks that changes are added to. */
static fedge_status stage_chunks(running *self, fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    const size_t each = self->work->num_chunks, size = each * sizeof(*cohort->chunks);
    if (size == 0)
        return FEDGE_OK;
    for (uint32_t m = 0; m < self->work->num_members; m++)
        memcpy(cohort->chunks + m * each, self->work->members[m].chunks, size);
    cudaError_t error =
        cudaMemcpyAsync(cohort->arrays.chunks, cohort->chunks, self->work->num_members * size,
                        cudaMemcpyHostToDevice, cohort->stream);
    /* The next call fills the memory anew. */
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cohort->stream);
    return check(self, error, "copying to it", err);
}

/* ---- tasks come and go ----------------------------------------------------------------------- */

static fedge_status fail_bad(fedge_cohort_task *task, const running *self,
                             const fedge_cohort_tally *tally)
{
    fedge_error *err = &task->error;
    const fedge_status status = fedge_fail(err, FEDGE_NOT_FINITE,
                                           "%s: the loss of a batch of %u examples is %g: "
                                           "lower the learning rate, clip "
                                           "the gradients' norm, or normalise the data",
                                           fedge_loss_type_name(self->cohort->config.model->loss),
                                           (unsigned)tally->bad_count,
                                           isnan(tally->bad_loss) ? (double)NAN : tally->bad_loss);
    const fedge_trainer_config *training = training_of(self, task);
    return training
               ? fedge_error_prefix(err, status, "round %u, step %u", (unsigned)training->round,
                                    (unsigned)tally->bad_step)
               : fedge_error_prefix(err, status, "evaluation, batch %u", (unsigned)tally->bad_step);
}

static void report_done(const running *self, fedge_cohort_task *task, float *values)
{
    self->work->done(self->work->user, task, task->status == FEDGE_OK ? values : NULL);
    /* The callee may have switched to another GPU, such as an accumulator's. If switching back
     * fails, the next call reports it. */
    (void)cudaSetDevice(self->cohort->config.gpu);
}

/* Waits for the oldest ending and reports its task. */
static fedge_status end_oldest(running *self, fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    fedge_cohort_ending *ending = &cohort->endings[cohort->first_ending];
    FEDGE_TRY(check(self, cudaEventSynchronize(ending->done), "waiting for it", err));
    fedge_cohort_task *task = ending->task;
    task->result.loss_sum = ending->tally->loss_sum;
    task->result.correct = ending->tally->correct;
    task->clamped = ending->tally->clamped;
    /* The kernel stores the largest complement, so that 0 means that there is none. */
    task->bad_value = ~ending->tally->bad_value;
    task->status = ending->tally->bad_step > 0 ? fail_bad(task, self, ending->tally) : FEDGE_OK;
    cohort->first_ending = (cohort->first_ending + 1) % FEDGE_COHORT_RING;
    cohort->num_endings--;
    /* A change that the GPU has summed is not copied back. */
    report_done(self, task, trains(self) && task->weight == 0 ? ending->values : NULL);
    return FEDGE_OK;
}

static cudaError_t accumulate(const running *self, uint32_t index, const fedge_cohort_task *task)
{
    const fedge_cohort *cohort = self->cohort;
    const size_t member = task->member;
    const fedge_cohort_accumulate args = {
        .chunks = cohort->arrays.chunks + member * self->work->num_chunks,
        .num_chunks = self->work->num_chunks,
        .weight = task->weight,
        .values = cohort->arrays.values + index * cohort->plan.stride,
        .start = cohort->arrays.start + member * cohort->plan.stride,
        .num_values = (uint32_t)cohort->plan.num_state,
        .tally = cohort->arrays.tallies + index};
    return fedge_cohort_launch_accumulate(&args, cohort->stream);
}

/* After the slot's last step is queued: queues copying its model back or adding its change to the
 * sums, and frees the slot. */
static fedge_status end_slot(running *self, uint32_t index, fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    const fedge_cohort_arrays *arrays = &cohort->arrays;
    fedge_cohort_slot *slot = &cohort->slots[index];
    /* Waits for the oldest ending only when all are in use. */
    FEDGE_TRY(cohort->num_endings == FEDGE_COHORT_RING ? end_oldest(self, err) : FEDGE_OK);
    const uint32_t at = (cohort->first_ending + cohort->num_endings++) % FEDGE_COHORT_RING;
    fedge_cohort_ending *ending = &cohort->endings[at];
    ending->task = slot->task;
    slot->task->result = (fedge_trainer_result){.num_examples = slot->task->num_examples,
                                                .num_steps = trains(self) ? slot->steps : 0,
                                                .num_seen = slot->seen};
    /* The slot may be reused at once: the stream runs the next task's work after what follows. */
    slot->task = NULL;
    const bool accumulates = trains(self) && ending->task->weight > 0;
    cudaError_t error = accumulates ? accumulate(self, index, ending->task) : cudaSuccess;
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(ending->tally, arrays->tallies + index, sizeof(*ending->tally),
                                cudaMemcpyDeviceToHost, cohort->stream);
    }
    if (error == cudaSuccess && trains(self) && !accumulates) {
        error = cudaMemcpyAsync(ending->values, arrays->values + index * cohort->plan.stride,
                                cohort->plan.num_state * sizeof(float), cudaMemcpyDeviceToHost,
                                cohort->stream);
    }
    if (error == cudaSuccess)
        error = cudaEventRecord(ending->done, cohort->stream);
    return check(self, error, "copying from it", err);
}

/* The number of the task's steps. Sets its status, which is an error when it cannot run. */
static uint64_t steps_of(const running *self, fedge_cohort_task *task)
{
    const fedge_trainer_config *training = training_of(self, task);
    uint64_t steps = 0;
    task->status = FEDGE_OK;
    if (task->num_examples == 0) {
        task->status =
            fedge_fail(&task->error, FEDGE_INVALID_ARGUMENT, "there are no examples to read");
    } else if (training) {
        task->status = fedge_cohort_count_steps(&self->cohort->plan, training, task->num_examples,
                                                &steps, &task->error);
    } else {
        steps = (task->num_examples + (uint64_t)self->cohort->plan.batch - 1) /
                self->cohort->plan.batch;
    }
    return steps;
}

/* Gives a free slot the next task, if there is one. */
static fedge_status begin_slot(running *self, uint32_t index, fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    fedge_cohort_slot *slot = &cohort->slots[index];
    while (!slot->task && !self->no_more_tasks) {
        fedge_cohort_task *task = self->work->next(self->work->user);
        const uint64_t steps = task ? steps_of(self, task) : 0;
        self->no_more_tasks = !task;
        /* A task that cannot run never gets a slot. */
        if (task && task->status != FEDGE_OK) {
            report_done(self, task, NULL);
        } else if (task) {
            FEDGE_TRY(fedge_cohort_fit_order(slot, task->num_examples, err));
            if (task->correction && cohort->arrays.corrections) {
                FEDGE_TRY(stage(self, cohort->arrays.corrections + index * cohort->plan.stride,
                                task->correction, cohort->plan.num_values, err));
            }
            slot->task = task;
            slot->steps = steps;
            slot->done = slot->seen = 0;
            slot->next = slot->epoch = 0;
        }
    }
    return FEDGE_OK;
}

/* ---- runs of steps --------------------------------------------------------------------------- */

/* Rounds a number of slots up to one that graphs are recorded for; the additional ones are idle. */
static uint32_t round_up(uint32_t active, uint32_t most, uint32_t *which)
{
    uint32_t rounded = 1;
    /* With powers of two a few graphs suffice for every number of slots. */
    for (*which = 0; rounded < active; ++*which)
        rounded *= 2;
    return rounded < most ? rounded : most;
}

/* The number of steps until the first of the slots [0, *active) ends; 0: all are free. */
static uint32_t count_run(const running *self, uint32_t *active)
{
    const fedge_cohort *cohort = self->cohort;
    uint64_t run = 0;
    uint32_t which = 0;
    *active = 0;
    for (uint32_t s = 0; s < cohort->num_slots; s++) {
        const fedge_cohort_slot *slot = &cohort->slots[s];
        if (slot->task) {
            const uint64_t left = slot->steps - slot->done;
            run = run == 0 || left < run ? left : run;
            *active = s + 1;
        }
    }
    if (trains(self))
        *active = round_up(*active, cohort->num_slots, &which);
    /* Slots change tasks between runs only, so the host makes no decision within a run. */
    return run < cohort->run ? (uint32_t)run : cohort->run;
}

/* Uploads [run] steps of [active] slots. */
static fedge_status upload_run(running *self, uint32_t run, uint32_t active, fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    fedge_cohort_upload *upload = &cohort->upload[cohort->next_upload++ % 2];
    const uint32_t batch = cohort->plan.batch;
    const size_t slot_steps = (size_t)run * active;
    /* The GPU may still read the copy before last. */
    cudaError_t error = cudaEventSynchronize(upload->done);
    if (error != cudaSuccess)
        return check(self, error, "waiting for it", err);
    for (uint32_t s = 0; s < active; s++) { /* slot by slot: its order stays in the cache */
        fedge_cohort_slot *slot = &cohort->slots[s];
        for (uint32_t k = 0; k < run; k++) {
            const size_t at = (size_t)k * active + s;
            upload->slot_steps[at] =
                slot->task
                    ? fedge_cohort_next_step(cohort, training_of(self, slot->task), slot,
                                             upload->indices + at * batch,
                                             upload->moves ? upload->moves + at * batch : NULL)
                    : (fedge_cohort_slot_step){0};
        }
    }
    const size_t examples = slot_steps * batch;
    error = cudaMemcpyAsync(cohort->arrays.slot_steps, upload->slot_steps,
                            slot_steps * sizeof(*upload->slot_steps), cudaMemcpyHostToDevice,
                            cohort->stream);
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(cohort->arrays.indices, upload->indices,
                                examples * sizeof(*upload->indices), cudaMemcpyHostToDevice,
                                cohort->stream);
    }
    if (error == cudaSuccess && upload->moves && trains(self)) {
        error =
            cudaMemcpyAsync(cohort->arrays.moves, upload->moves, examples * sizeof(*upload->moves),
                            cudaMemcpyHostToDevice, cohort->stream);
    }
    /* Each slot starts at the first step of this run. */
    if (error == cudaSuccess && trains(self)) {
        error = cudaMemsetAsync(cohort->arrays.steps_taken, 0,
                                active * sizeof(*cohort->arrays.steps_taken), cohort->stream);
    }
    if (error == cudaSuccess)
        error = cudaEventRecord(upload->done, cohort->stream);
    return check(self, error, "copying to it", err);
}

/* ---- one step -------------------------------------------------------------------------------- */

/* A step that can be recorded: [active] slots advance to the next step of their run. */
typedef struct training_step {
    const running *run;
    uint32_t active;
} training_step;

static cudaError_t queue_step(const void *user)
{
    const training_step *self = user;
    const fedge_cohort *cohort = self->run->cohort;
    const fedge_cohort_arrays *arrays = &cohort->arrays;
    const fedge_cohort_advance next = {.slot_steps = arrays->slot_steps,
                                       .indices = arrays->indices,
                                       .moves = arrays->moves,
                                       .steps_taken = arrays->steps_taken,
                                       .slot_step = arrays->slot_step,
                                       .batch = arrays->batch,
                                       .step_moves = arrays->step_moves};
    const fedge_cohort_batch batch = {arrays->batch, arrays->step_moves, arrays->predicted,
                                      arrays->tallies};
    const fedge_cohort_pass pass = {
        .shape = {arrays->slot_step, self->active, cohort->plan.batch, cohort->stream},
        .dropped = fedge_cohort_dropped_bits(&cohort->plan),
        .training = true,
        .values = {arrays->values, cohort->plan.stride},
        .tracked = arrays->values,
        .gradients = arrays->gradients,
        .gradient_stride = cohort->plan.stride};
    cudaError_t error = fedge_cohort_launch_advance(&pass.shape, &next);
    if (error == cudaSuccess)
        error = fedge_cohort_forward(cohort, &pass, &batch);
    if (error == cudaSuccess)
        error = fedge_cohort_backward(cohort, pass);
    return error == cudaSuccess ? fedge_cohort_take_step(cohort, &self->run->step, 0, &pass.shape)
                                : error;
}

/* Evaluation reads the uploaded run in place. */
static cudaError_t evaluate_step(const running *self, uint32_t k, uint32_t active)
{
    const fedge_cohort *cohort = self->cohort;
    const fedge_cohort_arrays *arrays = &cohort->arrays;
    const bool slot_models = has_slot_models(self);
    const size_t at = (size_t)k * active, first = at * cohort->plan.batch;
    const fedge_cohort_batch batch = {.indices = arrays->indices + first,
                                      .predicted = arrays->predicted + first,
                                      .tallies = arrays->tallies};
    const fedge_cohort_pass pass = {
        .shape = {arrays->slot_steps + at, active, cohort->plan.batch, cohort->stream},
        .dropped = fedge_cohort_dropped_bits(&cohort->plan),
        .values = {slot_models ? arrays->values : arrays->start,
                   slot_models ? cohort->plan.stride : 0}};
    return fedge_cohort_forward(cohort, &pass, &batch);
}

static fedge_status take_step(running *self, uint32_t k, uint32_t active, fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    const training_step step = {self, active};
    const fedge_cohort_shape shape = {cohort->arrays.slot_steps, active, cohort->plan.batch,
                                      cohort->stream};
    uint32_t which = 0;
    (void)round_up(active, cohort->num_slots, &which);
    /* Sets up slots whose task is at its first step. */
    cudaError_t error = k == 0
                            ? fedge_cohort_launch_begin(&shape, &self->step, cohort->arrays.tallies)
                            : cudaSuccess;
    if (error == cudaSuccess) {
        error = trains(self) ? fedge_cohort_repeat(cohort, which, queue_step, &step)
                             : evaluate_step(self, k, active);
    }
    return check(self, error, trains(self) ? "training" : "evaluating", err);
}

/* Copies the predictions of the queued run. Tasks start only at the first step of a run. */
static fedge_status fetch_predictions(running *self, uint32_t run, uint32_t active,
                                      fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    const uint32_t batch = cohort->plan.batch;
    cudaError_t error = cudaMemcpyAsync(cohort->predicted, cohort->arrays.predicted,
                                        (size_t)run * active * batch * sizeof(int32_t),
                                        cudaMemcpyDeviceToHost, cohort->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cohort->stream);
    for (uint32_t s = 0; s < active && error == cudaSuccess; s++) {
        const fedge_cohort_slot *slot = &cohort->slots[s];
        for (uint32_t k = 0; slot->task && slot->task->predicted && k < run; k++) {
            const uint64_t first = (slot->done - run + k) * batch;
            const uint64_t left = slot->task->num_examples - first;
            memcpy(slot->task->predicted + first,
                   cohort->predicted + ((size_t)k * active + s) * batch,
                   (left < batch ? left : batch) * sizeof(int32_t));
        }
    }
    return check(self, error, "copying from it", err);
}

/* ---- all tasks ------------------------------------------------------------------------------- */

/* Cancels the tasks in slots and those that were not started. */
static void cancel_remaining(running *self)
{
    fedge_cohort *cohort = self->cohort;
    fedge_cohort_task *task = NULL;
    for (uint32_t s = 0; s <= cohort->num_slots;) {
        task = s < cohort->num_slots
                   ? cohort->slots[s].task
                   /* After the slots, all tasks that were not started. */
                   : (self->no_more_tasks ? NULL : self->work->next(self->work->user));
        if (task) {
            task->status = fedge_fail(&task->error, FEDGE_CANCELLED, "training was cancelled");
            report_done(self, task, NULL);
        }
        if (s < cohort->num_slots)
            cohort->slots[s].task = NULL;
        s += s < cohort->num_slots || !task;
    }
}

/* Fills free slots, and runs all slots until the first one ends. *idle: no task is left. */
static fedge_status run_once(running *self, bool *idle, fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    uint32_t active = 0;
    self->wants_predicted = false;
    for (uint32_t s = 0; s < cohort->num_slots; s++) {
        FEDGE_TRY(begin_slot(self, s, err));
        const fedge_cohort_task *task = cohort->slots[s].task;
        self->wants_predicted |= !trains(self) && task && task->predicted;
    }
    const uint32_t run = count_run(self, &active);
    *idle = run == 0;
    if (run > 0)
        FEDGE_TRY(upload_run(self, run, active, err));
    for (uint32_t k = 0; k < run; k++)
        FEDGE_TRY(take_step(self, k, active, err));
    if (run > 0 && self->wants_predicted)
        FEDGE_TRY(fetch_predictions(self, run, active, err));
    /* In the order of slots, which does not depend on the GPU's speed. */
    for (uint32_t s = 0; s < active; s++) {
        const fedge_cohort_slot *slot = &cohort->slots[s];
        if (slot->task && slot->done == slot->steps)
            FEDGE_TRY(end_slot(self, s, err));
    }
    return FEDGE_OK;
}

/* True for equal options. The arrays are equal, since both are of one cohort. */
static bool is_same_optimizer(const fedge_cohort_step *a, const fedge_cohort_step *b)
{
    return a->optimizer == b->optimizer && a->nesterov == b->nesterov &&
           a->momentum == b->momentum && a->weight_decay == b->weight_decay &&
           a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->epsilon == b->epsilon &&
           a->proximal_mu == b->proximal_mu && a->clip_norm == b->clip_norm;
}

/* True when both can be trained in the same launches. */
static bool can_share_launches(const fedge_cohort *cohort, const fedge_trainer_config *training,
                               const fedge_trainer_config *first)
{
    if (!training || !first)
        return !training && !first;
    const fedge_cohort_step a = fedge_cohort_step_of(cohort, training);
    const fedge_cohort_step b = fedge_cohort_step_of(cohort, first);
    return is_same_optimizer(&a, &b);
}

/* Drops recorded graphs when the optimizer's arguments change, which are constants in them. */
static void update_graphs(running *self)
{
    fedge_cohort *cohort = self->cohort;
    if (trains(self) && !is_same_optimizer(&cohort->recorded, &self->step)) {
        fedge_cohort_forget_graphs(cohort);
        cohort->recorded = self->step;
    }
}

static fedge_status check_work(const fedge_cohort *cohort, const fedge_cohort_work *work,
                               fedge_error *err)
{
    const uint32_t most = fedge_cohort_members(&cohort->config);
    if (work->num_members == 0 || work->num_members > most) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%u members: this cohort was made for 1 to %u",
                          (unsigned)work->num_members, (unsigned)most);
    }
    for (uint32_t m = 0; m < work->num_members; m++) {
        const fedge_trainer_config *training = work->members[m].training;
        if (training && (!cohort->config.options->training || training->batch_size == 0 ||
                         training->batch_size > cohort->plan.batch)) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "batch_size is %u: this cohort was made for 1 to %u",
                              (unsigned)training->batch_size, (unsigned)cohort->plan.batch);
        }
        if (work->num_members > 1 && !training && !cohort->config.options->training) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "%u models to evaluate: a cohort that does not train takes one",
                              (unsigned)work->num_members);
        }
        if (work->num_members > 1 &&
            !can_share_launches(cohort, training, work->members[0].training)) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "member %u: its optimizer has more of its own than a learning rate",
                              (unsigned)m);
        }
    }
    if (work->num_chunks > cohort->config.num_chunks) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%u chunks: this cohort was made for %u",
                          (unsigned)work->num_chunks, (unsigned)cohort->config.num_chunks);
    }
    return FEDGE_OK;
}

/* The caller may free its tasks after a failure. Queued work refers to arrays and sums only. */
static void forget_tasks(fedge_cohort *cohort)
{
    for (uint32_t s = 0; s < cohort->num_slots; s++)
        cohort->slots[s].task = NULL;
    cohort->num_endings = 0;
}

static fedge_status run_all(running *self, fedge_error *err)
{
    fedge_cohort *cohort = self->cohort;
    const fedge_cohort_work *work = self->work;
    FEDGE_TRY(check(self, cudaSetDevice(cohort->config.gpu), "choosing it", err));
    update_graphs(self);
    for (uint32_t m = 0; m < work->num_members; m++) {
        FEDGE_TRY(stage(self, cohort->arrays.start + m * cohort->plan.stride,
                        work->members[m].start, cohort->plan.num_state, err));
    }
    FEDGE_TRY(stage_chunks(self, err));
    for (bool idle = false; !idle;) {
        /* Cancellation waits for the run in progress, which is short. */
        if (work->cancel && work->cancel(work->user))
            cancel_remaining(self);
        FEDGE_TRY(run_once(self, &idle, err));
    }
    while (cohort->num_endings > 0)
        FEDGE_TRY(end_oldest(self, err));
    return FEDGE_OK;
}

fedge_status fedge_cohort_run(fedge_cohort *cohort, const fedge_cohort_work *work, fedge_error *err)
{
    running self = {.cohort = cohort, .work = work};
    FEDGE_TRY(check_work(cohort, work, err));
    if (cohort->lost.status != FEDGE_OK) { /* not every error of a GPU is reported again */
        *err = cohort->lost;
        return cohort->lost.status;
    }
    self.step = fedge_cohort_step_of(cohort, work->members[0].training);
    if (has_slot_models(&self))
        self.step.values = cohort->arrays.values;
    const fedge_status status = run_all(&self, err);
    if (status != FEDGE_OK)
        forget_tasks(cohort);
    if (status == FEDGE_GPU_LOST)
        cohort->lost = *err;
    return status;
}
