#include "aggregator/simulate/time/distribution.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    fedge_distribution_kind kind;
    int parameters;
} KINDS[] = {{"fixed:", FEDGE_DISTRIBUTION_FIXED, 1},
             {"uniform:", FEDGE_DISTRIBUTION_UNIFORM, 2},
             {"lognormal:", FEDGE_DISTRIBUTION_LOGNORMAL, 2}};

/* Parses "A" or "A,B" up to the text's end. */
static bool parse_numbers(const char *at, int count, double out[2])
{
    for (int i = 0; i < count; i++) {
        char *end = NULL;
        out[i] = strtod(at, &end);
        if (end == at || *end != (i + 1 < count ? ',' : '\0'))
            return false;
        at = end + 1;
    }
    return true;
}

static bool is_in_range(double value)
{
    return value >= FEDGE_DISTRIBUTION_MIN && value <= FEDGE_DISTRIBUTION_MAX;
}

static fedge_status check(const fedge_distribution *distribution, const char *text,
                          fedge_error *err)
{
    const bool lognormal = distribution->kind == FEDGE_DISTRIBUTION_LOGNORMAL;
    const bool uniform = distribution->kind == FEDGE_DISTRIBUTION_UNIFORM;
    if (!is_in_range(distribution->a) || (uniform && !is_in_range(distribution->b))) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s': numbers must be from %g to %g", text,
                          FEDGE_DISTRIBUTION_MIN, FEDGE_DISTRIBUTION_MAX);
    }
    if (uniform && distribution->b < distribution->a) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s': the smaller number comes first",
                          text);
    }
    if (lognormal && !(distribution->b >= 0.0 && distribution->b <= FEDGE_DISTRIBUTION_MAX_SIGMA)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%s': the second number is the spread of the logarithm, from 0 to %g",
                          text, FEDGE_DISTRIBUTION_MAX_SIGMA);
    }
    return FEDGE_OK;
}

fedge_status fedge_distribution_parse(const char *text, size_t size,
                                      fedge_distribution *distribution, fedge_error *err)
{
    char copy[FEDGE_DISTRIBUTION_MAX_TEXT];
    if (size < sizeof(copy)) {
        memcpy(copy, text, size);
        copy[size] = '\0';
        for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
            const size_t name = strlen(KINDS[i].name);
            double numbers[2] = {0.0, 0.0};
            if (strncmp(copy, KINDS[i].name, name) == 0 &&
                parse_numbers(copy + name, KINDS[i].parameters, numbers)) {
                *distribution = (fedge_distribution){KINDS[i].kind, numbers[0], numbers[1]};
                return check(distribution, copy, err);
            }
        }
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "'%.*s' is not fixed:A, uniform:A,B or lognormal:MEDIAN,SIGMA",
                      size < sizeof(copy) ? (int)size : (int)sizeof(copy), text);
}

double fedge_distribution_draw(const fedge_distribution *distribution, fedge_rng *rng)
{
    double value = distribution->a;
    switch (distribution->kind) {
    case FEDGE_DISTRIBUTION_NONE:
        return INFINITY;
    case FEDGE_DISTRIBUTION_FIXED:
        break;
    case FEDGE_DISTRIBUTION_UNIFORM:
        value += (distribution->b - distribution->a) * fedge_rng_double(rng);
        break;
    case FEDGE_DISTRIBUTION_LOGNORMAL:
        value *= exp(distribution->b * fedge_rng_normal(rng));
        break;
    }
    return fmin(fmax(value, FEDGE_DISTRIBUTION_MIN), FEDGE_DISTRIBUTION_MAX);
}
