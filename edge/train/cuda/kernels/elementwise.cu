/* Functions of single values, and removal of a dimension. */
#include "edge/train/cuda/kernels/device.cuh"
#include "edge/train/cuda/kernels/tile.cuh"

/* ---- functions of one number ---- */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

#define TWO_OVER_PI 0.79788456080286536f  /* √(2/π) */
#define ONE_OVER_2PI 0.39894228040143268f /* 1/√(2π) */
#define ONE_OVER_ROOT2 0.70710678118654752f
#define CUBE 0.044715f

static __device__ __forceinline__ float value_of(const fedge_cohort_activation &a, float x)
{
    switch (a.function) {
    case FEDGE_COHORT_RELU:
        return x < 0.0f ? 0.0f : x;
    case FEDGE_COHORT_RELU6:
        return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
    case FEDGE_COHORT_LEAKYRELU:
        return x > 0.0f ? x : a.slope * x;
    case FEDGE_COHORT_GELU:
        return 0.5f * x * (1.0f + erff(x * ONE_OVER_ROOT2));
    case FEDGE_COHORT_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(TWO_OVER_PI * (x + CUBE * x * x * x)));
    case FEDGE_COHORT_SIGMOID:
        return sigmoid(x);
    case FEDGE_COHORT_TANH:
        return tanhf(x);
    default:
        return x * sigmoid(x);
    }
}

/* The derivative, from x or y. */
static __device__ __forceinline__ float slope_of(const fedge_cohort_activation &a, size_t at)
{
    switch (a.function) {
    case FEDGE_COHORT_RELU:
        return a.y[at] > 0.0f ? 1.0f : 0.0f;
    case FEDGE_COHORT_RELU6:
        return a.y[at] > 0.0f && a.y[at] < 6.0f ? 1.0f : 0.0f;
    case FEDGE_COHORT_LEAKYRELU:
        return a.x[at] > 0.0f ? 1.0f : a.slope;
    case FEDGE_COHORT_GELU: {
        const float x = a.x[at];
        return 0.5f * (1.0f + erff(x * ONE_OVER_ROOT2)) + x * ONE_OVER_2PI * expf(-0.5f * x * x);
    }
    case FEDGE_COHORT_GELU_TANH: {
        const float x = a.x[at], t = tanhf(TWO_OVER_PI * (x + CUBE * x * x * x));
        return 0.5f * (1.0f + t) +
               0.5f * x * (1.0f - t * t) * TWO_OVER_PI * (1.0f + 3.0f * CUBE * x * x);
    }
    case FEDGE_COHORT_SIGMOID:
        return a.y[at] * (1.0f - a.y[at]);
    case FEDGE_COHORT_TANH:
        return 1.0f - a.y[at] * a.y[at];
    default: {
        const float s = sigmoid(a.x[at]);
        return s * (1.0f + a.x[at] * (1.0f - s));
    }
    }
}

static __global__ void __launch_bounds__(TILE_THREADS)
    activation(fedge_cohort_activation a, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < (size_t)slot_steps[s].count * a.values) {
        const size_t at = (size_t)s * batch * a.values + i;
        a.y[at] = value_of(a, a.x[at]);
    }
}

/* Where the slope is 0, dx is 0 even if dy is NaN. */
static __global__ void __launch_bounds__(TILE_THREADS)
    activation_backward(fedge_cohort_activation a, const fedge_cohort_slot_step *slot_steps,
                        uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < (size_t)slot_steps[s].count * a.values) {
        const size_t at = (size_t)s * batch * a.values + i;
        const float slope = slope_of(a, at);
        a.dx[at] = slope == 0.0f ? 0.0f : a.dy[at] * slope;
    }
}

cudaError_t fedge_cohort_launch_activation(const fedge_cohort_shape *shape,
                                           const fedge_cohort_activation *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->values);
    return cudaLaunchKernelEx(&config, activation, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_activation_backward(const fedge_cohort_shape *shape,
                                                    const fedge_cohort_activation *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->values);
    return cudaLaunchKernelEx(&config, activation_backward, *args, shape->slot_steps, shape->batch);
}

/* ---- sums ---- */

static __global__ void __launch_bounds__(TILE_THREADS)
    add(fedge_cohort_add a, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i < (size_t)slot_steps[s].count * a.values) {
        const size_t at = (size_t)s * batch * a.values + i;
        a.to[at] = a.adds ? a.to[at] + a.from[at] : a.from[at];
    }
}

cudaError_t fedge_cohort_launch_add(const fedge_cohort_shape *shape, const fedge_cohort_add *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->values);
    return cudaLaunchKernelEx(&config, add, *args, shape->slot_steps, shape->batch);
}

/* ---- dropout ---- */

/* One thread for each value. */
static __global__ void __launch_bounds__(TILE_THREADS)
    dropout(fedge_cohort_dropout d, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * d.values)
        return;
    const fedge_cohort_slot_step slot_step = slot_steps[s];
    const size_t at = (size_t)s * batch * d.values + i;
    const uint64_t word = first_word(d.drop, slot_step, (uint32_t)(i / d.values)) + i % d.values;
    d.y[at] = is_kept(d.drop, slot_step, word) ? d.x[at] * drop_factor(d.drop) : 0.0f;
}

cudaError_t fedge_cohort_launch_dropout(const fedge_cohort_shape *shape,
                                        const fedge_cohort_dropout *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->values);
    return cudaLaunchKernelEx(&config, dropout, *args, shape->slot_steps, shape->batch);
}

/* ---- one index of a dimension, or the mean over it ---- */

typedef fedge_cohort_axis axis;

/* One thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    axis_forward(axis a, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t n = (size_t)a.outer * a.inner;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= slot_steps[s].count * n)
        return;
    const size_t o = (size_t)s * batch * a.outer + i / a.inner;
    const float *x = a.x + (o * a.length + a.first) * a.inner + i % a.inner;
    float sum = 0.0f;
    for (uint32_t k = 0; k < a.count; k++)
        sum += x[(size_t)k * a.inner];
    a.y[o * a.inner + i % a.inner] = sum * (1.0f / (float)a.count);
}

/* One thread for each input. */
static __global__ void __launch_bounds__(TILE_THREADS)
    axis_backward(axis a, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z;
    const size_t n = (size_t)a.outer * a.length * a.inner;
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= slot_steps[s].count * n)
        return;
    const size_t o = (size_t)s * batch * a.outer + i / a.inner / a.length;
    const uint32_t k = (uint32_t)(i / a.inner % a.length);
    const bool there = k >= a.first && k - a.first < a.count;
    a.dx[(size_t)s * batch * n + i] =
        there ? a.dy[o * a.inner + i % a.inner] * (1.0f / (float)a.count) : 0.0f;
}

cudaError_t fedge_cohort_launch_axis(const fedge_cohort_shape *shape, const fedge_cohort_axis *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->outer * args->inner);
    return cudaLaunchKernelEx(&config, axis_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_axis_backward(const fedge_cohort_shape *shape,
                                              const fedge_cohort_axis *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->outer * args->length * args->inner);
    return cudaLaunchKernelEx(&config, axis_backward, *args, shape->slot_steps, shape->batch);
}
