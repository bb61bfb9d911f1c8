/* The parameters of a model's specification, their initial values, and properties of options. */
#include <assert.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/train/kernels/half.h"
#include "edge/train/layers/layer.h"
#include "edge/train/losses/losses.h"
#include "edge/train/model.h"
#include "edge/train/model/internals.h"
#include "edge/train/optimizers/optimizers.h"

/* Adds the parameters, or the buffers, of one layer. */
static fedge_status add_tensors(const fedge_model_spec *spec, uint32_t index, bool buffers,
                                fedge_schema *schema, fedge_error *err)
{
    const fedge_layer_spec *layer = &spec->layers[index];
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, list);
    char label[FEDGE_MAX_LAYER_NAME], name[FEDGE_MAX_TENSOR_NAME];
    const char *layer_name = fedge_layer_label(layer, index, label);
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].buffer != buffers)
            continue;
        (void)fedge_os_format(name, sizeof(name), "%s.%s", layer_name, list[i].name);
        fedge_status status =
            fedge_schema_add(schema, name, FEDGE_F32, list[i].rank, list[i].shape, err);
        if (status != FEDGE_OK)
            return fedge_layer_prefix(layer, index, status, err);
    }
    return FEDGE_OK;
}

fedge_status fedge_model_schema(const fedge_model_spec *spec, fedge_schema *schema,
                                fedge_error *err)
{
    fedge_shape output;
    FEDGE_TRY(fedge_loss_check(spec, err));
    FEDGE_TRY(fedge_shape_model(spec, &output, err));
    for (uint32_t i = 0; i < spec->num_layers; i++)
        FEDGE_TRY(add_tensors(spec, i, false, schema, err));
    return fedge_shape_output(&output, schema->num_elements, err);
}

fedge_status fedge_model_buffer_schema(const fedge_model_spec *spec, fedge_schema *schema,
                                       fedge_error *err)
{
    for (uint32_t i = 0; i < spec->num_layers; i++)
        FEDGE_TRY(add_tensors(spec, i, true, schema, err));
    return FEDGE_OK;
}

bool fedge_model_trains(const fedge_model_spec *spec, uint32_t index)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
        const uint32_t n = fedge_layer_tensors(&spec->layers[i], list);
        for (uint32_t t = 0; t < n; t++) {
            if (!list[t].buffer && at++ == index)
                return fedge_layer_trains(&spec->layers[i], &list[t]);
        }
    }
    return false;
}

uint32_t fedge_model_num_classes(const fedge_model_spec *spec)
{
    fedge_shape output = {0};
    const fedge_status status = fedge_shape_model(spec, &output, NULL);
    assert(status == FEDGE_OK && output.rank == 1);
    (void)status;
    return output.dims[0];
}

size_t fedge_model_input_count(const fedge_model_spec *spec)
{
    fedge_shape shape = {0};
    const fedge_status status = fedge_shape_input(spec, &shape, NULL);
    assert(status == FEDGE_OK);
    (void)status;
    return fedge_shape_count(&shape);
}

static void init_tensor(const fedge_layer_tensor *tensor, fedge_rng *rng, float *values)
{
    const size_t count = fedge_layer_tensor_count(tensor);
    for (size_t i = 0; i < count; i++) {
        switch (tensor->init) {
        case FEDGE_INIT_UNIFORM:
            values[i] = (2.0f * fedge_rng_float(rng) - 1.0f) * tensor->scale;
            break;
        case FEDGE_INIT_NORMAL:
            values[i] = (float)fedge_rng_normal(rng) * tensor->scale;
            break;
        case FEDGE_INIT_CONSTANT:
            values[i] = tensor->scale;
            break;
        case FEDGE_INIT_ONE:
            values[i] = 1.0f;
            break;
        case FEDGE_INIT_ZERO:
        default:
            values[i] = 0.0f;
            break;
        }
    }
}

void fedge_model_init_values(const fedge_model_spec *spec, uint64_t seed, float *values)
{
    uint32_t tensor = 0;
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
        const uint32_t n = fedge_layer_tensors(&spec->layers[i], list);
        for (uint32_t t = 0; t < n; t++) {
            if (!list[t].buffer) {
                fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_INIT, tensor++, 0, 0);
                init_tensor(&list[t], &rng, values);
                values += fedge_layer_tensor_count(&list[t]);
            }
        }
    }
}

void fedge_model_init_buffers(const fedge_model_spec *spec, float *values)
{
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
        const uint32_t n = fedge_layer_tensors(&spec->layers[i], list);
        for (uint32_t t = 0; t < n; t++) {
            if (list[t].buffer) {
                fedge_rng rng = fedge_rng_stream(0, FEDGE_PURPOSE_INIT, t, 0, 0);
                init_tensor(&list[t], &rng, values);
                values += fedge_layer_tensor_count(&list[t]);
            }
        }
    }
}

unsigned fedge_model_features(const fedge_model_options *options)
{
    return fedge_os_cpu_features() & ~options->disabled_cpu_features;
}

fedge_kernels fedge_kernels_for(const fedge_model_options *options)
{
    const unsigned features = fedge_model_features(options);
    const fedge_kernels *table = fedge_kernels_choose(features);
    return options->precision == FEDGE_PRECISION_BF16 ? fedge_kernels_in_bf16(table, features)
                                                      : *table;
}

const char *fedge_precision_name(fedge_precision precision)
{
    static const char *const NAMES[] = {"fp32", "bf16", "tf32", "int8"};
    return (unsigned)precision < FEDGE_PRECISION_COUNT ? NAMES[precision] : NULL;
}

const char *fedge_storage_name(fedge_storage storage)
{
    static const char *const NAMES[] = {"fp32", "bf16", "fp16"};
    return (unsigned)storage < FEDGE_STORAGE_COUNT ? NAMES[storage] : NULL;
}

bool fedge_multiplies_fp32(const fedge_model_options *options)
{
    return options->precision == FEDGE_PRECISION_FP32 || options->precision == FEDGE_PRECISION_TF32;
}

fedge_status fedge_model_check_options(const fedge_model_spec *spec,
                                       const fedge_model_options *options, fedge_error *err)
{
    if (options->max_batch == 0 || options->max_batch > FEDGE_MAX_BATCH) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "max_batch is %u: give 1 to %d",
                          (unsigned)options->max_batch, FEDGE_MAX_BATCH);
    }
    if (!fedge_optimizer_ops_of(options->optimizer)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown optimizer type %d",
                          (int)options->optimizer);
    }
    if (!fedge_precision_name(options->precision))
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown precision %d", (int)options->precision);
    if (!fedge_storage_name(options->activations)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown storage of activations %d",
                          (int)options->activations);
    }
    if (!fedge_storage_name(options->weights)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "unknown storage of weights %d",
                          (int)options->weights);
    }
    if (options->precision == FEDGE_PRECISION_INT8 && options->weights != FEDGE_STORAGE_FP32) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "precision int8 keeps its own weights: leave their storage at fp32");
    }
    if (options->precision == FEDGE_PRECISION_INT8 && options->training) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "precision int8 is for evaluation: make the model without training");
    }
    return fedge_loss_check(spec, err);
}

uint32_t fedge_micro_batch(const fedge_model_options *options)
{
    const uint32_t part = options->micro_batch;
    return part > 0 && part < options->max_batch ? part : options->max_batch;
}

bool fedge_stores_gradients(const fedge_model_options *options)
{
    return options->training && (options->clip || fedge_micro_batch(options) < options->max_batch);
}

uint32_t fedge_states_per_parameter(const fedge_model_options *options)
{
    const uint32_t anchors = options->training && options->proximal;
    const uint32_t corrections = options->training && options->correction;
    return fedge_optimizer_states(options) + anchors + corrections;
}
