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

void fedge_norm_forward(const fedge_layer_run *run, const fedge_norm *norm)
{
    const size_t n = norm->channels * norm->spatial;
    float *saved = run->saved;
    for (size_t r = 0; r < norm->rows; r++) {
        const float *x = run->x[0] + r * n;
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < n; i++) {
            sum += (double)x[i];
        }
        const double mean = sum / (double)n;
        for (size_t i = 0; i < n; i++) {
            squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        }
        const float inverse = (float)(1.0 / sqrt(squares / (double)n + (double)norm->eps));
        const size_t first = r % norm->groups * norm->channels;
        for (size_t c = 0; c < norm->channels; c++) {
            const float scale =
                inverse * (run->values[WEIGHT] == NULL ? 1.0f : run->values[WEIGHT][first + c]);
            const float shift = run->values[BIAS] == NULL ? 0.0f : run->values[BIAS][first + c];
            float *y = run->y + r * n + c * norm->spatial;
            for (size_t i = 0; i < norm->spatial; i++) {
                y[i] = (x[c * norm->spatial + i] - (float)mean) * scale + shift;
            }
        }
        if (saved != NULL) {
            saved[2 * r] = (float)mean;
            saved[2 * r + 1] = inverse;
        }
    }
}

/* With x̂ the normalised x and g = dy · weight:
 *   dx = (g − mean(g) − x̂ · mean(g · x̂)) / sqrt(variance + eps) */
void fedge_norm_backward(const fedge_layer_run *run, const fedge_norm *norm)
{
    const size_t n = norm->channels * norm->spatial;
    const float *saved = run->saved;
    for (size_t r = 0; r < norm->rows; r++) {
        const float *x = run->x[0] + r * n, *dy = run->dy + r * n;
        const float mean = saved[2 * r], inverse = saved[2 * r + 1];
        const size_t first = r % norm->groups * norm->channels;
        double sum = 0.0, product = 0.0;
        for (size_t c = 0; c < norm->channels; c++) {
            const float weight =
                run->values[WEIGHT] == NULL ? 1.0f : run->values[WEIGHT][first + c];
            double channel_sum = 0.0, channel_product = 0.0;
            for (size_t i = c * norm->spatial; i < (c + 1) * norm->spatial; i++) {
                channel_sum += (double)dy[i];
                channel_product += (double)(dy[i] * (x[i] - mean) * inverse);
            }
            if (run->gradients[WEIGHT] != NULL) {
                run->gradients[WEIGHT][first + c] += (float)channel_product;
            }
            if (run->gradients[BIAS] != NULL) {
                run->gradients[BIAS][first + c] += (float)channel_sum;
            }
            sum += channel_sum * (double)weight;
            product += channel_product * (double)weight;
        }
        const float g_mean = (float)(sum / (double)n), g_product = (float)(product / (double)n);
        for (size_t i = 0; run->dx[0] != NULL && i < n; i++) {
            const size_t channel = first + i / norm->spatial;
            const float g =
                dy[i] * (run->values[WEIGHT] == NULL ? 1.0f : run->values[WEIGHT][channel]);
            const float normal = (x[i] - mean) * inverse;
            run->dx[0][r * n + i] = (g - g_mean - normal * g_product) * inverse;
        }
    }
}
