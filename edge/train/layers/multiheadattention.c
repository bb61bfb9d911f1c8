/* MultiheadAttention as self-attention: y = attention(x Winᵀ + bin) Woutᵀ + bout, see
 * attention.h. x, y: (steps, embed_dim). Names and initialisers are PyTorch's; is_causal is an
 * argument of its forward there. Dropout is of the attention's weights, as there. */
#include "edge/train/layers/affine.h"
#include "edge/train/layers/attention.h"

#define AT(member) offsetof(fedge_layer_spec, u.multiheadattention.member)

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    if (!layer->u.multiheadattention.batch_first) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "batch_first is false, but sequences are always [batch, steps, "
                          "features] here: set it to true");
    }
    *out = *in;
    return fedge_attention_check(in, layer->u.multiheadattention.embed_dim,
                                 layer->u.multiheadattention.num_heads, "embed_dim", "num_heads",
                                 err);
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    return fedge_attention_tensors(layer->u.multiheadattention.embed_dim,
                                   layer->u.multiheadattention.bias, false, list);
}

/* Saved by forward for one chunk of examples: q, k and v, the context, fedge_softmax.saved, and the
 * mask of dropout. */
typedef struct record {
    float *qkv, *context, *softmax;
    uint8_t *mask;
} record;

/* Bytes per example, a multiple of 4. */
static uint64_t record_bytes(const fedge_layer_run *run)
{
    const uint64_t steps = run->in[0].dims[0], dim = run->in[0].dims[1];
    const uint64_t heads = run->spec->u.multiheadattention.num_heads;
    const uint64_t floats = steps * 4 * dim + FEDGE_ATTENTION_SOFTMAX(steps, heads);
    const bool drops = run->spec->u.multiheadattention.dropout > 0.0f;
    const uint64_t bits = drops ? FEDGE_ATTENTION_MASK(steps, heads) : 0;
    return floats * sizeof(float) + (bits + 3) / 4 * 4;
}

static record record_at(const fedge_layer_run *run, void *base, size_t examples)
{
    const size_t steps = run->in[0].dims[0], dim = run->in[0].dims[1];
    const size_t heads = run->spec->u.multiheadattention.num_heads;
    record made = {.qkv = base};
    made.context = made.qkv + examples * steps * 3 * dim;
    made.softmax = made.context + examples * steps * dim;
    made.mask = run->spec->u.multiheadattention.dropout > 0.0f
                    ? (uint8_t *)(made.softmax + examples * heads * steps * 2)
                    : NULL;
    return made;
}

/* Floats of fedge_attention's working memory. */
static size_t core_floats(const fedge_layer_run *run)
{
    return (size_t)fedge_attention_scratch(run->in[0].dims[0], run->in[0].dims[1],
                                           run->spec->u.multiheadattention.num_heads);
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    const uint64_t steps = run->in[0].dims[0], dim = run->in[0].dims[1];
    const uint64_t chunk = fedge_attention_chunk(steps, run->batch);
    const uint64_t core = (uint64_t)core_floats(run) * sizeof(float);
    need->saved = run->batch * record_bytes(run);
    need->forward = core + chunk * record_bytes(run);
    need->backward = core + chunk * steps * 4 * dim * sizeof(float);
}

/* The two products around the attention, over the rows of [examples]. */
typedef struct parts {
    fedge_attention core;
    fedge_affine in, out;
} parts;

static parts parts_of(const fedge_layer_run *run, size_t examples)
{
    const size_t steps = run->in[0].dims[0], dim = run->in[0].dims[1];
    const bool bias = run->spec->u.multiheadattention.bias;
    const unsigned out = bias ? 2 : 1; /* index of out_proj.weight */
    const fedge_affine common = {.kernels = run->kernels,
                                 .gemm_pack = run->gemm_pack,
                                 .rows = examples * steps,
                                 .in = dim,
                                 .out = dim};
    parts made = {.core = {.kernels = run->kernels,
                           .gemm_pack = run->gemm_pack,
                           .examples = examples,
                           .steps = steps,
                           .embed_dim = dim,
                           .heads = run->spec->u.multiheadattention.num_heads,
                           .causal = run->spec->u.multiheadattention.is_causal,
                           .dropout = run->training ? run->spec->u.multiheadattention.dropout : 0},
                  .in = common,
                  .out = common};
    made.in.out = 3 * dim;
    made.in.weight = run->values[0];
    made.in.weight_gradient = run->gradients[0];
    made.out.weight = run->values[out];
    made.out.weight_gradient = run->gradients[out];
    if (bias) {
        made.in.bias = run->values[1];
        made.in.bias_gradient = run->gradients[1];
        made.out.bias = run->values[3];
        made.out.bias_gradient = run->gradients[3];
    }
    return made;
}

static void forward(const fedge_layer_run *run)
{
    const size_t steps = run->in[0].dims[0], example = steps * run->in[0].dims[1];
    const size_t chunk = fedge_attention_chunk(steps, run->batch);
    uint8_t *base = run->saved;
    float *scratch = run->scratch;
    for (size_t first = 0, n; first < run->batch; first += n) {
        n = fedge_attention_next(chunk, run->batch - first);
        const parts at = parts_of(run, n);
        const record saved = record_at(run, !base ? (void *)(scratch + core_floats(run)) : base, n);
        fedge_affine_forward(&at.in, run->x[0] + first * example, saved.qkv);
        fedge_attention_forward(&at.core, saved.qkv, saved.context, saved.softmax, saved.mask,
                                run->rng, scratch);
        fedge_affine_forward(&at.out, saved.context, run->y + first * example);
        base = !base ? NULL : base + n * (size_t)record_bytes(run);
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t steps = run->in[0].dims[0], example = steps * run->in[0].dims[1];
    const size_t chunk = fedge_attention_chunk(steps, run->batch);
    uint8_t *base = run->saved;
    float *dqkv = (float *)run->scratch + core_floats(run);
    float *dcontext = dqkv + chunk * example * 3;
    for (size_t first = 0, n; first < run->batch; first += n) {
        n = fedge_attention_next(chunk, run->batch - first);
        const parts at = parts_of(run, n);
        const record saved = record_at(run, base, n);
        const float *dy = run->dy + first * example;
        fedge_affine_gradients(&at.out, saved.context, dy);
        fedge_affine_backward(&at.out, dy, dcontext);
        fedge_attention_backward(&at.core, saved.qkv, saved.softmax, saved.mask, dcontext, dqkv,
                                 run->scratch);
        fedge_affine_gradients(&at.in, run->x[0] + first * example, dqkv);
        if (run->dx[0])
            fedge_affine_backward(&at.in, dqkv, run->dx[0] + first * example);
        base += n * (size_t)record_bytes(run);
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("embed_dim", AT(embed_dim)),
    FEDGE_COUNT_ARGUMENT("num_heads", AT(num_heads)),
    FEDGE_F32_ARGUMENT("dropout", AT(dropout), 0, 1, 0),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_BOOL_ARGUMENT("batch_first", AT(batch_first), 1),
    FEDGE_BOOL_ARGUMENT("is_causal", AT(is_causal), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_multiheadattention = {
    .arguments = ARGUMENTS,
    .flags = FEDGE_USES_X | FEDGE_Y_ON_X | FEDGE_DX_ON_DY | FEDGE_X_IS_STEPS,
    .infer = infer,
    .tensors = tensors,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
};
