/* Scaled dot-product self-attention with several heads (Vaswani et al. 2017); private to
 * edge/train/layers, and to edge/train/cuda, which draws random numbers in the same order.
 *
 *   S = q kᵀ / √head_dim,  P = softmax(S) by rows,  context = P v
 *
 * With llm.c's B (examples), T (steps), NH (heads) and HS (head_dim): qkv is (B, T, 3, NH, HS) and
 * context (B, T, NH, HS). P is never saved: as in FlashAttention (Dao et al. 2022), the backward
 * pass recomputes it from q, k and two numbers per row, a band of ATTENTION_ROWS rows at a time.
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
    bool causal;                              /* a step attends to itself and earlier ones */
    float dropout;                            /* probability for P; 0 in evaluation */
} fedge_attention;

/* Per example: floats of [softmax], and bytes of [mask] with dropout. */
#define FEDGE_ATTENTION_SOFTMAX(steps, heads) (2 * (uint64_t)(steps) * (heads))
#define FEDGE_ATTENTION_MASK(steps, heads)                                                         \
    ((uint64_t)(steps) * (heads) * (((uint64_t)(steps) + 7) / 8))

/* Examples that layers process at a time: as many whole ones as fill 160 rows, the least for full
 * speed, which keeps intermediate arrays small. */
uint32_t fedge_attention_chunk(uint64_t steps, uint32_t batch);

/* The size of the next chunk of the [left] examples: at most [chunk], and nearly equal for all. */
size_t fedge_attention_next(size_t chunk, size_t left);

/* Checks that the input is (steps, embed_dim), and embed_dim a multiple of heads. width, count: the
 * layer's names of the two. */
FEDGE_MUST_USE fedge_status fedge_attention_check(const fedge_shape *in, uint32_t embed_dim,
                                                  uint32_t heads, const char *width,
                                                  const char *count, fedge_error *err);

/* in_proj_weight (3E, E), in_proj_bias (3E), out_proj.weight (E, E), out_proj.bias (E); without
 * the biases unless [bias]. With [inner], names begin with "self_attn.". Returns their number. */
uint32_t fedge_attention_tensors(uint32_t embed_dim, bool bias, bool inner,
                                 fedge_layer_tensor *list);

/* Floats of working memory of either pass, for any number of examples. */
uint64_t fedge_attention_scratch(uint64_t steps, uint64_t embed_dim, uint64_t heads);

/* softmax: (examples, heads, steps, 2), as fedge_softmax.saved. mask: (examples, heads, steps,
 * bytes of a bit per step), or NULL. With dropout, draws one number from [rng] for each element of
 * P that is not masked, in the order of example, head, row and column. */
void fedge_attention_forward(const fedge_attention *self, const float *qkv, float *context,
                             float *softmax, uint8_t *mask, fedge_rng *rng, float *scratch);

/* Computes dqkv from [dcontext], in the layouts of qkv and context. */
void fedge_attention_backward(const fedge_attention *self, const float *qkv, float *softmax,
                              uint8_t *mask, const float *dcontext, float *dqkv, float *scratch);

#endif
