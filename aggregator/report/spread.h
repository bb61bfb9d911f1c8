/* Mean and sample standard deviation of a number over runs that differ in their seeds. */
#ifndef FEDGE_AGGREGATOR_REPORT_SPREAD_H
#define FEDGE_AGGREGATOR_REPORT_SPREAD_H

#include <stdint.h>

/* Plain data; starts as zeros. */
typedef struct fedge_spread {
    uint32_t count;
    double mean;    /* 0 without any value */
    double squares; /* the sum of (x − mean)² */
} fedge_spread;

/* A value that is not finite does not count. */
void fedge_spread_add(fedge_spread *spread, double value);

double fedge_spread_mean(const fedge_spread *spread);      /* NaN without any value */
double fedge_spread_deviation(const fedge_spread *spread); /* NaN for fewer than two */

#endif
