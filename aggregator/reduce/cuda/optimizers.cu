#include "aggregator/reduce/cuda/optimizers.h"

#include "aggregator/reduce/cuda/values.cuh"

/* Σ w·v / W · 2^−F, as everywhere. */
static __device__ __forceinline__ double mean_of(int64_t sum, double weight, double unit)
{
    return (double)sum / weight * unit;
}

static __device__ __forceinline__ double next_of(int rule, double beta2, double v, double square)
{
    if (rule == FEDGE_STEP_RULE_ADAGRAD)
        return v + square;
    if (rule == FEDGE_STEP_RULE_ADAM)
        return beta2 * v + (1.0 - beta2) * square;
    const double sign = v > square ? 1.0 : v < square ? -1.0 : 0.0;
    return v - (1.0 - beta2) * square * sign;
}

template <int RULE>
static __global__ void __launch_bounds__(THREADS)
    optimize(fedge_optimizer_step with, float *values, float *first, float *second,
             const int64_t *sums, uint32_t count, double weight, double unit, double rate)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        const double mean = mean_of(sums[i], weight, unit);
        if (RULE == FEDGE_STEP_RULE_MOMENTUM) {
            first[i] = (float)(with.beta1 * (double)first[i] + mean);
            values[i] += (float)(rate * (double)first[i]);
        } else if (RULE == FEDGE_STEP_RULE_DYN) {
            first[i] = (float)((double)first[i] - with.beta1 * with.beta2 * mean);
            values[i] += (float)(rate * (mean - (double)first[i] / with.beta1));
        } else {
            first[i] = (float)(with.beta1 * (double)first[i] + (1.0 - with.beta1) * mean);
            second[i] = (float)next_of(RULE, with.beta2, (double)second[i], mean * mean);
            values[i] += (float)(rate * (double)first[i] / (sqrt((double)second[i]) + with.tau));
        }
    }
}

cudaError_t fedge_cuda_optimize(const fedge_optimizer_step *step, float *values,
                                float *const kept[2], const int64_t *sums, uint32_t count,
                                uint64_t total_weight, double unit, double rate,
                                cudaStream_t stream)
{
    const cudaLaunchConfig_t config =
        shape(((uint64_t)count + THREADS - 1) / THREADS, MAX_GRID, stream);
    const double weight = (double)total_weight;
#define LAUNCH(rule)                                                                               \
    cudaLaunchKernelEx(&config, optimize<rule>, *step, values, kept[0], kept[1], sums, count,      \
                       weight, unit, rate)
    switch (step->rule) {
    case FEDGE_STEP_RULE_MOMENTUM:
        return LAUNCH(FEDGE_STEP_RULE_MOMENTUM);
    case FEDGE_STEP_RULE_ADAGRAD:
        return LAUNCH(FEDGE_STEP_RULE_ADAGRAD);
    case FEDGE_STEP_RULE_ADAM:
        return LAUNCH(FEDGE_STEP_RULE_ADAM);
    case FEDGE_STEP_RULE_YOGI:
        return LAUNCH(FEDGE_STEP_RULE_YOGI);
    default:
        return LAUNCH(FEDGE_STEP_RULE_DYN);
    }
#undef LAUNCH
}
