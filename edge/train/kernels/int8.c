#include "edge/train/kernels/int8.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/train/kernels/half.h"

size_t fedge_int8_stride(size_t length)
{
    return (length + FEDGE_INT8_STEP - 1) / FEDGE_INT8_STEP * FEDGE_INT8_STEP;
}

size_t fedge_int8_width(size_t num_outputs)
{
    return (num_outputs + FEDGE_INT8_COLUMNS - 1) / FEDGE_INT8_COLUMNS * FEDGE_INT8_COLUMNS;
}

/* x to the nearest integer, |x| < 2^22, by adding 1.5 · 2^23: no bits remain for a fraction. */
static int32_t nearest(float x)
{
    return (int32_t)(fedge_float_bits(x + 12582912.0f) & 0x7fffffu) - 0x400000;
}

/* The smallest and the largest of x and 0. False if one of x is not finite. */
static bool range_of(const float *x, size_t n, float *min, float *max)
{
    float low = 0.0f, high = 0.0f, bad = 0.0f;
    for (size_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        bad += x[i] * 0.0f; /* NaN once one is not finite */
    }
    *min = low;
    *max = high;
    return bad == 0.0f;
}

void fedge_int8_quantise_weight(const fedge_int8_weight *to, const float *w)
{
    memset(to->rows, 0, (to->num_rows + FEDGE_INT8_COLUMNS - 1) * to->stride);
    for (size_t o = 0; o < to->num_rows; o++) {
        float min, max;
        int8_t *q = to->rows + o * to->stride;
        const bool finite = range_of(w, to->length, &min, &max);
        const float largest = max > -min ? max : -min;
        const float per_unit = 127.0f / largest;
        int32_t sum = 0;
        to->scales[o] = finite ? largest / 127.0f : NAN;
        /* A row whose largest is too small to divide by stays 0. */
        for (size_t i = 0; finite && isfinite(per_unit) && i < to->length; i++) {
            const int32_t value = nearest(w[i] * per_unit);
            q[i] = (int8_t)value;
            sum += value;
        }
        to->sums[o] = sum;
        w += to->length;
    }
}

fedge_int8_range fedge_int8_quantise(const float *x, size_t n, uint8_t *q)
{
    float min, max;
    const bool finite = range_of(x, n, &min, &max);
    /* Halved, since the difference of two floats may overflow. */
    const float scale = (0.5f * max - 0.5f * min) / 127.5f, per_unit = 1.0f / scale;
    if (!finite || !isfinite(per_unit)) {
        memset(q, 0, n);
        return (fedge_int8_range){.scale = finite ? 0.0f : NAN};
    }
    const int32_t zero = nearest(-min * per_unit);
    for (size_t i = 0; i < n; i++) {
        const int32_t value = nearest(x[i] * per_unit) + zero;
        q[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    return (fedge_int8_range){.scale = scale, .zero = zero};
}

void fedge_int8_multiply_scalar(const fedge_int8_product *args)
{
    for (size_t i = 0; i < args->m; i++) {
        for (size_t j = 0; j < args->n; j++) {
            const uint8_t *a = args->a + i * args->k;
            const int8_t *b = args->b + j * args->k;
            int32_t sum = 0;
            for (size_t k = 0; k < args->k; k++)
                sum += a[k] * b[k];
            args->c[i * args->n + j] = sum;
        }
    }
}

fedge_int8_multiply fedge_int8_choose(unsigned features)
{
#if defined(__x86_64__)
#if !defined(FEDGE_NO_AVX512)
    const unsigned vnni = FEDGE_CPU_AVX512 | FEDGE_CPU_AVX512VNNI;
    if ((features & vnni) == vnni)
        return fedge_int8_multiply_vnni;
#endif
    if (features & FEDGE_CPU_AVX2)
        return fedge_int8_multiply_avx2;
#else
    (void)features;
#endif
    return fedge_int8_multiply_scalar;
}
