/* What the GPU accumulator reaches beside what this machine's GPU and its link can do.
 *
 *     bench_gpu [--tiny] PART...
 *
 *     kernels   staging (encoded bytes are checked and laid on planes) and decode and accumulate:
 *               chunks and batches in memory of the GPU, in turn so that no cache holds them,
 *               beside a kernel that only reads
 *     rounds    from encoded updates in host memory to the new model in host memory, on 1, 2, 4 …
 *               GPUs by clients and by coordinates and on the CPU, beside copies to the GPUs and
 *               nothing else
 *
 * Prints a row of JSON for each case, as tests/bench does: ratio > 1 is better than the peer.
 * --tiny: sizes for emulated GPUs, to see that it runs. Exit code 3: there is no GPU. */
#define _GNU_SOURCE /* clock_gettime */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/cuda/accumulator_cuda.h"
#include "aggregator/reduce/cuda/kernels.h"
#include "edge/core/fixed.h"
#include "tests/edge/core/codec/encode.h"
#include "tests/gpu/bandwidth.h"

enum { REPEATS = 7, MAX_THREADS = 16, MAX_POOL = 64, TENSORS = 8, THREAD_BATCH = 4 };

typedef struct size_case {
    const char *name;
    size_t parameters;
} size_case;

static const size_case full_sizes[] = {
    {"1.66 M", 1663370}, {"25.6 M", 25557032}, {"355 M", 354827268}};
static const size_case tiny_sizes[] = {{"3 k", 3000}};

static const size_case *sizes = full_sizes;
static int num_sizes = 3;
static size_t least_bytes = (size_t)1 << 30;  /* that a measurement reads */
static size_t pool_bytes = (size_t)3 << 30;   /* of different updates on the host, at most */
static size_t copy_bytes = (size_t)256 << 20; /* of a copy to a GPU */
static double link_bytes_per_second;          /* of one GPU, measured */
static double memory_bytes_per_second;        /* of GPU 0, measured */

static _Noreturn void fail(const char *doing, const char *why)
{
    fprintf(stderr, "bench_gpu: %s: %s\n", doing, why);
    exit(1);
}

static void must(cudaError_t error, const char *doing)
{
    if (error != cudaSuccess)
        fail(doing, cudaGetErrorString(error));
}

static void must_do(fedge_status status, const char *doing, const fedge_error *err)
{
    if (status != FEDGE_OK)
        fail(doing, err->message);
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return values[count / 2];
}

static void print_row(const char *name, double value, const char *unit, const char *peer,
                      double peer_value)
{
    printf("{\"bench\":\"gpu\",\"case\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"", name, value, unit);
    if (peer) {
        printf(",\"peer\":\"%s\",\"peer_value\":%.6g,\"ratio\":%.4g", peer, peer_value,
               value / peer_value);
    }
    printf("}\n");
    fflush(stdout);
}

static void *gpu_memory(size_t size)
{
    void *memory = NULL;
    must(cudaMalloc(&memory, size), "cudaMalloc");
    return memory;
}

/* Random words; mask and set keep them in the values' range. */
static void fill(void *memory, size_t size, uint32_t mask, uint32_t set, cudaStream_t stream)
{
    static uint32_t seed;
    must(bandwidth_fill(memory, size / 4, mask, set, ++seed, stream), "fill");
}

static uint32_t whole_grid(uint32_t blocks_of_each)
{
    int processors = 0;
    must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "attributes");
    return (uint32_t)processors * blocks_of_each;
}

/* ---- kernels ----------------------------------------------------------------------------------
 */

/* The best of some shapes of the grid: the peer is to be strong. */
static void measure_memory(cudaStream_t stream)
{
    uint32_t *words = gpu_memory(least_bytes), *sink = gpu_memory(16);
    fill(words, least_bytes, ~0u, 0, stream);
    for (uint32_t of_each = 2; of_each <= 32; of_each *= 2) {
        double rates[REPEATS];
        for (int r = -1; r < REPEATS; r++) {
            const double start = now();
            must(bandwidth_read(words, least_bytes / 4, sink, whole_grid(of_each), stream), "read");
            must(cudaStreamSynchronize(stream), "read");
            if (r >= 0)
                rates[r] = (double)least_bytes / (now() - start);
        }
        const double rate = median(rates, REPEATS);
        memory_bytes_per_second = fmax(memory_bytes_per_second, rate);
    }
    print_row("memory, read only", memory_bytes_per_second * 1e-9, "GB/s", NULL, 0);
    must(cudaFree(words), "free");
    must(cudaFree(sink), "free");
}

/* By way of pinned memory, and waits. */
static void copy(void *to, const void *from, size_t size, bool to_gpu, cudaStream_t stream)
{
    void *pinned = NULL;
    must(cudaHostAlloc(&pinned, size, cudaHostAllocPortable), "pinned memory");
    if (to_gpu)
        memcpy(pinned, from, size);
    must(cudaMemcpyAsync(to_gpu ? to : pinned, to_gpu ? pinned : from, size,
                         to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream),
         "copy");
    must(cudaStreamSynchronize(stream), "copy");
    if (!to_gpu)
        memcpy(to, pinned, size);
    must(cudaFreeHost(pinned), "free");
}

/* Encoded blocks of one tensor, chunk by chunk as they come by a lane's buffers, and their planes.
 */
typedef struct staged {
    int codec;
    uint32_t num_chunks, in_chunk; /* blocks of each */
    size_t block_bytes, plane_bytes;
    uint8_t *encoded, *planes;
    uint16_t *scales;
    fedge_cuda_block *blocks; /* of a chunk: they are alike */
    int8_t *bound;
    unsigned long long *bad;
} staged;

static staged make_staged(int codec, cudaStream_t stream)
{
    const bool floats = codec == FEDGE_CUDA_NONE;
    const size_t most = least_bytes < FEDGE_CUDA_CHUNK_BYTES ? least_bytes : FEDGE_CUDA_CHUNK_BYTES;
    staged s = {.codec = codec,
                .block_bytes = floats ? 4 * FEDGE_CUDA_BLOCK : 2 + FEDGE_CUDA_BLOCK,
                .plane_bytes = (floats ? 4 : 1) * FEDGE_CUDA_BLOCK};
    s.num_chunks = (uint32_t)((least_bytes + most - 1) / most);
    s.in_chunk = (uint32_t)(most / s.block_bytes);
    const size_t count = (size_t)s.num_chunks * s.in_chunk;
    const size_t table_bytes = s.in_chunk * sizeof(*s.blocks);
    fedge_cuda_block *table = calloc(s.in_chunk, sizeof(*table));
    const int8_t bound = FEDGE_FIXED_DEFAULT_BOUND_LOG2;
    if (!table)
        fail("blocks", "no memory");
    for (uint32_t b = 0; b < s.in_chunk; b++)
        table[b] = (fedge_cuda_block){.offset = b * s.block_bytes, .count = FEDGE_CUDA_BLOCK};
    s.encoded = gpu_memory(count * s.block_bytes + 4);
    s.planes = gpu_memory(count * s.plane_bytes);
    s.scales = gpu_memory(count * sizeof(*s.scales));
    s.blocks = gpu_memory(table_bytes);
    s.bound = gpu_memory(sizeof(bound));
    s.bad = gpu_memory(sizeof(*s.bad));
    /* No value is bad: floats of 2^-7, bytes that are not -128. */
    fill(s.encoded, count * s.block_bytes + 3, floats ? 0x807fffffu : 0x7f7f7f7fu,
         floats ? 0x3c000000u : 0, stream);
    must(cudaMemsetAsync(s.bad, 0xFF, sizeof(*s.bad), stream), "memset");
    copy(s.blocks, table, table_bytes, true, stream);
    copy(s.bound, &bound, sizeof(bound), true, stream);
    free(table);
    return s;
}

static void stage_all(const staged *s, cudaStream_t stream)
{
    for (uint32_t c = 0; c < s->num_chunks; c++) {
        const size_t first = (size_t)c * s->in_chunk;
        const fedge_cuda_chunk chunk = {.codec = s->codec,
                                        .num_blocks = s->in_chunk,
                                        .blocks = s->blocks,
                                        .bytes = s->encoded + first * s->block_bytes,
                                        .bounds_log2 = s->bound,
                                        .values = s->planes + first * s->plane_bytes,
                                        .scales = s->scales + first,
                                        .bad = s->bad};
        must(fedge_cuda_stage(&chunk, stream), "stage");
    }
    must(cudaStreamSynchronize(stream), "stage");
}

/* It reads the encoded bytes and writes as many, beside a table of 16 bytes for each block. */
static void measure_stage(int codec, cudaStream_t stream)
{
    staged s = make_staged(codec, stream);
    const char *word = codec == FEDGE_CUDA_INT8 ? "int8" : "fp32";
    const double blocks = (double)s.num_chunks * s.in_chunk;
    const double encoded = blocks * (double)s.block_bytes;
    const double moved =
        encoded + blocks * (double)(s.plane_bytes + sizeof(*s.scales) + sizeof(*s.blocks));
    unsigned long long bad = 0;
    double seconds[REPEATS];
    char name[96];
    for (int r = -1; r < REPEATS; r++) {
        const double start = now();
        stage_all(&s, stream);
        if (r >= 0)
            seconds[r] = now() - start;
    }
    copy(&bad, s.bad, sizeof(bad), false, stream);
    if (bad != FEDGE_CUDA_NOT_BAD)
        fail("stage", "a good value was found bad");
    const double time = median(seconds, REPEATS);
    snprintf(name, sizeof(name), "stage %s, 4 MiB a launch: bytes moved", word);
    print_row(name, moved / time * 1e-9, "GB/s", "memory, read only",
              memory_bytes_per_second * 1e-9);
    snprintf(name, sizeof(name), "stage %s: encoded bytes", word);
    print_row(name, encoded / time * 1e-9, "GB/s", "memory, read only",
              memory_bytes_per_second * 1e-9);
    void *const taken[] = {s.encoded, s.planes, s.scales, s.blocks, s.bound, s.bad};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        must(cudaFree(taken[i]), "free");
}

typedef struct batches {
    fedge_cuda_batch *all;
    uint32_t count;
    int codec;
    uint32_t num_blocks; /* of an update */
    size_t update_bytes;
    uint8_t *memory;
    int64_t *sums;
} batches;

/* As many updates as a launch takes and memory holds; as many launches as make least_bytes. */
static batches make_batches(int codec, size_t parameters, cudaStream_t stream)
{
    batches b = {.codec = codec,
                 .num_blocks = (uint32_t)((parameters + FEDGE_CUDA_BLOCK - 1) / FEDGE_CUDA_BLOCK)};
    const size_t planes =
        (size_t)b.num_blocks * FEDGE_CUDA_BLOCK * (codec == FEDGE_CUDA_INT8 ? 1 : 4);
    const size_t scales = ((size_t)b.num_blocks * 2 + 15) / 16 * 16;
    b.update_bytes = planes + (size_t)b.num_blocks * 2;
    const size_t slot = planes + scales, sums = (size_t)b.num_blocks * FEDGE_CUDA_BLOCK * 8;
    size_t left = 0, total = 0;
    must(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
    if (left / 10 * 9 < sums + slot)
        return b;
    const size_t room = (left / 10 * 9 - sums) / slot;
    uint32_t in_batch = FEDGE_CUDA_MAX_BATCH;
    if (room < in_batch)
        in_batch = (uint32_t)room;
    b.count = (uint32_t)((least_bytes + in_batch * slot - 1) / (in_batch * slot));
    if (b.count > room / in_batch)
        b.count = (uint32_t)(room / in_batch);
    b.all = calloc(b.count, sizeof(*b.all));
    if (!b.all)
        fail("batches", "no memory");
    b.sums = gpu_memory(sums);
    must(cudaMemsetAsync(b.sums, 0, sums, stream), "memset");
    b.memory = gpu_memory((size_t)b.count * in_batch * slot);
    uint8_t *at = b.memory;
    for (uint32_t i = 0; i < b.count; i++) {
        b.all[i].count = in_batch;
        for (uint32_t u = 0; u < in_batch; u++, at += slot) {
            /* Floats of 2^-7 and both signs with 28 fraction bits; bytes with scales below 2^12. */
            const bool floats = codec == FEDGE_CUDA_NONE;
            fill(at, planes, floats ? 0x807fffffu : ~0u, floats ? 0x3c000000u : 0, stream);
            fill(at + planes, scales, floats ? 0 : 0x0fff0fffu, floats ? 0x001c001cu : 0x00010001u,
                 stream);
            b.all[i].values[u] = at;
            b.all[i].scales[u] = (const uint16_t *)(at + planes);
            b.all[i].weights[u] = 600 + u;
        }
    }
    return b;
}

static void measure_accumulate(int codec, const size_case *size, cudaStream_t stream)
{
    batches b = make_batches(codec, size->parameters, stream);
    char name[96];
    const char *word = codec == FEDGE_CUDA_INT8 ? "int8" : "fp32";
    if (b.count == 0) {
        fprintf(stderr, "bench_gpu: %s of %s does not fit on this GPU\n", word, size->name);
        return;
    }
    double seconds[REPEATS];
    for (int r = -1; r < REPEATS; r++) {
        const double start = now();
        for (uint32_t i = 0; i < b.count; i++) {
            must(fedge_cuda_accumulate(codec, &b.all[i], b.sums, b.num_blocks, whole_grid(8),
                                       stream),
                 "accumulate");
        }
        must(cudaStreamSynchronize(stream), "accumulate");
        if (r >= 0)
            seconds[r] = now() - start;
    }
    const double time = median(seconds, REPEATS);
    const double updates = (double)b.count * b.all[0].count;
    const double encoded = updates * (double)b.update_bytes;
    const double sums = 2.0 * 8 * b.count * (double)b.num_blocks * FEDGE_CUDA_BLOCK;
    snprintf(name, sizeof(name), "accumulate %s, %s, %u a launch: bytes moved", word, size->name,
             (unsigned)b.all[0].count);
    print_row(name, (encoded + sums) / time * 1e-9, "GB/s", "memory, read only",
              memory_bytes_per_second * 1e-9);
    snprintf(name, sizeof(name), "accumulate %s, %s: encoded bytes", word, size->name);
    print_row(name, encoded / time * 1e-9, "GB/s", "memory, read only",
              memory_bytes_per_second * 1e-9);
    snprintf(name, sizeof(name), "accumulate %s, %s: updates", word, size->name);
    print_row(name, updates / time, "updates/s", NULL, 0);
    must(cudaFree(b.memory), "free");
    must(cudaFree(b.sums), "free");
    free(b.all);
}

static void measure_kernels(void)
{
    cudaStream_t stream = NULL;
    must(cudaSetDevice(0), "GPU 0");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    measure_memory(stream);
    measure_stage(FEDGE_CUDA_NONE, stream);
    measure_stage(FEDGE_CUDA_INT8, stream);
    for (int s = 0; s < num_sizes; s++) {
        measure_accumulate(FEDGE_CUDA_NONE, &sizes[s], stream);
        measure_accumulate(FEDGE_CUDA_INT8, &sizes[s], stream);
    }
    must(cudaStreamDestroy(stream), "a stream");
}

/* ---- rounds -----------------------------------------------------------------------------------
 */

/* Pinned memory to GPU 0, and nothing else. */
static void measure_link(void)
{
    cudaStream_t stream = NULL;
    void *pinned = NULL;
    must(cudaSetDevice(0), "GPU 0");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    must(cudaHostAlloc(&pinned, copy_bytes, cudaHostAllocPortable), "pinned memory");
    memset(pinned, 1, copy_bytes);
    void *memory = gpu_memory(copy_bytes);
    double rates[REPEATS];
    for (int r = -1; r < REPEATS; r++) {
        const double start = now();
        must(cudaMemcpyAsync(memory, pinned, copy_bytes, cudaMemcpyHostToDevice, stream), "copy");
        must(cudaStreamSynchronize(stream), "copy");
        if (r >= 0)
            rates[r] = (double)copy_bytes / (now() - start);
    }
    link_bytes_per_second = median(rates, REPEATS);
    print_row("pinned memory to GPU 0", link_bytes_per_second * 1e-9, "GB/s", NULL, 0);
    must(cudaFree(memory), "free");
    must(cudaFreeHost(pinned), "free");
    must(cudaStreamDestroy(stream), "a stream");
}

static struct {
    fedge_tensor_spec tensors[TENSORS];
    fedge_schema schema;
    fedge_update_layout layout;
    int8_t bounds_log2[TENSORS];
    fedge_step_part parts[TENSORS];
    float *source; /* what updates are made of */
    float *values; /* the model */
    uint8_t *pool[MAX_POOL];
    uint64_t pool_sizes[MAX_POOL]; /* bytes of them */
    uint32_t pool_size, num_updates;
    double num_bytes; /* of all updates */
} job;

/* What is summed, and as what rows tell it. Those that choose are for the smaller models, whose
 * updates are made in time. */
static const struct {
    const char *word, *pipeline;
} CODECS[] = {{"fp32", "none"},
              {"int8", "int8"},
              {"topk", "topk:0.01+int8"},
              {"randk", "randk:0.01+int8"},
              {"ternary", "ternary:0.01"}};
enum { NUM_CODECS = sizeof(CODECS) / sizeof(CODECS[0]), MOST_CHOSEN_OF = 100000000 };

static void make_job(const fedge_codec *codec, size_t parameters)
{
    size_t offset = 0;
    job.schema = (fedge_schema){job.tensors, TENSORS, TENSORS, parameters};
    for (size_t t = 0; t < TENSORS; t++) {
        const size_t share = parameters / TENSORS;
        const size_t count = t + 1 < TENSORS ? share : parameters - offset;
        job.tensors[t] = (fedge_tensor_spec){
            .offset = offset, .count = count, .rank = 2, .shape = {(uint32_t)count, 1}};
        snprintf(job.tensors[t].name, sizeof(job.tensors[t].name), "%zu", t);
        job.bounds_log2[t] = FEDGE_FIXED_DEFAULT_BOUND_LOG2;
        job.parts[t] = (fedge_step_part){offset,
                                         count,
                                         FEDGE_FIXED_DEFAULT_BOUND_LOG2,
                                         1.0,
                                         job.values ? job.values + offset : NULL,
                                         true,
                                         NULL,
                                         {NULL}};
        offset += count;
    }
    job.layout = (fedge_update_layout){.num_sections = 1,
                                       .sections = {{.codec = *codec, .schema = &job.schema}},
                                       .num_elements = parameters,
                                       .size = fedge_codec_size(codec, &job.schema)};
}

/* Small changes, none the same: each update is the source moved by some places. */
static void make_updates(const fedge_codec *codec, size_t parameters)
{
    fedge_error err = {0};
    job.source = malloc((parameters + MAX_POOL) * sizeof(*job.source));
    job.values = calloc(parameters, sizeof(*job.values));
    float *residual = malloc(parameters * sizeof(*residual));
    if (!job.source || !job.values || !residual)
        fail("updates", "no memory");
    uint32_t x = 2463534242u; /* Marsaglia's xorshift */
    for (size_t i = 0; i < parameters + MAX_POOL; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        job.source[i] = ((float)x * 0x1p-32f - 0.5f) * 0.02f;
    }
    make_job(codec, parameters);
    const size_t most = pool_bytes / job.layout.size;
    job.pool_size = most < 2 ? 2 : most > MAX_POOL ? MAX_POOL : (uint32_t)most;
    const size_t wanted = 2 * least_bytes / job.layout.size;
    size_t size = 0;
    job.num_updates = wanted < 8 ? 8 : wanted > 64 ? 64 : (uint32_t)wanted;
    for (uint32_t u = 0; u < job.pool_size; u++) {
        job.pool[u] = malloc(job.layout.size);
        if (!job.pool[u])
            fail("updates", "no memory");
        memset(residual, 0, parameters * sizeof(*residual));
        must_do(codec_encode(codec, &job.schema, job.bounds_log2, job.source + u,
                             codec->sparsifier ? residual : NULL, job.pool[u], job.layout.size,
                             &size, NULL, &err),
                "encoding", &err);
        job.pool_sizes[u] = size;
    }
    job.num_bytes = 0;
    for (uint32_t u = 0; u < job.num_updates; u++)
        job.num_bytes += (double)job.pool_sizes[u % job.pool_size];
    free(residual);
}

static void free_updates(void)
{
    for (uint32_t u = 0; u < job.pool_size; u++)
        free(job.pool[u]);
    free(job.source);
    free(job.values);
    job.source = job.values = NULL;
}

typedef struct worker {
    const fedge_accumulator_ops *ops;
    void *state;
    uint32_t index, num_threads;
    fedge_status status;
    fedge_error err;
} worker;

static void *sum_updates(void *argument)
{
    worker *self = argument;
    uint64_t ticket = 0;
    for (uint32_t first = self->index * THREAD_BATCH;
         first < job.num_updates && self->status == FEDGE_OK;
         first += self->num_threads * THREAD_BATCH) {
        fedge_encoded updates[THREAD_BATCH] = {0}, *batch[THREAD_BATCH];
        uint32_t count = 0;
        for (; count < THREAD_BATCH && first + count < job.num_updates && self->status == FEDGE_OK;
             count++) {
            const uint32_t u = (first + count) % job.pool_size;
            updates[count] = (fedge_encoded){.bytes = job.pool[u],
                                             .sizes = &job.pool_sizes[u],
                                             .bounds_log2 = job.bounds_log2,
                                             .weight = 600};
            batch[count] = &updates[count];
            self->status = self->ops->validate(self->state, batch[count], &self->err);
        }
        if (self->status == FEDGE_OK)
            self->status = self->ops->add(self->state, batch, count, &ticket, &self->err);
        if (self->status == FEDGE_OK)
            self->status = self->ops->wait(self->state, ticket, &self->err);
    }
    return NULL;
}

/* Seconds from updates that are all there to the new model. */
static double time_round(const fedge_accumulator_ops *ops, void *state, uint32_t num_threads)
{
    pthread_t threads[MAX_THREADS];
    worker workers[MAX_THREADS];
    fedge_error err = {0};
    const double start = now();
    for (uint32_t i = 0; i < num_threads; i++) {
        workers[i] = (worker){ops, state, i, num_threads, FEDGE_OK, {0}};
        if (pthread_create(&threads[i], NULL, sum_updates, &workers[i]) != 0)
            fail("a thread", "cannot be started");
    }
    for (uint32_t i = 0; i < num_threads; i++) {
        pthread_join(threads[i], NULL);
        must_do(workers[i].status, "adding", &workers[i].err);
    }
    must_do(ops->step(state, job.parts, TENSORS, &err), "the step", &err);
    const double seconds = now() - start;
    must_do(ops->reset(state, &err), "reset", &err);
    return seconds;
}

/* Median seconds of a round, or 0 where the accumulator does not open. */
static double measure_round(const fedge_accumulator_ops *ops, uint32_t gpus, fedge_shard shard,
                            uint32_t num_threads)
{
    fedge_accumulator_config config = {
        .layout = &job.layout, .num_lanes = num_threads, .num_gpus = gpus, .shard = shard};
    for (uint32_t g = 0; g < gpus; g++)
        config.gpus[g] = g;
    void *state = NULL;
    fedge_error err = {0};
    if (ops->open(&config, &state, &err) != FEDGE_OK) {
        fprintf(stderr, "bench_gpu: %s\n", err.message);
        return 0;
    }
    double seconds[REPEATS];
    for (int r = -1; r < REPEATS; r++) {
        const double time = time_round(ops, state, num_threads);
        if (r >= 0)
            seconds[r] = time;
    }
    ops->close(state);
    return median(seconds, REPEATS);
}

static void measure_gpus(uint32_t gpus, fedge_shard shard, uint32_t threads, const char *what,
                         double cpu_seconds)
{
    const double seconds = measure_round(&fedge_accumulator_cuda, gpus, shard, threads);
    if (seconds == 0)
        return;
    char name[96];
    const char *how = gpus == 1                      ? ""
                      : shard == FEDGE_SHARD_CLIENTS ? " by clients"
                                                     : " by coordinates";
    snprintf(name, sizeof(name), "round of %u updates, %s, %u GPU%s%s", (unsigned)job.num_updates,
             what, (unsigned)gpus, gpus == 1 ? "" : "s", how);
    print_row(name, job.num_bytes / seconds * 1e-9, "GB/s",
              gpus == 1 ? "pinned memory to GPU 0" : "its links",
              gpus * link_bytes_per_second * 1e-9);
    print_row(name, 1 / seconds, "rounds/s", "CPU", 1 / cpu_seconds);
    print_row(name, (double)job.num_updates * (double)job.layout.num_elements / seconds * 1e-9,
              "G parameters/s", NULL, 0);
}

static void measure_rounds(int num_gpus)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t threads = cpus < 2 ? 1 : cpus > MAX_THREADS ? MAX_THREADS : (uint32_t)cpus;
    measure_link();
    for (int s = 0; s < NUM_CODECS * num_sizes; s++) {
        const size_case *size = &sizes[s / NUM_CODECS];
        const char *word = CODECS[s % NUM_CODECS].word;
        fedge_codec codec;
        fedge_error err = {0};
        char what[64], name[96];
        must_do(fedge_codec_parse(CODECS[s % NUM_CODECS].pipeline, &codec, &err), word, &err);
        if (codec.sparsifier && size->parameters > MOST_CHOSEN_OF)
            continue;
        make_updates(&codec, size->parameters);
        snprintf(what, sizeof(what), "%s, %s", word, size->name);
        const double cpu = measure_round(&fedge_accumulator_cpu, 0, FEDGE_SHARD_AUTO, threads);
        snprintf(name, sizeof(name), "round of %u updates, %s, CPU, %u threads",
                 (unsigned)job.num_updates, what, (unsigned)threads);
        print_row(name, 1 / cpu, "rounds/s", NULL, 0);
        /* 1, 2, 4 and so on, and all. */
        for (int gpus = 1, next; gpus <= num_gpus; gpus = next) {
            next = gpus < num_gpus && gpus * 2 > num_gpus ? num_gpus : gpus * 2;
            measure_gpus((uint32_t)gpus, FEDGE_SHARD_CLIENTS, threads, what, cpu);
            if (gpus > 1)
                measure_gpus((uint32_t)gpus, FEDGE_SHARD_COORDINATES, threads, what, cpu);
        }
        free_updates();
    }
}

int main(int argc, char **argv)
{
    int num_gpus = 0;
    if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus == 0) {
        fprintf(stderr, "bench_gpu: there is no GPU, or no driver for it\n");
        return 3;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tiny") == 0) {
            sizes = tiny_sizes;
            num_sizes = 1;
            least_bytes = (size_t)1 << 16;
            copy_bytes = pool_bytes = least_bytes;
        } else if (strcmp(argv[i], "kernels") == 0) {
            measure_kernels();
        } else if (strcmp(argv[i], "rounds") == 0) {
            measure_rounds(num_gpus);
        } else {
            fprintf(stderr, "bench_gpu: '%s' is neither kernels nor rounds\n", argv[i]);
            return 2;
        }
    }
    return 0;
}
