#include <math.h>

#include "edge/train/layers.h"

double fedge_cross_entropy(float *logits, const int32_t *labels, uint32_t batch, uint32_t classes,
                           bool gradient, uint32_t *correct)
{
    double loss = 0.0;
    *correct = 0;
    for (size_t b = 0; b < batch; b++) {
        float *row = logits + b * classes;
        uint32_t best = 0;
        for (uint32_t c = 1; c < classes; c++) {
            best = row[c] > row[best] ? c : best;
        }
        const uint32_t label = (uint32_t)labels[b];
        const float peak = row[best], target = row[label];
        double sum = 0.0;
        for (uint32_t c = 0; c < classes; c++) {
            sum += (double)expf(row[c] - peak); /* a NaN anywhere reaches the loss */
        }
        loss += log(sum) + (double)peak - (double)target;
        *correct += best == label;
        const float scale = (float)(1.0 / (sum * (double)batch));
        for (uint32_t c = 0; gradient && c < classes; c++) {
            row[c] = expf(row[c] - peak) * scale;
        }
        if (gradient) {
            row[label] -= 1.0f / (float)batch;
        }
    }
    return loss;
}
