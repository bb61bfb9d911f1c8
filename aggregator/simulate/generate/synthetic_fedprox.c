#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/generate/synthetic_kind.h"

enum { FEATURES = 60, LABELS = 10, ROOT_STEPS = 60 };

typedef struct law {
    double w[LABELS][FEATURES], b[LABELS];
    double mean[FEATURES], spread[FEATURES]; /* mean and standard deviation of x */
} law;

/* Parses a number; *end: the text after it, or NULL without one. */
static double read_number(const char *text, char **end)
{
    const bool is_number = *text == '.' || (*text >= '0' && *text <= '9');
    *end = NULL;
    return is_number ? strtod(text, end) : 0.0;
}

static fedge_status parse(const char *arguments, fedge_synthetic_spec *spec, fedge_error *err)
{
    spec->rank = 1;
    spec->shape[0] = FEATURES;
    spec->num_labels = LABELS;
    spec->dtype = FEDGE_F32;
    spec->alpha = spec->beta = 1.0;
    spec->iid = arguments && strcmp(arguments, "iid") == 0;
    if (!arguments || spec->iid)
        return FEDGE_OK;
    char *comma = NULL, *end = NULL;
    spec->alpha = read_number(arguments, &comma);
    if (comma && *comma == ',')
        spec->beta = read_number(comma + 1, &end);
    if (!end || end == comma + 1 || *end != '\0')
        return fedge_synthetic_usage(&fedge_synthetic_fedprox, arguments, err);
    return spec->alpha <= FEDGE_SYNTHETIC_MAX_SPREAD && spec->beta <= FEDGE_SYNTHETIC_MAX_SPREAD
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_OUT_OF_RANGE,
                            "fedprox:%.60s: alpha and beta are standard deviations, from 0 to %g",
                            arguments, FEDGE_SYNTHETIC_MAX_SPREAD);
}

static size_t law_size(const fedge_synthetic_spec *spec)
{
    (void)spec;
    return sizeof(law);
}

/* sqrt(j^-1.2) = (j^(1/5))^-3, the root by Newton's method. */
static double spread_of(int j)
{
    double root = 1.0 + j / 5.0; /* an upper bound, from where the steps only fall */
    for (int i = 0; i < ROOT_STEPS; i++) {
        const double fourth = root * root * root * root;
        root -= (fourth * root - j) / (5.0 * fourth);
    }
    return 1.0 / (root * root * root);
}

static void draw_law(const fedge_synthetic_spec *spec, uint64_t seed, uint32_t client, void *out)
{
    law *self = out;
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_SYNTHETIC, client, 0, FEDGE_DRAW_LAW);
    const double u = spec->iid ? 0.0 : spec->alpha * fedge_synthetic_normal(&rng);
    for (int c = 0; c < LABELS; c++) {
        for (int j = 0; j < FEATURES; j++)
            self->w[c][j] = u + fedge_synthetic_normal(&rng);
        self->b[c] = u + fedge_synthetic_normal(&rng);
    }
    rng = fedge_rng_stream(seed, FEDGE_PURPOSE_SYNTHETIC, client, 0, FEDGE_DRAW_MEANS);
    const double mean = spec->beta * fedge_synthetic_normal(&rng);
    for (int j = 0; j < FEATURES; j++) {
        self->mean[j] = spec->iid ? 0.0 : mean + fedge_synthetic_normal(&rng);
        self->spread[j] = spread_of(j + 1);
    }
}

static double example(const fedge_synthetic_spec *spec, void *opaque, fedge_rng *rng, void *values,
                      int32_t *label)
{
    (void)spec;
    const law *self = opaque;
    float *x = values;
    double largest = -INFINITY;
    for (int j = 0; j < FEATURES; j++)
        x[j] = (float)(self->mean[j] + self->spread[j] * fedge_synthetic_normal(rng));
    for (int c = 0; c < LABELS; c++) {
        double logit = self->b[c];
        for (int j = 0; j < FEATURES; j++)
            logit += self->w[c][j] * (double)x[j];
        if (logit > largest) { /* softmax keeps the order */
            largest = logit;
            *label = c;
        }
    }
    return NAN; /* no one model is right for all clients */
}

const fedge_synthetic_ops fedge_synthetic_fedprox = {.name = "fedprox",
                                                     .usage = "fedprox[:ALPHA,BETA or :iid]",
                                                     .parse = parse,
                                                     .law_size = law_size,
                                                     .draw_law = draw_law,
                                                     .example = example};
