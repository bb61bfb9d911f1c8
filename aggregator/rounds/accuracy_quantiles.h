/* How evenly models serve clients: quantiles of their accuracies, each client counting once. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ACCURACY_QUANTILES_H
#define FEDGE_AGGREGATOR_ROUNDS_ACCURACY_QUANTILES_H

#include <stdbool.h>
#include <stdint.h>

#define FEDGE_ACCURACY_QUANTILES 7

/* At 0, 0.1, 0.25, 0.5, 0.75, 0.9 and 1, linear between two clients, as numpy.quantile. Plain data;
 * all 0: nothing is known. */
typedef struct fedge_accuracy_quantiles {
    bool present;
    double values[FEDGE_ACCURACY_QUANTILES];
} fedge_accuracy_quantiles;

/* "0", "0.1", …: how files name them; index below FEDGE_ACCURACY_QUANTILES. */
const char *fedge_accuracy_quantile_key(unsigned index);

/* accuracies: (count), which are sorted; none: nothing is known. */
void fedge_accuracy_quantiles_measure(fedge_accuracy_quantiles *to, double *accuracies,
                                      uint32_t count);

#endif
