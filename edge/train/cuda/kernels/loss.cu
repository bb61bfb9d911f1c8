#include "edge/train/cuda/kernels/tile.cuh"

enum { LOSS_THREADS = 128 };

static __device__ __forceinline__ double mean(const float *row, uint32_t n)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)row[i];
    return sum / n;
}

/* The loss of one example, summed in the order of edge/train/losses/cross_entropy.c. */
static __device__ double cross_entropy(const fedge_cohort_loss &l, const float *row, uint32_t label,
                                       uint32_t count, float *dy, uint32_t best)
{
    const float peak = row[best];
    double sum = 0.0, target = (double)row[label];
    for (uint32_t c = 0; c < l.classes; c++)
        sum += (double)expf(row[c] - peak);
    if (l.argument > 0.0f)
        target += (double)l.argument * (mean(row, l.classes) - target);
    if (dy) {
        const float scale = (float)(1.0 / (sum * (double)count));
        const float other = l.argument / ((float)l.classes * (float)count);
        for (uint32_t c = 0; c < l.classes; c++)
            dy[c] = expf(row[c] - peak) * scale - other;
        dy[label] -= (1.0f - l.argument) / (float)count;
    }
    return log(sum) + (double)peak - target;
}

/* The loss of one output, as in edge/train/losses; *slope is its derivative. */
static __device__ __forceinline__ double output_loss(const fedge_cohort_loss &l, float y,
                                                     double target, double *slope)
{
    const double d = (double)y - target, delta = (double)l.argument, size = fabs(d);
    const double sign = d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : 0.0;
    if (l.function == FEDGE_COHORT_BCE_WITH_LOGITS) {
        const double e = exp(-fabs((double)y));
        *slope = (double)(float)((y >= 0.0f ? 1.0 / (1.0 + e) : e / (1.0 + e)) - target);
        return (y > 0.0f ? (double)y : 0.0) - (double)y * target + log1p(e);
    }
    if (l.function == FEDGE_COHORT_L1) {
        *slope = sign;
        return size;
    }
    if (l.function == FEDGE_COHORT_MSE) {
        *slope = 2.0 * d;
        return d * d;
    }
    if (l.function == FEDGE_COHORT_SMOOTH_L1) {
        *slope = size < delta ? d / delta : sign;
        return size < delta ? 0.5 * d * d / delta : size - 0.5 * delta;
    }
    *slope = size <= delta ? d : sign * delta;
    return size <= delta ? 0.5 * d * d : delta * (size - 0.5 * delta);
}

/* The mean loss over the outputs. The label is the target of a single output, or the index of the
 * output whose target is 1. */
static __device__ double mean_loss(const fedge_cohort_loss &l, const float *row, int32_t label,
                                   uint32_t count, float *dy, bool *is_correct)
{
    const bool logits = l.function == FEDGE_COHORT_BCE_WITH_LOGITS;
    const double scale = logits ? (double)(1.0f / ((float)count * (float)l.classes))
                                : 1.0 / ((double)count * (double)l.classes);
    double sum = 0.0;
    *is_correct = logits;
    for (uint32_t o = 0; o < l.classes; o++) {
        const double target = l.classes == 1         ? (double)(float)label
                              : (uint32_t)label == o ? 1.0
                                                     : 0.0;
        double slope;
        *is_correct = *is_correct && (row[o] > 0.0f) == (target > 0.5);
        sum += output_loss(l, row[o], target, &slope);
        if (dy)
            dy[o] = (float)(slope * scale);
    }
    return sum / (double)l.classes;
}

static __device__ double example_loss(const fedge_cohort_loss &l, const float *row, int32_t label,
                                      uint32_t count, float *dy, int32_t *predicted,
                                      bool *is_correct)
{
    uint32_t best = 0;
    for (uint32_t c = 1; c < l.classes; c++)
        best = row[c] > row[best] ? c : best;
    *predicted = l.classes == 1 ? row[0] > 0.0f : (int32_t)best;
    if (l.function != FEDGE_COHORT_CROSS_ENTROPY)
        return mean_loss(l, row, label, count, dy, is_correct);
    *is_correct = best == (uint32_t)label;
    return cross_entropy(l, row, (uint32_t)label, count, dy, best);
}

/* One block for each slot; its first thread adds the losses in the order of the examples. */
static __global__ void __launch_bounds__(LOSS_THREADS)
    sum_losses(fedge_cohort_loss l, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    __shared__ double losses[LOSS_THREADS];
    const uint32_t s = blockIdx.z;
    const fedge_cohort_slot_step slot_step = slot_steps[s];
    const int32_t *labels = (slot_step.data ? l.sets[1] : l.sets[0]).labels;
    double loss = 0.0;
    uint32_t correct = 0;
    for (uint32_t first = 0; first < slot_step.count; first += LOSS_THREADS) {
        const uint32_t b = first + threadIdx.x, left = slot_step.count - first;
        bool is_correct = false;
        if (b < slot_step.count) {
            const size_t at = (size_t)s * batch + b;
            int32_t prediction = 0;
            losses[threadIdx.x] =
                example_loss(l, l.y + at * l.classes, labels[l.indices[at]], slot_step.count,
                             l.dy ? l.dy + at * l.classes : nullptr, &prediction, &is_correct);
            l.predicted[at] = prediction;
        }
        correct += (uint32_t)__syncthreads_count(is_correct);
        for (uint32_t i = 0; threadIdx.x == 0 && i < left && i < LOSS_THREADS; i++)
            loss += losses[i];
        __syncthreads();
    }
    if (threadIdx.x == 0 && slot_step.count > 0) {
        fedge_cohort_tally *tally = &l.tallies[s];
        tally->loss_sum += loss;
        tally->correct += correct;
        if (!isfinite(loss) && tally->bad_step == 0) {
            tally->bad_loss = loss;
            tally->bad_step = slot_step.step;
            tally->bad_count = slot_step.count;
        }
    }
}

cudaError_t fedge_cohort_launch_loss(const fedge_cohort_shape *shape, const fedge_cohort_loss *args)
{
    cudaLaunchConfig_t config = value_grid(shape, 1);
    config.blockDim = dim3(LOSS_THREADS);
    return cudaLaunchKernelEx(&config, sum_losses, *args, shape->slot_steps, shape->batch);
}
