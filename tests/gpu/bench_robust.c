/* Robust rules on GPU 0, in passes over 64 updates a second.
 *
 *     bench_robust [--tiny]
 *
 * Updates in memory of the GPU, as a rule in another library would have them: the median and the
 * trimmed mean of each coordinate, and Krum's distances and choice. Updates in memory of the host:
 * a pass over them by the threads and tiles of a round. Prints a row of JSON for each, as
 * tests/bench does; tests/gpu/torch_robust.py has the same in PyTorch. Exit code 3: there is no
 * GPU. */
#define _GNU_SOURCE /* clock_gettime */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "aggregator/reduce/cuda/accumulator_cuda.h"
#include "aggregator/reduce/cuda/tile_kernels.h"
#include "aggregator/reduce/tile.h"
#include "tests/gpu/bandwidth.h"

enum { REPEATS = 7, UPDATES = 64, NUM_THREADS = 8 };

static size_t parameters = 25557032;
static const char *size_name = "25.6 M";

static _Noreturn void fail(const char *doing, const char *why)
{
    fprintf(stderr, "bench_robust: %s: %s\n", doing, why);
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

/* The median time of an act, and its row. */
static void measure(const char *what, void (*act)(void *user), void *user)
{
    double seconds[REPEATS];
    for (int r = -1; r < REPEATS; r++) {
        const double start = now();
        act(user);
        if (r >= 0)
            seconds[r] = now() - start;
    }
    qsort(seconds, REPEATS, sizeof(*seconds), by_value);
    printf("{\"bench\":\"gpu\",\"case\":\"%s of %d × %s\",\"value\":%.6g,\"unit\":\"rounds/s\"}\n",
           what, UPDATES, size_name, 1.0 / seconds[REPEATS / 2]);
    fflush(stdout);
}

/* ---- in memory of the GPU -------------------------------------------------------------------- */

typedef struct on_gpu {
    fedge_cuda_tile tile;
    fedge_cuda_rows all, one;
    int64_t *sums;
    unsigned long long *dots;  /* (2, pairs) */
    unsigned long long *found; /* pinned: the same on the host */
    cudaStream_t stream;
} on_gpu;

static void *gpu_memory(size_t size)
{
    void *memory = NULL;
    must(cudaMalloc(&memory, size), "cudaMalloc");
    return memory;
}

static void take_median(void *user)
{
    const on_gpu *self = user;
    must(fedge_cuda_between(&self->tile, &self->all, UPDATES / 2 - 1, UPDATES / 2 + 1, self->sums,
                            self->stream),
         "median");
    must(cudaStreamSynchronize(self->stream), "median");
}

static void take_trimmed(void *user)
{
    const on_gpu *self = user;
    must(fedge_cuda_between(&self->tile, &self->all, UPDATES / 5, UPDATES - UPDATES / 5, self->sums,
                            self->stream),
         "trimmed mean");
    must(cudaStreamSynchronize(self->stream), "trimmed mean");
}

/* The scores take the host microseconds, so that any update may stand for the chosen one. */
static void take_krum(void *user)
{
    on_gpu *self = user;
    const size_t pairs = fedge_tile_pairs(UPDATES);
    must(cudaMemsetAsync(self->dots, 0, 2 * pairs * sizeof(*self->dots), self->stream), "Krum");
    must(fedge_cuda_dots(&self->tile, 6, FEDGE_PRODUCTS_ALL, self->dots, self->dots + pairs,
                         self->stream),
         "Krum");
    must(cudaMemcpyAsync(self->found, self->dots, 2 * pairs * sizeof(*self->dots),
                         cudaMemcpyDeviceToHost, self->stream),
         "Krum");
    must(cudaStreamSynchronize(self->stream), "Krum");
    must(fedge_cuda_mean(&self->tile, &self->one, self->sums, self->stream), "Krum");
    must(cudaStreamSynchronize(self->stream), "Krum");
}

static void measure_on_gpu(void)
{
    static on_gpu self;
    const uint64_t stride = (parameters + 31) / 32 * 32;
    const size_t dots = 2 * fedge_tile_pairs(UPDATES) * sizeof(*self.dots);
    must(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking), "a stream");
    uint32_t *words = gpu_memory(UPDATES * stride * sizeof(*words));
    uint32_t *weights = gpu_memory(sizeof(*weights));
    self.sums = gpu_memory(parameters * sizeof(*self.sums));
    self.dots = gpu_memory(dots);
    must(cudaHostAlloc((void **)&self.found, dots, cudaHostAllocPortable), "pinned memory");
    must(cudaMemsetAsync(weights, 1, sizeof(*weights), self.stream), "a weight");
    must(bandwidth_fill(words, UPDATES * stride, 0x3fffffffu, 0, 1, self.stream), "fill");
    must(cudaStreamSynchronize(self.stream), "fill");
    self.tile = (fedge_cuda_tile){.values = (const int32_t *)words,
                                  .num = UPDATES,
                                  .count = (uint32_t)parameters,
                                  .stride = stride};
    self.all = (fedge_cuda_rows){.num = UPDATES};
    self.one = (fedge_cuda_rows){.num = 1, .weights = weights};
    measure("median", take_median, &self);
    measure("trimmed mean", take_trimmed, &self);
    measure("Krum", take_krum, &self);
    must(cudaFree(words), "free");
    must(cudaFree(weights), "free");
    must(cudaFree(self.sums), "free");
    must(cudaFree(self.dots), "free");
    must(cudaFreeHost(self.found), "free");
    must(cudaStreamDestroy(self.stream), "a stream");
}

/* ---- in memory of the host ------------------------------------------------------------------- */

typedef struct on_host {
    const fedge_tile_ops *ops;
    void *place;
    int32_t *values; /* (UPDATES, parameters) */
    bool distances;
    void *state;
    atomic_size_t next; /* tile */
} on_host;

typedef struct worker {
    on_host *of;
    uint32_t thread;
} worker;

static void *work(void *user)
{
    const worker *self = user;
    on_host *of = self->of;
    const fedge_tile_choice choice = {.reduction = FEDGE_ROW_MEDIAN, .num = UPDATES};
    fedge_error err = {0};
    for (;;) {
        const size_t first = atomic_fetch_add(&of->next, 1) * of->ops->size;
        if (first >= parameters)
            return NULL;
        const size_t left = parameters - first;
        const size_t count = left < of->ops->size ? left : of->ops->size;
        const int64_t *sums = NULL;
        int32_t **rows = of->ops->rows(of->state, self->thread, UPDATES, count);
        for (size_t i = 0; i < UPDATES; i++)
            memcpy(rows[i], of->values + i * parameters + first, count * sizeof(**rows));
        fedge_status status = of->ops->load(of->state, self->thread, UPDATES, count, &err);
        if (status == FEDGE_OK && of->distances) {
            status =
                of->ops->dots(of->state, self->thread, UPDATES, count, 6, FEDGE_PRODUCTS_ALL, &err);
        } else if (status == FEDGE_OK) {
            status = of->ops->reduce(of->state, self->thread, count, &choice, &sums, &err);
        }
        must_do(status, "a tile", &err);
    }
}

static void pass(void *user)
{
    on_host *self = user;
    const fedge_tile_config config = {
        .num = UPDATES, .num_threads = NUM_THREADS, .size = self->ops->size};
    fedge_tile_sum sums[UPDATES * (UPDATES + 1) / 2];
    worker workers[NUM_THREADS];
    pthread_t ids[NUM_THREADS];
    fedge_error err = {0};
    must_do(self->ops->open(self->place, &config, &self->state, &err), "tiles", &err);
    atomic_store(&self->next, 0);
    for (uint32_t t = 0; t < NUM_THREADS; t++) {
        workers[t] = (worker){self, t};
        if (pthread_create(&ids[t], NULL, work, &workers[t]) != 0)
            fail("threads", "cannot start one");
    }
    for (uint32_t t = 0; t < NUM_THREADS; t++)
        (void)pthread_join(ids[t], NULL);
    if (self->distances)
        must_do(self->ops->take_dots(self->state, UPDATES, sums, &err), "distances", &err);
    self->ops->close(self->state);
}

static void measure_on_host(void)
{
    fedge_tensor_spec tensor = {.name = "w", .count = 256, .rank = 1, .shape = {256}};
    const fedge_schema schema = {&tensor, 1, 1, 256};
    fedge_update_layout layout = {.num_sections = 1, .num_elements = 256};
    fedge_accumulator gpus = {.ops = &fedge_accumulator_cuda};
    on_host self = {.values = malloc(UPDATES * parameters * sizeof(int32_t))};
    uint32_t num_places = 0, x = 2463534242u; /* Marsaglia's xorshift */
    fedge_error err = {0};
    if (!self.values)
        fail("updates", "no memory");
    for (size_t i = 0; i < UPDATES * parameters; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        self.values[i] = (int32_t)(x >> 8) - (1 << 23);
    }
    must_do(fedge_codec_parse("none", &layout.sections[0].codec, &err), "a codec", &err);
    layout.sections[0].schema = &schema;
    layout.size = fedge_codec_size(&layout.sections[0].codec, &schema);
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 1, .num_gpus = 1};
    must_do(gpus.ops->open(&config, &gpus.state, &err), "GPU 0", &err);
    self.ops = fedge_accumulator_tiles(&gpus, &self.place, &num_places);
    measure("median, updates on the host, 8 threads and 1 GPU,", pass, &self);
    self.distances = true;
    measure("distances, updates on the host, 8 threads and 1 GPU,", pass, &self);
    gpus.ops->close(gpus.state);
    self.ops = &fedge_tile_cpu;
    self.place = NULL;
    self.distances = false;
    measure("median, updates on the host, 8 threads,", pass, &self);
    self.distances = true;
    measure("distances, updates on the host, 8 threads,", pass, &self);
    free(self.values);
}

int main(int argc, char **argv)
{
    int num_gpus = 0;
    if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus == 0) {
        fprintf(stderr, "bench_robust: there is no GPU, or no driver for it\n");
        return 3;
    }
    if (argc > 1 && strcmp(argv[1], "--tiny") == 0) {
        parameters = 3000;
        size_name = "3 k";
    }
    must(cudaSetDevice(0), "GPU 0");
    measure_on_gpu();
    measure_on_host();
    return 0;
}
