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
    const size_t first = row % self->groups * self->channels;
    for (size_t c = 0; c < self->channels; c++) {
        const float scale = inverse * (self->weight == NULL ? 1.0f : self->weight[first + c]);
        const float shift = self->bias == NULL ? 0.0f : self->bias[first + c];
        const size_t end = (c + 1) * self->spatial;
        for (size_t i = c * self->spatial; i < end; i++) {
            y[i] = (x[i] - mean) * scale + shift;
        }
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
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < n; i++) {
            sum += (double)x[i];
        }
        const double mean = sum / (double)n;
        for (size_t i = 0; i < n; i++) {
            squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        }
        const float inverse = (float)(1.0 / sqrt(squares / (double)n + (double)self->eps));
        normalise(self, r, (float)mean, inverse, x, y);
        if (self->moments != NULL) {
            self->moments[2 * r] = (float)mean;
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
void fedge_norm_backward(const fedge_norm *self, const float *x, const float *dy, float *dx)
{
    const size_t n = self->channels * self->spatial;
    if (by_value(self)) {
        const fedge_norm_rows rows = rows_of(self, true);
        self->kernels->norm_rows_backward(&rows, x, dy, dx);
        return;
    }
    for (size_t r = 0; r < self->rows; r++, x += n, dy += n) {
        const float mean = self->moments[2 * r], inverse = self->moments[2 * r + 1];
        const size_t first = r % self->groups * self->channels;
        double sum = 0.0, product = 0.0;
        for (size_t c = 0; c < self->channels; c++) {
            const float weight = self->weight == NULL ? 1.0f : self->weight[first + c];
            double channel_sum = 0.0, channel_product = 0.0;
            for (size_t i = c * self->spatial; i < (c + 1) * self->spatial; i++) {
                channel_sum += (double)dy[i];
                channel_product += (double)(dy[i] * (x[i] - mean) * inverse);
            }
            if (self->weight_gradient != NULL) {
                self->weight_gradient[first + c] += (float)channel_product;
            }
            if (self->bias_gradient != NULL) {
                self->bias_gradient[first + c] += (float)channel_sum;
            }
            sum += channel_sum * (double)weight;
            product += channel_product * (double)weight;
        }
        const float g_mean = (float)(sum / (double)n), g_product = (float)(product / (double)n);
        for (size_t i = 0; dx != NULL && i < n; i++) {
            const size_t channel = first + i / self->spatial;
            const float g = dy[i] * (self->weight == NULL ? 1.0f : self->weight[channel]);
            const float normal = (x[i] - mean) * inverse;
            dx[r * n + i] = (g - g_mean - normal * g_product) * inverse;
        }
    }
}
