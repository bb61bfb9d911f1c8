#include "aggregator/reduce/cuda/accumulator_cuda.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOING "joining sums of ranks"
#define ALIGNED ((size_t)16) /* alignment of a chunk, in sums: 128 bytes */

/* A GPU of any rank, and the coordinates whose totals it gets. */
typedef struct member {
    size_t first, count;
} member;

typedef struct scatter {
    fedge_cuda_team *team;
    fedge_cuda_comms comms; /* communicators with all ranks */
    member *members;        /* (num_members), in the order of ranks */
    uint32_t num_members;
    uint32_t first_member; /* index of this rank's first; its others follow */
    size_t chunk_size;     /* sums that each member gets at a time */
    size_t num_chunks;
} scatter;

static fedge_status prepare(void *accumulator, char release[FEDGE_COLLECTIVE_FACT_TEXT],
                            fedge_error *err)
{
    fedge_cuda_team *team = fedge_accumulator_cuda_team(accumulator);
    if (team->num_gpus > 1 && !team->joins) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "its GPUs share the coordinates, and not the clients (--shard)");
    }
    FEDGE_TRY(team->nccl.library ? FEDGE_OK : fedge_nccl_load(&team->nccl, err));
    fedge_nccl_version_text(team->nccl.version, release, FEDGE_COLLECTIVE_FACT_TEXT);
    return FEDGE_OK;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

static void scatter_close(void *state)
{
    scatter *self = state;
    if (self) {
        /* Destroying communicators would wait for other ranks, which may have new ones already. */
        fedge_cuda_comms_abort(&self->comms);
        free(self->members);
        free(self);
    }
}

/* counts (num_ranks): GPUs of each rank. */
static fedge_status divide(scatter *self, const fedge_collective *ranks, const int64_t *counts,
                           size_t num_elements, fedge_error *err)
{
    size_t most = 0;
    for (uint32_t rank = 0; rank < ranks->num_ranks; rank++)
        self->num_members += (uint32_t)counts[rank];
    self->members = calloc(self->num_members, sizeof(*self->members));
    self->chunk_size = FEDGE_CUDA_CHUNK_BYTES / sizeof(int64_t) / self->num_members;
    self->chunk_size -= self->chunk_size > ALIGNED ? self->chunk_size % ALIGNED : 0;
    if (!self->members || self->chunk_size == 0)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u GPUs", self->num_members);
    uint32_t made = 0;
    for (uint32_t rank = 0; rank < ranks->num_ranks; rank++) {
        const fedge_collective_shard shard = fedge_collective_shard_of(ranks, num_elements, rank);
        const uint64_t num = (uint64_t)counts[rank];
        self->first_member = rank == ranks->rank ? made : self->first_member;
        for (uint64_t i = 0; i < num; i++, made++) {
            const size_t first = (size_t)(shard.count * i / num);
            const size_t count = (size_t)(shard.count * (i + 1) / num) - first;
            self->members[made] = (member){shard.first + first, count};
            most = count > most ? count : most;
        }
    }
    self->num_chunks = (most + self->chunk_size - 1) / self->chunk_size;
    return FEDGE_OK;
}

/* Exchanges the number of GPUs of each rank, so that all ranks compute the same members. */
static fedge_status gather_members(scatter *self, const fedge_collective *ranks,
                                   size_t num_elements, fedge_error *err)
{
    int64_t *counts = calloc(ranks->num_ranks, sizeof(*counts));
    fedge_status status =
        counts ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the GPUs of all ranks");
    status = fedge_collective_agree(ranks, status, NULL, 0, err);
    if (status == FEDGE_OK) {
        assert(counts); /* without counts this rank would not have agreed */
        counts[ranks->rank] = self->team->num_gpus;
        fedge_collective_sum(ranks, counts, ranks->num_ranks);
        fedge_collective_broadcast(ranks, counts, ranks->num_ranks * sizeof(*counts), 0);
        status = divide(self, ranks, counts, num_elements, err);
    }
    free(counts);
    return status;
}

static fedge_status make_id(const scatter *self, fedge_nccl_id *id, fedge_error *err)
{
    fedge_gpu_call call = fedge_cuda_comms_call(&self->comms, "starting NCCL");
    fedge_gpu_watch_begin(self->comms.watch, &call);
    const fedge_nccl_result result = self->team->nccl.get_unique_id(id);
    fedge_gpu_watch_end(self->comms.watch, &call);
    return fedge_cuda_comms_check(&self->comms, result, "starting NCCL", err);
}

/* All ranks call it at the same time: each waits for the others. */
static fedge_status start(scatter *self, fedge_nccl_id id, fedge_error *err)
{
    fedge_cuda_comms *comms = &self->comms;
    const fedge_nccl *nccl = comms->nccl;
    assert(nccl);
    fedge_gpu_call call = fedge_cuda_comms_call(comms, "starting NCCL");
    comms->num = self->team->num_gpus; /* scatter_close aborts those that exist after a failure */
    fedge_gpu_watch_begin(comms->watch, &call);
    fedge_status status = fedge_cuda_comms_check(comms, nccl->group_start(), "starting NCCL", err);
    for (uint32_t i = 0; i < self->team->num_gpus && status == FEDGE_OK; i++) {
        FEDGE_TRY_OR(fedge_cuda_gpu_use(&self->team->gpus[i], err), end_group);
        status = fedge_cuda_comms_check(comms,
                                        nccl->comm_init_rank(&comms->of[i], (int)self->num_members,
                                                             id, (int)(self->first_member + i)),
                                        "starting NCCL", err);
    }
end_group:;
    const fedge_nccl_result ended = nccl->group_end();
    fedge_gpu_watch_end(comms->watch, &call);
    if (status == FEDGE_OK && ended == FEDGE_NCCL_INVALID_USAGE) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "NCCL does not start (%s): give each rank GPUs of its own by --gpus",
                          nccl->get_error_string(ended));
    }
    return status == FEDGE_OK ? fedge_cuda_comms_check(comms, ended, "starting NCCL", err) : status;
}

static fedge_status scatter_open(void *accumulator, const fedge_collective *ranks,
                                 size_t num_elements, void **state, fedge_error *err)
{
    scatter *self = calloc(1, sizeof(*self));
    fedge_nccl_id id = {{0}};
    *state = NULL;
    fedge_status status = self ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for NCCL");
    status = fedge_collective_agree(ranks, status, NULL, 0, err);
    if (status == FEDGE_OK) {
        assert(self);
        self->team = fedge_accumulator_cuda_team(accumulator);
        self->comms.nccl = &self->team->nccl;
        self->comms.watch = &self->team->watch;
        (void)snprintf(self->comms.names, sizeof(self->comms.names), "%s or of another rank's",
                       self->team->comms.names);
        status = gather_members(self, ranks, num_elements, err);
    }
    if (status == FEDGE_OK && ranks->rank == 0)
        status = make_id(self, &id, err);
    status = fedge_collective_agree(ranks, status, NULL, 0, err);
    if (status == FEDGE_OK) {
        assert(self);
        fedge_collective_broadcast(ranks, &id, sizeof(id), 0);
        status = start(self, id, err);
    }
    if (status == FEDGE_OK)
        *state = self;
    else
        scatter_close(self);
    return status;
}

/* ---- sums -------------------------------------------------------------------------------------
 */

/* The part of chunk [at] that a member gets. */
static member part_of(const scatter *self, uint32_t index, size_t at)
{
    const member *of = &self->members[index];
    const size_t done = at * self->chunk_size < of->count ? at * self->chunk_size : of->count;
    const size_t left = of->count - done;
    return (member){of->first + done, left < self->chunk_size ? left : self->chunk_size};
}

/* Packs the GPU's sums of a chunk for all members. What follows the last sum of a part is
 * undefined; it is added to a sum that is never read. */
static cudaError_t pack(const scatter *self, const fedge_cuda_gpu *gpu, size_t at, int64_t *to)
{
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; i < self->num_members; i++, to += self->chunk_size) {
        member left = part_of(self, i, at);
        int64_t *next = to;
        while (left.count > 0 && error == cudaSuccess) {
            const fedge_cuda_run run = fedge_cuda_run_at(gpu->geometry, left.first, left.count);
            error = fedge_cuda_copy(gpu, next, gpu->sums + run.padded, run.count * sizeof(*next),
                                    cudaMemcpyDeviceToDevice, gpu->stream);
            next += run.count;
            left.first += run.count;
            left.count -= run.count;
        }
    }
    return error;
}

static int64_t *buffer_of(const fedge_cuda_gpu *gpu, size_t at)
{
    return (int64_t *)(void *)gpu->work[at % 2].device;
}

static fedge_status pack_all(scatter *self, size_t at, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < self->team->num_gpus && status == FEDGE_OK; i++) {
        fedge_cuda_gpu *gpu = &self->team->gpus[i];
        status = fedge_cuda_gpu_use(gpu, err);
        if (status == FEDGE_OK) {
            cudaError_t error =
                fedge_cuda_timing_begin(&gpu->work[at % 2].timing, FEDGE_CUDA_REDUCE, gpu->stream);
            if (error == cudaSuccess)
                error = pack(self, gpu, at, buffer_of(gpu, at));
            status = fedge_cuda_check(gpu, error, DOING, err);
        }
    }
    return status;
}

/* Reduces in place: each member's result replaces its part. */
static fedge_status reduce(scatter *self, size_t at, fedge_error *err)
{
    const fedge_cuda_comms *comms = &self->comms;
    fedge_gpu_call call = fedge_cuda_comms_call(comms, DOING);
    fedge_gpu_watch_begin(comms->watch, &call);
    fedge_status status = fedge_cuda_comms_check(comms, comms->nccl->group_start(), DOING, err);
    for (uint32_t i = 0; i < comms->num && status == FEDGE_OK; i++) {
        const fedge_cuda_gpu *gpu = &self->team->gpus[i];
        int64_t *buffer = buffer_of(gpu, at);
        FEDGE_TRY_OR(fedge_cuda_gpu_use(gpu, err), end_group);
        status = fedge_cuda_comms_check(
            comms,
            comms->nccl->reduce_scatter(
                buffer, buffer + (self->first_member + i) * self->chunk_size, self->chunk_size,
                FEDGE_NCCL_INT64, FEDGE_NCCL_SUM, comms->of[i], gpu->stream),
            DOING, err);
    }
end_group:;
    const fedge_nccl_result ended = comms->nccl->group_end();
    fedge_gpu_watch_end(comms->watch, &call);
    return status == FEDGE_OK ? fedge_cuda_comms_check(comms, ended, DOING, err) : status;
}

static fedge_status fetch_all(scatter *self, size_t at, fedge_error *err)
{
    for (uint32_t i = 0; i < self->team->num_gpus; i++) {
        fedge_cuda_gpu *gpu = &self->team->gpus[i];
        fedge_cuda_buffer *work = &gpu->work[at % 2];
        const size_t count = part_of(self, self->first_member + i, at).count;
        cudaError_t error = cudaSuccess;
        FEDGE_TRY(fedge_cuda_gpu_use(gpu, err));
        if (count > 0) {
            error = fedge_cuda_copy(
                gpu, work->pinned, buffer_of(gpu, at) + (self->first_member + i) * self->chunk_size,
                count * sizeof(int64_t), cudaMemcpyDeviceToHost, gpu->stream);
        }
        if (error == cudaSuccess)
            error = fedge_cuda_timing_end(&work->timing, gpu->stream);
        FEDGE_TRY(fedge_cuda_check(gpu, error, DOING, err));
    }
    return FEDGE_OK;
}

static fedge_status collect_all(scatter *self, size_t at, int64_t *sums, fedge_error *err)
{
    const fedge_cuda_wait wait = {self->comms.names, DOING, FEDGE_CUDA_RANKS_TIMEOUT_MS};
    for (uint32_t i = 0; i < self->team->num_gpus; i++) {
        fedge_cuda_gpu *gpu = &self->team->gpus[i];
        fedge_cuda_buffer *work = &gpu->work[at % 2];
        const member part = part_of(self, self->first_member + i, at);
        FEDGE_TRY(fedge_cuda_gpu_use(gpu, err));
        FEDGE_TRY(fedge_cuda_comms_watch(&self->comms, gpu, &work->timing, &wait, err));
        if (part.count > 0)
            memcpy(sums + part.first, work->pinned, part.count * sizeof(*sums));
    }
    return FEDGE_OK;
}

/* Reduces chunk by chunk; the host copies a chunk out while the GPUs work on the next two. */
static fedge_status sum_all(scatter *self, int64_t *sums, fedge_error *err)
{
    FEDGE_TRY(fedge_cuda_team_wait(self->team, err));
    for (size_t at = 0; at < self->num_chunks + 2; at++) {
        if (at >= 2)
            FEDGE_TRY(collect_all(self, at - 2, sums, err));
        if (at < self->num_chunks) {
            FEDGE_TRY(pack_all(self, at, err));
            FEDGE_TRY(reduce(self, at, err));
            FEDGE_TRY(fetch_all(self, at, err));
        }
    }
    for (uint32_t i = 0; i < self->team->num_gpus; i++)
        FEDGE_TRY(fedge_cuda_gpu_count_times(&self->team->gpus[i], err));
    return FEDGE_OK;
}

static fedge_status scatter_sum(void *state, int64_t *sums, fedge_error *err)
{
    scatter *self = state;
    const fedge_status status = sum_all(self, sums, err);
    if (status != FEDGE_OK)
        fedge_cuda_comms_abort(&self->comms);
    return status;
}

const fedge_scatter_ops fedge_scatter_nccl = {
    .name = "nccl",
    .prepare = prepare,
    .open = scatter_open,
    .close = scatter_close,
    .sum = scatter_sum,
};
