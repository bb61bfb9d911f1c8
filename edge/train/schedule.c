#include "edge/train/schedule.h"

#include <math.h>
#include <stddef.h>

const char *fedge_schedule_type_name(fedge_schedule_type type)
{
    static const char *const NAMES[FEDGE_SCHEDULE_COUNT] = {
        [FEDGE_SCHEDULE_CONSTANT] = "ConstantLR",
        [FEDGE_SCHEDULE_STEP] = "StepLR",
        [FEDGE_SCHEDULE_EXPONENTIAL] = "ExponentialLR",
        [FEDGE_SCHEDULE_COSINE] = "CosineAnnealingLR",
    };
    return (unsigned)type < FEDGE_SCHEDULE_COUNT ? NAMES[type] : NULL;
}

double fedge_schedule_rate(const fedge_schedule *schedule, double learning_rate, uint32_t round)
{
    static const double PI = 3.14159265358979323846;
    const uint32_t warmup = schedule->warmup_rounds;
    if (round <= warmup)
        return learning_rate * (double)round / ((double)warmup + 1.0);
    const uint32_t t = round - warmup - 1;
    const uint32_t decays = schedule->type == FEDGE_SCHEDULE_STEP ? t / schedule->step_size : t;
    const double gamma = (double)schedule->gamma, floor_rate = (double)schedule->eta_min;
    switch (schedule->type) {
    case FEDGE_SCHEDULE_STEP:
    case FEDGE_SCHEDULE_EXPONENTIAL:
        return learning_rate * pow(gamma, (double)decays);
    case FEDGE_SCHEDULE_COSINE:
        return t >= schedule->t_max
                   ? floor_rate
                   : floor_rate + (learning_rate - floor_rate) *
                                      (1.0 + cos(PI * (double)t / (double)schedule->t_max)) / 2.0;
    case FEDGE_SCHEDULE_CONSTANT:
    case FEDGE_SCHEDULE_COUNT:
    default:
        return learning_rate;
    }
}
