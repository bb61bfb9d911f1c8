#include "aggregator/simulate/generate/synthetic.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/generate/synthetic_kind.h"

#define LEAST_COUNT 50 /* examples of a client by fedprox's law */
#define MEAN_LOG_COUNT 4.0
#define SPREAD_LOG_COUNT 2.0

static const fedge_synthetic_ops *const KINDS[] = {
    [FEDGE_SYNTHETIC_LOGISTIC] = &fedge_synthetic_logistic,
    [FEDGE_SYNTHETIC_FEDPROX] = &fedge_synthetic_fedprox,
    [FEDGE_SYNTHETIC_IMAGES] = &fedge_synthetic_images,
    [FEDGE_SYNTHETIC_SERIES] = &fedge_synthetic_series};

static_assert(sizeof(KINDS) / sizeof(KINDS[0]) == FEDGE_SYNTHETIC_COUNT, "each has its operations");

struct fedge_synthetic {
    fedge_synthetic_spec spec;
    const fedge_synthetic_ops *ops;
    uint64_t seed;
    uint32_t client;  /* the owner of the current law */
    bool laws_differ; /* every client has its own law */
    void *law;
};

fedge_status fedge_synthetic_parse(const char *text, fedge_synthetic_spec *spec, fedge_error *err)
{
    const char *colon = strchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    for (unsigned kind = 0; kind < FEDGE_SYNTHETIC_COUNT; kind++) {
        const char *name = KINDS[kind]->name;
        if (strlen(name) == length && strncmp(text, name, length) == 0) {
            *spec = (fedge_synthetic_spec){.kind = (fedge_synthetic_kind)kind};
            return KINDS[kind]->parse(colon ? colon + 1 : NULL, spec, err);
        }
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%.60s' is not %s, %s, %s or %s", text,
                      KINDS[0]->usage, KINDS[1]->usage, KINDS[2]->usage, KINDS[3]->usage);
}

size_t fedge_synthetic_example_values(const fedge_synthetic_spec *spec)
{
    size_t values = 1;
    for (uint32_t i = 0; i < spec->rank; i++)
        values *= spec->shape[i];
    return values;
}

uint32_t fedge_synthetic_draw_count(uint64_t seed, uint32_t client)
{
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_SYNTHETIC, client, 0, FEDGE_DRAW_COUNT);
    const double count =
        fedge_synthetic_exp(MEAN_LOG_COUNT + SPREAD_LOG_COUNT * fedge_synthetic_normal(&rng));
    return count < FEDGE_SYNTHETIC_MAX_EXAMPLES - LEAST_COUNT ? (uint32_t)count + LEAST_COUNT
                                                              : FEDGE_SYNTHETIC_MAX_EXAMPLES;
}

fedge_status fedge_synthetic_new(const fedge_synthetic_spec *spec, uint64_t seed,
                                 fedge_synthetic **synthetic, fedge_error *err)
{
    *synthetic = NULL;
    const fedge_synthetic_ops *ops = KINDS[spec->kind];
    const size_t size = ops->law_size(spec);
    fedge_synthetic *fresh = calloc(1, sizeof(*fresh));
    void *law = calloc(1, size);
    if (!fresh || !law) {
        free(fresh);
        free(law);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the %zu bytes behind the data",
                          size);
    }
    *fresh = (fedge_synthetic){.spec = *spec,
                               .ops = ops,
                               .seed = seed,
                               .client = FEDGE_SYNTHETIC_TEST,
                               .laws_differ = spec->kind == FEDGE_SYNTHETIC_FEDPROX && !spec->iid,
                               .law = law};
    ops->draw_law(spec, seed, fresh->client, law);
    *synthetic = fresh;
    return FEDGE_OK;
}

void fedge_synthetic_free(fedge_synthetic *synthetic)
{
    if (!synthetic)
        return;
    free(synthetic->law);
    free(synthetic);
}

double fedge_synthetic_example(fedge_synthetic *synthetic, uint32_t client, uint32_t index,
                               void *values, int32_t *label)
{
    if (synthetic->laws_differ && client != synthetic->client) {
        synthetic->ops->draw_law(&synthetic->spec, synthetic->seed, client, synthetic->law);
        synthetic->client = client;
    }
    fedge_rng rng = fedge_rng_stream(synthetic->seed, FEDGE_PURPOSE_SYNTHETIC, client, index,
                                     FEDGE_DRAW_EXAMPLE);
    return synthetic->ops->example(&synthetic->spec, synthetic->law, &rng, values, label);
}

/* ---- draws ----------------------------------------------------------------------------------- */

#define TAYLOR_TERMS 14 /* terms of exp's series on [-1/4, 1/4]; the next one is below 1e-20 */
#define LEAST_EXPONENT (-700.0)       /* below it exp is 0 */
#define WIDTH 0.85776388496070679649  /* sqrt(2 / e) */
#define ACCEPT 5.13610166675096593629 /* 4 exp(1/4) */
#define REJECT 1.03696104258356602834 /* 4 exp(-1.35) */

double fedge_synthetic_exp(double x)
{
    if (x < LEAST_EXPONENT)
        return 0.0;
    int halvings = 0;
    while (x > 0.25 || x < -0.25) {
        x *= 0.5;
        halvings++;
    }
    double sum = 1.0;
    for (int n = TAYLOR_TERMS; n > 0; n--)
        sum = 1.0 + sum * x / n;
    while (halvings-- > 0)
        sum *= sum;
    return sum;
}

/* With (u, v) uniform in the region u ≤ exp(-(v/u)² / 4), v / u is normal. Knuth's two bounds
 * (The Art of Computer Programming 2, 3.4.1, algorithm R) spare most exponentials. */
double fedge_synthetic_normal(fedge_rng *rng)
{
    for (;;) {
        const double u = 1.0 - fedge_rng_double(rng); /* (0, 1] */
        const double x = WIDTH * (2.0 * fedge_rng_double(rng) - 1.0) / u;
        const double square = x * x;
        if (square <= 5.0 - ACCEPT * u)
            return x;
        if (square < REJECT / u + 1.4 && u <= fedge_synthetic_exp(-0.25 * square))
            return x;
    }
}

bool fedge_synthetic_numbers(const char *text, uint32_t count, uint32_t *numbers)
{
    for (uint32_t i = 0; i < count; i++) {
        char *end = NULL;
        const unsigned long number = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
        if (!end || *end != (i + 1 < count ? ',' : '\0'))
            return false;
        numbers[i] = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
        text = end + 1;
    }
    return true;
}

fedge_status fedge_synthetic_usage(const fedge_synthetic_ops *ops, const char *arguments,
                                   fedge_error *err)
{
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s:%.60s' is not %s", ops->name, arguments,
                      ops->usage);
}
