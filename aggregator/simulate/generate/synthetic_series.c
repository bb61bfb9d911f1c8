#include <math.h>

#include "aggregator/simulate/generate/synthetic_kind.h"

#define DAY 24u
#define COS_HOUR 0.96592582628906828675 /* cos(2 pi / 24) */
#define SIN_HOUR 0.25881904510252076235
#define LEVEL 50.0
#define LEVEL_SPREAD 10.0 /* standard deviations */
#define SWING 12.0
#define SWING_SPREAD 3.0
#define NOISE 1.0
#define SECOND_HARMONIC 0.3

static fedge_status parse(const char *arguments, fedge_synthetic_spec *spec, fedge_error *err)
{
    uint32_t numbers[2] = {DAY, 1};
    if (arguments && !fedge_synthetic_numbers(arguments, 2, numbers))
        return fedge_synthetic_usage(&fedge_synthetic_series, arguments, err);
    if (numbers[0] < 1 || numbers[0] > FEDGE_SYNTHETIC_MAX_STEPS || numbers[1] < 1 ||
        numbers[1] > FEDGE_SYNTHETIC_MAX_STEPS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "series:%u,%u: 1 to %u hours before, and as many ahead", numbers[0],
                          numbers[1], FEDGE_SYNTHETIC_MAX_STEPS);
    }
    spec->rank = 1;
    spec->shape[0] = numbers[0];
    spec->num_targets = numbers[1];
    spec->dtype = FEDGE_F32;
    return FEDGE_OK;
}

static size_t law_size(const fedge_synthetic_spec *spec)
{
    (void)spec;
    return sizeof(double); /* the law has no numbers, but malloc(0) may be NULL */
}

static void draw_law(const fedge_synthetic_spec *spec, uint64_t seed, uint32_t client, void *law)
{
    (void)spec, (void)seed, (void)client, (void)law;
}

static double example(const fedge_synthetic_spec *spec, void *law, fedge_rng *rng, void *values,
                      int32_t *label)
{
    const double level = LEVEL + LEVEL_SPREAD * fedge_synthetic_normal(rng);
    const double swing = SWING + SWING_SPREAD * fedge_synthetic_normal(rng);
    const uint32_t hour = fedge_rng_below(rng, DAY);
    double c = 1.0, s = 0.0; /* cosine and sine of the hour, by rotation, without the libm */
    float *x = values;
    (void)law;
    for (uint32_t t = 0; t < hour + spec->shape[0] + spec->num_targets; t++) {
        const double both = c + SECOND_HARMONIC * (2.0 * c * c - 1.0), before = c;
        if (t >= hour)
            *x++ = (float)(level + swing * both + NOISE * fedge_synthetic_normal(rng));
        c = c * COS_HOUR - s * SIN_HOUR;
        s = s * COS_HOUR + before * SIN_HOUR;
    }
    *label = 0;
    return (double)NAN;
}

const fedge_synthetic_ops fedge_synthetic_series = {.name = "series",
                                                    .usage = "series[:BEFORE,AHEAD]",
                                                    .parse = parse,
                                                    .law_size = law_size,
                                                    .draw_law = draw_law,
                                                    .example = example};
