/* Pooling with every argument: gradients against finite differences in double precision, what is
 * refused, and what is kept for the backward pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/support.h"

#define SEED 17

static fedge_status check(const fedge_model_spec *spec, fedge_error *err)
{
    static fedge_tensor_spec tensors[64];
    fedge_schema schema;
    fedge_schema_init(&schema, tensors, 64);
    return fedge_model_schema(spec, &schema, err);
}

/* [type] behind a pointwise convolution of (2, 6, 7) to 3 channels, or a Linear of (3, 11). */
static fedge_layer_spec *begin(fedge_model_spec *spec, fedge_layer_type type)
{
    if (type == FEDGE_LAYER_MAXPOOL1D || type == FEDGE_LAYER_AVGPOOL1D) {
        spec_input(spec, 2, 3, 11, 0);
        spec_linear(spec, 11, 11);
    } else {
        spec_input(spec, 3, 2, 6, 7);
        spec_conv(spec, 2, 3, 1, 1, 0);
    }
    return spec_add(spec, type);
}

/* Random arguments; a stride of 0 is the kernel's. */
static void draw(fedge_rng *rng, fedge_layer_spec *layer)
{
    uint32_t kernel[2], stride[2], padding[2], dilation[2];
    const bool ceil_mode = fedge_rng_below(rng, 2) != 0;
    for (int i = 0; i < 2; i++) {
        kernel[i] = 1 + fedge_rng_below(rng, 4);
        stride[i] = fedge_rng_below(rng, 5);
        padding[i] = fedge_rng_below(rng, kernel[i]);
        dilation[i] = fedge_rng_below(rng, 4);
    }
    switch (layer->type) {
    case FEDGE_LAYER_MAXPOOL1D:
        layer->u.maxpool1d.kernel_size = kernel[0];
        layer->u.maxpool1d.stride = stride[0];
        layer->u.maxpool1d.padding = padding[0];
        layer->u.maxpool1d.dilation = dilation[0];
        layer->u.maxpool1d.ceil_mode = ceil_mode;
        break;
    case FEDGE_LAYER_AVGPOOL1D:
        layer->u.avgpool1d.kernel_size = kernel[0];
        layer->u.avgpool1d.stride = stride[0];
        layer->u.avgpool1d.padding = padding[0];
        layer->u.avgpool1d.ceil_mode = ceil_mode;
        layer->u.avgpool1d.count_include_pad = dilation[0] % 2 == 0;
        break;
    case FEDGE_LAYER_MAXPOOL2D:
        memcpy(layer->u.maxpool2d.kernel_size, kernel, sizeof(kernel));
        memcpy(layer->u.maxpool2d.stride, stride, sizeof(stride));
        memcpy(layer->u.maxpool2d.padding, padding, sizeof(padding));
        memcpy(layer->u.maxpool2d.dilation, dilation, sizeof(dilation));
        layer->u.maxpool2d.ceil_mode = ceil_mode;
        break;
    default:
        memcpy(layer->u.avgpool2d.kernel_size, kernel, sizeof(kernel));
        memcpy(layer->u.avgpool2d.stride, stride, sizeof(stride));
        memcpy(layer->u.avgpool2d.padding, padding, sizeof(padding));
        layer->u.avgpool2d.ceil_mode = ceil_mode;
        layer->u.avgpool2d.count_include_pad = dilation[0] % 2 == 0;
        layer->u.avgpool2d.divisor_override = dilation[1] == 3 ? 5 : 0;
        break;
    }
}

static void test_gradients(void **state)
{
    static const fedge_layer_type TYPES[] = {FEDGE_LAYER_MAXPOOL2D, FEDGE_LAYER_AVGPOOL2D,
                                             FEDGE_LAYER_MAXPOOL1D, FEDGE_LAYER_AVGPOOL1D};
    (void)state;
    for (uint32_t type = 0; type < 4; type++) {
        fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, type, 0, 0);
        unsigned fit = 0, ceiled = 0;
        for (int i = 0; i < 60; i++) {
            static fedge_model_spec spec;
            fedge_layer_spec *layer = begin(&spec, TYPES[type]);
            draw(&rng, layer);
            spec_flatten(&spec);
            if (check(&spec, NULL) == FEDGE_OK) {
                check_spec(&spec, 2, 6);
                fit++;
                ceiled += TYPES[type] == FEDGE_LAYER_MAXPOOL2D && layer->u.maxpool2d.ceil_mode;
            }
        }
        assert_true(fit >= 20 && (type > 0 || ceiled >= 8));
    }
}

static void test_adaptive_averages(void **state)
{
    (void)state;
    for (uint32_t rows = 1; rows <= 7; rows += 2) {
        static fedge_model_spec spec;
        fedge_layer_spec *pool = begin(&spec, FEDGE_LAYER_ADAPTIVEAVGPOOL2D);
        pool->u.adaptiveavgpool2d.output_size[0] = rows;
        pool->u.adaptiveavgpool2d.output_size[1] = 4;
        spec_flatten(&spec);
        spec_linear(&spec, 3 * rows * 4, 3);
        check_spec(&spec, 2, 40);
    }
}

/* Windows of over 256 places: their maxima take two bytes, and lead back to where they were. */
static void test_wide_windows(void **state)
{
    (void)state;
    for (uint32_t side = 16; side <= 17; side++) {
        static fedge_model_spec spec;
        fedge_layer_memory layers[4];
        const fedge_model_options options = {.max_batch = 64, .training = true, .general = true};
        spec_input(&spec, 3, 1, side + 1, side + 1);
        spec_conv(&spec, 1, 2, 1, 1, 0);
        spec_pool(&spec, side, 1, 0);
        spec_flatten(&spec);
        spec_linear(&spec, 2 * 2 * 2, 3);
        check_spec(&spec, 3, 40);
        assert_int_equal(fedge_model_layer_memory(&spec, &options, layers, NULL), FEDGE_OK);
        assert_int_equal(layers[1].saved, 64 * 8 * (side == 16 ? 1 : 2));
    }
}

static void refuse(const fedge_model_spec *spec, const char *words)
{
    fedge_error err = {0};
    assert_int_not_equal(check(spec, &err), FEDGE_OK);
    if (!strstr(err.message, words) || !strstr(err.message, "layer 1 (MaxPool"))
        fail_msg("'%s' is not in: %s", words, err.message);
}

static void test_refused(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_layer_spec *layer = begin(&spec, FEDGE_LAYER_MAXPOOL1D);
    spec_flatten(&spec);
    layer->u.maxpool1d.kernel_size = 12;
    refuse(&spec, "kernel_size 12");
    layer->u.maxpool1d.ceil_mode = true;
    layer->u.maxpool1d.stride = 1;
    refuse(&spec, "kernel_size 12"); /* one place more than there are, not less than a stride */
    layer->u.maxpool1d.stride = 2;
    assert_int_equal(check(&spec, NULL), FEDGE_OK);
    layer->u.maxpool1d.kernel_size = 3;
    layer->u.maxpool1d.padding = 2;
    refuse(&spec, "padding 2 is over half of kernel_size 3");
    layer->u.maxpool1d.dilation = 2; /* whatever the places are apart */
    refuse(&spec, "padding 2 is over half of kernel_size 3");
    layer->u.maxpool1d.kernel_size = 2;
    layer->u.maxpool1d.padding = 1;
    layer->u.maxpool1d.dilation = 11;
    layer->u.maxpool1d.stride = 1;
    layer->u.maxpool1d.ceil_mode = false;
    assert_int_equal(check(&spec, NULL), FEDGE_OK);
    layer->u.maxpool1d.dilation = 12;
    refuse(&spec, "dilation 12 leaves window 0 along the length without a place in the input's 11");
    layer = begin(&spec, FEDGE_LAYER_MAXPOOL2D);
    layer->u.maxpool2d.kernel_size[0] = 257;
    layer->u.maxpool2d.kernel_size[1] = 256;
    refuse(&spec, "257 × 256 is over the limit of 65536 places");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_adaptive_averages),
        cmocka_unit_test(test_wide_windows),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
