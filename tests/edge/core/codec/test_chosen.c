/* Codecs that choose which values travel: topk, randk, ternary. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/chosen.h"
#include "edge/core/codec/codec.h"
#include "edge/core/rng.h"
#include "tests/edge/core/codec/codecs.h"

#define LIMIT (INT32_C(1) << FEDGE_FIXED_VALUE_BITS)
#define MATRIX 75000 /* values: three groups */
#define ELEMENTS (MATRIX + 300 + 3)

static const int8_t BOUNDS[3] = {0, -3, 5};
static const char *const PIPELINES[] = {"topk:0.01",       "topk:0.013+int8", "topk:1+int4",
                                        "randk:0.01+int8", "randk:0.3",       "randk:1+f16",
                                        "ternary:0.01",    "ternary:0.2+int8"};
#define NUM_PIPELINES (sizeof(PIPELINES) / sizeof(PIPELINES[0]))

static fedge_tensor_spec storage[3];
static fedge_schema schema;
static float values[ELEMENTS], residual[ELEMENTS];
static int32_t v[ELEMENTS], again[ELEMENTS];
static uint8_t bytes[5 * ELEMENTS];

static int set_up(void **state)
{
    (void)state;
    const uint32_t matrix[] = {300, 250}, bias[] = {300}, small[] = {1, 3};
    fedge_schema_init(&schema, storage, 3);
    assert_int_equal(fedge_schema_add(&schema, "0.weight", FEDGE_F32, 2, matrix, NULL), FEDGE_OK);
    assert_int_equal(fedge_schema_add(&schema, "0.bias", FEDGE_F32, 1, bias, NULL), FEDGE_OK);
    assert_int_equal(fedge_schema_add(&schema, "1.weight", FEDGE_F32, 2, small, NULL), FEDGE_OK);
    return 0;
}

static size_t tensor_of(size_t i)
{
    return i >= schema.tensors[2].offset ? 2 : i >= schema.tensors[1].offset ? 1 : 0;
}

/* Within the bounds: most are small, and the middle group has the largest. */
static void draw(uint64_t seed)
{
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < ELEMENTS; i++) {
        const float x = 2.0f * fedge_rng_float(&rng) - 1.0f;
        const bool large = i >= FEDGE_CODEC_GROUP && i < FEDGE_CODEC_GROUP + 500;
        values[i] = (large ? x : 0.01f * x) * ldexpf(1.0f, BOUNDS[tensor_of(i)]);
    }
}

static size_t encode(const fedge_codec *codec)
{
    size_t size = 0;
    fedge_error err;
    if (codec_encode(codec, &schema, BOUNDS, values, residual, bytes, sizeof(bytes), &size, NULL,
                     &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_in_range(size, 1, fedge_codec_size(codec, &schema));
    return size;
}

static fedge_status decode(const fedge_codec *codec, const uint8_t *in, size_t size,
                           fedge_error *err)
{
    return fedge_codec_decode(codec, &schema, BOUNDS, in, size, v, err);
}

static void names_are_read_and_written(void **state)
{
    (void)state;
    static const char *const PAIRS[][2] = {{"topk:0.01", "topk:0.01"},
                                           {"topk:0.010", "topk:0.01"},
                                           {"topk:1", "topk:1"},
                                           {"topk:1.0+none", "topk:1"},
                                           {"randk:0.000001+int8", "randk:0.000001+int8"},
                                           {"ternary:0.5+int8", "ternary:0.5+int8"},
                                           {"topk:0.1+f32", "topk:0.1"},
                                           {"f32", "none"}};
    for (size_t i = 0; i < sizeof(PAIRS) / sizeof(PAIRS[0]); i++) {
        char text[FEDGE_CODEC_TEXT];
        const fedge_codec codec = codec_named(PAIRS[i][0]);
        assert_string_equal(fedge_codec_text(&codec, text), PAIRS[i][1]);
    }
    static const char *const BAD[] = {"topk",
                                      "topk:",
                                      "topk:0",
                                      "topk:1.5",
                                      "topk:-0.1",
                                      "topk:0.0000001",
                                      "topk:.",
                                      "topk:0.1x",
                                      "int8:0.5",
                                      "int8+topk:0.1",
                                      "topk:0.1+",
                                      "+int8",
                                      "topk:0.1+topk:0.1",
                                      "int8+int8",
                                      "topk:0.1+int9"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        fedge_codec codec;
        fedge_error err;
        if (fedge_codec_parse(BAD[i], &codec, &err) != FEDGE_UNSUPPORTED)
            fail_msg("\"%s\" is taken", BAD[i]);
    }
    const fedge_codec codec = codec_named("topk:0.01+int8");
    assert_true(fedge_codec_has(&codec, "topk") && fedge_codec_has(&codec, "int8"));
    assert_false(fedge_codec_has(&codec, "none"));
}

/* What is decoded and what stays make up what was there, of each tensor the share travels, and
 * biases travel whole. */
static void nothing_is_lost(void **state)
{
    (void)state;
    for (size_t p = 0; p < NUM_PIPELINES; p++) {
        const fedge_codec codec = codec_named(PIPELINES[p]);
        draw(p);
        memset(residual, 0, sizeof(residual));
        fedge_error err;
        const size_t size = encode(&codec);
        if (decode(&codec, bytes, size, &err) != FEDGE_OK)
            fail_msg("%s: %s", PIPELINES[p], err.message);
        size_t travels[3] = {0};
        for (size_t i = 0; i < ELEMENTS; i++) {
            const size_t t = tensor_of(i);
            const double unit = ldexp(1.0, BOUNDS[t] - FEDGE_FIXED_VALUE_BITS);
            const double sum = (double)v[i] * unit + (double)residual[i];
            travels[t] += v[i] != 0;
            if (fabs(sum - (double)values[i]) > 1e-6 * ldexp(1.0, BOUNDS[t]))
                fail_msg("%s: value %zu is %g of %g", PIPELINES[p], i, sum, (double)values[i]);
        }
        assert_in_range(travels[0], 0, fedge_codec_chosen(&codec, MATRIX));
        assert_in_range(travels[1], 250, 300);
        assert_in_range(travels[2], 0, fedge_codec_chosen(&codec, 3));
    }
}

static void topk_takes_the_largest(void **state)
{
    (void)state;
    const fedge_codec codec = codec_named("topk:0.005");
    draw(1);
    values[7] = values[8] = -0.999f; /* of equals the first */
    memset(residual, 0, sizeof(residual));
    assert_int_equal(decode(&codec, bytes, encode(&codec), NULL), FEDGE_OK);
    float least = 1, most = 0;
    for (size_t i = 0; i < MATRIX; i++) {
        if (v[i] != 0)
            least = fminf(least, fabsf(values[i]));
        else
            most = fmaxf(most, fabsf(values[i]));
    }
    assert_true(least >= most);
    for (size_t i = 0; i < MATRIX; i++)
        values[i] = 0.5f;
    memset(residual, 0, sizeof(residual));
    assert_int_equal(decode(&codec, bytes, encode(&codec), NULL), FEDGE_OK);
    for (size_t i = 0; i < MATRIX; i++)
        assert_int_equal(v[i], i < 375 ? LIMIT / 2 : 0);
}

static void what_stays_is_added_to_what_comes(void **state)
{
    (void)state;
    const fedge_codec codec = codec_named("ternary:0.01+int8");
    static double sent[ELEMENTS];
    memset(residual, 0, sizeof(residual));
    memset(sent, 0, sizeof(sent));
    draw(3);
    for (int round = 0; round < 50; round++) {
        assert_int_equal(decode(&codec, bytes, encode(&codec), NULL), FEDGE_OK);
        for (size_t i = 0; i < ELEMENTS; i++)
            sent[i] += ldexp(v[i], BOUNDS[tensor_of(i)] - FEDGE_FIXED_VALUE_BITS);
    }
    for (size_t i = FEDGE_CODEC_GROUP + 500; i < MATRIX; i++)
        assert_true(fabs(sent[i] + (double)residual[i] - 50.0 * (double)values[i]) < 1e-4);
}

static void clamping_is_counted_and_nan_refused(void **state)
{
    (void)state;
    for (size_t p = 0; p < NUM_PIPELINES; p++) {
        const fedge_codec codec = codec_named(PIPELINES[p]);
        fedge_codec_stats stats;
        fedge_error err;
        size_t size = 0;
        draw(p);
        memset(residual, 0, sizeof(residual));
        values[3] = 1.5f;
        values[MATRIX + 1] = -INFINITY;
        assert_int_equal(codec_encode(&codec, &schema, BOUNDS, values, residual, bytes,
                                      sizeof(bytes), &size, &stats, &err),
                         FEDGE_OK);
        assert_int_equal(stats.clamped, 2);
        for (size_t i = 0; i < ELEMENTS; i++)
            assert_true(isfinite(residual[i]));
        values[40000] = NAN;
        assert_int_equal(codec_encode(&codec, &schema, BOUNDS, values, residual, bytes,
                                      sizeof(bytes), &size, &stats, &err),
                         FEDGE_NOT_FINITE);
        assert_non_null(strstr(err.message, "NaN"));
    }
}

/* ---- slices ---------------------------------------------------------------------------------- */

static size_t from, to;

static fedge_status take(void *user, size_t at, const uint32_t *places, size_t n, const int32_t *x,
                         fedge_error *err)
{
    (void)user, (void)err;
    for (size_t i = 0; i < n; i++) {
        const size_t place = places ? places[i] : at + i;
        assert_in_range(place, from, to - 1);
        again[place] += x[i];
    }
    return FEDGE_OK;
}

static void slices_are_read_alone(void **state)
{
    (void)state;
    static const size_t CUTS[] = {
        0, 1, 300, FEDGE_CODEC_GROUP - 1, FEDGE_CODEC_GROUP, 40000, 65536, 74999, MATRIX};
    for (size_t p = 0; p < NUM_PIPELINES; p++) {
        const fedge_codec codec = codec_named(PIPELINES[p]);
        draw(p);
        memset(residual, 0, sizeof(residual));
        const size_t size = encode(&codec);
        assert_int_equal(decode(&codec, bytes, size, NULL), FEDGE_OK);
        memset(again, 0, sizeof(again));
        for (size_t c = 0; c + 1 < sizeof(CUTS) / sizeof(CUTS[0]); c++) {
            from = CUTS[c];
            to = CUTS[c + 1];
            const fedge_codec_tensor tensor = {.codec = &codec,
                                               .spec = &schema.tensors[0],
                                               .bound_log2 = BOUNDS[0],
                                               .from = from,
                                               .to = to,
                                               .give = take};
            size_t used = 0;
            assert_int_equal(fedge_codec_read_tensor(&tensor, bytes, size, &used, NULL), FEDGE_OK);
        }
        assert_memory_equal(again, v, MATRIX * sizeof(v[0]));
    }
}

/* ---- bad input ------------------------------------------------------------------------------- */

/* Whatever bytes come, what is accepted is within the bound, and nothing is read behind them. */
static void any_bytes_are_valid_or_refused(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(4, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t p = 0; p < NUM_PIPELINES; p++) {
        const fedge_codec codec = codec_named(PIPELINES[p]);
        fedge_error err;
        draw(p);
        memset(residual, 0, sizeof(residual));
        const size_t size = encode(&codec);
        for (int trial = 0; trial < 200; trial++) {
            const size_t cut = trial % 4 == 0 ? fedge_rng_below(&rng, (uint32_t)size) : size;
            uint8_t *copy = malloc(cut > 0 ? cut : 1); /* so that a sanitizer sees its end */
            memcpy(copy, bytes, cut);
            for (int k = 0; cut == size && k <= trial % 3; k++)
                copy[fedge_rng_below(&rng, (uint32_t)size)] = (uint8_t)fedge_rng_u32(&rng);
            const fedge_status status = decode(&codec, copy, cut, &err);
            free(copy);
            if (cut < size)
                assert_int_not_equal(status, FEDGE_OK);
            for (size_t i = 0; status == FEDGE_OK && i < ELEMENTS; i++)
                assert_true(v[i] >= -LIMIT && v[i] <= LIMIT);
        }
        bytes[size] = 0;
        if (size < fedge_codec_size(&codec, &schema)) {
            assert_int_equal(decode(&codec, bytes, size + 1, &err), FEDGE_TOO_BIG);
            assert_non_null(strstr(err.message, "1 bytes behind its last tensor"));
        }
    }
}

static void indexes_that_lie_are_refused(void **state)
{
    (void)state;
    const fedge_codec codec = codec_named("ternary:0.01");
    fedge_error err;
    draw(1);
    memset(residual, 0, sizeof(residual));
    const size_t size = encode(&codec), head = 3 * 4;
    static uint8_t kept[sizeof(bytes)];
    memcpy(kept, bytes, size);
    fedge_put_u16(bytes, (uint16_t)(fedge_get_u16(bytes) + 1)); /* one more is said to be chosen */
    assert_int_equal(decode(&codec, bytes, size, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "its index has 751 values, and 750 are chosen"));
    fedge_put_u16(bytes + 4, (uint16_t)(fedge_get_u16(bytes + 4) - 1)); /* in another group */
    assert_int_equal(decode(&codec, bytes, size, &err), FEDGE_CORRUPT);
    memcpy(bytes, kept, size);
    fedge_put_u16(bytes + 2, UINT16_MAX);
    assert_int_equal(decode(&codec, bytes, size, &err), FEDGE_TRUNCATED);
    memcpy(bytes, kept, size);
    fedge_put_u32(bytes + head, (UINT32_C(1) << 30) + 1);
    assert_int_equal(decode(&codec, bytes, size, &err), FEDGE_OUT_OF_RANGE);
    fedge_put_u32(bytes + head, UINT32_C(1) << 30);
    assert_int_equal(decode(&codec, bytes, size, &err), FEDGE_OK);
    memcpy(bytes, kept, size);
    memset(bytes + head + 4, 0xff, fedge_get_u16(bytes + 2)); /* a gap without an end */
    assert_int_equal(decode(&codec, bytes, size, &err), FEDGE_CORRUPT);
}

static void places_that_are_drawn_ascend(void **state)
{
    (void)state;
    const fedge_codec codec = codec_named("randk:0.0137");
    static size_t drawn[MATRIX];
    const size_t k = fedge_codec_chosen(&codec, MATRIX);
    for (size_t i = 0; i < ELEMENTS; i++)
        values[i] = 0.01f;
    memset(residual, 0, sizeof(residual));
    (void)encode(&codec);
    for (uint64_t key = 0; key < 300; key++) {
        fedge_put_u64(bytes, key * UINT64_C(0x9e3779b97f4a7c15));
        assert_int_equal(decode(&codec, bytes, fedge_codec_size(&codec, &schema), NULL), FEDGE_OK);
        size_t n = 0;
        for (size_t i = 0; i < MATRIX; i++) {
            drawn[i] += v[i] != 0;
            n += v[i] != 0;
        }
        assert_int_equal(n, k);
    }
    size_t never = 0;
    for (size_t i = 0; i < MATRIX; i++) {
        never += drawn[i] == 0;
        assert_in_range(drawn[i], 0, 20);
    }
    assert_in_range(never, 500, 2500); /* MATRIX · (1 − 0.0137)^300 = 1,195 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_and_written),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(topk_takes_the_largest),
        cmocka_unit_test(what_stays_is_added_to_what_comes),
        cmocka_unit_test(clamping_is_counted_and_nan_refused),
        cmocka_unit_test(slices_are_read_alone),
        cmocka_unit_test(any_bytes_are_valid_or_refused),
        cmocka_unit_test(indexes_that_lie_are_refused),
        cmocka_unit_test(places_that_are_drawn_ascend),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
