#include "edge/train/layers/norm.h"

#include <math.h>
#include <string.h>

enum { WEIGHT, BIAS };

void fedge_norm_tensors(uint32_t rank, const uint32_t *shape, fedge_layer_tensor list[2])
{
    list[WEIGHT] = (fedge_layer_tensor){.name = "weight", .rank = rank, .init = FEDGE_INIT_ONE};
    list[BIAS] = (fedge_layer_tensor){.name = "bias", .rank = rank, .init = FEDGE_INIT_ZERO};
    memcpy(list[WEIGHT].shape, shape, rank * sizeof *shape);
    memcpy(list[BIAS].shape, shape, rank * sizeof *shape);
}

void fedge_norm_place(const fedge_layer_run *run, fedge_norm *norm)
{
    norm->kernels = run->kernels;
    norm->weight = run->values[WEIGHT];
    norm->bias = run->values[BIAS];
    norm->weight_gradient = run->gradients[WEIGHT];
    norm->bias_gradient = run->gradients[BIAS];
    norm->moments = run->saved;
}

/* Has every value of a row a weight of its own? The kernels do these. */
static bool by_value(const fedge_norm *self)
{
    return self->groups == 1 && self->spatial == 1;
}

static fedge_norm_rows rows_of(const fedge_norm *self, bool again)
{
    return (fedge_norm_rows){.rows = self->rows,
                             .width = self->channels,
                             .eps = self->eps,
                             .weight = self->weight,
                             .bias = self->bias,
                             .weight_gradient = self->weight_gradient,
                             .bias_gradient = self->bias_gradient,
                             .moments = self->moments,
                             .again = again};
}

/* One row from its mean and inverse deviation. */
static void normalise(const fedge_norm *self, size_t row, float mean, float inverse, const float *x,
                      float *y)
{
    const size_t first = row % self->groups * self->channels, spatial = self->spatial;
    for (size_t c = 0; c < self->channels; c++) {
        const float scale = inverse * (self->weight == NULL ? 1.0f : self->weight[first + c]);
        const float shift = self->bias == NULL ? 0.0f : self->bias[first + c];
        self->kernels->normalize(x + c * spatial, spatial, mean, scale, shift, y + c * spatial);
    }
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
        double sums[2];
        self->kernels->moments(x, n, 0.0f, sums);
        const float center = (float)(sums[0] / (double)n);
        self->kernels->moments(x, n, center, sums);
        const double rest = sums[0] / (double)n; /* what rounding took from the mean */
        const double variance = sums[1] / (double)n - rest * rest;
        const float mean = (float)((double)center + rest);
        const float inverse =
            (float)(1.0 / sqrt((variance < 0.0 ? 0.0 : variance) + (double)self->eps));
        normalise(self, r, mean, inverse, x, y);
        if (self->moments != NULL) {
            self->moments[2 * r] = mean;
            self->moments[2 * r + 1] = inverse;
        }
    }
}

void fedge_norm_again(const fedge_norm *self, const float *x, float *y)
{
    const size_t n = self->channels * self->spatial;
    if (by_value(self)) {
        const fedge_norm_rows rows = rows_of(self, true);
        self->kernels->norm_rows(&rows, x, y);
        return;
    }
    for (size_t r = 0; r < self->rows; r++, x += n, y += n) {
        normalise(self, r, self->moments[2 * r], self->moments[2 * r + 1], x, y);
    }
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
        const double weight = self->weight == NULL ? 1.0 : (double)self->weight[first + c];
        double sums[2];
        self->kernels->products(x + c * spatial, dy + c * spatial, spatial, mean, sums);
        sums[1] *= (double)inverse;
        if (self->weight_gradient != NULL) {
            self->weight_gradient[first + c] += (float)sums[1];
        }
        if (self->bias_gradient != NULL) {
            self->bias_gradient[first + c] += (float)sums[0];
        }
        sum += sums[0] * weight;
        product += sums[1] * weight;
    }
    for (size_t c = 0; dx != NULL && c < self->channels; c++) {
        const fedge_norm_slope slope = {
            .dy = inverse * (self->weight == NULL ? 1.0f : self->weight[first + c]),
            .x = (float)(-product / count * (double)inverse * (double)inverse),
            .one = (float)(-sum / count * (double)inverse),
            .center = mean};
        self->kernels->normalize_backward(x + c * spatial, dy + c * spatial, spatial, &slope,
                                          dx + c * spatial);
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
    for (size_t r = 0; r < self->rows; r++, x += n, dy += n) {
        backward_row(self, r, x, dy, dx == NULL ? NULL : dx + r * n);
    }
}
