#include "aggregator/reduce/optimizer.h"

#include <math.h>

#include "edge/core/fixed.h"

static double next_v(const fedge_optimizer_step *step, double v, double square)
{
    const double sign = v > square ? 1.0 : v < square ? -1.0 : 0.0;
    switch (step->rule) {
    case FEDGE_STEP_RULE_ADAGRAD:
        return v + square;
    case FEDGE_STEP_RULE_ADAM:
        return step->beta2 * v + (1.0 - step->beta2) * square;
    case FEDGE_STEP_RULE_YOGI:
        return v - (1.0 - step->beta2) * square * sign;
    case FEDGE_STEP_RULE_MOMENTUM:
    case FEDGE_STEP_RULE_DYN:
        break;
    }
    return v;
}

/* What x moves by; m has moved then, and v of the rules that have one. */
static double change_by(const fedge_optimizer_step *step, double rate, double mean, float *m)
{
    if (step->rule == FEDGE_STEP_RULE_MOMENTUM) {
        *m = (float)(step->beta1 * (double)*m + mean);
        return rate * (double)*m;
    }
    *m = (float)((double)*m - step->beta1 * step->beta2 * mean);
    return rate * (mean - (double)*m / step->beta1);
}

static double change_by_both(const fedge_optimizer_step *step, double rate, double mean, float *m,
                             float *v)
{
    *m = (float)(step->beta1 * (double)*m + (1.0 - step->beta1) * mean);
    *v = (float)next_v(step, (double)*v, mean * mean);
    return rate * (double)*m / (sqrt((double)*v) + step->tau);
}

void fedge_optimizer_move(const fedge_optimizer_step *step, double rate,
                          const fedge_optimizer_sums *by, float *values, float *const kept[2])
{
    const double unit = ldexp(1.0, by->bound_log2 - FEDGE_FIXED_VALUE_BITS);
    for (size_t i = 0; i < by->count; i++) {
        const double mean = (double)by->sums[i] / (double)by->total_weight * unit;
        values[i] += (float)(step->num_kept == 1
                                 ? change_by(step, rate, mean, &kept[0][i])
                                 : change_by_both(step, rate, mean, &kept[0][i], &kept[1][i]));
    }
}
