/* A model as a job describes it: its parameters and their first values. */
#include <assert.h>
#include <math.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/train/model.h"
#include "edge/train/shape.h"

const char *fedge_layer_type_name(fedge_layer_type type)
{
    switch (type) {
    case FEDGE_LAYER_LINEAR:
        return "Linear";
    case FEDGE_LAYER_CONV2D:
        return "Conv2d";
    case FEDGE_LAYER_MAXPOOL2D:
        return "MaxPool2d";
    case FEDGE_LAYER_RELU:
        return "ReLU";
    case FEDGE_LAYER_FLATTEN:
        return "Flatten";
    case FEDGE_LAYER_COUNT:
    default:
        return NULL;
    }
}

static fedge_status add_parameters(const fedge_model_spec *spec, uint32_t index,
                                   fedge_schema *schema, fedge_error *err)
{
    const fedge_layer_spec *layer = &spec->layers[index];
    uint32_t rank = 0, shape[4] = {0};
    bool bias = false;
    if (layer->type == FEDGE_LAYER_LINEAR) {
        rank = 2;
        shape[0] = layer->u.linear.out_features;
        shape[1] = layer->u.linear.in_features;
        bias = layer->u.linear.bias;
    } else if (layer->type == FEDGE_LAYER_CONV2D) {
        rank = 4;
        shape[0] = layer->u.conv2d.out_channels;
        shape[1] = layer->u.conv2d.in_channels;
        shape[2] = layer->u.conv2d.kernel_size[0];
        shape[3] = layer->u.conv2d.kernel_size[1];
        bias = layer->u.conv2d.bias;
    } else {
        return FEDGE_OK;
    }
    char label[FEDGE_MAX_LAYER_NAME], name[FEDGE_MAX_TENSOR_NAME];
    const char *layer_name = fedge_layer_label(spec, index, label);
    (void)fedge_os_format(name, sizeof name, "%s.weight", layer_name);
    fedge_status status = fedge_schema_add(schema, name, FEDGE_F32, rank, shape, err);
    if (status == FEDGE_OK && bias) {
        (void)fedge_os_format(name, sizeof name, "%s.bias", layer_name);
        status = fedge_schema_add(schema, name, FEDGE_F32, 1, shape, err);
    }
    return status == FEDGE_OK
               ? FEDGE_OK
               : fedge_error_prefix(err, status, "layer %u (%s \"%s\")", (unsigned)index,
                                    fedge_layer_type_name(layer->type), layer_name);
}

fedge_status fedge_model_schema(const fedge_model_spec *spec, fedge_schema *schema,
                                fedge_error *err)
{
    fedge_shape shape;
    fedge_status status = fedge_shape_input(spec, &shape, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < spec->num_layers; i++) {
        status = fedge_shape_advance(spec, i, &shape, err);
        if (status == FEDGE_OK) {
            status = add_parameters(spec, i, schema, err);
        }
    }
    return status == FEDGE_OK ? fedge_shape_output(&shape, schema->num_elements, err) : status;
}

uint32_t fedge_model_num_classes(const fedge_model_spec *spec)
{
    fedge_shape shape = {0};
    fedge_status status = fedge_shape_input(spec, &shape, NULL);
    for (uint32_t i = 0; status == FEDGE_OK && i < spec->num_layers; i++) {
        status = fedge_shape_advance(spec, i, &shape, NULL);
    }
    assert(status == FEDGE_OK && shape.rank == 1);
    return shape.dims[0];
}

size_t fedge_model_input_count(const fedge_model_spec *spec)
{
    fedge_shape shape = {0};
    const fedge_status status = fedge_shape_input(spec, &shape, NULL);
    assert(status == FEDGE_OK);
    (void)status;
    return fedge_shape_count(&shape);
}

/* Tensor [index] uniform in ±1/sqrt(fan_in). */
static void init_tensor(const fedge_tensor_spec *tensor, uint32_t index, size_t fan_in,
                        uint64_t seed, float *values)
{
    const float bound = (float)(1.0 / sqrt((double)fan_in));
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_INIT, index, 0, 0);
    for (size_t i = 0; i < tensor->count; i++) {
        values[tensor->offset + i] = (2.0f * fedge_rng_float(&rng) - 1.0f) * bound;
    }
}

fedge_status fedge_model_init_values(const fedge_model_spec *spec, const fedge_schema *schema,
                                     uint64_t seed, float *values, fedge_error *err)
{
    uint32_t tensor = 0;
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        const fedge_layer_spec *layer = &spec->layers[i];
        bool bias = false;
        if (layer->type == FEDGE_LAYER_LINEAR) {
            bias = layer->u.linear.bias;
        } else if (layer->type == FEDGE_LAYER_CONV2D) {
            bias = layer->u.conv2d.bias;
        } else {
            continue;
        }
        const uint32_t last = tensor + (bias ? 1 : 0);
        if (last >= schema->num_tensors) {
            return fedge_fail(err, FEDGE_MISMATCH,
                              "the schema has %u tensors, fewer than the model: it is not this "
                              "model's",
                              (unsigned)schema->num_tensors);
        }
        const fedge_tensor_spec *weight = &schema->tensors[tensor];
        const size_t fan_in = weight->count / weight->shape[0];
        for (; tensor <= last; tensor++) {
            init_tensor(&schema->tensors[tensor], tensor, fan_in, seed, values);
        }
    }
    return FEDGE_OK;
}
