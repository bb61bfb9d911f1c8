#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "edge/core/rng.h"

/* Known answers of Random123 (kat_vectors, philox4x32 10). */
static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t out[4];
        fedge_philox4x32(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].out, sizeof(out));
    }
}

static void a_stream_is_philox_over_its_name(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(0x1122334455667788u, FEDGE_PURPOSE_SHUFFLE, 7, 9, 0xABCD);
    const uint32_t key[2] = {0x55667788, 0x11223344};
    for (uint32_t block = 0; block < 3; block++) {
        const uint32_t counter[4] = {block, 2u << 16 | 0xABCD, 7, 9};
        uint32_t expected[4];
        fedge_philox4x32(counter, key, expected);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(fedge_rng_u32(&rng), expected[i]);
    }
    fedge_rng a = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 0, 0, 0);
    fedge_rng b = a;
    uint64_t low = fedge_rng_u32(&a);
    uint64_t high = fedge_rng_u32(&a);
    assert_true(fedge_rng_u64(&b) == (high << 32 | low));
}

static void every_part_of_the_name_counts(void **state)
{
    (void)state;
    fedge_rng streams[] = {
        fedge_rng_stream(1, FEDGE_PURPOSE_INIT, 2, 3, 4),
        fedge_rng_stream(1 | 1ull << 40, FEDGE_PURPOSE_INIT, 2, 3, 4),
        fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 2, 3, 4),
        fedge_rng_stream(1, FEDGE_PURPOSE_INIT, 3, 3, 4),
        fedge_rng_stream(1, FEDGE_PURPOSE_INIT, 2, 2, 4),
        fedge_rng_stream(1, FEDGE_PURPOSE_INIT, 2, 3, 5),
    };
    uint64_t first[6];
    for (size_t i = 0; i < 6; i++) {
        first[i] = fedge_rng_u64(&streams[i]);
        for (size_t j = 0; j < i; j++)
            assert_true(first[i] != first[j]);
    }
}

static void below_is_uniform(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 1, 0, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(fedge_rng_below(&rng, 1), 0);
    enum { BINS = 10, DRAWS = 100000, EXPECTED = DRAWS / BINS };
    uint32_t counts[BINS] = {0};
    for (int i = 0; i < DRAWS; i++)
        counts[fedge_rng_below(&rng, BINS)]++;
    double chi_squared = 0.0;
    for (int i = 0; i < BINS; i++) {
        double difference = (double)counts[i] - EXPECTED;
        chi_squared += difference * difference / EXPECTED;
    }
    assert_true(chi_squared < 27.88); /* 9 degrees of freedom, p = 0.001 */

    /* Without rejection the multiples of 3 below this bound would come twice as often. */
    uint32_t thirds[3] = {0};
    for (int i = 0; i < DRAWS; i++)
        thirds[fedge_rng_below(&rng, 3u << 30) % 3]++;
    for (int i = 0; i < 3; i++)
        assert_true(fabs((double)thirds[i] / DRAWS - 1.0 / 3.0) < 0.01);
}

static void uniforms_stay_in_the_unit_interval(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(4, FEDGE_PURPOSE_TEST, 0, 0, 0);
    double sum_float = 0.0, sum_double = 0.0, sum_of_squares = 0.0;
    const int draws = 200000;
    for (int i = 0; i < draws; i++) {
        float f = fedge_rng_float(&rng);
        double d = fedge_rng_double(&rng);
        assert_true(f >= 0.0f && f < 1.0f && d >= 0.0 && d < 1.0);
        sum_float += (double)f;
        sum_double += d;
        sum_of_squares += d * d;
    }
    assert_true(fabs(sum_float / draws - 0.5) < 0.003); /* 4.6 standard errors */
    assert_true(fabs(sum_double / draws - 0.5) < 0.003);
    assert_true(fabs(sum_of_squares / draws - 1.0 / 3.0) < 0.003);
}

static void normals_have_their_moments(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 0, 0, 0);
    const int draws = 200000;
    double moments[5] = {0};
    int within_one = 0;
    for (int i = 0; i < draws; i++) {
        double x = fedge_rng_normal(&rng);
        assert_true(isfinite(x));
        for (int k = 1; k <= 4; k++)
            moments[k] += pow(x, k) / draws;
        within_one += fabs(x) < 1.0 ? 1 : 0;
    }
    assert_true(fabs(moments[1]) < 0.012);
    assert_true(fabs(moments[2] - 1.0) < 0.02);
    assert_true(fabs(moments[3]) < 0.05);
    assert_true(fabs(moments[4] - 3.0) < 0.15);
    assert_true(fabs((double)within_one / draws - 0.6826895) < 0.005);
}

static void gammas_have_mean_and_variance_of_their_shape(void **state)
{
    (void)state;
    static const double shapes[] = {0.1, 0.5, 1.0, 2.5, 40.0};
    const int draws = 200000;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        fedge_rng rng = fedge_rng_stream(6, FEDGE_PURPOSE_TEST, (uint32_t)s, 0, 0);
        double sum = 0.0, sum_of_squares = 0.0;
        for (int i = 0; i < draws; i++) {
            double x = fedge_rng_gamma(&rng, shapes[s]);
            assert_true(isfinite(x) && x >= 0.0);
            sum += x;
            sum_of_squares += x * x;
        }
        double mean = sum / draws;
        double variance = sum_of_squares / draws - mean * mean;
        assert_true(fabs(mean / shapes[s] - 1.0) < 0.04);
        assert_true(fabs(variance / shapes[s] - 1.0) < 0.08);
    }
}

static void shuffles_are_fair_permutations(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(7, FEDGE_PURPOSE_TEST, 0, 0, 0);
    uint32_t places[4][4] = {{0}}; /* how often item i came to place j */
    const int rounds = 40000;
    for (int r = 0; r < rounds; r++) {
        uint32_t items[4] = {0, 1, 2, 3};
        fedge_rng_shuffle(&rng, items, 4);
        uint32_t seen = 0;
        for (uint32_t j = 0; j < 4; j++) {
            seen |= 1u << items[j];
            places[items[j]][j]++;
        }
        assert_int_equal(seen, 0xF);
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++)
            assert_true(fabs((double)places[i][j] / rounds - 0.25) < 0.012);
    }
    uint32_t one = 5;
    fedge_rng before = rng;
    fedge_rng_shuffle(&rng, &one, 1);
    fedge_rng_shuffle(&rng, NULL, 0);
    assert_int_equal(one, 5);
    assert_memory_equal(&rng, &before, sizeof(rng));
}

/* The draws of a stream are a contract: a change of any of them changes every seeded run. */
static void draws_are_pinned(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(42, FEDGE_PURPOSE_TEST, 1, 2, 3);
    uint32_t items[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    fedge_rng_shuffle(&rng, items, 8);
    const uint32_t expected[8] = {3, 5, 7, 1, 6, 0, 4, 2};
    assert_memory_equal(items, expected, sizeof(items));
    assert_int_equal(fedge_rng_below(&rng, 1000), 242);
    assert_true(fedge_rng_float(&rng) == 0x1.eb2cc80000000p-1f);
    assert_true(fedge_rng_double(&rng) == 0x1.e9fc5f7d44c34p-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(a_stream_is_philox_over_its_name),
        cmocka_unit_test(every_part_of_the_name_counts),
        cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(uniforms_stay_in_the_unit_interval),
        cmocka_unit_test(normals_have_their_moments),
        cmocka_unit_test(gammas_have_mean_and_variance_of_their_shape),
        cmocka_unit_test(shuffles_are_fair_permutations),
        cmocka_unit_test(draws_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
