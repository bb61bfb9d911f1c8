/* PositionalEmbedding: y = x + weight[:steps], a learned vector per position. Not a PyTorch class;
 * there it is an Embedding of 0, 1, 2, … added to the input. x, y: (steps,
 * embedding_dim); weight: (num_embeddings, embedding_dim), at first normal with standard deviation
 * 0.02, as in GPT-2 (Radford et al. 2019). */
#include <string.h>

#include "edge/train/layers/layer.h"

#define INIT_DEVIATION 0.02f
#define AT(member) offsetof(fedge_layer_spec, u.positionalembedding.member)

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t rows = layer->u.positionalembedding.num_embeddings;
    const uint32_t dim = layer->u.positionalembedding.embedding_dim;
    char text[FEDGE_SHAPE_TEXT_SIZE];
    if (in->rank != 2 || in->dims[1] != dim) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the input is %s but must be [steps, embedding_dim], embedding_dim being "
                          "%u",
                          fedge_shape_text(in->rank, in->dims, text), (unsigned)dim);
    }
    if (in->dims[0] > rows) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "num_embeddings is %u but the input has %u steps: each needs one",
                          (unsigned)rows, (unsigned)in->dims[0]);
    }
    *out = *in;
    return FEDGE_OK;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    list[0] = (fedge_layer_tensor){.name = "weight",
                                   .rank = 2,
                                   .shape = {layer->u.positionalembedding.num_embeddings,
                                             layer->u.positionalembedding.embedding_dim},
                                   .init = FEDGE_INIT_NORMAL,
                                   .scale = INIT_DEVIATION};
    return 1;
}

static void forward(const fedge_layer_run *run)
{
    const size_t n = fedge_shape_count(&run->out);
    for (size_t b = 0; b < run->batch; b++) {
        const float *x = run->x[0] + b * n;
        float *y = run->y + b * n;
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] + run->values[0][i];
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t n = fedge_shape_count(&run->out);
    float *gradient = run->gradients[0];
    for (size_t b = 0; gradient && b < run->batch; b++) {
        for (size_t i = 0; i < n; i++)
            gradient[i] += run->dy[b * n + i];
    }
    if (run->dx[0] && run->dx[0] != run->dy)
        memcpy(run->dx[0], run->dy, n * run->batch * sizeof(*run->dy));
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("num_embeddings", AT(num_embeddings)),
    FEDGE_COUNT_ARGUMENT("embedding_dim", AT(embedding_dim)),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_positionalembedding = {.arguments = ARGUMENTS,
                                                         .flags = FEDGE_Y_ON_X | FEDGE_DX_ON_DY |
                                                                  FEDGE_X_IS_STEPS,
                                                         .infer = infer,
                                                         .tensors = tensors,
                                                         .forward = forward,
                                                         .backward = backward};
