/* Numbers of 16 bits: every one of them there and back, and the kernels with the bits of the plain
 * functions, from any place of memory on and for any number of values. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/values.h"
#include "edge/core/half.h"
#include "edge/core/rng.h"

enum { MOST = 100, TRIES = 3000 };

static float x[MOST + 1], plain[MOST], fast[MOST];
static uint8_t bytes[2][2 * MOST + 1];

/* Any finite float, many of them small, halfway between two halves, or 0. */
static float any_float(fedge_rng *rng)
{
    const uint32_t bits = fedge_rng_u32(rng);
    switch (fedge_rng_below(rng, 5)) {
    case 0:
        return fedge_f16_to_float((uint16_t)(bits & 0xfbffu));
    case 1: /* halfway, or next to it */
        return fedge_float_of_bits((bits & 0xbfffe000u) + (0xfffu + fedge_rng_below(rng, 3)));
    case 2:
        return ldexpf((float)(bits >> 8) - 8388608.0f, -23 - (int)fedge_rng_below(rng, 20));
    case 3:
        return bits & 1 ? -0.0f : 0.0f;
    default:
        return fedge_float_of_bits(bits & 0xbfffffffu);
    }
}

typedef uint16_t (*narrow_fn)(float value);
typedef float (*widen_fn)(uint16_t half);

static void compare(fedge_rng *rng, narrow_fn narrow, widen_fn widen,
                    size_t (*narrow_simd)(float *, size_t, uint8_t *),
                    size_t (*widen_simd)(const uint8_t *, size_t, float *))
{
    const size_t n = fedge_rng_below(rng, MOST + 1), apart = fedge_rng_below(rng, 2);
    for (size_t i = 0; i < n; i++) {
        plain[i] = fast[i] = any_float(rng);
        fedge_put_u16(bytes[0] + apart + 2 * i, narrow(plain[i]));
    }
    const size_t done = narrow_simd(fast, n, bytes[1] + apart);
    assert_true(done <= n);
    assert_memory_equal(bytes[0] + apart, bytes[1] + apart, 2 * done);
    for (size_t i = 0; i < n; i++)
        plain[i] = i < done ? widen(narrow(plain[i])) : plain[i];
    assert_memory_equal(plain, fast, n * sizeof(*fast));
    assert_int_equal(narrow_simd(fast, n, NULL), done); /* what is a half already stays */
    assert_memory_equal(plain, fast, done * sizeof(*fast));
    const size_t back = widen_simd(bytes[0] + apart, n, fast);
    for (size_t i = 0; i < back; i++) {
        const float expected = widen(fedge_get_u16(bytes[0] + apart + 2 * i));
        assert_memory_equal(&expected, &fast[i], sizeof(expected));
    }
}

static void kernels_have_the_bits_of_the_plain_functions(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 16, 0, 0);
    for (int i = 0; i < TRIES; i++) {
        compare(&rng, fedge_f16_from_float, fedge_f16_to_float, fedge_f16_narrow_simd,
                fedge_f16_widen_simd);
        compare(&rng, fedge_bf16_from_float, fedge_bf16_to_float, fedge_bf16_narrow_simd,
                fedge_bf16_widen_simd);
    }
}

static void what_is_over_the_bound_is_cut(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, 16, 0, 0);
    for (int t = 0; t < TRIES; t++) {
        const size_t n = fedge_rng_below(&rng, MOST + 1), apart = fedge_rng_below(&rng, 2);
        const float bound = ldexpf(1.0f, (int)fedge_rng_below(&rng, 6) - 3);
        fedge_codec_stats stats = {0};
        uint64_t clamped = 0, not_finite = 0;
        for (size_t i = 0; i < n; i++) {
            const uint32_t kind = fedge_rng_below(&rng, 12);
            x[apart + i] = kind == 0   ? NAN
                           : kind == 1 ? INFINITY
                           : kind == 2 ? -INFINITY
                           : kind == 3 ? bound
                                       : any_float(&rng);
        }
        const size_t done = fedge_cut_simd(bound, x + apart, n, fast, &stats);
        assert_true(done <= n);
        for (size_t i = 0; i < done; i++) {
            const float value = x[apart + i];
            const float expected = isnan(value)     ? 0
                                   : value > bound  ? bound
                                   : value < -bound ? -bound
                                                    : value;
            clamped += fabsf(value) > bound;
            not_finite += isnan(value) != 0;
            assert_memory_equal(&expected, &fast[i], sizeof(expected));
        }
        assert_int_equal(stats.clamped, clamped);
        assert_int_equal(stats.not_finite, not_finite);
    }
}

/* It may stop early, but never late. */
static void nothing_over_the_limit_is_passed(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 16, 0, 0);
    for (int t = 0; t < TRIES; t++) {
        const size_t n = fedge_rng_below(&rng, MOST + 1), apart = fedge_rng_below(&rng, 2);
        const uint16_t most = (uint16_t)fedge_rng_below(&rng, 0x7fff);
        size_t first = n;
        for (size_t i = 0; i < n; i++) {
            const bool over = fedge_rng_below(&rng, MOST) == 0;
            const uint32_t size = over ? most + 1u + fedge_rng_below(&rng, 0x7fffu - most)
                                       : fedge_rng_below(&rng, most + 1u);
            first = over && i < first ? i : first;
            fedge_put_u16(bytes[0] + apart + 2 * i,
                          (uint16_t)(size | (fedge_rng_below(&rng, 2) << 15)));
        }
        const size_t passed = fedge_half_within_simd(bytes[0] + apart, n, most);
        assert_true(passed <= first);
        assert_true(passed == 0 || passed + 16 > first || passed + 16 > n);
    }
}

/* Narrowing undoes widening, of every number but NaN's kinds. */
static void each_half_comes_back(void **state)
{
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        if ((half & 0x7fff) <= 0x7c00)
            assert_int_equal(fedge_f16_from_float(fedge_f16_to_float((uint16_t)half)), half);
        if ((half & 0x7fff) <= 0x7f80)
            assert_int_equal(fedge_bf16_from_float(fedge_bf16_to_float((uint16_t)half)), half);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_have_the_bits_of_the_plain_functions),
        cmocka_unit_test(what_is_over_the_bound_is_cut),
        cmocka_unit_test(nothing_over_the_limit_is_passed),
        cmocka_unit_test(each_half_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
