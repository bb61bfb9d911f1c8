/* A model's gradients against central differences of the reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/support.h"

#define SEED 7
/* A gradient that is 0 by nature (a bias before a BatchNorm) is the sum of some 126 places whose
 * values, up to 0.03, are each off by the same rounding of their mean: 126 · 2^-24 · 0.03. */
#define ROUNDING 2.3e-7
#define RATE 1024.0f /* w − 1024 g rounds g to less than 2^-24 · |w| / 1024 + |g| · 2^-24 */

void model_gradient(test_model *self, const float *x, const int32_t *labels, uint32_t batch,
                    double *gradient, double *loss_sum)
{
    fedge_error err = {0};
    const fedge_optimizer sgd = {.learning_rate = RATE};
    const size_t n = fedge_model_num_values(self->model);
    float *values = fedge_model_values(self->model);
    float *before = malloc(n * sizeof(*before));
    assert_non_null(before);
    memcpy(before, values, n * sizeof(*before));
    uint32_t correct = 0;
    if (fedge_model_step(self->model, x, labels, batch, &sgd, loss_sum, &correct, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++)
        gradient[i] = ((double)before[i] - (double)values[i]) / (double)RATE;
    memcpy(values, before, n * sizeof(*before));
    free(before);
}

double *to_double(const float *v, size_t n)
{
    double *wide = malloc((n == 0 ? 1 : n) * sizeof(*wide));
    assert_non_null(wide);
    for (size_t i = 0; i < n; i++)
        wide[i] = (double)v[i];
    return wide;
}

double *new_doubles(size_t n)
{
    double *v = calloc(n, sizeof(*v));
    assert_non_null(v);
    return v;
}

/* Tensors that begin as one number everywhere would hide mistakes. */
static void roughen(const fedge_schema *schema, fedge_rng *rng, float *values)
{
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        float *v = values + schema->tensors[t].offset;
        const float first = v[0];
        const bool constant = first == 0.0f || first == 1.0f;
        for (size_t i = 0; constant && i < schema->tensors[t].count; i++)
            v[i] += 0.3f * (float)fedge_rng_normal(rng);
    }
}

static void fill_inputs(const fedge_model_spec *spec, fedge_rng *rng, float *x, size_t n,
                        int32_t *labels, uint32_t batch)
{
    fill_batch(rng, x, n, labels, batch, fedge_model_num_classes(spec));
    for (size_t i = 0; spec->layers[0].type == FEDGE_LAYER_EMBEDDING && i < n; i++)
        x[i] = (float)fedge_rng_below(rng, spec->layers[0].u.embedding.num_embeddings);
}

/* The distance between the values of a tensor that are looked at. */
static size_t step_of(const fedge_tensor_spec *tensor, size_t samples)
{
    return tensor->count > samples ? tensor->count / samples : 1;
}

/* Central differences of the reference's mean loss, at the places that are looked at. */
static void take_differences(const fedge_model_spec *spec, const fedge_schema *schema,
                             size_t samples, double *values, const double *x, const int32_t *labels,
                             uint32_t batch, double *differences)
{
    const double h = 1e-6;
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        if (!fedge_model_trains(spec, t))
            continue;
        for (size_t i = 0; i < tensor->count; i += step_of(tensor, samples)) {
            const size_t at = tensor->offset + i;
            const double saved = values[at];
            values[at] = saved + h;
            const double above = reference_loss(spec, values, x, labels, batch);
            values[at] = saved - h;
            const double below = reference_loss(spec, values, x, labels, batch);
            values[at] = saved;
            differences[at] = (above - below) / (2 * h) / batch;
        }
    }
}

static void compare_gradient(const test_model *self, const fedge_model_spec *spec, size_t samples,
                             const double *gradient, const double *differences)
{
    for (uint32_t t = 0; t < self->schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &self->schema.tensors[t];
        double largest = 0.0;
        if (!fedge_model_trains(spec, t))
            continue;
        for (size_t i = 0; i < tensor->count; i++)
            largest = fmax(largest, fabs(gradient[tensor->offset + i]));
        for (size_t i = 0; i < tensor->count; i += step_of(tensor, samples)) {
            const size_t at = tensor->offset + i;
            if (!(fabs(gradient[at] - differences[at]) <= 2e-5 * largest + ROUNDING)) {
                fail_msg("%s[%zu] on %s: gradient %.9g, finite difference %.9g", tensor->name, i,
                         fedge_model_kernels(self->model), gradient[at], differences[at]);
            }
        }
    }
}

void check_spec(const fedge_model_spec *spec, uint32_t batch, size_t samples)
{
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    const size_t size = fedge_model_input_count(spec);
    double *values = NULL, *differences = NULL;
    double expected = 0.0;
    for (unsigned level = 0; level < 2 * num_levels; level++) {
        const fedge_model_options options = {.max_batch = batch,
                                             .training = true,
                                             .general = level >= num_levels,
                                             .disabled_cpu_features = levels[level % num_levels]};
        test_model self;
        model_open(&self, spec, &options, SEED, 0);
        const size_t n = fedge_model_num_values(self.model);
        float *x = malloc(size * batch * sizeof(*x));
        int32_t *labels = malloc(batch * sizeof(*labels));
        assert_true(x && labels);
        fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 1, batch, 0);
        fill_inputs(spec, &rng, x, size * batch, labels, batch);
        roughen(&self.schema, &rng, fedge_model_values(self.model));
        double *own = to_double(fedge_model_values(self.model), n), *gradient = new_doubles(n);
        if (!values) { /* the reference has no levels: once is enough */
            values = own;
            differences = new_doubles(n);
            double *wide = to_double(x, size * batch);
            expected = reference_loss(spec, values, wide, labels, batch);
            take_differences(spec, &self.schema, samples, values, wide, labels, batch, differences);
            free(wide);
        } else {
            assert_memory_equal(own, values, n * sizeof(*own));
            free(own);
        }
        double loss = 0.0;
        model_gradient(&self, x, labels, batch, gradient, &loss);
        assert_true(fabs(loss - expected) <= 1e-5 * (1.0 + fabs(expected)));
        compare_gradient(&self, spec, samples, gradient, differences);
        free(gradient);
        free(labels);
        free(x);
        model_close(&self);
    }
    free(differences);
    free(values);
}
