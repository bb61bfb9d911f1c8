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
        [FEDGE_SCHEDULE_ONE_CYCLE] = "OneCycleLR",
    };
    return (unsigned)type < FEDGE_SCHEDULE_COUNT ? NAMES[type] : NULL;
}

const char *fedge_anneal_strategy_name(fedge_anneal_strategy strategy)
{
    static const char *const NAMES[FEDGE_ANNEAL_COUNT] = {
        [FEDGE_ANNEAL_COS] = "cos", [FEDGE_ANNEAL_LINEAR] = "linear"};
    return (unsigned)strategy < FEDGE_ANNEAL_COUNT ? NAMES[strategy] : NULL;
}

static const double PI = 3.14159265358979323846;

static double one_cycle(const fedge_schedule *schedule, double highest, uint32_t t)
{
    const bool three = schedule->three_phase;
    const double last = (double)schedule->total_steps - 1.0;
    const double peak = (double)schedule->pct_start * (double)schedule->total_steps - 1.0;
    const double initial = highest / (double)schedule->div_factor;
    const double lowest = initial / (double)schedule->final_div_factor;
    const double ends[] = {peak, three ? 2.0 * peak : last, last};
    const double rates[] = {initial, highest, three ? initial : lowest, lowest};
    const double at = (double)t > last ? last : (double)t;
    double begin = 0.0;
    int phase = 0;
    while (phase < (three ? 2 : 1) && at > ends[phase])
        begin = ends[phase++];
    const double from = rates[phase], to = rates[phase + 1];
    const double part = ends[phase] > begin ? (at - begin) / (ends[phase] - begin) : 1.0;
    return schedule->anneal_strategy == FEDGE_ANNEAL_LINEAR
               ? from + (to - from) * part
               : to + (from - to) / 2.0 * (1.0 + cos(PI * part));
}

double fedge_schedule_rate(const fedge_schedule *schedule, double learning_rate, uint32_t round)
{
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
    case FEDGE_SCHEDULE_ONE_CYCLE:
        return one_cycle(schedule, learning_rate, t);
    case FEDGE_SCHEDULE_CONSTANT:
    case FEDGE_SCHEDULE_COUNT:
    default:
        return learning_rate;
    }
}
