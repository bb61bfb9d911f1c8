#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "aggregator/reduce/cuda/team.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aggregator/reduce/cuda/kernels.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"

/* ---- communicators ---- */

#define POLL_NS 20000

fedge_status fedge_cuda_comms_check(const fedge_cuda_comms *comms, fedge_nccl_result result,
                                    const char *doing, fedge_error *err)
{
    if (result == FEDGE_NCCL_SUCCESS)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_GPU_LOST, "%s is lost while %s: NCCL: %s", comms->names, doing,
                      comms->nccl->get_error_string(result));
}

fedge_gpu_call fedge_cuda_comms_call(const fedge_cuda_comms *comms, const char *doing)
{
    return (fedge_gpu_call){FEDGE_GPU_NCCL, comms->names, doing, 0, NULL, 0};
}

static void end_all(fedge_cuda_comms *comms, const char *doing,
                    fedge_nccl_result (*end_one)(ncclComm_t comm))
{
    fedge_gpu_call call = fedge_cuda_comms_call(comms, doing);
    fedge_gpu_watch_begin(comms->watch, &call);
    for (uint32_t i = 0; i < comms->num; i++) {
        if (comms->of[i])
            (void)end_one(comms->of[i]);
        comms->of[i] = NULL;
    }
    fedge_gpu_watch_end(comms->watch, &call);
    comms->num = 0;
}

void fedge_cuda_comms_abort(fedge_cuda_comms *comms)
{
    if (comms->num > 0)
        end_all(comms, "ending what is under way", comms->nccl->comm_abort);
}

void fedge_cuda_comms_close(fedge_cuda_comms *comms)
{
    if (comms->num > 0)
        end_all(comms, "closing NCCL", comms->nccl->comm_destroy);
}

static fedge_status look(const fedge_cuda_comms *comms, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < comms->num && status == FEDGE_OK; i++) {
        fedge_nccl_result async_error = FEDGE_NCCL_SUCCESS;
        const fedge_nccl_result result =
            comms->nccl->comm_get_async_error(comms->of[i], &async_error);
        /* A communicator that is still working has not failed. */
        async_error = async_error == FEDGE_NCCL_IN_PROGRESS ? FEDGE_NCCL_SUCCESS : async_error;
        status = fedge_cuda_comms_check(comms, result != FEDGE_NCCL_SUCCESS ? result : async_error,
                                        "joining sums", err);
    }
    return status;
}

/* Closing this GPU would wait forever for its work. */
static fedge_status give_up(const fedge_cuda_comms *comms, const fedge_cuda_gpu *gpu,
                            const fedge_cuda_wait *wait, fedge_error *err)
{
    fedge_error why;
    /* A collective operation does not tell which GPU is at fault. */
    if (comms->num == 0 && comms->watch->lost)
        (void)atomic_fetch_or(comms->watch->lost, 1ULL << gpu->ordinal);
    (void)fedge_fail(&why, FEDGE_GPU_LOST, "%s is lost while %s: no progress in %g s", wait->who,
                     wait->doing, wait->limit_ms / 1000.0);
    /* The callback ends the process, if there is one. */
    if (comms->watch->stuck)
        comms->watch->stuck(&why);
    return fedge_fail(err, why.status, "%s", why.message);
}

fedge_status fedge_cuda_comms_watch(const fedge_cuda_comms *comms, fedge_cuda_gpu *gpu,
                                    fedge_cuda_timing *timing, const fedge_cuda_wait *wait,
                                    fedge_error *err)
{
    const uint64_t start = fedge_os_monotonic_ms();
    for (;;) {
        /* Polled, not waited for: when a peer is lost NCCL's kernels never end, and only NCCL
         * reports it. */
        cudaError_t error = cudaEventQuery(timing->done);
        if (error == cudaSuccess)
            error = fedge_cuda_timing_count(timing, &gpu->times);
        if (error != cudaErrorNotReady)
            return fedge_cuda_check(gpu, error, wait->doing, err);
        FEDGE_TRY(look(comms, err));
        if (fedge_os_monotonic_ms() - start > wait->limit_ms)
            return give_up(comms, gpu, wait, err);
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

/* ---- the step ---- */

/* The state of a step. */
typedef struct step {
    fedge_cuda_team *team;
    const fedge_step_part *parts;
    const fedge_cuda_run *runs; /* position of each part */
    uint32_t num_parts;
    uint64_t total_weight;
    uint32_t num_chunks;
    int vector;                /* the vector copied in this pass: a moment, or VALUES */
    bool brings, moves, takes; /* copy missing values to the GPUs; step; copy back to the host */
} step;

#define VALUES 2

/* The blocks of one GPU in one chunk, and its sums and values. */
typedef struct gpu_part {
    uint32_t first_block, num_blocks; /* num_blocks 0: there is nothing to do */
    const int64_t *sums;
    float *vectors[VALUES + 1]; /* moments of the optimizer or NULL, then the values */
} gpu_part;

/* ---- NCCL ------------------------------------------------------------------------------------ */

fedge_status fedge_cuda_team_join(fedge_cuda_team *team, fedge_error *err)
{
    fedge_cuda_comms *comms = &team->comms;
    int ordinals[FEDGE_ACCUMULATOR_MAX_GPUS];
    for (uint32_t i = 0; i < team->num_gpus; i++)
        ordinals[i] = team->gpus[i].ordinal;
    fedge_gpu_call call = fedge_cuda_comms_call(comms, "starting NCCL");
    fedge_gpu_watch_begin(&team->watch, &call);
    const fedge_nccl_result result =
        team->nccl.comm_init_all(comms->of, (int)team->num_gpus, ordinals);
    fedge_gpu_watch_end(&team->watch, &call);
    comms->num = team->num_gpus;
    const fedge_status status = fedge_cuda_comms_check(comms, result, "starting NCCL", err);
    if (status != FEDGE_OK)
        fedge_cuda_comms_abort(comms); /* some communicators may exist, with threads and memory */
    return status;
}

void fedge_cuda_team_close(fedge_cuda_team *team)
{
    fedge_cuda_comms_close(&team->comms);
    for (uint32_t i = 0; i < team->num_gpus; i++)
        fedge_cuda_gpu_close(&team->gpus[i]);
    fedge_gpu_watch_fini(&team->watch);
    team->num_gpus = 0;
    free(team->cached);
    team->cached = NULL;
    fedge_nccl_unload(&team->nccl);
}

static fedge_status watch(const fedge_cuda_team *team, fedge_cuda_gpu *gpu,
                          fedge_cuda_timing *timing, fedge_error *err)
{
    const fedge_cuda_wait wait = {gpu->name, "taking the step", FEDGE_CUDA_TIMEOUT_MS};
    return fedge_cuda_comms_watch(&team->comms, gpu, timing, &wait, err);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The blocks that each GPU gets of chunk [chunk], by clients. */
static uint32_t scattered(const fedge_cuda_team *team, uint32_t chunk, uint32_t *first)
{
    assert(team->num_gpus > 0);
    const uint32_t all = team->gpus[0].num_blocks;
    const uint32_t most = FEDGE_CUDA_STEP_BLOCKS * team->num_gpus;
    *first = chunk * most;
    return (least(all - *first, most) + team->num_gpus - 1) / team->num_gpus;
}

static uint32_t count_chunks(const fedge_cuda_team *team)
{
    uint32_t largest = 0;
    assert(team->num_gpus > 0);
    for (uint32_t i = 0; i < team->num_gpus; i++) {
        const uint32_t blocks = team->gpus[i].num_blocks;
        largest = blocks > largest ? blocks : largest;
    }
    const uint32_t each = FEDGE_CUDA_STEP_BLOCKS * (team->joins ? team->num_gpus : 1);
    return (largest + each - 1) / each;
}

static gpu_part part_of_gpu(const fedge_cuda_team *team, uint32_t index, uint32_t chunk)
{
    const fedge_cuda_gpu *gpu = &team->gpus[index];
    const uint32_t end = gpu->first_block + gpu->num_blocks;
    const size_t from = (size_t)chunk * FEDGE_CUDA_STEP_BLOCKS * FEDGE_CUDA_BLOCK;
    /* Two chunks are in progress, each with its buffer of reduced sums. */
    gpu_part mine = {.sums = gpu->reduced[chunk % 2],
                     .vectors = {gpu->moments[0] ? gpu->moments[0] + from : NULL,
                                 gpu->moments[1] ? gpu->moments[1] + from : NULL,
                                 gpu->values + from}};
    uint32_t count = FEDGE_CUDA_STEP_BLOCKS;
    if (team->joins) {
        count = scattered(team, chunk, &mine.first_block);
        mine.first_block += index * count;
    } else {
        mine.first_block = gpu->first_block + chunk * count;
        mine.sums = gpu->sums + (size_t)chunk * count * FEDGE_CUDA_BLOCK;
    }
    mine.num_blocks = mine.first_block < end ? least(count, end - mine.first_block) : 0;
    return mine;
}

/* Begins or splits the timing of a chunk on every GPU. */
static fedge_status measure(fedge_cuda_team *team, uint32_t chunk, bool reduced, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < team->num_gpus && status == FEDGE_OK; i++) {
        fedge_cuda_gpu *gpu = &team->gpus[i];
        fedge_cuda_timing *timing = &gpu->work[chunk % 2].timing;
        cudaError_t error = cudaSetDevice(gpu->ordinal);
        if (error == cudaSuccess) {
            error = reduced ? fedge_cuda_timing_split(timing, FEDGE_CUDA_STEP, gpu->stream)
                            : fedge_cuda_timing_begin(timing, FEDGE_CUDA_REDUCE, gpu->stream);
        }
        status = fedge_cuda_check(gpu, error, "joining sums", err);
    }
    return status;
}

/* Reduces the sums of a chunk: each GPU gets the total of its part. */
static fedge_status join(fedge_cuda_team *team, uint32_t chunk, fedge_error *err)
{
    uint32_t first = 0;
    const size_t count = (size_t)scattered(team, chunk, &first) * FEDGE_CUDA_BLOCK;
    FEDGE_TRY(measure(team, chunk, false, err));
    fedge_gpu_call call = fedge_cuda_comms_call(&team->comms, "joining sums");
    fedge_gpu_watch_begin(&team->watch, &call);
    /* One thread calls for all GPUs: outside a group the first call would wait for the others. */
    fedge_status status =
        fedge_cuda_comms_check(&team->comms, team->nccl.group_start(), "joining sums", err);
    for (uint32_t i = 0; i < team->num_gpus && status == FEDGE_OK; i++) {
        const fedge_cuda_gpu *gpu = &team->gpus[i];
        FEDGE_TRY_OR(fedge_cuda_gpu_use(gpu, err), end_group);
        status = fedge_cuda_comms_check(
            &team->comms,
            team->nccl.reduce_scatter(gpu->sums + (size_t)first * FEDGE_CUDA_BLOCK,
                                      gpu->reduced[chunk % 2], count, FEDGE_NCCL_INT64,
                                      FEDGE_NCCL_SUM, team->comms.of[i], gpu->stream),
            "joining sums", err);
    }
end_group:;
    /* The group must be ended even when a call failed. */
    const fedge_nccl_result ended = team->nccl.group_end();
    fedge_gpu_watch_end(&team->watch, &call);
    FEDGE_TRY(status);
    FEDGE_TRY(fedge_cuda_comms_check(&team->comms, ended, "joining sums", err));
    return measure(team, chunk, true, err);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The intersection of part [p] and a GPU's range: values from [from] on, at coordinate [at]. False:
 * it is empty. */
static bool overlap(const step *self, uint32_t p, const gpu_part *mine, size_t *from, size_t *at,
                    size_t *count)
{
    const uint64_t begin = (uint64_t)mine->first_block * FEDGE_CUDA_BLOCK;
    const uint64_t end = begin + (uint64_t)mine->num_blocks * FEDGE_CUDA_BLOCK;
    const uint64_t padded = self->runs[p].padded;
    const uint64_t part_end = padded + self->parts[p].count;
    const uint64_t low = padded > begin ? padded : begin;
    const uint64_t high = part_end < end ? part_end : end;
    if (low >= high)
        return false;
    *from = (size_t)(low - padded);
    *at = (size_t)(low - begin);
    *count = (size_t)(high - low);
    return true;
}

/* The range of coordinates from the first part to the last in a GPU's range. Empty: the range stays
 * unchanged. */
static size_t range_of_parts(const step *self, const gpu_part *mine, size_t *first)
{
    size_t end = 0;
    *first = SIZE_MAX;
    for (uint32_t p = 0; p < self->num_parts; p++) {
        size_t from;
        size_t at;
        size_t count;
        if (overlap(self, p, mine, &from, &at, &count)) {
            *first = at < *first ? at : *first;
            end = at + count > end ? at + count : end;
        }
    }
    return end > 0 ? end - *first : 0;
}

/* The part's vector on the host for this pass. */
static float *host_vector(const step *self, const fedge_step_part *part)
{
    return self->vector == VALUES ? part->values : part->moments[self->vector];
}

/* Whether a GPU works on a chunk. By clients all or none do, since the reduction needs all of them.
 */
static bool has_work(const step *self, uint32_t index, uint32_t chunk)
{
    gpu_part mine = part_of_gpu(self->team, index, chunk);
    size_t first;
    if (self->team->joins)
        mine.num_blocks = scattered(self->team, chunk, &mine.first_block) * self->team->num_gpus;
    return range_of_parts(self, &mine, &first) > 0;
}

/* Copies the values that a GPU lacks through the pinned buffer. */
static cudaError_t bring(const step *self, const fedge_cuda_gpu *gpu, const gpu_part *mine,
                         float *pinned)
{
    cudaError_t error = cudaSuccess;
    for (uint32_t p = 0; p < self->num_parts && error == cudaSuccess; p++) {
        const fedge_step_part *part = &self->parts[p];
        /* The GPU has them from its last step, and they have not changed since. */
        const bool held = part->unchanged && self->team->cached[self->runs[p].tensor];
        size_t from;
        size_t at;
        size_t count;
        if (!held && overlap(self, p, mine, &from, &at, &count)) {
            memcpy(pinned + at, host_vector(self, part) + from, count * sizeof(*pinned));
            error = fedge_cuda_copy(gpu, mine->vectors[self->vector] + at, pinned + at,
                                    count * sizeof(*pinned), cudaMemcpyHostToDevice, gpu->stream);
        }
    }
    return error;
}

static cudaError_t launch(const step *self, const fedge_cuda_gpu *gpu, const gpu_part *mine)
{
    cudaError_t error = cudaSuccess;
    for (uint32_t p = 0; p < self->num_parts && error == cudaSuccess; p++) {
        const fedge_step_part *part = &self->parts[p];
        const double unit = ldexp(1.0, part->bound_log2 - FEDGE_FIXED_VALUE_BITS);
        size_t from;
        size_t at;
        size_t count;
        if (!overlap(self, p, mine, &from, &at, &count))
            continue;
        float *values = mine->vectors[VALUES] + at;
        if (part->optimizer) {
            const fedge_cuda_optimizer_range range = {
                .values = values,
                .moments = {mine->vectors[0] + at, mine->vectors[1] ? mine->vectors[1] + at : NULL},
                .sums = mine->sums + at,
                .count = (uint32_t)count,
                .total_weight = self->total_weight,
                .unit = unit,
                .rate = part->rate};
            error = fedge_cuda_optimize(part->optimizer, &range, gpu->stream);
        } else {
            error = fedge_cuda_step(values, mine->sums + at, (uint32_t)count, self->total_weight,
                                    unit, part->rate, gpu->stream);
        }
    }
    return error;
}

/* Queues the step of a GPU's part of a chunk. */
static fedge_status submit(const step *self, uint32_t index, uint32_t chunk, fedge_error *err)
{
    fedge_cuda_gpu *gpu = &self->team->gpus[index];
    fedge_cuda_buffer *buffer = &gpu->work[chunk % 2];
    float *pinned = (float *)(void *)buffer->pinned;
    const gpu_part mine = part_of_gpu(self->team, index, chunk);
    size_t first;
    const size_t count = range_of_parts(self, &mine, &first);
    fedge_status status = fedge_cuda_gpu_use(gpu, err);
    if (status != FEDGE_OK || !has_work(self, index, chunk))
        return status;
    /* By clients the timing began with the reduction. */
    cudaError_t error =
        self->team->joins && self->moves
            ? cudaSuccess
            : fedge_cuda_timing_begin(&buffer->timing, FEDGE_CUDA_STEP, gpu->stream);
    if (error == cudaSuccess && self->brings)
        error = bring(self, gpu, &mine, pinned);
    if (error == cudaSuccess && self->moves) {
        fedge_gpu_call call = fedge_cuda_call(gpu, "taking the step");
        fedge_gpu_watch_begin(gpu->watch, &call);
        error = launch(self, gpu, &mine);
        fedge_gpu_watch_end(gpu->watch, &call);
    }
    /* Copies all parts of the range at once; bytes between them belong to no part and are not used.
     */
    if (error == cudaSuccess && self->takes && count > 0) {
        error = fedge_cuda_copy(gpu, pinned + first, mine.vectors[self->vector] + first,
                                count * sizeof(*pinned), cudaMemcpyDeviceToHost, gpu->stream);
    }
    if (error == cudaSuccess)
        error = fedge_cuda_timing_end(&buffer->timing, gpu->stream);
    return fedge_cuda_check(gpu, error, "taking the step", err);
}

/* Collects the values of a chunk that was submitted. */
static fedge_status collect(const step *self, uint32_t index, uint32_t chunk, fedge_error *err)
{
    fedge_cuda_gpu *gpu = &self->team->gpus[index];
    fedge_cuda_buffer *buffer = &gpu->work[chunk % 2];
    const gpu_part mine = part_of_gpu(self->team, index, chunk);
    const float *pinned = (const float *)(const void *)buffer->pinned;
    fedge_status status = fedge_cuda_gpu_use(gpu, err);
    if (status != FEDGE_OK || !has_work(self, index, chunk))
        return status;
    status = watch(self->team, gpu, &buffer->timing, err);
    for (uint32_t p = 0; p < self->num_parts && self->takes && status == FEDGE_OK; p++) {
        size_t from;
        size_t at;
        size_t count;
        if (overlap(self, p, &mine, &from, &at, &count))
            memcpy(host_vector(self, &self->parts[p]) + from, pinned + at, count * sizeof(*pinned));
    }
    return status;
}

/* Two chunks are in progress at a time. */
static fedge_status run(const step *self, fedge_error *err)
{
    fedge_cuda_team *team = self->team;
    fedge_status status = FEDGE_OK;
    /* Chunk c is submitted while c − 1 runs; c − 2, whose buffer it uses, is collected first. */
    for (uint32_t c = 0; c < self->num_chunks + 2 && status == FEDGE_OK; c++) {
        for (uint32_t i = 0; i < team->num_gpus && c >= 2 && status == FEDGE_OK; i++)
            status = collect(self, i, c - 2, err);
        /* The reduction needs all GPUs; has_work is the same for all of them. */
        if (c < self->num_chunks && team->joins && self->moves && status == FEDGE_OK &&
            has_work(self, 0, c))
            status = join(team, c, err);
        for (uint32_t i = 0; i < team->num_gpus && c < self->num_chunks && status == FEDGE_OK; i++)
            status = submit(self, i, c, err);
    }
    return status;
}

fedge_status fedge_cuda_team_wait(fedge_cuda_team *team, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < team->num_gpus && status == FEDGE_OK; i++) {
        fedge_cuda_gpu *gpu = &team->gpus[i];
        status = fedge_cuda_gpu_use(gpu, err);
        for (int b = 0; b < 2 && status == FEDGE_OK; b++)
            status = watch(team, gpu, &gpu->work[b].timing, err);
    }
    return status;
}

/* A part of a tensor says nothing about the others. */
static void note_cached(fedge_cuda_team *team, const step *self)
{
    const fedge_cuda_tensor *tensors = team->gpus[0].geometry->tensors;
    for (uint32_t p = 0; p < self->num_parts; p++) {
        const uint32_t tensor = self->runs[p].tensor;
        team->cached[tensor] = self->parts[p].count == tensors[tensor].spec->count;
    }
}

/* Copies moments in, takes the step on the values, and copies moments out, each through the buffers
 * of the values. */
static fedge_status run_all(step *self, int num_moments, fedge_error *err)
{
    FEDGE_TRY(fedge_cuda_team_wait(self->team, err));
    for (self->vector = 0; self->vector < num_moments; self->vector++)
        FEDGE_TRY(run(self, err));
    self->vector = VALUES;
    self->moves = self->takes = true;
    FEDGE_TRY(run(self, err));
    self->brings = self->moves = false;
    for (self->vector = 0; self->vector < num_moments; self->vector++)
        FEDGE_TRY(run(self, err));
    for (uint32_t i = 0; i < self->team->num_gpus; i++)
        FEDGE_TRY(fedge_cuda_gpu_count_times(&self->team->gpus[i], err));
    return FEDGE_OK;
}

fedge_status fedge_cuda_team_step(fedge_cuda_team *team, const fedge_step_part *parts,
                                  uint32_t num_parts, uint64_t total_weight, fedge_error *err)
{
    fedge_cuda_run *runs = calloc(num_parts ? num_parts : 1, sizeof(*runs));
    if (!runs)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a step of %u parts", num_parts);
    for (uint32_t p = 0; p < num_parts; p++)
        runs[p] = fedge_cuda_run_at(team->gpus[0].geometry, parts[p].first, parts[p].count);
    const int num_moments =
        num_parts > 0 && parts[0].optimizer ? (int)parts[0].optimizer->num_moments : 0;
    step self = {team, parts, runs, num_parts, total_weight, count_chunks(team), 0, true, 0, 0};
    const fedge_status status = run_all(&self, num_moments, err);
    if (status == FEDGE_OK)
        note_cached(team, &self);
    else
        fedge_cuda_comms_abort(&team->comms);
    free(runs);
    return status;
}
