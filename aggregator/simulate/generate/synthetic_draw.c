#include <stdlib.h>

#include "aggregator/simulate/generate/synthetic_kind.h"

#define TAYLOR_TERMS 14               /* of exp on [-1/4, 1/4]: the next one is below 1e-20 */
#define LEAST_EXPONENT (-700.0)       /* of what is not 0 */
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
