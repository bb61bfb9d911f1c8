/* Norms of images: the sums and passes of the kernels, with and without a rectifier behind the norm
 * in the same pass, and such pairs of layers against finite differences and against each layer
 * alone. */
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

#define TRIALS 300
#define MOST 2500u   /* values: more than two sums in float */
#define RUN 1024u    /* values that are summed in float at most: 64 vectors of 16 */
#define UNIT 0x1p-24 /* half a unit in the last place, relative */
#define BEFORE 3.25f /* what an array holds where nothing may be written */
#define SEED 17

/* ---- kernels ---- */

typedef struct trial {
    size_t n;
    fedge_normal plain, rectified;
    fedge_norm_gradient slope;
    float x[MOST], dy[MOST], dz[MOST], y[MOST + 1], wanted[MOST + 1];
} trial;

static void make_trial(trial *self, fedge_rng *rng)
{
    self->n = 1 + fedge_rng_below(rng, fedge_rng_below(rng, 2) ? MOST : 70);
    self->plain = (fedge_normal){.center = (float)fedge_rng_normal(rng),
                                 .scale = (float)fedge_rng_normal(rng),
                                 .shift = (float)fedge_rng_normal(rng)};
    self->rectified = self->plain;
    self->rectified.ceiling = fedge_rng_below(rng, 2) ? INFINITY : 1.0f;
    self->slope =
        (fedge_norm_gradient){.dz = (float)fedge_rng_normal(rng), .x = 0.5f, .one = -0.25f};
    for (size_t i = 0; i < self->n; i++) {
        self->x[i] = (float)fedge_rng_normal(rng);
        self->dy[i] = (float)fedge_rng_normal(rng);
    }
    self->x[0] = self->plain.center; /* z is the shift: if that is 0, or the ceiling, no gradient */
    if (fedge_rng_below(rng, 4) == 0)
        self->plain.shift = self->rectified.shift = fedge_rng_below(rng, 2) ? 0.0f : 1.0f;
    self->y[self->n] = self->wanted[self->n] = BEFORE;
}

/* Sums in float of up to RUN values are off by RUN · UNIT of the sum of magnitudes, and d by UNIT.
 */
static void near(const char *what, const fedge_kernels *kernels, double is, double wanted,
                 double magnitude)
{
    if (!(fabs(is - wanted) <= 2.0 * (RUN + 2) * UNIT * magnitude))
        fail_msg("%s on %s: %.17g, not %.17g", what, kernels->name, is, wanted);
}

static void check_sums(const fedge_kernels *kernels, const trial *self)
{
    double wanted[3] = {0}, magnitudes[3] = {0}, sums[2], again[2];
    for (size_t i = 0; i < self->n; i++) {
        const double d = (double)self->x[i] - (double)self->plain.center;
        const double off = fabs((double)self->x[i]) + fabs((double)self->plain.center);
        const double terms[3] = {d, d * d, (double)self->dy[i] * d};
        const double sizes[3] = {off, off * off, fabs((double)self->dy[i]) * off};
        for (int k = 0; k < 3; k++) {
            wanted[k] += terms[k];
            magnitudes[k] += sizes[k];
        }
    }
    kernels->moments(self->x, self->n, self->plain.center, sums);
    near("sum", kernels, sums[0], wanted[0], magnitudes[0]);
    near("squares", kernels, sums[1], wanted[1], magnitudes[1]);
    kernels->products(self->x, self->dy, self->n, &self->plain, sums);
    near("products", kernels, sums[1], wanted[2], magnitudes[2]);
    kernels->products(self->x, self->dz, self->n, &self->plain, sums);
    kernels->products(self->x, self->dy, self->n, &self->rectified, again);
    assert_true(sums[0] == again[0] && sums[1] == again[1]);
}

/* With a ceiling: the same bits as the norm and the rectifier one after the other. */
static void check_trial(const fedge_kernels *kernels, fedge_rng *rng)
{
    static trial self;
    make_trial(&self, rng);
    const float ceiling = self.rectified.ceiling;
    kernels->normalize(self.x, self.n, &self.plain, self.wanted);
    for (size_t i = 0; i < self.n; i++) {
        const float z = (self.x[i] - self.plain.center) * self.plain.scale + self.plain.shift;
        assert_true(self.wanted[i] == z);
        self.wanted[i] = z < 0.0f ? 0.0f : z > ceiling ? ceiling : z;
        self.dz[i] = z > 0.0f && z < ceiling ? self.dy[i] : 0.0f;
    }
    kernels->normalize(self.x, self.n, &self.rectified, self.y);
    assert_memory_equal(self.y, self.wanted, (self.n + 1) * sizeof(self.y[0]));
    check_sums(kernels, &self);
    kernels->normalize_backward(self.x, self.dz, self.n, &self.plain, &self.slope, self.wanted);
    memcpy(self.y, self.dy, self.n * sizeof(self.y[0]));
    kernels->normalize_backward(self.x, self.y, self.n, &self.rectified, &self.slope, self.y);
    for (size_t i = 0; i < self.n; i++) {
        const float d = self.x[i] - self.plain.center;
        assert_true(self.y[i] == self.wanted[i]);
        assert_true(self.y[i] == self.dz[i] * self.slope.dz + d * self.slope.x + self.slope.one);
    }
    assert_true(self.y[self.n] == BEFORE && self.wanted[self.n] == BEFORE);
}

static void test_kernels(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned n = kernel_levels(levels);
    for (unsigned level = 0; level < n; level++) {
        fedge_rng rng = fedge_rng_stream(7, FEDGE_PURPOSE_TEST, 0, 0, 0);
        for (int i = 0; i < TRIALS; i++)
            check_trial(fedge_kernels_choose(fedge_os_cpu_features() & ~levels[level]), &rng);
    }
}

/* ---- layers ---- */

static fedge_layer_spec *add_norm(fedge_model_spec *spec, fedge_layer_type type, uint32_t channels,
                                  uint32_t groups)
{
    fedge_layer_spec *layer = spec_add(spec, type);
    if (type == FEDGE_LAYER_GROUPNORM) {
        layer->u.groupnorm.num_groups = groups;
        layer->u.groupnorm.num_channels = channels;
        layer->u.groupnorm.eps = 1e-5f;
        layer->u.groupnorm.affine = true;
    } else {
        layer->u.batchnorm2d.num_features = channels;
        layer->u.batchnorm2d.eps = 1e-5f;
        layer->u.batchnorm2d.affine = true;
        layer->u.batchnorm2d.track_running_stats = groups == 1;
        layer->u.batchnorm2d.momentum = 0.1f;
    }
    return layer;
}

/* A norm and a rectifier, twice: behind a convolution and at the end of it. */
static void pair_spec(fedge_model_spec *spec, fedge_layer_type norm, uint32_t groups,
                      fedge_layer_type rectifier, uint32_t side)
{
    spec_input(spec, 3, 2, side, side + 1);
    spec_conv(spec, 2, 4, 1, 1, 0);
    (void)add_norm(spec, norm, 4, groups);
    (void)spec_add(spec, rectifier);
    spec_conv(spec, 4, 6, 3, 1, 1);
    (void)add_norm(spec, norm, 6, groups);
    (void)spec_add(spec, rectifier);
    spec_flatten(spec);
    spec_linear(spec, 6 * side * (side + 1), 3);
}

static void test_gradients(void **state)
{
    (void)state;
    static const fedge_layer_type norms[] = {FEDGE_LAYER_GROUPNORM, FEDGE_LAYER_BATCHNORM2D};
    static const fedge_layer_type rectifiers[] = {FEDGE_LAYER_RELU, FEDGE_LAYER_RELU6};
    for (size_t i = 0; i < 8; i++) {
        static fedge_model_spec spec;
        pair_spec(&spec, norms[i % 2], 1 + (uint32_t)i / 4, rectifiers[i / 2 % 2], 5);
        check_spec(&spec, 3, 20);
    }
}

/* Both norms at once read what a rectifier gives, and a rectifier what the other layers read too:
 * only one of them can be done by the norm before it. */
static void test_readers(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    spec_input(&spec, 3, 2, 4, 5);
    spec_conv(&spec, 2, 4, 1, 1, 0);
    (void)add_norm(&spec, FEDGE_LAYER_GROUPNORM, 4, 2);
    spec_relu(&spec);
    (void)spec_add(&spec, FEDGE_LAYER_RELU6);
    (void)add_norm(&spec, FEDGE_LAYER_GROUPNORM, 4, 4);
    spec_relu(&spec);
    fedge_layer_spec *add = spec_add(&spec, FEDGE_LAYER_ADD);
    add->num_inputs = 2;
    add->inputs[0] = 5;
    add->inputs[1] = 4;
    (void)add_norm(&spec, FEDGE_LAYER_GROUPNORM, 4, 1);
    spec_flatten(&spec);
    spec_linear(&spec, 80, 3);
    check_spec(&spec, 3, 20);
}

/* The parameters after two steps. */
static float *train(const fedge_model_spec *spec, const fedge_model_options *options, size_t *arena)
{
    test_model self;
    float x[3 * 2 * 9 * 10];
    int32_t labels[3];
    double loss;
    uint32_t correct;
    fedge_error err = {0};
    const fedge_optimizer optimizer = {.learning_rate = 0.1f};
    model_open(&self, spec, options, SEED, 0);
    const size_t n = fedge_model_num_values(self.model);
    float *values = malloc(n * sizeof(*values));
    assert_non_null(values);
    for (uint64_t step = 0; step < 2; step++) {
        fedge_rng rng = fedge_rng_stream(SEED + step, FEDGE_PURPOSE_TEST, 2, 0, 0);
        fill_batch(&rng, x, sizeof(x) / sizeof(x[0]), labels, 3, 3);
        const fedge_batch batch = {.x = x, .labels = labels, .size = 3};
        assert_int_equal(fedge_model_train(self.model, &batch, &optimizer, &loss, &correct, &err),
                         FEDGE_OK);
    }
    memcpy(values, fedge_model_values(self.model), n * sizeof(*values));
    *arena = self.memory.activations;
    model_close(&self);
    return values;
}

/* Each layer by itself, where arrays share no memory, gives the same bits; and with everything run
 * again. What the rectifiers made is not kept: no array, no mask. */
static void test_alone(void **state)
{
    (void)state;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    for (unsigned i = 0; i < 4 * num_levels; i++) {
        static fedge_model_spec spec;
        fedge_layer_memory layers[8];
        pair_spec(&spec, i & 1 ? FEDGE_LAYER_GROUPNORM : FEDGE_LAYER_BATCHNORM2D, 2,
                  i & 2 ? FEDGE_LAYER_RELU : FEDGE_LAYER_RELU6, 9);
        const fedge_model_options options = {.max_batch = 3,
                                             .training = true,
                                             .general = true,
                                             .disabled_cpu_features = levels[i / 4]};
        fedge_model_options alone = options;
        alone.unshared = true;
        size_t arenas[3];
        float *joined = train(&spec, &options, &arenas[0]);
        float *apart = train(&spec, &alone, &arenas[1]);
        assert_int_equal(fedge_model_layer_memory(&spec, &options, layers, NULL), FEDGE_OK);
        assert_int_equal(layers[2].saved, 0);
        spec.layers[1].recompute = spec.layers[2].recompute = true;
        spec.layers[4].recompute = true; /* and not the rectifier behind it */
        float *again = train(&spec, &options, &arenas[2]);
        for (size_t v = 0; v < 4 * 2 + 4 + 8 + 4 * 6 * 9; v++)
            assert_true(joined[v] == apart[v] && joined[v] == again[v]);
        assert_true(arenas[0] < arenas[1]);
        free(again);
        free(apart);
        free(joined);
    }
}

/* The first values, which the norm samples, are nothing like the others. */
static void test_odd_sample(void **state)
{
    (void)state;
    enum { SIDE = 600, ODD = 64, N = SIDE * SIDE };
    static const float firsts[] = {1000.0f, -3e4f, 0.0f};
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    static fedge_model_spec spec;
    spec_input(&spec, 3, 1, SIDE, SIDE);
    (void)add_norm(&spec, FEDGE_LAYER_GROUPNORM, 1, 1);
    spec_flatten(&spec);
    for (unsigned i = 0; i < 3 * num_levels; i++) {
        const fedge_model_options options = {.max_batch = 1,
                                             .disabled_cpu_features = levels[i / 3]};
        test_model self;
        static float x[N];
        const int32_t label = 0;
        double mean = 0.0, variance = 0.0, loss;
        uint32_t correct;
        fedge_error err = {0};
        fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 3, 0, 0);
        for (size_t k = 0; k < N; k++) {
            x[k] = k < ODD ? firsts[i % 3] : 50.0f + (float)fedge_rng_normal(&rng);
            mean += (double)x[k] / N;
        }
        for (size_t k = 0; k < N; k++)
            variance += ((double)x[k] - mean) * ((double)x[k] - mean) / N;
        model_open(&self, &spec, &options, SEED, 0);
        assert_int_equal(fedge_model_evaluate(self.model, x, &label, 1, &loss, &correct, &err),
                         FEDGE_OK);
        const float *y = fedge_model_outputs(self.model);
        for (size_t k = 0; k < N; k++) {
            const double wanted = ((double)x[k] - mean) / sqrt(variance + 1e-5);
            const double off = (fabs((double)x[k]) + fabs(mean)) / sqrt(variance);
            /* Of the variance: RUN roundings of sums that hide at most two bits of it. */
            assert_true(fabs((double)y[k] - wanted) <=
                        UNIT * (2.0 * off + 8.0 * RUN * fabs(wanted)));
        }
        model_close(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),    cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_readers),    cmocka_unit_test(test_alone),
        cmocka_unit_test(test_odd_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
