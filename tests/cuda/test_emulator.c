/* The emulator finds every mistake that is planted, and none where there is none. RACES: this
 * program's kernels are compiled for the race detector. */
#include "tests/edge/core/cmocka_all.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edge/train/cuda/nccl_api.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/planted.h"

enum { SEEDS = 20, N = 128 };

static cudaStream_t stream, other;
static int *in, *out; /* on the GPU, N each */
static int *host;     /* pinned, N */

static void begin(const emulator_config *config)
{
    emulator_start(config);
    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_equal(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), 0);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    assert_int_equal(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), 0);
    assert_int_equal(cudaMalloc((void **)&in, N * sizeof(int)), 0);
    assert_int_equal(cudaMalloc((void **)&out, N * sizeof(int)), 0);
    assert_int_equal(cudaHostAlloc((void **)&host, N * sizeof(int), cudaHostAllocPortable), 0);
    for (int i = 0; i < N; i++)
        host[i] = 3 * i + 1;
    assert_int_equal(cudaMemcpyAsync(in, host, N * sizeof(int), cudaMemcpyHostToDevice, stream), 0);
    assert_int_equal(cudaMemsetAsync(out, 0, N * sizeof(int), stream), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
}

static void end(void)
{
    (void)cudaStreamDestroy(stream);
    (void)cudaStreamDestroy(other);
    (void)cudaFree(in);
    (void)cudaFree(out);
    (void)cudaFreeHost(host);
    assert_int_equal(emulator_leaks(), 0);
}

/* host = out */
static cudaError_t fetch(void)
{
    cudaError_t error = cudaMemcpyAsync(host, out, N * sizeof(int), cudaMemcpyDeviceToHost, stream);
    return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
}

static emulator_config one_gpu(uint64_t seed, emulator_order order)
{
    return (emulator_config){.num_gpus = 1, .seed = seed, .order = order};
}

static void expect_fault(const char *word)
{
    if (!emulator_fault())
        fail_msg("nothing was found; \"%s\" was expected", word);
    if (!strstr(emulator_fault(), word))
        fail_msg("\"%s\" is not about \"%s\"", emulator_fault(), word);
}

static bool reversed(void)
{
    bool right = true;
    for (int i = 0; i < N; i++)
        right = right && host[i] == 3 * (N - 1 - i) + 1;
    return right;
}

static void test_right_kernels(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3 * SEEDS; seed++) {
        const emulator_config config = one_gpu(seed, (emulator_order)(seed % 3));
        begin(&config);
        assert_int_equal(planted_reverse(in, out, N, 0, stream), 0);
        assert_int_equal(fetch(), 0);
        assert_true(reversed());
        assert_int_equal(planted_sum(in, out, 1, stream), 0);
        assert_int_equal(planted_warp(out + 1, 0, stream), 0);
        assert_int_equal(planted_set(out + 2, 1, 0, stream), 0);
        assert_int_equal(planted_count(out + 2, N, 0, stream), 0);
        assert_int_equal(fetch(), 0);
        assert_int_equal(host[0], 3 * N * (N - 1) / 2 + N);
        assert_int_equal(host[1], 5);
        assert_int_equal(host[2], N);
        assert_null(emulator_fault());
        end();
    }
}

static void test_missing_barrier(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const emulator_config config = one_gpu(seed, EMULATOR_EAGER);
        begin(&config);
        assert_int_equal(planted_reverse(in, out, N, 1, stream), 0);
        assert_int_equal(fetch(), 0);
        assert_false(reversed());
#ifdef RACES
        expect_fault("race on shared memory");
#endif
        end();
    }
}

/* Random order alone cannot see these: each thread runs undisturbed. */
static void test_races(void **state)
{
    (void)state;
#ifdef RACES
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const emulator_config config = one_gpu(seed, EMULATOR_EAGER);
        begin(&config);
        assert_int_equal(planted_count(out, N, 1, stream), 0);
        expect_fault("race on global memory");
        end();
        begin(&config);
        assert_int_equal(planted_warp(out, 1, stream), 0);
        expect_fault("race on shared memory");
        assert_true(emulator_races_seen() > 0);
        end();
    }
#else
    skip();
#endif
}

static void test_divergence(void **state)
{
    (void)state;
    cudaError_t (*const kernels[])(int *, cudaStream_t) = {planted_divergent_barrier,
                                                           planted_early_exit, planted_wrong_mask};
    for (int i = 0; i < 3; i++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            const emulator_config config = one_gpu(seed, EMULATOR_EAGER);
            begin(&config);
            assert_int_equal(kernels[i](out, stream), 0);
            expect_fault("divergent barrier");
            assert_int_equal(fetch(), cudaErrorLaunchFailure); /* sticky */
            assert_int_equal(cudaSetDevice(0), cudaErrorLaunchFailure);
            end();
        }
    }
}

/* A copy on one stream and a kernel on another, with the event between them or without. */
static bool ordered_by(cudaEvent_t event, uint64_t seed, emulator_order order)
{
    const emulator_config config = one_gpu(seed, order);
    begin(&config);
    if (event)
        assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), 0);
    assert_int_equal(planted_set(out, N, 7, other), 0);
    if (event) {
        assert_int_equal(cudaEventRecord(event, other), 0);
        assert_int_equal(cudaStreamWaitEvent(stream, event, 0), 0);
    }
    assert_int_equal(fetch(), 0);
    bool right = true;
    for (int i = 0; i < N; i++)
        right = right && host[i] == 7;
    if (event)
        assert_int_equal(cudaEventDestroy(event), 0);
    assert_null(emulator_fault());
    end();
    return right;
}

static void test_streams(void **state)
{
    (void)state;
    uint32_t wrong = 0;
    const cudaEvent_t with = (cudaEvent_t)&wrong;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        wrong += !ordered_by(NULL, seed, EMULATOR_LAZY) || !ordered_by(NULL, seed, EMULATOR_RANDOM);
        for (int order = EMULATOR_EAGER; order <= EMULATOR_RANDOM; order++)
            assert_true(ordered_by(with, seed, (emulator_order)order));
    }
    assert_true(wrong > SEEDS / 2);
}

/* The pinned source of a copy is changed before the copy has been waited for. */
static void test_source_changed_too_soon(void **state)
{
    (void)state;
    const emulator_config config = one_gpu(1, EMULATOR_LAZY);
    begin(&config);
    assert_int_equal(cudaMemcpyAsync(out, host, 4, cudaMemcpyHostToDevice, stream), 0);
    host[0] = -1;
    assert_int_equal(fetch(), 0);
    assert_int_equal(host[0], -1);
    end();
}

/* How a child ends that runs [act]. */
static int child(void (*act)(void))
{
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* not cmocka's, which would go on with the tests */
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        act();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void read_device_memory(void)
{
    volatile const int *memory = out;
    (void)*memory;
}

static void misaligned_load(void)
{
    (void)planted_misaligned((const char *)in, out, stream);
}

static void out_of_bounds(void)
{
    (void)planted_set(out, N + 1, 1, stream);
}

static void test_memory(void **state)
{
    (void)state;
    const emulator_config config = one_gpu(1, EMULATOR_EAGER);
    begin(&config);
#ifndef __SANITIZE_THREAD__
    assert_int_not_equal(child(read_device_memory), 0);
#endif
#ifdef __SANITIZE_ADDRESS__
    assert_int_not_equal(child(misaligned_load), 0);
    assert_int_not_equal(child(out_of_bounds), 0);
#else
    (void)misaligned_load;
    (void)out_of_bounds;
    (void)child;
    (void)read_device_memory;
#endif
    int pageable[4] = {0};
    assert_int_not_equal(cudaMemcpyAsync(out, pageable, 16, cudaMemcpyHostToDevice, stream), 0);
    expect_fault("pinned");
    int *more = NULL;
    assert_int_equal(cudaMalloc((void **)&more, 64), 0);
    assert_int_equal(emulator_leaks(), 6);
    assert_int_equal(cudaFree(more), 0);
    end();
    begin(&config);
    assert_int_not_equal(cudaFree(host), 0); /* pinned memory */
    expect_fault("freed");
    end();
}

static void test_hardware(void **state)
{
    (void)state;
    int count = -1;
    emulator_start(&(emulator_config){.num_gpus = 0});
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    emulator_start(&(emulator_config){.num_gpus = 1, .no_driver = true});
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    emulator_start(&(emulator_config){.num_gpus = 3, .memory_bytes = 1000});
    assert_int_equal(cudaGetDeviceCount(&count), 0);
    assert_int_equal(count, 3);
    assert_int_equal(cudaSetDevice(3), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(2), 0);
    void *a = NULL, *b = NULL;
    assert_int_equal(cudaMalloc(&a, 900), 0);
    assert_int_equal(cudaMalloc(&b, 101), cudaErrorMemoryAllocation);
    assert_int_equal(cudaSetDevice(1), 0);
    assert_int_equal(cudaMalloc(&b, 101), 0);
    assert_int_equal(cudaFree(a), 0);
    assert_int_equal(cudaFree(b), 0);
    cudaStream_t of_1 = NULL;
    assert_int_equal(cudaStreamCreateWithFlags(&of_1, 0), 0);
    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_not_equal(cudaMemsetAsync(a, 0, 1, of_1), 0);
    expect_fault("another GPU");
    assert_int_equal(cudaStreamDestroy(of_1), 0);
}

static void test_injected_failures(void **state)
{
    (void)state;
    emulator_start(&(emulator_config){.num_gpus = 2, .fail_call = 3});
    void *memory = NULL;
    assert_int_equal(cudaSetDevice(1), 0);
    assert_int_equal(cudaMalloc(&memory, 8), 0);
    cudaStream_t made = NULL;
    assert_int_equal(cudaStreamCreateWithFlags(&made, 0), cudaErrorECCUncorrectable);
    assert_int_equal(cudaStreamCreateWithFlags(&made, 0), cudaErrorECCUncorrectable);
    assert_int_equal(cudaSetDevice(0), 0); /* the other GPU goes on */
    assert_int_equal(cudaStreamCreateWithFlags(&made, 0), 0);
    assert_int_equal(cudaStreamDestroy(made), 0);
    assert_int_equal(cudaSetDevice(1), cudaErrorECCUncorrectable);
    (void)cudaFree(memory);
    assert_int_equal(emulator_leaks(), 0);
}

/* Each of [n] GPUs holds n · 2 int64: rank r's are r + 1 + i. */
typedef struct ranks {
    ncclComm_t comms[EMULATOR_MAX_GPUS];
    cudaStream_t streams[EMULATOR_MAX_GPUS];
    int64_t *memory[EMULATOR_MAX_GPUS], *pinned;
    fedge_nccl nccl;
    int n;
} ranks;

static void make_ranks(ranks *self, int n)
{
    int gpus[EMULATOR_MAX_GPUS];
    *self = (ranks){.n = n};
    const size_t size = (size_t)n * 2 * sizeof(int64_t);
    assert_int_equal(fedge_nccl_load(&self->nccl, NULL), FEDGE_OK);
    assert_int_equal(cudaHostAlloc((void **)&self->pinned, size * (size_t)n, 0), 0);
    for (int r = 0; r < n; r++) {
        gpus[r] = r;
        assert_int_equal(cudaSetDevice(r), 0);
        assert_int_equal(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), 0);
        assert_int_equal(cudaStreamCreateWithFlags(&self->streams[r], 0), 0);
        assert_int_equal(cudaMalloc((void **)&self->memory[r], size), 0);
        for (int i = 0; i < 2 * n; i++)
            self->pinned[r * 2 * n + i] = r + 1 + i;
        assert_int_equal(cudaMemcpyAsync(self->memory[r], self->pinned + (ptrdiff_t)r * 2 * n, size,
                                         cudaMemcpyHostToDevice, self->streams[r]),
                         0);
    }
    assert_int_equal(self->nccl.comm_init_all(self->comms, n, gpus), 0);
}

static void free_ranks(ranks *self)
{
    for (int r = 0; r < self->n; r++) {
        (void)self->nccl.comm_destroy(self->comms[r]);
        (void)cudaSetDevice(r);
        (void)cudaStreamDestroy(self->streams[r]);
        (void)cudaFree(self->memory[r]);
    }
    (void)cudaFreeHost(self->pinned);
    fedge_nccl_unload(&self->nccl);
    assert_int_equal(emulator_leaks(), 0);
}

/* Reduce-scatter in place by the first [members] ranks, then all-gather of the sums. */
static fedge_nccl_result collect(ranks *self, int members)
{
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(self->nccl.group_start(), 0);
        for (int r = 0; r < members; r++) {
            int64_t *mine = self->memory[r] + 2 * (ptrdiff_t)r;
            const fedge_nccl_result result =
                pass == 0
                    ? self->nccl.reduce_scatter(self->memory[r], mine, 2, FEDGE_NCCL_INT64,
                                                FEDGE_NCCL_SUM, self->comms[r], self->streams[r])
                    : self->nccl.all_gather(mine, self->memory[r], 2, FEDGE_NCCL_INT64,
                                            self->comms[r], self->streams[r]);
            assert_int_equal(result, 0);
        }
        const fedge_nccl_result result = self->nccl.group_end();
        if (result != FEDGE_NCCL_SUCCESS)
            return result;
    }
    return FEDGE_NCCL_SUCCESS;
}

static void test_collectives(void **state)
{
    (void)state;
    static const int SIZES[] = {1, 2, 3, 8};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const int n = SIZES[seed % 4];
        emulator_start(&(emulator_config){
            .num_gpus = (uint32_t)n, .seed = seed, .order = (emulator_order)(seed % 3)});
        ranks all;
        make_ranks(&all, n);
        assert_int_equal(collect(&all, n), 0);
        for (int r = 0; r < n; r++) {
            assert_int_equal(cudaSetDevice(r), 0);
            assert_int_equal(cudaMemcpyAsync(all.pinned, all.memory[r], (size_t)n * 16,
                                             cudaMemcpyDeviceToHost, all.streams[r]),
                             0);
            assert_int_equal(cudaStreamSynchronize(all.streams[r]), 0);
            for (int i = 0; i < 2 * n; i++)
                assert_int_equal(all.pinned[i], n * (n + 1) / 2 + n * i);
        }
        assert_null(emulator_fault());
        free_ranks(&all);
    }
}

static void test_collective_failures(void **state)
{
    (void)state;
    emulator_start(
        &(emulator_config){.num_gpus = 2, .hang_collective = 2, .nccl_async_error = true});
    ranks all;
    make_ranks(&all, 2);
    fedge_nccl_result error = FEDGE_NCCL_SUCCESS;
    assert_int_equal(collect(&all, 2), 0);
    assert_int_equal(cudaStreamQuery(all.streams[1]), cudaErrorNotReady);
    assert_int_equal(all.nccl.comm_get_async_error(all.comms[0], &error), 0);
    assert_int_equal(error, FEDGE_NCCL_REMOTE_ERROR);
    assert_int_equal(all.nccl.comm_abort(all.comms[0]), 0);
    assert_int_equal(all.nccl.comm_abort(all.comms[1]), 0);
    assert_int_equal(cudaStreamSynchronize(all.streams[1]), 0);
    free_ranks(&all);

    emulator_start(&(emulator_config){.num_gpus = 2});
    make_ranks(&all, 2);
    assert_int_equal(collect(&all, 1), FEDGE_NCCL_INVALID_USAGE);
    expect_fault("not all members");
    free_ranks(&all);

    emulator_start(&(emulator_config){.num_gpus = 1, .no_nccl = true});
    fedge_error err;
    assert_int_equal(fedge_nccl_load(&all.nccl, &err), FEDGE_NOT_FOUND);
    emulator_start(&(emulator_config){.num_gpus = 1, .nccl_version = 2708});
    assert_int_equal(fedge_nccl_load(&all.nccl, &err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "2.7.8"));
}

/* Threads of a server that spin would each keep a core busy while a GPU works. */
static void test_waits_that_spin(void **state)
{
    (void)state;
    const emulator_config config = one_gpu(1, EMULATOR_LAZY);
    static const unsigned FLAGS[] = {cudaEventBlockingSync, cudaEventDefault};
    for (int i = 0; i < 2; i++) {
        cudaEvent_t event = NULL;
        begin(&config);
        assert_int_equal(cudaEventCreateWithFlags(&event, FLAGS[i]), 0);
        assert_int_equal(cudaEventRecord(event, stream), 0);
        assert_int_equal(cudaEventSynchronize(event), 0);
        if (i == 0)
            assert_null(emulator_fault());
        else
            expect_fault("spins");
        assert_int_equal(cudaEventDestroy(event), 0);
        end();
    }
    begin(&config);
    assert_int_equal(cudaSetDeviceFlags(0), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    expect_fault("spins");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_kernels),   cmocka_unit_test(test_missing_barrier),
        cmocka_unit_test(test_races),           cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_streams),         cmocka_unit_test(test_source_changed_too_soon),
        cmocka_unit_test(test_waits_that_spin), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_hardware),        cmocka_unit_test(test_injected_failures),
        cmocka_unit_test(test_collectives),     cmocka_unit_test(test_collective_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
