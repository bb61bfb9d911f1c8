#include "aggregator/rounds/error_means.h"

#include <math.h>

void fedge_error_means_add(fedge_error_means *to, const double *values, double weight)
{
    for (int i = 0; i < FEDGE_ERROR_METRICS; i++) {
        const double value = i == FEDGE_ERROR_RMSE ? values[i] * values[i] : values[i];
        to->sums[i] += isfinite(value) ? value * weight : 0.0;
        to->weights[i] += isfinite(value) ? weight : 0.0;
    }
}

void fedge_error_means_get(const fedge_error_means *of, double *values)
{
    for (int i = 0; i < FEDGE_ERROR_METRICS; i++) {
        values[i] = of->weights[i] > 0.0 ? of->sums[i] / of->weights[i] : (double)NAN;
        values[i] = i == FEDGE_ERROR_RMSE ? sqrt(values[i]) : values[i];
    }
}
