/* Where a model's bytes go, layer by layer. */
#include <string.h>

#include "edge/train/model/fused_plan.h"
#include "edge/train/model/graph_plan.h"
#include "edge/train/model/internals.h"
#include "edge/train/model/model_options.h"

/* Of a tensor in int8: rows, scales and sums (int8.h). */
static size_t int8_bytes(const fedge_layer_tensor *tensor)
{
    const size_t rows = tensor->shape[0], length = fedge_layer_tensor_count(tensor) / rows;
    return (rows + FEDGE_INT8_COLUMNS - 1) * fedge_int8_stride(length) +
           rows * (sizeof(float) + sizeof(int32_t));
}

static void describe(const fedge_layer_spec *spec, const fedge_model_options *options,
                     const fedge_shape *out, fedge_layer_memory *to)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(spec, list);
    *to = (fedge_layer_memory){.rank = out->rank};
    memcpy(to->shape, out->dims, out->rank * sizeof(out->dims[0]));
    for (uint32_t i = 0; i < n; i++) {
        const size_t count = fedge_layer_tensor_count(&list[i]);
        to->parameters += list[i].buffer ? 0 : count;
        to->buffers += list[i].buffer ? count : 0;
        to->values +=
            fedge_layer_in_int8(options, &list[i]) ? int8_bytes(&list[i]) : count * sizeof(float);
    }
    to->optimizer = to->parameters * fedge_states_of_each(options) * sizeof(float);
}

static size_t bytes_of(const fedge_layer_plan *layer, fedge_part part)
{
    return (size_t)layer->parts[part].size * FEDGE_BLOCK_ALIGNMENT;
}

/* Takes the layers in their order: all of them, or only which is the largest. */
typedef struct sink {
    fedge_layer_memory *layers; /* or NULL */
    uint32_t count, largest;
    size_t most; /* bytes of the largest */
} sink;

static void put(sink *to, const fedge_layer_memory *layer)
{
    const size_t bytes = layer->values + layer->optimizer + layer->output + layer->saved +
                         layer->gradient + layer->scratch;
    if (bytes > to->most) {
        to->most = bytes;
        to->largest = to->count;
    }
    if (to->layers)
        to->layers[to->count] = *layer;
    to->count++;
}

static fedge_status of_graph(const fedge_model_spec *spec, const fedge_model_options *options,
                             const fedge_kernels *kernels, sink *to, fedge_error *err)
{
    fedge_graph_plan plan;
    fedge_status status = fedge_graph_plan_make(&plan, spec, options, kernels, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < spec->num_layers; i++) {
        const fedge_layer_plan *layer = &plan.layers[i];
        const size_t forward = bytes_of(layer, FEDGE_PART_FORWARD);
        const size_t backward = bytes_of(layer, FEDGE_PART_BACKWARD);
        fedge_layer_memory now;
        describe(&spec->layers[i], options, &layer->out, &now);
        if (options->weights != FEDGE_STORAGE_FP32)
            now.values -= now.parameters * (sizeof(float) - sizeof(uint16_t));
        now.output = bytes_of(layer, FEDGE_PART_OUTPUT);
        now.saved = bytes_of(layer, FEDGE_PART_KEPT);
        now.saved += bytes_of(layer, FEDGE_PART_SAVED);
        now.gradient = bytes_of(layer, FEDGE_PART_GRADIENT);
        now.scratch = forward > backward ? forward : backward;
        now.scratch += fedge_keeps_gradients(options) ? now.parameters * sizeof(float) : 0;
        put(to, &now);
    }
    return status;
}

/* Of [size] floats per example, in a batch. */
static size_t batch_bytes(const fedge_model_options *options, size_t size)
{
    return (size_t)fedge_graph_aligned((uint64_t)size * options->max_batch * sizeof(float));
}

/* A walk over the layers beside that over the stages. */
typedef struct fused_layers {
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    sink *to;
    uint32_t next;          /* layer */
    fedge_shape shape;      /* into it */
    fedge_layer_memory now; /* of the layer before, which later stages add to */
} fused_layers;

static fedge_status walk_to(fused_layers *self, uint32_t end, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (; status == FEDGE_OK && self->next < end; self->next++) {
        if (self->next > 0)
            put(self->to, &self->now);
        status = fedge_shape_advance(self->spec, self->next, &self->shape, err);
        if (status == FEDGE_OK)
            describe(&self->spec->layers[self->next], self->options, &self->shape, &self->now);
    }
    return status;
}

/* What a stage takes stands with the last of its layers, the copy of the input with the first. */
static fedge_status of_fused(const fedge_model_spec *spec, const fedge_model_options *options,
                             const fedge_kernels *kernels, sink *to, fedge_error *err)
{
    const size_t examples = options->training ? options->max_batch : 1;
    fused_layers self = {.spec = spec, .options = options, .to = to};
    fedge_layer_memory *now = &self.now;
    fedge_stage_walk walk;
    fedge_status status = fedge_shape_input(spec, &self.shape, err);
    if (status == FEDGE_OK)
        status = fedge_stage_walk_begin(&walk, spec, options, kernels->lanes, err);
    for (bool more = true; status == FEDGE_OK && more;) {
        fedge_stage stage;
        status = fedge_stage_walk_next(&walk, &stage, &more, err);
        if (status != FEDGE_OK || !more)
            break;
        if (options->training && stage.pass_gradient && !stage.in_place)
            now->gradient = batch_bytes(options, stage.in.size); /* of the stage before */
        const bool pools = stage.kind == FEDGE_STAGE_MAXPOOL2D || stage.pooled;
        status = walk_to(&self, walk.layer == 0 ? 1 : walk.layer, err);
        now->output += batch_bytes(options, stage.out.size);
        now->saved +=
            pools ? (size_t)fedge_graph_aligned(fedge_stage_pool_size(&stage) * examples) : 0;
        now->scratch += fedge_fused_scratch_bytes(&stage, options->training);
    }
    if (status == FEDGE_OK) {
        now->gradient = options->training ? batch_bytes(options, walk.grid.size) : 0;
        status = walk_to(&self, spec->num_layers, err);
        put(to, now);
    }
    return status;
}

static fedge_status fill(const fedge_model_spec *spec, const fedge_model_options *options, sink *to,
                         fedge_error *err)
{
    const fedge_kernels kernels = fedge_kernels_for(options);
    return fedge_fused_fits(spec, options) ? of_fused(spec, options, &kernels, to, err)
                                           : of_graph(spec, options, &kernels, to, err);
}

fedge_status fedge_fill_layer_memory(const fedge_model_spec *spec,
                                     const fedge_model_options *options, fedge_layer_memory *layers,
                                     fedge_error *err)
{
    return fill(spec, options, &(sink){.layers = layers}, err);
}

fedge_status fedge_fail_block(const fedge_model_spec *spec, const fedge_model_options *options,
                              size_t needed, size_t given, fedge_error *err)
{
    sink all = {0};
    char label[FEDGE_MAX_LAYER_NAME];
    const fedge_status status = fill(spec, options, &all, err);
    if (status != FEDGE_OK)
        return status; /* not after fedge_model_size has passed */
    return fedge_fail(
        err, FEDGE_TOO_BIG,
        "the model needs a block of %zu bytes but was given %zu; layer %u (%s \"%s\") "
        "takes the most, %zu, not all at once",
        needed, given, (unsigned)all.largest, fedge_layer_type_name(spec->layers[all.largest].type),
        fedge_layer_label(&spec->layers[all.largest], all.largest, label), all.most);
}
