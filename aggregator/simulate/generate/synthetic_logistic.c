#include <math.h>

#include "aggregator/simulate/generate/synthetic_kind.h"

#define SPREAD 3.0 /* standard deviation of a logit */

static fedge_status parse(const char *arguments, fedge_synthetic_spec *spec, fedge_error *err)
{
    uint32_t numbers[2] = {60, 10};
    if (arguments && !fedge_synthetic_numbers(arguments, 2, numbers))
        return fedge_synthetic_usage(&fedge_synthetic_logistic, arguments, err);
    const uint32_t features = numbers[0], labels = numbers[1];
    if (features < 1 || features > FEDGE_SYNTHETIC_MAX_FEATURES || labels < 2 ||
        labels > FEDGE_SYNTHETIC_MAX_LABELS ||
        (uint64_t)features * labels > FEDGE_SYNTHETIC_MAX_LAW) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "logistic:%u,%u: 1 to %u features, 2 to %u labels, and at most %u for "
                          "their product",
                          features, labels, FEDGE_SYNTHETIC_MAX_FEATURES,
                          FEDGE_SYNTHETIC_MAX_LABELS, (unsigned)FEDGE_SYNTHETIC_MAX_LAW);
    }
    spec->rank = 1;
    spec->shape[0] = features;
    spec->num_labels = labels;
    spec->dtype = FEDGE_F32;
    return FEDGE_OK;
}

/* W (labels, features), b (labels), and the logits (labels) of the current example. */
static size_t law_size(const fedge_synthetic_spec *spec)
{
    return (size_t)spec->num_labels * (spec->shape[0] + 2) * sizeof(double);
}

/* A logit is a sum of features + 1 terms of equal variance. */
static void draw_law(const fedge_synthetic_spec *spec, uint64_t seed, uint32_t client, void *law)
{
    const uint32_t features = spec->shape[0];
    const double scale = SPREAD / sqrt((double)features + 1.0);
    double *values = law;
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_SYNTHETIC, client, 0, FEDGE_DRAW_LAW);
    for (size_t i = 0; i < (size_t)spec->num_labels * (features + 1); i++)
        values[i] = scale * fedge_synthetic_normal(&rng);
}

static double example(const fedge_synthetic_spec *spec, void *law, fedge_rng *rng, void *values,
                      int32_t *label)
{
    const uint32_t features = spec->shape[0], labels = spec->num_labels;
    const double *w = law, *b = w + (size_t)labels * features;
    double *weight = (double *)law + (size_t)labels * (features + 1), largest = -INFINITY,
           sum = 0.0;
    float *x = values;
    for (uint32_t j = 0; j < features; j++)
        x[j] = (float)fedge_synthetic_normal(rng);
    for (uint32_t c = 0; c < labels; c++, w += features) {
        weight[c] = b[c];
        for (uint32_t j = 0; j < features; j++)
            weight[c] += w[j] * (double)x[j];
        largest = weight[c] > largest ? weight[c] : largest;
    }
    for (uint32_t c = 0; c < labels; c++) {
        weight[c] = fedge_synthetic_exp(weight[c] - largest);
        sum += weight[c];
    }
    double left = sum * fedge_rng_double(rng);
    uint32_t drawn = 0;
    while (drawn + 1 < labels && left >= weight[drawn])
        left -= weight[drawn++];
    *label = (int32_t)drawn;
    return 1.0 / sum; /* the largest weight is exp(0) */
}

const fedge_synthetic_ops fedge_synthetic_logistic = {.name = "logistic",
                                                      .usage = "logistic[:FEATURES,LABELS]",
                                                      .parse = parse,
                                                      .law_size = law_size,
                                                      .draw_law = draw_law,
                                                      .example = example};
