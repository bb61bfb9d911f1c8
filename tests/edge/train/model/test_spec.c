/* Descriptions of models: schemas, initial values, and every way a description can be wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/support.h"

static void mcmahan(fedge_model_spec *spec)
{
    spec_input(spec, 3, 1, 28, 28);
    spec_conv(spec, 1, 32, 5, 1, 2);
    spec_relu(spec);
    spec_pool(spec, 2, 0, 0);
    spec_conv(spec, 32, 64, 5, 1, 2);
    spec_relu(spec);
    spec_pool(spec, 2, 0, 0);
    spec_flatten(spec);
    spec_linear(spec, 3136, 512);
    spec_relu(spec);
    spec_linear(spec, 512, 10);
}

static void test_schema(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_model_spec spec;
    fedge_tensor_spec tensors[8];
    fedge_schema schema;
    mcmahan(&spec);
    strcpy(spec.layers[7].name, "head.fc1");
    fedge_schema_init(&schema, tensors, 8);
    assert_int_equal(fedge_model_schema(&spec, &schema, &err), FEDGE_OK);
    assert_int_equal(schema.num_elements, 1663370);
    static const char *names[] = {"0.weight",        "0.bias",        "3.weight", "3.bias",
                                  "head.fc1.weight", "head.fc1.bias", "9.weight", "9.bias"};
    assert_int_equal(schema.num_tensors, 8);
    for (int i = 0; i < 8; i++)
        assert_string_equal(tensors[i].name, names[i]);
    char text[FEDGE_SHAPE_TEXT_SIZE];
    assert_string_equal(fedge_shape_text(tensors[2].rank, tensors[2].shape, text),
                        "[64, 32, 5, 5]");
    assert_string_equal(fedge_shape_text(tensors[4].rank, tensors[4].shape, text), "[512, 3136]");
    assert_string_equal(fedge_shape_text(tensors[5].rank, tensors[5].shape, text), "[512]");
    assert_int_equal(fedge_model_num_classes(&spec), 10);
    assert_int_equal(fedge_model_input_count(&spec), 784);
    assert_string_equal(fedge_layer_type_name(FEDGE_LAYER_MAXPOOL2D), "MaxPool2d");
    assert_null(fedge_layer_type_name(FEDGE_LAYER_COUNT));
}

/* Uniform in ±1/sqrt(fan_in): the mean within five standard errors, the variance bound²/3. */
static void test_initial_values(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_model_spec spec;
    fedge_tensor_spec tensors[8];
    fedge_schema schema;
    mcmahan(&spec);
    fedge_schema_init(&schema, tensors, 8);
    assert_int_equal(fedge_model_schema(&spec, &schema, &err), FEDGE_OK);
    float *values = malloc(schema.num_elements * sizeof(*values));
    float *again = malloc(schema.num_elements * sizeof(*again));
    assert_true(values && again);
    fedge_model_init_values(&spec, 5, values);
    static const double fan_in[] = {25, 25, 800, 800, 3136, 3136, 512, 512};
    for (uint32_t t = 0; t < 8; t++) {
        const double bound = 1.0 / sqrt(fan_in[t]), count = (double)tensors[t].count;
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < tensors[t].count; i++) {
            const double v = (double)values[tensors[t].offset + i];
            assert_true(fabs(v) <= bound * (1 + 1e-6));
            sum += v;
            squares += v * v;
        }
        assert_true(fabs(sum / count) <= 5.0 * bound / sqrt(3.0 * count));
        /* The variance of v² is 4/45 bound⁴. */
        assert_true(fabs(squares / count - bound * bound / 3.0) <=
                    5.0 * bound * bound * sqrt(4.0 / 45.0 / count));
    }
    fedge_model_init_values(&spec, 5, again);
    assert_memory_equal(values, again, schema.num_elements * sizeof(*values));
    fedge_model_init_values(&spec, 6, again);
    assert_memory_not_equal(values, again, schema.num_elements * sizeof(*values));
    free(again);
    free(values);
}

/* Both the schema and the plan refuse it, with this status and each of the words in the message. */
static void refuse(const fedge_model_spec *spec, fedge_status status, const char *word,
                   const char *number)
{
    fedge_error err = {0};
    fedge_tensor_spec tensors[8];
    fedge_schema schema;
    fedge_model_memory memory;
    const fedge_model_options options = {.max_batch = 4, .training = true};
    fedge_schema_init(&schema, tensors, 8);
    assert_int_equal(fedge_model_schema(spec, &schema, &err), status);
    if (!strstr(err.message, word) || !strstr(err.message, number))
        fail_msg("\"%s\" and \"%s\" are not in: %s", word, number, err.message);
    assert_int_equal(fedge_model_size(spec, &options, &memory, &err), status);
    if (!strstr(err.message, number))
        fail_msg("\"%s\" is not in: %s", number, err.message);
}

static void test_bad_inputs(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 1, 4, 0, 0);
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "layers", "0");
    spec_linear(&spec, 4, 2);
    spec.num_layers = FEDGE_MAX_LAYERS + 1;
    refuse(&spec, FEDGE_TOO_BIG, "layers", "257");
    spec.num_layers = 1;
    spec.input_rank = 0;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "input", "0");
    spec.input_rank = 4;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "input", "4");
    spec_input(&spec, 2, 4, 0, 0);
    spec_flatten(&spec);
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "input", "[4, 0]");
    spec_input(&spec, 3, 4000000000u, 4, 4);
    spec_flatten(&spec);
    refuse(&spec, FEDGE_TOO_BIG, "input", "4000000000");
    spec_input(&spec, 3, 1, 70000, 4);
    spec_flatten(&spec);
    refuse(&spec, FEDGE_TOO_BIG, "input", "65536");
}

static void test_bad_linear(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 1, 4, 0, 0);
    fedge_layer_spec *layer = spec_linear(&spec, 5, 2);
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "layer 0 (Linear \"0\")", "in_features is 5");
    layer->u.linear.in_features = 0;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "Linear", "in_features 0");
    layer->u.linear.in_features = 4;
    layer->u.linear.out_features = 0;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "Linear", "out_features 0");
    layer->u.linear.out_features = 2000000000;
    refuse(&spec, FEDGE_TOO_BIG, "Linear", "2000000000");
    spec.input_shape[0] = layer->u.linear.in_features = 400;
    layer->u.linear.out_features = 10000000; /* 4e9 weights */
    char limit[32];
    snprintf(limit, sizeof(limit), "%zu", FEDGE_MAX_ELEMENTS);
    refuse(&spec, FEDGE_TOO_BIG, "", limit);
    memset(layer->name, 'a', sizeof(layer->name));
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "layer 0", "63");
    spec_input(&spec, 2, 4, 4, 0);
    strcpy(spec_linear(&spec, 16, 2)->name, "head");
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "layer 0 (Linear \"head\")", "[4, 4]");
    spec.layers[0].u.linear.in_features = 4;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "the model's output", "[4, 2]");
}

/* Whole numbers come from the model's input alone. */
static void test_bad_embedding(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_schema schema;
    fedge_tensor_spec tensors[8];
    spec_input(&spec, 2, 4, 1, 0);
    spec_flatten(&spec);
    spec_flatten(&spec);
    fedge_layer_spec *layer = spec_add(&spec, FEDGE_LAYER_EMBEDDING);
    layer->u.embedding.num_embeddings = 3;
    layer->u.embedding.embedding_dim = 2;
    spec_flatten(&spec);
    spec_linear(&spec, 8, 2);
    fedge_schema_init(&schema, tensors, 8);
    assert_int_equal(fedge_model_schema(&spec, &schema, NULL), FEDGE_OK);
    spec.layers[1].type = FEDGE_LAYER_TANH;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "layer 2 (Embedding \"2\")",
           "whole numbers, which layer 1 does not give: give it the model's input");
    spec.layers[1].type = FEDGE_LAYER_FLATTEN;
    spec.layers[0].type = FEDGE_LAYER_RELU; /* behind the Flatten */
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "layer 2 (Embedding \"2\")", "layer 1 does not give");
}

static void test_bad_conv(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 3, 2, 5, 6);
    fedge_layer_spec *layer = spec_conv(&spec, 3, 4, 3, 1, 0);
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "layer 0 (Conv2d \"0\")", "in_channels is 3");
    layer->u.conv2d.in_channels = 2;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "output", "[4, 3, 4]");
    layer->u.conv2d.out_channels = 0;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "Conv2d", "out_channels 0");
    layer->u.conv2d.out_channels = 4;
    layer->u.conv2d.kernel_size[0] = 0;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "Conv2d", "kernel_size 0");
    layer->u.conv2d.kernel_size[0] = 6;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "height", "kernel_size 6");
    layer->u.conv2d.kernel_size[0] = 3;
    layer->u.conv2d.kernel_size[1] = 7;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "width", "kernel_size 7");
    layer->u.conv2d.kernel_size[1] = 3;
    layer->u.conv2d.stride[1] = 0;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "width", "stride 0");
    layer->u.conv2d.stride[1] = 1;
    layer->u.conv2d.padding[0] = 0xffffffffu;
    refuse(&spec, FEDGE_TOO_BIG, "height", "4294967295");
    layer->u.conv2d.padding[0] = layer->u.conv2d.padding[1] = 65536;
    refuse(&spec, FEDGE_TOO_BIG, "Conv2d", "padded input: height 131077 is over the limit");
    spec_input(&spec, 2, 1, 65536, 0);
    layer = spec_add(&spec, FEDGE_LAYER_CONV1D);
    layer->u.conv1d.in_channels = layer->u.conv1d.out_channels = 1;
    layer->u.conv1d.kernel_size = layer->u.conv1d.stride = layer->u.conv1d.dilation = 1;
    layer->u.conv1d.groups = layer->u.conv1d.padding = 1;
    refuse(&spec, FEDGE_TOO_BIG, "Conv1d", "padded input: length 65538 is over the limit of 65536");
    spec_input(&spec, 1, 8, 0, 0);
    spec_conv(&spec, 8, 4, 3, 1, 0);
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "Conv2d", "[8]");
    spec_input(&spec, 3, 1, 4, 4);
    spec_conv(&spec, 1, 4, 3, 1, 1);
    spec_conv(&spec, 4, 4, 3, 1, 0)->u.conv2d.padding[1] = 65536;
    spec_flatten(&spec);
    spec_linear(&spec, 7, 3);
    refuse(&spec, FEDGE_TOO_BIG, "layer 1 (Conv2d", "131");
}

static void test_bad_pool(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 3, 2, 40, 40);
    fedge_layer_spec *layer = spec_pool(&spec, 3, 0, 2);
    spec_flatten(&spec);
    spec_linear(&spec, 2, 2);
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "layer 0 (MaxPool2d \"0\")", "padding 2");
    layer->u.maxpool2d.padding[0] = layer->u.maxpool2d.padding[1] = 0;
    layer->u.maxpool2d.kernel_size[0] = 0;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "MaxPool2d", "kernel_size 0");
    layer->u.maxpool2d.kernel_size[0] = 41;
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "MaxPool2d", "kernel_size 41");
    layer->u.maxpool2d.kernel_size[0] = layer->u.maxpool2d.kernel_size[1] = 257;
    refuse(&spec, FEDGE_TOO_BIG, "257 × 257", "65536");
    spec_input(&spec, 2, 4, 4, 0);
    spec_pool(&spec, 2, 0, 0);
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "MaxPool2d", "[4, 4]");
}

/* An average needs no place in its window, which may be as large as the image. */
static void test_large_average(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_model_memory memory;
    fedge_model_spec spec;
    const fedge_model_options options = {.max_batch = 2, .training = true};
    spec_input(&spec, 3, 2, 40, 40);
    fedge_layer_spec *layer = spec_add(&spec, FEDGE_LAYER_AVGPOOL2D);
    layer->u.avgpool2d.kernel_size[0] = layer->u.avgpool2d.kernel_size[1] = 40;
    spec_flatten(&spec);
    spec_linear(&spec, 2, 2);
    if (fedge_model_size(&spec, &options, &memory, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
}

/* Whichever way it would run: the layer is named. */
static void test_too_many_weights(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_error err = {0};
    fedge_model_memory memory;
    spec_input(&spec, 3, 64, 256, 256);
    strcpy(spec_conv(&spec, 64, 65536, 64, 64, 0)->name, "stem");
    spec_relu(&spec);
    spec_flatten(&spec);
    spec_linear(&spec, 65536 * 16, 2);
    for (int general = 0; general < 2; general++) {
        const fedge_model_options options = {
            .max_batch = 1, .training = true, .general = general == 1};
        assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_TOO_BIG);
        if (!strstr(err.message, "layer 0 (Conv2d"))
            fail_msg("%s", err.message);
    }
}

/* An array of more bytes than can be planned, alone in its arena. */
static void test_too_many_bytes(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_error err = {0};
    fedge_model_memory memory;
    spec_input(&spec, 3, 1, 32768, 32768);
    spec_add(&spec, FEDGE_LAYER_BATCHNORM2D)->u.batchnorm2d.num_features = 1;
    spec.layers[0].u.batchnorm2d.eps = 1e-5f;
    spec.layers[0].u.batchnorm2d.affine = true;
    spec_flatten(&spec);
    for (uint32_t batch = 64; batch <= FEDGE_MAX_BATCH; batch *= 2) {
        const fedge_model_options options = {.max_batch = batch};
        if (fedge_model_size(&spec, &options, &memory, &err) != FEDGE_TOO_BIG ||
            !strstr(err.message, "layer 0 (BatchNorm2d"))
            fail_msg("%s", err.message);
    }
}

static void test_bad_models(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_model_spec spec;
    spec_input(&spec, 3, 1, 4, 4);
    spec_flatten(&spec);
    refuse(&spec, FEDGE_INVALID_ARGUMENT, "nothing to train", "Linear");
    spec_relu(&spec);
    spec.layers[1].type = (fedge_layer_type)99;
    refuse(&spec, FEDGE_UNSUPPORTED, "layer 1", "99");
    spec_input(&spec, 1, 4, 0, 0);
    strcpy(spec_linear(&spec, 4, 4)->name, "fc");
    strcpy(spec_linear(&spec, 4, 4)->name, "fc");
    fedge_tensor_spec tensors[8];
    fedge_schema schema;
    fedge_schema_init(&schema, tensors, 8);
    assert_int_equal(fedge_model_schema(&spec, &schema, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "layer 1 (Linear \"fc\")"));
    strcpy(spec.layers[1].name, "fc2");
    fedge_schema_init(&schema, tensors, 3);
    assert_int_equal(fedge_model_schema(&spec, &schema, &err), FEDGE_TOO_BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schema),           cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_bad_inputs),       cmocka_unit_test(test_bad_linear),
        cmocka_unit_test(test_bad_embedding),    cmocka_unit_test(test_bad_conv),
        cmocka_unit_test(test_bad_pool),         cmocka_unit_test(test_large_average),
        cmocka_unit_test(test_too_many_weights), cmocka_unit_test(test_too_many_bytes),
        cmocka_unit_test(test_bad_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
