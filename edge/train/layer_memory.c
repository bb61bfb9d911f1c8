/* Where a model's bytes go, layer by layer. */
#include <string.h>

#include "edge/train/engine.h"
#include "edge/train/fused/plan.h"
#include "edge/train/graph_plan.h"

static void describe(const fedge_layer_spec *spec, const fedge_model_options *options,
                     const fedge_shape *out, fedge_layer_memory *to)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(spec, list);
    *to = (fedge_layer_memory){.rank = out->rank};
    memcpy(to->shape, out->dims, out->rank * sizeof out->dims[0]);
    for (uint32_t i = 0; i < n; i++) {
        const size_t count = fedge_layer_tensor_count(&list[i]);
        to->parameters += list[i].buffer ? 0 : count;
        to->buffers += list[i].buffer ? count : 0;
        to->values += count * sizeof(float);
    }
    to->optimizer = to->parameters * fedge_states_of_each(options) * sizeof(float);
}

static size_t bytes_of(const fedge_layer_plan *layer, fedge_part part)
{
    return (size_t)layer->parts[part].size * FEDGE_BLOCK_ALIGNMENT;
}

static fedge_status of_graph(const fedge_model_spec *spec, const fedge_model_options *options,
                             const fedge_kernels *kernels, fedge_layer_memory *layers,
                             fedge_error *err)
{
    fedge_graph_plan plan;
    fedge_status status = fedge_graph_plan_make(&plan, spec, options, kernels, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < spec->num_layers; i++) {
        const fedge_layer_plan *layer = &plan.layers[i];
        const size_t forward = bytes_of(layer, FEDGE_PART_FORWARD);
        const size_t backward = bytes_of(layer, FEDGE_PART_BACKWARD);
        describe(&spec->layers[i], options, &layer->out, &layers[i]);
        if (options->weights != FEDGE_STORAGE_FP32) {
            layers[i].values -= layers[i].parameters * (sizeof(float) - sizeof(uint16_t));
        }
        layers[i].output = bytes_of(layer, FEDGE_PART_OUTPUT);
        layers[i].saved = bytes_of(layer, FEDGE_PART_KEPT);
        layers[i].saved += bytes_of(layer, FEDGE_PART_SAVED);
        layers[i].gradient = bytes_of(layer, FEDGE_PART_GRADIENT);
        layers[i].scratch = forward > backward ? forward : backward;
        layers[i].scratch +=
            fedge_keeps_gradients(options) ? layers[i].parameters * sizeof(float) : 0;
    }
    return status;
}

/* Of [size] floats per example, in a batch. */
static size_t batch_bytes(const fedge_model_options *options, size_t size)
{
    return (size_t)fedge_graph_aligned((uint64_t)size * options->max_batch * sizeof(float));
}

/* What a stage takes stands with the last of its layers. */
static fedge_status of_fused(const fedge_model_spec *spec, const fedge_model_options *options,
                             const fedge_kernels *kernels, fedge_layer_memory *layers,
                             fedge_error *err)
{
    const size_t examples = options->training ? options->max_batch : 1;
    fedge_layer_memory *last = NULL;
    fedge_stage_walk walk;
    fedge_shape shape;
    fedge_status status = fedge_shape_input(spec, &shape, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < spec->num_layers; i++) {
        status = fedge_shape_advance(spec, i, &shape, err);
        describe(&spec->layers[i], options, &shape, &layers[i]);
    }
    if (status == FEDGE_OK) {
        status = fedge_stage_walk_begin(&walk, spec, options, kernels->lanes, err);
    }
    for (bool more = true; status == FEDGE_OK && more;) {
        fedge_stage stage;
        status = fedge_stage_walk_next(&walk, &stage, &more, err);
        if (status == FEDGE_OK && more) {
            const bool pools = stage.kind == FEDGE_STAGE_MAXPOOL2D || stage.pooled;
            if (options->training && stage.pass_gradient && !stage.in_place && last != NULL) {
                last->gradient = batch_bytes(options, stage.in.size); /* of the stage before */
            }
            last = &layers[walk.layer == 0 ? 0 : walk.layer - 1];
            last->output += batch_bytes(options, stage.out.size);
            last->saved +=
                pools ? (size_t)fedge_graph_aligned(fedge_stage_pool_size(&stage) * examples) : 0;
            last->scratch += fedge_fused_scratch_bytes(&stage, options->training);
        }
    }
    if (status == FEDGE_OK && last != NULL && options->training) {
        last->gradient = batch_bytes(options, walk.grid.size);
    }
    return status;
}

fedge_status fedge_model_layer_memory(const fedge_model_spec *spec,
                                      const fedge_model_options *options,
                                      fedge_layer_memory *layers, fedge_error *err)
{
    fedge_model_memory memory;
    fedge_status status = fedge_model_size(spec, options, &memory, err);
    if (status != FEDGE_OK) {
        return status;
    }
    const fedge_kernels kernels = fedge_kernels_for(options);
    return fedge_fused_fits(spec, options) ? of_fused(spec, options, &kernels, layers, err)
                                           : of_graph(spec, options, &kernels, layers, err);
}
