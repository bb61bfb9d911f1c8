/* The plain layers of edge/train/layers/plain.h: a model of two convolutions and two linear layers
 * has their output and their gradients, on every level of kernels; and each by hand on small
 * numbers. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/train/layers/plain.h"
#include "tests/edge/train/support.h"

enum { BATCH = 3, CLASSES = 5, TRIALS = 6 };
enum { CONV1, CONV2, LINEAR1, LINEAR2, LAYERS };

/* The model, laid out by hand. */
typedef struct net {
    fedge_plain_conv2d conv[2];
    fedge_plain_linear linear[2];
    const double *w[LAYERS], *b[LAYERS]; /* in the block of values */
    double *y[LAYERS];                   /* outputs; no activations between: all is bilinear */
    size_t num_y[LAYERS];
} net;

static size_t out_size(size_t in, size_t kernel, size_t stride, size_t padding)
{
    return (in + 2 * padding - kernel) / stride + 1;
}

static uint32_t draw(fedge_rng *rng, uint32_t least, uint32_t most)
{
    return least + fedge_rng_below(rng, most - least + 1);
}

/* A convolution, and its layer in [spec]. */
static fedge_plain_conv2d add_conv(fedge_model_spec *spec, fedge_rng *rng, size_t channels,
                                   size_t height, size_t width, uint32_t groups)
{
    const uint32_t kernel = draw(rng, 1, 3), stride = draw(rng, 1, 2), padding = draw(rng, 0, 2);
    const uint32_t outputs = groups * draw(rng, 1, 3);
    fedge_layer_spec *layer = spec_conv(spec, (uint32_t)channels, outputs, kernel, stride, padding);
    layer->u.conv2d.groups = groups;
    return (fedge_plain_conv2d){.batch = BATCH,
                                .in_channels = channels,
                                .out_channels = outputs,
                                .groups = groups,
                                .in = {height, width},
                                .out = {out_size(height, kernel, stride, padding),
                                        out_size(width, kernel, stride, padding)},
                                .kernel = {kernel, kernel},
                                .stride = {stride, stride},
                                .padding = {padding, padding},
                                .dilation = {1, 1}};
}

static void make_net(net *self, fedge_model_spec *spec, fedge_rng *rng)
{
    const uint32_t channels = draw(rng, 1, 3), height = draw(rng, 5, 9), width = draw(rng, 5, 9);
    spec_input(spec, 3, channels, height, width);
    self->conv[0] = add_conv(spec, rng, channels, height, width, 1);
    const fedge_plain_conv2d *first = &self->conv[0];
    const uint32_t groups = fedge_rng_below(rng, 2) ? (uint32_t)first->out_channels : 1;
    self->conv[1] = add_conv(spec, rng, first->out_channels, first->out[0], first->out[1], groups);
    const fedge_plain_conv2d *second = &self->conv[1];
    const size_t features = second->out_channels * second->out[0] * second->out[1];
    const uint32_t hidden = draw(rng, 1, 9);
    spec_flatten(spec);
    spec_linear(spec, (uint32_t)features, hidden);
    spec_linear(spec, hidden, CLASSES);
    spec->loss = FEDGE_LOSS_CROSS_ENTROPY;
    self->linear[0] = (fedge_plain_linear){BATCH, features, hidden};
    self->linear[1] = (fedge_plain_linear){BATCH, hidden, CLASSES};
    self->num_y[CONV1] = BATCH * first->out_channels * first->out[0] * first->out[1];
    self->num_y[CONV2] = BATCH * features;
    self->num_y[LINEAR1] = BATCH * hidden;
    self->num_y[LINEAR2] = BATCH * CLASSES;
    for (int i = 0; i < LAYERS; i++)
        self->y[i] = new_doubles(self->num_y[i]);
}

static size_t num_weights(const net *self, int layer)
{
    if (layer >= LINEAR1)
        return self->linear[layer - LINEAR1].in * self->linear[layer - LINEAR1].out;
    const fedge_plain_conv2d *conv = &self->conv[layer];
    return conv->out_channels * (conv->in_channels / conv->groups) * conv->kernel[0] *
           conv->kernel[1];
}

static size_t num_biases(const net *self, int layer)
{
    return layer >= LINEAR1 ? self->linear[layer - LINEAR1].out : self->conv[layer].out_channels;
}

static void forward(net *self, const double *values, const double *x)
{
    for (int i = 0; i < LAYERS; i++) {
        self->w[i] = values;
        self->b[i] = values + num_weights(self, i);
        values = self->b[i] + num_biases(self, i);
    }
    for (int i = 0; i < 2; i++) {
        fedge_plain_conv2d_forward(&self->conv[i], i == 0 ? x : self->y[0], self->w[i], self->b[i],
                                   self->y[i]);
    }
    for (int i = 0; i < 2; i++) {
        const int at = LINEAR1 + i;
        fedge_plain_linear_forward(&self->linear[i], self->y[at - 1], self->w[at], self->b[at],
                                   self->y[at]);
    }
}

/* Gradients of the mean cross-entropy in the order of the values; returns the sum of the losses. */
static double backward(const net *self, const double *x, const int32_t *labels, double *gradient)
{
    double loss = 0.0, *slopes[LAYERS];
    size_t at = 0, places[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        slopes[i] = new_doubles(self->num_y[i]);
        places[i] = at;
        at += num_weights(self, i) + num_biases(self, i);
    }
    for (size_t n = 0; n < BATCH; n++) {
        const double *logits = self->y[LINEAR2] + n * CLASSES;
        double sum = 0.0;
        for (size_t c = 0; c < CLASSES; c++)
            sum += exp(logits[c]);
        loss += log(sum) - logits[labels[n]];
        for (size_t c = 0; c < CLASSES; c++) {
            slopes[LINEAR2][n * CLASSES + c] =
                (exp(logits[c]) / sum - ((size_t)labels[n] == c ? 1.0 : 0.0)) / BATCH;
        }
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        const double *in = i == 0 ? x : self->y[i - 1];
        double *before = i == 0 ? NULL : slopes[i - 1], *dw = gradient + places[i];
        double *db = dw + num_weights(self, i);
        if (i >= LINEAR1) {
            fedge_plain_linear_backward(&self->linear[i - LINEAR1], in, self->w[i], slopes[i],
                                        before, dw, db);
        } else {
            fedge_plain_conv2d_backward(&self->conv[i], in, self->w[i], slopes[i], before, dw, db);
        }
    }
    for (int i = 0; i < LAYERS; i++)
        free(slopes[i]);
    return loss;
}

static void check_model(net *self, const fedge_model_spec *spec, fedge_rng *rng, unsigned disabled)
{
    const fedge_model_options options = {
        .max_batch = BATCH, .training = true, .disabled_cpu_features = disabled};
    test_model model;
    model_open(&model, spec, &options, 1 + fedge_rng_u32(rng), 0);
    const fedge_plain_conv2d *first = &self->conv[0];
    const size_t inputs = BATCH * first->in_channels * first->in[0] * first->in[1];
    const size_t count = fedge_model_num_values(model.model);
    float *x = malloc(inputs * sizeof(*x));
    int32_t labels[BATCH];
    assert_non_null(x);
    fill_batch(rng, x, inputs, labels, BATCH, CLASSES);
    double *values = to_double(fedge_model_values(model.model), count),
           *wide = to_double(x, inputs);
    double *gradient = new_doubles(count), *expected = new_doubles(count), loss = 0.0;
    forward(self, values, wide);
    const double expected_loss = backward(self, wide, labels, expected);
    model_gradient(&model, x, labels, BATCH, gradient, &loss);
    assert_true(fabs(loss - expected_loss) <= 1e-5 * (1.0 + fabs(expected_loss)));
    for (size_t i = 0; i < count; i++) {
        if (!(fabs(gradient[i] - expected[i]) <= 2e-4 * (0.05 + fabs(expected[i]))))
            fail_msg("gradient %zu of %zu: %.9g, not %.9g", i, count, gradient[i], expected[i]);
    }
    free(values);
    free(wide);
    free(gradient);
    free(expected);
    free(x);
    model_close(&model);
}

static void models_have_their_gradients(void **unused)
{
    (void)unused;
    fedge_rng rng = fedge_rng_stream(41, FEDGE_PURPOSE_TEST, 0, 0, 0);
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    for (int trial = 0; trial < TRIALS; trial++) {
        net self = {0};
        fedge_model_spec spec;
        memset(&spec, 0, sizeof(spec));
        make_net(&self, &spec, &rng);
        for (unsigned i = 0; i < num_levels; i++)
            check_model(&self, &spec, &rng, levels[i]);
        for (int i = 0; i < LAYERS; i++)
            free(self.y[i]);
    }
}

/* Stride, padding and dilation on a row: y[c] = 10 + 2 x[2c - 1] + 3 x[2c + 1]. */
static void a_row_by_hand(void **unused)
{
    (void)unused;
    const fedge_plain_conv2d shape = {.batch = 1,
                                      .in_channels = 1,
                                      .out_channels = 1,
                                      .groups = 1,
                                      .in = {1, 5},
                                      .out = {1, 3},
                                      .kernel = {1, 2},
                                      .stride = {1, 2},
                                      .padding = {0, 1},
                                      .dilation = {1, 2}};
    const double x[] = {1, 2, 4, 8, 16}, w[] = {2, 3}, b[] = {10}, dy[] = {1, 100, 10000};
    double y[3], dx[5], dw[2], db[1];
    fedge_plain_conv2d_forward(&shape, x, w, b, y);
    const double expected[] = {10 + 3 * 2, 10 + 2 * 2 + 3 * 8, 10 + 2 * 8};
    assert_memory_equal(y, expected, sizeof(y));
    fedge_plain_conv2d_backward(&shape, x, w, dy, dx, dw, db);
    const double slopes[] = {0, 3 + 200, 0, 300 + 20000, 0};
    assert_memory_equal(dx, slopes, sizeof(dx));
    assert_true(dw[0] == 200 + 80000 && dw[1] == 2 + 800 && db[0] == 10101);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_their_gradients),
        cmocka_unit_test(a_row_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
