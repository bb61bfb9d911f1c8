/* Every kernel's bits are those of the scalar references in edge/core, whatever the shapes, the
 * alignment of the bytes, the weights and the order of threads. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/cuda/kernels.h"
#include "edge/core/bytes.h"
#include "edge/core/codec/codec.h"
#include "edge/core/rng.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/codec/codecs.h"

enum { SEEDS = 40, MAX_TENSORS = 6, MAX_COUNT = 1100, BLOCK = FEDGE_CUDA_BLOCK };
enum { MAX_BLOCKS = MAX_TENSORS * (MAX_COUNT / BLOCK + 1), PADDED = MAX_BLOCKS * BLOCK };
enum { MAX_BYTES = PADDED * 4 + 16 };

static fedge_rng rng;
static fedge_tensor_spec specs[MAX_TENSORS];
static fedge_schema schema;
static int8_t bounds[MAX_TENSORS];
static fedge_cuda_block blocks[MAX_BLOCKS];
static uint32_t num_blocks;
static cudaStream_t stream;
static unsigned char *pinned; /* MAX_BYTES · 2 */

/* Memory of the GPU. */
static struct {
    fedge_cuda_block *blocks;
    uint8_t *bytes;
    int8_t *bounds;
    unsigned long long *bad;
    void *values[FEDGE_CUDA_MAX_BATCH];
    uint16_t *scales[FEDGE_CUDA_MAX_BATCH];
    int64_t *sums;
} gpu;

static uint8_t bytes[MAX_BYTES];
static int32_t v[PADDED];
static float values[PADDED];
static int64_t expected[PADDED], start_sums[PADDED];

static void must(cudaError_t error)
{
    assert_int_equal(error, cudaSuccess);
}

static void *allocate(size_t size)
{
    void *memory = NULL;
    must(cudaMalloc(&memory, size));
    return memory;
}

static void begin(uint64_t seed)
{
    rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 1, 0, 0);
    emulator_start(
        &(emulator_config){.num_gpus = 1, .seed = seed, .order = (emulator_order)(seed % 3)});
    must(cudaSetDevice(0));
    must(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(cudaHostAlloc((void **)&pinned, (size_t)PADDED * 8, 0));
    gpu.blocks = allocate(sizeof(blocks));
    gpu.bytes = allocate(MAX_BYTES);
    gpu.bounds = allocate(sizeof(bounds));
    gpu.bad = allocate(sizeof(*gpu.bad));
    gpu.sums = allocate((size_t)PADDED * 8);
    for (int i = 0; i < FEDGE_CUDA_MAX_BATCH; i++) {
        gpu.values[i] = allocate((size_t)PADDED * 4);
        gpu.scales[i] = allocate(MAX_BLOCKS * sizeof(uint16_t));
    }
}

static void end(void)
{
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    must(cudaStreamDestroy(stream));
    must(cudaFreeHost(pinned));
    must(cudaFree(gpu.blocks));
    must(cudaFree(gpu.bytes));
    must(cudaFree(gpu.bounds));
    must(cudaFree(gpu.bad));
    must(cudaFree(gpu.sums));
    for (int i = 0; i < FEDGE_CUDA_MAX_BATCH; i++) {
        must(cudaFree(gpu.values[i]));
        must(cudaFree(gpu.scales[i]));
    }
    assert_int_equal(emulator_leaks(), 0);
}

static void to_gpu(void *to, const void *from, size_t size)
{
    memcpy(pinned, from, size);
    must(cudaMemcpyAsync(to, pinned, size, cudaMemcpyHostToDevice, stream));
    must(cudaStreamSynchronize(stream));
}

static void from_gpu(void *to, const void *from, size_t size)
{
    must(cudaMemcpyAsync(pinned, from, size, cudaMemcpyDeviceToHost, stream));
    must(cudaStreamSynchronize(stream));
    memcpy(to, pinned, size);
}

/* What there are kernels for. */
static const struct {
    const fedge_codec *codec;
    int kernel;
    size_t plane; /* bytes of a value there */
} KERNELS[] = {{&NONE, FEDGE_CUDA_NONE, 4},
               {&INT8, FEDGE_CUDA_INT8, 1},
               {&F16, FEDGE_CUDA_F16, 4},
               {&BF16, FEDGE_CUDA_BF16, 4},
               {&INT4, FEDGE_CUDA_INT4, 1}};
enum { NUM_KERNELS = sizeof(KERNELS) / sizeof(KERNELS[0]) };

static size_t index_of(const fedge_codec *codec)
{
    size_t i = 0;
    while (KERNELS[i].codec != codec)
        i++;
    return i;
}

/* A layout of tensors with ragged tails, small ones among them. */
static void draw_shapes(const fedge_codec *codec)
{
    fedge_schema_init(&schema, specs, MAX_TENSORS);
    const uint32_t count = 1 + fedge_rng_below(&rng, MAX_TENSORS);
    uint64_t offset = 0;
    num_blocks = 0;
    for (uint32_t t = 0; t < count; t++) {
        char name[16];
        const uint32_t most = fedge_rng_below(&rng, 2) ? MAX_COUNT : 20;
        const uint32_t size = 1 + fedge_rng_below(&rng, most);
        (void)snprintf(name, sizeof(name), "t%u", t);
        assert_int_equal(fedge_schema_add(&schema, name, FEDGE_F32, 1, &size, NULL), FEDGE_OK);
        bounds[t] = (int8_t)((int)fedge_rng_below(&rng, 41) - 20);
        for (uint32_t first = 0; first < size; first += BLOCK) {
            const uint32_t in_block = size - first < BLOCK ? size - first : BLOCK;
            blocks[num_blocks++] = (fedge_cuda_block){offset, t, in_block};
            offset += fedge_codec_run_size(codec, in_block);
        }
    }
    to_gpu(gpu.blocks, blocks, sizeof(blocks[0]) * num_blocks);
    to_gpu(gpu.bounds, bounds, sizeof(bounds));
}

static float draw_value(int bound_log2)
{
    const float bound = ldexpf(1.0f, bound_log2);
    switch (fedge_rng_below(&rng, 8)) {
    case 0:
        return bound;
    case 1:
        return -bound;
    case 2:
        return ldexpf(bound, -140); /* a denormal, mostly */
    case 3:
        return -0.0f;
    case 4: /* halfway between two integers */
        return ldexpf((float)fedge_rng_below(&rng, 4096) + 0.5f, bound_log2 - 30);
    default:
        return bound * (float)((double)fedge_rng_u32(&rng) / 2147483648.0 - 1.0);
    }
}

/* [bytes]: an update within its bounds, with the extremes of its codec. */
static size_t draw_update(const fedge_codec *codec)
{
    const size_t size = fedge_codec_size(codec, &schema);
    if (codec != &INT8) {
        for (uint32_t t = 0; t < schema.num_tensors; t++) {
            for (size_t i = 0; i < specs[t].count; i++)
                values[specs[t].offset + i] = draw_value(bounds[t]);
        }
        assert_int_equal(encode_all(codec, &schema, bounds, values, bytes, size, NULL, NULL),
                         FEDGE_OK);
    } else {
        for (uint32_t b = 0; b < num_blocks; b++) {
            uint8_t *at = bytes + blocks[b].offset;
            const uint32_t kind = fedge_rng_below(&rng, 4);
            fedge_put_u16(at, kind == 0 ? 65535 : kind == 1 ? 0 : (uint16_t)fedge_rng_u32(&rng));
            for (uint32_t i = 0; i < blocks[b].count; i++) {
                const int q = kind == 0 ? (fedge_rng_below(&rng, 2) ? 127 : -127)
                                        : (int)fedge_rng_below(&rng, 255) - 127;
                at[2 + i] = (uint8_t)(int8_t)q;
            }
        }
    }
    return size;
}

/* Stages [bytes] in slot [u], in chunks, each copied to a drawn alignment; returns the bad value.
 */
static unsigned long long stage(const fedge_codec *codec, uint32_t u, size_t size, bool only_check)
{
    const unsigned long long none = FEDGE_CUDA_NOT_BAD;
    const size_t unit = KERNELS[index_of(codec)].plane;
    unsigned long long bad = 0;
    to_gpu(gpu.bad, &none, sizeof(none));
    for (uint32_t first = 0; first < num_blocks;) {
        const uint32_t count = 1 + fedge_rng_below(&rng, num_blocks - first);
        const uint64_t from = blocks[first].offset;
        const uint64_t to = first + count < num_blocks ? blocks[first + count].offset : size;
        uint8_t *place = gpu.bytes + fedge_rng_below(&rng, 16);
        to_gpu(place, bytes + from, to - from);
        const fedge_cuda_chunk chunk = {
            .codec = KERNELS[index_of(codec)].kernel,
            .first_block = first,
            .num_blocks = count,
            .blocks = gpu.blocks + first,
            .bytes = place,
            .offset = from,
            .bounds_log2 = gpu.bounds,
            .values = only_check ? NULL : (char *)gpu.values[u] + (size_t)first * BLOCK * unit,
            .scales = only_check ? NULL : gpu.scales[u] + first,
            .bad = gpu.bad,
        };
        must(fedge_cuda_stage(&chunk, stream));
        first += count;
    }
    from_gpu(&bad, gpu.bad, sizeof(bad));
    return bad;
}

/* Adds [bytes], decoded by the reference, to [expected] (padded). */
static void expect_added(const fedge_codec *codec, size_t size, uint32_t weight)
{
    assert_int_equal(fedge_codec_decode(codec, &schema, bounds, bytes, size, v, NULL), FEDGE_OK);
    size_t done = 0;
    for (uint32_t b = 0; b < num_blocks; b++) {
        fedge_fixed_accumulate_scalar(expected + (size_t)b * BLOCK, v + done, blocks[b].count,
                                      weight);
        done += blocks[b].count;
    }
}

/* Weights whose sum is within the limit of 2^32. */
static uint32_t draw_weight(uint32_t kind, uint32_t count)
{
    const uint32_t most = (uint32_t)(FEDGE_FIXED_MAX_TOTAL_WEIGHT / count - (count == 1));
    return kind == 0 ? most : 1 + fedge_rng_below(&rng, FEDGE_FIXED_DEFAULT_MAX_WEIGHT);
}

static void check_sums(const fedge_codec *codec, uint64_t seed)
{
    begin(seed);
    draw_shapes(codec);
    fedge_cuda_batch batch = {.count = 1 + fedge_rng_below(&rng, FEDGE_CUDA_MAX_BATCH)};
    const uint32_t kind = fedge_rng_below(&rng, 3);
    const size_t padded = (size_t)num_blocks * BLOCK;
    for (size_t i = 0; i < padded; i++) {
        const int64_t most = (int64_t)1 << 62;
        start_sums[i] = kind == 0 ? 0 : fedge_rng_below(&rng, 2) ? most : -most;
        expected[i] = start_sums[i];
    }
    for (uint32_t u = 0; u < batch.count; u++) {
        const size_t size = draw_update(codec);
        assert_true(stage(codec, u, size, false) == FEDGE_CUDA_NOT_BAD);
        batch.values[u] = gpu.values[u];
        batch.scales[u] = gpu.scales[u];
        batch.weights[u] = draw_weight(kind, batch.count);
        expect_added(codec, size, batch.weights[u]);
    }
    to_gpu(gpu.sums, start_sums, padded * 8);
    must(fedge_cuda_accumulate(KERNELS[index_of(codec)].kernel, &batch, gpu.sums, num_blocks,
                               1 + fedge_rng_below(&rng, 5), stream));
    from_gpu(start_sums, gpu.sums, padded * 8);
    assert_memory_equal(start_sums, expected, padded * 8);
    end();
}

static void test_sums(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (size_t k = 0; k < NUM_KERNELS; k++)
            check_sums(KERNELS[k].codec, seed);
    }
}

/* Spoils value [i] of block [b]; gives its bits. */
static uint32_t spoil(const fedge_codec *codec, uint32_t b, uint32_t i)
{
    static const uint32_t BAD[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000};
    const float over = nextafterf(ldexpf(1.0f, bounds[blocks[b].tensor]), 1e30f);
    const uint32_t which = fedge_rng_below(&rng, 5);
    uint8_t *at = bytes + blocks[b].offset;
    uint32_t bits = which < 4 ? BAD[which] : 0;
    if (codec == &INT8) {
        at[2 + i] = 0x80;
        return 0x80;
    }
    if (codec == &INT4) {
        const int shift = 4 * (int)(i % 2);
        at[2 + i / 2] = (uint8_t)((at[2 + i / 2] & 0xf0 >> shift) | 8 << shift);
        return 8;
    }
    if (which == 4)
        memcpy(&bits, &over, sizeof(bits));
    if (codec == &NONE) {
        fedge_put_u32(at + (size_t)4 * i, bits);
        return bits;
    }
    bits = codec == &F16 ? (which < 2   ? 0x7e00
                            : which < 4 ? 0xfc00
                                        : 0x7801)
                         : (bits >> 16) + (which == 4);
    fedge_put_u16(at + (size_t)2 * i, (uint16_t)bits);
    return bits;
}

/* Some values are spoilt; the first of them is found, staged or only checked. */
static void check_bad(const fedge_codec *codec, uint64_t seed)
{
    begin(seed);
    draw_shapes(codec);
    const size_t size = draw_update(codec);
    unsigned long long first = FEDGE_CUDA_NOT_BAD;
    for (int n = 0; n < 3; n++) {
        const uint32_t b = fedge_rng_below(&rng, num_blocks);
        const uint32_t i = fedge_rng_below(&rng, blocks[b].count);
        const uint32_t bits = spoil(codec, b, i);
        const unsigned long long found = ((unsigned long long)b * BLOCK + i) << 32 | bits;
        first = found >> 32 <= first >> 32 ? found : first;
    }
    assert_true(stage(codec, 0, size, seed % 2 == 0) == first);
    end();
}

/* Behind the last of an odd number of int4. */
static void test_bad_padding(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        draw_shapes(&INT4);
        const size_t size = draw_update(&INT4);
        uint32_t b = 0;
        while (b < num_blocks && blocks[b].count % 2 == 0)
            b++;
        if (b < num_blocks) {
            const uint32_t n = blocks[b].count;
            bytes[blocks[b].offset + 2 + n / 2] |= 0x30;
            assert_true(stage(&INT4, 0, size, seed % 2 == 0) ==
                        (((unsigned long long)b * BLOCK + n) << 32 | 3));
        }
        end();
    }
}

static void test_bad_values(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (size_t k = 0; k < NUM_KERNELS; k++)
            check_bad(KERNELS[k].codec, seed);
    }
}

static void test_fixed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        const uint32_t count = 1 + fedge_rng_below(&rng, PADDED);
        const uint32_t weight = seed % 2 ? UINT32_MAX : 1 + fedge_rng_below(&rng, 1000);
        for (uint32_t i = 0; i < count; i++) {
            v[i] = fedge_rng_below(&rng, 2) ? 1 << 30 : -(1 << 30) + (int)fedge_rng_below(&rng, 99);
            expected[i] = (int64_t)i - 50;
        }
        to_gpu(gpu.sums, expected, (size_t)count * 8);
        to_gpu(gpu.bytes, v, (size_t)count * 4);
        must(fedge_cuda_add_fixed((const int32_t *)(void *)gpu.bytes, weight, gpu.sums, count,
                                  stream));
        fedge_fixed_accumulate_scalar(expected, v, count, weight);
        from_gpu(start_sums, gpu.sums, (size_t)count * 8);
        assert_memory_equal(start_sums, expected, (size_t)count * 8);
        end();
    }
}

static void test_step(void **state)
{
    (void)state;
    static const double RATES[] = {1.0, 0.1, 1e-3, 0.3333333333333333, 1e3};
    static const uint64_t WEIGHTS[] = {1, 3, 600, 4294967295, 4294967296};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        const uint32_t count = 1 + fedge_rng_below(&rng, PADDED);
        const int bound = (int)fedge_rng_below(&rng, 41) - 20;
        const double rate = RATES[seed % 5];
        const uint64_t weight = WEIGHTS[seed / 5 % 5];
        for (uint32_t i = 0; i < count; i++) {
            const int64_t draw =
                (int64_t)((uint64_t)fedge_rng_u32(&rng) << 32 | fedge_rng_u32(&rng));
            expected[i] = draw >> (1 + fedge_rng_below(&rng, 40));
            values[i] = (float)fedge_rng_below(&rng, 1000) * 1e-3f - 0.5f;
        }
        to_gpu(gpu.sums, expected, (size_t)count * 8);
        to_gpu(gpu.values[0], values, (size_t)count * 4);
        must(fedge_cuda_step(gpu.values[0], gpu.sums, count, weight, ldexp(1.0, bound - 30), rate,
                             stream));
        fedge_fixed_step_scalar(values, expected, count, weight, bound, rate);
        from_gpu(bytes, gpu.values[0], (size_t)count * 4);
        assert_memory_equal(bytes, values, (size_t)count * 4);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_bad_padding), cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
