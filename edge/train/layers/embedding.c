/* Embedding: row x[t] of the weight for each index. x: (steps) indices as whole numbers, exact up
 * to 2^24; weight: (num_embeddings, embedding_dim); y: (steps, embedding_dim). */
#include <string.h>

#include "edge/train/layers/layer.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t rows = layer->u.embedding.num_embeddings, dim = layer->u.embedding.embedding_dim;
    if (rows == 0 || dim == 0 || rows > FEDGE_ARGUMENT_MAX_COUNT) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "num_embeddings %u must be 1 to %d and embedding_dim %u at least 1",
                          (unsigned)rows, (int)FEDGE_ARGUMENT_MAX_COUNT, (unsigned)dim);
    }
    fedge_status status = fedge_shape_need(in, 1, "[steps]", err);
    *out = (fedge_shape){2, {in->dims[0], dim}};
    return status;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    list[0] = (fedge_layer_tensor){
        .name = "weight",
        .rank = 2,
        .shape = {layer->u.embedding.num_embeddings, layer->u.embedding.embedding_dim},
        .init = FEDGE_INIT_NORMAL,
        .scale = 1.0f};
    return 1;
}

static size_t count_of(const fedge_layer_run *run)
{
    return (size_t)run->in[0].dims[0] * run->batch;
}

static fedge_status check(const fedge_layer_run *run, fedge_error *err)
{
    const uint32_t rows = run->spec->u.embedding.num_embeddings;
    for (size_t i = 0; run->x[0] && i < count_of(run); i++) {
        const float x = run->x[0][i];
        if (!(x >= 0.0f && x < (float)rows) || (float)(uint32_t)x != x) {
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "index %g at place %zu of the batch is not a whole number in 0 to %u",
                              (double)x, i, (unsigned)rows - 1);
        }
    }
    return FEDGE_OK;
}

static void forward(const fedge_layer_run *run)
{
    const size_t dim = run->spec->u.embedding.embedding_dim;
    for (size_t i = 0; i < count_of(run); i++) {
        memcpy(run->y + i * dim, run->values[0] + (size_t)run->x[0][i] * dim,
               dim * sizeof(*run->y));
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t dim = run->spec->u.embedding.embedding_dim;
    for (size_t i = 0; run->gradients[0] && i < count_of(run); i++) {
        float *row = run->gradients[0] + (size_t)run->x[0][i] * dim;
        for (size_t k = 0; k < dim; k++)
            row[k] += run->dy[i * dim + k];
    }
    if (run->dx[0]) { /* an index has no gradient */
        memset(run->dx[0], 0, count_of(run) * sizeof(*run->dx[0]));
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("num_embeddings", offsetof(fedge_layer_spec, u.embedding.num_embeddings)),
    FEDGE_COUNT_ARGUMENT("embedding_dim", offsetof(fedge_layer_spec, u.embedding.embedding_dim)),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_embedding = {.arguments = ARGUMENTS,
                                               .flags = FEDGE_USES_X | FEDGE_EXACT_X,
                                               .infer = infer,
                                               .tensors = tensors,
                                               .check = check,
                                               .forward = forward,
                                               .backward = backward};
