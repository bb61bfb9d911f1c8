/* Tensors of whose values some travel, added by the kernel: the sums of the decoder and plain
 * integer arithmetic, whatever the order of threads. */
#include "tests/edge/core/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/cuda/kernels.h"
#include "edge/core/codec.h"
#include "edge/core/codec_chosen.h"
#include "edge/core/rng.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/codecs.h"

#ifdef RACES
enum { COUNT = 33000, UPDATES = 2 };
#else
enum { COUNT = 75000, UPDATES = 3 };
#endif
enum { MAX_BYTES = 5 * COUNT };

static const int8_t BOUND[1] = {-1};

static const struct {
    const char *pipeline;
    int kernel;
} CASES[] = {{"topk:0.02", FEDGE_CUDA_NONE},         {"topk:0.02+int8", FEDGE_CUDA_INT8},
             {"topk:0.0101+int4", FEDGE_CUDA_INT4},  {"topk:0.02+f16", FEDGE_CUDA_F16},
             {"topk:1+bf16", FEDGE_CUDA_BF16},       {"ternary:0.01", FEDGE_CUDA_SIGNS},
             {"ternary:0.5+int8", FEDGE_CUDA_SIGNS}, {"randk:0.01+int8", FEDGE_CUDA_INT8},
             {"randk:0.3", FEDGE_CUDA_NONE},         {"randk:1+int4", FEDGE_CUDA_INT4}};

static fedge_tensor_spec spec;
static fedge_schema schema;
static float values[COUNT], residual[COUNT];
static int32_t v[COUNT];
static int64_t expected[COUNT];

static void must(cudaError_t error)
{
    assert_int_equal(error, cudaSuccess);
}

static fedge_cuda_chosen tensor_of(const fedge_codec *codec, int kernel, uint32_t weight,
                                   const uint8_t *bytes)
{
    const size_t k = fedge_codec_chosen(codec, COUNT);
    return (fedge_cuda_chosen){.codec = kernel,
                               .drawn = codec->chooses == &fedge_codec_randk,
                               .bound_log2 = BOUND[0],
                               .count = COUNT,
                               .chosen = (uint32_t)k,
                               .rice = fedge_rice_bits(COUNT, k),
                               .weight = weight,
                               .values_size =
                                   kernel == FEDGE_CUDA_SIGNS ? 4 : codec->values->size(k),
                               .bytes = bytes};
}

/* Adds so many updates, whose bytes begin at an odd place. */
static void check(const fedge_codec *codec, int kernel, uint64_t seed)
{
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 2, 0, 0);
    cudaStream_t stream;
    uint8_t *pinned, *bytes;
    int64_t *sums;
    emulator_start(
        &(emulator_config){.num_gpus = 1, .seed = seed, .order = (emulator_order)(seed % 3)});
    must(cudaSetDevice(0));
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(cudaHostAlloc((void **)&pinned, (size_t)COUNT * 8, 0));
    must(cudaMalloc((void **)&bytes, MAX_BYTES));
    must(cudaMalloc((void **)&sums, (size_t)COUNT * 8));
    memset(expected, 0, sizeof(expected));
    memset(pinned, 0, (size_t)COUNT * 8);
    must(cudaMemcpyAsync(sums, pinned, (size_t)COUNT * 8, cudaMemcpyHostToDevice, stream));
    for (uint32_t u = 0; u < UPDATES; u++) {
        const uint32_t weight = u == 0 ? UINT32_MAX / 4 : 1 + u;
        size_t size = 0;
        for (size_t i = 0; i < COUNT; i++)
            values[i] = 1.2f * (fedge_rng_float(&rng) - 0.5f);
        memset(residual, 0, sizeof(residual));
        must(cudaStreamSynchronize(stream));
        assert_int_equal(fedge_codec_encode(codec, &schema, BOUND, values, residual, pinned + 1,
                                            MAX_BYTES - 1, &size, NULL, NULL),
                         FEDGE_OK);
        assert_int_equal(fedge_codec_decode(codec, &schema, BOUND, pinned + 1, size, v, NULL),
                         FEDGE_OK);
        fedge_fixed_accumulate_scalar(expected, v, COUNT, weight);
        must(cudaMemcpyAsync(bytes, pinned, size + 1, cudaMemcpyHostToDevice, stream));
        const fedge_cuda_chosen tensor = tensor_of(codec, kernel, weight, bytes + 1);
        must(fedge_cuda_add_chosen(&tensor, sums, stream));
    }
    must(cudaMemcpyAsync(pinned, sums, (size_t)COUNT * 8, cudaMemcpyDeviceToHost, stream));
    must(cudaStreamSynchronize(stream));
    assert_memory_equal(pinned, expected, sizeof(expected));
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    must(cudaStreamDestroy(stream));
    must(cudaFreeHost(pinned));
    must(cudaFree(bytes));
    must(cudaFree(sums));
    assert_int_equal(emulator_leaks(), 0);
}

static void test_sums(void **state)
{
    (void)state;
    const uint32_t shape[] = {COUNT / 250, 250};
    fedge_schema_init(&schema, &spec, 1);
    assert_int_equal(fedge_schema_add(&schema, "w", FEDGE_F32, 2, shape, NULL), FEDGE_OK);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const fedge_codec codec = codec_named(CASES[i].pipeline);
        for (uint64_t seed = 0; seed < 3; seed++)
            check(&codec, CASES[i].kernel, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
