#include "aggregator/rounds/accuracy_quantiles.h"

#include <stdlib.h>

static const struct {
    double at;
    const char *key;
} QUANTILES[FEDGE_ACCURACY_QUANTILES] = {{0.0, "0"},     {0.1, "0.1"}, {0.25, "0.25"}, {0.5, "0.5"},
                                         {0.75, "0.75"}, {0.9, "0.9"}, {1.0, "1"}};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile_of(const double *sorted, uint32_t count, double at)
{
    const double place = at * (double)(count - 1);
    const uint32_t below = (uint32_t)place;
    const uint32_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

const char *fedge_accuracy_quantile_key(unsigned index)
{
    return QUANTILES[index].key;
}

void fedge_accuracy_quantiles_measure(fedge_accuracy_quantiles *to, double *accuracies,
                                      uint32_t count)
{
    *to = (fedge_accuracy_quantiles){.present = count > 0};
    qsort(accuracies, count, sizeof(*accuracies), by_value);
    for (int q = 0; q < FEDGE_ACCURACY_QUANTILES && count > 0; q++)
        to->values[q] = quantile_of(accuracies, count, QUANTILES[q].at);
}
