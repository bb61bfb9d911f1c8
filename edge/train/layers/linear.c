/* Linear: y = x Wᵀ + b on the last dimension. x: (…, in_features), W: (out, in), b: (out).
 *
 * With r > 0 low-rank adaptation (Hu et al. 2021), with names and arguments of loralib: W and b are
 * frozen, and y += lora_alpha / r · x Aᵀ Bᵀ is trained. lora_A: (r, in), lora_B: (out, r).
 */
#include "edge/train/layers/affine.h"
#include "edge/train/layers/convolution.h"

enum { WEIGHT, BIAS };

/* Most rows of x for which one pass over the weights that also steps them is fastest. */
#define MAX_STEP_ROWS 64u

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t in_features = layer->u.linear.in_features,
                   out_features = layer->u.linear.out_features;
    char text[FEDGE_SHAPE_TEXT_SIZE];
    if (in_features == 0 || out_features == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_features %u and out_features %u must be at least 1",
                          (unsigned)in_features, (unsigned)out_features);
    }
    const uint32_t has = in->dims[in->rank - 1];
    if (has != in_features && in->rank > 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the input is %s but its last dimension must be in_features, %u: put a "
                          "Flatten before it to join the dimensions",
                          fedge_shape_text(in->rank, in->dims, text), (unsigned)in_features);
    }
    if (has != in_features) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_features is %u but the layer before gives %u", (unsigned)in_features,
                          (unsigned)has);
    }
    *out = *in;
    out->dims[out->rank - 1] = out_features;
    return FEDGE_OK;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    const uint32_t in = layer->u.linear.in_features, out = layer->u.linear.out_features;
    const float bound = fedge_init_bound(in);
    const uint32_t r = layer->u.linear.r;
    uint32_t n = 0;
    list[n++] = (fedge_layer_tensor){.name = "weight",
                                     .factor = true,
                                     .frozen = r > 0,
                                     .rank = 2,
                                     .shape = {out, in},
                                     .init = FEDGE_INIT_UNIFORM,
                                     .scale = bound};
    if (layer->u.linear.bias) {
        list[n++] = (fedge_layer_tensor){.name = "bias",
                                         .frozen = r > 0,
                                         .rank = 1,
                                         .shape = {out},
                                         .init = FEDGE_INIT_UNIFORM,
                                         .scale = bound};
    }
    if (r > 0) {
        list[n++] = (fedge_layer_tensor){.name = "lora_A",
                                         .rank = 2,
                                         .shape = {r, in},
                                         .init = FEDGE_INIT_UNIFORM,
                                         .scale = bound};
        /* Zero, so that the layer initially equals the frozen one. */
        list[n++] = (fedge_layer_tensor){
            .name = "lora_B", .rank = 2, .shape = {out, r}, .init = FEDGE_INIT_ZERO};
    }
    return n;
}

/* Rows of x: the batch times all dimensions but the last. */
static size_t rows_of(const fedge_layer_run *run)
{
    return fedge_shape_count(&run->in[0]) / run->spec->u.linear.in_features * run->batch;
}

static fedge_affine describe(const fedge_layer_run *run)
{
    const bool bias = run->spec->u.linear.bias;
    return (fedge_affine){.kernels = run->kernels,
                          .gemm_pack = run->gemm_pack,
                          .rows = rows_of(run),
                          .in = run->spec->u.linear.in_features,
                          .out = run->spec->u.linear.out_features,
                          .weight = run->values[WEIGHT],
                          .bias = bias ? run->values[BIAS] : NULL,
                          .weight_gradient = run->gradients[WEIGHT],
                          .bias_gradient = bias ? run->gradients[BIAS] : NULL};
}

/* Index of lora_A among the tensors; lora_B follows. */
static uint32_t lora_at(const fedge_layer_run *run)
{
    return run->spec->u.linear.bias ? 2 : 1;
}

static float lora_scale(const fedge_layer_run *run)
{
    return run->spec->u.linear.lora_alpha / (float)run->spec->u.linear.r;
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    const uint64_t low = (uint64_t)rows_of(run) * run->spec->u.linear.r * sizeof(float);
    need->forward = need->saved = need->backward = low;
    /* With few rows the gradient can be computed and applied while the weights are in registers.
     * With many rows a tiled product is faster, although it reads the weights once more. */
    need->fuses_sgd =
        run->spec->u.linear.r == 0 && rows_of(run) <= MAX_STEP_ROWS && !run->kernels->in_bf16;
    if (run->in_int8) {
        const uint64_t bytes = fedge_int8_linear_scratch(run->spec->u.linear.in_features,
                                                         run->spec->u.linear.out_features);
        need->forward = bytes > low ? bytes : low;
    }
}

typedef struct factor {
    const float *values;
    bool transposed;
} factor;

/* c (m, n) += a (m, k) · b (k, n). A transposed factor is stored as (k, m) or (n, k). */
static void multiply_add(const fedge_layer_run *run, size_t m, size_t n, size_t k, factor a,
                         factor b, float *c)
{
    run->kernels->gemm(&(fedge_gemm){.m = m,
                                     .n = n,
                                     .k = k,
                                     .a = a.values,
                                     .a_row = a.transposed ? 1 : k,
                                     .a_column = a.transposed ? m : 1,
                                     .b = b.values,
                                     .b_row = b.transposed ? 1 : n,
                                     .b_column = b.transposed ? k : 1,
                                     .c = c,
                                     .c_row = n,
                                     .accumulate = true},
                       run->gemm_pack);
}

/* u (rows, r) = scale · x Aᵀ, saved for the backward pass; y += u Bᵀ. */
static void forward_lora(const fedge_layer_run *run, const fedge_affine *whole)
{
    const uint32_t at = lora_at(run), r = run->spec->u.linear.r;
    const fedge_affine low = {.kernels = run->kernels,
                              .gemm_pack = run->gemm_pack,
                              .rows = whole->rows,
                              .in = whole->in,
                              .out = r,
                              .weight = run->values[at]};
    const float scale = lora_scale(run);
    /* Scaling u, of r columns, is cheaper than scaling the product, of [out] columns. */
    float *u = run->saved ? run->saved : run->scratch;
    fedge_affine_forward(&low, run->x[0], u);
    for (size_t i = 0; i < whole->rows * r; i++)
        u[i] *= scale;
    multiply_add(run, whole->rows, whole->out, r, (factor){u, false},
                 (factor){run->values[at + 1], true}, run->y);
}

/* B += dyᵀ u;  v (rows, r) = scale · dy B;  A += vᵀ x;  dx += v A. */
static void backward_lora(const fedge_layer_run *run, const fedge_affine *whole)
{
    const uint32_t at = lora_at(run), r = run->spec->u.linear.r;
    const size_t rows = whole->rows, in = whole->in, out = whole->out;
    const float scale = lora_scale(run);
    float *v = run->scratch;
    for (size_t i = 0; i < rows * r; i++)
        v[i] = 0.0f;
    multiply_add(run, rows, r, out, (factor){run->dy, false}, (factor){run->values[at + 1], false},
                 v);
    for (size_t i = 0; i < rows * r; i++)
        v[i] *= scale;
    if (run->gradients[at + 1]) {
        multiply_add(run, out, r, rows, (factor){run->dy, true}, (factor){run->saved, false},
                     run->gradients[at + 1]);
    }
    if (run->gradients[at]) {
        multiply_add(run, r, in, rows, (factor){v, true}, (factor){run->x[0], false},
                     run->gradients[at]);
    }
    if (run->dx[0]) {
        multiply_add(run, rows, in, r, (factor){v, false}, (factor){run->values[at], false},
                     run->dx[0]);
    }
}

static void forward(const fedge_layer_run *run)
{
    const fedge_affine whole = describe(run);
    if (run->in_int8)
        fedge_int8_linear(run, whole.rows, whole.bias);
    else
        fedge_affine_forward(&whole, run->x[0], run->y);
    if (run->spec->u.linear.r > 0)
        forward_lora(run, &whole);
}

static void backward(const fedge_layer_run *run)
{
    const fedge_affine whole = describe(run);
    fedge_affine_gradients(&whole, run->x[0], run->dy);
    if (run->sgd) {
        run->kernels->linear_backward(&(fedge_linear_shape){.batch = (uint32_t)whole.rows,
                                                            .in = (uint32_t)whole.in,
                                                            .out = (uint32_t)whole.out},
                                      run->x[0], run->dy, run->weight, run->velocity, run->sgd,
                                      run->dx[0]);
    } else if (run->dx[0]) {
        fedge_affine_backward(&whole, run->dy, run->dx[0]);
    }
    if (run->spec->u.linear.r > 0)
        backward_lora(run, &whole);
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("in_features", offsetof(fedge_layer_spec, u.linear.in_features)),
    FEDGE_COUNT_ARGUMENT("out_features", offsetof(fedge_layer_spec, u.linear.out_features)),
    FEDGE_BOOL_ARGUMENT("bias", offsetof(fedge_layer_spec, u.linear.bias), 1),
    FEDGE_U32_ARGUMENT("r", offsetof(fedge_layer_spec, u.linear.r), false, 0,
                       FEDGE_ARGUMENT_MAX_SIDE, 0),
    FEDGE_F32_ARGUMENT("lora_alpha", offsetof(fedge_layer_spec, u.linear.lora_alpha), -1e6, 1e6, 1),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_linear = {
    .arguments = ARGUMENTS,
    .flags = FEDGE_USES_X,
    .infer = infer,
    .tensors = tensors,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
};
