/* Every layer, loss and option that the fused stages do not know: gradients against finite
 * differences in double precision, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/train/layers/convolution.h"
#include "edge/train/schedule.h"
#include "tests/edge/train/support.h"

#define SEED 13

/* Closes a model over (c, h, w) or anything else: Flatten, and a Linear to three outputs. */
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

/* A convolution of (channels, height, width), as a row of the tests' tables says: out channels,
 * kernel, stride, padding, dilation, groups, values of the output. */
static void check_convolution(uint32_t channels, uint32_t height, uint32_t width,
                              const uint32_t row[7], bool bias, uint32_t batch)
{
    fedge_model_spec spec;
    spec_input(&spec, 3, 2, height, width);
    spec_conv(&spec, 2, channels, 1, 1, 0);
    fedge_layer_spec *layer = spec_conv(&spec, channels, row[0], row[1], row[2], row[3]);
    layer->u.conv2d.dilation[0] = layer->u.conv2d.dilation[1] = row[4];
    layer->u.conv2d.groups = row[5];
    layer->u.conv2d.bias = bias;
    close_with(&spec, row[6]);
    check_spec(&spec, batch, 40);
}

static void test_convolutions(void **state)
{
    (void)state;
    static const uint32_t cases[][7] = {
        {6, 3, 1, 1, 2, 1, 6 * 4 * 5}, {6, 3, 2, 1, 1, 2, 6 * 3 * 4},
        {4, 3, 1, 1, 1, 4, 4 * 6 * 7}, {8, 3, 2, 2, 2, 4, 8 * 3 * 4},
        {5, 1, 1, 0, 1, 1, 5 * 6 * 7}, {4, 5, 1, 4, 1, 2, 4 * 10 * 11},
        {4, 1, 2, 0, 1, 4, 4 * 3 * 4}, {9, 2, 1, 0, 5, 1, 9 * 1 * 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_convolution(4, 6, 7, cases[i], i % 2 == 0, 2);
}

/* Large enough for more than one panel of products, and to be laid out in bands. */
static void test_large_convolution(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 3, 1, 90, 120);
    spec_conv(&spec, 1, 12, 1, 1, 0)->u.conv2d.bias = false;
    spec_conv(&spec, 12, 2, 3, 1, 1)->u.conv2d.stride[1] = 2;
    close_with(&spec, 2 * 90 * 60);
    check_spec(&spec, 2, 3);
    spec_input(&spec, 3, 3, 40, 33);
    spec_conv(&spec, 3, 40, 1, 1, 0);
    spec_conv(&spec, 40, 13, 3, 2, 1)->u.conv2d.dilation[1] = 2;
    close_with(&spec, 13 * 20 * 16);
    check_spec(&spec, 2, 5);
}

/* Rows that are whole vectors of every table, several images: outputs and gradients go straight to
 * their places, and the sums of weights run over more than one example. */
static void test_whole_rows(void **state)
{
    (void)state;
    static const uint32_t cases[][7] = {{5, 3, 1, 1, 1, 1, 5 * 3 * 16},
                                        {6, 3, 1, 2, 2, 2, 6 * 3 * 16},
                                        {8, 3, 2, 1, 1, 1, 8 * 2 * 8},
                                        {8, 1, 1, 0, 1, 1, 8 * 3 * 16}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_convolution(8, 3, 16, cases[i], i % 2 == 0, 5);
}

/* Rows that are no whole vectors, and channels enough to fold them: together they are whole or not,
 * with every stride and shift. */
static void test_folded_rows(void **state)
{
    (void)state;
    /* height and width before the others */
    static const uint32_t cases[][9] = {
        {8, 8, 16, 3, 1, 1, 1, 1, 16 * 64}, {8, 8, 8, 3, 2, 1, 1, 1, 8 * 16},
        {9, 7, 9, 3, 2, 1, 1, 1, 9 * 20},   {8, 8, 8, 1, 2, 0, 1, 1, 8 * 16},
        {6, 8, 8, 1, 1, 0, 1, 1, 8 * 48},   {7, 9, 8, 5, 1, 2, 1, 1, 8 * 63},
        {8, 8, 16, 3, 2, 0, 1, 2, 16 * 9},  {8, 12, 8, 3, 1, 2, 2, 1, 8 * 96},
        {9, 10, 8, 3, 2, 2, 2, 1, 8 * 25},  {8, 8, 8, 4, 3, 3, 1, 1, 8 * 16},
        {8, 8, 8, 2, 3, 0, 1, 1, 8 * 9},    {5, 8, 8, 3, 1, 3, 1, 1, 8 * 108}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_convolution(16, cases[i][0], cases[i][1], cases[i] + 2, i % 2 == 0, 5);
}

/* Which layouts are folded: small images whose rows are no whole vectors. Not where the weights'
 * gradient is made of the same layout, nor where copies of a wide kernel or of a dilated one, or
 * the vectors behind many images, would take more than the cache. */
static void test_which_fold(void **state)
{
    (void)state;
    const fedge_convolution small = {.channels = 16,
                                     .out_channels = 16,
                                     .kernel = {3, 3},
                                     .stride = {1, 1},
                                     .padding = {1, 1},
                                     .dilation = {1, 1},
                                     .groups = 1,
                                     .in = {9, 9},
                                     .out = {9, 9}};
    fedge_convolution large = small, many = small;
    large.out_channels = 64;
    large.in[0] = large.in[1] = large.out[0] = large.out[1] = 25;
    large.kernel[0] = large.kernel[1] = 9;
    large.padding[0] = large.padding[1] = 12;
    large.dilation[0] = large.dilation[1] = 3;
    many.channels = many.out_channels = 8192;
    many.kernel[0] = many.kernel[1] = 1;
    many.padding[0] = many.padding[1] = 0;
    many.in[0] = many.out[0] = 2;
    many.in[1] = many.out[1] = 1;
    for (uint32_t lanes = 4; lanes <= 16; lanes *= 2) {
        assert_true(fedge_patches_make(&small, 4, lanes, FEDGE_PATCH_FORWARD).folded);
        assert_true(fedge_patches_make(&small, 4, lanes, FEDGE_PATCH_GRADIENT).folded);
        assert_false(fedge_patches_make(&small, 4, lanes, FEDGE_PATCH_BOTH).folded);
        assert_false(fedge_patches_make(&large, 4, lanes, FEDGE_PATCH_FORWARD).folded);
        assert_false(fedge_patches_make(&large, 4, lanes, FEDGE_PATCH_GRADIENT).folded);
        assert_false(fedge_patches_make(&many, 4, lanes, FEDGE_PATCH_FORWARD).folded);
    }
    assert_false(fedge_patches_make(&small, 4, 1, FEDGE_PATCH_FORWARD).folded);
}

/* A second pass, which finds the memory as the first has left it, gives the same bits. */
static void test_second_pass(void **state)
{
    (void)state;
    static const uint32_t cases[][4] = {{1, 1, 0, 1}, {3, 1, 1, 1}, {3, 2, 1, 6}, {1, 2, 0, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_model_spec spec;
        spec_input(&spec, 3, 2, 13, 14);
        spec_conv(&spec, 2, 6, 1, 1, 0)->u.conv2d.bias = false;
        fedge_layer_spec *layer = spec_conv(&spec, 6, 6, cases[i][0], cases[i][1], cases[i][2]);
        layer->u.conv2d.bias = false;
        layer->u.conv2d.groups = cases[i][3];
        const uint32_t pixels = cases[i][1] == 1 ? 13 * 14 : 7 * 7;
        spec_add(&spec, FEDGE_LAYER_RELU6);
        close_with(&spec, 6 * pixels);
        unsigned levels[MAX_LEVELS];
        const unsigned num_levels = kernel_levels(levels);
        for (unsigned level = 0; level < num_levels; level++) {
            const fedge_model_options options = {
                .max_batch = 3, .training = true, .disabled_cpu_features = levels[level]};
            float x[3 * 2 * 13 * 14];
            int32_t labels[3];
            test_model self;
            model_open(&self, &spec, &options, SEED, 0);
            const size_t n = fedge_model_num_values(self.model);
            double *first = new_doubles(n), *second = new_doubles(n), losses[2];
            fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 4, 0, 0);
            fill_batch(&rng, x, sizeof(x) / sizeof(x[0]), labels, 3, 3);
            model_gradient(&self, x, labels, 3, first, &losses[0]);
            model_gradient(&self, x, labels, 3, second, &losses[1]);
            assert_memory_equal(first, second, n * sizeof(*first));
            assert_memory_equal(&losses[0], &losses[1], sizeof(losses[0]));
            free(second);
            free(first);
            model_close(&self);
        }
    }
}

static void test_one_dimension(void **state)
{
    (void)state;
    fedge_model_spec spec;
    for (uint32_t groups = 1; groups <= 4; groups *= 2) {
        spec_input(&spec, 2, 4, 11, 0);
        spec_linear(&spec, 11, 11);
        spec_add(&spec, FEDGE_LAYER_CONV1D)->u.conv1d.in_channels = 4;
        fedge_layer_spec *conv = &spec.layers[1];
        conv->u.conv1d.out_channels = 8;
        conv->u.conv1d.kernel_size = 3;
        conv->u.conv1d.stride = 2;
        conv->u.conv1d.padding = 2;
        conv->u.conv1d.dilation = groups;
        conv->u.conv1d.groups = groups;
        conv->u.conv1d.bias = true;
        close_with(&spec, 8 * ((11 + 4 - groups * 2 - 1) / 2 + 1));
        check_spec(&spec, 3, 40);
    }
}

static void test_activations(void **state)
{
    (void)state;
    static const fedge_layer_type types[] = {
        FEDGE_LAYER_RELU,    FEDGE_LAYER_RELU6, FEDGE_LAYER_LEAKYRELU, FEDGE_LAYER_GELU,
        FEDGE_LAYER_SIGMOID, FEDGE_LAYER_TANH,  FEDGE_LAYER_SILU};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        for (int option = 0; option < 2; option++) {
            fedge_model_spec spec;
            spec_input(&spec, 1, 9, 0, 0);
            spec_linear(&spec, 9, 35);
            fedge_layer_spec *layer = spec_add(&spec, types[i]);
            if (types[i] == FEDGE_LAYER_LEAKYRELU)
                layer->u.leakyrelu.negative_slope = option ? 0.01f : -0.5f;
            else if (types[i] == FEDGE_LAYER_GELU)
                layer->u.gelu.approximate = (uint32_t)option;
            if (option) { /* a chain that shares one array, with one that needs it in the middle */
                spec_flatten(&spec);
                spec_add(&spec, types[i])->u = layer->u;
                spec_add(&spec, FEDGE_LAYER_SILU);
            }
            spec_linear(&spec, 35, 3);
            check_spec(&spec, 5, 40);
        }
    }
}

static void test_norms(void **state)
{
    (void)state;
    fedge_model_spec spec;
    for (int option = 0; option < 4; option++) {
        fedge_layer_spec *layer = image_case(&spec, 4, FEDGE_LAYER_BATCHNORM2D);
        layer->u.batchnorm2d.num_features = 4;
        layer->u.batchnorm2d.eps = 0.01f;
        layer->u.batchnorm2d.momentum = 0.1f;
        layer->u.batchnorm2d.affine = option != 1;
        layer->u.batchnorm2d.track_running_stats = option != 2;
        layer->u.batchnorm2d.frozen = option == 3;
        close_with(&spec, 4 * 42);
        check_spec(&spec, 3, 40);
    }
    for (uint32_t groups = 1; groups <= 4; groups *= 2) {
        fedge_layer_spec *layer = image_case(&spec, 4, FEDGE_LAYER_GROUPNORM);
        layer->u.groupnorm.num_groups = groups;
        layer->u.groupnorm.num_channels = 4;
        layer->u.groupnorm.eps = 0.01f;
        layer->u.groupnorm.affine = groups != 2;
        close_with(&spec, 4 * 42);
        check_spec(&spec, 3, 40);
    }
    for (uint32_t rank = 1; rank <= 3; rank++) {
        fedge_layer_spec *layer = image_case(&spec, 4, FEDGE_LAYER_LAYERNORM);
        static const uint32_t shape[3] = {4, 6, 7};
        memcpy(layer->u.layernorm.normalized_shape, shape + 3 - rank, rank * sizeof(shape[0]));
        layer->u.layernorm.rank = rank;
        layer->u.layernorm.eps = 0.01f;
        layer->u.layernorm.elementwise_affine = rank != 3;
        layer->u.layernorm.bias = rank == 1;
        close_with(&spec, 4 * 42);
        check_spec(&spec, 3, 40);
    }
}

static void test_embedding_and_sequences(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 1, 5, 0, 0);
    fedge_layer_spec *layer = spec_add(&spec, FEDGE_LAYER_EMBEDDING);
    layer->u.embedding.num_embeddings = 4;
    layer->u.embedding.embedding_dim = 6;
    spec_linear(&spec, 6, 7);
    spec_add(&spec, FEDGE_LAYER_TANH);
    close_with(&spec, 35);
    check_spec(&spec, 3, 40);
}

/* A dimension taken away from (3, 5) and (2, 6, 7), counted from either end. */
static void test_dimensions_away(void **state)
{
    (void)state;
    static const struct {
        uint32_t rank;
        int32_t dim, index;
        uint32_t values;
    } cases[] = {{2, 1, -1, 5},  {2, 1, 0, 5},  {2, 2, 4, 3},   {2, -2, 1, 5},
                 {2, -1, -5, 3}, {3, 1, 1, 42}, {3, 2, -6, 28}, {3, -1, 3, 24}};
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_model_spec spec;
        const bool sequence = cases[i / 2].rank == 2;
        if (sequence) {
            spec_input(&spec, 2, 3, 5, 0);
            spec_linear(&spec, 5, 5);
        } else {
            (void)image_case(&spec, 4, FEDGE_LAYER_TANH);
        }
        fedge_layer_spec *layer = spec_add(&spec, i % 2 ? FEDGE_LAYER_MEAN : FEDGE_LAYER_SELECT);
        layer->u.select.dim = cases[i / 2].dim; /* the first argument of both */
        layer->u.select.index = i % 2 ? 0 : cases[i / 2].index;
        spec_add(&spec, FEDGE_LAYER_TANH);
        close_with(&spec, cases[i / 2].values);
        check_spec(&spec, 3, 40);
    }
}

/* Outputs read by several layers, twice by one, and the model's input read late. */
static void test_branches(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 1, 6, 0, 0);
    spec_linear(&spec, 6, 6); /* 0 */
    spec_add(&spec, FEDGE_LAYER_TANH);
    spec_linear(&spec, 6, 6);
    spec_relu(&spec);
    fedge_layer_spec *add = spec_add(&spec, FEDGE_LAYER_ADD); /* 4 */
    add->num_inputs = 4;
    add->inputs[0] = 3;
    add->inputs[1] = 1;
    add->inputs[2] = FEDGE_INPUT_MODEL;
    add->inputs[3] = 1;
    spec_add(&spec, FEDGE_LAYER_SIGMOID);
    spec_linear(&spec, 6, 6)->num_inputs = 1; /* 6, from 4: 4 has two readers */
    spec.layers[6].inputs[0] = 4;
    add = spec_add(&spec, FEDGE_LAYER_ADD);
    add->num_inputs = 2;
    add->inputs[0] = 5;
    add->inputs[1] = 6;
    spec_linear(&spec, 6, 3);
    check_spec(&spec, 4, 40);
    spec.layers[0].train = FEDGE_TRAIN_NONE; /* nothing flows to a frozen beginning */
    check_spec(&spec, 4, 40);
    spec.layers[8].train = FEDGE_TRAIN_BIAS;
    spec.layers[0].train = FEDGE_TRAIN_BIAS;
    check_spec(&spec, 4, 40);
}

static void test_lora(void **state)
{
    (void)state;
    for (uint32_t r = 1; r <= 5; r += 2) {
        fedge_model_spec spec;
        spec_input(&spec, 2, 2, 9, 0);
        fedge_layer_spec *layer = spec_linear(&spec, 9, 8);
        layer->u.linear.r = r;
        layer->u.linear.lora_alpha = 2.0f;
        spec_add(&spec, FEDGE_LAYER_TANH);
        layer = spec_linear(&spec, 8, 20);
        layer->u.linear.r = r + 1;
        layer->u.linear.lora_alpha = 1.0f;
        layer->u.linear.bias = false;
        close_with(&spec, 40);
        check_spec(&spec, 3, 40);
    }
}

static void test_losses(void **state)
{
    (void)state;
    for (int loss = FEDGE_LOSS_CROSS_ENTROPY; loss < FEDGE_LOSS_COUNT; loss++) {
        for (uint32_t outputs = loss == FEDGE_LOSS_CROSS_ENTROPY ? 3 : 1; outputs <= 3;
             outputs += 2) {
            fedge_model_spec spec;
            spec_input(&spec, 1, 6, 0, 0);
            spec_linear(&spec, 6, 5);
            spec_add(&spec, FEDGE_LAYER_TANH);
            spec_linear(&spec, 5, outputs);
            spec.loss = (fedge_loss_type)loss;
            spec.loss_delta = outputs == 1 ? 0.5f : 0.0f;
            spec.label_smoothing = 0.3f; /* read by CrossEntropyLoss alone */
            check_spec(&spec, 5, 40);
        }
    }
}

/* A layer of ones behind Dropout with targets 0: the loss tells how many values were kept, the
 * gradient which. */
static void test_dropout(void **state)
{
    (void)state;
    enum { WIDE = 2000 };
    fedge_model_spec spec;
    spec_input(&spec, 1, 1, 0, 0);
    spec_linear(&spec, 1, WIDE)->u.linear.bias = false;
    spec_add(&spec, FEDGE_LAYER_DROPOUT)->u.dropout.p = 0.25f;
    spec.loss = FEDGE_LOSS_MSE;
    const fedge_model_options options = {.max_batch = 1, .training = true};
    const fedge_optimizer still = {.learning_rate = 0.125f};
    test_model self;
    fedge_error err = {0};
    float *zeros = calloc(WIDE, sizeof(*zeros)), first[WIDE];
    const float x = 1.0f;
    const fedge_batch batch = {.x = &x, .targets = zeros, .size = 1};
    double loss, before = 0.0;
    uint32_t correct;
    assert_non_null(zeros);
    model_open(&self, &spec, &options, SEED, 0);
    float *w = fedge_model_values(self.model);
    for (int pass = 0; pass < 4; pass++) { /* again; another round; evaluation */
        fedge_model_reset_optimizer(self.model);
        fedge_model_set_random(self.model, SEED, pass == 2 ? 8 : 7, 3);
        for (int i = 0; i < WIDE; i++)
            w[i] = 1.0f;
        if (pass == 3) {
            assert_int_equal(fedge_model_test(self.model, &batch, &loss, &correct, &err), FEDGE_OK);
            assert_true(fabs(loss - 1.0) < 1e-9); /* nothing dropped, nothing scaled */
            continue;
        }
        assert_int_equal(fedge_model_train(self.model, &batch, &still, &loss, &correct, &err),
                         FEDGE_OK);
        int kept = 0;
        for (int i = 0; i < WIDE; i++) {
            kept += w[i] != 1.0f;
            assert_true(pass != 1 || w[i] == first[i]);
            first[i] = pass == 0 ? w[i] : first[i];
        }
        assert_true(fabs(loss - kept / 0.75 / 0.75 / WIDE) < 1e-5);
        assert_true(fabs(kept - 0.75 * WIDE) < 5.0 * sqrt(WIDE * 0.75 * 0.25));
        assert_true(pass != 1 || loss == before);
        before = loss;
        if (pass == 2)
            assert_memory_not_equal(w, first, sizeof(first));
    }
    free(zeros);
    model_close(&self);
}

/* SCAFFOLD: a constant added to every gradient moves a plain step by lr times it. */
static void test_correction(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 1, 4, 0, 0);
    spec_linear(&spec, 4, 3);
    fedge_model_options options = {.max_batch = 2, .training = true, .correction = true};
    const fedge_optimizer sgd = {.learning_rate = 0.5f};
    test_model with, without;
    fedge_error err = {0};
    const float x[8] = {1, -1, 2, 0, 3, 1, 0, 1};
    const int32_t labels[2] = {0, 2};
    double loss;
    uint32_t correct;
    model_open(&with, &spec, &options, SEED, 0);
    options.correction = false;
    options.general = true;
    model_open(&without, &spec, &options, SEED, 0);
    assert_null(fedge_model_correction(without.model));
    float *c = fedge_model_correction(with.model);
    assert_non_null(c);
    for (int i = 0; i < 15; i++)
        c[i] = (float)i * 0.25f;
    assert_int_equal(fedge_model_step(with.model, x, labels, 2, &sgd, &loss, &correct, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_model_step(without.model, x, labels, 2, &sgd, &loss, &correct, &err),
                     FEDGE_OK);
    for (int i = 0; i < 15; i++) {
        const float expected = fedge_model_values(without.model)[i] - 0.5f * c[i];
        assert_true(fabsf(fedge_model_values(with.model)[i] - expected) < 1e-6f);
    }
    model_close(&with);
    model_close(&without);
}

/* Deep chains of layers in place take the room of a few arrays, not of all. */
static void test_room_is_used_again(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_model_spec spec;
    fedge_model_memory memory, deeper;
    fedge_model_options options = {.max_batch = 8, .general = true};
    for (int depth = 0; depth < 2; depth++) {
        spec_input(&spec, 3, 4, 16, 16);
        for (int i = 0; i < (depth == 0 ? 4 : 40); i++) {
            spec_conv(&spec, 4, 4, 3, 1, 1);
            spec_add(&spec, FEDGE_LAYER_SILU);
        }
        close_with(&spec, 4 * 256);
        assert_int_equal(fedge_model_size(&spec, &options, depth == 0 ? &memory : &deeper, &err),
                         FEDGE_OK);
    }
    assert_int_equal(memory.activations, deeper.activations); /* evaluation needs two arrays */
    options.training = true;
    for (uint32_t i = 0; i < 80; i++) { /* all but the head frozen: as little as evaluation */
        spec.layers[i].train = FEDGE_TRAIN_NONE;
    }
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_OK);
    assert_true(memory.activations < 2 * deeper.activations);
    spec.layers[0].train = FEDGE_TRAIN_ALL;
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_OK);
    assert_true(memory.activations > 10 * deeper.activations);
}

/* Rates of torch.optim.lr_scheduler.OneCycleLR with max_lr 0.5. */
static void test_one_cycle(void **state)
{
    (void)state;
    static const struct {
        fedge_schedule schedule;
        double rates[12];
    } cases[] = {
        {{.total_steps = 10, .pct_start = 0.3f, .div_factor = 25, .final_div_factor = 1e4f},
         {0.02, 0.26, 0.5, 0.475242316, 0.405872827, 0.305631011, 0.194370989, 0.094129173,
          0.024759684, 2e-6}},
        {{.total_steps = 12,
          .pct_start = 0.25f,
          .anneal_strategy = FEDGE_ANNEAL_LINEAR,
          .div_factor = 8,
          .final_div_factor = 16},
         {0.0625, 0.28125, 0.5, 0.444878472, 0.389756944, 0.334635417, 0.279513889, 0.224392361,
          0.169270833, 0.114149306, 0.0590277778, 0.00390625}},
        {{.total_steps = 12,
          .pct_start = 0.25f,
          .three_phase = true,
          .div_factor = 25,
          .final_div_factor = 1e4f},
         {0.02, 0.26, 0.5, 0.26, 0.02, 0.0190097877, 0.0162352745, 0.0122259868, 0.00777601318,
          0.00376672547, 0.00099221229, 2e-6}},
        {{.total_steps = 6, .div_factor = 25, .final_div_factor = 1e4f},
         {0.466506485, 0.3750005, 0.250001, 0.1250015, 0.0334955151, 2e-6}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_schedule s = cases[i].schedule;
        s.type = FEDGE_SCHEDULE_ONE_CYCLE;
        for (uint32_t t = 0; t < s.total_steps + 5; t++) {
            const double expected = cases[i].rates[t < s.total_steps ? t : s.total_steps - 1];
            const double rate = fedge_schedule_rate(&s, 0.5, t + 1);
            if (fabs(rate - expected) > 1e-7 * fabs(expected) + 1e-9) {
                fail_msg("case %zu: the rate of t = %u is %.9g, not %.9g", i, (unsigned)t, rate,
                         expected);
            }
        }
    }
    const fedge_schedule one = {.type = FEDGE_SCHEDULE_ONE_CYCLE,
                                .total_steps = 1,
                                .pct_start = 1,
                                .div_factor = 25,
                                .final_div_factor = 1e4f};
    assert_true(fedge_schedule_rate(&one, 0.5, 1) == 0.5);
}

static void test_schedules(void **state)
{
    (void)state;
    fedge_schedule s = {0};
    assert_true(fedge_schedule_rate(&s, 0.5, 1) == 0.5 && fedge_schedule_rate(&s, 0.5, 99) == 0.5);
    s = (fedge_schedule){.type = FEDGE_SCHEDULE_STEP, .step_size = 3, .gamma = 0.5f};
    assert_true(fedge_schedule_rate(&s, 8, 3) == 8 && fedge_schedule_rate(&s, 8, 4) == 4 &&
                fedge_schedule_rate(&s, 8, 7) == 2);
    s = (fedge_schedule){.type = FEDGE_SCHEDULE_EXPONENTIAL, .gamma = 0.5f};
    assert_true(fedge_schedule_rate(&s, 8, 1) == 8 && fedge_schedule_rate(&s, 8, 4) == 1);
    s = (fedge_schedule){.type = FEDGE_SCHEDULE_COSINE, .t_max = 4, .eta_min = 2.0f};
    assert_true(fedge_schedule_rate(&s, 4, 1) == 4 && fedge_schedule_rate(&s, 4, 5) == 2 &&
                fedge_schedule_rate(&s, 4, 50) == 2);
    assert_true(fabs(fedge_schedule_rate(&s, 4, 3) - 3) < 1e-12);
    s.warmup_rounds = 3;
    assert_true(fedge_schedule_rate(&s, 4, 1) == 1 && fedge_schedule_rate(&s, 4, 3) == 3 &&
                fedge_schedule_rate(&s, 4, 4) == 4);
    assert_string_equal(fedge_schedule_type_name(FEDGE_SCHEDULE_COSINE), "CosineAnnealingLR");
    assert_string_equal(fedge_schedule_type_name(FEDGE_SCHEDULE_ONE_CYCLE), "OneCycleLR");
    assert_null(fedge_schedule_type_name(FEDGE_SCHEDULE_COUNT));
}

/* The model is refused with each of the words in the message. */
static void refuse(const fedge_model_spec *spec, const char *word, const char *number)
{
    fedge_error err = {0};
    fedge_tensor_spec tensors[32];
    fedge_schema schema;
    fedge_model_memory memory;
    const fedge_model_options options = {.max_batch = 4, .training = true, .general = true};
    fedge_schema_init(&schema, tensors, 32);
    const bool fits = fedge_model_schema(spec, &schema, &err) == FEDGE_OK;
    assert_true(fedge_model_size(spec, &options, &memory, &err) != FEDGE_OK || !fits);
    if (!strstr(err.message, word) || !strstr(err.message, number))
        fail_msg("\"%s\" and \"%s\" are not in: %s", word, number, err.message);
}

static void test_bad_convolutions(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_layer_spec *layer = image_case(&spec, 4, FEDGE_LAYER_CONV2D);
    *layer = spec.layers[0];
    layer->u.conv2d.in_channels = 4;
    layer->u.conv2d.groups = 3;
    refuse(&spec, "Conv2d", "groups 3");
    layer->u.conv2d.groups = 1;
    layer->u.conv2d.dilation[0] = 65537;
    refuse(&spec, "dilation 65537", "65536");
    layer->u.conv2d.dilation[0] = 6;
    layer->u.conv2d.kernel_size[0] = 2;
    refuse(&spec, "dilation 6", "height");
    spec_input(&spec, 3, 16384, 128, 128); /* 2^28 images of one place each are laid out */
    spec_conv(&spec, 16384, 64, 128, 128, 0)->u.conv2d.groups = 64;
    close_with(&spec, 64);
    /* So many weights are over the limit of a machine of 32 bits. */
    const bool wide = sizeof(size_t) > 4;
    refuse(&spec, wide ? "more bytes than can be planned" : "more ",
           wide ? "lower the batch size" : "parameters");
    spec_input(&spec, 3, 1, 1024, 1024); /* the outputs are laid out as 2^30 floats */
    spec_conv(&spec, 1, 1024, 1024, 1, 0)->u.conv2d.kernel_size[1] = 1;
    close_with(&spec, 1024 * 1024);
    if (wide) {
        const fedge_model_options options = {.max_batch = 1, .training = true, .general = true};
        fedge_model_memory memory;
        assert_int_equal(fedge_model_size(&spec, &options, &memory, NULL), FEDGE_OK);
        assert_true(memory.total > UINT32_MAX);
    } else {
        refuse(&spec, "layer 0 (Conv2d", "bytes than can be planned");
    }
}

static void test_bad_layers(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_layer_spec *layer = image_case(&spec, 4, FEDGE_LAYER_GROUPNORM);
    layer->u.groupnorm.num_channels = 4;
    refuse(&spec, "layer 1 (GroupNorm", "num_groups 0");
    layer->u.groupnorm.num_groups = 3;
    refuse(&spec, "num_groups 3", "num_channels 4");
    layer->u.groupnorm.num_channels = 6;
    refuse(&spec, "num_channels is 6", "4 channels");
    layer = image_case(&spec, 4, FEDGE_LAYER_BATCHNORM2D);
    refuse(&spec, "num_features is 0", "4 channels");
    layer->u.batchnorm2d.num_features = 4;
    layer->u.batchnorm2d.frozen = true;
    refuse(&spec, "BatchNorm2d", "track_running_stats");
    layer = image_case(&spec, 4, FEDGE_LAYER_LAYERNORM);
    refuse(&spec, "LayerNorm", "0 dimensions");
    layer->u.layernorm.rank = 1;
    layer->u.layernorm.normalized_shape[0] = 8;
    refuse(&spec, "[4, 6, 7]", "[8]");
    layer = image_case(&spec, 4, FEDGE_LAYER_DROPOUT);
    layer->u.dropout.p = 1.5f;
    refuse(&spec, "Dropout", "1.5");
    layer->u.dropout.p = NAN;
    refuse(&spec, "Dropout", "nan");
    spec_input(&spec, 1, 4, 0, 0);
    spec_add(&spec, FEDGE_LAYER_EMBEDDING);
    refuse(&spec, "Embedding", "num_embeddings 0");
    (void)image_case(&spec, 4, FEDGE_LAYER_ADAPTIVEAVGPOOL2D);
    refuse(&spec, "AdaptiveAvgPool2d", "0 × 0");
    spec_input(&spec, 2, 3, 5, 0);
    layer = spec_add(&spec, FEDGE_LAYER_SELECT);
    refuse(&spec, "Select", "dim 0 must be 1 to 2");
    layer->u.select.dim = -3;
    refuse(&spec, "dim -3", "[3, 5]");
    layer->u.select.dim = 1;
    layer->u.select.index = 3;
    refuse(&spec, "Select", "index 3 is not in [-3, 3)");
    layer->u.select.index = -4;
    refuse(&spec, "Select", "index -4 is not in [-3, 3)");
    layer->u.select.index = INT32_MIN;
    refuse(&spec, "Select", "index -2147483648");
    layer = spec_add(&spec, FEDGE_LAYER_MEAN);
    layer->u.mean.dim = INT32_MAX;
    spec.layers[0].u.select.index = 0;
    refuse(&spec, "Mean", "[5]");
    spec.layers[0] = *layer;
    refuse(&spec, "Mean", "dim 2147483647");
    spec.layers[0].u.mean.dim = INT32_MIN;
    refuse(&spec, "Mean", "dim -2147483648");
}

static void test_bad_graphs(void **state)
{
    (void)state;
    fedge_model_spec spec;
    spec_input(&spec, 1, 4, 0, 0);
    spec_linear(&spec, 4, 3);
    fedge_layer_spec *add = spec_add(&spec, FEDGE_LAYER_ADD);
    refuse(&spec, "layer 1 (Add", "1 inputs");
    add->num_inputs = 2;
    add->inputs[0] = 1;
    refuse(&spec, "layer 1 (Add", "layer 1, which is not before");
    add->inputs[0] = 0;
    add->inputs[1] = FEDGE_INPUT_MODEL;
    refuse(&spec, "[3]", "[4]");
    add->num_inputs = 5;
    refuse(&spec, "Add", "5 inputs");
    spec.num_layers = 1;
    spec_linear(&spec, 4, 3)->num_inputs = 1;
    spec.layers[1].inputs[0] = FEDGE_INPUT_MODEL;
    refuse(&spec, "layer 0 (Linear \"0\")", "read by no other");
    spec_input(&spec, 1, 4, 0, 0);
    spec_linear(&spec, 4, 3)->train = FEDGE_TRAIN_NONE;
    refuse(&spec, "nothing to train", "freeze");
    spec.layers[0].train = (fedge_train_mode)9;
    refuse(&spec, "train mode", "9");
    spec.layers[0].train = FEDGE_TRAIN_ALL;
    spec.loss = (fedge_loss_type)77;
    refuse(&spec, "loss", "77");
}

/* What a step asks for must have been reserved; what data a layer cannot take is refused. */
static void test_bad_steps(void **state)
{
    (void)state;
    static const fedge_optimizer asks[] = {{.learning_rate = 0.1f, .type = FEDGE_OPTIMIZER_ADAM},
                                           {.learning_rate = 0.1f, .momentum = 0.5f},
                                           {.learning_rate = 0.1f, .nesterov = true},
                                           {.learning_rate = 0.1f, .clip_norm = 1.0f},
                                           {.learning_rate = 0.1f, .proximal_mu = 1.0f}};
    fedge_model_spec spec;
    spec_input(&spec, 1, 3, 0, 0);
    fedge_layer_spec *layer = spec_add(&spec, FEDGE_LAYER_EMBEDDING);
    layer->u.embedding.num_embeddings = 4;
    layer->u.embedding.embedding_dim = 2;
    close_with(&spec, 6);
    const fedge_model_options options = {.max_batch = 2, .training = true};
    test_model self;
    fedge_error err = {0};
    float x[6] = {0, 1, 2, 3, 0, 1};
    const int32_t labels[2] = {0, 2};
    const fedge_optimizer plain = {.learning_rate = 0.1f};
    double loss;
    uint32_t correct;
    model_open(&self, &spec, &options, SEED, 0);
    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
        assert_int_equal(
            fedge_model_step(self.model, x, labels, 2, &asks[i], &loss, &correct, &err),
            FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "made without"));
    }
    static const float bad[] = {4.0f, -1.0f, 0.5f, 3e38f};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        x[4] = bad[i];
        assert_int_equal(fedge_model_step(self.model, x, labels, 2, &plain, &loss, &correct, &err),
                         FEDGE_OUT_OF_RANGE);
        assert_non_null(strstr(err.message, "layer 0 (Embedding \"0\"): index"));
    }
    const fedge_batch without = {.x = x, .size = 2};
    assert_int_equal(fedge_model_train(self.model, &without, &plain, &loss, &correct, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "CrossEntropyLoss needs labels"));
    model_close(&self);
    spec_input(&spec, 3, 2, 1, 1);
    layer = spec_add(&spec, FEDGE_LAYER_BATCHNORM2D);
    layer->u.batchnorm2d.num_features = 2;
    layer->u.batchnorm2d.eps = 1e-5f;
    close_with(&spec, 2);
    model_open(&self, &spec, &options, SEED, 0);
    assert_int_equal(fedge_model_step(self.model, x, labels, 1, &plain, &loss, &correct, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "layer 0 (BatchNorm2d \"0\"): 1 example of 1 × 1"));
    model_close(&self);
    fedge_model_memory memory;
    fedge_model_options lone = {.max_batch = 1, .training = true};
    assert_int_equal(fedge_model_size(&spec, &lone, &memory, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "layer 0 (BatchNorm2d \"0\"): 1 example of 1 × 1"));
    lone.training = false;
    assert_int_equal(fedge_model_size(&spec, &lone, &memory, &err), FEDGE_OK);
    const fedge_model_options parts = {.max_batch = 7, .micro_batch = 3, .training = true};
    assert_int_equal(fedge_model_size(&spec, &parts, &memory, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "last part of a batch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_large_convolution),
        cmocka_unit_test(test_folded_rows),
        cmocka_unit_test(test_which_fold),
        cmocka_unit_test(test_whole_rows),
        cmocka_unit_test(test_second_pass),
        cmocka_unit_test(test_one_dimension),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_embedding_and_sequences),
        cmocka_unit_test(test_dimensions_away),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_correction),
        cmocka_unit_test(test_room_is_used_again),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_one_cycle),
        cmocka_unit_test(test_bad_convolutions),
        cmocka_unit_test(test_bad_layers),
        cmocka_unit_test(test_bad_graphs),
        cmocka_unit_test(test_bad_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
