/* A distribution of positive numbers, as the command line names it: how fast clients compute, how
 * many bytes a second they have. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_TIME_DISTRIBUTION_H
#define FEDGE_AGGREGATOR_SIMULATE_TIME_DISTRIBUTION_H

#include <stddef.h>

#include "edge/core/rng.h"
#include "edge/core/status.h"

/* Parameters and draws lie in [FEDGE_DISTRIBUTION_MIN, FEDGE_DISTRIBUTION_MAX]; a draw outside is
 * moved to the end. */
#define FEDGE_DISTRIBUTION_MIN 1e-9
#define FEDGE_DISTRIBUTION_MAX 1e15
#define FEDGE_DISTRIBUTION_MAX_SIGMA 10.0
#define FEDGE_DISTRIBUTION_MAX_TEXT 64 /* bytes, with NUL */

typedef enum fedge_distribution_kind {
    FEDGE_DISTRIBUTION_NONE,     /* not given: without limit, draws are INFINITY */
    FEDGE_DISTRIBUTION_FIXED,    /* fixed:A */
    FEDGE_DISTRIBUTION_UNIFORM,  /* uniform:A,B in [A, B) */
    FEDGE_DISTRIBUTION_LOGNORMAL /* lognormal:A,B = A·exp(B·z), z standard normal: median A */
} fedge_distribution_kind;

/* Plain data. One that is all 0 is NONE. */
typedef struct fedge_distribution {
    fedge_distribution_kind kind;
    double a, b;
} fedge_distribution;

/* Reads [size] bytes such as "lognormal:100,0.5". FEDGE_INVALID_ARGUMENT says what is wrong. */
FEDGE_MUST_USE fedge_status fedge_distribution_parse(const char *text, size_t size,
                                                     fedge_distribution *distribution,
                                                     fedge_error *err);

/* One number; takes up to four words of [rng]. */
double fedge_distribution_draw(const fedge_distribution *distribution, fedge_rng *rng);

#endif
