/* Naive products. Shapes have llm.c's names, row-major: B examples of a slot's batch, T steps, C
 * and OC channels of the input and the output. Only the first count examples of a slot are used. */
#include "edge/train/cuda/kernels/naive.h"
#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_slot_step slot_step;

/* ---- linear: x (B, T, C), weight (OC, C), y (B, T, OC) ---- */

static __global__ void linear_y(fedge_cohort_linear t, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, T = t.steps, C = t.in, OC = t.out;
    const uint32_t bt = value_index() / OC, oc = value_index() % OC;
    if (bt >= slots[s].count * T)
        return;
    const size_t row = (size_t)s * B * T + bt;
    const float *w = t.weight.values + s * t.weight.stride + (size_t)oc * C;
    float sum = 0.0f;
    for (uint32_t c = 0; c < C; c++)
        sum = fmaf(t.x[row * C + c], w[c], sum);
    sum += t.bias.values ? t.bias.values[s * t.bias.stride + oc] : 0.0f;
    t.y[row * OC + oc] = t.relu && sum < 0.0f ? 0.0f : sum;
}

static __global__ void linear_dx(fedge_cohort_linear t, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, T = t.steps, C = t.in, OC = t.out;
    const uint32_t bt = value_index() / C, c = value_index() % C;
    if (bt >= slots[s].count * T)
        return;
    const size_t row = (size_t)s * B * T + bt;
    const float *w = t.weight.values + s * t.weight.stride;
    float sum = 0.0f;
    for (uint32_t oc = 0; oc < OC; oc++)
        sum = fmaf(t.dy[row * OC + oc], w[(size_t)oc * C + c], sum);
    t.dx[row * C + c] = sum;
}

static __global__ void linear_dw(fedge_cohort_linear t, const slot_step *slots, uint32_t B)
{
    const uint32_t s = blockIdx.z, T = t.steps, C = t.in, OC = t.out;
    const uint32_t oc = value_index() / C, c = value_index() % C, rows = slots[s].count * T;
    if (oc >= OC || rows == 0)
        return;
    const size_t first = (size_t)s * B * T;
    float sum = 0.0f, bias = 0.0f;
    for (size_t row = first; row < first + rows; row++) {
        sum = fmaf(t.dy[row * OC + oc], t.x[row * C + c], sum);
        bias += t.dy[row * OC + oc];
    }
    t.dweight[s * t.gradient_stride + (size_t)oc * C + c] = sum;
    if (t.dbias && c == 0)
        t.dbias[s * t.gradient_stride + oc] = bias;
}

cudaError_t fedge_naive_launch_linear(const fedge_cohort_shape *shape,
                                      const fedge_cohort_linear *args)
{
    const cudaLaunchConfig_t config =
        value_grid(shape, (size_t)shape->batch * args->steps * args->out);
    return cudaLaunchKernelEx(&config, linear_y, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_linear_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_linear *args)
{
    const cudaLaunchConfig_t inputs =
        value_grid(shape, (size_t)shape->batch * args->steps * args->in);
    const cudaLaunchConfig_t weights = value_grid(shape, (size_t)args->out * args->in);
    const cudaError_t error =
        cudaLaunchKernelEx(&inputs, linear_dx, *args, shape->slot_steps, shape->batch);
    return error != cudaSuccess
               ? error
               : cudaLaunchKernelEx(&weights, linear_dw, *args, shape->slot_steps, shape->batch);
}

/* ---- conv2d: x (B, C, H, W), weight (OC, C / groups, KH, KW), y (B, OC, OH, OW) ---- */

/* Sets *index to the input that a tap of an output's window reads. False: the tap lies in the
 * padding. */
static __device__ __forceinline__ bool tap_index(const fedge_cohort_conv2d &p, int axis,
                                                 uint32_t out, uint32_t tap, uint32_t *index)
{
    *index = out * p.stride[axis] + tap * p.dilation[axis] - p.padding[axis]; /* wraps below 0 */
    return *index < p.in_size[axis];
}

/* Sets *index to the input (h · W + w) that tap kh · KW + kw of output oh · OW + ow reads. */
static __device__ __forceinline__ bool input_index(const fedge_cohort_conv2d &p, uint32_t out,
                                                   uint32_t tap, uint32_t *index)
{
    const uint32_t OW = p.out_size[1], KW = p.kernel[1];
    uint32_t h, w;
    if (!tap_index(p, 0, out / OW, tap / KW, &h) || !tap_index(p, 1, out % OW, tap % KW, &w))
        return false;
    *index = h * p.in_size[1] + w;
    return true;
}

static __global__ void conv2d_y(fedge_cohort_conv2d p, const slot_step *slots, uint32_t B)
{
    const fedge_cohort_linear &t = p.tensors;
    const uint32_t s = blockIdx.z, C = t.in, OC = t.out, C_of_group = C / p.groups;
    const uint32_t HW = p.in_size[0] * p.in_size[1], OHW = p.out_size[0] * p.out_size[1];
    const uint32_t KHW = p.kernel[0] * p.kernel[1];
    const uint32_t b = value_index() / OHW / OC, oc = value_index() / OHW % OC;
    if (b >= slots[s].count)
        return;
    const uint32_t first_c = oc / (OC / p.groups) * C_of_group;
    const float *x = t.x + ((size_t)(s * B + b) * C + first_c) * HW;
    const float *w = t.weight.values + s * t.weight.stride + (size_t)oc * C_of_group * KHW;
    float sum = 0.0f;
    for (uint32_t c = 0; c < C_of_group; c++) {
        for (uint32_t tap = 0; tap < KHW; tap++) {
            uint32_t i;
            if (input_index(p, value_index() % OHW, tap, &i))
                sum = fmaf(w[c * KHW + tap], x[c * HW + i], sum);
        }
    }
    sum += t.bias.values ? t.bias.values[s * t.bias.stride + oc] : 0.0f;
    t.y[(size_t)s * B * OC * OHW + value_index()] = t.relu && sum < 0.0f ? 0.0f : sum;
}

/* Visits every output and tap, and adds those taps that lie on this thread's input. */
static __global__ void conv2d_dx(fedge_cohort_conv2d p, const slot_step *slots, uint32_t B)
{
    const fedge_cohort_linear &t = p.tensors;
    const uint32_t s = blockIdx.z, C = t.in, OC = t.out, C_of_group = C / p.groups;
    const uint32_t HW = p.in_size[0] * p.in_size[1], OHW = p.out_size[0] * p.out_size[1];
    const uint32_t KHW = p.kernel[0] * p.kernel[1], OC_of_group = OC / p.groups;
    const uint32_t b = value_index() / HW / C, c = value_index() / HW % C;
    const uint32_t first_oc = c / C_of_group * OC_of_group;
    if (b >= slots[s].count)
        return;
    float sum = 0.0f;
    for (uint32_t oc = first_oc; oc < first_oc + OC_of_group; oc++) {
        const float *w = t.weight.values + s * t.weight.stride +
                         ((size_t)oc * C_of_group + c % C_of_group) * KHW;
        const float *dy = t.dy + ((size_t)(s * B + b) * OC + oc) * OHW;
        for (uint32_t n = 0; n < OHW * KHW; n++) {
            uint32_t i;
            if (input_index(p, n / KHW, n % KHW, &i) && i == value_index() % HW)
                sum = fmaf(w[n % KHW], dy[n / KHW], sum);
        }
    }
    t.dx[(size_t)s * B * C * HW + value_index()] = sum;
}

static __global__ void conv2d_dw(fedge_cohort_conv2d p, const slot_step *slots, uint32_t B)
{
    const fedge_cohort_linear &t = p.tensors;
    const uint32_t s = blockIdx.z, C = t.in, OC = t.out, C_of_group = C / p.groups;
    const uint32_t HW = p.in_size[0] * p.in_size[1], OHW = p.out_size[0] * p.out_size[1];
    const uint32_t KHW = p.kernel[0] * p.kernel[1], tap = value_index() % KHW;
    const uint32_t oc = value_index() / KHW / C_of_group;
    const uint32_t c = oc / (OC / p.groups) * C_of_group + value_index() / KHW % C_of_group;
    if (oc >= OC || slots[s].count == 0)
        return;
    float sum = 0.0f, bias = 0.0f;
    for (uint32_t b = 0; b < slots[s].count; b++) {
        const float *x = t.x + ((size_t)(s * B + b) * C + c) * HW;
        const float *dy = t.dy + ((size_t)(s * B + b) * OC + oc) * OHW;
        for (uint32_t o = 0; o < OHW; o++) {
            uint32_t i;
            bias += dy[o];
            if (input_index(p, o, tap, &i))
                sum = fmaf(dy[o], x[i], sum);
        }
    }
    t.dweight[s * t.gradient_stride + value_index()] = sum;
    if (t.dbias && value_index() % (C_of_group * KHW) == 0)
        t.dbias[s * t.gradient_stride + oc] = bias;
}

cudaError_t fedge_naive_launch_conv2d(const fedge_cohort_shape *shape,
                                      const fedge_cohort_conv2d *args)
{
    const size_t plane = (size_t)args->out_size[0] * args->out_size[1];
    const cudaLaunchConfig_t config = value_grid(shape, shape->batch * args->tensors.out * plane);
    return cudaLaunchKernelEx(&config, conv2d_y, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_naive_launch_conv2d_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_conv2d *args)
{
    const size_t plane = (size_t)args->in_size[0] * args->in_size[1];
    const size_t window = (size_t)args->kernel[0] * args->kernel[1];
    const cudaLaunchConfig_t inputs = value_grid(shape, shape->batch * args->tensors.in * plane);
    const cudaLaunchConfig_t weights =
        value_grid(shape, args->tensors.out * (args->tensors.in / args->groups) * window);
    const cudaError_t error =
        cudaLaunchKernelEx(&inputs, conv2d_dx, *args, shape->slot_steps, shape->batch);
    return error != cudaSuccess
               ? error
               : cudaLaunchKernelEx(&weights, conv2d_dw, *args, shape->slot_steps, shape->batch);
}
