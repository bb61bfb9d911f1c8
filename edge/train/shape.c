#include "edge/train/shape.h"

#include <string.h>

#include "edge/core/os.h"

size_t fedge_shape_count(const fedge_shape *shape)
{
    size_t count = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        count *= shape->dims[i];
    }
    return count;
}

const char *fedge_layer_label(const fedge_model_spec *spec, uint32_t index,
                              char label[FEDGE_MAX_LAYER_NAME])
{
    if (spec->layers[index].name[0] != '\0') {
        return spec->layers[index].name;
    }
    (void)fedge_os_format(label, FEDGE_MAX_LAYER_NAME, "%u", (unsigned)index);
    return label;
}

/* Dimensions ≥ 1 and a product that stays under the limit, without overflow. */
static fedge_status check_shape(const fedge_shape *shape, fedge_error *err)
{
    char text[FEDGE_SHAPE_TEXT_SIZE];
    uint64_t count = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i] == 0) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "shape %s has a zero dimension",
                              fedge_shape_text(shape->rank, shape->dims, text));
        }
        if (shape->rank == 3 && i > 0 && shape->dims[i] > FEDGE_MAX_SPATIAL) {
            return fedge_fail(err, FEDGE_TOO_BIG, "shape %s: height and width are at most %u",
                              fedge_shape_text(shape->rank, shape->dims, text),
                              (unsigned)FEDGE_MAX_SPATIAL);
        }
        count *= shape->dims[i];
        if (count > FEDGE_MAX_EXAMPLE_FLOATS) {
            return fedge_fail(err, FEDGE_TOO_BIG, "shape %s is over the limit of %zu values",
                              fedge_shape_text(shape->rank, shape->dims, text),
                              FEDGE_MAX_EXAMPLE_FLOATS);
        }
    }
    return FEDGE_OK;
}

fedge_status fedge_shape_input(const fedge_model_spec *spec, fedge_shape *shape, fedge_error *err)
{
    if (spec->num_layers == 0 || spec->num_layers > FEDGE_MAX_LAYERS) {
        return fedge_fail(err, spec->num_layers == 0 ? FEDGE_INVALID_ARGUMENT : FEDGE_TOO_BIG,
                          "the model has %u layers: give 1 to %d", (unsigned)spec->num_layers,
                          FEDGE_MAX_LAYERS);
    }
    if (spec->input_rank == 0 || spec->input_rank > 3) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the model's input has %u dimensions: give 1 to 3, without the batch",
                          (unsigned)spec->input_rank);
    }
    *shape = (fedge_shape){.rank = spec->input_rank};
    memcpy(shape->dims, spec->input_shape, spec->input_rank * sizeof shape->dims[0]);
    fedge_status status = check_shape(shape, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "the model's input");
}

static fedge_status need_image(const fedge_shape *shape, fedge_error *err)
{
    char text[FEDGE_SHAPE_TEXT_SIZE];
    if (shape->rank != 3) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the input is %s but must be [channels, height, width]",
                          fedge_shape_text(shape->rank, shape->dims, text));
    }
    return FEDGE_OK;
}

static fedge_status advance_linear(const fedge_layer_spec *layer, fedge_shape *shape,
                                   fedge_error *err)
{
    char text[FEDGE_SHAPE_TEXT_SIZE];
    if (layer->u.linear.in_features == 0 || layer->u.linear.out_features == 0) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "in_features %u and out_features %u must be at least 1",
            (unsigned)layer->u.linear.in_features, (unsigned)layer->u.linear.out_features);
    }
    if (shape->rank != 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the input is %s but must have one dimension: put a Flatten before it",
                          fedge_shape_text(shape->rank, shape->dims, text));
    }
    if (shape->dims[0] != layer->u.linear.in_features) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_features is %u but the layer before gives %u",
                          (unsigned)layer->u.linear.in_features, (unsigned)shape->dims[0]);
    }
    shape->dims[0] = layer->u.linear.out_features;
    return FEDGE_OK;
}

/* The sliding window of both Conv2d and MaxPool2d:
 * out = floor((in + 2 · padding − kernel) / stride) + 1, for height and width. */
static fedge_status slide(const uint32_t kernel[2], const uint32_t stride[2],
                          const uint32_t padding[2], fedge_shape *shape, fedge_error *err)
{
    for (int i = 0; i < 2; i++) {
        const char *axis = i == 0 ? "height" : "width";
        if (kernel[i] == 0 || stride[i] == 0) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "kernel_size %u and stride %u (%s) must be at least 1",
                              (unsigned)kernel[i], (unsigned)stride[i], axis);
        }
        if (kernel[i] > FEDGE_MAX_SPATIAL || stride[i] > FEDGE_MAX_SPATIAL ||
            padding[i] > FEDGE_MAX_SPATIAL) {
            return fedge_fail(err, FEDGE_TOO_BIG,
                              "kernel_size %u, stride %u, padding %u (%s) are at most %u",
                              (unsigned)kernel[i], (unsigned)stride[i], (unsigned)padding[i], axis,
                              (unsigned)FEDGE_MAX_SPATIAL);
        }
        const uint32_t padded = shape->dims[i + 1] + 2 * padding[i];
        if (kernel[i] > padded) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "kernel_size %u is over the padded %s of the input, %u + 2 · %u",
                              (unsigned)kernel[i], axis, (unsigned)shape->dims[i + 1],
                              (unsigned)padding[i]);
        }
        shape->dims[i + 1] = (padded - kernel[i]) / stride[i] + 1;
    }
    return FEDGE_OK;
}

static fedge_status advance_conv2d(const fedge_layer_spec *layer, fedge_shape *shape,
                                   fedge_error *err)
{
    fedge_status status = need_image(shape, err);
    if (status != FEDGE_OK) {
        return status;
    }
    if (layer->u.conv2d.in_channels == 0 || layer->u.conv2d.out_channels == 0) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "in_channels %u and out_channels %u must be at least 1",
            (unsigned)layer->u.conv2d.in_channels, (unsigned)layer->u.conv2d.out_channels);
    }
    if (shape->dims[0] != layer->u.conv2d.in_channels) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_channels is %u but the layer before gives %u channels",
                          (unsigned)layer->u.conv2d.in_channels, (unsigned)shape->dims[0]);
    }
    /* A later layer's padding is part of its input: it must fit the limit too. */
    const fedge_shape padded = {3,
                                {shape->dims[0], shape->dims[1] + 2 * layer->u.conv2d.padding[0],
                                 shape->dims[2] + 2 * layer->u.conv2d.padding[1]}};
    status = slide(layer->u.conv2d.kernel_size, layer->u.conv2d.stride, layer->u.conv2d.padding,
                   shape, err);
    if (status != FEDGE_OK) {
        return status;
    }
    shape->dims[0] = layer->u.conv2d.out_channels;
    status = check_shape(&padded, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "padded input");
}

static fedge_status advance_maxpool2d(const fedge_layer_spec *layer, fedge_shape *shape,
                                      fedge_error *err)
{
    fedge_status status = need_image(shape, err);
    if (status != FEDGE_OK) {
        return status;
    }
    uint32_t stride[2];
    for (int i = 0; i < 2; i++) {
        const uint32_t kernel = layer->u.maxpool2d.kernel_size[i];
        stride[i] = layer->u.maxpool2d.stride[i] == 0 ? kernel : layer->u.maxpool2d.stride[i];
        if (layer->u.maxpool2d.padding[i] > kernel / 2) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "padding %u is over half of kernel_size %u",
                              (unsigned)layer->u.maxpool2d.padding[i], (unsigned)kernel);
        }
    }
    status = slide(layer->u.maxpool2d.kernel_size, stride, layer->u.maxpool2d.padding, shape, err);
    if (status != FEDGE_OK) {
        return status;
    }
    const uint64_t window =
        (uint64_t)layer->u.maxpool2d.kernel_size[0] * layer->u.maxpool2d.kernel_size[1];
    if (window > FEDGE_MAX_POOL_WINDOW) {
        return fedge_fail(err, FEDGE_TOO_BIG, "a window of %u × %u is over the limit of %d places",
                          (unsigned)layer->u.maxpool2d.kernel_size[0],
                          (unsigned)layer->u.maxpool2d.kernel_size[1], FEDGE_MAX_POOL_WINDOW);
    }
    return FEDGE_OK;
}

static fedge_status advance(const fedge_layer_spec *layer, fedge_shape *shape, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    switch (layer->type) {
    case FEDGE_LAYER_LINEAR:
        status = advance_linear(layer, shape, err);
        break;
    case FEDGE_LAYER_CONV2D:
        status = advance_conv2d(layer, shape, err);
        break;
    case FEDGE_LAYER_MAXPOOL2D:
        status = advance_maxpool2d(layer, shape, err);
        break;
    case FEDGE_LAYER_RELU:
        break;
    case FEDGE_LAYER_FLATTEN:
        *shape = (fedge_shape){1, {(uint32_t)fedge_shape_count(shape)}};
        break;
    case FEDGE_LAYER_COUNT:
    default:
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown layer type %d", (int)layer->type);
    }
    return status == FEDGE_OK ? check_shape(shape, err) : status;
}

fedge_status fedge_shape_advance(const fedge_model_spec *spec, uint32_t index, fedge_shape *shape,
                                 fedge_error *err)
{
    const fedge_layer_spec *layer = &spec->layers[index];
    if (memchr(layer->name, '\0', sizeof layer->name) == NULL) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "layer %u: the name is over %d bytes",
                          (unsigned)index, FEDGE_MAX_LAYER_NAME - 1);
    }
    fedge_status status = advance(layer, shape, err);
    if (status == FEDGE_OK) {
        return FEDGE_OK;
    }
    const char *type = fedge_layer_type_name(layer->type);
    char label[FEDGE_MAX_LAYER_NAME];
    return fedge_error_prefix(err, status, "layer %u (%s \"%s\")", (unsigned)index,
                              type == NULL ? "?" : type, fedge_layer_label(spec, index, label));
}

fedge_status fedge_shape_output(const fedge_shape *shape, size_t num_parameters, fedge_error *err)
{
    if (shape->rank != 1) {
        char text[FEDGE_SHAPE_TEXT_SIZE];
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the model's output is %s but must be [classes]: end with a Flatten or a "
                          "Linear",
                          fedge_shape_text(shape->rank, shape->dims, text));
    }
    if (num_parameters == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the model has nothing to train: add a Linear or a Conv2d");
    }
    return FEDGE_OK;
}
