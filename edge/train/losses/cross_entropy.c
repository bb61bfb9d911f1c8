/* CrossEntropyLoss: −Σ t[c] log softmax(outputs)[c] with t = 1 for the label, 0 for the others;
 * with label_smoothing ε: t ← (1 − ε) t + ε / classes. */
#include <math.h>

#include "edge/train/losses/losses.h"

static double mean(const float *row, uint32_t n)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)row[i];
    return sum / n;
}

static double run(const fedge_loss_run *at, uint32_t *correct)
{
    const uint32_t classes = at->outputs;
    double loss = 0.0;
    *correct = 0;
    for (size_t b = 0; b < at->batch; b++) {
        const float *row = at->y + b * classes;
        uint32_t best = 0;
        for (uint32_t c = 1; c < classes; c++)
            best = row[c] > row[best] ? c : best;
        const uint32_t label = (uint32_t)at->labels[b];
        const float peak = row[best];
        double sum = 0.0, target = (double)row[label];
        for (uint32_t c = 0; c < classes; c++)
            sum += (double)expf(row[c] - peak); /* a NaN anywhere reaches the loss */
        if (at->argument > 0.0f)
            target += (double)at->argument * (mean(row, classes) - target);
        loss += log(sum) + (double)peak - target;
        *correct += best == label;
        if (at->dy) {
            const float scale = (float)(1.0 / (sum * (double)at->batch));
            float *dy = at->dy + b * classes;
            const float other = at->argument / ((float)classes * (float)at->batch);
            for (uint32_t c = 0; c < classes; c++)
                dy[c] = expf(row[c] - peak) * scale - other;
            dy[label] -= (1.0f - at->argument) / (float)at->batch;
        }
    }
    return loss;
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_F32_ARGUMENT("label_smoothing", offsetof(fedge_model_spec, label_smoothing), 0, 1, 0),
    FEDGE_NO_ARGUMENT,
};

static const char *feature(const fedge_model_spec *model)
{
    return model->label_smoothing > 0 ? "label-smoothing" : NULL;
}

const fedge_loss_ops fedge_loss_cross_entropy = {
    .arguments = ARGUMENTS, .needs_labels = true, .min_outputs = 2, .feature = feature, .run = run};
