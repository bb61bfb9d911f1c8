/* The accumulator on GPUs where some of the values travel (topk, randk, ternary): the sums and the
 * step of the scalar references, bit for bit, however GPUs share the work; and any bytes get the
 * CPU's verdict, to the word. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/chosen.h"
#include "edge/core/fixed.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/rounds.h"
#include "tests/edge/core/codec/codecs.h"
#include "tests/edge/core/long.h"

static const char *const PIPELINES[] = {"topk:0.02",      "topk:0.02+int8",   "topk:0.0101+int4",
                                        "ternary:0.01",   "randk:0.01+int8",  "randk:0.3",
                                        "topk:1+bf16",    "ternary:0.5+int8", "randk:1+int4",
                                        "topk:0.001+f16", "topk:1+int8"};
enum { NUM_PIPELINES = sizeof(PIPELINES) / sizeof(PIPELINES[0]) };

/* Updates of a pipeline. */
static void start(uint64_t seed, const char *pipeline, int updates)
{
    const fedge_codec codec = codec_named(pipeline);
    num_updates = updates;
    seed_all(seed, &codec, 1500);
}

static void end(void)
{
    free_updates();
    num_updates = UPDATES;
    extreme = false;
}

/* On one GPU more than the pipeline before, by the other way to share. */
static void check_pipeline(size_t p, uint64_t seed, uint32_t num_machines)
{
    start(seed, PIPELINES[p], 4);
    check_same_bits(GPUS[(p + seed) % num_machines],
                    p % 8 < 4 ? FEDGE_SHARD_COORDINATES : FEDGE_SHARD_CLIENTS, seed);
    end();
}

#ifndef RACES

static void test_same_bits(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 16 : 1); seed++) {
        for (size_t p = 0; p < NUM_PIPELINES; p++)
            check_pipeline(p, seed, 4);
    }
}

/* Sums of ±2^62: every value is ±B, and the weights are together as large as they may be. */
static void test_extremes(void **state)
{
    static const char *const EXTREMES[] = {"topk:1", "ternary:1", "randk:1+int8"};
    (void)state;
    for (size_t p = 0; p < sizeof(EXTREMES) / sizeof(EXTREMES[0]); p++) {
        extreme = true;
        start(40 + p, EXTREMES[p], 2);
        assert_true(expected_weight == FEDGE_FIXED_MAX_TOTAL_WEIGHT);
        if (p < 2)
            assert_true(expected[specs[0].offset] == -((int64_t)1 << 62));
        check_same_bits(1 + 2 * (uint32_t)(p % 2), FEDGE_SHARD_COORDINATES, p);
        end();
    }
}

/* With room for few copies on the GPU, the others are only checked, and read again. */
static void test_little_memory(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_status status = FEDGE_NO_MEMORY;
    start(50, "topk:0.25", 8);
    for (size_t memory = 500000; status == FEDGE_NO_MEMORY; memory += memory / 20) {
        if (!emulator_start(
                &(emulator_config){.num_gpus = 1, .memory_bytes = memory, .unprotected = true}))
            skip();
        status = run_rounds(1, FEDGE_SHARD_AUTO, 1, &err);
    }
    assert_int_equal(status, FEDGE_OK);
    end();
}

/* One more bound, byte or size than there should be. */
static void spoil(uint32_t n, size_t most)
{
    const size_t size = (size_t)sizes[0][0];
    const uint32_t head = FEDGE_CODEC_GROUP / 1024;
    const uint32_t within = n % 2 ? (uint32_t)size : head < size ? head : (uint32_t)size;
    switch (n % 8) {
    case 6:
        sizes[0][0] -= size > 0;
        break;
    case 7:
        sizes[0][0] += size < most;
        break;
    default:
        bytes[0][fedge_rng_below(&rng, within)] ^= (uint8_t)(1u << fedge_rng_below(&rng, 8));
    }
}

/* A first spoiled section, on GPUs and by the codec's decoder. */
static void check_result(void *opened, const fedge_codec *codec)
{
    fedge_error err = {0}, wanted = {0};
    fedge_encoded update = encoded(0);
    const fedge_status status = fedge_codec_decode(codec, &schemas[0], bounds, bytes[0],
                                                   (size_t)sizes[0][0], fixed, &wanted);
    const fedge_status found = ops->validate(opened, &update, &err);
    if (found != status || (found != FEDGE_OK && strcmp(err.message, wanted.message) != 0))
        fail_msg("%d, \"%s\"; not %d, \"%s\"", found, err.message, status, wanted.message);
    if (found == FEDGE_OK)
        ops->drop(opened, &update);
}

static void check_any_bytes(size_t p, uint32_t gpus)
{
    static uint8_t saved[1 << 20];
    void *opened = NULL;
    const fedge_codec codec = codec_named(PIPELINES[p]);
    start(60 + p, PIPELINES[p], 1);
    const size_t most = fedge_codec_size(&codec, &schemas[0]);
    const uint64_t size = sizes[0][0];
    const fedge_accumulator_config config = {.layout = &layout, .shard = FEDGE_SHARD_COORDINATES};
    assert_in_range(layout.size, 1, sizeof(saved));
    memcpy(saved, bytes[0], layout.size);
    if (!emulator_start(&(emulator_config){.num_gpus = gpus, .unprotected = true}))
        skip();
    assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
    for (uint32_t n = 0; n < (fedge_test_is_long() ? 400 : 32); n++) {
        for (uint32_t bits = 1 + fedge_rng_below(&rng, 3); bits > 0; bits--)
            spoil(n, most);
        check_result(opened, &codec);
        memcpy(bytes[0], saved, layout.size);
        sizes[0][0] = size;
    }
    ops->close(opened);
    assert_null(emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    end();
}

static void test_any_bytes(void **state)
{
    (void)state;
    for (size_t p = 0; p < NUM_PIPELINES; p++)
        check_any_bytes(p, p % 2 ? 3 : 1);
}

/* A magnitude over the bound, and an index that says of its groups what their bytes do not. */
static void test_index(void **state)
{
    (void)state;
    void *opened = NULL;
    const fedge_codec codec = codec_named("ternary:0.01");
    const fedge_accumulator_config config = {.layout = &layout};
    start(70, "ternary:0.01", 1);
    if (!emulator_start(&(emulator_config){.num_gpus = 1}))
        skip();
    assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
    uint8_t *magnitude = bytes[0] + 8 /* behind the index of two groups */;
    fedge_put_u32(magnitude, 1u << 30);
    check_result(opened, &codec);
    fedge_put_u32(magnitude, (1u << 30) + 1);
    check_result(opened, &codec);
    fedge_put_u32(magnitude, 5);
    fedge_put_u16(bytes[0], (uint16_t)(fedge_get_u16(bytes[0]) - 1)); /* one moves to the next */
    fedge_put_u16(bytes[0] + 4, (uint16_t)(fedge_get_u16(bytes[0] + 4) + 1));
    check_result(opened, &codec);
    fedge_put_u16(bytes[0] + 2, UINT16_MAX); /* more bytes than any gaps of a group take */
    check_result(opened, &codec);
    ops->close(opened);
    end();
}

/* Each call of CUDA fails once, in turn. */
static void test_failures(void **state)
{
    (void)state;
    start(80, "topk:0.01+int8", 2);
    fedge_status status = FEDGE_INTERNAL;
    for (uint64_t call = 1; status != FEDGE_OK;
         call += 1 + fedge_rng_below(&rng, fedge_test_is_long() ? 2 : 16)) {
        fedge_error err = {0};
        if (!emulator_start(&(emulator_config){.num_gpus = 2,
                                               .order = (emulator_order)(call % 3),
                                               .seed = call,
                                               .unprotected = true,
                                               .fail_call = call,
                                               .fail_error = call % 4 ? 214 : 2}))
            skip();
        status = run_rounds(2, FEDGE_SHARD_COORDINATES, 1, &err);
        if (status != FEDGE_OK)
            assert_non_null(strstr(err.message, "GPU"));
        else if (emulator_calls() >= call)
            status = FEDGE_INTERNAL; /* it failed while closing */
    }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_little_memory), cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_index),         cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void test_races(void **state)
{
    (void)state;
    for (size_t p = 0; p < NUM_PIPELINES; p += 2)
        check_pipeline(p, 0, 2);
    assert_true(emulator_races_seen() > 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_races)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
