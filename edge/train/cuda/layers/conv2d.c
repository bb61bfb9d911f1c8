/* Conv2d, and Conv1d as images of height 1. */
#include "edge/train/cuda/layer.h"

static fedge_cohort_conv2d tensors_of(const fedge_cohort_layer *layer,
                                      const fedge_cohort_pass *pass)
{
    const uint32_t in = layer->in.dims[0], out = layer->out.dims[0];
    const fedge_layer_spec *spec = &layer->spec;
    const bool line = spec->type == FEDGE_LAYER_CONV1D;
    const bool bias = line ? spec->u.conv1d.bias : spec->u.conv2d.bias;
    const uint32_t groups = line ? spec->u.conv1d.groups : spec->u.conv2d.groups;
    fedge_cohort_conv2d conv = {.tensors = {.in = in, .out = out},
                                .groups = groups > 1 ? groups : 1};
    fedge_shape_sides(&layer->in, conv.in_size);
    fedge_shape_sides(&layer->out, conv.out_size);
    for (int axis = 0; axis < 2; axis++) {
        uint32_t dilation = 1;
        conv.kernel[axis] = conv.stride[axis] = 1;
        if (!line) {
            dilation = spec->u.conv2d.dilation[axis];
            conv.kernel[axis] = spec->u.conv2d.kernel_size[axis];
            conv.stride[axis] = spec->u.conv2d.stride[axis];
            conv.padding[axis] = spec->u.conv2d.padding[axis];
        } else if (axis == 1) {
            dilation = spec->u.conv1d.dilation;
            conv.kernel[axis] = spec->u.conv1d.kernel_size;
            conv.stride[axis] = spec->u.conv1d.stride;
            conv.padding[axis] = spec->u.conv1d.padding;
        }
        conv.dilation[axis] = dilation > 0 ? dilation : 1;
    }
    const size_t first = layer->first_value;
    const size_t behind = first + (size_t)in / conv.groups * out * conv.kernel[0] * conv.kernel[1];
    const float *values = pass->values.values;
    conv.tensors.weight = (fedge_cohort_weights){values + first, pass->values.stride};
    conv.tensors.bias = (fedge_cohort_weights){bias ? values + behind : NULL, pass->values.stride};
    conv.tensors.dropped = pass->dropped;
    conv.tensors.relu = layer->fuses_relu;
    conv.tensors.x = layer->x[0];
    conv.tensors.y = layer->y;
    conv.tensors.dy = layer->dy;
    conv.tensors.dx = pass->dx;
    conv.tensors.dweight = pass->gradients ? pass->gradients + first : NULL;
    conv.tensors.dbias = pass->gradients && bias ? pass->gradients + behind : NULL;
    conv.tensors.gradient_stride = pass->gradient_stride;
    return conv;
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_conv2d conv = tensors_of(layer, pass);
    return conv.groups > 1 ? fedge_cohort_launch_grouped(&pass->shape, &conv)
                           : fedge_cohort_launch_conv2d(&pass->shape, &conv);
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_conv2d conv = tensors_of(layer, pass);
    return conv.groups > 1 ? fedge_cohort_launch_grouped_backward(&pass->shape, &conv)
                           : fedge_cohort_launch_conv2d_backward(&pass->shape, &conv);
}

static const char *refuse(const fedge_layer_spec *spec)
{
    return spec->type == FEDGE_LAYER_CONV1D && spec->u.conv1d.causal ? "causal" : NULL;
}

const fedge_cohort_layer_ops fedge_cohort_layer_conv2d = {
    .may_fuse_relu = true, .refuse = refuse, .forward = forward, .backward = backward};
