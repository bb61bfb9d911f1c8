#include "edge/core/fixed.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "edge/core/os.h"

static bool has_avx2(void)
{
    return (fedge_os_cpu_features() & FEDGE_CPU_AVX2) != 0;
}

static bool has_neon(void)
{
    return (fedge_os_cpu_features() & FEDGE_CPU_NEON) != 0;
}

static bool bound_is_valid(int bound_log2)
{
    return bound_log2 >= FEDGE_FIXED_MIN_BOUND_LOG2 && bound_log2 <= FEDGE_FIXED_MAX_BOUND_LOG2;
}

/* |x · 2^F| ≤ 2^30 once |x| ≤ B, and a power of two scales exactly (denormals grow, F ≥ 10), so the
 * conversion is the only rounding; lrintf rounds to nearest even in the default mode. */
static int32_t to_fixed(float x, float scale)
{
    return (int32_t)lrintf(x * scale);
}

void fedge_fixed_quantise_scalar(const float *x, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite)
{
    assert(bound_is_valid(bound_log2));
    const float bound = ldexpf(1.0f, bound_log2);
    const float scale = ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2);
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            v[i] = 0;
            (*not_finite)++;
            /* Compare before converting: converting a larger product is undefined. */
        } else if (fabsf(x[i]) <= bound) {
            v[i] = to_fixed(x[i], scale);
        } else {
            v[i] = to_fixed(copysignf(bound, x[i]), scale);
            (*clamped)++;
        }
    }
}

void fedge_fixed_quantise(const float *x, size_t n, int bound_log2, int32_t *v, uint64_t *clamped,
                          uint64_t *not_finite)
{
    assert(bound_is_valid(bound_log2));
    size_t done = 0;
    if (has_avx2())
        done = fedge_fixed_quantise_avx2(x, n, bound_log2, v, clamped, not_finite);
    else if (has_neon())
        done = fedge_fixed_quantise_neon(x, n, bound_log2, v, clamped, not_finite);
    fedge_fixed_quantise_scalar(x + done, n - done, bound_log2, v + done, clamped, not_finite);
}

void fedge_fixed_quantise_change_scalar(float *x, const float *y, size_t n, int bound_log2,
                                        int32_t *v, uint64_t *clamped, uint64_t *not_finite)
{
    for (size_t i = 0; i < n; i++) {
        const float change = x[i] - y[i];
        fedge_fixed_quantise_scalar(&change, 1, bound_log2, v + i, clamped, not_finite);
        x[i] = y[i];
    }
}

void fedge_fixed_quantise_change(float *x, const float *y, size_t n, int bound_log2, int32_t *v,
                                 uint64_t *clamped, uint64_t *not_finite)
{
    assert(bound_is_valid(bound_log2));
    size_t done = 0;
    if (has_avx2())
        done = fedge_fixed_quantise_change_avx2(x, y, n, bound_log2, v, clamped, not_finite);
    else if (has_neon())
        done = fedge_fixed_quantise_change_neon(x, y, n, bound_log2, v, clamped, not_finite);
    fedge_fixed_quantise_change_scalar(x + done, y + done, n - done, bound_log2, v + done, clamped,
                                       not_finite);
}

fedge_status fedge_fixed_quantise_strict(const float *x, size_t n, int bound_log2, int32_t *v,
                                         fedge_error *err)
{
    assert(bound_is_valid(bound_log2));
    const float bound = ldexpf(1.0f, bound_log2);
    const float scale = ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2);
    size_t i = has_avx2() ? fedge_fixed_quantise_strict_avx2(x, n, bound_log2, v) : 0;
    for (; i < n && fabsf(x[i]) <= bound; i++)
        v[i] = to_fixed(x[i], scale);
    if (i == n)
        return FEDGE_OK;
    if (!isfinite(x[i])) {
        return fedge_fail(err, FEDGE_NOT_FINITE, "value %zu is %s", i,
                          isnan(x[i]) ? "NaN" : "infinite");
    }
    return fedge_fail(err, FEDGE_OUT_OF_RANGE, "value %zu is %g, over the bound of %g", i,
                      (double)x[i], (double)bound);
}

void fedge_fixed_accumulate_scalar(int64_t *sum, const int32_t *v, size_t n, uint32_t weight)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += (int64_t)weight * v[i];
}

void fedge_fixed_accumulate(int64_t *sum, const int32_t *v, size_t n, uint32_t weight)
{
    size_t done = 0;
    /* The SIMD product is signed, so weights of 2^31 or more use the scalar loop. */
    if (weight <= INT32_MAX && has_avx2())
        done = fedge_fixed_accumulate_avx2(sum, v, n, weight);
    fedge_fixed_accumulate_scalar(sum + done, v + done, n - done, weight);
}

/* Overflow is impossible: the limit on the total weight keeps all sums below 2^62. */
void fedge_fixed_merge(int64_t *sum, const int64_t *other, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += other[i];
}

void fedge_fixed_step_scalar(float *model, const int64_t *sum, size_t n, uint64_t total_weight,
                             int bound_log2, double learning_rate)
{
    const double weight = (double)total_weight;
    const double unit = ldexp(1.0, bound_log2 - FEDGE_FIXED_VALUE_BITS);
    for (size_t i = 0; i < n; i++)
        model[i] += (float)(learning_rate * ((double)sum[i] / weight * unit));
}

void fedge_fixed_step(float *model, const int64_t *sum, size_t n, uint64_t total_weight,
                      int bound_log2, double learning_rate)
{
    assert(total_weight >= 1 && total_weight <= FEDGE_FIXED_MAX_TOTAL_WEIGHT);
    assert(bound_is_valid(bound_log2));
    size_t done = 0;
    if (has_avx2())
        done = fedge_fixed_step_avx2(model, sum, n, total_weight, bound_log2, learning_rate);
    fedge_fixed_step_scalar(model + done, sum + done, n - done, total_weight, bound_log2,
                            learning_rate);
}
