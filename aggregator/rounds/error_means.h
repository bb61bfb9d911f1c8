/* Means of clients' errors (edge/train/errors.h), weighted by examples. mae and mape become those
 * over all examples, and so does rmse, as the root of the mean of squares; r2 is a mean over the
 * clients. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ERROR_MEANS_H
#define FEDGE_AGGREGATOR_ROUNDS_ERROR_MEANS_H

#include "edge/train/errors.h"

/* All 0: none. */
typedef struct fedge_error_means {
    double sums[FEDGE_ERROR_METRICS], weights[FEDGE_ERROR_METRICS];
} fedge_error_means;

/* values: (FEDGE_ERROR_METRICS); one that is not finite does not count. */
void fedge_error_means_add(fedge_error_means *to, const double *values, double weight);

/* values: (FEDGE_ERROR_METRICS), NaN where no client reported one. */
void fedge_error_means_get(const fedge_error_means *of, double *values);

#endif
