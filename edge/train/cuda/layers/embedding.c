/* Embedding and PositionalEmbedding. */
#include "edge/train/cuda/layer.h"

static fedge_cohort_embedding describe(const fedge_cohort_layer *layer,
                                       const fedge_cohort_pass *pass)
{
    const bool positions = layer->spec.type == FEDGE_LAYER_POSITIONALEMBEDDING;
    const size_t first = layer->first_value;
    return (fedge_cohort_embedding){.weight = {pass->values.values + first, pass->values.stride},
                                    .rows = positions
                                                ? layer->spec.u.positionalembedding.num_embeddings
                                                : layer->spec.u.embedding.num_embeddings,
                                    .dim = layer->out.dims[1],
                                    .steps = layer->out.dims[0],
                                    .x = layer->x[0],
                                    .y = layer->y,
                                    .dy = layer->dy,
                                    .dweight = pass->gradients ? pass->gradients + first : NULL,
                                    .gradient_stride = pass->gradient_stride};
}

static cudaError_t embed(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_embedding args = describe(layer, pass);
    return fedge_cohort_launch_embedding(&pass->shape, &args);
}

/* An index has no gradient. */
static cudaError_t embed_backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_embedding args = describe(layer, pass);
    return fedge_cohort_launch_embedding_backward(&pass->shape, &args);
}

static cudaError_t add_positions(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    const fedge_cohort_embedding args = describe(layer, pass);
    return fedge_cohort_launch_positions(&pass->shape, &args);
}

static cudaError_t positions_backward(const fedge_cohort_layer *layer,
                                      const fedge_cohort_pass *pass)
{
    const fedge_cohort_embedding args = describe(layer, pass);
    const fedge_cohort_add copy = {
        .from = layer->dy, .to = pass->dx, .values = (uint32_t)fedge_shape_count(&layer->out)};
    const cudaError_t error = fedge_cohort_launch_positions_backward(&pass->shape, &args);
    return error == cudaSuccess && pass->dx ? fedge_cohort_launch_add(&pass->shape, &copy) : error;
}

const fedge_cohort_layer_ops fedge_cohort_layer_embedding = {.forward = embed,
                                                             .backward = embed_backward};
const fedge_cohort_layer_ops fedge_cohort_layer_positionalembedding = {
    .forward = add_positions, .backward = positions_backward};
