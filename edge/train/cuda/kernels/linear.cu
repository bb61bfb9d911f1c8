#include "edge/train/cuda/kernels/tile.cuh"

enum { SMALL = TILE_SIDE, LARGE = 4 * TILE_SIDE };

static __device__ __forceinline__ void put(float *to, float sum, float factor, uint32_t adds,
                                           uint32_t relu)
{
    const float value = factor == 0.0f ? sum : factor * sum;
    *to = activated(adds ? *to + value : value, relu);
}

/* y(b, o) = Σ x(b, i) W(o, i) + bias(o). */
template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    linear_forward(fedge_cohort_linear t, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, count = slot_steps[s].count * t.steps;
    const tile_index tile = find_tile(t.out, LARGE);
    const uint32_t first = tile.row * ROWS * TILE_SIDE;
    if (first >= count)
        return;
    const tile_rows a = {t.x + (size_t)s * batch * t.steps * t.in, t.in, count, t.in};
    const tile_rows b = {t.weight.values + s * t.weight.stride, t.in, t.out, t.in};
    const float *bias = t.bias.values ? t.bias.values + s * t.bias.stride : nullptr;
    float *y = t.y + (size_t)s * batch * t.steps * t.out;
    multiply_tile<ROWS, 4>(a, b, first, tile.column * LARGE, t.dropped,
                           [=](uint32_t m, uint32_t n, float sum) {
                               put(&y[(size_t)m * t.out + n], bias ? sum + bias[n] : sum,
                                   t.y_factor, t.y_adds, t.relu);
                           });
}

/* dx(b, i) = Σ dy(b, o) W(o, i). */
template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    linear_dx(fedge_cohort_linear t, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, count = slot_steps[s].count * t.steps;
    const tile_index tile = find_tile(t.in, LARGE);
    const uint32_t first = tile.row * ROWS * TILE_SIDE;
    if (first >= count)
        return;
    const tile_rows a = {t.dy + (size_t)s * batch * t.steps * t.out, t.out, count, t.out};
    const tile_columns b = {t.weight.values + s * t.weight.stride, t.in, t.in, t.out};
    float *dx = t.dx + (size_t)s * batch * t.steps * t.in;
    multiply_tile<ROWS, 4>(a, b, first, tile.column * LARGE, t.dropped,
                           [=](uint32_t m, uint32_t n, float sum) {
                               put(&dx[(size_t)m * t.in + n], sum, t.dx_factor, t.dx_adds, 0);
                           });
}

/* dW(o, i) = Σ dy(b, o) x(b, i). Blocks of the first column of tiles also compute the bias's
 * gradient. */
static __global__ void __launch_bounds__(TILE_THREADS)
    linear_dweight(fedge_cohort_linear t, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const uint32_t s = blockIdx.z, count = slot_steps[s].count * t.steps;
    const tile_index tile = find_tile(t.in, LARGE);
    const uint32_t first = tile.row * LARGE;
    if (count == 0)
        return;
    const float *dy = t.dy + (size_t)s * batch * t.steps * t.out;
    const tile_columns a = {dy, t.out, t.out, count};
    const tile_columns b = {t.x + (size_t)s * batch * t.steps * t.in, t.in, t.in, count};
    float *dweight = t.dweight + s * t.gradient_stride;
    multiply_tile<4, 4>(
        a, b, first, tile.column * LARGE, t.dropped,
        [=](uint32_t m, uint32_t n, float sum) { dweight[(size_t)m * t.in + n] = sum; });
    const uint32_t o = first + threadIdx.x;
    if (t.dbias && tile.column == 0 && threadIdx.x < LARGE && o < t.out) {
        float sum = 0.0f;
        for (uint32_t b = 0; b < count; b++)
            sum += dy[(size_t)b * t.out + o];
        t.dbias[s * t.gradient_stride + o] = sum;
    }
}

cudaError_t fedge_cohort_launch_linear(const fedge_cohort_shape *shape,
                                       const fedge_cohort_linear *args)
{
    const uint32_t rows = shape->batch * args->steps;
    const bool small = rows <= SMALL;
    const cudaLaunchConfig_t config =
        tile_grid(shape, rows, small ? SMALL : LARGE, args->out, LARGE);
    return small ? cudaLaunchKernelEx(&config, linear_forward<1>, *args, shape->slot_steps,
                                      shape->batch)
                 : cudaLaunchKernelEx(&config, linear_forward<4>, *args, shape->slot_steps,
                                      shape->batch);
}

cudaError_t fedge_cohort_launch_linear_backward(const fedge_cohort_shape *shape,
                                                const fedge_cohort_linear *args)
{
    const uint32_t rows = shape->batch * args->steps;
    const bool small = rows <= SMALL;
    const cudaLaunchConfig_t weights = tile_grid(shape, args->out, LARGE, args->in, LARGE);
    const cudaError_t error = args->dweight ? cudaLaunchKernelEx(&weights, linear_dweight, *args,
                                                                 shape->slot_steps, shape->batch)
                                            : cudaSuccess;
    if (error != cudaSuccess || !args->dx)
        return error;
    const cudaLaunchConfig_t config =
        tile_grid(shape, rows, small ? SMALL : LARGE, args->in, LARGE);
    return small
               ? cudaLaunchKernelEx(&config, linear_dx<1>, *args, shape->slot_steps, shape->batch)
               : cudaLaunchKernelEx(&config, linear_dx<4>, *args, shape->slot_steps, shape->batch);
}
