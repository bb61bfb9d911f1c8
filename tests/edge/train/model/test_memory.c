/* What the planner saves, and that results do not depend on it. */
#define _XOPEN_SOURCE 700 /* pthread_attr_setstack */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/train/fused/stages.h"
#include "tests/edge/train/support.h"

#define SEED 21
#define STEPS 4

/* ---- training the same model in two ways ---- */

static fedge_model_memory train(const fedge_model_spec *spec, const fedge_model_options *options,
                                uint32_t batch, const fedge_optimizer *optimizer, float **values,
                                double *loss)
{
    test_model self;
    fedge_error err = {0};
    model_open(&self, spec, options, SEED, 0);
    const size_t size = fedge_model_input_count(spec), n = fedge_model_num_values(self.model);
    float *x = malloc(size * batch * sizeof(*x));
    int32_t *labels = malloc(batch * sizeof(*labels));
    *values = malloc(n * sizeof(**values));
    assert_true(x && labels && *values);
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 0, 0, 0);
    fedge_model_reset_optimizer(self.model);
    for (int i = 0; i < STEPS; i++) {
        uint32_t correct = 0;
        fill_batch(&rng, x, size * batch, labels, batch, fedge_model_num_classes(spec));
        if (fedge_model_step(self.model, x, labels, batch, optimizer, loss, &correct, &err) !=
            FEDGE_OK)
            fail_msg("%s", err.message);
    }
    memcpy(*values, fedge_model_values(self.model), n * sizeof(**values));
    const fedge_model_memory memory = self.memory;
    free(labels);
    free(x);
    model_close(&self);
    return memory;
}

/* Both ways train to the same parameters but for rounding: sums of up to a few hundred products in
 * another order, over a few steps. */
static void assert_same(const fedge_model_spec *spec, const fedge_model_options *a,
                        const fedge_model_options *b, uint32_t batch,
                        const fedge_optimizer *optimizer, fedge_model_memory *memory_a,
                        fedge_model_memory *memory_b)
{
    float *values_a, *values_b;
    double loss_a, loss_b;
    fedge_schema schema;
    fedge_tensor_spec tensors[64];
    fedge_error err = {0};
    fedge_schema_init(&schema, tensors, 64);
    assert_int_equal(fedge_model_schema(spec, &schema, &err), FEDGE_OK);
    *memory_a = train(spec, a, batch, optimizer, &values_a, &loss_a);
    *memory_b = train(spec, b, batch, optimizer, &values_b, &loss_b);
    assert_true(fabs(loss_a - loss_b) <= 1e-5 * (1.0 + fabs(loss_a)));
    for (size_t i = 0; i < schema.num_elements; i++) {
        if (!(fabsf(values_a[i] - values_b[i]) <= 1e-5f)) {
            fail_msg("parameter %zu is %.9g in one way and %.9g in the other", i,
                     (double)values_a[i], (double)values_b[i]);
        }
    }
    free(values_a);
    free(values_b);
}

/* The bytes that [activation] keeps between a 1x1 convolution, whose scratch is too small to decide
 * the plan at any kernel level, and what is [behind]: a bit per value, or 0 for its output as it
 * is. */
static size_t saved_by(fedge_layer_type activation, fedge_layer_type behind)
{
    static fedge_model_spec spec;
    fedge_layer_memory layers[8];
    fedge_error err = {0};
    const fedge_model_options options = {.max_batch = 4, .training = true, .general = true};
    spec_input(&spec, 3, 1, 16, 16);
    spec_conv(&spec, 1, 8, 1, 1, 0);
    (void)spec_add(&spec, activation);
    if (behind == FEDGE_LAYER_MAXPOOL2D)
        spec_pool(&spec, 2, 2, 0);
    else
        spec_conv(&spec, 8, 8, 2, 2, 0);
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

/* A Linear's weights step without a gradient in memory when the optimizer is plain SGD. */
static void test_steps(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    static fedge_model_spec spec;
    spec_input(&spec, 2, 3, 70, 0);
    spec_linear(&spec, 70, 33);
    spec_relu(&spec);
    spec_linear(&spec, 33, 50)->u.linear.bias = false;
    spec_flatten(&spec);
    spec_linear(&spec, 150, 5);
    for (unsigned i = 0; i < 2 * num_levels; i++) {
        fedge_model_memory with, without;
        const fedge_optimizer optimizer = {.learning_rate = 0.05f,
                                           .momentum = i < num_levels ? 0.9f : 0.0f,
                                           .weight_decay = 0.01f};
        const fedge_model_options plain = {.max_batch = 7,
                                           .training = true,
                                           .momentum = optimizer.momentum,
                                           .general = true,
                                           .disabled_cpu_features = levels[i % num_levels]};
        fedge_model_options gradients = plain;
        gradients.clip = true; /* room for it, which it does not use */
        assert_same(&spec, &plain, &gradients, 7, &optimizer, &with, &without);
        const size_t weights = (size_t)(70 * 33 + 33 * 50 + 150 * 5) * sizeof(float);
        assert_true(with.total + weights <= without.total);
    }
}

/* Micro-batches, an uneven last one too: the step of the whole batch in less memory, with what else
 * happens to its gradient. */
static void test_micro_batches(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    spec_input(&spec, 3, 2, 12, 12);
    spec_conv(&spec, 2, 12, 3, 1, 1);
    spec_add(&spec, FEDGE_LAYER_GROUPNORM)->u.groupnorm.num_groups = 4;
    spec.layers[1].u.groupnorm.num_channels = 12;
    spec.layers[1].u.groupnorm.eps = 1e-5f;
    spec.layers[1].u.groupnorm.affine = true;
    (void)spec_add(&spec, FEDGE_LAYER_TANH);
    spec_flatten(&spec);
    spec_linear(&spec, 1728, 3);
    static const fedge_optimizer OPTIMIZERS[] = {
        {.learning_rate = 0.02f},
        {.learning_rate = 0.02f, .momentum = 0.9f, .nesterov = true, .weight_decay = 0.01f},
        {.learning_rate = 0.02f, .momentum = 0.9f, .clip_norm = 0.3f, .proximal_mu = 0.1f},
        {.type = FEDGE_OPTIMIZER_ADAM, .learning_rate = 1e-4f},
    };
    for (unsigned i = 0; i < sizeof(OPTIMIZERS) / sizeof(OPTIMIZERS[0]); i++) {
        const fedge_optimizer *optimizer = &OPTIMIZERS[i];
        const fedge_model_options whole = {.max_batch = 13,
                                           .training = true,
                                           .momentum = optimizer->momentum,
                                           .nesterov = optimizer->nesterov,
                                           .optimizer = optimizer->type,
                                           .clip = optimizer->clip_norm > 0.0f,
                                           .proximal = optimizer->proximal_mu > 0.0f};
        fedge_model_options parts = whole;
        fedge_model_memory all, some;
        parts.micro_batch = 4;
        assert_same(&spec, &whole, &parts, 13, optimizer, &all, &some);
        assert_true(some.activations <= all.activations / 3 + 4096);
        assert_true(some.total < all.total);
        parts.micro_batch = 13; /* whole batches */
        assert_same(&spec, &whole, &parts, 13, optimizer, &all, &some);
        assert_int_equal(all.total, some.total);
    }
}

/* All outputs of an evaluation are there, and the sums are those of the whole batch. */
static void test_micro_evaluation(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    const fedge_model_options whole = {.max_batch = 9, .general = true};
    fedge_model_options parts = whole;
    test_model a, b;
    float x[9 * 5];
    int32_t labels[9];
    double loss[2];
    uint32_t correct[2];
    fedge_error err = {0};
    spec_input(&spec, 1, 5, 0, 0);
    spec_linear(&spec, 5, 3);
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 1, 0, 0);
    fill_batch(&rng, x, 45, labels, 9, 3);
    parts.micro_batch = 2;
    model_open(&a, &spec, &whole, SEED, 0);
    model_open(&b, &spec, &parts, SEED, 0);
    assert_int_equal(fedge_model_evaluate(a.model, x, labels, 9, &loss[0], &correct[0], &err), 0);
    assert_int_equal(fedge_model_evaluate(b.model, x, labels, 9, &loss[1], &correct[1], &err), 0);
    assert_true(fabs(loss[0] - loss[1]) <= 1e-6 * loss[0] && correct[0] == correct[1]);
    for (int i = 0; i < 27; i++) {
        assert_true(fabsf(fedge_model_outputs(a.model)[i] - fedge_model_outputs(b.model)[i]) <=
                    1e-6f);
    }
    model_close(&a);
    model_close(&b);
}

/* On the fused stages what a convolution or Flatten read gives its place to its gradient: another
 * example needs room for the gradients of a Linear's input and of the outputs only. */
static void test_fused_gradients(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    const fedge_optimizer optimizer = {.learning_rate = 0.05f};
    fedge_model_options fused = {.max_batch = 9, .training = true};
    fedge_model_options general = fused;
    fedge_model_memory few, many, layers;
    general.general = true;
    spec_input(&spec, 3, 1, 16, 16);
    spec_conv(&spec, 1, 8, 3, 1, 1);
    spec_relu(&spec);
    spec_conv(&spec, 8, 8, 5, 1, 2); /* reads what was rectified, with a border */
    spec_conv(&spec, 8, 5, 3, 2, 1); /* and what was not */
    spec_relu(&spec);
    spec_flatten(&spec);
    spec_linear(&spec, 320, 3);
    assert_same(&spec, &fused, &general, 9, &optimizer, &many, &layers);
    fused.max_batch = 8;
    assert_int_equal(fedge_model_size(&spec, &fused, &few, NULL), FEDGE_OK);
    assert_true(many.gradients > few.gradients);
    assert_true(many.gradients - few.gradients <= (320 + 3) * sizeof(float) + 64);
}

/* ---- micro-batches that nobody asked for ---- */

static void images_spec(fedge_model_spec *spec, fedge_layer_type norm)
{
    spec_input(spec, 3, 3, 32, 32);
    spec_conv(spec, 3, 12, 3, 1, 1);
    fedge_layer_spec *layer = spec_add(spec, norm);
    if (norm == FEDGE_LAYER_GROUPNORM) {
        layer->u.groupnorm.num_groups = 4;
        layer->u.groupnorm.num_channels = 12;
        layer->u.groupnorm.eps = 1e-5f;
    } else if (norm == FEDGE_LAYER_BATCHNORM2D) {
        layer->u.batchnorm2d.num_features = 12;
        layer->u.batchnorm2d.eps = 1e-5f;
        layer->u.batchnorm2d.track_running_stats = true;
    }
    spec_conv(spec, 12, 8, 3, 2, 1);
    spec_flatten(spec);
    spec_linear(spec, 2048, 3);
}

static void steps_spec(fedge_model_spec *spec)
{
    spec_input(spec, 2, 120, 6, 0);
    fedge_layer_spec *layer = spec_add(spec, FEDGE_LAYER_GRU);
    layer->u.recurrent.input_size = 6;
    layer->u.recurrent.hidden_size = 16;
    layer->u.recurrent.num_layers = 1;
    layer->u.recurrent.bias = layer->u.recurrent.batch_first = true;
    spec_flatten(spec);
    spec_linear(spec, 1920, 3);
}

/* What is chosen, the same whatever the kernels, and never more memory than the whole batch's. */
static uint32_t chosen(const fedge_model_spec *spec, const fedge_model_options *options)
{
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    const uint32_t part = fedge_model_micro_batch(spec, options);
    for (unsigned i = 0; part > 0 && i < num_levels; i++) {
        fedge_model_options parts = *options;
        fedge_model_memory all, some;
        parts.disabled_cpu_features = levels[i];
        parts.micro_batch = options->max_batch;
        assert_int_equal(fedge_model_micro_batch(spec, &parts), part);
        assert_int_equal(fedge_model_size(spec, &parts, &all, NULL), FEDGE_OK);
        parts.micro_batch = part;
        assert_int_equal(fedge_model_size(spec, &parts, &some, NULL), FEDGE_OK);
        assert_true(some.total < all.total);
    }
    return part;
}

static void test_chosen_parts(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_model_options options = {.max_batch = 32, .training = true, .momentum = 0.9f};
    images_spec(&spec, FEDGE_LAYER_GROUPNORM);
    assert_int_equal(chosen(&spec, &options), 4);
    options.training = false;
    assert_int_equal(chosen(&spec, &options), 0);
    options.training = true;
    options.max_batch = 8;
    assert_int_equal(chosen(&spec, &options), 4);
    options.max_batch = 10; /* five and five, not four, four and two */
    assert_int_equal(chosen(&spec, &options), 5);
    options.max_batch = 7; /* less than two parts */
    assert_int_equal(chosen(&spec, &options), 0);
    options.max_batch = 32;
    spec.layers[4].u.linear.in_features = 0;
    assert_int_equal(chosen(&spec, &options), 0); /* not a model */
    images_spec(&spec, FEDGE_LAYER_BATCHNORM2D);
    assert_int_equal(chosen(&spec, &options), 0); /* its statistics are the batch's */
    spec.layers[1].u.batchnorm2d.frozen = true;
    assert_int_equal(chosen(&spec, &options), 4);
    images_spec(&spec, FEDGE_LAYER_RELU);
    assert_int_equal(chosen(&spec, &options), 0); /* fused */
    options.optimizer = FEDGE_OPTIMIZER_ADAM;
    assert_int_equal(chosen(&spec, &options), 4); /* layer by layer */
    steps_spec(&spec);
    assert_int_equal(chosen(&spec, &options), 8);
    options.max_batch = 15;
    assert_int_equal(chosen(&spec, &options), 0);
}

/* The gradients of all that is summed must be small against the work of a part: large weights make
 * larger parts, and none where the gradients would take what the parts save. */
static void test_chosen_for_large_weights(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_model_options options = {
        .max_batch = 1024, .training = true, .optimizer = FEDGE_OPTIMIZER_ADAM};
    spec_input(&spec, 1, 300, 0, 0);
    spec_linear(&spec, 300, 100);
    (void)spec_add(&spec, FEDGE_LAYER_TANH);
    spec_linear(&spec, 100, 10);
    const uint32_t part = chosen(&spec, &options);
    assert_in_range(part, 64, 512);
    options.max_batch = part;
    assert_int_equal(chosen(&spec, &options), 0);
}

/* A convolution with a norm, [times] over, on images of [side]². */
static void small_spec(fedge_model_spec *spec, uint32_t side, int times)
{
    spec_input(spec, 3, 1, side, side);
    for (int i = 0; i < times; i++) {
        spec_conv(spec, i == 0 ? 1 : 8, 8, 3, 1, 1);
        fedge_layer_spec *layer = spec_add(spec, FEDGE_LAYER_GROUPNORM);
        layer->u.groupnorm.num_groups = 2;
        layer->u.groupnorm.num_channels = 8;
        layer->u.groupnorm.eps = 1e-5f;
        spec_relu(spec);
    }
    spec_flatten(spec);
    spec_linear(spec, 8 * side * side, 3);
}

/* Where a part is little work its layers' and the sums' own costs show: such batches stay whole,
 * and of deep nets larger ones do than of others with as much to keep. */
static void test_chosen_for_small_nets(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    for (uint32_t batch = 8; batch <= 64; batch *= 2) {
        const fedge_model_options options = {.max_batch = batch, .training = true};
        small_spec(&spec, 4, 1);
        assert_int_equal(chosen(&spec, &options), 0);
        steps_spec(&spec);
        spec.input_shape[0] = 16;
        spec.layers[0].u.recurrent.hidden_size = 8;
        spec.layers[2].u.linear.in_features = 128;
        assert_int_equal(chosen(&spec, &options), 0);
        spec_input(&spec, 1, 16, 0, 0);
        spec_linear(&spec, 16, 16);
        (void)spec_add(&spec, FEDGE_LAYER_GELU);
        spec_linear(&spec, 16, 3);
        assert_int_equal(chosen(&spec, &options), 0);
    }
    const fedge_model_options options = {.max_batch = 32, .training = true};
    fedge_model_memory memory[2];
    small_spec(&spec, 8, 8);
    assert_int_equal(fedge_model_size(&spec, &options, &memory[0], NULL), FEDGE_OK);
    assert_int_equal(chosen(&spec, &options), 0);
    small_spec(&spec, 18, 1);
    assert_int_equal(fedge_model_size(&spec, &options, &memory[1], NULL), FEDGE_OK);
    assert_true(memory[1].activations < memory[0].activations);
    assert_int_equal(chosen(&spec, &options), 16);
}

/* A step in the parts that are chosen is the whole batch's. */
static void test_chosen_step(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    const fedge_optimizer optimizer = {.learning_rate = 0.02f, .momentum = 0.9f, .clip_norm = 0.5f};
    const fedge_model_options whole = {
        .max_batch = 19, .training = true, .momentum = 0.9f, .clip = true};
    for (int i = 0; i < 2; i++) {
        fedge_model_options parts = whole;
        fedge_model_memory all, some;
        if (i == 0)
            images_spec(&spec, FEDGE_LAYER_GROUPNORM);
        else
            steps_spec(&spec);
        parts.micro_batch = fedge_model_micro_batch(&spec, &whole);
        assert_int_equal(parts.micro_batch, i == 0 ? 5 : 10);
        assert_same(&spec, &whole, &parts, 19, &optimizer, &all, &some);
        assert_true(some.total < all.total);
    }
}

/* A norm with running statistics, an activation and Dropout made again: the same bits, and the
 * arrays are not kept; with masks, in micro-batches, and in a residual net too. */
static void recompute_spec(fedge_model_spec *spec, bool recompute)
{
    spec_input(spec, 3, 3, 12, 12);
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t before = spec->num_layers;
        spec_conv(spec, i == 0 ? 3 : 8, 8, 3, 1, 1);
        fedge_layer_spec *norm = spec_add(spec, FEDGE_LAYER_BATCHNORM2D);
        norm->u.batchnorm2d.num_features = 8;
        norm->u.batchnorm2d.eps = 1e-5f;
        norm->u.batchnorm2d.momentum = 0.1f;
        norm->u.batchnorm2d.affine = norm->u.batchnorm2d.track_running_stats = true;
        norm->recompute = recompute;
        spec_add(spec, i == 1 ? FEDGE_LAYER_GELU : FEDGE_LAYER_RELU)->recompute = recompute;
        fedge_layer_spec *dropout = spec_add(spec, FEDGE_LAYER_DROPOUT);
        dropout->u.dropout.p = 0.3f;
        dropout->recompute = recompute;
        if (i > 0) {
            fedge_layer_spec *add = spec_add(spec, FEDGE_LAYER_ADD);
            add->num_inputs = 2;
            add->inputs[0] = (uint16_t)(before - 1);
            add->inputs[1] = (uint16_t)(before + 3);
        }
    }
    spec_flatten(spec);
    spec_linear(spec, 1152, 4);
}

static void test_recompute(void **state)
{
    (void)state;
    static fedge_model_spec kept, again;
    const fedge_optimizer optimizer = {.learning_rate = 0.05f, .momentum = 0.9f};
    recompute_spec(&kept, false);
    recompute_spec(&again, true);
    for (uint32_t micro = 0; micro <= 4; micro += 4) {
        const fedge_model_options options = {
            .max_batch = 8, .micro_batch = micro, .training = true, .momentum = 0.9f};
        float *values[2];
        double loss[2];
        const fedge_model_memory all = train(&kept, &options, 8, &optimizer, &values[0], &loss[0]);
        const fedge_model_memory less =
            train(&again, &options, 8, &optimizer, &values[1], &loss[1]);
        const size_t n = (size_t)3 * 8 * 9 + 2 * 8 * 8 * 9 + 3 * 8 * 3 + 1152 * 4 + 4;
        assert_memory_equal(values[0], values[1], n * sizeof(float));
        assert_memory_equal(&loss[0], &loss[1], sizeof(loss[0]));
        assert_true(less.activations * 20 < all.activations * 17);
        free(values[0]);
        free(values[1]);
    }
}

/* The running statistics are counted once. */
static void test_recompute_statistics(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    const fedge_model_options options = {.max_batch = 2, .training = true};
    const fedge_optimizer optimizer = {.learning_rate = 0.05f};
    fedge_error err = {0};
    float x[2 * 3 * 144], first[6 * 8];
    const int32_t labels[2] = {0, 3};
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 2, 0, 0);
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++)
        x[i] = (float)fedge_rng_normal(&rng);
    for (int i = 0; i < 2; i++) {
        test_model self;
        double loss;
        uint32_t correct;
        recompute_spec(&spec, i == 1);
        model_open(&self, &spec, &options, SEED, 0);
        assert_int_equal(
            fedge_model_step(self.model, x, labels, 2, &optimizer, &loss, &correct, &err),
            FEDGE_OK);
        assert_int_equal(fedge_model_num_buffers(self.model), 6 * 8);
        if (i == 0)
            memcpy(first, fedge_model_buffers(self.model), sizeof(first));
        assert_memory_equal(first, fedge_model_buffers(self.model), sizeof(first));
        model_close(&self);
    }
}

/* ---- the stack ---- */

#define STACK ((size_t)512 * 1024)
#define PAINT 0xa5

/* How much of a fresh stack [run] uses, the thread's own start included. */
static size_t stack_of(void *(*run)(void *), void *user)
{
    pthread_t thread;
    pthread_attr_t attributes;
    uint8_t *stack = aligned_alloc(4096, STACK);
    size_t unused = 0;
    assert_non_null(stack);
    memset(stack, PAINT, STACK);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run, user), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_attr_destroy(&attributes);
    while (unused < STACK && stack[unused] == PAINT)
        unused++;
    free(stack);
    return STACK - unused;
}

static void *do_nothing(void *user)
{
    return user;
}

static void *plan(void *user)
{
    const fedge_model_spec *spec = user;
    fedge_model_options options = {.max_batch = 32, .training = true};
    static fedge_layer_memory layers[FEDGE_MAX_LAYERS];
    fedge_model_memory memory;
    fedge_model *model;
    options.micro_batch = fedge_model_micro_batch(spec, &options);
    if (fedge_model_size(spec, &options, &memory, NULL) != FEDGE_OK ||
        fedge_model_layer_memory(spec, &options, layers, NULL) != FEDGE_OK)
        return user;
    fedge_error err;
    void *block = aligned_alloc(64, memory.total);
    const fedge_status small = fedge_model_new(&model, spec, &options, block, 64, &err);
    const fedge_status status = fedge_model_new(&model, spec, &options, block, memory.total, NULL);
    free(block);
    return status == FEDGE_OK && small == FEDGE_TOO_BIG ? NULL : user;
}

static void test_stack(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    images_spec(&spec, FEDGE_LAYER_GROUPNORM);
    const size_t bare = stack_of(do_nothing, NULL), used = stack_of(plan, &spec) - bare;
    print_message("planning takes %zu bytes of stack of %zu\n", used, FEDGE_PLANNING_STACK);
    assert_true(used > FEDGE_MAX_LAYERS * sizeof(uint32_t)); /* it was measured */
#ifndef FEDGE_LARGE_FRAMES
    assert_true(used <= FEDGE_PLANNING_STACK);
    images_spec(&spec, FEDGE_LAYER_RELU);
    assert_true(stack_of(plan, &spec) - bare <= FEDGE_PLANNING_STACK / 10); /* fused */
#endif
}

/* Layers of a fused model, (1, side, side) images; the last stands for its four stages. */
static void fused_layers(uint32_t side, const fedge_model_options *options,
                         fedge_layer_memory layers[7], fedge_model_memory *memory)
{
    static fedge_model_spec spec;
    spec_input(&spec, 3, 1, side, side);
    spec_conv(&spec, 1, 4, 3, 1, 1);
    spec_relu(&spec);
    spec_pool(&spec, 2, 2, 0);
    spec_flatten(&spec);
    spec_linear(&spec, side * side, 16);
    spec_relu(&spec);
    spec_linear(&spec, 16, 3);
    assert_int_equal(fedge_model_layer_memory(&spec, options, layers, NULL), FEDGE_OK);
    assert_int_equal(fedge_model_size(&spec, options, memory, NULL), FEDGE_OK);
}

/* The layers' shares are all that the model's sums count, but for records that do not depend on the
 * image. Two buffers have the gradients of the stages in turn, and only one stage has scratch. */
static void test_fused_layers(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    for (unsigned i = 0; i < 2 * num_levels; i++) {
        const fedge_model_options options = {.max_batch = 1,
                                             .training = i < num_levels,
                                             .disabled_cpu_features = levels[i % num_levels]};
        size_t records[2], scratch[2];
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t side = 8 << k;
            fedge_layer_memory layers[7];
            fedge_model_memory memory;
            fused_layers(side, &options, layers, &memory);
            size_t kept = 0, gradients = 0;
            for (int l = 0; l < 7; l++) {
                kept += layers[l].output + layers[l].saved;
                assert_int_equal(layers[l].scratch != 0, l == 2);
            }
            if (options.training) {
                const size_t pooled = layers[2].output, flat = (size_t)side * side * sizeof(float);
                assert_int_equal(kept, memory.activations);
                assert_int_equal(layers[2].gradient, pooled);
                assert_int_equal(layers[3].gradient, flat);
                assert_int_equal(layers[5].gradient, 16 * sizeof(float));
                assert_int_equal(layers[6].gradient, 64);
                gradients = pooled + flat; /* of even and of odd stages */
            }
            scratch[k] = layers[2].scratch;
            records[k] = memory.gradients + memory.scratch - gradients - scratch[k];
        }
        assert_true(scratch[0] < scratch[1]);
        assert_int_equal(records[0], records[1]);
    }
}

/* What is flat already may be flattened, and rectified then. */
static void test_fused_flattens(void **state)
{
    (void)state;
    const fedge_optimizer optimizer = {.learning_rate = 0.05f};
    for (int image = 0; image < 2; image++) {
        static fedge_model_spec spec;
        spec_input(&spec, 3, 1, 8, 8);
        if (image) {
            spec_conv(&spec, 1, 2, 3, 1, 1);
            spec_flatten(&spec);
        } else {
            spec_flatten(&spec);
            spec_linear(&spec, 64, 128);
        }
        spec_flatten(&spec);
        spec_relu(&spec);
        spec_flatten(&spec);
        spec_relu(&spec);
        spec_linear(&spec, 128, 5);
        const fedge_model_options fused = {.max_batch = 6, .training = true};
        const fedge_model_options general = {.max_batch = 6, .training = true, .general = true};
        fedge_model_memory a, b;
        assert_same(&spec, &fused, &general, 6, &optimizer, &a, &b);
    }
}

/* Where products round their factors to bf16, cells need less room: --plan says so too. */
static void test_layers_in_bf16(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_layer_memory layers[3];
    size_t scratch[2];
    spec_input(&spec, 2, 40, 8, 0);
    fedge_layer_spec *lstm = spec_add(&spec, FEDGE_LAYER_LSTM);
    lstm->u.recurrent.input_size = 8;
    lstm->u.recurrent.hidden_size = 128;
    lstm->u.recurrent.num_layers = 1;
    lstm->u.recurrent.bias = true;
    lstm->u.recurrent.batch_first = true;
    spec_flatten(&spec);
    spec_linear(&spec, 40 * 128, 3);
    for (int i = 0; i < 2; i++) {
        const fedge_model_options options = {.max_batch = 16,
                                             .training = true,
                                             .precision = i == 0 ? FEDGE_PRECISION_FP32
                                                                 : FEDGE_PRECISION_BF16};
        fedge_model_memory memory;
        assert_int_equal(fedge_model_layer_memory(&spec, &options, layers, NULL), FEDGE_OK);
        assert_int_equal(fedge_model_size(&spec, &options, &memory, NULL), FEDGE_OK);
        scratch[i] = layers[0].scratch;
        assert_true(scratch[i] <= memory.activations + memory.gradients);
    }
    assert_true(scratch[1] <= scratch[0]);
    if ((fedge_os_cpu_features() & FEDGE_CPU_AVX2) != 0)
        assert_true(scratch[1] < scratch[0]); /* states are not packed */
}

/* Where gradients are kept, for clipping or micro-batches, each layer's are in its scratch, and a
 * part takes what a batch of its size takes; statistics are values. */
static void test_layers_with_gradients(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    static fedge_model_spec spec;
    images_spec(&spec, FEDGE_LAYER_BATCHNORM2D);
    spec.layers[1].u.batchnorm2d.affine = true;
    for (unsigned i = 0; i < num_levels; i++) {
        const fedge_model_options plain = {
            .max_batch = 4, .training = true, .general = true, .disabled_cpu_features = levels[i]};
        fedge_model_options clip = plain, parts = plain;
        fedge_layer_memory without[5], with[5], in_parts[5];
        fedge_model_memory memory;
        size_t parameters = 0, buffers = 0, values = 0;
        clip.clip = true;
        parts.max_batch = 12;
        parts.micro_batch = 4;
        assert_int_equal(fedge_model_layer_memory(&spec, &plain, without, NULL), FEDGE_OK);
        assert_int_equal(fedge_model_layer_memory(&spec, &clip, with, NULL), FEDGE_OK);
        assert_int_equal(fedge_model_layer_memory(&spec, &parts, in_parts, NULL), FEDGE_OK);
        assert_memory_equal(with, in_parts, sizeof(with));
        for (int l = 0; l < 5; l++) {
            const size_t gradients = with[l].parameters * sizeof(float);
            /* Without, each tensor's are rounded up. */
            assert_in_range(with[l].scratch + 2 * 63, without[l].scratch,
                            without[l].scratch + gradients + 2 * 63);
            assert_true(with[l].scratch >= gradients);
            with[l].scratch = without[l].scratch;
            parameters += with[l].parameters;
            buffers += with[l].buffers;
            values += with[l].values;
        }
        assert_memory_equal(with, without, sizeof(with));
        assert_true(buffers == 24 && values == (parameters + buffers) * sizeof(float));
        assert_int_equal(fedge_model_size(&spec, &parts, &memory, NULL), FEDGE_OK);
        assert_int_equal(memory.gradients, (parameters * sizeof(float) + 63) / 64 * 64);
    }
}

/* In a batch of more than one a Flatten's gradient goes where its output was, by way of room for
 * one example. */
static void test_fused_in_place(void **state)
{
    (void)state;
    const fedge_model_options options = {
        .max_batch = 8, .training = true, .disabled_cpu_features = ~0u};
    fedge_layer_memory layers[7];
    fedge_model_memory memory;
    fused_layers(8, &options, layers, &memory);
    assert_int_equal(layers[2].gradient, 0);
    assert_int_equal(layers[3].gradient, 8 * 64 * sizeof(float));
    assert_int_equal(layers[3].scratch, 64 * sizeof(float));
}

/* A layer that is let in, but that no stage takes, is not passed over. */
static void test_fused_takes_every_layer(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    const fedge_model_options options = {.max_batch = 8, .training = true};
    fedge_stage_walk walk;
    fedge_stage stage;
    fedge_error err = {0};
    bool more;
    spec_input(&spec, 1, 6, 0, 0);
    spec_linear(&spec, 6, 5);
    spec_relu(&spec);
    (void)spec_add(&spec, FEDGE_LAYER_TANH);
    spec_linear(&spec, 5, 3);
    assert_int_equal(fedge_stage_walk_begin(&walk, &spec, &options, 4, &err), FEDGE_OK);
    assert_int_equal(fedge_stage_walk_next(&walk, &stage, &more, &err), FEDGE_OK);
    assert_true(more && stage.relu);
    assert_int_equal(fedge_stage_walk_next(&walk, &stage, &more, &err), FEDGE_INTERNAL);
    assert_non_null(strstr(err.message, "layer 2 (Tanh"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_micro_batches),
                                       cmocka_unit_test(test_micro_evaluation),
                                       cmocka_unit_test(test_fused_gradients),
                                       cmocka_unit_test(test_fused_layers),
                                       cmocka_unit_test(test_fused_in_place),
                                       cmocka_unit_test(test_fused_flattens),
                                       cmocka_unit_test(test_fused_takes_every_layer),
                                       cmocka_unit_test(test_layers_in_bf16),
                                       cmocka_unit_test(test_layers_with_gradients),
                                       cmocka_unit_test(test_chosen_parts),
                                       cmocka_unit_test(test_chosen_for_large_weights),
                                       cmocka_unit_test(test_chosen_for_small_nets),
                                       cmocka_unit_test(test_chosen_step),
                                       cmocka_unit_test(test_stack),
                                       cmocka_unit_test(test_recompute),
                                       cmocka_unit_test(test_recompute_statistics)};
    return cmocka_run_group_tests_name("train memory", tests, NULL, NULL);
}
