/* Scaled dot-product attention of a sequence with itself (Vaswani et al. 2017), by heads; private
 * to edge/train/layers, and to edge/train/cuda, which draws in its order.
 *
 *   S = q kᵀ / √head_dim,  P = softmax(S) by rows,  context = P v
 *
 * qkv: (examples, steps, 3 · embed_dim), each row q, k, v one after another and each of these its
 * heads one after another; context: (examples, steps, embed_dim). P is never kept: as in
 * FlashAttention (Dao et al. 2022) the backward pass makes it again from q, k and two numbers a
 * row, a band of ATTENTION_ROWS rows at a time.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_ATTENTION_H
#define FEDGE_EDGE_TRAIN_LAYERS_ATTENTION_H

#include "edge/core/rng.h"
#include "edge/train/layers/layer.h"

#define FEDGE_MAX_ATTENTION_STEPS 65536

typedef struct fedge_attention {
    const fedge_kernels *kernels;
    float *gemm_pack;
    size_t examples, steps, embed_dim, heads; /* embed_dim a multiple of heads */
    bool causal;                              /* a step sees itself and those before it */
    float dropout;                            /* of P; 0: none, also in evaluation */
} fedge_attention;

/* For an example: floats of [softmax], and bytes of [mask] with dropout. */
#define FEDGE_ATTENTION_SOFTMAX(steps, heads) (2 * (uint64_t)(steps) * (heads))
#define FEDGE_ATTENTION_MASK(steps, heads)                                                         \
    ((uint64_t)(steps) * (heads) * (((uint64_t)(steps) + 7) / 8))

/* Layers work on this many examples at a time, so that what they make on the way stays small: as
 * many whole ones as fill 160 rows, from which on products are as fast as they will be. */
uint32_t fedge_attention_chunk(uint64_t steps, uint32_t batch);

/* How many of the [left] examples come next, so that chunks are of even sizes up to [chunk]. */
size_t fedge_attention_next(size_t chunk, size_t left);

/* Refuses what is not (steps, embed_dim) with embed_dim a multiple of heads. [width], [count]: what
 * the layer calls the two. */
FEDGE_MUST_USE fedge_status fedge_attention_check(const fedge_shape *in, uint32_t embed_dim,
                                                  uint32_t heads, const char *width,
                                                  const char *count, fedge_error *err);

/* in_proj_weight (3E, E), in_proj_bias (3E), out_proj.weight (E, E), out_proj.bias (E); without
 * the biases unless [bias]. [inner]: names begin with "self_attn.". Returns how many. */
uint32_t fedge_attention_tensors(uint32_t embed_dim, bool bias, bool inner,
                                 fedge_layer_tensor *list);

/* Floats of working memory for either pass, whatever the number of examples. */
uint64_t fedge_attention_scratch(uint64_t steps, uint64_t embed_dim, uint64_t heads);

/* softmax: (examples, heads, steps, 2), what fedge_softmax keeps of each row. kept: (examples,
 * heads, steps, bytes of a bit per step), NULL: not kept. Draws, with dropout, one number from
 * [rng] per step seen, by example, head, step and step seen. */
void fedge_attention_forward(const fedge_attention *self, const float *qkv, float *context,
                             float *softmax, uint8_t *mask, fedge_rng *rng, float *scratch);

/* dqkv from [dcontext], in the layouts of qkv and context. */
void fedge_attention_backward(const fedge_attention *self, const float *qkv, float *softmax,
                              uint8_t *mask, const float *dcontext, float *dqkv, float *scratch);

#endif
