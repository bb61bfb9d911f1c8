/* Convolutions as products of matrices that are never made: the operands read
 * the images where they lie (implicit GEMM). */
#include "edge/train/cuda/kernels/device.cuh"
#include "edge/train/cuda/kernels/shared.h"
#include "edge/train/cuda/kernels/tile.cuh"

/* What is asked for, and what places are divided by: sizes of the window and its rows, of planes
 * and theirs, and strides. */
struct conv : fedge_cohort_conv2d {
    fedge_divisor window, window_row, out_plane, out_row, in_plane, in_row, down, right;
};

static conv conv_of(const fedge_cohort_conv2d *args)
{
    return {*args,
            fedge_divisor_of(args->kernel[0] * args->kernel[1]),
            fedge_divisor_of(args->kernel[1]),
            fedge_divisor_of(args->out_size[0] * args->out_size[1]),
            fedge_divisor_of(args->out_size[1]),
            fedge_divisor_of(args->in_size[0] * args->in_size[1]),
            fedge_divisor_of(args->in_size[1]),
            fedge_divisor_of(args->stride[0]),
            fedge_divisor_of(args->stride[1])};
}

/* Where a window begins in the input, or how far from there one of its places is. */
struct pixel_offset {
    uint32_t row, column;
};

/* Of the output [p]; wraps below 0. */
static __device__ __forceinline__ pixel_offset origin_of(const conv &c, uint32_t p)
{
    const fedge_divided at = fedge_divide(p, c.out_row);
    return {at.quotient * c.stride[0] - c.padding[0], at.rest * c.stride[1] - c.padding[1]};
}

static __device__ __forceinline__ pixel_offset tap_offset_of(const conv &c, uint32_t window)
{
    const fedge_divided at = fedge_divide(window, c.window_row);
    return {at.quotient * c.dilation[0], at.rest * c.dilation[1]};
}

/* What a window sees of a channel; 0 in the padding. */
static __device__ __forceinline__ float seen_of(const conv &c, const float *channel,
                                                const pixel_offset &origin,
                                                const pixel_offset &tap_offset)
{
    const uint32_t row = origin.row + tap_offset.row, column = origin.column + tap_offset.column;
    return row < c.in_size[0] && column < c.in_size[1] ? channel[row * c.in_size[1] + column]
                                                       : 0.0f;
}

/* What the windows of the outputs (example, y, x) see: column n is an output, k
 * a channel's place in its window. */
struct windows {
    static const bool K_FIRST = false;
    struct place {
        const float *image;
        pixel_offset origin;
    };
    struct step {
        size_t channel;
        pixel_offset tap_offset;
    };
    const conv &c;
    const float *x;
    uint32_t count;
    __device__ __forceinline__ uint32_t size() const
    {
        return count * c.out_plane.by;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return c.tensors.in * c.window.by;
    }
    __device__ __forceinline__ place at(uint32_t n) const
    {
        const fedge_divided b = fedge_divide(n, c.out_plane);
        return {x + (size_t)b.quotient * c.tensors.in * c.in_plane.by, origin_of(c, b.rest)};
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        const fedge_divided channel = fedge_divide(k, c.window);
        return {(size_t)channel.quotient * c.in_plane.by, tap_offset_of(c, channel.rest)};
    }
    __device__ __forceinline__ float get(const place &n, const step &k) const
    {
        return seen_of(c, n.image + k.channel, n.origin, k.tap_offset);
    }
};

/* The same for the weight's gradient: row n is a channel's place in the window,
 * k an output. */
struct window_places {
    static const bool K_FIRST = true;
    struct place {
        const float *channel;
        pixel_offset tap_offset;
    };
    struct step {
        size_t image;
        pixel_offset origin;
    };
    const conv &c;
    const float *x;
    uint32_t count;
    __device__ __forceinline__ uint32_t size() const
    {
        return c.tensors.in * c.window.by;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return count * c.out_plane.by;
    }
    __device__ __forceinline__ place at(uint32_t n) const
    {
        const fedge_divided channel = fedge_divide(n, c.window);
        return {x + (size_t)channel.quotient * c.in_plane.by, tap_offset_of(c, channel.rest)};
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        const fedge_divided b = fedge_divide(k, c.out_plane);
        return {(size_t)b.quotient * c.tensors.in * c.in_plane.by, origin_of(c, b.rest)};
    }
    __device__ __forceinline__ float get(const place &n, const step &k) const
    {
        return seen_of(c, n.channel + k.image, k.origin, n.tap_offset);
    }
};

/* Planes (outer, row, plane), read with k (outer, place in the plane): dy by its output channels, k
 * the outputs (example, y, x); and the weight by its input channels, k (output channel, place in
 * the window). */
struct plane_rows {
    static const bool K_FIRST = true;
    typedef const float *place;
    typedef size_t step;
    const float *from;
    fedge_divisor plane;
    uint32_t many, outer;
    __device__ __forceinline__ uint32_t size() const
    {
        return many;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return outer * plane.by;
    }
    __device__ __forceinline__ place at(uint32_t m) const
    {
        return from + (size_t)m * plane.by;
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        const fedge_divided at = fedge_divide(k, plane);
        return (size_t)at.quotient * many * plane.by + at.rest;
    }
    __device__ __forceinline__ float get(place row, step k) const
    {
        return row[k];
    }
};

/* What the inputs (example, y, x) have a part in: column n is an input, k
 * (output channel, place in the window). An input is so many outputs and a rest from the window's
 * first place, and that place from another: with equal rests there is an output. */
struct outputs_of_inputs {
    static const bool K_FIRST = false;
    struct place {
        const float *image;
        fedge_divided y, x;
    };
    struct step {
        size_t plane;
        fedge_divided y, x;
    };
    const conv &c;
    const float *dy;
    uint32_t count;
    __device__ __forceinline__ uint32_t size() const
    {
        return count * c.in_plane.by;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return c.tensors.out * c.window.by;
    }
    __device__ __forceinline__ place at(uint32_t n) const
    {
        const fedge_divided b = fedge_divide(n, c.in_plane), p = fedge_divide(b.rest, c.in_row);
        return {dy + (size_t)b.quotient * c.tensors.out * c.out_plane.by,
                fedge_divide(p.quotient + c.padding[0], c.down),
                fedge_divide(p.rest + c.padding[1], c.right)};
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        const fedge_divided o = fedge_divide(k, c.window);
        const pixel_offset tap_offset = tap_offset_of(c, o.rest);
        return {(size_t)o.quotient * c.out_plane.by, fedge_divide(tap_offset.row, c.down),
                fedge_divide(tap_offset.column, c.right)};
    }
    __device__ __forceinline__ float get(const place &n, const step &k) const
    {
        const uint32_t row = n.y.quotient - k.y.quotient; /* wraps below 0 */
        const uint32_t column = n.x.quotient - k.x.quotient;
        return row < c.out_size[0] && column < c.out_size[1] && n.y.rest == k.y.rest &&
                       n.x.rest == k.x.rest
                   ? n.image[k.plane + row * c.out_size[1] + column]
                   : 0.0f;
    }
};

template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_forward(conv c, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, count = slot_steps[s].count, deep = t.in * c.window.by;
    const fedge_divisor plane = c.out_plane;
    const tile_place tile = place_of_tile(batch * plane.by, 4 * TILE_SIDE);
    const uint32_t first = tile.right * 4 * TILE_SIDE;
    if (first >= count * plane.by)
        return;
    const tile_rows a = {t.weight.values + s * t.weight.stride, deep, t.out, deep};
    const windows b = {c, t.x + (size_t)s * batch * t.in * c.in_plane.by, count};
    const float *bias = t.bias.values ? t.bias.values + s * t.bias.stride : nullptr;
    float *y = t.y + (size_t)s * batch * t.out * plane.by;
    const uint32_t out = t.out, relu = t.relu;
    multiply_tile<ROWS, 4>(a, b, tile.down * ROWS * TILE_SIDE, first, t.dropped,
                           [=](uint32_t m, uint32_t n, float sum) {
                               const fedge_divided at = fedge_divide(n, plane);
                               y[((size_t)at.quotient * out + m) * plane.by + at.rest] =
                                   activated(bias ? sum + bias[m] : sum, relu);
                           });
}

template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_dx(conv c, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, count = slot_steps[s].count, in = t.in;
    const fedge_divisor plane = c.in_plane;
    const tile_place tile = place_of_tile(batch * plane.by, 4 * TILE_SIDE);
    const uint32_t first = tile.right * 4 * TILE_SIDE;
    if (first >= count * plane.by)
        return;
    const plane_rows a = {t.weight.values + s * t.weight.stride, c.window, in, t.out};
    const outputs_of_inputs b = {c, t.dy + (size_t)s * batch * t.out * c.out_plane.by, count};
    float *dx = t.dx + (size_t)s * batch * t.in * plane.by;
    multiply_tile<ROWS, 4>(a, b, tile.down * ROWS * TILE_SIDE, first, t.dropped,
                           [=](uint32_t m, uint32_t n, float sum) {
                               const fedge_divided at = fedge_divide(n, plane);
                               dx[((size_t)at.quotient * in + m) * plane.by + at.rest] = sum;
                           });
}

/* The sum of dy over examples and places, by a warp: 32 sums, then a tree. */
static __device__ __forceinline__ float sum_of_channel(const plane_rows &dy, uint32_t channel)
{
    const plane_rows::place row = dy.at(channel);
    float sum = 0.0f;
    for (uint32_t k = threadIdx.x % 32; k < dy.depth(); k += 32)
        sum += dy.get(row, dy.along(k));
    return sum_of_warp(sum);
}

/* The blocks of the first columns make the bias's gradient. */
template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_dweight(conv c, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, count = slot_steps[s].count, deep = t.in * c.window.by;
    const tile_place tile = place_of_tile(deep, 4 * TILE_SIDE);
    const uint32_t first = tile.down * ROWS * TILE_SIDE;
    if (count == 0)
        return;
    const plane_rows a = {t.dy + (size_t)s * batch * t.out * c.out_plane.by, c.out_plane, t.out,
                          count};
    const window_places b = {c, t.x + (size_t)s * batch * t.in * c.in_plane.by, count};
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
    return small ? cudaLaunchKernelEx(&config, conv2d_forward<1>, conv_of(args), shape->slot_steps,
                                      shape->batch)
                 : cudaLaunchKernelEx(&config, conv2d_forward<4>, conv_of(args), shape->slot_steps,
                                      shape->batch);
}

static cudaError_t launch_dweight(const fedge_cohort_shape *shape, const fedge_cohort_conv2d *args)
{
    const bool small = args->tensors.out <= TILE_SIDE;
    const cudaLaunchConfig_t config =
        tile_grid(shape, args->tensors.out, (small ? 1 : 4) * TILE_SIDE,
                  args->tensors.in * args->kernel[0] * args->kernel[1], 4 * TILE_SIDE);
    return small ? cudaLaunchKernelEx(&config, conv2d_dweight<1>, conv_of(args), shape->slot_steps,
                                      shape->batch)
                 : cudaLaunchKernelEx(&config, conv2d_dweight<4>, conv_of(args), shape->slot_steps,
                                      shape->batch);
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
    return small ? cudaLaunchKernelEx(&config, conv2d_dx<1>, conv_of(args), shape->slot_steps,
                                      shape->batch)
                 : cudaLaunchKernelEx(&config, conv2d_dx<4>, conv_of(args), shape->slot_steps,
                                      shape->batch);
}
