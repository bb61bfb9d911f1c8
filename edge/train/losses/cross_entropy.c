/* CrossEntropyLoss: −log softmax(outputs)[label]. */
#include <math.h>

#include "edge/train/losses.h"

static double run(const fedge_loss_run *at, uint32_t *correct)
{
    const uint32_t classes = at->outputs;
    double loss = 0.0;
    *correct = 0;
    for (size_t b = 0; b < at->batch; b++) {
        const float *row = at->y + b * classes;
        uint32_t best = 0;
        for (uint32_t c = 1; c < classes; c++) {
            best = row[c] > row[best] ? c : best;
        }
        const uint32_t label = (uint32_t)at->labels[b];
        const float peak = row[best], target = row[label];
        double sum = 0.0;
        for (uint32_t c = 0; c < classes; c++) {
            sum += (double)expf(row[c] - peak); /* a NaN anywhere reaches the loss */
        }
        loss += log(sum) + (double)peak - (double)target;
        *correct += best == label;
        if (at->dy != NULL) {
            const float scale = (float)(1.0 / (sum * (double)at->batch));
            float *dy = at->dy + b * classes;
            for (uint32_t c = 0; c < classes; c++) {
                dy[c] = expf(row[c] - peak) * scale;
            }
            dy[label] -= 1.0f / (float)at->batch;
        }
    }
    return loss;
}

const fedge_loss_ops fedge_loss_cross_entropy = {.needs_labels = true, .run = run};
