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

/* Two branches of a model of one pointwise convolution each, joined by [type]. */
static fedge_layer_spec *join_case(fedge_model_spec *spec, fedge_layer_type type, uint32_t first,
                                   uint32_t second)
{
    spec_input(spec, 3, 2, 5, 7);
    spec_conv(spec, 2, first, 1, 1, 0);
    fedge_layer_spec *layer = spec_conv(spec, 2, second, 1, 1, 0);
    layer->num_inputs = 1;
    layer->inputs[0] = FEDGE_INPUT_MODEL;
    layer = spec_add(spec, type);
    layer->num_inputs = 2;
    layer->inputs[0] = 0;
    layer->inputs[1] = 1;
    return layer;
}

static void test_products(void **state)
{
    (void)state;
    fedge_model_spec spec;
    join_case(&spec, FEDGE_LAYER_MUL, 4, 4);
    close_with(&spec, 4 * 35);
    check_spec(&spec, 3, 40);
    fedge_layer_spec *mul = join_case(&spec, FEDGE_LAYER_MUL, 4, 1); /* one channel for all */
    close_with(&spec, 4 * 35);
    check_spec(&spec, 3, 40);
    mul->num_inputs = 4; /* one of them twice, and the order the other way round */
    mul->inputs[0] = 1;
    mul->inputs[1] = 0;
    mul->inputs[2] = 0;
    mul->inputs[3] = 1;
    check_spec(&spec, 3, 40);
    join_case(&spec, FEDGE_LAYER_MUL, 4, 3);
    close_with(&spec, 4 * 35);
    refuse(&spec, "layer 2 (Mul", "input 0 is [4, 5, 7] but input 1 is [3, 5, 7]");
    /* Squeeze-and-excitation: channels scaled by one number each. */
    spec_input(&spec, 3, 2, 18, 19);
    spec_conv(&spec, 2, 4, 1, 1, 0);
    fedge_layer_spec *pool = spec_add(&spec, FEDGE_LAYER_ADAPTIVEAVGPOOL2D);
    pool->u.adaptiveavgpool2d.output_size[0] = pool->u.adaptiveavgpool2d.output_size[1] = 1;
    spec_conv(&spec, 4, 4, 1, 1, 0);
    spec_add(&spec, FEDGE_LAYER_SIGMOID);
    mul = spec_add(&spec, FEDGE_LAYER_MUL);
    mul->num_inputs = 2;
    mul->inputs[0] = 0;
    mul->inputs[1] = 3;
    close_with(&spec, 4 * 18 * 19);
    check_spec(&spec, 3, 40);
}

static void test_concat(void **state)
{
    (void)state;
    fedge_model_spec spec;
    for (int32_t dim = -3; dim <= 3; dim++) {
        if (dim == 0)
            continue;
        const bool channels = dim == 1 || dim == -3;
        join_case(&spec, FEDGE_LAYER_CONCAT, 4, channels ? 3 : 4)->u.concat.dim = dim;
        close_with(&spec, (channels ? 7 : 8) * 35);
        check_spec(&spec, 3, 40);
    }
    join_case(&spec, FEDGE_LAYER_CONCAT, 4, 3)->u.concat.dim = 2;
    close_with(&spec, 7 * 35);
    refuse(&spec, "input 1 is [3, 5, 7]", "dim 2 alone");
}

static void test_rms_norm(void **state)
{
    (void)state;
    static const uint32_t shape[3] = {4, 6, 7};
    for (uint32_t rank = 1; rank <= 3; rank++) {
        fedge_model_spec spec;
        fedge_layer_spec *layer = image_case(&spec, 4, FEDGE_LAYER_RMSNORM);
        memcpy(layer->u.rmsnorm.normalized_shape, shape + 3 - rank, rank * sizeof(shape[0]));
        layer->u.rmsnorm.rank = rank;
        layer->u.rmsnorm.eps = 0.01f;
        layer->u.rmsnorm.elementwise_affine = rank != 2;
        close_with(&spec, 4 * 42);
        check_spec(&spec, 3, 40);
    }
}

static void test_batch_norm_1d(void **state)
{
    (void)state;
    fedge_model_spec spec;
    for (int option = 0; option < 8; option++) {
        const bool sequence = option >= 4;
        spec_input(&spec, sequence ? 2 : 1, sequence ? 4 : 9, sequence ? 9 : 0, 0);
        spec_linear(&spec, 9, sequence ? 5 : 35);
        fedge_layer_spec *layer = spec_add(&spec, FEDGE_LAYER_BATCHNORM1D);
        layer->u.batchnorm2d.num_features = sequence ? 4 : 35;
        layer->u.batchnorm2d.eps = 0.01f;
        layer->u.batchnorm2d.momentum = 0.1f;
        layer->u.batchnorm2d.affine = option % 4 != 1;
        layer->u.batchnorm2d.track_running_stats = option % 4 != 2;
        layer->u.batchnorm2d.frozen = option % 4 == 3;
        if (option % 2) { /* which the norm absorbs */
            spec_add(&spec, FEDGE_LAYER_RELU);
        }
        close_with(&spec, sequence ? 20 : 35);
        check_spec(&spec, 5, 40);
    }
    (void)image_case(&spec, 4, FEDGE_LAYER_BATCHNORM1D);
    refuse(&spec, "BatchNorm1d takes", "BatchNorm2d takes [channels, height, width]");
}

static void test_upsample(void **state)
{
    (void)state;
    for (int option = 0; option < 6; option++) { /* each mode by a factor, and to a size */
        fedge_model_spec spec;
        fedge_layer_spec *layer = image_case(&spec, 3, FEDGE_LAYER_UPSAMPLE);
        layer->u.upsample.mode = option % 3 == 0 ? 0 : 2;
        layer->u.upsample.align_corners = option % 3 == 2;
        uint32_t *sides = option < 3 ? layer->u.upsample.scale_factor : layer->u.upsample.size;
        sides[0] = option < 3 ? 2 : 9;
        sides[1] = option < 3 ? 3 : 5;
        close_with(&spec, option < 3 ? 3 * 12 * 21 : 3 * 9 * 5);
        check_spec(&spec, 3, 40);
        spec_input(&spec, 2, 3, 8, 0);
        spec_linear(&spec, 8, 8);
        layer = spec_add(&spec, FEDGE_LAYER_UPSAMPLE);
        layer->u.upsample.mode = option % 3 == 0 ? 0 : 1;
        layer->u.upsample.align_corners = option % 3 == 2;
        sides = option < 3 ? layer->u.upsample.scale_factor : layer->u.upsample.size;
        sides[0] = sides[1] = option < 3 ? 2 : 11;
        close_with(&spec, option < 3 ? 3 * 16 : 3 * 11);
        check_spec(&spec, 3, 40);
    }
    fedge_model_spec spec;
    fedge_layer_spec *layer = image_case(&spec, 3, FEDGE_LAYER_UPSAMPLE);
    refuse(&spec, "Upsample", "neither size nor scale_factor");
    layer->u.upsample.scale_factor[0] = layer->u.upsample.scale_factor[1] = 2;
    layer->u.upsample.mode = 1;
    refuse(&spec, "mode linear", "take nearest or bilinear");
    layer->u.upsample.mode = 0;
    layer->u.upsample.align_corners = true;
    refuse(&spec, "align_corners", "remove it");
    layer->u.upsample.align_corners = false;
    layer->u.upsample.scale_factor[1] = 60000;
    refuse(&spec, "width would be 420000", "65536");
}

/* Output padding, dilation, groups, depthwise, a pointwise kernel, and gaps that no tap reaches. */
static void test_transposed(void **state)
{
    (void)state;
    /* in, out, kernel, stride, padding, output_padding, dilation, groups */
    static const uint32_t cases[][8] = {{4, 3, 2, 2, 0, 0, 1, 1}, {4, 6, 3, 2, 1, 1, 1, 1},
                                        {4, 6, 3, 1, 0, 0, 2, 2}, {4, 4, 3, 2, 1, 0, 1, 4},
                                        {8, 5, 1, 1, 0, 0, 1, 1}, {4, 2, 2, 3, 0, 2, 1, 1},
                                        {16, 8, 4, 2, 1, 0, 1, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t *c = cases[i];
        fedge_model_spec spec;
        fedge_layer_spec *layer = image_case(&spec, c[0], FEDGE_LAYER_CONVTRANSPOSE2D);
        layer->u.convtranspose2d.in_channels = c[0];
        layer->u.convtranspose2d.out_channels = c[1];
        for (int k = 0; k < 2; k++) {
            layer->u.convtranspose2d.kernel_size[k] = c[2];
            layer->u.convtranspose2d.stride[k] = c[3];
            layer->u.convtranspose2d.padding[k] = c[4];
            layer->u.convtranspose2d.output_padding[k] = c[5];
            layer->u.convtranspose2d.dilation[k] = c[6];
        }
        layer->u.convtranspose2d.groups = c[7];
        layer->u.convtranspose2d.bias = i % 2 == 0;
        const uint32_t more = c[6] * (c[2] - 1) + c[5] + 1 - 2 * c[4];
        close_with(&spec, c[1] * (5 * c[3] + more) * (6 * c[3] + more));
        check_spec(&spec, 3, 40);
        spec_input(&spec, 2, c[0], 9, 0);
        spec_linear(&spec, 9, 9);
        layer = spec_add(&spec, FEDGE_LAYER_CONVTRANSPOSE1D);
        layer->u.convtranspose1d.in_channels = c[0];
        layer->u.convtranspose1d.out_channels = c[1];
        layer->u.convtranspose1d.kernel_size = c[2];
        layer->u.convtranspose1d.stride = c[3];
        layer->u.convtranspose1d.padding = c[4];
        layer->u.convtranspose1d.output_padding = c[5];
        layer->u.convtranspose1d.dilation = c[6];
        layer->u.convtranspose1d.groups = c[7];
        layer->u.convtranspose1d.bias = i % 2 != 0;
        close_with(&spec, c[1] * (8 * c[3] + more));
        check_spec(&spec, 3, 40);
        layer->u.convtranspose1d.output_padding = c[3];
        refuse(&spec, "output_padding", "less than the stride");
    }
}

static void test_causal(void **state)
{
    (void)state;
    /* channels, kernel, stride, dilation, groups */
    static const uint32_t cases[][5] = {{4, 3, 1, 1, 1}, {4, 2, 1, 4, 1},  {8, 3, 2, 2, 2},
                                        {4, 5, 1, 1, 4}, {16, 3, 1, 8, 1}, {4, 1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t *c = cases[i];
        fedge_model_spec spec;
        spec_input(&spec, 2, c[0], 13, 0);
        spec_linear(&spec, 13, 13);
        fedge_layer_spec *layer = spec_add(&spec, FEDGE_LAYER_CONV1D);
        layer->u.conv1d.in_channels = layer->u.conv1d.out_channels = c[0];
        layer->u.conv1d.kernel_size = c[1];
        layer->u.conv1d.stride = c[2];
        layer->u.conv1d.dilation = c[3];
        layer->u.conv1d.groups = c[4];
        layer->u.conv1d.bias = i % 2 == 0;
        layer->u.conv1d.causal = true;
        close_with(&spec, c[0] * (12 / c[2] + 1));
        check_spec(&spec, 3, 40);
        layer->u.conv1d.padding = 1;
        refuse(&spec, "Conv1d", "remove padding 1");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_prelu),
        cmocka_unit_test(test_halves_and_softmax),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_batch_norm_1d),
        cmocka_unit_test(test_upsample),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_causal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
