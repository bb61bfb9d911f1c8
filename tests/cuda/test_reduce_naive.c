/* The accumulator's fast kernels give the bits of their naive versions, which add term by term. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "aggregator/reduce/cuda/naive.h"
#include "edge/core/rng.h"
#include "tests/cuda/emulator/emulator.h"

enum { SEEDS = 24, MAX_ROWS = 70, MAX_COUNT = 300, BLOCKS = 3 };
enum { VALUES = BLOCKS * FEDGE_CUDA_BLOCK, PAIRS = MAX_ROWS * (MAX_ROWS + 1) / 2 };

static fedge_rng rng;
static cudaStream_t stream;

static void must(cudaError_t error)
{
    assert_int_equal(error, cudaSuccess);
}

/* Memory that host and GPU both read, zeroed. */
static void *allocate(size_t size)
{
    void *memory = NULL;
    must(cudaHostAlloc(&memory, size, 0));
    memset(memory, 0, size);
    return memory;
}

static void finish(void)
{
    must(cudaStreamSynchronize(stream));
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
}

static void accumulates_as_the_naive_kernel(void)
{
    fedge_cuda_batch batch = {.count = 1 + fedge_rng_below(&rng, FEDGE_CUDA_MAX_BATCH)};
    const bool bytes = fedge_rng_below(&rng, 2) == 0;
    void *planes = allocate((size_t)FEDGE_CUDA_MAX_BATCH * VALUES * 4);
    uint16_t *scales = allocate((size_t)FEDGE_CUDA_MAX_BATCH * BLOCKS * sizeof(*scales));
    int64_t *fast = allocate(VALUES * sizeof(*fast)), *naive = allocate(VALUES * sizeof(*naive));
    for (uint32_t u = 0; u < batch.count; u++) {
        uint8_t *plane = (uint8_t *)planes + (size_t)u * VALUES * 4;
        for (uint32_t i = 0; i < VALUES; i++) {
            const float x = ((float)fedge_rng_u32(&rng) * 0x1p-31f - 1.0f) * 0x1p-3f;
            if (bytes)
                ((int8_t *)plane)[i] = (int8_t)((int)fedge_rng_below(&rng, 255) - 127);
            else
                memcpy(plane + 4 * (size_t)i, &x, sizeof(x));
        }
        for (uint32_t b = 0; b < BLOCKS; b++)
            scales[u * BLOCKS + b] = (uint16_t)(bytes ? fedge_rng_below(&rng, 32768) : 33);
        batch.values[u] = plane;
        batch.scales[u] = scales + u * BLOCKS;
        batch.weights[u] = 1 + fedge_rng_below(&rng, fedge_rng_below(&rng, 2) ? 9 : 1u << 27);
    }
    for (uint32_t i = 0; i < VALUES; i++)
        fast[i] = naive[i] = (int64_t)fedge_rng_u32(&rng) - (1ll << 31);
    const int codec = bytes ? FEDGE_CUDA_INT8 : FEDGE_CUDA_NONE;
    must(fedge_cuda_accumulate(codec, &batch, fast, BLOCKS, 2, stream));
    must(fedge_naive_accumulate(codec, &batch, naive, BLOCKS, stream));
    finish();
    assert_memory_equal(fast, naive, VALUES * sizeof(*fast));
    must(cudaFreeHost(planes));
    must(cudaFreeHost(scales));
    must(cudaFreeHost(fast));
    must(cudaFreeHost(naive));
}

/* A tile of few different values, of large ones, or of any. */
static fedge_cuda_tile draw_tile(int32_t *values)
{
    const uint32_t kind = fedge_rng_below(&rng, 3);
    const fedge_cuda_tile tile = {.values = values,
                                  .num = fedge_rng_below(&rng, 2) ? 2 + fedge_rng_below(&rng, 63)
                                                                  : 65 + fedge_rng_below(&rng, 6),
                                  .count = 1 + fedge_rng_below(&rng, MAX_COUNT),
                                  .stride = MAX_COUNT};
    for (uint32_t i = 0; i < MAX_ROWS * MAX_COUNT; i++) {
        const int32_t any = (int32_t)fedge_rng_below(&rng, (2u << 30) + 1) - (1 << 30);
        values[i] = kind == 0   ? any
                    : kind == 1 ? (int32_t)fedge_rng_below(&rng, 5) - 2
                                : (any < 0 ? -(1 << 30) : 1 << 30);
    }
    return tile;
}

static void multiplies_as_the_naive_kernel(const fedge_cuda_tile *tile)
{
    unsigned long long *sums[4]; /* high and low of the fast kernel, then of the naive one */
    for (int i = 0; i < 4; i++)
        sums[i] = allocate(PAIRS * sizeof(**sums));
    const int shift = 6 + (int)fedge_rng_below(&rng, 25);
    const fedge_tile_products products = (fedge_tile_products)fedge_rng_below(&rng, 3);
    must(fedge_cuda_dots(tile, shift, products, sums[0], sums[1], stream));
    must(fedge_naive_dots(tile, shift, products, sums[2], sums[3], stream));
    finish();
    for (size_t p = 0; p < fedge_tile_pairs(tile->num); p++) {
        /* high and low are not unique: carry what is in low beyond 32 bits. */
        for (int i = 0; i < 4; i += 2) {
            sums[i][p] += (unsigned long long)((long long)sums[i + 1][p] >> 32);
            sums[i + 1][p] &= 0xffffffffu;
        }
        assert_int_equal(sums[0][p], sums[2][p]);
        assert_int_equal(sums[1][p], sums[3][p]);
    }
    for (int i = 0; i < 4; i++)
        must(cudaFreeHost(sums[i]));
}

static void sorts_as_the_naive_kernel(const fedge_cuda_tile *tile)
{
    int64_t *fast = allocate(MAX_COUNT * sizeof(*fast));
    int64_t *naive = allocate(MAX_COUNT * sizeof(*naive));
    uint32_t *rows = allocate(MAX_ROWS * sizeof(*rows));
    fedge_cuda_rows chosen = {.rows = fedge_rng_below(&rng, 2) ? rows : NULL, .num = tile->num};
    for (uint32_t i = 0; i < tile->num; i++)
        rows[i] = tile->num - 1 - i;
    chosen.num -= fedge_rng_below(&rng, fedge_rng_below(&rng, 2) ? chosen.num : 1);
    const uint32_t from = fedge_rng_below(&rng, chosen.num);
    const uint32_t to = from + 1 + fedge_rng_below(&rng, chosen.num - from);
    must(fedge_cuda_between(tile, &chosen, from, to, fast, stream));
    must(fedge_naive_between(tile, &chosen, from, to, naive, stream));
    finish();
    assert_memory_equal(fast, naive, tile->count * sizeof(*fast));
    must(fedge_cuda_nearest(tile, &chosen, from, fast, stream));
    must(fedge_naive_nearest(tile, &chosen, from, naive, stream));
    finish();
    assert_memory_equal(fast, naive, tile->count * sizeof(*fast));
    must(cudaFreeHost(fast));
    must(cudaFreeHost(naive));
    must(cudaFreeHost(rows));
}

static void fast_kernels_have_the_bits_of_naive_ones(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 2, 0, 0);
        emulator_start(
            &(emulator_config){.num_gpus = 1, .seed = seed, .order = (emulator_order)(seed % 3)});
        must(cudaSetDevice(0));
        must(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        int32_t *values = allocate((size_t)MAX_ROWS * MAX_COUNT * sizeof(*values));
        const fedge_cuda_tile tile = draw_tile(values);
        accumulates_as_the_naive_kernel();
        multiplies_as_the_naive_kernel(&tile);
        sorts_as_the_naive_kernel(&tile);
        must(cudaFreeHost(values));
        must(cudaStreamDestroy(stream));
        assert_int_equal(emulator_leaks(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_kernels_have_the_bits_of_naive_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
