/* Linear: y = x Wᵀ + b on the last dimension. x: (…, in_features), W: (out, in), b: (out). */
#include "edge/train/layer.h"

enum { WEIGHT, BIAS };

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t wants = layer->u.linear.in_features, gives = layer->u.linear.out_features;
    char text[FEDGE_SHAPE_TEXT_SIZE];
    if (wants == 0 || gives == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_features %u and out_features %u must be at least 1", (unsigned)wants,
                          (unsigned)gives);
    }
    const uint32_t has = in->dims[in->rank - 1];
    if (has != wants && in->rank > 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the input is %s but its last dimension must be in_features, %u: put a "
                          "Flatten before it to join the dimensions",
                          fedge_shape_text(in->rank, in->dims, text), (unsigned)wants);
    }
    if (has != wants) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_features is %u but the layer before gives %u", (unsigned)wants,
                          (unsigned)has);
    }
    *out = *in;
    out->dims[out->rank - 1] = gives;
    return FEDGE_OK;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    const uint32_t in = layer->u.linear.in_features, out = layer->u.linear.out_features;
    const float bound = fedge_init_bound(in);
    list[WEIGHT] = (fedge_layer_tensor){.name = "weight",
                                        .rank = 2,
                                        .shape = {out, in},
                                        .init = FEDGE_INIT_UNIFORM,
                                        .scale = bound};
    list[BIAS] = (fedge_layer_tensor){
        .name = "bias", .rank = 1, .shape = {out}, .init = FEDGE_INIT_UNIFORM, .scale = bound};
    return layer->u.linear.bias ? 2 : 1;
}

/* Rows of x: the batch times all dimensions but the last. */
static fedge_linear_shape shape_of(const fedge_layer_run *run)
{
    const uint32_t in = run->spec->u.linear.in_features, out = run->spec->u.linear.out_features;
    const size_t rows = fedge_shape_count(&run->in[0]) / in * run->batch;
    return (fedge_linear_shape){.batch = (uint32_t)rows, .in = in, .out = out};
}

static void forward(const fedge_layer_run *run)
{
    const fedge_linear_shape shape = shape_of(run);
    run->kernels->linear_forward(&shape, run->x[0], run->values[WEIGHT],
                                 run->spec->u.linear.bias ? run->values[BIAS] : NULL, run->y);
}

static void backward(const fedge_layer_run *run)
{
    const fedge_linear_shape shape = shape_of(run);
    const size_t rows = shape.batch, in = shape.in, out = shape.out;
    if (run->gradients[WEIGHT] != NULL) { /* dW (out, in) += dyᵀ x */
        run->kernels->gemm(&(fedge_gemm){.m = out,
                                         .n = in,
                                         .k = rows,
                                         .a = run->dy,
                                         .a_row = 1,
                                         .a_column = out,
                                         .b = run->x[0],
                                         .b_row = in,
                                         .b_column = 1,
                                         .c = run->gradients[WEIGHT],
                                         .c_row = in,
                                         .accumulate = true},
                           run->gemm_pack);
    }
    for (size_t r = 0; run->gradients[BIAS] != NULL && r < rows; r++) {
        for (size_t o = 0; o < out; o++) {
            run->gradients[BIAS][o] += run->dy[r * out + o];
        }
    }
    if (run->dx[0] != NULL) { /* dx (rows, in) = dy W */
        run->kernels->gemm(&(fedge_gemm){.m = rows,
                                         .n = in,
                                         .k = out,
                                         .a = run->dy,
                                         .a_row = out,
                                         .a_column = 1,
                                         .b = run->values[WEIGHT],
                                         .b_row = in,
                                         .b_column = 1,
                                         .c = run->dx[0],
                                         .c_row = in},
                           run->gemm_pack);
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("in_features", offsetof(fedge_layer_spec, u.linear.in_features)),
    FEDGE_COUNT_ARGUMENT("out_features", offsetof(fedge_layer_spec, u.linear.out_features)),
    FEDGE_BOOL_ARGUMENT("bias", offsetof(fedge_layer_spec, u.linear.bias), 1),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_linear = {
    .name = "Linear",
    .arguments = ARGUMENTS,
    .flags = FEDGE_USES_X,
    .infer = infer,
    .tensors = tensors,
    .forward = forward,
    .backward = backward,
};
