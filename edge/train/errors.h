/* Errors of a model that learns numbers, in the targets' own units: e = output − target.
 *
 *   mae    the mean of |e|                  rmse   the root of the mean of e²
 *   r2     1 − Σ e² / Σ (t − mean of t)²    mape   the mean of |e / t| where t is not 0
 *
 * All targets of all examples count alike; r2 takes the mean of each target by itself
 * (scikit-learn's r2_score with "variance_weighted").
 */
#ifndef FEDGE_EDGE_TRAIN_ERRORS_H
#define FEDGE_EDGE_TRAIN_ERRORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name in enum fedge_error_metric, name in files). */
#define FEDGE_ERROR_METRIC_MAP(X) X(MAE, "mae") X(RMSE, "rmse") X(R2, "r2") X(MAPE, "mape")

typedef enum fedge_error_metric {
#define FEDGE_ERROR_METRIC_ENUM(upper, name) FEDGE_ERROR_##upper,
    FEDGE_ERROR_METRIC_MAP(FEDGE_ERROR_METRIC_ENUM)
#undef FEDGE_ERROR_METRIC_ENUM
        FEDGE_ERROR_METRICS
} fedge_error_metric;

/* "mae", …, then NULL: (FEDGE_ERROR_METRICS + 1). */
extern const char *const fedge_error_metric_names[];

/* The units of normalised targets: t · std + mean. Plain data; borrows its arrays. */
typedef struct fedge_target_units {
    uint32_t num_scales;     /* 0: mean 0 and std 1; 1: the same for all targets; else one each */
    const float *mean, *std; /* (num_scales) */
} fedge_target_units;

/* Sums over targets; those of several sets add up. All 0: none. */
typedef struct fedge_errors {
    uint64_t count, num_relative; /* targets; those that are not 0 */
    double absolute, squared, relative;
} fedge_errors;

/* Adds y and t, (batch, count), both normalised. */
void fedge_errors_add(fedge_errors *to, const fedge_target_units *units, const float *y,
                      const float *t, uint32_t batch, uint32_t count);

void fedge_errors_merge(fedge_errors *to, const fedge_errors *from);

/* values: (FEDGE_ERROR_METRICS). [variation]: Σ (t − mean of t)² of the same targets; NaN where a
 * metric is not defined: there are no targets, all are equal, or all are 0. */
void fedge_errors_values(const fedge_errors *errors, double variation, double *values);

/* A target in its unit. */
static inline double fedge_target_in_unit(const fedge_target_units *units, uint32_t target, float t)
{
    const uint32_t at = units->num_scales > 1 ? target : 0;
    return units->num_scales == 0 ? (double)t
                                  : (double)t * (double)units->std[at] + (double)units->mean[at];
}

#endif
