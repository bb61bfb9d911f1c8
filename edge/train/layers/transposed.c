#include "edge/train/layers/transposed.h"

enum { WEIGHT, BIAS };

static fedge_status check_channels(const fedge_convolution *conv, const fedge_shape *in,
                                   fedge_error *err)
{
    if (conv->channels == 0 || conv->out_channels == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_channels %u and out_channels %u must be at least 1",
                          (unsigned)conv->out_channels, (unsigned)conv->channels);
    }
    if (conv->out_channels != in->dims[0]) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_channels is %u but the layer before gives %u channels",
                          (unsigned)conv->out_channels, (unsigned)in->dims[0]);
    }
    if (conv->channels % conv->groups != 0 || conv->out_channels % conv->groups != 0) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "groups %u must divide in_channels %u and out_channels %u",
            (unsigned)conv->groups, (unsigned)conv->out_channels, (unsigned)conv->channels);
    }
    return FEDGE_OK;
}

static fedge_status infer_side(const fedge_convolution *conv, int side, uint32_t more, uint32_t in,
                               uint32_t *out, fedge_error *err)
{
    const char *name = fedge_shape_side_name(conv->rank, side);
    const uint32_t kernel = conv->kernel[side], stride = conv->stride[side];
    if (kernel == 0 || stride == 0 || kernel > FEDGE_MAX_SPATIAL || stride > FEDGE_MAX_SPATIAL ||
        conv->dilation[side] > FEDGE_MAX_SPATIAL || conv->padding[side] > FEDGE_MAX_SPATIAL) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT,
            "kernel_size %u and stride %u (%s) must be at least 1, and all numbers at "
            "most %u",
            (unsigned)kernel, (unsigned)stride, name, (unsigned)FEDGE_MAX_SPATIAL);
    }
    if (more >= stride) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "output_padding %u (%s) must be less than the stride, %u", (unsigned)more,
                          name, (unsigned)stride);
    }
    const int64_t padded =
        (int64_t)(in - 1) * stride + (int64_t)conv->dilation[side] * (kernel - 1) + more + 1;
    const int64_t size = padded - 2 * (int64_t)conv->padding[side];
    if (size < 1 || padded > FEDGE_MAX_SPATIAL) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the %s would be %lld, or %lld with padding %u on both sides: they must "
                          "be 1 to %u",
                          name, (long long)size, (long long)padded, (unsigned)conv->padding[side],
                          (unsigned)FEDGE_MAX_SPATIAL);
    }
    *out = (uint32_t)size;
    return FEDGE_OK;
}

fedge_status fedge_transposed_infer(fedge_convolution conv, const uint32_t output_padding[2],
                                    const fedge_shape *in, fedge_shape *out, fedge_error *err)
{
    FEDGE_TRY(fedge_shape_need_sides(in, conv.rank, err));
    FEDGE_TRY(check_channels(&conv, in, err));
    fedge_shape_sides(in, conv.out);
    uint32_t padded[2];
    for (int i = 0; i < 2; i++) {
        FEDGE_TRY(infer_side(&conv, i, output_padding[i], conv.out[i], &conv.in[i], err));
        padded[i] = conv.in[i] + 2 * conv.padding[i];
    }
    const fedge_shape shape = fedge_shape_of_sides(conv.rank, conv.channels, padded);
    const fedge_status status = fedge_shape_check(&shape, err);
    *out = fedge_shape_of_sides(conv.rank, conv.channels, conv.in);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "padded output");
}

uint32_t fedge_transposed_tensors(fedge_convolution conv, fedge_layer_tensor *list)
{
    const uint32_t n = fedge_convolution_tensors(conv, list);
    list[WEIGHT].factor = false;
    list[BIAS].shape[0] = conv.channels;
    return n;
}

/* The pass of the convolution, whose input is this layer's output. */
static fedge_layer_run turned(const fedge_layer_run *run)
{
    fedge_layer_run other = *run;
    other.in[0] = run->out;
    other.out = run->in[0];
    other.gradients[WEIGHT] = other.gradients[BIAS] = NULL;
    other.dx[0] = NULL;
    return other;
}

void fedge_transposed_sizes(const fedge_layer_run *run, fedge_convolution conv,
                            fedge_layer_sizes *sizes)
{
    const fedge_layer_run other = turned(run);
    fedge_convolution_sizes(&other, conv, sizes);
    const uint64_t forward = sizes->forward;
    sizes->forward = sizes->backward;
    sizes->backward = sizes->backward > forward ? sizes->backward : forward;
}

void fedge_transposed_forward(const fedge_layer_run *run, fedge_convolution conv)
{
    fedge_layer_run other = turned(run);
    const size_t pixels = fedge_shape_count(&run->out) / conv.channels;
    other.x[0] = run->y; /* not read without the weights' gradient */
    other.dy = run->x[0];
    other.dx[0] = run->y;
    const bool bias = conv.bias;
    conv.bias = false;
    fedge_convolution_backward(&other, conv);
    for (size_t i = 0; bias && i < (size_t)run->batch * conv.channels; i++) {
        const float value = run->values[BIAS][i % conv.channels];
        float *y = run->y + i * pixels;
        for (size_t p = 0; p < pixels; p++)
            y[p] += value;
    }
}

void fedge_transposed_backward(const fedge_layer_run *run, fedge_convolution conv)
{
    fedge_layer_run other = turned(run);
    const size_t pixels = fedge_shape_count(&run->out) / conv.channels;
    for (size_t i = 0; run->gradients[BIAS] && i < (size_t)run->batch * conv.channels; i++) {
        double sums[2];
        run->kernels->moments(run->dy + i * pixels, pixels, 0.0f, sums);
        run->gradients[BIAS][i % conv.channels] += (float)sums[0];
    }
    conv.bias = false;
    other.x[0] = run->dy;
    if (run->gradients[WEIGHT]) {
        other.dy = run->x[0];
        other.gradients[WEIGHT] = run->gradients[WEIGHT];
        fedge_convolution_backward(&other, conv);
    }
    if (run->dx[0]) {
        other.y = run->dx[0];
        fedge_convolution_forward(&other, conv);
    }
}
