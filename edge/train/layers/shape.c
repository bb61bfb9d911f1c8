/* Shapes and inputs of layers, before any memory is allocated.
 *
 * Specs come from plans, and plans from the network, so they are not trusted: a layer's infer gets
 * unchecked arguments, sizes have 64 bits until they are checked, and a name may lack its NUL. The
 * results of this file are safe to multiply in size_t. */
#include "edge/train/layers/layer.h"

#include <string.h>

#include "edge/core/os.h"

size_t fedge_shape_count(const fedge_shape *shape)
{
    size_t count = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

const char *fedge_layer_label(const fedge_layer_spec *layer, uint32_t index,
                              char label[FEDGE_MAX_LAYER_NAME])
{
    if (layer->name[0] != '\0')
        return layer->name;
    (void)fedge_os_format(label, FEDGE_MAX_LAYER_NAME, "%u", (unsigned)index);
    return label;
}

fedge_status fedge_shape_check(const fedge_shape *shape, fedge_error *err)
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
        /* Checked after each factor: 2^30 times a uint32_t cannot wrap in 64 bits. */
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
    memcpy(shape->dims, spec->input_shape, spec->input_rank * sizeof(shape->dims[0]));
    fedge_status status = fedge_shape_check(shape, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "the model's input");
}

fedge_status fedge_shape_need(const fedge_shape *shape, uint32_t rank, const char *layout,
                              fedge_error *err)
{
    char text[FEDGE_SHAPE_TEXT_SIZE];
    if (shape->rank != rank) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "the input is %s but must be %s",
                          fedge_shape_text(shape->rank, shape->dims, text), layout);
    }
    return FEDGE_OK;
}

fedge_status fedge_shape_axis(const fedge_shape *shape, int32_t dim, fedge_axis *axis,
                              fedge_error *err)
{
    char text[FEDGE_SHAPE_TEXT_SIZE];
    if (shape->rank < 2) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the input is %s, of which no dimension can be taken away: it needs 2 or "
                          "3 without the batch",
                          fedge_shape_text(shape->rank, shape->dims, text));
    }
    return fedge_shape_dim(shape, dim, axis, err);
}

fedge_status fedge_shape_dim(const fedge_shape *shape, int32_t dim, fedge_axis *axis,
                             fedge_error *err)
{
    char text[FEDGE_SHAPE_TEXT_SIZE];
    const int32_t rank = (int32_t)shape->rank;
    /* PyTorch's [dim] counts the batch as 0, which shapes here do not contain. */
    const int32_t at = dim < 0 ? dim + rank : dim - 1;
    if (at < 0 || at >= rank) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "dim %d must be 1 to %d (the batch is 0) or -%d to -1 for the input %s",
                          (int)dim, (int)rank, (int)rank,
                          fedge_shape_text(shape->rank, shape->dims, text));
    }
    /* Element (o, l, i) of (outer, length, inner) is at (o · length + l) · inner + i. */
    *axis = (fedge_axis){.at = (uint32_t)at, .outer = 1, .length = shape->dims[at], .inner = 1};
    for (int32_t i = 0; i < at; i++)
        axis->outer *= shape->dims[i];
    for (int32_t i = at + 1; i < rank; i++)
        axis->inner *= shape->dims[i];
    return FEDGE_OK;
}

void fedge_shape_drop(fedge_shape *shape, uint32_t at)
{
    shape->rank--;
    for (uint32_t i = at; i < shape->rank; i++)
        shape->dims[i] = shape->dims[i + 1];
}

/* A sequence is an image of height 1: convolution and pooling treat both alike. */
void fedge_shape_sides(const fedge_shape *shape, uint32_t sides[2])
{
    sides[0] = shape->rank == 2 ? 1 : shape->dims[1];
    sides[1] = shape->dims[shape->rank - 1];
}

const char *fedge_shape_side_name(uint32_t rank, int side)
{
    return rank == 2 ? "length" : side == 0 ? "height" : "width";
}

fedge_shape fedge_shape_of_sides(uint32_t rank, uint32_t channels, const uint32_t sides[2])
{
    return rank == 2 ? (fedge_shape){2, {channels, sides[1]}}
                     : (fedge_shape){3, {channels, sides[0], sides[1]}};
}

fedge_status fedge_shape_need_sides(const fedge_shape *shape, uint32_t rank, fedge_error *err)
{
    return fedge_shape_need(shape, rank,
                            rank == 2 ? "[channels, length]" : "[channels, height, width]", err);
}

fedge_status fedge_shape_window(const char *axis, uint32_t kernel, uint32_t stride,
                                uint32_t padding, uint32_t dilation, uint32_t size, uint32_t *out,
                                fedge_error *err)
{
    if (kernel == 0 || stride == 0 || dilation == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "kernel_size %u, stride %u and dilation %u (%s) must be at least 1",
                          (unsigned)kernel, (unsigned)stride, (unsigned)dilation, axis);
    }
    if (kernel > FEDGE_MAX_SPATIAL || stride > FEDGE_MAX_SPATIAL || padding > FEDGE_MAX_SPATIAL ||
        dilation > FEDGE_MAX_SPATIAL) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "kernel_size %u, stride %u, padding %u, dilation %u (%s) are at most %u",
                          (unsigned)kernel, (unsigned)stride, (unsigned)padding, (unsigned)dilation,
                          axis, (unsigned)FEDGE_MAX_SPATIAL);
    }
    const uint64_t padded = (uint64_t)size + 2 * (uint64_t)padding;
    const uint64_t window = (uint64_t)dilation * (kernel - 1) + 1;
    if (window > padded) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "kernel_size %u (dilation %u) is over the padded %s of the input, "
                          "%u + 2 · %u",
                          (unsigned)kernel, (unsigned)dilation, axis, (unsigned)size,
                          (unsigned)padding);
    }
    *out = (uint32_t)((padded - window) / stride + 1);
    return FEDGE_OK;
}

fedge_status fedge_layer_prefix(const fedge_layer_spec *layer, uint32_t index, fedge_status status,
                                fedge_error *err)
{
    const char *type = fedge_layer_type_name(layer->type);
    char label[FEDGE_MAX_LAYER_NAME];
    return fedge_error_prefix(err, status, "layer %u (%s \"%s\")", (unsigned)index,
                              !type ? "?" : type, fedge_layer_label(layer, index, label));
}

fedge_status fedge_layer_fail(const fedge_model_spec *spec, uint32_t index, fedge_status status,
                              fedge_error *err)
{
    return fedge_layer_prefix(&spec->layers[index], index, status, err);
}

static fedge_status fail_unknown(fedge_layer_type type, fedge_error *err)
{
    const char *name = fedge_layer_type_name(type);
    return !name ? fedge_fail(err, FEDGE_UNSUPPORTED, "unknown layer type %d", (int)type)
                 : fedge_fail(err, FEDGE_UNSUPPORTED,
                              "this build has no %s: add it to FEDGE_LAYERS", name);
}

static uint16_t first_source(const fedge_model_spec *spec, uint32_t index)
{
    const fedge_layer_spec *layer = &spec->layers[index];
    return layer->num_inputs > 0 ? layer->inputs[0]
                                 : (uint16_t)(index == 0 ? FEDGE_INPUT_MODEL : index - 1);
}

/* True if [source] is the model's input or unchanged values of it. The loop ends because each layer
 * comes after its sources, as fedge_layer_sources has checked. */
static bool is_input(const fedge_model_spec *spec, uint16_t source)
{
    while (source != FEDGE_INPUT_MODEL && (spec->layers[source].type == FEDGE_LAYER_FLATTEN ||
                                           spec->layers[source].type == FEDGE_LAYER_SELECT))
        source = first_source(spec, source);
    return source == FEDGE_INPUT_MODEL;
}

fedge_status fedge_layer_sources(const fedge_model_spec *spec, uint32_t index,
                                 uint16_t sources[FEDGE_MAX_LAYER_INPUTS], uint32_t *num_sources,
                                 fedge_error *err)
{
    const fedge_layer_spec *layer = &spec->layers[index];
    const fedge_layer_ops *ops = fedge_layer_ops_of(layer->type);
    if (!ops)
        return fedge_layer_fail(spec, index, fail_unknown(layer->type, err), err);
    const uint32_t min_inputs = ops->min_inputs == 0 ? 1 : ops->min_inputs;
    const uint32_t max_inputs = ops->max_inputs == 0 ? 1 : ops->max_inputs;
    *num_sources = layer->num_inputs == 0 ? 1 : layer->num_inputs;
    sources[0] = first_source(spec, index);
    if (*num_sources < min_inputs || *num_sources > max_inputs) {
        return fedge_layer_fail(
            spec, index,
            fedge_fail(err, FEDGE_INVALID_ARGUMENT, "it has %u inputs but needs %u to %u",
                       (unsigned)*num_sources, (unsigned)min_inputs, (unsigned)max_inputs),
            err);
    }
    for (uint32_t i = 0; i < layer->num_inputs; i++) {
        sources[i] = layer->inputs[i];
        /* So layers can be evaluated in the order of the list, and cycles are impossible. */
        if (sources[i] >= index && sources[i] != FEDGE_INPUT_MODEL) {
            return fedge_layer_fail(spec, index,
                                    fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                                               "input %u is layer %u, which is not before it",
                                               (unsigned)i, (unsigned)sources[i]),
                                    err);
        }
    }
    if ((ops->flags & FEDGE_EXACT_X) != 0 && !is_input(spec, sources[0])) {
        return fedge_layer_fail(spec, index,
                                fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                                           "it reads whole numbers, which layer %u does not give: "
                                           "give it the model's input",
                                           (unsigned)sources[0]),
                                err);
    }
    return FEDGE_OK;
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    const fedge_layer_ops *ops = fedge_layer_ops_of(layer->type);
    if (!ops)
        return fail_unknown(layer->type, err);
    if ((unsigned)layer->train >= FEDGE_TRAIN_MODE_COUNT)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "unknown train mode %d", (int)layer->train);
    /* Ranges of arguments are checked after infer, which must not divide by one that may be 0. */
    FEDGE_TRY(ops->infer(layer, in, num_inputs, out, err));
    FEDGE_TRY(fedge_arguments_check(ops->arguments, layer, err));
    FEDGE_TRY(fedge_layer_check_channels(layer, err));
    return fedge_shape_check(out, err);
}

fedge_status fedge_shape_infer(const fedge_model_spec *spec, uint32_t index, const fedge_shape *in,
                               uint32_t num_inputs, fedge_shape *out, fedge_error *err)
{
    const fedge_layer_spec *layer = &spec->layers[index];
    /* Messages print names. Those read from JSON are bounded, others need not be. */
    if (!memchr(layer->name, '\0', sizeof(layer->name))) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "layer %u: the name is over %d bytes",
                          (unsigned)index, FEDGE_MAX_LAYER_NAME - 1);
    }
    const fedge_status status = infer(layer, in, num_inputs, out, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_layer_fail(spec, index, status, err);
}

fedge_status fedge_shape_advance(const fedge_model_spec *spec, uint32_t index, fedge_shape *shape,
                                 fedge_error *err)
{
    const fedge_shape in = *shape;
    return fedge_shape_infer(spec, index, &in, 1, shape, err);
}

fedge_status fedge_shape_model(const fedge_model_spec *spec, fedge_shape *out, fedge_error *err)
{
    fedge_shape input, shapes[FEDGE_MAX_LAYERS];
    FEDGE_TRY(fedge_shape_input(spec, &input, err));
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        uint16_t sources[FEDGE_MAX_LAYER_INPUTS];
        uint32_t num_sources = 0;
        fedge_shape in[FEDGE_MAX_LAYER_INPUTS];
        FEDGE_TRY(fedge_layer_sources(spec, i, sources, &num_sources, err));
        for (uint32_t k = 0; k < num_sources; k++)
            in[k] = sources[k] == FEDGE_INPUT_MODEL ? input : shapes[sources[k]];
        FEDGE_TRY(fedge_shape_infer(spec, i, in, num_sources, &shapes[i], err));
    }
    *out = shapes[spec->num_layers - 1];
    return FEDGE_OK;
}

fedge_status fedge_shape_output(const fedge_shape *shape, size_t num_parameters, fedge_error *err)
{
    if (shape->rank != 1) {
        char text[FEDGE_SHAPE_TEXT_SIZE];
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the model's output is %s but must be [outputs]: end with a Flatten or a "
                          "Linear",
                          fedge_shape_text(shape->rank, shape->dims, text));
    }
    if (num_parameters == 0) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT,
            "the model has nothing to train: add a Linear or a Conv2d, or freeze less");
    }
    return FEDGE_OK;
}
