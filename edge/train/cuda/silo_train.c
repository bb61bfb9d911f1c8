/* Training by a silo: batches are uploaded to all GPUs, gradients summed, values stepped. */
#include <math.h>
#include <string.h>
#include <threads.h>

#include "edge/core/os.h"
#include "edge/train/cuda/cohort_internal.h"

/* One call of fedge_silo_train. */
typedef struct run {
    fedge_silo *silo;
    const fedge_trainer_config *training;
    const fedge_cohort_task *task;
    fedge_cohort_slot_step slot_step; /* the step of the whole batch */
    uint32_t fraction;                /* fraction bits of the sums */
} run;

fedge_status fedge_silo_nccl(const fedge_silo *silo, fedge_nccl_result result, const char *doing,
                             fedge_error *err)
{
    return result == FEDGE_NCCL_SUCCESS
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_GPU_LOST,
                            "%s is lost while %s: NCCL: %s; start again, with the GPUs that "
                            "there are",
                            silo->names, doing, silo->nccl.get_error_string(result));
}

static fedge_status check_comms(const fedge_silo *silo, fedge_error *err)
{
    for (uint32_t i = 0; i < silo->num_comms; i++) {
        fedge_nccl_result async_result = FEDGE_NCCL_SUCCESS;
        const fedge_nccl_result result =
            silo->nccl.comm_get_async_error(silo->comms[i], &async_result);
        async_result = async_result == FEDGE_NCCL_IN_PROGRESS ? FEDGE_NCCL_SUCCESS : async_result;
        FEDGE_TRY(fedge_silo_nccl(silo, result != FEDGE_NCCL_SUCCESS ? result : async_result,
                                  "joining gradients", err));
    }
    return FEDGE_OK;
}

/* Waits for an event. Fails when NCCL reports an error, as the event might never occur then. */
static fedge_status wait_for(const fedge_silo *silo, const fedge_cohort *cohort, cudaEvent_t event,
                             fedge_error *err)
{
    const uint64_t start = fedge_os_monotonic_ms();
    for (;;) {
        const cudaError_t error = cudaEventQuery(event);
        if (error != cudaErrorNotReady)
            return fedge_cohort_cuda(cohort, error, "waiting for it", err);
        FEDGE_TRY(check_comms(silo, err));
        if (fedge_os_monotonic_ms() - start > FEDGE_SILO_TIMEOUT_MS) {
            return fedge_fail(err, FEDGE_GPU_LOST,
                              "GPU %d is lost while training: no progress in %d s",
                              cohort->config.gpu, FEDGE_SILO_TIMEOUT_MS / 1000);
        }
        thrd_yield();
    }
}

/* ---- one GPU --------------------------------------------------------------------------------- */

static fedge_status use(const fedge_silo_gpu *gpu, fedge_error *err)
{
    return fedge_cohort_cuda(gpu->cohort, cudaSetDevice(gpu->cohort->config.gpu), "choosing it",
                             err);
}

/* Copies [count] floats to the GPU through pinned memory. */
static fedge_status stage(const run *self, fedge_cohort *cohort, uint32_t at, float *to,
                          const float *from, size_t count, fedge_error *err)
{
    const size_t size = count * sizeof(float);
    /* The GPU may still read the last copy from this buffer. Values and correction use one each, so
     * neither waits for the other. */
    FEDGE_TRY(wait_for(self->silo, cohort, cohort->staged[at], err));
    memcpy(cohort->staging[at], from, size);
    cudaError_t error =
        cudaMemcpyAsync(to, cohort->staging[at], size, cudaMemcpyHostToDevice, cohort->stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(cohort->staged[at], cohort->stream);
    return fedge_cohort_cuda(cohort, error, "copying to it", err);
}

/* Copies the values, and sets states and tallies to 0. */
static fedge_status begin(const run *self, fedge_silo_gpu *gpu, const float *values,
                          fedge_error *err)
{
    fedge_cohort *cohort = gpu->cohort;
    const fedge_cohort_arrays *arrays = &cohort->arrays;
    const size_t states =
        fedge_cohort_num_state_values(&cohort->plan) * fedge_cohort_state_size(&cohort->plan);
    FEDGE_TRY(use(gpu, err));
    FEDGE_TRY(stage(self, cohort, 0, arrays->start, values, cohort->plan.num_state, err));
    if (self->task->correction && arrays->corrections) {
        FEDGE_TRY(stage(self, cohort, 1, arrays->corrections, self->task->correction,
                        cohort->plan.num_values, err));
    }
    cudaError_t error =
        cudaMemcpyAsync(arrays->values, arrays->start, cohort->plan.num_state * sizeof(float),
                        cudaMemcpyDefault, cohort->stream);
    for (uint32_t i = 0; i < cohort->plan.num_states && error == cudaSuccess; i++) {
        if (cohort->host_states[i]) { /* the task before has ended */
            memset(cohort->host_states[i], 0, states);
        } else {
            error = cudaMemsetAsync(arrays->states[i], 0, states, cohort->stream);
        }
    }
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(arrays->tallies, 0, gpu->num_parts * sizeof(*arrays->tallies),
                                cohort->stream);
    }
    return fedge_cohort_cuda(cohort, error, "copying to it", err);
}

/* Writes a slot step for each of the GPU's parts, then one for the optimizer's step. */
static void fill_slot_steps(const run *self, const fedge_silo_gpu *gpu,
                            fedge_cohort_slot_step *slot_steps)
{
    const uint32_t part = self->silo->split.part;
    for (uint32_t i = 0; i <= gpu->num_parts; i++) {
        const uint64_t first = (uint64_t)(gpu->first_part + i) * part;
        const uint32_t left =
            first < self->slot_step.count ? self->slot_step.count - (uint32_t)first : 0;
        slot_steps[i] = self->slot_step;
        slot_steps[i].first = (uint32_t)first;
        slot_steps[i].count = i == gpu->num_parts ? self->slot_step.count
                              : left < part       ? left
                                                  : part;
    }
}

static fedge_status upload_step(const run *self, fedge_silo_gpu *gpu, fedge_error *err)
{
    const fedge_silo *silo = self->silo;
    fedge_cohort *cohort = gpu->cohort;
    const fedge_cohort_arrays *arrays = &cohort->arrays;
    /* The host fills one upload while the GPU may still read the other, so a step's examples are
     * ready when the step before ends. */
    fedge_cohort_upload *upload = &cohort->upload[cohort->next_upload++ % 2];
    const size_t first = (size_t)gpu->first_part * silo->split.part;
    const size_t left = first < self->slot_step.count ? self->slot_step.count - first : 0;
    const size_t most = (size_t)gpu->num_parts * silo->split.part;
    const size_t count = left < most ? left : most;
    FEDGE_TRY(wait_for(silo, cohort, upload->done, err));
    fill_slot_steps(self, gpu, upload->slot_steps);
    memcpy(upload->indices, silo->indices + first, count * sizeof(*upload->indices));
    cudaError_t error = cudaMemcpyAsync(arrays->slot_steps, upload->slot_steps,
                                        (gpu->num_parts + 1) * sizeof(*upload->slot_steps),
                                        cudaMemcpyHostToDevice, cohort->stream);
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(arrays->indices, upload->indices, count * sizeof(*upload->indices),
                                cudaMemcpyHostToDevice, cohort->stream);
    }
    if (error == cudaSuccess && upload->moves) {
        memcpy(upload->moves, silo->moves + first, count * sizeof(*upload->moves));
        error = cudaMemcpyAsync(arrays->moves, upload->moves, count * sizeof(*upload->moves),
                                cudaMemcpyHostToDevice, cohort->stream);
    }
    if (error == cudaSuccess)
        error = cudaEventRecord(upload->done, cohort->stream);
    return fedge_cohort_cuda(cohort, error, "copying to it", err);
}

static fedge_cohort_gradient_sums sums_of(const run *self, const fedge_cohort *cohort)
{
    return (fedge_cohort_gradient_sums){.gradients = cohort->arrays.gradients,
                                        .gradient_stride = cohort->plan.stride,
                                        .sums = cohort->arrays.sums,
                                        .fraction = self->fraction,
                                        .examples = self->slot_step.count};
}

/* Trains the GPU's parts [first, first + count) side by side, and sums their gradients. */
static cudaError_t add_wave(const run *self, const fedge_silo_gpu *gpu, uint32_t first,
                            uint32_t count)
{
    const size_t examples = (size_t)first * gpu->cohort->plan.batch;
    const fedge_cohort *cohort = gpu->cohort;
    const fedge_cohort_arrays *arrays = &cohort->arrays;
    const fedge_cohort_plan *plan = &cohort->plan;
    const fedge_cohort_pass pass = {
        .shape = {arrays->slot_steps + first, count, plan->batch, cohort->stream},
        .dropped = fedge_cohort_dropped_bits(plan),
        .training = true,
        .values = {arrays->values, 0},
        .tracked = arrays->values,
        .gradients = arrays->gradients,
        .gradient_stride = plan->stride};
    fedge_cohort_gradient_sums sums = sums_of(self, cohort);
    sums.tallies = arrays->tallies + first;
    const fedge_cohort_batch batch = {arrays->indices + examples,
                                      arrays->moves ? arrays->moves + examples : NULL,
                                      arrays->predicted + examples, sums.tallies};
    cudaError_t error = fedge_cohort_forward(cohort, &pass, &batch);
    if (error == cudaSuccess)
        error = fedge_cohort_backward(cohort, pass);
    for (uint32_t i = 0; i < plan->num_ranges && error == cudaSuccess; i++) {
        sums.first = plan->ranges[i][0];
        sums.count = plan->ranges[i][1];
        error = fedge_cohort_launch_sum_gradients(&pass.shape, &sums);
    }
    return error;
}

typedef struct parts {
    const run *run;
    const fedge_silo_gpu *gpu;
} parts;

/* Trains all of the GPU's parts. The queued work is the same in each step, so it can be recorded.
 */
static cudaError_t queue_parts(const void *user)
{
    const parts *self = user;
    const fedge_silo_gpu *gpu = self->gpu;
    const fedge_cohort *cohort = gpu->cohort;
    const uint32_t slots = cohort->num_slots;
    cudaError_t error = cudaMemsetAsync(cohort->arrays.sums, 0,
                                        cohort->plan.stride * sizeof(int64_t), cohort->stream);
    for (uint32_t at = 0; at < gpu->num_parts && error == cudaSuccess; at += slots) {
        const uint32_t left = gpu->num_parts - at;
        error = add_wave(self->run, gpu, at, left < slots ? left : slots);
    }
    return error;
}

static fedge_status add_parts(const run *self, fedge_silo_gpu *gpu, fedge_error *err)
{
    const parts all = {self, gpu};
    return fedge_cohort_cuda(gpu->cohort, fedge_cohort_repeat(gpu->cohort, 0, queue_parts, &all),
                             "training", err);
}

/* ---- all GPUs -------------------------------------------------------------------------------- */

enum { REDUCE_SUMS, GATHER_GRADIENTS, GATHER_VALUES };

static fedge_nccl_result call(const fedge_silo *silo, uint32_t index, int what)
{
    const fedge_cohort *cohort = silo->gpus[index].cohort;
    const fedge_cohort_arrays *arrays = &cohort->arrays;
    const size_t each = fedge_cohort_num_stepped(&cohort->plan);
    float *all = what == GATHER_VALUES ? arrays->values : arrays->gradients;
    return what == REDUCE_SUMS
               ? silo->nccl.reduce_scatter(arrays->sums, arrays->reduced, each, FEDGE_NCCL_INT64,
                                           FEDGE_NCCL_SUM, silo->comms[index], cohort->stream)
               /* In place, which NCCL allows if a GPU's range begins at index · each. */
               : silo->nccl.all_gather(all + index * each, all, each, FEDGE_NCCL_FLOAT32,
                                       silo->comms[index], cohort->stream);
}

static fedge_status call_on(fedge_silo *silo, uint32_t index, int what, fedge_error *err)
{
    FEDGE_TRY(use(&silo->gpus[index], err));
    return fedge_silo_nccl(silo, call(silo, index, what), "joining gradients", err);
}

static fedge_status queue_calls(fedge_silo *silo, int what, fedge_error *err)
{
    FEDGE_TRY(fedge_silo_nccl(silo, silo->nccl.group_start(), "joining gradients", err));
    for (uint32_t i = 0; i < silo->num_comms; i++)
        FEDGE_TRY(call_on(silo, i, what, err));
    return FEDGE_OK;
}

/* One collective of all GPUs. A single GPU has no communicator, and needs none: its sums are
 * already those of all parts. */
static fedge_status run_collective(fedge_silo *silo, int what, fedge_error *err)
{
    if (silo->num_comms == 0)
        return FEDGE_OK;
    /* The end of a group may wait for a GPU that does not answer; only the watch can end that. */
    fedge_gpu_call joining = {FEDGE_GPU_NCCL, silo->names, "joining gradients", 0, NULL, 0};
    fedge_gpu_watch_begin(&silo->watch, &joining);
    const fedge_status status = queue_calls(silo, what, err);
    /* Every group that was started has to end, also after a failed call. */
    const fedge_nccl_result ended = silo->nccl.group_end();
    fedge_gpu_watch_end(&silo->watch, &joining);
    FEDGE_TRY(status);
    return fedge_silo_nccl(silo, ended, "joining gradients", err);
}

/* Converts the summed gradient of the values that a GPU steps. */
static fedge_status take_gradient(const run *self, uint32_t index, fedge_error *err)
{
    const fedge_silo_gpu *gpu = &self->silo->gpus[index];
    const fedge_cohort_plan *plan = &gpu->cohort->plan;
    fedge_cohort_gradient_sums sums = sums_of(self, gpu->cohort);
    sums.sums = gpu->cohort->arrays.reduced;
    sums.count = (uint32_t)fedge_cohort_num_stepped(plan);
    sums.first = index * sums.count;
    FEDGE_TRY(use(gpu, err));
    return fedge_cohort_cuda(gpu->cohort,
                             fedge_cohort_launch_mean_gradients(&sums, gpu->cohort->stream),
                             "training", err);
}

static fedge_status step_values(const run *self, uint32_t index, fedge_error *err)
{
    const fedge_silo_gpu *gpu = &self->silo->gpus[index];
    const fedge_cohort *cohort = gpu->cohort;
    const fedge_cohort_shape shape = {cohort->arrays.slot_steps + gpu->num_parts, 1,
                                      cohort->plan.batch, cohort->stream};
    fedge_cohort_step step = fedge_cohort_step_of(cohort, self->training);
    const size_t from = index * fedge_cohort_num_stepped(&cohort->plan);
    step.corrections = self->task->correction ? step.corrections : NULL;
    FEDGE_TRY(use(gpu, err));
    return fedge_cohort_cuda(cohort, fedge_cohort_take_step(cohort, &step, from, &shape),
                             "training", err);
}

/* One step: each GPU sums the gradients of its parts in fixed point, a reduce-scatter adds the
 * sums, each GPU converts and steps its range, and an all-gather distributes the values. Clipping
 * also needs the whole gradient on every GPU, for its norm. */
static fedge_status take_step(run *self, fedge_error *err)
{
    fedge_silo *silo = self->silo;
    const uint32_t gpus = silo->split.num_gpus;
    /* Drawn once; each GPU gets its parts of the batch. */
    self->slot_step =
        fedge_cohort_next_step(silo->gpus[0].cohort, self->training, &silo->order, silo->indices,
                               silo->config.cohort.augmentation ? silo->moves : NULL);
    for (uint32_t i = 0; i < gpus; i++) {
        FEDGE_TRY(use(&silo->gpus[i], err));
        FEDGE_TRY(upload_step(self, &silo->gpus[i], err));
        FEDGE_TRY(add_parts(self, &silo->gpus[i], err));
    }
    FEDGE_TRY(run_collective(silo, REDUCE_SUMS, err));
    for (uint32_t i = 0; i < gpus; i++)
        FEDGE_TRY(take_gradient(self, i, err));
    if (self->training->optimizer.clip_norm > 0.0f)
        FEDGE_TRY(run_collective(silo, GATHER_GRADIENTS, err));
    for (uint32_t i = 0; i < gpus; i++)
        FEDGE_TRY(step_values(self, i, err));
    return run_collective(silo, GATHER_VALUES, err);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Copies the GPU's tallies, and from the first GPU the model, and waits. */
static fedge_status fetch_results(const run *self, uint32_t index, fedge_error *err)
{
    const fedge_silo_gpu *gpu = &self->silo->gpus[index];
    const fedge_cohort *cohort = gpu->cohort;
    FEDGE_TRY(use(gpu, err));
    cudaError_t error = cudaMemcpyAsync(gpu->tallies, cohort->arrays.tallies,
                                        gpu->num_parts * sizeof(*gpu->tallies),
                                        cudaMemcpyDeviceToHost, cohort->stream);
    if (error == cudaSuccess && index == 0) {
        error = cudaMemcpyAsync(cohort->endings[0].values, cohort->arrays.values,
                                cohort->plan.num_state * sizeof(float), cudaMemcpyDeviceToHost,
                                cohort->stream);
    }
    if (error == cudaSuccess)
        error = cudaEventRecord(cohort->endings[0].done, cohort->stream);
    return error == cudaSuccess ? wait_for(self->silo, cohort, cohort->endings[0].done, err)
                                : fedge_cohort_cuda(cohort, error, "copying from it", err);
}

static fedge_status fail_loss(const run *self, const fedge_cohort_tally *bad, fedge_error *err)
{
    const fedge_status status = fedge_fail(err, FEDGE_NOT_FINITE,
                                           "the loss of a part of a batch is %g: lower the "
                                           "learning rate, clip the gradients' norm, or "
                                           "normalise the data",
                                           isnan(bad->bad_loss) ? (double)NAN : bad->bad_loss);
    return fedge_error_prefix(err, status, "round %u, step %u", (unsigned)self->training->round,
                              (unsigned)bad->bad_step);
}

static fedge_status sum_results(const run *self, fedge_trainer_result *result, fedge_error *err)
{
    const fedge_silo *silo = self->silo;
    const fedge_cohort_tally *bad = NULL;
    uint32_t bad_value = 0;
    for (uint32_t i = 0; i < silo->split.num_gpus; i++) {
        for (uint32_t p = 0; p < silo->gpus[i].num_parts; p++) {
            const fedge_cohort_tally *tally = &silo->gpus[i].tallies[p];
            /* The order of parts does not depend on the number of GPUs. */
            result->loss_sum += tally->loss_sum;
            result->correct += tally->correct;
            /* The earliest step and its first part, for the same message on any number of GPUs. */
            bad = tally->bad_step > 0 && (!bad || tally->bad_step < bad->bad_step) ? tally : bad;
            bad_value = tally->bad_value > bad_value ? tally->bad_value : bad_value;
        }
    }
    if (bad)
        return fail_loss(self, bad, err);
    const fedge_cohort *first = silo->gpus[0].cohort;
    /* Finite gradients may still lead to a value that is not finite. */
    for (uint32_t i = 0; i < first->plan.num_values && bad_value == 0; i++)
        bad_value = isfinite(first->endings[0].values[i]) ? 0 : ~i;
    return bad_value == 0
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NOT_FINITE,
                            "round %u: value %u of the model, or its gradient, is not finite or "
                            "larger than %g: lower the learning rate, or clip the gradients' norm",
                            (unsigned)self->training->round, (unsigned)~bad_value,
                            (double)FEDGE_COHORT_MAX_GRADIENT);
}

static uint32_t log2_up(uint32_t n)
{
    uint32_t log2 = 0;
    while (log2 < 31 && (1u << log2) < n)
        log2++;
    return log2;
}

static fedge_status check(const run *self, uint64_t *steps, fedge_error *err)
{
    const fedge_trainer_config *training = self->training;
    const uint32_t most = self->silo->config.cohort.options->max_batch;
    if (training->batch_size == 0 || training->batch_size > most) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "batch_size is %u: this silo was made for 1 to %u",
                          (unsigned)training->batch_size, (unsigned)most);
    }
    if (self->task->num_examples == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "there are no examples to read");
    return fedge_cohort_count_steps(&self->silo->gpus[0].cohort->plan, training,
                                    self->task->num_examples, steps, err);
}

static fedge_status train(run *self, float *values, uint64_t steps, fedge_cancel_fn cancel,
                          void *cancel_user, fedge_error *err)
{
    fedge_silo *silo = self->silo;
    bool cancelled = false;
    for (uint32_t i = 0; i < silo->split.num_gpus; i++)
        FEDGE_TRY(begin(self, &silo->gpus[i], values, err));
    for (uint64_t k = 0; k < steps && !cancelled; k++) {
        cancelled = cancel && cancel(cancel_user);
        if (!cancelled)
            FEDGE_TRY(take_step(self, err));
    }
    /* Also after a cancellation, to wait for queued work. */
    for (uint32_t i = 0; i < silo->split.num_gpus; i++)
        FEDGE_TRY(fetch_results(self, i, err));
    return cancelled ? fedge_fail(err, FEDGE_CANCELLED, "training was cancelled") : FEDGE_OK;
}

fedge_status fedge_silo_train(fedge_silo *silo, const fedge_cohort_task *task,
                              const fedge_trainer_config *training, float *values,
                              fedge_cancel_fn cancel, void *cancel_user,
                              fedge_trainer_result *result, fedge_error *err)
{
    fedge_cohort_task mine = *task;
    /* Gradients are at most ±2^16 (FEDGE_COHORT_MAX_GRADIENT) and examples at most 2^log2_up, so
     * sums are within ±2^62 and an int64 holds them. */
    run self = {.silo = silo,
                .training = training,
                .task = &mine,
                .fraction = 46 - log2_up(silo->config.cohort.options->max_batch)};
    uint64_t steps = 0;
    FEDGE_TRY(check(&self, &steps, err));
    FEDGE_TRY(fedge_cohort_fit_order(&silo->order, mine.num_examples, err));
    silo->order.task = &mine;
    silo->order.next = silo->order.epoch = 0;
    silo->order.done = silo->order.seen = 0;
    fedge_status status = train(&self, values, steps, cancel, cancel_user, err);
    silo->order.task = NULL;
    /* When memory is exhausted on one GPU, another may still work on the step or wait for ever.
     * Only a new process starts without queued work. */
    if (status == FEDGE_NO_MEMORY)
        status = fedge_error_prefix(err, FEDGE_GPU_LOST, "training is cut off");
    silo->lost |= status == FEDGE_GPU_LOST;
    *result = (fedge_trainer_result){
        .num_examples = task->num_examples, .num_steps = steps, .num_seen = silo->order.seen};
    FEDGE_TRY(status);
    FEDGE_TRY(sum_results(&self, result, err));
    memcpy(values, silo->gpus[0].cohort->endings[0].values,
           silo->gpus[0].cohort->plan.num_state * sizeof(float));
    return FEDGE_OK;
}
