/* Convolutions as products of matrices that are never made: the operands read
 * the images where they lie (implicit GEMM). */
#include "edge/train/cuda/sums.cuh"
#include "edge/train/cuda/tile.cuh"

typedef fedge_cohort_conv2d conv;

static __device__ __forceinline__ uint32_t window_of(const conv &c)
{
    return c.kernel[0] * c.kernel[1];
}

static __device__ __forceinline__ uint32_t plane_of(const uint32_t size[2])
{
    return size[0] * size[1];
}

/* Where in the input the window's place [k] is for the output at [y], [x];
 * false: in the padding.
 */
static __device__ __forceinline__ bool input_of(const conv &c, uint32_t y, uint32_t x, uint32_t k,
                                                uint32_t *at)
{
    const uint32_t ky = k / c.kernel[1], kx = k % c.kernel[1];
    const uint32_t row = y * c.stride[0] + ky * c.dilation[0] - c.padding[0]; /* wraps below 0 */
    const uint32_t column = x * c.stride[1] + kx * c.dilation[1] - c.padding[1];
    *at = row * c.in_size[1] + column;
    return row < c.in_size[0] && column < c.in_size[1];
}

/* What the windows of the outputs (example, y, x) see: column n is an output, k
 * a channel's place in its window. */
struct windows {
    static const bool K_FIRST = false;
    struct place {
        const float *image;
        uint32_t y, x;
    };
    const conv &c;
    const float *x;
    uint32_t count;
    __device__ __forceinline__ uint32_t size() const
    {
        return count * plane_of(c.out_size);
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return c.tensors.in * window_of(c);
    }
    __device__ __forceinline__ place at(uint32_t n) const
    {
        const uint32_t b = n / plane_of(c.out_size), p = n % plane_of(c.out_size);
        return {x + (size_t)b * c.tensors.in * plane_of(c.in_size), p / c.out_size[1],
                p % c.out_size[1]};
    }
    __device__ __forceinline__ float get(const place &n, uint32_t k) const
    {
        const uint32_t channel = k / window_of(c);
        uint32_t at = 0;
        return input_of(c, n.y, n.x, k % window_of(c), &at)
                   ? n.image[(size_t)channel * plane_of(c.in_size) + at]
                   : 0.0f;
    }
};

/* The same for the weight's gradient: row n is a channel's place in the window,
 * k an output. */
struct window_places {
    static const bool K_FIRST = true;
    struct place {
        const float *channel;
        uint32_t window;
    };
    const conv &c;
    const float *x;
    uint32_t count;
    __device__ __forceinline__ uint32_t size() const
    {
        return c.tensors.in * window_of(c);
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return count * plane_of(c.out_size);
    }
    __device__ __forceinline__ place at(uint32_t n) const
    {
        return {x + (size_t)(n / window_of(c)) * plane_of(c.in_size), n % window_of(c)};
    }
    __device__ __forceinline__ float get(const place &n, uint32_t k) const
    {
        const uint32_t b = k / plane_of(c.out_size), p = k % plane_of(c.out_size);
        uint32_t at = 0;
        return input_of(c, p / c.out_size[1], p % c.out_size[1], n.window, &at)
                   ? n.channel[(size_t)b * c.tensors.in * plane_of(c.in_size) + at]
                   : 0.0f;
    }
};

/* dy with an output channel for each row, and k the outputs (example, y, x). */
struct output_rows {
    static const bool K_FIRST = true;
    typedef const float *place;
    const conv &c;
    const float *dy;
    uint32_t count;
    __device__ __forceinline__ uint32_t size() const
    {
        return c.tensors.out;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return count * plane_of(c.out_size);
    }
    __device__ __forceinline__ place at(uint32_t m) const
    {
        return dy + (size_t)m * plane_of(c.out_size);
    }
    __device__ __forceinline__ float get(place row, uint32_t k) const
    {
        const uint32_t b = k / plane_of(c.out_size), p = k % plane_of(c.out_size);
        return row[(size_t)b * c.tensors.out * plane_of(c.out_size) + p];
    }
};

/* The weight with an input channel for each row, and k (output channel, place
 * in the window). */
struct weights_of_inputs {
    static const bool K_FIRST = true;
    typedef const float *place;
    const conv &c;
    const float *weight;
    __device__ __forceinline__ uint32_t size() const
    {
        return c.tensors.in;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return c.tensors.out * window_of(c);
    }
    __device__ __forceinline__ place at(uint32_t m) const
    {
        return weight + (size_t)m * window_of(c);
    }
    __device__ __forceinline__ float get(place row, uint32_t k) const
    {
        const uint32_t o = k / window_of(c);
        return row[(size_t)o * c.tensors.in * window_of(c) + k % window_of(c)];
    }
};

/* What the inputs (example, y, x) have a part in: column n is an input, k
 * (output channel, place in the window). */
struct outputs_of_inputs {
    static const bool K_FIRST = false;
    struct place {
        const float *image;
        uint32_t y, x;
    };
    const conv &c;
    const float *dy;
    uint32_t count;
    __device__ __forceinline__ uint32_t size() const
    {
        return count * plane_of(c.in_size);
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return c.tensors.out * window_of(c);
    }
    __device__ __forceinline__ place at(uint32_t n) const
    {
        const uint32_t b = n / plane_of(c.in_size), p = n % plane_of(c.in_size);
        return {dy + (size_t)b * c.tensors.out * plane_of(c.out_size), p / c.in_size[1],
                p % c.in_size[1]};
    }
    __device__ __forceinline__ float get(const place &n, uint32_t k) const
    {
        const uint32_t o = k / window_of(c), w = k % window_of(c);
        const uint32_t y = n.y + c.padding[0] - w / c.kernel[1] * c.dilation[0]; /* wraps */
        const uint32_t x = n.x + c.padding[1] - w % c.kernel[1] * c.dilation[1];
        const uint32_t row = y / c.stride[0], column = x / c.stride[1];
        return row < c.out_size[0] && column < c.out_size[1] && row * c.stride[0] == y &&
                       column * c.stride[1] == x
                   ? n.image[(size_t)o * plane_of(c.out_size) + row * c.out_size[1] + column]
                   : 0.0f;
    }
};

template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_forward(conv c, const fedge_cohort_turn *turns, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, count = turns[s].count, plane = plane_of(c.out_size);
    const tile_place tile = place_of_tile(batch * plane, 4 * TILE_SIDE);
    const uint32_t first = tile.right * 4 * TILE_SIDE;
    if (first >= count * plane)
        return;
    const uint32_t deep = t.in * window_of(c);
    const tile_rows a = {t.weight.values + s * t.weight.stride, deep, t.out, deep};
    const windows b = {c, t.x + (size_t)s * batch * t.in * plane_of(c.in_size), count};
    const float *bias = t.bias.values ? t.bias.values + s * t.bias.stride : nullptr;
    float *y = t.y + (size_t)s * batch * t.out * plane;
    const uint32_t out = t.out, relu = t.relu;
    multiply_tile<ROWS, 4>(a, b, tile.down * ROWS * TILE_SIDE, first, t.dropped,
                           [=](uint32_t m, uint32_t n, float sum) {
                               y[((size_t)(n / plane) * out + m) * plane + n % plane] =
                                   activated(bias ? sum + bias[m] : sum, relu);
                           });
}

template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_dx(conv c, const fedge_cohort_turn *turns, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, count = turns[s].count, plane = plane_of(c.in_size), in = t.in;
    const tile_place tile = place_of_tile(batch * plane, 4 * TILE_SIDE);
    const uint32_t first = tile.right * 4 * TILE_SIDE;
    if (first >= count * plane)
        return;
    const weights_of_inputs a = {c, t.weight.values + s * t.weight.stride};
    const outputs_of_inputs b = {c, t.dy + (size_t)s * batch * t.out * plane_of(c.out_size), count};
    float *dx = t.dx + (size_t)s * batch * t.in * plane;
    multiply_tile<ROWS, 4>(a, b, tile.down * ROWS * TILE_SIDE, first, t.dropped,
                           [=](uint32_t m, uint32_t n, float sum) {
                               dx[((size_t)(n / plane) * in + m) * plane + n % plane] = sum;
                           });
}

/* The sum of dy over examples and places, by a warp: 32 sums, then a tree. */
static __device__ __forceinline__ float sum_of_channel(const output_rows &dy, uint32_t channel)
{
    const output_rows::place row = dy.at(channel);
    float sum = 0.0f;
    for (uint32_t k = threadIdx.x % 32; k < dy.depth(); k += 32)
        sum += dy.get(row, k);
    return sum_of_warp(sum);
}

/* The blocks of the first columns make the bias's gradient. */
template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_dweight(conv c, const fedge_cohort_turn *turns, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, count = turns[s].count, deep = t.in * window_of(c);
    const tile_place tile = place_of_tile(deep, 4 * TILE_SIDE);
    const uint32_t first = tile.down * ROWS * TILE_SIDE;
    if (count == 0)
        return;
    const output_rows a = {c, t.dy + (size_t)s * batch * t.out * plane_of(c.out_size), count};
    const window_places b = {c, t.x + (size_t)s * batch * t.in * plane_of(c.in_size), count};
    float *dweight = t.dweight + s * t.gradient_stride;
    multiply_tile<ROWS, 4>(
        a, b, first, tile.right * 4 * TILE_SIDE, t.dropped,
        [=](uint32_t m, uint32_t n, float sum) { dweight[(size_t)m * deep + n] = sum; });
    const uint32_t last = first + ROWS * TILE_SIDE < t.out ? first + ROWS * TILE_SIDE : t.out;
    if (t.dbias && tile.right == 0) {
        for (uint32_t o = first + threadIdx.x / 32; o < last; o += TILE_THREADS / 32) {
            const float sum = sum_of_channel(a, o);
            if (threadIdx.x % 32 == 0)
                t.dbias[s * t.gradient_stride + o] = sum;
        }
    }
}

static uint32_t pixels(const fedge_cohort_shape *shape, const uint32_t size[2])
{
    return shape->batch * size[0] * size[1];
}

cudaError_t fedge_cohort_launch_conv2d(const fedge_cohort_shape *shape,
                                       const fedge_cohort_conv2d *args)
{
    const bool small = args->tensors.out <= TILE_SIDE;
    const cudaLaunchConfig_t config =
        tile_grid(shape, args->tensors.out, (small ? 1 : 4) * TILE_SIDE,
                  pixels(shape, args->out_size), 4 * TILE_SIDE);
    return small
               ? cudaLaunchKernelEx(&config, conv2d_forward<1>, *args, shape->turns, shape->batch)
               : cudaLaunchKernelEx(&config, conv2d_forward<4>, *args, shape->turns, shape->batch);
}

static cudaError_t launch_dweight(const fedge_cohort_shape *shape, const fedge_cohort_conv2d *args)
{
    const bool small = args->tensors.out <= TILE_SIDE;
    const cudaLaunchConfig_t config =
        tile_grid(shape, args->tensors.out, (small ? 1 : 4) * TILE_SIDE,
                  args->tensors.in * args->kernel[0] * args->kernel[1], 4 * TILE_SIDE);
    return small
               ? cudaLaunchKernelEx(&config, conv2d_dweight<1>, *args, shape->turns, shape->batch)
               : cudaLaunchKernelEx(&config, conv2d_dweight<4>, *args, shape->turns, shape->batch);
}

cudaError_t fedge_cohort_launch_conv2d_backward(const fedge_cohort_shape *shape,
                                                const fedge_cohort_conv2d *args)
{
    const cudaError_t error = args->tensors.dweight ? launch_dweight(shape, args) : cudaSuccess;
    if (error != cudaSuccess || !args->tensors.dx)
        return error;
    const bool small = args->tensors.in <= TILE_SIDE;
    const cudaLaunchConfig_t config =
        tile_grid(shape, args->tensors.in, (small ? 1 : 4) * TILE_SIDE,
                  pixels(shape, args->in_size), 4 * TILE_SIDE);
    return small ? cudaLaunchKernelEx(&config, conv2d_dx<1>, *args, shape->turns, shape->batch)
                 : cudaLaunchKernelEx(&config, conv2d_dx<4>, *args, shape->turns, shape->batch);
}
