/* BCEWithLogitsLoss: max(y, 0) − y · t + log(1 + e^−|y|), the mean over an example's outputs. With
 * one output an example is classified correctly if y > 0 equals its label. */
#include <math.h>

#include "edge/train/losses/losses.h"

static double run(const fedge_loss_run *at, uint32_t *correct)
{
    double loss = 0.0;
    *correct = 0;
    const float scale = 1.0f / ((float)at->batch * (float)at->outputs);
    for (size_t b = 0; b < at->batch; b++) {
        bool is_correct = true;
        double sum = 0.0;
        for (uint32_t o = 0; o < at->outputs; o++) {
            const size_t i = b * at->outputs + o;
            const float y = at->y[i], target = fedge_loss_target(at, b, o);
            const double e = exp(-fabs((double)y));
            sum += (y > 0.0f ? (double)y : 0.0) - (double)y * (double)target + log1p(e);
            is_correct = is_correct && (y > 0.0f) == (target > 0.5f);
            if (at->dy) {
                const double p = y >= 0.0f ? 1.0 / (1.0 + e) : e / (1.0 + e);
                at->dy[i] = (float)(p - (double)target) * scale;
            }
        }
        loss += sum / (double)at->outputs;
        *correct += is_correct;
    }
    return loss;
}

const fedge_loss_ops fedge_loss_bce_with_logits = {.labels_of_one = 2, .target_max = 1, .run = run};
