#include "edge/core/vec.h"

#include <stdint.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/vec_avx2.h"

static float dot_scalar(const float *x, const float *y, size_t n)
{
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void axpy_scalar(float a, const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void scale_scalar(float a, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= a;
}

static void sub_scalar(const float *x, const float *y, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] - y[i];
}

static void fill_scalar(float a, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = a;
}

/* Without their sign the bits of floats order as their values do, with infinity above the numbers
 * and NaN above infinity. */
static float max_abs_scalar(const float *x, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7FFFFFFFu;
        most = bits > most ? bits : most;
    }
    float result;
    memcpy(&result, &most, sizeof result);
    return result;
}

static const fedge_vec_kernels scalar_kernels = {
    .name = "scalar",
    .dot = dot_scalar,
    .axpy = axpy_scalar,
    .scale = scale_scalar,
    .sub = sub_scalar,
    .fill = fill_scalar,
    .max_abs = max_abs_scalar,
};

const fedge_vec_kernels *fedge_vec_kernels_for(unsigned features)
{
    const fedge_vec_kernels *avx2 = fedge_vec_kernels_avx2();
    return (features & FEDGE_CPU_AVX2) != 0 && avx2 != NULL ? avx2 : &scalar_kernels;
}

static const fedge_vec_kernels *best(void)
{
    return fedge_vec_kernels_for(fedge_os_cpu_features());
}

float fedge_vec_dot(const float *x, const float *y, size_t n)
{
    return best()->dot(x, y, n);
}

void fedge_vec_axpy(float a, const float *x, float *y, size_t n)
{
    best()->axpy(a, x, y, n);
}

void fedge_vec_scale(float a, float *x, size_t n)
{
    best()->scale(a, x, n);
}

void fedge_vec_sub(const float *x, const float *y, float *out, size_t n)
{
    best()->sub(x, y, out, n);
}

void fedge_vec_fill(float a, float *x, size_t n)
{
    best()->fill(a, x, n);
}

float fedge_vec_max_abs(const float *x, size_t n)
{
    return best()->max_abs(x, n);
}
