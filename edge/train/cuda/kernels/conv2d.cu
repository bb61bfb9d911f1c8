/* Convolutions as products of matrices that are never stored (implicit GEMM): the operands read the
 * images in place. */
#include "edge/train/cuda/kernels/device.cuh"
#include "edge/train/cuda/kernels/shared.h"
#include "edge/train/cuda/kernels/tile.cuh"

/* The arguments, and divisors for indices: sizes of the window and of planes and their rows, and
 * strides. */
struct conv : fedge_cohort_conv2d {
    fedge_divisor window, window_row, out_plane, out_row, in_plane, in_row, stride_h, stride_w;
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

/* The origin of a window in the input, or the offset of a tap from it. */
struct pixel_offset {
    uint32_t row, column;
};

/* The origin of output [p]'s window; wraps below 0. */
static __device__ __forceinline__ pixel_offset origin_of(const conv &c, uint32_t p)
{
    const fedge_divided at = fedge_divide(p, c.out_row);
    return {at.quotient * c.stride[0] - c.padding[0], at.remainder * c.stride[1] - c.padding[1]};
}

static __device__ __forceinline__ pixel_offset tap_offset_of(const conv &c, uint32_t window)
{
    const fedge_divided at = fedge_divide(window, c.window_row);
    return {at.quotient * c.dilation[0], at.remainder * c.dilation[1]};
}

/* The value under a tap of a window; 0 in the padding. */
static __device__ __forceinline__ float value_at(const conv &c, const float *channel,
                                                 const pixel_offset &origin,
                                                 const pixel_offset &tap_offset)
{
    const uint32_t row = origin.row + tap_offset.row, column = origin.column + tap_offset.column;
    return row < c.in_size[0] && column < c.in_size[1] ? channel[row * c.in_size[1] + column]
                                                       : 0.0f;
}

/* The inputs under the windows: column n is an output (b, oh, ow), and k is (c, kh, kw). */
struct windows {
    static const bool K_FIRST = false;
    struct line {
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
    __device__ __forceinline__ line at(uint32_t n) const
    {
        const fedge_divided b = fedge_divide(n, c.out_plane);
        return {x + (size_t)b.quotient * c.tensors.in * c.in_plane.by, origin_of(c, b.remainder)};
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        const fedge_divided channel = fedge_divide(k, c.window);
        return {(size_t)channel.quotient * c.in_plane.by, tap_offset_of(c, channel.remainder)};
    }
    __device__ __forceinline__ float get(const line &n, const step &k) const
    {
        return value_at(c, n.image + k.channel, n.origin, k.tap_offset);
    }
};

/* The same for the weight's gradient: row n is (c, kh, kw), and k is an output (b, oh, ow). */
struct window_taps {
    static const bool K_FIRST = true;
    struct line {
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
    __device__ __forceinline__ line at(uint32_t n) const
    {
        const fedge_divided channel = fedge_divide(n, c.window);
        return {x + (size_t)channel.quotient * c.in_plane.by, tap_offset_of(c, channel.remainder)};
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        const fedge_divided b = fedge_divide(k, c.out_plane);
        return {(size_t)b.quotient * c.tensors.in * c.in_plane.by, origin_of(c, b.remainder)};
    }
    __device__ __forceinline__ float get(const line &n, const step &k) const
    {
        return value_at(c, n.channel + k.image, k.origin, n.tap_offset);
    }
};

/* An array (outer, num_lines, plane) with rows of num_lines and k (outer, plane): dy with a row for
 * each oc and k (b, oh, ow), or the weight with a row for each c and k (oc, kh, kw). */
struct plane_rows {
    static const bool K_FIRST = true;
    typedef const float *line;
    typedef size_t step;
    const float *from;
    fedge_divisor plane;
    uint32_t num_lines, outer;
    __device__ __forceinline__ uint32_t size() const
    {
        return num_lines;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return outer * plane.by;
    }
    __device__ __forceinline__ line at(uint32_t m) const
    {
        return from + (size_t)m * plane.by;
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        const fedge_divided at = fedge_divide(k, plane);
        return (size_t)at.quotient * num_lines * plane.by + at.remainder;
    }
    __device__ __forceinline__ float get(line row, step k) const
    {
        return row[k];
    }
};

/* The outputs whose windows cover an input: column n is an input (b, h, w), and k is (oc, kh, kw).
 * Both the input's and the tap's offset from the window's origin are divided by the stride; where
 * the remainders are equal, the difference of the quotients is the output. */
struct outputs_of_inputs {
    static const bool K_FIRST = false;
    struct line {
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
    __device__ __forceinline__ line at(uint32_t n) const
    {
        const fedge_divided b = fedge_divide(n, c.in_plane),
                            p = fedge_divide(b.remainder, c.in_row);
        return {dy + (size_t)b.quotient * c.tensors.out * c.out_plane.by,
                fedge_divide(p.quotient + c.padding[0], c.stride_h),
                fedge_divide(p.remainder + c.padding[1], c.stride_w)};
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        const fedge_divided o = fedge_divide(k, c.window);
        const pixel_offset tap_offset = tap_offset_of(c, o.remainder);
        return {(size_t)o.quotient * c.out_plane.by, fedge_divide(tap_offset.row, c.stride_h),
                fedge_divide(tap_offset.column, c.stride_w)};
    }
    __device__ __forceinline__ float get(const line &n, const step &k) const
    {
        const uint32_t row = n.y.quotient - k.y.quotient; /* wraps below 0 */
        const uint32_t column = n.x.quotient - k.x.quotient;
        return row < c.out_size[0] && column < c.out_size[1] && n.y.remainder == k.y.remainder &&
                       n.x.remainder == k.x.remainder
                   ? n.image[k.plane + row * c.out_size[1] + column]
                   : 0.0f;
    }
};

template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_forward(conv c, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, count = slot_steps[s].count, num_k = t.in * c.window.by;
    const fedge_divisor plane = c.out_plane;
    const tile_index tile = find_tile(batch * plane.by, 4 * TILE_SIDE);
    const uint32_t first = tile.column * 4 * TILE_SIDE;
    if (first >= count * plane.by)
        return;
    const tile_rows a = {t.weight.values + s * t.weight.stride, num_k, t.out, num_k};
    const windows b = {c, t.x + (size_t)s * batch * t.in * c.in_plane.by, count};
    const float *bias = t.bias.values ? t.bias.values + s * t.bias.stride : nullptr;
    float *y = t.y + (size_t)s * batch * t.out * plane.by;
    const uint32_t out = t.out, relu = t.relu;
    multiply_tile<ROWS, 4>(a, b, tile.row * ROWS * TILE_SIDE, first, t.dropped,
                           [=](uint32_t m, uint32_t n, float sum) {
                               const fedge_divided at = fedge_divide(n, plane);
                               y[((size_t)at.quotient * out + m) * plane.by + at.remainder] =
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
    const tile_index tile = find_tile(batch * plane.by, 4 * TILE_SIDE);
    const uint32_t first = tile.column * 4 * TILE_SIDE;
    if (first >= count * plane.by)
        return;
    const plane_rows a = {t.weight.values + s * t.weight.stride, c.window, in, t.out};
    const outputs_of_inputs b = {c, t.dy + (size_t)s * batch * t.out * c.out_plane.by, count};
    float *dx = t.dx + (size_t)s * batch * t.in * plane.by;
    multiply_tile<ROWS, 4>(a, b, tile.row * ROWS * TILE_SIDE, first, t.dropped,
                           [=](uint32_t m, uint32_t n, float sum) {
                               const fedge_divided at = fedge_divide(n, plane);
                               dx[((size_t)at.quotient * in + m) * plane.by + at.remainder] = sum;
                           });
}

/* The sum of dy over examples and pixels by a warp: 32 sums, then a tree. */
static __device__ __forceinline__ float sum_of_channel(const plane_rows &dy, uint32_t channel)
{
    const plane_rows::line row = dy.at(channel);
    float sum = 0.0f;
    for (uint32_t k = threadIdx.x % 32; k < dy.depth(); k += 32)
        sum += dy.get(row, dy.along(k));
    return sum_of_warp(sum);
}

/* Blocks of the first column of tiles also compute the bias's gradient. */
template <int ROWS>
static __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_dweight(conv c, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, count = slot_steps[s].count, num_k = t.in * c.window.by;
    const tile_index tile = find_tile(num_k, 4 * TILE_SIDE);
    const uint32_t first = tile.row * ROWS * TILE_SIDE;
    if (count == 0)
        return;
    const plane_rows a = {t.dy + (size_t)s * batch * t.out * c.out_plane.by, c.out_plane, t.out,
                          count};
    const window_taps b = {c, t.x + (size_t)s * batch * t.in * c.in_plane.by, count};
    float *dweight = t.dweight + s * t.gradient_stride;
    multiply_tile<ROWS, 4>(
        a, b, first, tile.column * 4 * TILE_SIDE, t.dropped,
        [=](uint32_t m, uint32_t n, float sum) { dweight[(size_t)m * num_k + n] = sum; });
    const uint32_t last = first + ROWS * TILE_SIDE < t.out ? first + ROWS * TILE_SIDE : t.out;
    if (t.dbias && tile.column == 0) {
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
