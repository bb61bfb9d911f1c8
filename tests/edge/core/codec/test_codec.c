#define _GNU_SOURCE /* glob is POSIX, not C11 */

#include "tests/edge/core/cmocka_all.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/codec.h"
#include "edge/core/codec/values.h"
#include "edge/core/rng.h"
#include "tests/edge/core/codec/codecs.h"
#include "tests/fuzz/codec_seed.h"

#define LIMIT (INT32_C(1) << FEDGE_FIXED_VALUE_BITS)
#define ELEMENTS (1500 + 256 + 1)
#define NONE_SIZE ((size_t)ELEMENTS * 4)
#define INT8_SIZE ((size_t)ELEMENTS + 2 * (6 + 1 + 1))

/* Three tensors: one with a short last block, one of exactly a block, a scalar. */
static const int8_t bounds[3] = {2, -3, 5};

static void make_schema(fedge_schema *schema, fedge_tensor_spec storage[3])
{
    const uint32_t matrix[] = {30, 50};
    const uint32_t vector[] = {256};
    fedge_schema_init(schema, storage, 3);
    assert_int_equal(fedge_schema_add(schema, "0.weight", FEDGE_F32, 2, matrix, NULL), FEDGE_OK);
    assert_int_equal(fedge_schema_add(schema, "0.bias", FEDGE_F32, 1, vector, NULL), FEDGE_OK);
    assert_int_equal(fedge_schema_add(schema, "scale", FEDGE_F32, 0, NULL, NULL), FEDGE_OK);
}

static float bound_of(const fedge_schema *schema, size_t i)
{
    const fedge_tensor_spec *specs = schema->tensors;
    size_t t = i >= specs[2].offset ? 2 : i >= specs[1].offset ? 1 : 0;
    return ldexpf(1.0f, bounds[t]);
}

static void draw_values(const fedge_schema *schema, fedge_rng *rng, float *values)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        values[i] = (2.0f * fedge_rng_float(rng) - 1.0f) * bound_of(schema, i);
}

static void names_and_sizes(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    make_schema(&schema, storage);
    assert_int_equal(fedge_codec_size(&NONE, &schema), NONE_SIZE);
    assert_int_equal(fedge_codec_size(&INT8, &schema), INT8_SIZE);
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        char text[FEDGE_CODEC_TEXT];
        const fedge_codec codec = codec_named(fedge_codec_name(i));
        if (!fedge_codec_is_plain(&codec))
            continue;
        assert_string_equal(fedge_codec_text(&codec, text), fedge_codec_name(i));
        for (unsigned k = 0; k < FEDGE_CODEC_COUNT; k++) {
            const fedge_codec other = codec_named(fedge_codec_name(k));
            assert_int_equal(fedge_codec_equal(&codec, &other), i == k);
            assert_int_equal(fedge_codec_has(&codec, fedge_codec_name(k)), i == k);
        }
    }
    assert_null(fedge_codec_name(FEDGE_CODEC_COUNT));
    fedge_codec codec;
    fedge_error err;
    assert_int_equal(fedge_codec_parse("int9", &codec, &err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "none, int8"));
    assert_non_null(strstr(err.message, "int9"));
    fedge_schema_init(&schema, storage, 0);
    assert_int_equal(fedge_codec_size(&INT8, &schema), 0);
}

static void none_keeps_every_bit_of_the_fixed_point_values(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    make_schema(&schema, storage);
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    static float values[ELEMENTS];
    static uint8_t bytes[NONE_SIZE + 1];
    static int32_t v[ELEMENTS], expected[ELEMENTS];
    draw_values(&schema, &rng, values);
    fedge_codec_stats stats = {7, 7};
    uint8_t *out = bytes + 1; /* odd addresses are fine */
    assert_int_equal(encode_all(&NONE, &schema, bounds, values, out, NONE_SIZE, &stats, NULL),
                     FEDGE_OK);
    assert_int_equal(stats.clamped + stats.not_finite, 0);
    for (size_t i = 0; i < ELEMENTS; i++)
        assert_true(fedge_get_f32(out + 4 * i) == values[i]);
    assert_int_equal(fedge_codec_decode(&NONE, &schema, bounds, out, NONE_SIZE, v, NULL), FEDGE_OK);
    for (size_t t = 0; t < 3; t++) {
        uint64_t clamped = 0, not_finite = 0;
        fedge_fixed_quantise_scalar(values + storage[t].offset, storage[t].count, bounds[t],
                                    expected + storage[t].offset, &clamped, &not_finite);
    }
    assert_memory_equal(v, expected, sizeof(v));
}

typedef struct pieces {
    const fedge_schema *schema;
    const float *values;
    int32_t given[ELEMENTS];
    unsigned fixed; /* pieces that were taken so */
} pieces;

static const float *take(void *user, uint32_t index, size_t at, size_t n, float *room)
{
    const pieces *self = user;
    (void)n, (void)room;
    return self->values + self->schema->tensors[index].offset + at;
}

static void take_fixed(void *user, uint32_t index, size_t at, size_t n, int bound_log2, int32_t *v,
                       fedge_codec_stats *stats)
{
    pieces *self = user;
    self->fixed++;
    fedge_fixed_quantise(take(user, index, at, n, NULL), n, bound_log2, v, &stats->clamped,
                         &stats->not_finite);
}

static fedge_status give(void *user, uint32_t index, size_t at, const uint32_t *places, size_t n,
                         const int32_t *v, fedge_error *err)
{
    pieces *self = user;
    (void)err;
    assert_null(places);
    memcpy(self->given + self->schema->tensors[index].offset + at, v, n * sizeof(*v));
    return FEDGE_OK;
}

/* Values that are wanted in fixed point alone are not made as floats; bytes are made of floats, and
 * both say the same. */
static void bytes_are_made_of_floats(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    make_schema(&schema, storage);
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 1, 0, 0);
    static float values[ELEMENTS];
    static uint8_t expected[NONE_SIZE], bytes[NONE_SIZE];
    static pieces with, without;
    draw_values(&schema, &rng, values);
    assert_int_equal(encode_all(&NONE, &schema, bounds, values, expected, NONE_SIZE, NULL, NULL),
                     FEDGE_OK);
    with = without = (pieces){.schema = &schema, .values = values};
    fedge_codec_ends ends = {.user = &with, .take = take, .take_fixed = take_fixed, .give = give};
    fedge_codec_stats stats;
    size_t size = 0;
    assert_int_equal(
        fedge_codec_encode_chunks(&NONE, &schema, bounds, &ends, bytes, &size, &stats, NULL),
        FEDGE_OK);
    assert_int_equal(size, NONE_SIZE);
    assert_memory_equal(bytes, expected, NONE_SIZE);
    assert_int_equal(with.fixed, 0);
    ends.user = &without;
    assert_int_equal(
        fedge_codec_encode_chunks(&NONE, &schema, bounds, &ends, NULL, &size, &stats, NULL),
        FEDGE_OK);
    assert_int_equal(size, NONE_SIZE);
    assert_true(without.fixed > 0);
    assert_memory_equal(with.given, without.given, sizeof(with.given));
}

/* What codec.h says of int8, checked in whole numbers. */
static void check_block(const int32_t *v, const int8_t *q, size_t n, uint16_t m)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = llabs(v[i]) > most ? llabs(v[i]) : most;
    assert_true(m == 65535 || (int64_t)127 * m * 128 >= most);
    assert_true(m == 0 || (int64_t)127 * (m - 1) * 128 < most);
    for (size_t i = 0; i < n; i++) {
        int64_t step = (int64_t)m * 128;
        int64_t twice_error = 2 * llabs((int64_t)v[i] - q[i] * step);
        assert_true(q[i] >= -127);
        if (twice_error > step) { /* only where the largest scale cannot reach the value */
            assert_true(m == 65535 && (q[i] == 127 || q[i] == -127) && llabs(v[i]) > 127 * step);
        } else if (twice_error == step && m > 0) {
            assert_true(q[i] % 2 == 0 || (llabs(v[i]) > 127 * step));
        }
    }
}

static void int8_rounds_once_and_to_even(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 4000; trial++) {
        int32_t v[FEDGE_CODEC_BLOCK], back[FEDGE_CODEC_BLOCK + 1], reference[FEDGE_CODEC_BLOCK];
        int8_t q[FEDGE_CODEC_BLOCK + 1], plain[FEDGE_CODEC_BLOCK];
        size_t n = 1 + fedge_rng_below(&rng, FEDGE_CODEC_BLOCK);
        int32_t range = LIMIT >> fedge_rng_below(&rng, 31);
        for (size_t i = 0; i < n; i++) {
            v[i] = (int32_t)fedge_rng_below(&rng, 2u * (uint32_t)range + 1) - range;
            if (fedge_rng_below(&rng, 4) == 0) { /* halfway between two steps of many scales */
                v[i] = v[i] / 64 * 64;
            }
        }
        q[n] = 0x55;
        back[n] = 0x5555;
        int32_t sent[FEDGE_CODEC_BLOCK + 1], same[FEDGE_CODEC_BLOCK];
        memcpy(sent, v, n * sizeof(v[0]));
        memcpy(same, v, n * sizeof(v[0]));
        sent[n] = 0x5555;
        uint16_t m = fedge_int8_encode(sent, n, q);
        assert_int_equal(fedge_block_encode_scalar(same, n, 7, 127, plain), m);
        assert_memory_equal(q, plain, n);
        check_block(v, q, n, m);
        assert_true(fedge_int8_decode(q, n, m, back));
        assert_true(fedge_int8_decode_scalar(q, n, m, reference));
        assert_memory_equal(back, reference, n * sizeof(back[0]));
        assert_memory_equal(back, sent, n * sizeof(back[0]));
        assert_memory_equal(back, same, n * sizeof(back[0]));
        for (size_t i = 0; i < n; i++)
            assert_int_equal(back[i], q[i] * m * 128);
        assert_true(q[n] == 0x55 && back[n] == 0x5555 && sent[n] == 0x5555);
    }
}

/* Values exactly between two steps, for scales of all sizes: a quotient that is a little off on its
 * way shows here. */
static void int8_halfway_cases_are_exact(void **state)
{
    (void)state;
    for (int32_t m = 1; m <= UINT16_MAX; m += 7) {
        int32_t v[255];
        int8_t q[255], plain[255];
        for (int32_t k = -127; k < 127; k++)
            v[k + 127] = (2 * k + 1) * 64 * m;
        v[254] = 127 * 128 * m;
        int32_t same[255];
        memcpy(same, v, sizeof(same));
        assert_int_equal(fedge_int8_encode(v, 255, q), m);
        assert_int_equal(fedge_block_encode_scalar(same, 255, 7, 127, plain), m);
        for (int32_t k = -127; k < 127; k++)
            assert_int_equal(q[k + 127], k % 2 == 0 ? k : k + 1);
        assert_memory_equal(q, plain, sizeof(q));
    }
}

static void int8_at_its_edges(void **state)
{
    (void)state;
    int32_t v[40] = {0};
    int8_t q[40];
    assert_int_equal(fedge_int8_encode(v, 40, q), 0);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(q[i], 0);
    v[3] = 1;
    assert_int_equal(fedge_int8_encode(v, 40, q), 1);
    v[3] = 127 * 128;
    assert_int_equal(fedge_int8_encode(v, 40, q), 1);
    v[3] = 127 * 128 + 1;
    assert_int_equal(fedge_int8_encode(v, 40, q), 2);
    v[3] = -LIMIT;
    v[39] = LIMIT;
    assert_int_equal(fedge_int8_encode(v, 40, q), 65535);
    assert_int_equal(q[3], -127);
    assert_int_equal(q[39], 127);
    v[3] = 127 * 128; /* scale 1: halfway cases */
    v[39] = 0;
    for (int32_t k = 0; k < 30; k++)
        v[4 + k] = 64 + 128 * (k - 15);
    assert_int_equal(fedge_int8_encode(v, 40, q), 1);
    for (int32_t k = 0; k < 30; k++)
        assert_int_equal(q[4 + k], (k - 15) % 2 == 0 ? k - 15 : k - 14);
    for (size_t place = 0; place < 40; place++) {
        memset(q, 5, sizeof(q));
        q[place] = INT8_MIN;
        assert_false(fedge_int8_decode(q, 40, 3, v));
        assert_false(fedge_int8_decode_scalar(q, 40, 3, v));
    }
}

static void int8_sections_round_trip(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    make_schema(&schema, storage);
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 0, 0, 0);
    static float values[ELEMENTS];
    static uint8_t bytes[INT8_SIZE], again[INT8_SIZE];
    static int32_t v[ELEMENTS];
    draw_values(&schema, &rng, values);
    values[ELEMENTS - 1] = 17.0f;
    assert_int_equal(encode_all(&INT8, &schema, bounds, values, bytes, INT8_SIZE, NULL, NULL),
                     FEDGE_OK);
    assert_int_equal(fedge_codec_decode(&INT8, &schema, bounds, bytes, INT8_SIZE, v, NULL),
                     FEDGE_OK);
    for (size_t i = 0; i < ELEMENTS; i++) {
        float bound = bound_of(&schema, i);
        float back = ldexpf((float)v[i], -FEDGE_FIXED_VALUE_BITS) * bound;
        assert_true(fabsf(back - values[i]) <= bound / 120.0f);
    }
    /* The last block is the scalar: its scale is the last two bytes but one. */
    assert_int_equal((int8_t)bytes[INT8_SIZE - 1], 127);
    assert_true(abs(v[ELEMENTS - 1] - (17 << 25)) <= 127 * 128);
    assert_int_equal(encode_all(&INT8, &schema, bounds, values, again, INT8_SIZE, NULL, NULL),
                     FEDGE_OK);
    assert_memory_equal(bytes, again, sizeof(bytes));
}

static void encoding_clamps_counts_and_refuses_nan(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    make_schema(&schema, storage);
    static float values[ELEMENTS];
    static uint8_t bytes[NONE_SIZE];
    static int32_t v[ELEMENTS];
    for (unsigned c = 0; c < FEDGE_CODEC_COUNT; c++) {
        const fedge_codec codec = codec_named(fedge_codec_name(c));
        if (!fedge_codec_is_plain(&codec))
            continue;
        size_t size = fedge_codec_size(&codec, &schema);
        fedge_codec_stats stats;
        fedge_error err;
        memset(values, 0, sizeof(values));
        values[3] = 4.001f;
        values[1501] = -0.126f;
        values[1502] = INFINITY;
        values[1756] = 31.0f;
        assert_int_equal(encode_all(&codec, &schema, bounds, values, bytes, size, &stats, NULL),
                         FEDGE_OK);
        assert_int_equal(stats.clamped, 3);
        assert_int_equal(stats.not_finite, 0);
        assert_int_equal(fedge_codec_decode(&codec, &schema, bounds, bytes, size, v, NULL),
                         FEDGE_OK);
        /* int4 reaches 0.875 of the bound, int8 0.992 of it. */
        const int32_t missing = LIMIT / (fedge_codec_has(&codec, "int4") ? 7 : 100);
        assert_true(v[3] > LIMIT - missing && v[1501] < -LIMIT + missing);
        values[1500 + 77] = NAN;
        assert_int_equal(encode_all(&codec, &schema, bounds, values, bytes, size, &stats, &err),
                         FEDGE_NOT_FINITE);
        assert_int_equal(stats.not_finite, 1);
        assert_non_null(strstr(err.message, "value 77 of tensor \"0.bias\" is NaN"));
        values[1500 + 77] = 0.0f;
        assert_int_equal(encode_all(&codec, &schema, bounds, values, bytes, size - 1, &stats, &err),
                         FEDGE_INVALID_ARGUMENT);
        const int8_t wild[3] = {2, 21, 2};
        assert_int_equal(encode_all(&codec, &schema, wild, values, bytes, size, &stats, &err),
                         FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "0.bias"));
        assert_int_equal(fedge_codec_decode(&codec, &schema, wild, bytes, size, v, NULL),
                         FEDGE_INVALID_ARGUMENT);
    }
}

static void decoding_refuses_wrong_sizes(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    make_schema(&schema, storage);
    static uint8_t bytes[NONE_SIZE + 1];
    static int32_t v[ELEMENTS];
    for (unsigned c = 0; c < FEDGE_CODEC_COUNT; c++) {
        const fedge_codec codec = codec_named(fedge_codec_name(c));
        if (!fedge_codec_is_plain(&codec))
            continue;
        size_t size = fedge_codec_size(&codec, &schema);
        fedge_error err;
        assert_int_equal(fedge_codec_decode(&codec, &schema, bounds, bytes, size, v, NULL),
                         FEDGE_OK);
        assert_int_equal(fedge_codec_decode(&codec, &schema, bounds, bytes, size - 1, v, &err),
                         FEDGE_TRUNCATED);
        assert_int_equal(fedge_codec_decode(&codec, &schema, bounds, bytes, 0, v, NULL),
                         FEDGE_TRUNCATED);
        assert_int_equal(fedge_codec_decode(&codec, &schema, bounds, bytes, size + 1, v, &err),
                         FEDGE_TOO_BIG);
        assert_non_null(strstr(err.message, fedge_codec_name(c)));
    }
}

static void decoding_refuses_bad_values(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    make_schema(&schema, storage);
    static uint8_t bytes[NONE_SIZE];
    static int32_t v[ELEMENTS];
    static const struct {
        size_t index;
        float value;
        fedge_status status;
        const char *said;
    } bad[] = {
        {1499, NAN, FEDGE_NOT_FINITE, "value 1499 of tensor \"0.weight\" is nan"},
        {1030, -INFINITY, FEDGE_NOT_FINITE, "value 1030 of tensor \"0.weight\" is -inf"},
        {1500, 0.1250001f, FEDGE_OUT_OF_RANGE, "value 0 of tensor \"0.bias\" is 0.125"},
        {1756, 33.0f, FEDGE_OUT_OF_RANGE, "value 0 of tensor \"scale\" is 33; |x| <= 32"},
    };
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        fedge_error err;
        memset(bytes, 0, sizeof(bytes));
        fedge_put_f32(bytes + 4 * bad[k].index, bad[k].value);
        assert_int_equal(fedge_codec_decode(&NONE, &schema, bounds, bytes, NONE_SIZE, v, &err),
                         bad[k].status);
        if (!strstr(err.message, bad[k].said))
            fail_msg("\"%s\" does not say \"%s\"", err.message, bad[k].said);
    }
    fedge_error err;
    memset(bytes, 0, sizeof(bytes));
    bytes[2 + 256 + 2 + 11] = 0x80; /* value 11 of the second block */
    assert_int_equal(fedge_codec_decode(&INT8, &schema, bounds, bytes, INT8_SIZE, v, &err),
                     FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "value 267 of tensor \"0.weight\""));
}

static void one_tensor(fedge_schema *schema, fedge_tensor_spec storage[1], uint32_t count)
{
    fedge_schema_init(schema, storage, 1);
    assert_int_equal(fedge_schema_add(schema, "t", FEDGE_F32, 1, &count, NULL), FEDGE_OK);
}

static void assert_refused(const fedge_codec *codec, const fedge_schema *schema,
                           const uint8_t *bytes, fedge_status wanted, size_t place)
{
    int32_t v[2048];
    char said[64];
    fedge_error err = {.message = ""};
    (void)snprintf(said, sizeof(said), "value %zu of tensor \"t\" is ", place);
    assert_int_equal(
        fedge_codec_decode(codec, schema, bounds, bytes, fedge_codec_size(codec, schema), v, &err),
        wanted);
    if (!strstr(err.message, said))
        fail_msg("\"%s\" does not say \"%s\"", err.message, said);
}

/* -8, at each place of a block of an even and of an odd number of values. */
static void int4_has_no_minus_8(void **state)
{
    (void)state;
    for (uint32_t count = 6; count <= 9; count++) {
        fedge_tensor_spec storage[1];
        fedge_schema schema;
        uint8_t bytes[16];
        int32_t v[16];
        fedge_error err;
        one_tensor(&schema, storage, count);
        for (uint32_t i = 0; i < count; i++) {
            memset(bytes, 0, sizeof(bytes));
            bytes[0] = 1; /* the scale */
            bytes[2 + i / 2] = i % 2 ? 0x80 : 0x08;
            assert_refused(&INT4, &schema, bytes, FEDGE_CORRUPT, i);
        }
        memset(bytes, 0, sizeof(bytes));
        bytes[2 + count / 2] = 0x10;
        assert_int_equal(fedge_codec_decode(&INT4, &schema, bounds, bytes,
                                            fedge_codec_size(&INT4, &schema), v, &err),
                         count % 2 ? FEDGE_CORRUPT : FEDGE_OK);
    }
}

/* Of more values than are decoded at a time: each has its place, and none is written behind. */
static void half_floats_have_their_places(void **state)
{
    (void)state;
    enum { COUNT = 1500, ROOM = 2 * COUNT };
    const fedge_codec *const codecs[] = {&F16, &BF16};
    static uint8_t bytes[2 * ROOM];
    static int32_t v[ROOM];
    fedge_tensor_spec storage[1];
    fedge_schema schema;
    one_tensor(&schema, storage, COUNT);
    for (size_t c = 0; c < sizeof(codecs) / sizeof(codecs[0]); c++) {
        memset(bytes, 0, sizeof(bytes));
        memset(v, 0x55, sizeof(v));
        assert_int_equal(
            fedge_codec_decode(codecs[c], &schema, bounds, bytes, 2 * (size_t)COUNT, v, NULL),
            FEDGE_OK);
        for (size_t i = 0; i < ROOM; i++)
            assert_int_equal(v[i], i < COUNT ? 0 : 0x55555555);
        assert_int_equal(
            fedge_codec_decode_run(codecs[c], &storage[0], bounds[0], 0, COUNT, bytes, v, NULL),
            FEDGE_OK);
        assert_int_equal(v[COUNT - 1], 0);
        assert_int_equal(v[COUNT], 0x55555555);
        fedge_put_u16(bytes + 2 * (size_t)1100, 0x7fff);
        assert_refused(codecs[c], &schema, bytes, FEDGE_NOT_FINITE, 1100);
    }
}

/* Whatever bytes come, an int8 section that is accepted is within the bound. */
static void int8_cannot_leave_the_bound(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    make_schema(&schema, storage);
    static uint8_t bytes[INT8_SIZE];
    static int32_t v[ELEMENTS];
    fedge_rng rng = fedge_rng_stream(4, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 100; trial++) {
        for (size_t i = 0; i < INT8_SIZE; i++) {
            bytes[i] = (uint8_t)fedge_rng_u32(&rng);
            bytes[i] = bytes[i] == 0x80 ? 0x81 : bytes[i];
        }
        assert_int_equal(fedge_codec_decode(&INT8, &schema, bounds, bytes, INT8_SIZE, v, NULL),
                         FEDGE_OK);
        for (size_t i = 0; i < ELEMENTS; i++)
            assert_true(v[i] >= -LIMIT && v[i] <= LIMIT);
    }
}

/* It begins with a section of every codec, and of every way to write what one chooses. */
static void the_fuzzer_has_seeds_of_every_codec(void **state)
{
    (void)state;
    static uint8_t data[70000];
    static int32_t v[CODEC_SEED_MANY + 256];
    bool seen[FEDGE_CODEC_COUNT][CODEC_SEED_NUM_WRITE] = {{false}};
    glob_t seeds;
    codec_seed seed;
    fedge_error err;
    assert_int_equal(glob(FEDGE_SOURCE_DIR "/tests/fuzz/corpus/codec/*", 0, NULL, &seeds), 0);
    for (size_t i = 0; i < seeds.gl_pathc; i++) {
        FILE *file = fopen(seeds.gl_pathv[i], "rb");
        assert_non_null(file);
        const size_t size = fread(data, 1, sizeof(data), file);
        assert_int_equal(fclose(file), 0);
        assert_in_range(size, CODEC_SEED_HEAD, sizeof(data) - 1);
        assert_true(codec_seed_read(&seed, data));
        if (fedge_codec_decode(&seed.codec, &seed.schema, seed.bounds, data + CODEC_SEED_HEAD,
                               size - CODEC_SEED_HEAD, v, &err) == FEDGE_OK)
            seen[seed.name][seed.write] = true;
    }
    globfree(&seeds);
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        codec_seed_read(&seed, (const uint8_t[CODEC_SEED_HEAD]){(uint8_t)i});
        unsigned num_seen = 0;
        for (unsigned k = 0; k < CODEC_SEED_NUM_WRITE; k++)
            num_seen += seen[i][k];
        assert_in_range(num_seen, fedge_codec_is_plain(&seed.codec) ? 1 : CODEC_SEED_NUM_WRITE,
                        CODEC_SEED_NUM_WRITE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(none_keeps_every_bit_of_the_fixed_point_values),
        cmocka_unit_test(bytes_are_made_of_floats),
        cmocka_unit_test(int8_rounds_once_and_to_even),
        cmocka_unit_test(int8_halfway_cases_are_exact),
        cmocka_unit_test(int8_at_its_edges),
        cmocka_unit_test(int8_sections_round_trip),
        cmocka_unit_test(encoding_clamps_counts_and_refuses_nan),
        cmocka_unit_test(decoding_refuses_wrong_sizes),
        cmocka_unit_test(decoding_refuses_bad_values),
        cmocka_unit_test(int4_has_no_minus_8),
        cmocka_unit_test(half_floats_have_their_places),
        cmocka_unit_test(int8_cannot_leave_the_bound),
        cmocka_unit_test(the_fuzzer_has_seeds_of_every_codec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
