/* A model's memory: the arena, and the bytes of each layer. */
#include "edge/train/model/internals.h"

#include <string.h>

#include "edge/train/model/graph_plan.h"

#define ALIGNMENT ((size_t)FEDGE_BLOCK_ALIGNMENT)

void *fedge_arena_take(fedge_arena *arena, size_t count, size_t element_size, size_t *account)
{
    if (count > (SIZE_MAX - ALIGNMENT) / element_size ||
        arena->used > SIZE_MAX - ALIGNMENT - count * element_size) {
        arena->overflow = true;
        return NULL;
    }
    const size_t bytes = (count * element_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *part = !arena->block ? NULL : arena->block + arena->used;
    arena->used += bytes;
    *account += bytes;
    return part;
}

size_t fedge_arena_product(size_t a, size_t b)
{
    return b != 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* ---- the bytes of each layer ---- */

/* Bytes of a tensor in int8: rows, scales and sums (int8.h). */
static size_t int8_bytes(const fedge_layer_tensor *tensor)
{
    const size_t rows = tensor->shape[0], length = fedge_layer_tensor_count(tensor) / rows;
    return (rows + FEDGE_INT8_COLUMNS - 1) * fedge_int8_stride(length) +
           rows * (sizeof(float) + sizeof(int32_t));
}

fedge_layer_memory fedge_describe_layer(const fedge_layer_spec *layer,
                                        const fedge_model_options *options, uint32_t rank,
                                        const uint32_t *shape)
{
    fedge_layer_memory described = {.rank = rank};
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, list);
    memcpy(described.shape, shape, rank * sizeof(*shape));
    for (uint32_t i = 0; i < n; i++) {
        const size_t count = fedge_layer_tensor_count(&list[i]);
        described.parameters += list[i].buffer ? 0 : count;
        described.buffers += list[i].buffer ? count : 0;
        described.values +=
            fedge_layer_in_int8(options, &list[i]) ? int8_bytes(&list[i]) : count * sizeof(float);
    }
    described.optimizer =
        described.parameters * fedge_states_per_parameter(options) * sizeof(float);
    return described;
}

static size_t bytes_of(const fedge_layer_plan *layer, fedge_part part)
{
    return (size_t)layer->parts[part].size * FEDGE_BLOCK_ALIGNMENT;
}

void fedge_memory_put(fedge_memory_sink *sink, const fedge_layer_memory *layer)
{
    const size_t bytes = layer->values + layer->optimizer + layer->output + layer->saved +
                         layer->gradient + layer->scratch;
    if (bytes > sink->largest_bytes) {
        sink->largest_bytes = bytes;
        sink->largest = sink->count;
    }
    if (sink->layers)
        sink->layers[sink->count] = *layer;
    sink->count++;
}

fedge_status fedge_graph_layer_memory(const fedge_model_spec *spec,
                                      const fedge_model_options *options,
                                      const fedge_kernels *kernels, fedge_memory_sink *sink,
                                      fedge_error *err)
{
    fedge_graph_plan plan;
    FEDGE_TRY(fedge_graph_plan_make(&plan, spec, options, kernels, err));
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        const fedge_layer_plan *layer = &plan.layers[i];
        const size_t forward = bytes_of(layer, FEDGE_PART_FORWARD);
        const size_t backward = bytes_of(layer, FEDGE_PART_BACKWARD);
        fedge_layer_memory now =
            fedge_describe_layer(&spec->layers[i], options, layer->out.rank, layer->out.dims);
        if (options->weights != FEDGE_STORAGE_FP32)
            now.values -= now.parameters * (sizeof(float) - sizeof(uint16_t));
        now.output = bytes_of(layer, FEDGE_PART_OUTPUT);
        now.saved = bytes_of(layer, FEDGE_PART_HALF);
        now.saved += bytes_of(layer, FEDGE_PART_SAVED);
        now.gradient = bytes_of(layer, FEDGE_PART_GRADIENT);
        now.scratch = forward > backward ? forward : backward;
        now.scratch += fedge_stores_gradients(options) ? now.parameters * sizeof(float) : 0;
        fedge_memory_put(sink, &now);
    }
    return FEDGE_OK;
}
