/* Random nets of all layers: the plan is exact and enough, and memory is used in its time only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/random_net.h"
#include "tests/edge/train/support.h"

#define NETS 1500

static void test_nets(void **state)
{
    (void)state;
    static random_net net;
    unsigned seen[FEDGE_LAYER_COUNT] = {0}, valid = 0;
    for (uint32_t i = 0; i < NETS; i++) {
        net_bytes from = net_bytes_of((const uint8_t *)&i, sizeof i);
        from.at = sizeof i; /* all from the numbers that follow */
        random_net_make(&from, &net);
        const char *wrong = random_net_check(&from, &net);
        if (wrong != NULL) {
            fail_msg("net %u: %s", (unsigned)i, wrong);
        }
        valid += !net.spoilt;
        for (uint32_t k = 0; !net.spoilt && k < net.spec.num_layers; k++) {
            seen[net.spec.layers[k].type]++;
        }
    }
    assert_true(valid > NETS / 2);
    for (int type = 0; type < FEDGE_LAYER_COUNT; type++) {
        if (seen[type] == 0) {
            fail_msg("no net had a %s: give its arguments a fit in random_net.c",
                     fedge_layer_type_name((fedge_layer_type)type));
        }
    }
}

/* A convolution, [activation] and pooling: is one bit per value kept in place of the output? */
static size_t saved_by(fedge_layer_type activation, fedge_layer_type behind)
{
    static fedge_model_spec spec;
    fedge_layer_memory layers[8];
    fedge_error err = {0};
    const fedge_model_options options = {.max_batch = 4, .training = true, .general = true};
    spec_input(&spec, 3, 1, 16, 16);
    spec_conv(&spec, 1, 8, 3, 1, 1);
    (void)spec_add(&spec, activation);
    if (behind == FEDGE_LAYER_MAXPOOL2D) {
        spec_pool(&spec, 2, 2, 0);
    } else {
        spec_conv(&spec, 8, 8, 2, 2, 0);
    }
    spec_flatten(&spec);
    spec_linear(&spec, 512, 3);
    assert_int_equal(fedge_model_layer_memory(&spec, &options, layers, &err), FEDGE_OK);
    return layers[1].saved;
}

static void test_masks(void **state)
{
    (void)state;
    const size_t values = (size_t)4 * 8 * 16 * 16;
    assert_int_equal(saved_by(FEDGE_LAYER_RELU, FEDGE_LAYER_MAXPOOL2D), values / 8);
    assert_int_equal(saved_by(FEDGE_LAYER_RELU6, FEDGE_LAYER_MAXPOOL2D), values / 8);
    assert_int_equal(saved_by(FEDGE_LAYER_LEAKYRELU, FEDGE_LAYER_MAXPOOL2D), values / 8);
    /* A convolution reads its input backward: it is kept as it is. */
    assert_int_equal(saved_by(FEDGE_LAYER_RELU, FEDGE_LAYER_CONV2D), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nets), cmocka_unit_test(test_masks)};
    return cmocka_run_group_tests_name("train nets", tests, NULL, NULL);
}
