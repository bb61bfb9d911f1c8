/* The layers that GPUs have, within the same bound of the CPU's, in every precision. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "tests/cuda/cohort_drawn.h"
#include "tests/edge/core/long.h"

#ifdef RACES
enum { LAYER_SEEDS = 6, QUICK_LAYER_SEEDS = 4 };
#else
enum { LAYER_SEEDS = 8, QUICK_LAYER_SEEDS = 4 };
#endif

static void layers_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    drawn_are_floats = false;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? LAYER_SEEDS : QUICK_LAYER_SEEDS);
         seed++) {
        static const enum drawn_family FAMILIES[] = {DRAWN_RESIDUAL, DRAWN_SEQUENCE, DRAWN_TEXT,
                                                     DRAWN_ENCODERS};
        drawn_family = FAMILIES[seed % 4];
        drawn_model(seed);
        drawn_train_on_cpu();
        drawn_train_on_gpu(seed, 1 + (uint32_t)seed % (CLIENTS + 1));
        drawn_compare(seed);
    }
    drawn_family = DRAWN_PLAIN;
}

/* Every kind of window, with an optimizer of its own. */
static void windows_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    drawn_are_floats = false;
    drawn_family = DRAWN_SIGNAL;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 16 : 2); seed++) {
        drawn_model(seed);
        drawn_train_on_cpu();
        drawn_train_on_gpu(seed, 3);
        drawn_compare(seed);
    }
    drawn_family = DRAWN_PLAIN;
}

/* Of one output, whose target is the label, and of several. */
static void losses_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    static const fedge_loss_type LOSSES[] = {FEDGE_LOSS_BCE_WITH_LOGITS, FEDGE_LOSS_MSE,
                                             FEDGE_LOSS_L1, FEDGE_LOSS_HUBER};
    drawn_are_floats = false;
    static const uint64_t SOME[] = {0, 3, 5, 6};
    for (uint64_t i = 0; i < (fedge_test_is_long() ? 8 : 4); i++) {
        const uint64_t seed = fedge_test_is_long() ? i : SOME[i];
        drawn_loss = LOSSES[seed % 4];
        drawn_outputs = seed < 4 ? 1 : CLASSES;
        drawn_model(2 * seed); /* without convolutions */
        drawn_train_on_cpu();
        drawn_train_on_gpu(seed, 2);
        drawn_compare(seed);
    }
    drawn_loss = FEDGE_LOSS_CROSS_ENTROPY;
    drawn_outputs = CLASSES;
}

static double distance(float of[CLIENTS][MAX_VALUES], float from[CLIENTS][MAX_VALUES])
{
    double largest = 0.0, most = 0.0;
    for (uint32_t c = 0; c < CLIENTS; c++) {
        for (size_t i = 0; i < drawn_num_values; i++) {
            largest = fmax(largest, fabs((double)from[c][i]));
            most = fmax(most, fabs((double)of[c][i] - (double)from[c][i]));
        }
    }
    return most / largest;
}

/* Where factors are rounded, results are near the CPU's in bf16 and near fp32's in tf32, but not
 * those of fp32; slots do not show. */
static void factors_are_rounded(void **state)
{
    (void)state;
    static float in_fp32[CLIENTS][MAX_VALUES], alone[CLIENTS][MAX_VALUES];
    static const fedge_precision PRECISIONS[] = {FEDGE_PRECISION_BF16, FEDGE_PRECISION_TF32};
    static const double BOUNDS[] = {2e-3, 1e-3}, LEAST[] = {1e-4, 1e-5};
    drawn_are_floats = false;
    for (uint64_t seed = fedge_test_is_long() ? 0 : 1; seed < 3; seed++) {
        drawn_family = seed < 2 ? DRAWN_PLAIN : DRAWN_ENCODERS;
        drawn_model(seed);
        drawn_train_on_gpu(1, 3);
        memcpy(in_fp32, drawn_trained, sizeof(drawn_trained));
        drawn_options.precision = PRECISIONS[seed % 2];
        drawn_train_on_cpu(); /* which has fp32 in place of tf32 */
        drawn_train_on_gpu(1, 1);
        memcpy(alone, drawn_trained, sizeof(drawn_trained));
        drawn_train_on_gpu(2, 3);
        assert_memory_equal(alone, drawn_trained, sizeof(alone));
        const double off = distance(drawn_trained, drawn_expected),
                     rounded = distance(drawn_trained, in_fp32);
        if (!(off <= BOUNDS[seed % 2] && rounded >= LEAST[seed % 2]))
            fail_msg("seed %u: %g from the CPU, %g from fp32", (unsigned)seed, off, rounded);
    }
    drawn_family = DRAWN_PLAIN;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(windows_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(losses_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(factors_are_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
