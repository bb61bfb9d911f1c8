#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "edge/core/fixed.h"
#include "edge/core/rng.h"

#define LIMIT (INT32_C(1) << FEDGE_FIXED_VALUE_BITS)
#define MAX_N 200

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static int32_t quantise_one(float x, int bound_log2)
{
    int32_t v;
    uint64_t clamped = 0, not_finite = 0;
    fedge_fixed_quantise_scalar(&x, 1, bound_log2, &v, &clamped, &not_finite);
    assert_true(clamped + not_finite == 0);
    return v;
}

static void values_are_scaled_and_rounded_to_even(void **state)
{
    (void)state;
    assert_int_equal(quantise_one(0.0f, 2), 0);
    assert_int_equal(quantise_one(1.0f, 2), 1 << 28);
    assert_int_equal(quantise_one(4.0f, 2), LIMIT);
    assert_int_equal(quantise_one(-4.0f, 2), -LIMIT);
    for (int b = FEDGE_FIXED_MIN_BOUND_LOG2; b <= FEDGE_FIXED_MAX_BOUND_LOG2; b++) {
        const float unit = ldexpf(1.0f, b - FEDGE_FIXED_VALUE_BITS);
        assert_int_equal(quantise_one(ldexpf(1.0f, b), b), LIMIT);
        assert_int_equal(quantise_one(-ldexpf(1.0f, b), b), -LIMIT);
        assert_int_equal(quantise_one(unit, b), 1);
        assert_int_equal(quantise_one(0.5f * unit, b), 0); /* halfway goes to even */
        assert_int_equal(quantise_one(1.5f * unit, b), 2);
        assert_int_equal(quantise_one(2.5f * unit, b), 2);
        assert_int_equal(quantise_one(-0.5f * unit, b), 0);
        assert_int_equal(quantise_one(-1.5f * unit, b), -2);
        assert_int_equal(quantise_one(from_bits(1), b), 0); /* the smallest denormal */
        assert_int_equal(quantise_one(-0.0f, b), 0);
    }
}

static void what_is_outside_is_clamped_and_counted(void **state)
{
    (void)state;
    const float x[] = {4.5f, -4.5f, NAN, INFINITY, -INFINITY, 4.0f, -NAN, 0.25f, 3e38f};
    const int32_t expected[] = {LIMIT, -LIMIT, 0, LIMIT, -LIMIT, LIMIT, 0, 1 << 26, LIMIT};
    int32_t v[9];
    uint64_t clamped = 10, not_finite = 20;
    fedge_fixed_quantise(x, 9, 2, v, &clamped, &not_finite);
    assert_memory_equal(v, expected, sizeof(v));
    assert_int_equal(clamped, 15); /* added to what was there */
    assert_int_equal(not_finite, 22);
}

/* A float near something interesting: any bit pattern, the bound and its neighbours, halfway cases.
 */
static float draw(fedge_rng *rng, int bound_log2)
{
    const float bound = ldexpf(1.0f, bound_log2);
    const float unit = ldexpf(bound, -FEDGE_FIXED_VALUE_BITS);
    const float sign = fedge_rng_below(rng, 2) == 0 ? 1.0f : -1.0f;
    switch (fedge_rng_below(rng, 8)) {
    case 0:
        return from_bits(fedge_rng_u32(rng));
    case 1:
        return sign * bound;
    case 2:
        return sign * nextafterf(bound, fedge_rng_below(rng, 2) == 0 ? 0.0f : INFINITY);
    case 3:
        return sign * ((float)fedge_rng_below(rng, 1000) + 0.5f) * unit;
    case 4:
        return sign * from_bits(fedge_rng_below(rng, 1u << 23));
    case 5:
        return sign * ldexpf(fedge_rng_float(rng), bound_log2 + 1);
    default:
        return sign * ldexpf(fedge_rng_float(rng), bound_log2 - (int)fedge_rng_below(rng, 30));
    }
}

static void quantise_matches_the_scalar_reference(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 5000; trial++) {
        int b = (int)fedge_rng_below(&rng, 41) - 20;
        size_t n = fedge_rng_below(&rng, MAX_N + 1);
        size_t at = fedge_rng_below(&rng, 8);
        float x[MAX_N + 8];
        int32_t v[MAX_N + 9], w[MAX_N + 9];
        for (size_t i = 0; i < MAX_N + 8; i++)
            x[i] = draw(&rng, b);
        memset(v, 0x55, sizeof(v));
        memset(w, 0x55, sizeof(w));
        uint64_t counts[2][2] = {{0}};
        fedge_fixed_quantise(x + at, n, b, v + at, &counts[0][0], &counts[0][1]);
        fedge_fixed_quantise_scalar(x + at, n, b, w + at, &counts[1][0], &counts[1][1]);
        assert_memory_equal(v, w, sizeof(v)); /* what lies around is untouched too */
        assert_memory_equal(counts[0], counts[1], sizeof(counts[0]));
        for (size_t i = at; i < at + n; i++)
            assert_true(v[i] >= -LIMIT && v[i] <= LIMIT);
    }
}

static void changes_match_the_scalar_reference_and_are_undone(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 3000; trial++) {
        const int b = (int)fedge_rng_below(&rng, 41) - 20;
        const size_t n = fedge_rng_below(&rng, MAX_N + 1), at = fedge_rng_below(&rng, 8);
        float x[2][MAX_N + 9], y[MAX_N + 8], wanted[MAX_N + 9];
        int32_t v[3][MAX_N + 9];
        for (size_t i = 0; i < MAX_N + 8; i++) {
            y[i] = draw(&rng, b);
            wanted[i] = x[0][i] = x[1][i] = draw(&rng, b);
        }
        wanted[MAX_N + 8] = x[0][MAX_N + 8] = x[1][MAX_N + 8] = 1.0f;
        memset(v, 0x55, sizeof(v));
        uint64_t counts[3][2] = {{0}};
        for (size_t i = at; i < at + n; i++) {
            const float change = x[0][i] - y[i];
            fedge_fixed_quantise(&change, 1, b, &v[2][i], &counts[2][0], &counts[2][1]);
            wanted[i] = y[i];
        }
        fedge_fixed_quantise_change(x[0] + at, y + at, n, b, v[0] + at, &counts[0][0],
                                    &counts[0][1]);
        fedge_fixed_quantise_change_scalar(x[1] + at, y + at, n, b, v[1] + at, &counts[1][0],
                                           &counts[1][1]);
        for (int i = 0; i < 2; i++) {
            assert_memory_equal(v[i], v[2], sizeof(v[i]));
            assert_memory_equal(counts[i], counts[2], sizeof(counts[i]));
            assert_memory_equal(x[i], wanted, sizeof(wanted));
        }
    }
}

static void strict_names_the_first_bad_value(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, 0, 0, 0);
    static const struct {
        float value;
        fedge_status status;
        const char *said;
    } bad[] = {
        {NAN, FEDGE_NOT_FINITE, "is NaN"},
        {-INFINITY, FEDGE_NOT_FINITE, "is infinite"},
        {4.0000005f, FEDGE_OUT_OF_RANGE, "over the bound of 4"},
        {-1e30f, FEDGE_OUT_OF_RANGE, "is -1e+30"},
    };
    for (size_t place = 0; place < 40; place++) {
        float x[40];
        int32_t v[40], expected[40];
        uint64_t clamped = 0, not_finite = 0;
        for (size_t i = 0; i < 40; i++)
            x[i] = 8.0f * fedge_rng_float(&rng) - 4.0f;
        x[(place + 5) % 40] = place % 2 == 0 ? 4.0f : -4.0f;
        assert_int_equal(fedge_fixed_quantise_strict(x, 40, 2, v, NULL), FEDGE_OK);
        fedge_fixed_quantise_scalar(x, 40, 2, expected, &clamped, &not_finite);
        assert_memory_equal(v, expected, sizeof(v));
        for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
            fedge_error err;
            char index[16];
            x[place] = bad[k].value;
            if (place + 1 < 40)
                x[39] = NAN; /* not the first */
            assert_int_equal(fedge_fixed_quantise_strict(x, 40, 2, v, &err), bad[k].status);
            snprintf(index, sizeof(index), "value %zu is", place);
            assert_non_null(strstr(err.message, index));
            assert_non_null(strstr(err.message, bad[k].said));
        }
    }
    assert_int_equal(fedge_fixed_quantise_strict(NULL, 0, 2, NULL, NULL), FEDGE_OK);
}

static int32_t draw_fixed(fedge_rng *rng)
{
    switch (fedge_rng_below(rng, 4)) {
    case 0:
        return LIMIT;
    case 1:
        return -LIMIT;
    default:
        return (int32_t)fedge_rng_below(rng, 2u * (uint32_t)LIMIT + 1) - LIMIT;
    }
}

static void accumulate_matches_the_scalar_reference(void **state)
{
    (void)state;
    static const uint32_t weights[] = {1, 2, 1u << 20, INT32_MAX, 1u << 31, UINT32_MAX};
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 3000; trial++) {
        size_t n = fedge_rng_below(&rng, MAX_N + 1);
        size_t at = fedge_rng_below(&rng, 4);
        uint32_t pick = fedge_rng_below(&rng, 7);
        uint32_t weight = pick < 6 ? weights[pick] : 1 + fedge_rng_below(&rng, 1u << 20);
        int32_t v[MAX_N + 4];
        int64_t a[MAX_N + 5], b[MAX_N + 5];
        for (size_t i = 0; i < MAX_N + 5; i++)
            a[i] = b[i] = (int64_t)(fedge_rng_u64(&rng) >> 2) - (INT64_C(1) << 61);
        const size_t run = 1 + fedge_rng_below(&rng, 20); /* of zeros, now and then */
        for (size_t i = 0; i < MAX_N + 4; i++)
            v[i] = i / run % 3 == 1 ? 0 : draw_fixed(&rng);
        fedge_fixed_accumulate(a + at, v + at, n, weight);
        fedge_fixed_accumulate_scalar(b + at, v + at, n, weight);
        assert_memory_equal(a, b, sizeof(a));
    }
}

enum { UPDATES = 24, ELEMENTS = 37 };

/* Sums the updates in a random order into a random number of partial sums, and joins these in a
 * random order. */
static void sum_somehow(fedge_rng *rng, int32_t v[UPDATES][ELEMENTS], const uint32_t *weights,
                        int64_t *out)
{
    enum { MAX_PARTS = 6 };
    int64_t parts[MAX_PARTS][ELEMENTS] = {{0}};
    uint32_t order[UPDATES], joins[MAX_PARTS];
    uint32_t num_parts = 1 + fedge_rng_below(rng, MAX_PARTS);
    for (uint32_t i = 0; i < UPDATES; i++)
        order[i] = i;
    for (uint32_t i = 0; i < num_parts; i++)
        joins[i] = i;
    fedge_rng_shuffle(rng, order, UPDATES);
    fedge_rng_shuffle(rng, joins, num_parts);
    for (uint32_t i = 0; i < UPDATES; i++) {
        fedge_fixed_accumulate(parts[fedge_rng_below(rng, num_parts)], v[order[i]], ELEMENTS,
                               weights[order[i]]);
    }
    memset(out, 0, ELEMENTS * sizeof(out[0]));
    for (uint32_t i = 0; i < num_parts; i++)
        fedge_fixed_merge(out, parts[joins[i]], ELEMENTS);
}

/* Random weights whose sum is exactly the limit of 2^32. */
static void draw_weights(fedge_rng *rng, uint32_t *weights)
{
    uint64_t left = FEDGE_FIXED_MAX_TOTAL_WEIGHT;
    for (uint32_t i = 0; i + 1 < UPDATES; i++) {
        uint64_t most = left - (UPDATES - 1 - i);
        most = most < left / 4 ? most : left / 4;
        weights[i] = 1 + fedge_rng_below(rng, (uint32_t)most);
        left -= weights[i];
    }
    weights[UPDATES - 1] = (uint32_t)left;
}

static void sums_do_not_depend_on_order_or_splits(void **state)
{
    (void)state;
    static int32_t v[UPDATES][ELEMENTS];
    for (uint32_t trial = 0; trial < 100; trial++) {
        fedge_rng rng = fedge_rng_stream(4, FEDGE_PURPOSE_TEST, trial, 0, 0);
        uint32_t weights[UPDATES];
        draw_weights(&rng, weights);
        for (uint32_t i = 0; i < UPDATES; i++) {
            for (uint32_t j = 0; j < ELEMENTS; j++)
                v[i][j] = j == 0 ? LIMIT : j == 1 ? -LIMIT : draw_fixed(&rng);
        }
        int64_t first[ELEMENTS], other[ELEMENTS];
        memset(first, 0, sizeof(first));
        for (uint32_t i = 0; i < UPDATES; i++)
            fedge_fixed_accumulate_scalar(first, v[i], ELEMENTS, weights[i]);
        assert_true(first[0] == INT64_C(1) << 62); /* the largest sum there is */
        assert_true(first[1] == -(INT64_C(1) << 62));
        for (int k = 0; k < 30; k++) {
            sum_somehow(&rng, v, weights, other);
            assert_memory_equal(first, other, sizeof(first));
        }
    }
}

static void a_step_is_the_weighted_mean(void **state)
{
    (void)state;
    const float x[2][4] = {{0.5f, -1.0f, 4.0f, 0.0f}, {1.0f, 0.5f, -4.0f, 0.0f}};
    const uint32_t weights[2] = {3, 1};
    int64_t sum[4] = {0};
    for (int i = 0; i < 2; i++) {
        int32_t v[4];
        assert_int_equal(fedge_fixed_quantise_strict(x[i], 4, 2, v, NULL), FEDGE_OK);
        fedge_fixed_accumulate(sum, v, 4, weights[i]);
    }
    float model[4] = {10.0f, 10.0f, 10.0f, -0.0f};
    fedge_fixed_step(model, sum, 4, 4, 2, 1.0);
    assert_true(model[0] == 10.625f);
    assert_true(model[1] == 9.375f);
    assert_true(model[2] == 12.0f);
    fedge_fixed_step(model, sum, 4, 4, 2, 0.5);
    assert_true(model[2] == 13.0f);
    int64_t most = INT64_C(1) << 62;
    float one = 0.0f;
    fedge_fixed_step(&one, &most, 1, FEDGE_FIXED_MAX_TOTAL_WEIGHT, 2, 1.0);
    assert_true(one == 4.0f);
}

static void step_matches_the_scalar_reference(void **state)
{
    (void)state;
    static const double rates[] = {1.0, 0.1, 1e-300, -3e30};
    fedge_rng rng = fedge_rng_stream(4, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 3000; trial++) {
        const size_t n = fedge_rng_below(&rng, MAX_N + 1), at = fedge_rng_below(&rng, 4);
        const uint64_t weight = 1 + (fedge_rng_u64(&rng) >> (32 + fedge_rng_below(&rng, 32)));
        const int bound_log2 =
            FEDGE_FIXED_MIN_BOUND_LOG2 +
            (int)fedge_rng_below(&rng, FEDGE_FIXED_MAX_BOUND_LOG2 - FEDGE_FIXED_MIN_BOUND_LOG2 + 1);
        const double rate = rates[fedge_rng_below(&rng, 4)];
        int64_t sum[MAX_N + 4];
        float a[MAX_N + 5], b[MAX_N + 5];
        for (size_t i = 0; i < MAX_N + 4; i++) {
            /* of every length, and next to halves of the last place of a double */
            const int64_t size = (int64_t)(fedge_rng_u64(&rng) >> (1 + fedge_rng_below(&rng, 63)));
            sum[i] = fedge_rng_below(&rng, 2) ? size : -size;
        }
        for (size_t i = 0; i < MAX_N + 5; i++)
            a[i] = b[i] = (float)fedge_rng_normal(&rng);
        fedge_fixed_step(a + at, sum + at, n, weight, bound_log2, rate);
        fedge_fixed_step_scalar(b + at, sum + at, n, weight, bound_log2, rate);
        assert_memory_equal(a, b, sizeof(a));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_scaled_and_rounded_to_even),
        cmocka_unit_test(what_is_outside_is_clamped_and_counted),
        cmocka_unit_test(quantise_matches_the_scalar_reference),
        cmocka_unit_test(changes_match_the_scalar_reference_and_are_undone),
        cmocka_unit_test(strict_names_the_first_bad_value),
        cmocka_unit_test(accumulate_matches_the_scalar_reference),
        cmocka_unit_test(sums_do_not_depend_on_order_or_splits),
        cmocka_unit_test(a_step_is_the_weighted_mean),
        cmocka_unit_test(step_matches_the_scalar_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
