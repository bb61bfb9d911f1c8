/* The accumulator on GPUs at its limits: the largest values, scales and weights, and no race in its
 * kernels. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/fixed.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/rounds.h"
#include "tests/edge/core/codec/codecs.h"

/* Every value as large as its codec has it, of one sign in all updates: int8 ±127 at the largest
 * scale, floats ±B. */
static void make_extreme(uint8_t *at)
{
    for (uint32_t s = 0; s < SECTIONS; s++) {
        for (uint32_t t = 0; t < schemas[s].num_tensors; t++) {
            for (size_t i = 0; i < schemas[s].tensors[t].count; i++) {
                const bool negative = i % 3 == 0;
                if (s == 1) {
                    const float x = ldexpf(negative ? -1.0f : 1.0f, bounds[MAX_TENSORS / 3 + t]);
                    memcpy(at, &x, sizeof(x));
                    at += sizeof(x);
                    continue;
                }
                if (i % FEDGE_CODEC_BLOCK == 0) {
                    fedge_put_u16(at, UINT16_MAX);
                    at += 2;
                }
                *at++ = (uint8_t)(negative ? -127 : 127);
            }
        }
    }
}

/* The largest weights: together FEDGE_FIXED_MAX_TOTAL_WEIGHT, so that sums of floats are ±2^62. */
static void make_extreme_updates(void)
{
    static const uint32_t LARGEST[] = {1u << 31, 1, (1u << 31) - 1};
    memset(expected, 0, sizeof(expected));
    expected_weight = 0;
    for (int u = 0; u < num_updates; u++) {
        size_t at = 0;
        make_extreme(bytes[u]);
        for (uint32_t s = 0; s < SECTIONS; s++) {
            const fedge_codec *codec = &layout.sections[s].codec;
            const size_t size = fedge_codec_size(codec, &schemas[s]),
                         first = schemas[s].tensors[0].offset;
            fedge_tensor_spec own[MAX_TENSORS];
            memcpy(own, schemas[s].tensors, schemas[s].num_tensors * sizeof(*own));
            for (uint32_t t = 0; t < schemas[s].num_tensors; t++)
                own[t].offset -= first;
            const fedge_schema alone = {own, schemas[s].num_tensors, MAX_TENSORS,
                                        schemas[s].num_elements};
            assert_int_equal(fedge_codec_decode(codec, &alone, bounds + s * MAX_TENSORS / 3,
                                                bytes[u] + at, size, fixed + first, NULL),
                             FEDGE_OK);
            at += size;
        }
        weights[u] = LARGEST[u];
        fedge_fixed_accumulate_scalar(expected, fixed, layout.num_elements, weights[u]);
        expected_weight += weights[u];
    }
    assert_true(expected_weight == FEDGE_FIXED_MAX_TOTAL_WEIGHT);
    assert_true(expected[specs[MAX_TENSORS / 3].offset] == -((int64_t)1 << 62));
    assert_true(expected[specs[0].offset + 1] == ((int64_t)127 * UINT16_MAX << 39));
}

/* -128 is refused whatever its scale, as the CPU refuses it. */
static void test_minus_128(void **state)
{
    (void)state;
    num_updates = 3;
    seed_all(29, &INT8, 700);
    make_extreme_updates();
    for (int shard = FEDGE_SHARD_CLIENTS; shard <= FEDGE_SHARD_COORDINATES; shard++) {
        const fedge_accumulator_config config = {
            .layout = &layout, .num_gpus = 2, .gpus = {0, 1}, .shard = (fedge_shard)shard};
        void *opened = NULL;
        const bool joins = shard == FEDGE_SHARD_CLIENTS;
        if (!emulator_start(&(emulator_config){.num_gpus = 2, .joins = joins}))
            skip();
        assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
        for (int scale = 0; scale <= UINT16_MAX; scale += UINT16_MAX) {
            fedge_error err = {0};
            fedge_encoded update = encoded(1);
            fedge_put_u16(bytes[1], (uint16_t)scale);
            bytes[1][2] = 0x81; /* -127 */
            assert_int_equal(ops->validate(opened, &update, &err), FEDGE_OK);
            ops->drop(opened, &update);
            bytes[1][2] = 0x80;
            assert_int_equal(ops->validate(opened, &update, &err), FEDGE_CORRUPT);
            assert_non_null(strstr(err.message, "value 0 of tensor \"s0.t0\" is -128"));
        }
        ops->close(opened);
        assert_null(emulator_fault());
    }
    free_updates();
    num_updates = UPDATES;
}

#ifndef RACES

static void test_extremes(void **state)
{
    (void)state;
    num_updates = 3;
    seed_all(23, &INT8, 700);
    make_extreme_updates();
    for (uint64_t seed = 0; seed < 3; seed++)
        check_all_machines(4, seed);
    free_updates();
    num_updates = UPDATES;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_minus_128)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

/* With the race detector, what the kernels touch is looked at. */
static void test_races(void **state)
{
    (void)state;
    num_updates = 10;
    for (uint64_t seed = 0; seed < 2; seed++) {
        seed_all(25 + seed, seed % 2 ? &INT8 : &NONE, 700);
        check_all_machines(3, seed);
        free_updates();
    }
    num_updates = UPDATES;
    assert_true(emulator_races_seen() > 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_races),
                                       cmocka_unit_test(test_minus_128)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
