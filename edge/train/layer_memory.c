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

/* Which layers are asked for: [count] from [first] on, into layers[0] and on. */
typedef struct wanted {
    uint32_t first, count;
    fedge_layer_memory *layers;
} wanted;

/* Where layer [index] goes; NULL: it is not asked for. */
static fedge_layer_memory *place_of(const wanted *want, uint32_t index)
{
    return index - want->first < want->count ? &want->layers[index - want->first] : NULL;
}

static fedge_status of_graph(const fedge_model_spec *spec, const fedge_model_options *options,
                             const fedge_kernels *kernels, const wanted *want, fedge_error *err)
{
    fedge_graph_plan plan;
    fedge_status status = fedge_graph_plan_make(&plan, spec, options, kernels, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < want->count; i++) {
        const fedge_layer_plan *layer = &plan.layers[want->first + i];
        const size_t forward = bytes_of(layer, FEDGE_PART_FORWARD);
        const size_t backward = bytes_of(layer, FEDGE_PART_BACKWARD);
        fedge_layer_memory *to = &want->layers[i];
        describe(&spec->layers[want->first + i], options, &layer->out, to);
        if (options->weights != FEDGE_STORAGE_FP32) {
            to->values -= to->parameters * (sizeof(float) - sizeof(uint16_t));
        }
        to->output = bytes_of(layer, FEDGE_PART_OUTPUT);
        to->saved = bytes_of(layer, FEDGE_PART_KEPT);
        to->saved += bytes_of(layer, FEDGE_PART_SAVED);
        to->gradient = bytes_of(layer, FEDGE_PART_GRADIENT);
        to->scratch = forward > backward ? forward : backward;
        to->scratch += fedge_keeps_gradients(options) ? to->parameters * sizeof(float) : 0;
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
                             const fedge_kernels *kernels, const wanted *want, fedge_error *err)
{
    const size_t examples = options->training ? options->max_batch : 1;
    fedge_layer_memory ignored, *last = NULL;
    fedge_stage_walk walk;
    fedge_shape shape;
    fedge_status status = fedge_shape_input(spec, &shape, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < spec->num_layers; i++) {
        status = fedge_shape_advance(spec, i, &shape, err);
        if (place_of(want, i) != NULL) {
            describe(&spec->layers[i], options, &shape, place_of(want, i));
        }
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
            last = place_of(want, walk.layer == 0 ? 0 : walk.layer - 1);
            if (last == NULL) {
                ignored = (fedge_layer_memory){0};
                last = &ignored;
            }
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

static fedge_status fill(const fedge_model_spec *spec, const fedge_model_options *options,
                         const wanted *want, fedge_error *err)
{
    const fedge_kernels kernels = fedge_kernels_for(options);
    return fedge_fused_fits(spec, options) ? of_fused(spec, options, &kernels, want, err)
                                           : of_graph(spec, options, &kernels, want, err);
}

fedge_status fedge_model_layer_memory(const fedge_model_spec *spec,
                                      const fedge_model_options *options,
                                      fedge_layer_memory *layers, fedge_error *err)
{
    fedge_model_memory memory;
    fedge_status status = fedge_model_size(spec, options, &memory, err);
    return status == FEDGE_OK ? fill(spec, options, &(wanted){0, spec->num_layers, layers}, err)
                              : status;
}

uint32_t fedge_largest_layer(const fedge_model_spec *spec, const fedge_model_options *options,
                             size_t *bytes)
{
    uint32_t largest = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        fedge_layer_memory layer = {0};
        if (fill(spec, options, &(wanted){i, 1, &layer}, NULL) != FEDGE_OK) {
            break; /* not after fedge_model_size has passed */
        }
        const size_t all = layer.values + layer.optimizer + layer.output + layer.saved +
                           layer.gradient + layer.scratch;
        if (all > *bytes) {
            *bytes = all;
            largest = i;
        }
    }
    return largest;
}
