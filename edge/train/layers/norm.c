#include "edge/train/layers/norm.h"

#include <math.h>
#include <string.h>

#define SAMPLE ((size_t)64) /* values whose mean estimates that of all */
#define MAX_OFFSET                                                                                 \
    4.0 /* largest squared distance from the mean, in variances; it costs two bits                 \
         */

enum { WEIGHT, BIAS };

fedge_status fedge_norm_check_shape(uint32_t rank, const uint32_t *shape, const fedge_shape *in,
                                    fedge_error *err)
{
    char is[FEDGE_SHAPE_TEXT_SIZE], wanted[FEDGE_SHAPE_TEXT_SIZE];
    if (rank == 0 || rank > 3) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "normalized_shape has %u dimensions: give 1 to 3", (unsigned)rank);
    }
    if (rank > in->rank || memcmp(in->dims + in->rank - rank, shape, rank * sizeof(*shape)) != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the input is %s but its last dimensions must be normalized_shape, %s",
                          fedge_shape_text(in->rank, in->dims, is),
                          fedge_shape_text(rank, shape, wanted));
    }
    return FEDGE_OK;
}

void fedge_norm_tensors(uint32_t rank, const uint32_t *shape, fedge_layer_tensor list[2])
{
    list[WEIGHT] = (fedge_layer_tensor){.name = "weight", .rank = rank, .init = FEDGE_INIT_ONE};
    list[BIAS] = (fedge_layer_tensor){.name = "bias", .rank = rank, .init = FEDGE_INIT_ZERO};
    memcpy(list[WEIGHT].shape, shape, rank * sizeof(*shape));
    memcpy(list[BIAS].shape, shape, rank * sizeof(*shape));
}

void fedge_norm_set_run(const fedge_layer_run *run, fedge_norm *norm)
{
    norm->kernels = run->kernels;
    norm->ceiling = run->ceiling;
    norm->weight = run->values[WEIGHT];
    norm->bias = run->values[BIAS];
    norm->weight_gradient = run->gradients[WEIGHT];
    norm->bias_gradient = run->gradients[BIAS];
    norm->moments = run->saved;
}

/* True if each value of a row has a weight. The kernels compute these. */
static bool by_value(const fedge_norm *self)
{
    return self->groups == 1 && self->spatial == 1;
}

bool fedge_norm_fuses_relu(const fedge_norm *self)
{
    return !by_value(self);
}

static fedge_norm_rows rows_of(const fedge_norm *self, bool recompute)
{
    return (fedge_norm_rows){.rows = self->rows,
                             .width = self->channels,
                             .eps = self->eps,
                             .weight = self->weight,
                             .bias = self->bias,
                             .weight_gradient = self->weight_gradient,
                             .bias_gradient = self->bias_gradient,
                             .moments = self->moments,
                             .recompute = recompute};
}

/* Channel [c] of a row, from the row's mean and inverse deviation. */
static fedge_normal normal_of(const fedge_norm *self, size_t row, size_t c, float mean,
                              float inverse)
{
    const size_t at = row % self->groups * self->channels + c;
    return (fedge_normal){.center = mean,
                          .scale = inverse * (!self->weight ? 1.0f : self->weight[at]),
                          .shift = !self->bias ? 0.0f : self->bias[at],
                          .ceiling = self->ceiling};
}

static void normalise(const fedge_norm *self, size_t row, float mean, float inverse, const float *x,
                      float *y)
{
    for (size_t c = 0; c < self->channels; c++, x += self->spatial, y += self->spatial) {
        const fedge_normal normal = normal_of(self, row, c, mean, inverse);
        self->kernels->normalize(x, self->spatial, &normal, y);
    }
}

/* Mean and variance of [n] values in one pass around the mean of the first ones. If that is several
 * deviations from the mean, so that the squares would cancel, in a second pass around the mean. */
static double measure(const fedge_kernels *kernels, const float *x, size_t n, float *mean)
{
    const size_t first = n < SAMPLE ? n : SAMPLE;
    double sums[2], variance = 0.0, offset = 0.0;
    kernels->moments(x, first, 0.0f, sums);
    float center = (float)(sums[0] / (double)first);
    for (int pass = 0; pass < 2; pass++) {
        kernels->moments(x, n, center, sums);
        offset = sums[0] / (double)n;
        variance = sums[1] / (double)n - offset * offset;
        if (offset * offset <= MAX_OFFSET * variance)
            break;
        center = (float)((double)center + offset);
    }
    *mean = (float)((double)center + offset);
    return variance < 0.0 ? 0.0 : variance;
}

void fedge_norm_forward(const fedge_norm *self, const float *x, float *y)
{
    const size_t n = self->channels * self->spatial;
    if (by_value(self)) {
        const fedge_norm_rows rows = rows_of(self, false);
        self->kernels->norm_rows(&rows, x, y);
        return;
    }
    for (size_t r = 0; r < self->rows; r++, x += n, y += n) {
        float mean;
        const double variance = measure(self->kernels, x, n, &mean);
        const float inverse = (float)(1.0 / sqrt(variance + (double)self->eps));
        normalise(self, r, mean, inverse, x, y);
        if (self->moments) {
            self->moments[2 * r] = mean;
            self->moments[2 * r + 1] = inverse;
        }
    }
}

void fedge_norm_recompute(const fedge_norm *self, const float *x, float *y)
{
    const size_t n = self->channels * self->spatial;
    if (by_value(self)) {
        const fedge_norm_rows rows = rows_of(self, true);
        self->kernels->norm_rows(&rows, x, y);
        return;
    }
    for (size_t r = 0; r < self->rows; r++, x += n, y += n)
        normalise(self, r, self->moments[2 * r], self->moments[2 * r + 1], x, y);
}

/* With x̂ the normalised x and g = dy · weight:
 *   dx = (g − mean(g) − x̂ · mean(g · x̂)) / sqrt(variance + eps) */
static void backward_row(const fedge_norm *self, size_t row, const float *x, const float *dy,
                         float *dx)
{
    const size_t spatial = self->spatial, first = row % self->groups * self->channels;
    const double count = (double)(self->channels * spatial);
    const float mean = self->moments[2 * row], inverse = self->moments[2 * row + 1];
    double sum = 0.0, product = 0.0;
    for (size_t c = 0; c < self->channels; c++) {
        const fedge_normal normal = normal_of(self, row, c, mean, inverse);
        const double weight = !self->weight ? 1.0 : (double)self->weight[first + c];
        double sums[2];
        self->kernels->products(x + c * spatial, dy + c * spatial, spatial, &normal, sums);
        sums[1] *= (double)inverse;
        if (self->weight_gradient)
            self->weight_gradient[first + c] += (float)sums[1];
        if (self->bias_gradient)
            self->bias_gradient[first + c] += (float)sums[0];
        sum += sums[0] * weight;
        product += sums[1] * weight;
    }
    for (size_t c = 0; dx && c < self->channels; c++) {
        const fedge_normal normal = normal_of(self, row, c, mean, inverse);
        const fedge_norm_gradient slope = {
            .dz = normal.scale,
            .x = (float)(-product / count * (double)inverse * (double)inverse),
            .one = (float)(-sum / count * (double)inverse)};
        self->kernels->normalize_backward(x + c * spatial, dy + c * spatial, spatial, &normal,
                                          &slope, dx + c * spatial);
    }
}

void fedge_norm_backward(const fedge_norm *self, const float *x, const float *dy, float *dx)
{
    const size_t n = self->channels * self->spatial;
    if (by_value(self)) {
        const fedge_norm_rows rows = rows_of(self, true);
        self->kernels->norm_rows_backward(&rows, x, dy, dx);
        return;
    }
    for (size_t r = 0; r < self->rows; r++, x += n, dy += n)
        backward_row(self, r, x, dy, !dx ? NULL : dx + r * n);
}
