/* The products of a cohort's layers by fedge's kernel, beside cuBLAS's strided batched product.
 *
 *     bench_products [--tiny]
 *
 * A row of JSON for each layer: y = x Wᵀ of so many clients at once, each with a W of its own, in
 * fp32 and in tf32. Then what cuBLAS reaches in one large product, as the matrix peak. fedge's
 * kernel adds in an order of its own, so that a client's bits depend on neither the GPU's size nor
 * on who is beside it, which cuBLAS does not promise; the ratio is what that costs. cuBLAS is
 * loaded when it is there, and rows are without it otherwise. --tiny: sizes for emulated GPUs.
 * Exit code 3: there is no GPU. */
#define _GNU_SOURCE /* clock_gettime */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "edge/train/cuda/kernels/kernels.h"

enum { REPEATS = 7, CALLS = 20 };
enum { TRANSPOSED = 1, PLAIN = 0, MATH_FP32 = 0, MATH_TF32 = 3 }; /* as cublas_api.h has them */

typedef struct cublas {
    void *library; /* NULL: not here */
    void *handle;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*set_math)(void *handle, int mode);
    int (*multiply)(void *handle, int op_a, int op_b, int m, int n, int k, const float *alpha,
                    const float *a, int lda, long long stride_a, const float *b, int ldb,
                    long long stride_b, const float *beta, float *c, int ldc, long long stride_c,
                    int count);
} cublas;

typedef struct layer {
    uint32_t slots, batch, in, out;
} layer;

static cublas blas;
static cudaStream_t stream;
static float *weights, *x, *y;

static _Noreturn void fail(const char *doing, const char *why)
{
    fprintf(stderr, "bench_products: %s: %s\n", doing, why);
    exit(1);
}

static void must(cudaError_t error, const char *doing)
{
    if (error != cudaSuccess)
        fail(doing, cudaGetErrorString(error));
}

static void must_blas(int status)
{
    if (status != 0) {
        char code[32];
        (void)snprintf(code, sizeof(code), "cuBLAS's status %d", status);
        fail("multiplying", code);
    }
}

static bool find(const char *name, void *function)
{
    void *found = dlsym(blas.library, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

static void open_cublas(bool wanted)
{
    static const char *const NAMES[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    for (size_t i = 0; wanted && i < sizeof(NAMES) / sizeof(*NAMES) && !blas.library; i++)
        blas.library = dlopen(NAMES[i], RTLD_NOW | RTLD_LOCAL);
    if (!blas.library) {
        fprintf(stderr, "bench_products: cuBLAS is not here: rows are without it\n");
        return;
    }
    if (!find("cublasCreate_v2", &blas.create) || !find("cublasDestroy_v2", &blas.destroy) ||
        !find("cublasSetStream_v2", &blas.set_stream) ||
        !find("cublasSetMathMode", &blas.set_math) ||
        !find("cublasSgemmStridedBatched", &blas.multiply))
        fail("loading cuBLAS", "a function is missing");
    must_blas(blas.create(&blas.handle));
    must_blas(blas.set_stream(blas.handle, stream));
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double p = *(const double *)a, q = *(const double *)b;
    return (p > q) - (p < q);
}

/* ---- the two --------------------------------------------------------------------------------- */

typedef struct product {
    layer of;
    const fedge_cohort_slot_step *slot_steps;
    bool tf32;
} product;

static void by_fedge(const product *self)
{
    const layer *l = &self->of;
    const size_t stride = (size_t)l->in * l->out;
    const fedge_cohort_shape shape = {self->slot_steps, l->slots, l->batch, stream};
    const fedge_cohort_linear linear = {.weight = {weights, stride},
                                        .in = l->in,
                                        .out = l->out,
                                        .steps = 1,
                                        .dropped = self->tf32 ? FEDGE_COHORT_TF32 : 0,
                                        .x = x,
                                        .y = y};
    must(fedge_cohort_launch_linear(&shape, &linear), "multiplying");
}

static void by_cublas(const product *self)
{
    const layer *l = &self->of;
    const float one = 1.0f, zero = 0.0f;
    const int in = (int)l->in, out = (int)l->out, batch = (int)l->batch;
    must_blas(blas.multiply(blas.handle, TRANSPOSED, PLAIN, out, batch, in, &one, weights, in,
                            (long long)in * out, x, in, (long long)batch * in, &zero, y, out,
                            (long long)batch * out, (int)l->slots));
}

/* FLOP a second, the median. */
static double measure(const product *self, void (*multiply)(const product *self))
{
    const layer *l = &self->of;
    const double flops = 2.0 * l->slots * l->batch * (double)l->in * l->out;
    double rates[REPEATS];
    for (int r = -1; r < REPEATS; r++) {
        const double begin = now();
        for (int i = 0; i < CALLS; i++)
            multiply(self);
        must(cudaStreamSynchronize(stream), "multiplying");
        if (r >= 0)
            rates[r] = CALLS * flops / (now() - begin);
    }
    qsort(rates, REPEATS, sizeof(*rates), by_value);
    return rates[REPEATS / 2];
}

static void copy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    must(cudaMemcpyAsync(to, from, size, kind, stream), "copying");
    must(cudaStreamSynchronize(stream), "copying");
}

/* Both have made the same of the same. */
static void compare(const product *self, float *pinned)
{
    const size_t count = (size_t)self->of.slots * self->of.batch * self->of.out;
    double largest = 0.0, most = 0.0;
    float *mine = malloc(count * sizeof(*mine));
    if (!mine)
        fail("comparing", "no memory");
    by_fedge(self);
    copy(pinned, y, count * sizeof(*y), cudaMemcpyDeviceToHost);
    memcpy(mine, pinned, count * sizeof(*y));
    by_cublas(self);
    copy(pinned, y, count * sizeof(*y), cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)mine[i]));
        most = fmax(most, fabs((double)mine[i] - (double)pinned[i]));
    }
    free(mine);
    if (!(most <= 5e-3 * largest))
        fail("comparing", "cuBLAS has another product");
}

/* ---- all ------------------------------------------------------------------------------------- */

static void put_layer(const product *self)
{
    const layer *l = &self->of;
    const double mine = measure(self, by_fedge);
    printf("{\"bench\":\"gpu\",\"case\":\"products of %u clients, %u × %u by %u × %u, %s\","
           "\"value\":%.6g,\"unit\":\"FLOP/s\"",
           l->slots, l->batch, l->in, l->in, l->out, self->tf32 ? "tf32" : "fp32", mine);
    if (blas.library) {
        const double theirs = measure(self, by_cublas);
        printf(",\"peer\":\"cuBLAS, strided batched\",\"peer_value\":%.6g,\"ratio\":%.4g", theirs,
               mine / theirs);
    }
    printf("}\n");
    fflush(stdout);
}

static void fill(float *to, size_t count, float *pinned, size_t room)
{
    for (size_t i = 0; i < room; i++)
        pinned[i] = (float)((i * 2654435761u) >> 8 & 0xffffu) / 65536.0f - 0.5f;
    for (size_t at = 0; at < count; at += room) {
        const size_t left = count - at;
        copy(to + at, pinned, (left < room ? left : room) * sizeof(*to), cudaMemcpyHostToDevice);
    }
}

static void *take(size_t count, bool pinned)
{
    void *memory = NULL;
    const size_t size = count * sizeof(float);
    must(pinned ? cudaHostAlloc(&memory, size, cudaHostAllocPortable) : cudaMalloc(&memory, size),
         "taking memory");
    return memory;
}

/* Of 100 clients: the 2NN's first layer, and the CNN's largest, in batches of 10 and 32. */
static const layer LAYERS[] = {{100, 10, 784, 200}, {100, 10, 3136, 512}, {100, 32, 3136, 512}};
static const layer TINY[] = {{2, 3, 20, 5}};

int main(int argc, char **argv)
{
    const bool tiny = argc == 2 && strcmp(argv[1], "--tiny") == 0;
    const layer *layers = tiny ? TINY : LAYERS;
    const size_t num_layers = tiny ? 1 : sizeof(LAYERS) / sizeof(*LAYERS);
    const layer large = {1, tiny ? 16 : 8192, tiny ? 16 : 8192, tiny ? 16 : 8192};
    const size_t most = tiny ? 1000 : (size_t)100 * 3136 * 512, room = tiny ? 4000 : 4 << 20;
    int there = 0;
    if (argc > 1 && !tiny) {
        fprintf(stderr, "bench_products: '%s' is not --tiny\n", argv[1]);
        return 2;
    }
    if (cudaGetDeviceCount(&there) != cudaSuccess || there == 0) {
        fprintf(stderr, "bench_products: there is no GPU\n");
        return 3;
    }
    must(cudaSetDevice(0), "choosing it");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    open_cublas(!tiny); /* emulated streams are not for it */
    weights = take(most, false);
    x = take(most, false);
    y = take(most, false);
    float *pinned = take(room, true);
    fill(weights, most, pinned, room);
    fill(x, most, pinned, room);
    fedge_cohort_slot_step *slot_steps = take(100 * sizeof(*slot_steps) / sizeof(float), false),
                           told[100] = {0};
    for (uint32_t tf32 = 0; tf32 < 2; tf32++) {
        if (blas.library)
            must_blas(blas.set_math(blas.handle, tf32 ? MATH_TF32 : MATH_FP32));
        for (size_t i = 0; i < num_layers; i++) {
            const product wanted = {layers[i], slot_steps, tf32};
            for (uint32_t s = 0; s < 100; s++)
                told[s].count = layers[i].batch;
            memcpy(pinned, told, sizeof(told));
            copy(slot_steps, pinned, sizeof(told), cudaMemcpyHostToDevice);
            if (blas.library)
                compare(&wanted, pinned);
            put_layer(&wanted);
        }
        if (blas.library) {
            const product peak = {large, NULL, tf32};
            printf("{\"bench\":\"gpu\",\"case\":\"matrix peak, %s\",\"value\":%.6g,"
                   "\"unit\":\"FLOP/s\"}\n",
                   tf32 ? "tf32" : "fp32", measure(&peak, by_cublas));
            fflush(stdout);
        }
    }
    if (blas.library)
        (void)blas.destroy(blas.handle);
    (void)cudaFree(slot_steps);
    (void)cudaFree(weights);
    (void)cudaFree(x);
    (void)cudaFree(y);
    (void)cudaFreeHost(pinned);
    (void)cudaStreamDestroy(stream);
    return 0;
}
