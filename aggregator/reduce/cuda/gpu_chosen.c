/* The part of a GPU's work for codecs with a sparsifier. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/cuda/geometry.h"
#include "aggregator/reduce/cuda/gpu.h"

/* ---- life ------------------------------------------------------------------------------------ */

/* The size of the largest segment. */
static size_t largest_check_bytes(const fedge_cuda_segment *segments, uint32_t num_segments)
{
    size_t largest = 0;
    for (uint32_t s = 0; s < num_segments; s++) {
        if (segments[s].sparsifier && segments[s].num_bytes > largest)
            largest = segments[s].num_bytes;
    }
    return largest;
}

size_t fedge_cuda_chosen_bytes(const fedge_cuda_geometry *geometry,
                               const fedge_cuda_segment *segments, uint32_t num_segments)
{
    size_t bytes = FEDGE_CUDA_LANES * largest_check_bytes(segments, num_segments);
    for (uint32_t s = 0; s < num_segments; s++)
        bytes += segments[s].sparsifier ? fedge_cuda_tables_size(geometry, &segments[s]) : 0;
    return bytes;
}

static fedge_status fail_memory(const fedge_cuda_gpu *gpu, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "GPU %d: no memory for its tables", gpu->ordinal);
}

/* The tables of segment [s]. */
static fedge_status make_tables(fedge_cuda_gpu *gpu, uint32_t s, fedge_error *err)
{
    const fedge_cuda_segment *segment = &gpu->segments[s];
    const size_t size = fedge_cuda_tables_size(gpu->geometry, segment);
    void *tables = malloc(size), *on_gpu = NULL;
    if (!tables)
        return fail_memory(gpu, err);
    fedge_cuda_tables_fill(gpu->geometry, segment, tables, gpu->first_block);
    fedge_status status = fedge_cuda_gpu_take(gpu, &on_gpu, size, false, err);
    gpu->chosen[s] = fedge_cuda_chosen_at(gpu->geometry, segment, on_gpu, gpu->num_blocks);
    FEDGE_TRY_OR(status, free_tables);
    status = fedge_cuda_gpu_copy(gpu, on_gpu, tables, size, err);
free_tables:
    free(tables);
    return status;
}

static fedge_status make_check_buffer(const fedge_cuda_gpu *gpu, fedge_cuda_lane *lane,
                                      size_t directory, size_t check_bytes, fedge_error *err)
{
    lane->directory = malloc(directory);
    return lane->directory ? fedge_cuda_gpu_take(gpu, &lane->check_buffer, check_bytes, false, err)
                           : fail_memory(gpu, err);
}

fedge_status fedge_cuda_gpu_open_chosen(fedge_cuda_gpu *gpu, fedge_error *err)
{
    const size_t check_bytes = largest_check_bytes(gpu->segments, gpu->num_segments);
    size_t directory = 0;
    for (uint32_t s = 0; s < gpu->num_segments; s++) {
        if (gpu->segments[s].sparsifier) {
            const size_t size = fedge_cuda_directory_size(gpu->geometry, &gpu->segments[s]);
            directory = size > directory ? size : directory;
            FEDGE_TRY(make_tables(gpu, s, err));
        }
    }
    for (int i = 0; i < FEDGE_CUDA_LANES && directory > 0; i++)
        FEDGE_TRY(make_check_buffer(gpu, &gpu->lanes[i], directory, check_bytes, err));
    return FEDGE_OK;
}

void fedge_cuda_gpu_close_chosen(fedge_cuda_gpu *gpu)
{
    /* The tables are one block that begins with the tensors. */
    for (uint32_t s = 0; s < gpu->num_segments; s++)
        (void)cudaFree((void *)(uintptr_t)gpu->chosen[s].tensors);
    for (int i = 0; i < FEDGE_CUDA_LANES; i++) {
        free(gpu->lanes[i].directory);
        (void)cudaFree(gpu->lanes[i].check_buffer);
    }
}

/* ---- updates come in ------------------------------------------------------------------------- */

/* Bytes on their way to one range of the GPU, buffer by buffer. */
typedef struct transfer {
    fedge_cuda_gpu *gpu;
    fedge_cuda_lane *lane;
    uint8_t *to; /* destination of the next buffer */
    size_t filled;
    uint32_t *next_buffer;
} transfer;

/* Sends the buffer. Its timing is left open when more follows on the stream. */
static cudaError_t flush(transfer *self, bool ends)
{
    fedge_cuda_buffer *buffer = &self->lane->buffers[(*self->next_buffer)++ % 2];
    cudaError_t error =
        fedge_cuda_timing_begin(&buffer->timing, FEDGE_CUDA_COPY, self->lane->stream);
    if (error == cudaSuccess) {
        error = fedge_cuda_copy(self->gpu, self->to, buffer->pinned, self->filled,
                                cudaMemcpyHostToDevice, self->lane->stream);
    }
    self->to += self->filled;
    self->filled = 0;
    return error == cudaSuccess && ends ? fedge_cuda_timing_end(&buffer->timing, self->lane->stream)
                                        : error;
}

static cudaError_t push(transfer *self, const uint8_t *from, size_t size)
{
    cudaError_t error = cudaSuccess;
    for (size_t done = 0; done < size && error == cudaSuccess;) {
        if (self->filled == FEDGE_CUDA_CHUNK_BYTES)
            error = flush(self, true);
        fedge_cuda_buffer *buffer = &self->lane->buffers[*self->next_buffer % 2];
        if (self->filled == 0 && error == cudaSuccess)
            error = fedge_cuda_wait_event(self->gpu, buffer->timing.done);
        if (self->filled == 0 && error == cudaSuccess)
            error = fedge_cuda_timing_count(&buffer->timing, &self->gpu->times);
        if (error != cudaSuccess)
            break;
        const size_t left = FEDGE_CUDA_CHUNK_BYTES - self->filled;
        const size_t part = size - done < left ? size - done : left;
        memcpy(buffer->pinned + self->filled, from + done, part);
        self->filled += part;
        done += part;
    }
    return error;
}

/* Sends the last buffer and queues the check of everything before it. */
static cudaError_t check(transfer *self, uint32_t s, const uint8_t *update)
{
    fedge_cuda_gpu *gpu = self->gpu;
    fedge_cuda_lane *lane = self->lane;
    /* This comes before flush, which switches to the other buffer. */
    fedge_cuda_timing *timing = &lane->buffers[*self->next_buffer % 2].timing;
    cudaError_t error = flush(self, false);
    if (error == cudaSuccess)
        error = fedge_cuda_timing_split(timing, FEDGE_CUDA_DECODE, lane->stream);
    if (error == cudaSuccess) {
        error = fedge_cuda_check_chosen(&gpu->chosen[s], update,
                                        fedge_cuda_code_of(gpu->geometry, &gpu->segments[s]),
                                        lane->bad, lane->stream);
    }
    return error == cudaSuccess ? fedge_cuda_timing_end(timing, lane->stream) : error;
}

fedge_status fedge_cuda_gpu_stage_chosen(fedge_cuda_gpu *gpu, fedge_cuda_lane *lane,
                                         fedge_cuda_slot *slot, uint32_t s,
                                         const fedge_encoded *update, uint32_t *next_buffer,
                                         fedge_error *err)
{
    const fedge_cuda_segment *segment = &gpu->segments[s];
    uint8_t *to = slot ? slot->planes + segment->plane : lane->check_buffer;
    size_t size = 0, begin = 0, end = 0;
    assert(update->bytes); /* sparse updates are never read by offsets */
    const uint8_t *in =
        update->bytes + fedge_cuda_section_at(gpu->geometry, update, segment->section, &size);
    /* The host makes the directory: the offset of each tensor depends on the bytes before it. */
    if (!fedge_cuda_directory_fill(gpu->geometry, segment, update->bounds_log2, in, size,
                                   lane->directory, &begin, &end)) {
        const uint64_t code = fedge_cuda_code_of(gpu->geometry, segment);
        lane->host_bad = code < lane->host_bad ? code : lane->host_bad;
        return FEDGE_OK;
    }
    if (slot)
        slot->num_encoded += end - begin;
    transfer all = {.gpu = gpu, .lane = lane, .to = to, .next_buffer = next_buffer};
    cudaError_t error =
        push(&all, lane->directory, fedge_cuda_directory_size(gpu->geometry, segment));
    if (error == cudaSuccess)
        error = push(&all, in + begin, end - begin);
    if (error == cudaSuccess)
        error = check(&all, s, to);
    return fedge_cuda_check(gpu, error, "checking an update", err);
}

/* ---- sums ------------------------------------------------------------------------------------ */

cudaError_t fedge_cuda_gpu_add_chosen(fedge_cuda_gpu *gpu, uint32_t s, const uint32_t *slots,
                                      const uint32_t *weights, uint32_t count)
{
    fedge_cuda_chosen_batch batch = {.count = count};
    for (uint32_t u = 0; u < count; u++) {
        batch.updates[u] = gpu->slots[slots[u]].planes + gpu->segments[s].plane;
        batch.weights[u] = weights[u];
    }
    return fedge_cuda_add_chosen(&gpu->chosen[s], &batch, gpu->sums, gpu->stream);
}
