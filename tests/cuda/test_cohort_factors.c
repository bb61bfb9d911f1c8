/* Products of low rank, layers that stay as they are, and factors that are rounded. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "tests/cuda/cohort_drawn.h"
#include "tests/edge/core/long.h"

static void adaptations_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 12 : 3); seed++)
        drawn_agree(DRAWN_ADAPTED, seed, 2 + (uint32_t)seed % 3);
}

/* What nobody trains keeps its bits. */
static void the_base_stays(void **state)
{
    (void)state;
    drawn_family = DRAWN_ADAPTED;
    drawn_model(2);
    drawn_train_on_gpu(2, 2);
    drawn_family = DRAWN_PLAIN;
    const size_t frozen = 9 * (MOST / SIDE) + 9;
    for (uint32_t c = 0; c < CLIENTS; c++) {
        assert_memory_equal(drawn_trained[c], drawn_start, frozen * sizeof(float));
        assert_memory_not_equal(drawn_trained[c], drawn_start, drawn_num_values * sizeof(float));
    }
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
    static const double BOUNDS[] = {2e-3, 1e-3}, LEAST[] = {5e-5, 1e-5};
    drawn_are_floats = false;
    for (uint64_t seed = fedge_test_is_long() ? 0 : 1; seed < 3; seed++) {
        drawn_family = seed < 2 ? DRAWN_PLAIN : DRAWN_ENCODERS;
        drawn_model(seed);
        if (!fedge_test_is_long())
            drawn_training.local_steps = seed == 1 ? 2 : 1;
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

/* Each of so many layers has a bias that is trained, behind a weight that is not. */
static void parts_that_are_trained_are_counted(void **state)
{
    (void)state;
    enum { MOST_PARTS = 64 };
    static fedge_model_spec spec;
    drawn_model(0);
    spec = (fedge_model_spec){.input_rank = 1, .input_shape = {2}};
    for (uint32_t i = 0; i <= MOST_PARTS; i++) {
        spec.layers[i] = (fedge_layer_spec){
            .type = FEDGE_LAYER_LINEAR, .train = FEDGE_TRAIN_BIAS, .u.linear = {2, 2, true, 0, 0}};
    }
    fedge_cohort_config config = drawn_config_of(1);
    fedge_cohort_memory memory;
    fedge_error err;
    config.model = &spec;
    spec.num_layers = MOST_PARTS;
    assert_int_equal(fedge_cohort_bytes(&config, &memory, &err), FEDGE_OK);
    spec.num_layers++;
    assert_int_equal(fedge_cohort_bytes(&config, &memory, &err), FEDGE_UNSUPPORTED);
    assert_string_equal(err.message,
                        "layer 64 (Linear \"64\"): with it over 64 stretches of values are trained "
                        "that frozen ones part, and GPUs take no more: freeze neighbours alike, or "
                        "take --engine cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adaptations_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(the_base_stays),
        cmocka_unit_test(parts_that_are_trained_are_counted),
        cmocka_unit_test(factors_are_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
