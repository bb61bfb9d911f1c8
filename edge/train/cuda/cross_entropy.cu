#include "edge/train/cuda/tile.cuh"

enum { LOSS_THREADS = 128 };

static __device__ __forceinline__ double mean(const float *row, uint32_t n)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)row[i];
    return sum / n;
}

/* One example by one thread, in the order of edge/train/losses/cross_entropy.c.
 */
static __device__ double example_loss(const fedge_cohort_loss &l, const float *row, uint32_t label,
                                      uint32_t count, float *dy, int32_t *predicted)
{
    uint32_t best = 0;
    for (uint32_t c = 1; c < l.classes; c++)
        best = row[c] > row[best] ? c : best;
    const float peak = row[best];
    double sum = 0.0, target = (double)row[label];
    for (uint32_t c = 0; c < l.classes; c++)
        sum += (double)expf(row[c] - peak);
    if (l.smoothing > 0.0f)
        target += (double)l.smoothing * (mean(row, l.classes) - target);
    *predicted = (int32_t)best;
    if (dy) {
        const float scale = (float)(1.0 / (sum * (double)count));
        const float other = l.smoothing / ((float)l.classes * (float)count);
        for (uint32_t c = 0; c < l.classes; c++)
            dy[c] = expf(row[c] - peak) * scale - other;
        dy[label] -= (1.0f - l.smoothing) / (float)count;
    }
    return log(sum) + (double)peak - target;
}

/* A block for each slot; its first thread adds the examples' losses in their
 * order. */
static __global__ void __launch_bounds__(LOSS_THREADS)
    cross_entropy(fedge_cohort_loss l, const fedge_cohort_turn *turns, uint32_t batch)
{
    __shared__ double losses[LOSS_THREADS];
    const uint32_t s = blockIdx.z;
    const fedge_cohort_turn turn = turns[s];
    const int32_t *labels = (turn.data ? l.sets[1] : l.sets[0]).labels;
    double loss = 0.0;
    uint32_t correct = 0;
    for (uint32_t first = 0; first < turn.count; first += LOSS_THREADS) {
        const uint32_t b = first + threadIdx.x, left = turn.count - first;
        bool right = false;
        if (b < turn.count) {
            const size_t at = (size_t)s * batch + b;
            const uint32_t label = (uint32_t)labels[l.indices[at]];
            int32_t taken = 0;
            losses[threadIdx.x] = example_loss(l, l.y + at * l.classes, label, turn.count,
                                               l.dy ? l.dy + at * l.classes : nullptr, &taken);
            l.predicted[at] = taken;
            right = (uint32_t)taken == label;
        }
        correct += (uint32_t)__syncthreads_count(right);
        for (uint32_t i = 0; threadIdx.x == 0 && i < left && i < LOSS_THREADS; i++)
            loss += losses[i];
        __syncthreads();
    }
    if (threadIdx.x == 0 && turn.count > 0) {
        fedge_cohort_tally *tally = &l.tallies[s];
        tally->loss_sum += loss;
        tally->correct += correct;
        if (!isfinite(loss) && tally->bad_step == 0) {
            tally->bad_loss = loss;
            tally->bad_step = turn.step;
            tally->bad_count = turn.count;
        }
    }
}

cudaError_t fedge_cohort_launch_cross_entropy(const fedge_cohort_shape *shape,
                                              const fedge_cohort_loss *args)
{
    cudaLaunchConfig_t config = value_grid(shape, 1);
    config.blockDim = dim3(LOSS_THREADS);
    return cudaLaunchKernelEx(&config, cross_entropy, *args, shape->turns, shape->batch);
}
