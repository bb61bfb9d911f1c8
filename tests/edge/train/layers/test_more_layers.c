/* Layers that small builds leave out: gradients against finite differences in double precision, and
 * what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/support.h"

/* Flatten, and a Linear to three outputs. */
static void close_with(fedge_model_spec *spec, uint32_t features)
{
    spec_flatten(spec);
    spec_linear(spec, features, 3);
}

/* [layer] behind a pointwise convolution of (2, 6, 7) to [channels]. */
static fedge_layer_spec *image_case(fedge_model_spec *spec, uint32_t channels,
                                    fedge_layer_type type)
{
    spec_input(spec, 3, 2, 6, 7);
    spec_conv(spec, 2, channels, 1, 1, 0);
    return spec_add(spec, type);
}

/* The model is refused with each of the words in the message. */
static void refuse(const fedge_model_spec *spec, const char *word, const char *number)
{
    fedge_error err = {0};
    fedge_model_memory memory;
    const fedge_model_options options = {.max_batch = 4, .training = true, .general = true};
    assert_true(fedge_model_size(spec, &options, &memory, &err) != FEDGE_OK);
    if (!strstr(err.message, word) || !strstr(err.message, number))
        fail_msg("\"%s\" and \"%s\" are not in: %s", word, number, err.message);
}

static void test_activations(void **state)
{
    (void)state;
    static const fedge_layer_type types[] = {FEDGE_LAYER_HARDSWISH, FEDGE_LAYER_HARDSIGMOID,
                                             FEDGE_LAYER_ELU, FEDGE_LAYER_SOFTPLUS};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        for (int option = 0; option < 2; option++) {
            fedge_model_spec spec;
            spec_input(&spec, 1, 9, 0, 0);
            spec_linear(&spec, 9, 350);
            fedge_layer_spec *layer = spec_add(&spec, types[i]);
            if (types[i] == FEDGE_LAYER_ELU)
                layer->u.elu.alpha = option ? 0.6f : 1.0f;
            else if (types[i] == FEDGE_LAYER_SOFTPLUS)
                layer->u.softplus.beta = option ? 2.0f : 1.0f;
            if (types[i] == FEDGE_LAYER_SOFTPLUS)
                layer->u.softplus.threshold = 20.0f;
            if (option) { /* which needs the array that the layer may have changed */
                spec_add(&spec, FEDGE_LAYER_SILU);
            }
            spec_linear(&spec, 350, 3);
            check_spec(&spec, 5, 40);
        }
    }
}

static void test_prelu(void **state)
{
    (void)state;
    for (uint32_t weights = 1; weights <= 4; weights += 3) {
        fedge_model_spec spec;
        image_case(&spec, 4, FEDGE_LAYER_PRELU)->u.prelu.num_parameters = weights;
        spec.layers[1].u.prelu.init = 0.25f;
        close_with(&spec, 4 * 42);
        check_spec(&spec, 3, 40);
    }
    fedge_model_spec spec;
    image_case(&spec, 4, FEDGE_LAYER_PRELU)->u.prelu.num_parameters = 3;
    refuse(&spec, "num_parameters is 3", "1 or 4");
}

/* Each dimension, counted from either end. */
static void test_halves_and_softmax(void **state)
{
    (void)state;
    for (int32_t dim = -3; dim <= 3; dim++) {
        if (dim == 0)
            continue;
        fedge_model_spec spec;
        spec_input(&spec, 3, 2, 6, 8);
        spec_conv(&spec, 2, 4, 1, 1, 0);
        spec_add(&spec, FEDGE_LAYER_GLU)->u.glu.dim = dim;
        close_with(&spec, 4 * 6 * 8 / 2);
        check_spec(&spec, 3, 40);
        image_case(&spec, 4, FEDGE_LAYER_SOFTMAX)->u.softmax.dim = dim;
        close_with(&spec, 4 * 42);
        check_spec(&spec, 3, 40);
    }
    fedge_model_spec spec;
    spec_input(&spec, 1, 9, 0, 0);
    spec_linear(&spec, 9, 700);
    spec_add(&spec, FEDGE_LAYER_GLU)->u.glu.dim = 1;
    spec_add(&spec, FEDGE_LAYER_SOFTMAX)->u.softmax.dim = -1;
    spec_linear(&spec, 350, 3);
    check_spec(&spec, 3, 40);
    spec_input(&spec, 1, 9, 0, 0);
    spec_add(&spec, FEDGE_LAYER_GLU)->u.glu.dim = 1;
    refuse(&spec, "GLU", "is 9, which has no halves");
    spec.layers[0].type = FEDGE_LAYER_SOFTMAX;
    spec.layers[0].u.softmax.dim = 2;
    refuse(&spec, "Softmax", "dim 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_prelu),
        cmocka_unit_test(test_halves_and_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
