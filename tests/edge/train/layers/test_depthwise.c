/* Depthwise convolutions: the kernels on every table against double precision, and the layers
 * against finite differences: strides, paddings, dilations, odd sizes, rows narrower than a vector,
 * images of more than one band. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/train/kernels/kernels.h"
#include "tests/edge/train/support.h"

#define TRIALS 600
#define MOST_TAPS 7u
#define MOST_WIDTH 40u /* of outputs: more than two vectors of 16 */
#define UNIT 0x1p-24   /* half a unit in the last place, relative */
#define BEFORE 3.25f   /* what an array holds where nothing may be written */

static float *room(size_t n)
{
    float *v = malloc((n + 1) * sizeof(*v));
    assert_non_null(v);
    for (size_t i = 0; i <= n; i++)
        v[i] = BEFORE;
    return v;
}

static float *normals(fedge_rng *rng, size_t n)
{
    float *v = room(n);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)fedge_rng_normal(rng);
    return v;
}

/* A shape with its arrays; x is exactly as long as the kernels may read. */
typedef struct trial {
    fedge_depthwise shape;
    uint32_t columns[MOST_TAPS];
    float *x, *w, *y, *dy, *dw;
    size_t outputs, taps;
    float bias;
    bool add;
} trial;

static void make_trial(trial *self, const fedge_kernels *kernels, fedge_rng *rng)
{
    const uint32_t kind = fedge_rng_below(rng, 4); /* squares of 3 or 5 taps, one row, anything */
    const size_t stride = 1 + fedge_rng_below(rng, 2);
    const size_t dilation = kind < 2 ? 1 : 1 + fedge_rng_below(rng, 2);
    fedge_depthwise *shape = &self->shape;
    *shape = (fedge_depthwise){.rows = kind == 2 ? 1 : 1 + fedge_rng_below(rng, 11),
                               .width = 1 + fedge_rng_below(rng, MOST_WIDTH),
                               .columns = self->columns};
    for (int i = 0; i < 2; i++)
        shape->kernel[i] = kind < 2 ? 3 + 2 * kind : 1 + fedge_rng_below(rng, MOST_TAPS);
    uint32_t furthest = 0;
    for (size_t j = 0; j < shape->kernel[1]; j++) {
        self->columns[j] = fedge_rng_below(rng, 60);
        furthest = self->columns[j] > furthest ? self->columns[j] : furthest;
    }
    const size_t row = furthest + shape->width;
    shape->pitch = dilation * row;
    shape->step = stride * row;
    const size_t last = (shape->rows - 1) * shape->step + (shape->kernel[0] - 1) * shape->pitch;
    self->outputs = shape->rows * shape->width;
    self->taps = shape->kernel[0] * shape->kernel[1];
    self->x = normals(rng, last + row + kernels->lanes - 1);
    self->w = normals(rng, self->taps);
    self->dy = normals(rng, self->outputs);
    self->y = room(self->outputs);
    self->dw = room(self->taps);
    self->bias = (float)fedge_rng_normal(rng);
    self->add = fedge_rng_below(rng, 2) != 0;
}

static void free_trial(trial *self)
{
    float *const owned[] = {self->x, self->w, self->y, self->dy, self->dw};
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        free(owned[i]);
}

static double pixel(const trial *self, size_t output, size_t tap)
{
    const fedge_depthwise *shape = &self->shape;
    const size_t i = tap / shape->kernel[1], j = tap % shape->kernel[1];
    return (double)self->x[output / shape->width * shape->step + i * shape->pitch +
                           self->columns[j] + output % shape->width];
}

/* A sum of n products, and what it is added to, differs by at most 2 · (n + 1) · UNIT · Σ |a · b|,
 * as kernels.h says. */
static void near(const char *what, const fedge_kernels *kernels, size_t i, float is, double wanted,
                 size_t n, double magnitude)
{
    if (!(fabs((double)is - wanted) <= 2.0 * (double)(n + 1) * UNIT * magnitude))
        fail_msg("%s on %s at %zu: %.9g, not %.9g", what, kernels->name, i, (double)is, wanted);
}

static void check_trial(const fedge_kernels *kernels, fedge_rng *rng)
{
    trial self;
    make_trial(&self, kernels, rng);
    kernels->depthwise(&self.shape, self.x, self.w, self.bias, self.add, self.y);
    kernels->depthwise_weight_grad(&self.shape, self.x, self.dy, self.dw);
    for (size_t i = 0; i < self.outputs; i++) {
        double sum = (double)(self.add ? BEFORE : self.bias), magnitude = fabs(sum);
        for (size_t tap = 0; tap < self.taps; tap++) {
            const double product = (double)self.w[tap] * pixel(&self, i, tap);
            sum += product;
            magnitude += fabs(product);
        }
        near("depthwise", kernels, i, self.y[i], sum, self.taps, magnitude);
    }
    for (size_t tap = 0; tap < self.taps; tap++) {
        double sum = (double)BEFORE, magnitude = fabs(sum);
        for (size_t i = 0; i < self.outputs; i++) {
            const double product = (double)self.dy[i] * pixel(&self, i, tap);
            sum += product;
            magnitude += fabs(product);
        }
        near("depthwise_weight_grad", kernels, tap, self.dw[tap], sum, self.outputs, magnitude);
    }
    assert_true(self.y[self.outputs] == BEFORE && self.dw[self.taps] == BEFORE);
    free_trial(&self);
}

static void check_rows(const fedge_kernels *kernels, fedge_rng *rng)
{
    const size_t rows = 1 + fedge_rng_below(rng, 5), width = fedge_rng_below(rng, MOST_WIDTH);
    const size_t stride = 2 * width + fedge_rng_below(rng, 3);
    float *x = normals(rng, rows * stride), *y = room(rows * stride), *back = room(rows * stride);
    kernels->split_rows(rows, width, x, stride, y, y + width, stride);
    kernels->spread_rows(rows, width, y, stride, back, stride);
    for (size_t i = 0; i < rows * stride; i++) {
        const size_t column = i % stride;
        const float even = column < 2 * width ? x[i] : BEFORE;
        assert_true(back[i] == (column % 2 == 0 || column >= 2 * width ? even : 0.0f));
        assert_true(y[i] == (column < width       ? x[i + column]
                             : column < 2 * width ? x[i + 1 + column - 2 * width]
                                                  : BEFORE));
    }
    assert_true(y[rows * stride] == BEFORE && back[rows * stride] == BEFORE);
    free(back);
    free(y);
    free(x);
}

static void on_every_table(void (*check)(const fedge_kernels *, fedge_rng *))
{
    unsigned levels[MAX_LEVELS];
    const unsigned n = kernel_levels(levels);
    for (unsigned level = 0; level < n; level++) {
        fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 0, 0, 0);
        for (int i = 0; i < TRIALS; i++)
            check(fedge_kernels_choose(fedge_os_cpu_features() & ~levels[level]), &rng);
    }
}

static void test_kernels(void **state)
{
    (void)state;
    on_every_table(check_trial);
}

static void test_rows(void **state)
{
    (void)state;
    on_every_table(check_rows);
}

/* One depthwise layer between a pointwise one, so that its input's gradient is seen, and a Linear.
 */
typedef struct image_case {
    uint32_t size[2], channels, times; /* outputs per channel */
    uint32_t kernel[2], stride[2], padding[2], dilation[2];
} image_case;

static uint32_t outputs(const image_case *at, int axis)
{
    const uint32_t reach = (at->kernel[axis] - 1) * at->dilation[axis];
    return (at->size[axis] + 2 * at->padding[axis] - reach - 1) / at->stride[axis] + 1;
}

static void check_image(const image_case *at, bool bias, uint32_t batch, size_t samples)
{
    fedge_model_spec spec;
    spec_input(&spec, 3, 1, at->size[0], at->size[1]);
    spec_conv(&spec, 1, at->channels, 1, 1, 0)->u.conv2d.bias = bias;
    fedge_layer_spec *layer = spec_conv(&spec, at->channels, at->channels * at->times, 0, 0, 0);
    layer->u.conv2d.bias = bias;
    layer->u.conv2d.groups = at->channels;
    for (int i = 0; i < 2; i++) {
        layer->u.conv2d.kernel_size[i] = at->kernel[i];
        layer->u.conv2d.stride[i] = at->stride[i];
        layer->u.conv2d.padding[i] = at->padding[i];
        layer->u.conv2d.dilation[i] = at->dilation[i];
    }
    spec_flatten(&spec);
    spec_linear(&spec, at->channels * at->times * outputs(at, 0) * outputs(at, 1), 3);
    check_spec(&spec, batch, samples);
}

static void test_images(void **state)
{
    (void)state;
    static const image_case cases[] = {
        {{8, 8}, 3, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        {{9, 21}, 2, 1, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
        {{7, 18}, 2, 2, {3, 3}, {2, 2}, {0, 0}, {1, 1}},
        {{6, 5}, 3, 3, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
        {{11, 12}, 2, 1, {5, 5}, {2, 2}, {2, 1}, {1, 1}},
        {{5, 4}, 2, 1, {3, 3}, {1, 2}, {4, 5}, {1, 1}}, /* more padding than taps */
        {{8, 9}, 2, 1, {3, 2}, {2, 1}, {1, 2}, {2, 3}},
        {{4, 7}, 2, 1, {1, 1}, {2, 2}, {1, 0}, {1, 1}}, /* places that meet no tap */
        {{6, 8}, 2, 2, {2, 4}, {1, 2}, {0, 9}, {1, 2}},
        {{9, 9}, 2, 1, {3, 3}, {3, 3}, {1, 1}, {1, 1}}, /* stride 3: not these kernels' */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_image(&cases[i], i % 2 == 0, 2, 30);
}

/* Of more rows than one band: 8192 floats. */
static void test_bands(void **state)
{
    (void)state;
    static const image_case cases[] = {
        {{131, 80}, 2, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        {{150, 90}, 2, 2, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
        {{4, 9000}, 2, 1, {2, 3}, {1, 2}, {1, 0}, {2, 1}}, /* and rows of more than all that */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_image(&cases[i], true, 2, 2);
}

static void test_one_dimension(void **state)
{
    (void)state;
    /* length, outputs per channel, kernel, stride, padding, dilation */
    static const uint32_t cases[][6] = {{9, 1, 3, 1, 1, 1},  {37, 2, 3, 1, 1, 2},
                                        {40, 1, 5, 2, 2, 1}, {50, 1, 8, 1, 7, 1},
                                        {64, 1, 4, 2, 0, 3}, {33, 2, 1, 2, 0, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t length = cases[i][0], reach = (cases[i][2] - 1) * cases[i][5];
        fedge_model_spec spec;
        spec_input(&spec, 2, 3, length, 0);
        spec_linear(&spec, length, length);
        fedge_layer_spec *conv = spec_add(&spec, FEDGE_LAYER_CONV1D);
        conv->u.conv1d.in_channels = conv->u.conv1d.groups = 3;
        conv->u.conv1d.out_channels = 3 * cases[i][1];
        conv->u.conv1d.kernel_size = cases[i][2];
        conv->u.conv1d.stride = cases[i][3];
        conv->u.conv1d.padding = cases[i][4];
        conv->u.conv1d.dilation = cases[i][5];
        conv->u.conv1d.bias = i % 2 == 0;
        spec_flatten(&spec);
        spec_linear(
            &spec, 3 * cases[i][1] * ((length + 2 * cases[i][4] - reach - 1) / cases[i][3] + 1), 3);
        check_spec(&spec, 3, 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),       cmocka_unit_test(test_rows),
        cmocka_unit_test(test_images),        cmocka_unit_test(test_bands),
        cmocka_unit_test(test_one_dimension),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
