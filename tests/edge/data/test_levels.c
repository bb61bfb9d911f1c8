/* Normalised bytes: the bits of the formula, however they are made. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/data/dataset_load.h"

#define TRIALS 3000
#define MOST 200u    /* bytes read at a time */
#define BEFORE 3.25f /* where nothing may be written */

static const unsigned FEATURES[] = {0, FEDGE_CPU_AVX2, FEDGE_CPU_AVX2 | FEDGE_CPU_AVX512};

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static void check(float divide_by, float mean, float std, unsigned features, fedge_rng *rng)
{
    fedge_levels levels;
    uint8_t v[MOST + 1], next[MOST];
    float x[MOST + 1];
    const uint32_t n = fedge_rng_below(rng, MOST + 1), shift = fedge_rng_below(rng, 2);
    for (uint32_t i = 0; i < n; i++)
        v[shift + i] = (uint8_t)fedge_rng_u32(rng);
    x[n] = BEFORE;
    fedge_levels_make(&levels, divide_by, mean, std, features);
    fedge_levels_read(&levels, v + shift, n, next, x);
    for (uint32_t i = 0; i < n; i++) {
        const float wanted = ((float)v[shift + i] / divide_by - mean) / std;
        if (bits_of(x[i]) != bits_of(wanted)) {
            fail_msg("%u as (v / %.9g - %.9g) / %.9g is %.9g, not %.9g", v[shift + i],
                     (double)divide_by, (double)mean, (double)std, (double)x[i], (double)wanted);
        }
    }
    assert_true(x[n] == BEFORE);
}

static void test_random_normalisations_are_exact(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < TRIALS; trial++) {
        for (size_t f = 0; f < sizeof(FEATURES) / sizeof(FEATURES[0]); f++) {
            if ((FEATURES[f] & ~fedge_os_cpu_features()) != 0)
                continue;
            const float range = fedge_rng_below(&rng, 2) ? 255.0f : 500.0f * fedge_rng_float(&rng);
            check(range > 0.0f ? range : 1.0f, 2.0f * fedge_rng_float(&rng) - 1.0f,
                  0.01f + fedge_rng_float(&rng), FEATURES[f], &rng);
        }
    }
}

/* Reciprocals that are no numbers, quotients that are none, and what needs no arithmetic at all. */
static void test_odd_normalisations_are_exact(void **state)
{
    (void)state;
    static const float ODD[][3] = {{1.0f, 0.0f, 1.0f},       {255.0f, 0.0f, 1.0f},
                                   {-255.0f, 0.0f, 1.0f},    {0x1p-140f, 0.0f, 1.0f},
                                   {0x1p127f, 0.0f, 1.0f},   {255.0f, 0.5f, 0x1p-149f},
                                   {255.0f, 0.5f, 0x1p127f}, {0x1p-126f, 3e38f, 0x1p-120f},
                                   {255.0f, -0.0f, 1.0f},    {3e38f, 1e-40f, 1e-30f}};
    fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int trial = 0; trial < 20; trial++) {
        for (size_t i = 0; i < sizeof(ODD) / sizeof(ODD[0]); i++)
            check(ODD[i][0], ODD[i][1], ODD[i][2], fedge_os_cpu_features(), &rng);
    }
}

/* The usual ones do not fall back on the table where there are vectors. */
static void test_usual_normalisations_are_fast(void **state)
{
    (void)state;
    static const float USUAL[][3] = {{255.0f, 0.0f, 1.0f},       {255.0f, 0.5f, 0.5f},
                                     {255.0f, 0.1307f, 0.3081f}, {255.0f, 0.286f, 0.353f},
                                     {255.0f, 0.4914f, 0.247f},  {255.0f, 0.4822f, 0.2435f},
                                     {255.0f, 0.4465f, 0.2616f}, {1.0f, 0.0f, 1.0f}};
    for (size_t i = 0; i < sizeof(USUAL) / sizeof(USUAL[0]); i++) {
        fedge_levels levels;
        fedge_levels_make(&levels, USUAL[i][0], USUAL[i][1], USUAL[i][2], fedge_os_cpu_features());
        assert_true(levels.read || (fedge_os_cpu_features() & FEDGE_CPU_AVX2) == 0);
    }
}

/* Each level has a way of its own, and none is taken that the machine may lack. */
static void test_the_level_decides_what_reads(void **state)
{
    (void)state;
    fedge_levels levels[3] = {{.mean = 0.0f}};
    for (size_t f = 0; f < sizeof(FEATURES) / sizeof(FEATURES[0]); f++) {
        if ((FEATURES[f] & ~fedge_os_cpu_features()) != 0)
            continue;
        fedge_levels_make(&levels[f], 255.0f, 0.5f, 0.5f, FEATURES[f]);
        assert_int_equal(levels[f].read != NULL, FEATURES[f] != 0);
        for (size_t lower = 0; lower < f; lower++)
            assert_true(levels[f].read != levels[lower].read);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_normalisations_are_exact),
        cmocka_unit_test(test_odd_normalisations_are_exact),
        cmocka_unit_test(test_usual_normalisations_are_fast),
        cmocka_unit_test(test_the_level_decides_what_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
