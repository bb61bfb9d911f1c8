#include "edge/train/errors.h"

#include <math.h>

const char *const fedge_error_metric_names[] = {
#define NAME_ENTRY(upper, name) name,
    FEDGE_ERROR_METRIC_MAP(NAME_ENTRY)
#undef NAME_ENTRY
        NULL};

void fedge_errors_add(fedge_errors *to, const fedge_target_units *units, const float *y,
                      const float *t, uint32_t batch, uint32_t count)
{
    for (size_t b = 0; b < batch; b++) {
        for (uint32_t k = 0; k < count; k++) {
            const double target = fedge_target_in_unit(units, k, t[b * count + k]);
            const double e = fedge_target_in_unit(units, k, y[b * count + k]) - target;
            to->absolute += fabs(e);
            to->squared += e * e;
            if (target != 0.0) {
                to->relative += fabs(e / target);
                to->num_relative++;
            }
        }
    }
    to->count += (uint64_t)batch * count;
}

void fedge_errors_merge(fedge_errors *to, const fedge_errors *from)
{
    to->count += from->count;
    to->num_relative += from->num_relative;
    to->absolute += from->absolute;
    to->squared += from->squared;
    to->relative += from->relative;
}

void fedge_errors_values(const fedge_errors *errors, double variation, double *values)
{
    const double n = (double)errors->count;
    values[FEDGE_ERROR_MAE] = n > 0.0 ? errors->absolute / n : (double)NAN;
    values[FEDGE_ERROR_RMSE] = n > 0.0 ? sqrt(errors->squared / n) : (double)NAN;
    values[FEDGE_ERROR_R2] =
        n > 0.0 && variation > 0.0 ? 1.0 - errors->squared / variation : (double)NAN;
    values[FEDGE_ERROR_MAPE] =
        errors->num_relative > 0 ? errors->relative / (double)errors->num_relative : (double)NAN;
}
