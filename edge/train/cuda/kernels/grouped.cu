/* Grouped and depthwise convolutions, whose sums are too short for tiles. */
#include "edge/train/cuda/kernels/device.cuh"
#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_conv2d conv;

static __device__ __forceinline__ uint32_t plane_of(const uint32_t size[2])
{
    return size[0] * size[1];
}

/* One thread for each output. */
static __global__ void __launch_bounds__(TILE_THREADS)
    grouped_forward(conv c, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, out = plane_of(c.out_size), in = plane_of(c.in_size);
    const uint32_t each = t.in / c.groups, window = c.kernel[0] * c.kernel[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * t.out * out)
        return;
    const uint32_t o = (uint32_t)(i / out % t.out), p = (uint32_t)(i % out);
    const size_t b = (size_t)s * batch + i / out / t.out;
    const float *image = t.x + (b * t.in + (size_t)(o / (t.out / c.groups)) * each) * in;
    const float *weight = t.weight.values + s * t.weight.stride + (size_t)o * each * window;
    float sum = 0.0f;
    for (uint32_t k = 0; k < each * window; k++) {
        const uint32_t w = k % window; /* below 0 they wrap */
        const uint32_t row =
            p / c.out_size[1] * c.stride[0] + w / c.kernel[1] * c.dilation[0] - c.padding[0];
        const uint32_t column =
            p % c.out_size[1] * c.stride[1] + w % c.kernel[1] * c.dilation[1] - c.padding[1];
        if (row < c.in_size[0] && column < c.in_size[1]) {
            sum = fmaf(weight[k], image[(size_t)(k / window) * in + row * c.in_size[1] + column],
                       sum);
        }
    }
    t.y[(b * t.out + o) * out + p] =
        activated(t.bias.values ? sum + t.bias.values[s * t.bias.stride + o] : sum, t.relu);
}

/* One thread for each input. */
static __global__ void __launch_bounds__(TILE_THREADS)
    grouped_dx(conv c, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, out = plane_of(c.out_size), in = plane_of(c.in_size);
    const uint32_t each = t.in / c.groups, gives = t.out / c.groups;
    const uint32_t window = c.kernel[0] * c.kernel[1];
    const size_t i = (size_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (i >= (size_t)slot_steps[s].count * t.in * in)
        return;
    const uint32_t channel = (uint32_t)(i / in % t.in), p = (uint32_t)(i % in);
    const uint32_t first = channel / each * gives;
    const size_t b = (size_t)s * batch + i / in / t.in;
    const float *weight = t.weight.values + s * t.weight.stride;
    float sum = 0.0f;
    for (uint32_t k = 0; k < gives * window; k++) {
        const uint32_t o = first + k / window, w = k % window; /* below 0 they wrap */
        const uint32_t y = p / c.in_size[1] + c.padding[0] - w / c.kernel[1] * c.dilation[0];
        const uint32_t x = p % c.in_size[1] + c.padding[1] - w % c.kernel[1] * c.dilation[1];
        const uint32_t row = y / c.stride[0], column = x / c.stride[1];
        if (row < c.out_size[0] && column < c.out_size[1] && row * c.stride[0] == y &&
            column * c.stride[1] == x) {
            sum = fmaf(weight[((size_t)o * each + channel % each) * window + w],
                       t.dy[(b * t.out + o) * out + row * c.out_size[1] + column], sum);
        }
    }
    t.dx[(b * t.in + channel) * in + p] = sum;
}

/* One warp for each weight and each bias: 32 sums over examples and pixels, then a tree. */
static __global__ void __launch_bounds__(TILE_THREADS)
    grouped_dweight(conv c, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    const fedge_cohort_linear &t = c.tensors;
    const uint32_t s = blockIdx.z, out = plane_of(c.out_size), in = plane_of(c.in_size);
    const uint32_t each = t.in / c.groups, window = c.kernel[0] * c.kernel[1];
    const uint32_t weights = t.out * each * window, count = slot_steps[s].count;
    const uint32_t mine = blockIdx.x * (TILE_THREADS / 32) + threadIdx.x / 32;
    if (count == 0 || mine >= weights + (t.dbias ? t.out : 0))
        return; /* the whole warp */
    const bool is_bias = mine >= weights;
    const uint32_t o = is_bias ? mine - weights : mine / (each * window);
    const uint32_t channel = o / (t.out / c.groups) * each + mine / window % each;
    const uint32_t w = mine % window;
    float sum = 0.0f;
    for (uint32_t k = threadIdx.x % 32; k < count * out; k += 32) {
        const size_t b = (size_t)s * batch + k / out;
        const uint32_t p = k % out; /* below 0 they wrap */
        const uint32_t row =
            p / c.out_size[1] * c.stride[0] + w / c.kernel[1] * c.dilation[0] - c.padding[0];
        const uint32_t column =
            p % c.out_size[1] * c.stride[1] + w % c.kernel[1] * c.dilation[1] - c.padding[1];
        const float dy = t.dy[(b * t.out + o) * out + p];
        if (is_bias)
            sum += dy;
        else if (row < c.in_size[0] && column < c.in_size[1])
            sum = fmaf(dy, t.x[(b * t.in + channel) * in + row * c.in_size[1] + column], sum);
    }
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) {
        float *to = is_bias ? t.dbias + o : t.dweight + mine;
        to[s * t.gradient_stride] = sum;
    }
}

cudaError_t fedge_cohort_launch_grouped(const fedge_cohort_shape *shape,
                                        const fedge_cohort_conv2d *args)
{
    const cudaLaunchConfig_t config = value_grid(shape, (size_t)shape->batch * args->tensors.out *
                                                            args->out_size[0] * args->out_size[1]);
    return cudaLaunchKernelEx(&config, grouped_forward, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_grouped_backward(const fedge_cohort_shape *shape,
                                                 const fedge_cohort_conv2d *args)
{
    const fedge_cohort_linear *t = &args->tensors;
    const size_t sums =
        (size_t)t->out * (t->in / args->groups) * args->kernel[0] * args->kernel[1] + t->out;
    const cudaLaunchConfig_t weights = value_grid(shape, 32 * sums);
    const cudaLaunchConfig_t inputs =
        value_grid(shape, (size_t)shape->batch * t->in * args->in_size[0] * args->in_size[1]);
    const cudaError_t error = t->dweight ? cudaLaunchKernelEx(&weights, grouped_dweight, *args,
                                                              shape->slot_steps, shape->batch)
                                         : cudaSuccess;
    return error == cudaSuccess && t->dx
               ? cudaLaunchKernelEx(&inputs, grouped_dx, *args, shape->slot_steps, shape->batch)
               : error;
}
