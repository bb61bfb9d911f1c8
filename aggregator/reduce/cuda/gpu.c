#include "aggregator/reduce/cuda/gpu.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(FEDGE_CUDA_CHUNK_BYTES % 2048 == 0, "a chunk holds whole blocks of sums");

#define MAX_THREAD_BLOCKS 8 /* blocks of 256 threads that a multiprocessor runs */
#define READ_VALUES (FEDGE_CUDA_CHUNK_BYTES / sizeof(int64_t))

/* ---- life ------------------------------------------------------------------------------------ */

/* Sets the GPU's parts of the geometry's segments in [first_block, first_block + num_blocks). */
static size_t cut_segments(const fedge_cuda_geometry *geometry, uint32_t first_block,
                           uint32_t num_blocks, fedge_cuda_segment *segments, uint32_t *count)
{
    size_t plane = 0;
    *count = 0;
    for (uint32_t s = 0; s < geometry->num_segments; s++) {
        fedge_cuda_segment *cut = &segments[*count];
        if (fedge_cuda_cut(geometry, &geometry->segments[s], first_block, num_blocks, plane, cut)) {
            plane += cut->num_bytes;
            ++*count;
        }
    }
    return plane;
}

/* With several sharers each has the same size of memory for its part, whatever its length. */
static size_t sums_bytes(uint32_t num_blocks, bool joins)
{
    return ((size_t)num_blocks + (joins ? FEDGE_ACCUMULATOR_MAX_GPUS : 0)) * FEDGE_CUDA_BLOCK *
           sizeof(int64_t);
}

/* Each sharer steps FEDGE_CUDA_STEP_BLOCKS of each chunk, and an equal part of the last one. */
static size_t values_bytes(uint32_t num_blocks, uint32_t sharers)
{
    const uint32_t chunk = FEDGE_CUDA_STEP_BLOCKS * sharers;
    const size_t blocks = (size_t)(num_blocks / chunk) * FEDGE_CUDA_STEP_BLOCKS +
                          (num_blocks % chunk + sharers - 1) / sharers;
    return blocks * FEDGE_CUDA_BLOCK * sizeof(float);
}

fedge_cuda_bytes fedge_cuda_gpu_bytes(const fedge_cuda_geometry *geometry, uint32_t first_block,
                                      uint32_t num_blocks, uint32_t sharers, unsigned num_moments)
{
    const bool joins = sharers > 1;
    fedge_cuda_segment segments[FEDGE_ACCUMULATOR_MAX_SECTIONS];
    uint32_t count = 0;
    const size_t planes = cut_segments(geometry, first_block, num_blocks, segments, &count);
    const size_t buffers =
        FEDGE_CUDA_LANES * (2 * FEDGE_CUDA_CHUNK_BYTES + geometry->num_tensors + sizeof(uint64_t)) +
        2 * FEDGE_CUDA_CHUNK_BYTES + (joins ? 2 * FEDGE_CUDA_CHUNK_BYTES : 0);
    return (fedge_cuda_bytes){.sums = sums_bytes(num_blocks, joins),
                              .values = values_bytes(num_blocks, sharers),
                              .moments = num_moments * values_bytes(num_blocks, sharers),
                              .slot = planes + num_blocks * sizeof(uint16_t),
                              .others = buffers + num_blocks * sizeof(fedge_cuda_block) +
                                        fedge_cuda_chosen_bytes(geometry, segments, count)};
}

static fedge_status make_event(const fedge_cuda_gpu *gpu, cudaEvent_t *event, fedge_error *err)
{
    /* Recording an event without timing costs nothing; only timed operations have events with
     * timing. */
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    return fedge_cuda_check(gpu, cudaEventCreateWithFlags(event, flags), "making an event", err);
}

static fedge_status make_timing(const fedge_cuda_gpu *gpu, fedge_cuda_timing *timing,
                                fedge_error *err)
{
    return fedge_cuda_check(gpu, fedge_cuda_timing_init(timing), "making an event", err);
}

static fedge_status make_stream(const fedge_cuda_gpu *gpu, cudaStream_t *stream, fedge_error *err)
{
    /* Non-blocking: the default stream would order the lanes with each other. */
    return fedge_cuda_check(gpu, cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking),
                            "making a stream", err);
}

static fedge_status make_buffers(const fedge_cuda_gpu *gpu, fedge_cuda_buffer *buffers,
                                 fedge_error *err)
{
    const size_t size = FEDGE_CUDA_CHUNK_BYTES;
    for (int i = 0; i < 2; i++) {
        FEDGE_TRY(fedge_cuda_gpu_take(gpu, &buffers[i].pinned, size, true, err));
        FEDGE_TRY(fedge_cuda_gpu_take(gpu, &buffers[i].device, size, false, err));
        FEDGE_TRY(make_timing(gpu, &buffers[i].timing, err));
    }
    return FEDGE_OK;
}

static fedge_status make_lane(const fedge_cuda_gpu *gpu, fedge_cuda_lane *lane, fedge_error *err)
{
    const size_t tensors = gpu->geometry->num_tensors;
    FEDGE_TRY(make_stream(gpu, &lane->stream, err));
    FEDGE_TRY(make_buffers(gpu, lane->buffers, err));
    FEDGE_TRY(fedge_cuda_gpu_take(gpu, &lane->pinned_bounds, tensors, true, err));
    FEDGE_TRY(fedge_cuda_gpu_take(gpu, &lane->bounds, tensors, false, err));
    FEDGE_TRY(fedge_cuda_gpu_take(gpu, &lane->pinned_bad, sizeof(*lane->bad), true, err));
    return fedge_cuda_gpu_take(gpu, &lane->bad, sizeof(*lane->bad), false, err);
}

static fedge_status make_slots(fedge_cuda_gpu *gpu, uint32_t count, size_t bytes, fedge_error *err)
{
    gpu->slots = calloc(count, sizeof(*gpu->slots));
    if (!gpu->slots)
        return fedge_fail(err, FEDGE_NO_MEMORY, "GPU %d: no memory for its slots", gpu->ordinal);
    while (gpu->num_slots < count) {
        fedge_cuda_slot *slot = &gpu->slots[gpu->num_slots++];
        FEDGE_TRY(fedge_cuda_gpu_take(gpu, &slot->planes, bytes, false, err));
        FEDGE_TRY(make_timing(gpu, &slot->timing, err));
    }
    return FEDGE_OK;
}

static fedge_status make_sums(fedge_cuda_gpu *gpu, uint32_t sharers, fedge_error *err)
{
    const size_t reduced = (size_t)FEDGE_CUDA_STEP_BLOCKS * FEDGE_CUDA_BLOCK * sizeof(int64_t);
    FEDGE_TRY(make_stream(gpu, &gpu->stream, err));
    FEDGE_TRY(make_buffers(gpu, gpu->work, err));
    for (int i = 0; i < FEDGE_CUDA_TICKETS; i++)
        FEDGE_TRY(make_event(gpu, &gpu->tickets[i], err));
    for (int i = 0; i < 2 && sharers > 1; i++)
        FEDGE_TRY(fedge_cuda_gpu_take(gpu, &gpu->reduced[i], reduced, false, err));
    FEDGE_TRY(
        fedge_cuda_gpu_take(gpu, &gpu->sums, sums_bytes(gpu->num_blocks, sharers > 1), false, err));
    gpu->values_bytes = values_bytes(gpu->num_blocks, sharers);
    FEDGE_TRY(fedge_cuda_gpu_take(gpu, &gpu->values, gpu->values_bytes, false, err));
    return fedge_cuda_gpu_reset(gpu, err);
}

static fedge_status copy_blocks(fedge_cuda_gpu *gpu, fedge_error *err)
{
    const size_t size = gpu->num_blocks * sizeof(fedge_cuda_block);
    FEDGE_TRY(fedge_cuda_gpu_take(gpu, &gpu->blocks, size, false, err));
    return fedge_cuda_gpu_copy(gpu, gpu->blocks, gpu->geometry->blocks + gpu->first_block, size,
                               err);
}

static fedge_status make_all(fedge_cuda_gpu *gpu, const fedge_cuda_gpu_config *config,
                             fedge_error *err)
{
    int processors = 0;
    const fedge_cuda_bytes bytes =
        fedge_cuda_gpu_bytes(gpu->geometry, gpu->first_block, gpu->num_blocks, config->sharers, 0);
    FEDGE_TRY(fedge_cuda_gpu_use(gpu, err));
    FEDGE_TRY(fedge_cuda_check(
        gpu, cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu->ordinal),
        "asking for its size", err));
    /* More thread blocks than run at once would only wait for each other. */
    gpu->max_grid = (uint32_t)(processors > 0 ? processors : 1) * MAX_THREAD_BLOCKS;
    FEDGE_TRY(make_sums(gpu, config->sharers, err));
    for (int i = 0; i < FEDGE_CUDA_LANES; i++)
        FEDGE_TRY(make_lane(gpu, &gpu->lanes[i], err));
    FEDGE_TRY(make_slots(gpu, config->num_slots, bytes.slot, err));
    FEDGE_TRY(copy_blocks(gpu, err));
    return fedge_cuda_gpu_open_chosen(gpu, err);
}

fedge_status fedge_cuda_gpu_open(fedge_cuda_gpu *gpu, const fedge_cuda_gpu_config *config,
                                 fedge_error *err)
{
    *gpu = (fedge_cuda_gpu){.ordinal = config->ordinal,
                            .watch = config->watch,
                            .geometry = config->geometry,
                            .first_block = config->first_block,
                            .num_blocks = config->num_blocks};
    (void)snprintf(gpu->name, sizeof(gpu->name), "GPU %d", gpu->ordinal);
    gpu->scales = cut_segments(gpu->geometry, gpu->first_block, gpu->num_blocks, gpu->segments,
                               &gpu->num_segments);
    fedge_gpu_call call = fedge_cuda_call(gpu, "opening it");
    call.library = FEDGE_GPU_CUDA_OPEN;
    fedge_gpu_watch_begin(gpu->watch, &call);
    const fedge_status status = make_all(gpu, config, err);
    fedge_gpu_watch_end(gpu->watch, &call);
    return status;
}

static void free_buffers(fedge_cuda_buffer *buffers)
{
    for (int i = 0; i < 2; i++) {
        (void)cudaFreeHost(buffers[i].pinned);
        (void)cudaFree(buffers[i].device);
        fedge_cuda_timing_fini(&buffers[i].timing);
    }
}

/* Freeing on a lost GPU fails, and the errors say nothing new. */
void fedge_cuda_gpu_close(fedge_cuda_gpu *gpu)
{
    if (!gpu->geometry)
        return;
    fedge_gpu_call call = fedge_cuda_call(gpu, "closing it");
    /* Freeing waits for pending work, which may never end. */
    fedge_gpu_watch_begin(gpu->watch, &call);
    (void)cudaSetDevice(gpu->ordinal);
    for (int i = 0; i < FEDGE_CUDA_LANES; i++) {
        fedge_cuda_lane *lane = &gpu->lanes[i];
        if (lane->stream)
            (void)cudaStreamDestroy(lane->stream);
        free_buffers(lane->buffers);
        (void)cudaFreeHost(lane->pinned_bounds);
        (void)cudaFree(lane->bounds);
        (void)cudaFreeHost(lane->pinned_bad);
        (void)cudaFree(lane->bad);
    }
    if (gpu->stream)
        (void)cudaStreamDestroy(gpu->stream);
    for (uint32_t i = 0; i < gpu->num_slots; i++) {
        (void)cudaFree(gpu->slots[i].planes);
        fedge_cuda_timing_fini(&gpu->slots[i].timing);
    }
    free(gpu->slots);
    free_buffers(gpu->work);
    for (int i = 0; i < FEDGE_CUDA_TICKETS; i++) {
        if (gpu->tickets[i])
            (void)cudaEventDestroy(gpu->tickets[i]);
    }
    (void)cudaFree(gpu->reduced[0]);
    (void)cudaFree(gpu->reduced[1]);
    (void)cudaFree(gpu->sums);
    (void)cudaFree(gpu->values);
    (void)cudaFree(gpu->moments[0]);
    (void)cudaFree(gpu->moments[1]);
    (void)cudaFree(gpu->blocks);
    fedge_cuda_gpu_close_chosen(gpu);
    fedge_gpu_watch_end(gpu->watch, &call);
    *gpu = (fedge_cuda_gpu){0};
}

/* ---- updates come in ------------------------------------------------------------------------- */

/* The most blocks from [block] up to [end] whose bytes fit into a buffer. */
static uint32_t blocks_of_chunk(const fedge_cuda_gpu *gpu, const fedge_cuda_segment *segment,
                                uint32_t block)
{
    const uint64_t from = gpu->geometry->blocks[block].offset;
    uint32_t low = 1; /* [low] blocks fit */
    uint32_t high = segment->first_block + segment->num_blocks + 1 - block;
    while (high - low > 1) {
        const uint32_t midpoint = low + (high - low) / 2;
        const uint64_t end = fedge_cuda_end_of(gpu->geometry, segment, block + midpoint - 1);
        if (end - from <= FEDGE_CUDA_CHUNK_BYTES)
            low = midpoint;
        else
            high = midpoint;
    }
    return low;
}

static fedge_status fill(const fedge_encoded *update, uint64_t offset, size_t size, uint8_t *to,
                         fedge_error *err)
{
    if (!update->bytes)
        return update->read(update->user, offset, to, size, err);
    memcpy(to, update->bytes + offset, size);
    return FEDGE_OK;
}

/* Copies blocks [chunk->first_block, + num_blocks) of a segment through one buffer. [section]: its
 * offset in the update. */
static fedge_status stage_chunk(fedge_cuda_gpu *gpu, fedge_cuda_lane *lane,
                                fedge_cuda_buffer *buffer, fedge_cuda_chunk *chunk, size_t size,
                                uint64_t section, const fedge_encoded *update, fedge_error *err)
{
    const uint32_t first = chunk->first_block;
    chunk->offset = gpu->geometry->blocks[first].offset;
    chunk->blocks = gpu->blocks + (first - gpu->first_block);
    chunk->bytes = buffer->device;
    /* The copy of two chunks ago may still be running. */
    cudaError_t error = fedge_cuda_wait_event(gpu, buffer->timing.done);
    if (error == cudaSuccess)
        error = fedge_cuda_timing_count(&buffer->timing, &gpu->times);
    FEDGE_TRY(fedge_cuda_check(gpu, error, "copying an update", err));
    /* This may read from disk; meanwhile the GPU works on the other buffer. */
    FEDGE_TRY(fill(update, section + chunk->offset, size, buffer->pinned, err));
    error = fedge_cuda_timing_begin(&buffer->timing, FEDGE_CUDA_COPY, lane->stream);
    if (error == cudaSuccess) {
        error = fedge_cuda_copy(gpu, buffer->device, buffer->pinned, size, cudaMemcpyHostToDevice,
                                lane->stream);
    }
    if (error == cudaSuccess)
        error = fedge_cuda_timing_split(&buffer->timing, FEDGE_CUDA_DECODE, lane->stream);
    fedge_gpu_call call = fedge_cuda_call(gpu, "checking an update");
    fedge_gpu_watch_begin(gpu->watch, &call);
    if (error == cudaSuccess)
        error = fedge_cuda_stage(chunk, lane->stream);
    fedge_gpu_watch_end(gpu->watch, &call);
    if (error == cudaSuccess)
        error = fedge_cuda_timing_end(&buffer->timing, lane->stream);
    return fedge_cuda_check(gpu, error, "checking an update", err);
}

/* Copies the bounds and the initial result, and waits until the slot's previous update is summed.
 */
static fedge_status begin_stage(fedge_cuda_gpu *gpu, fedge_cuda_lane *lane, const uint32_t *slot,
                                const fedge_encoded *update, fedge_error *err)
{
    const uint32_t tensors = gpu->geometry->num_tensors;
    FEDGE_TRY(fedge_cuda_gpu_use(gpu, err));
    /* The error that the host finds, with a sparsifier. */
    lane->host_bad = FEDGE_CUDA_NOT_BAD;
    if (slot)
        gpu->slots[*slot].num_encoded = 0;
    memcpy(lane->pinned_bounds, update->bounds_log2, tensors);
    cudaError_t error = fedge_cuda_copy(gpu, lane->bounds, lane->pinned_bounds, tensors,
                                        cudaMemcpyHostToDevice, lane->stream);
    /* FEDGE_CUDA_NOT_BAD is all ones, and kernels only reduce it. */
    if (error == cudaSuccess)
        error = cudaMemsetAsync(lane->bad, 0xFF, sizeof(*lane->bad), lane->stream);
    /* For the host the slot is free; the GPU may still add its previous update. */
    if (error == cudaSuccess && slot)
        error = cudaStreamWaitEvent(lane->stream, gpu->slots[*slot].timing.done, 0);
    return fedge_cuda_check(gpu, error, "copying an update", err);
}

/* Stages segment [s], which has no sparsifier, chunk by chunk. */
static fedge_status stage_values(fedge_cuda_gpu *gpu, fedge_cuda_lane *lane, fedge_cuda_slot *slot,
                                 uint32_t s, const fedge_encoded *update, uint32_t *next_buffer,
                                 fedge_error *err)
{
    const fedge_cuda_segment *segment = &gpu->segments[s];
    const uint32_t end = segment->first_block + segment->num_blocks;
    size_t unused;
    const uint64_t section =
        fedge_cuda_section_at(gpu->geometry, update, segment->section, &unused);
    fedge_status status = FEDGE_OK;
    for (uint32_t block = segment->first_block; block < end && status == FEDGE_OK;) {
        fedge_cuda_chunk chunk = {.codec = segment->codec->kernel,
                                  .first_block = block,
                                  .num_blocks = blocks_of_chunk(gpu, segment, block),
                                  .bounds_log2 = lane->bounds,
                                  .bad = lane->bad};
        const uint32_t last = block + chunk.num_blocks - 1;
        const size_t size = (size_t)(fedge_cuda_end_of(gpu->geometry, segment, last) -
                                     gpu->geometry->blocks[block].offset);
        if (slot) {
            chunk.values = slot->planes + segment->plane +
                           (block - segment->first_block) * segment->codec->block_bytes;
            chunk.scales =
                (uint16_t *)(void *)(slot->planes + gpu->scales) + (block - gpu->first_block);
            slot->num_encoded += size;
        }
        status = stage_chunk(gpu, lane, &lane->buffers[(*next_buffer)++ % 2], &chunk, size, section,
                             update, err);
        block += chunk.num_blocks;
    }
    return status;
}

fedge_status fedge_cuda_gpu_stage(fedge_cuda_gpu *gpu, uint32_t lane_index, const uint32_t *slot,
                                  const fedge_encoded *update, fedge_error *err)
{
    fedge_cuda_lane *lane = &gpu->lanes[lane_index];
    fedge_cuda_slot *to = slot ? &gpu->slots[*slot] : NULL;
    fedge_status status = begin_stage(gpu, lane, slot, update, err);
    uint32_t next_buffer = 0;
    for (uint32_t s = 0; s < gpu->num_segments && status == FEDGE_OK; s++) {
        status = gpu->segments[s].sparsifier
                     ? fedge_cuda_gpu_stage_chosen(gpu, lane, to, s, update, &next_buffer, err)
                     : stage_values(gpu, lane, to, s, update, &next_buffer, err);
    }
    return status;
}

/* Adds the times of finished work: the lane's, and earlier sums of the slot. */
static cudaError_t count_staged(fedge_cuda_gpu *gpu, fedge_cuda_lane *lane, const uint32_t *slot)
{
    cudaError_t error = fedge_cuda_timing_count(&lane->buffers[0].timing, &gpu->times);
    if (error == cudaSuccess)
        error = fedge_cuda_timing_count(&lane->buffers[1].timing, &gpu->times);
    return error == cudaSuccess && slot
               ? fedge_cuda_timing_count(&gpu->slots[*slot].timing, &gpu->times)
               : error;
}

fedge_status fedge_cuda_gpu_result(fedge_cuda_gpu *gpu, uint32_t lane_index, const uint32_t *slot,
                                   uint64_t *bad, fedge_error *err)
{
    fedge_cuda_lane *lane = &gpu->lanes[lane_index];
    *bad = FEDGE_CUDA_NOT_BAD;
    FEDGE_TRY(fedge_cuda_gpu_use(gpu, err));
    cudaError_t error = fedge_cuda_copy(gpu, lane->pinned_bad, lane->bad, sizeof(*lane->bad),
                                        cudaMemcpyDeviceToHost, lane->stream);
    /* All work of the lane is over then, so its pinned memory may be reused. */
    if (error == cudaSuccess)
        error = fedge_cuda_wait_stream(gpu, lane->stream);
    if (error == cudaSuccess)
        error = count_staged(gpu, lane, slot);
    if (error == cudaSuccess)
        *bad = *lane->pinned_bad < lane->host_bad ? *lane->pinned_bad : lane->host_bad;
    return fedge_cuda_check(gpu, error, "checking an update", err);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Adds segment [s], which has no sparsifier. */
static cudaError_t add_values(fedge_cuda_gpu *gpu, uint32_t s, const uint32_t *slots,
                              const uint32_t *weights, uint32_t count)
{
    const fedge_cuda_segment *segment = &gpu->segments[s];
    const uint32_t skipped = segment->first_block - gpu->first_block;
    fedge_cuda_batch batch = {.count = count};
    for (uint32_t u = 0; u < count; u++) {
        const uint8_t *planes = gpu->slots[slots[u]].planes;
        batch.values[u] = planes + segment->plane;
        batch.scales[u] = (const uint16_t *)(const void *)(planes + gpu->scales) + skipped;
        batch.weights[u] = weights[u];
    }
    return fedge_cuda_accumulate(segment->codec->kernel, &batch,
                                 gpu->sums + (size_t)skipped * FEDGE_CUDA_BLOCK,
                                 segment->num_blocks, gpu->max_grid, gpu->stream);
}

fedge_status fedge_cuda_gpu_add(fedge_cuda_gpu *gpu, const uint32_t *slots, const uint32_t *weights,
                                uint32_t count, fedge_error *err)
{
    /* One event times the whole batch; those of the other slots only say when they are free. */
    fedge_cuda_timing *timing = &gpu->slots[slots[0]].timing;
    cudaError_t error = cudaSetDevice(gpu->ordinal);
    if (error == cudaSuccess)
        error = fedge_cuda_timing_begin(timing, FEDGE_CUDA_REDUCE, gpu->stream);
    fedge_gpu_call call = fedge_cuda_call(gpu, "summing updates");
    fedge_gpu_watch_begin(gpu->watch, &call);
    for (uint32_t s = 0; s < gpu->num_segments && error == cudaSuccess; s++) {
        error = gpu->segments[s].sparsifier
                    ? fedge_cuda_gpu_add_chosen(gpu, s, slots, weights, count)
                    : add_values(gpu, s, slots, weights, count);
    }
    fedge_gpu_watch_end(gpu->watch, &call);
    if (error == cudaSuccess)
        error = fedge_cuda_timing_end(timing, gpu->stream);
    for (uint32_t u = 1; u < count && error == cudaSuccess; u++)
        error = cudaEventRecord(gpu->slots[slots[u]].timing.done, gpu->stream);
    for (uint32_t u = 0; u < count; u++)
        atomic_fetch_add(&gpu->decoded_bytes, gpu->slots[slots[u]].num_encoded);
    return fedge_cuda_check(gpu, error, "summing updates", err);
}

static cudaError_t add_part(fedge_cuda_gpu *gpu, fedge_cuda_buffer *buffer, const int32_t *v,
                            int64_t *sums, size_t count, uint32_t weight)
{
    cudaError_t error = fedge_cuda_wait_event(gpu, buffer->timing.done);
    if (error == cudaSuccess)
        error = fedge_cuda_timing_count(&buffer->timing, &gpu->times);
    if (error == cudaSuccess)
        error = fedge_cuda_timing_begin(&buffer->timing, FEDGE_CUDA_COPY, gpu->stream);
    if (error == cudaSuccess) {
        memcpy(buffer->pinned, v, count * sizeof(*v));
        error = fedge_cuda_copy(gpu, buffer->device, buffer->pinned, count * sizeof(*v),
                                cudaMemcpyHostToDevice, gpu->stream);
    }
    if (error == cudaSuccess)
        error = fedge_cuda_timing_split(&buffer->timing, FEDGE_CUDA_REDUCE, gpu->stream);
    if (error == cudaSuccess) {
        error = fedge_cuda_add_fixed((const int32_t *)(const void *)buffer->device, weight, sums,
                                     (uint32_t)count, gpu->stream);
    }
    return error == cudaSuccess ? fedge_cuda_timing_end(&buffer->timing, gpu->stream) : error;
}

fedge_status fedge_cuda_gpu_add_values(fedge_cuda_gpu *gpu, const int32_t *v, uint64_t padded,
                                       size_t count, uint32_t weight, fedge_error *err)
{
    const size_t most = FEDGE_CUDA_CHUNK_BYTES / sizeof(*v);
    int64_t *sums = gpu->sums + (padded - (uint64_t)gpu->first_block * FEDGE_CUDA_BLOCK);
    cudaError_t error = cudaSetDevice(gpu->ordinal);
    for (size_t done = 0; done < count && error == cudaSuccess;) {
        const size_t part = count - done < most ? count - done : most;
        /* All callers use the two buffers in turn. */
        const fedge_cuda_buffer buffer = gpu->work[0];
        gpu->work[0] = gpu->work[1];
        gpu->work[1] = buffer;
        error = add_part(gpu, &gpu->work[1], v + done, sums + done, part, weight);
        done += part;
    }
    return fedge_cuda_check(gpu, error, "adding values", err);
}

fedge_status fedge_cuda_gpu_sums_pointer(fedge_cuda_gpu *gpu, uint64_t padded, int64_t **sums,
                                         fedge_error *err)
{
    cudaError_t error = cudaSetDevice(gpu->ordinal);
    /* A caller that adds to the sums directly uses another stream. */
    if (error == cudaSuccess)
        error = fedge_cuda_wait_stream(gpu, gpu->stream);
    *sums = gpu->sums + (padded - (uint64_t)gpu->first_block * FEDGE_CUDA_BLOCK);
    return fedge_cuda_check(gpu, error, "summing updates", err);
}

fedge_status fedge_cuda_gpu_read(fedge_cuda_gpu *gpu, uint64_t padded, size_t count, int64_t *sums,
                                 fedge_error *err)
{
    const uint64_t begin = (uint64_t)gpu->first_block * FEDGE_CUDA_BLOCK;
    const uint64_t end = begin + (uint64_t)gpu->num_blocks * FEDGE_CUDA_BLOCK;
    uint64_t first = padded > begin ? padded : begin;
    const uint64_t last = padded + count < end ? padded + count : end;
    const int64_t *pinned = (const int64_t *)(const void *)gpu->work[0].pinned;
    cudaError_t error = cudaSetDevice(gpu->ordinal);
    while (first < last && error == cudaSuccess) {
        const size_t part = last - first < READ_VALUES ? (size_t)(last - first) : READ_VALUES;
        error = fedge_cuda_copy(gpu, gpu->work[0].pinned, gpu->sums + (first - begin),
                                part * sizeof(*sums), cudaMemcpyDeviceToHost, gpu->stream);
        if (error == cudaSuccess)
            error = fedge_cuda_wait_stream(gpu, gpu->stream);
        /* Adds to [sums], since by clients every GPU has a part of each sum. */
        for (size_t i = 0; i < part && error == cudaSuccess; i++)
            sums[first - padded + i] += pinned[i];
        first += part;
    }
    return fedge_cuda_check(gpu, error, "reading sums", err);
}

fedge_status fedge_cuda_gpu_reset(fedge_cuda_gpu *gpu, fedge_error *err)
{
    cudaError_t error = cudaSetDevice(gpu->ordinal);
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(gpu->sums, 0, sums_bytes(gpu->num_blocks, gpu->reduced[0] != NULL),
                                gpu->stream);
    }
    return fedge_cuda_check(gpu, error, "emptying sums", err);
}

fedge_status fedge_cuda_gpu_count_times(fedge_cuda_gpu *gpu, fedge_error *err)
{
    cudaError_t error = cudaSetDevice(gpu->ordinal);
    for (uint32_t i = 0; i < gpu->num_slots && error == cudaSuccess; i++)
        error = fedge_cuda_timing_count(&gpu->slots[i].timing, &gpu->times);
    return fedge_cuda_check(gpu, error, "measuring its work", err);
}

fedge_status fedge_cuda_gpu_mark(fedge_cuda_gpu *gpu, uint64_t ticket, fedge_error *err)
{
    cudaError_t error = cudaSetDevice(gpu->ordinal);
    if (error == cudaSuccess)
        error = cudaEventRecord(gpu->tickets[ticket % FEDGE_CUDA_TICKETS], gpu->stream);
    return fedge_cuda_check(gpu, error, "summing updates", err);
}

fedge_status fedge_cuda_gpu_wait(fedge_cuda_gpu *gpu, uint64_t ticket, fedge_error *err)
{
    cudaError_t error = cudaSetDevice(gpu->ordinal);
    /* The event may belong to a newer ticket by now; waiting for that one is late, never early. */
    if (error == cudaSuccess)
        error = fedge_cuda_wait_event(gpu, gpu->tickets[ticket % FEDGE_CUDA_TICKETS]);
    return fedge_cuda_check(gpu, error, "summing updates", err);
}
