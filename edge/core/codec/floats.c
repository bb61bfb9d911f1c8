#include "edge/core/codec/floats.h"

#include <math.h>

#include "edge/core/codec/half_simd.h"

void fedge_codec_cut(int bound_log2, const float *x, size_t n, float *cut, fedge_codec_stats *stats)
{
    const float bound = ldexpf(1.0f, bound_log2);
    for (size_t i = fedge_cut_simd(bound, x, n, cut, stats); i < n; i++) {
        stats->not_finite += isnan(x[i]) ? 1 : 0;
        stats->clamped += fabsf(x[i]) > bound ? 1 : 0;
        cut[i] = isnan(x[i]) ? 0 : x[i] > bound ? bound : x[i] < -bound ? -bound : x[i];
    }
}

fedge_status fedge_codec_fail_value(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                    const float *x, fedge_error *err)
{
    const float bound = ldexpf(1.0f, bound_log2);
    size_t i = 0;
    while (fabsf(x[i]) <= bound)
        i++;
    return fedge_fail(err, isfinite(x[i]) ? FEDGE_OUT_OF_RANGE : FEDGE_NOT_FINITE,
                      "value %zu of tensor \"%s\" is %g; |x| <= %g is demanded", first + i,
                      spec->name, (double)x[i], (double)bound);
}
