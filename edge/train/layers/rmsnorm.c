/* RMSNorm over the last dimensions of one example: y = x / sqrt(mean(x²) + eps) · weight.
 * x: (batch, …, normalized_shape…). */
#include <math.h>

#include "edge/train/layers/norm.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    *out = *in;
    return fedge_norm_check_shape(layer->u.rmsnorm.rank, layer->u.rmsnorm.normalized_shape, in,
                                  err);
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    fedge_norm_tensors(layer->u.rmsnorm.rank, layer->u.rmsnorm.normalized_shape, list);
    return layer->u.rmsnorm.elementwise_affine ? 1 : 0;
}

/* Values of a row. */
static size_t width_of(const fedge_layer_run *run)
{
    size_t width = 1;
    for (uint32_t i = 0; i < run->spec->u.rmsnorm.rank; i++)
        width *= run->spec->u.rmsnorm.normalized_shape[i];
    return width;
}

static size_t rows_of(const fedge_layer_run *run)
{
    return fedge_shape_count(&run->in[0]) / width_of(run) * run->batch;
}

/* 1 / sqrt(mean(x²) + eps) of each row. */
static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    need->saved = (uint64_t)rows_of(run) * sizeof(float);
}

static void forward(const fedge_layer_run *run)
{
    const size_t n = width_of(run), rows = rows_of(run);
    const float *weight = run->values[0];
    for (size_t r = 0; r < rows; r++) {
        const float *x = run->x[0] + r * n;
        float *y = run->y + r * n;
        double sums[2];
        run->kernels->moments(x, n, 0.0f, sums);
        const double mean = sums[1] / (double)n + (double)run->spec->u.rmsnorm.eps;
        const float inverse = (float)(1.0 / sqrt(mean));
        for (size_t i = 0; !weight && i < n; i++)
            y[i] = x[i] * inverse;
        for (size_t i = 0; weight && i < n; i++)
            y[i] = x[i] * inverse * weight[i];
        if (run->saved)
            ((float *)run->saved)[r] = inverse;
    }
}

/* With g = dy · weight and s = 1 / sqrt(mean(x²) + eps): dx = s · g − x · s³ · mean(g · x). */
static void backward(const fedge_layer_run *run)
{
    const size_t n = width_of(run), rows = rows_of(run);
    const float *weight = run->values[0];
    for (size_t r = 0; r < rows; r++) {
        const float *x = run->x[0] + r * n, *dy = run->dy + r * n;
        const float inverse = ((const float *)run->saved)[r];
        const fedge_normal plain = {.scale = 1.0f};
        for (size_t i = 0; run->gradients[0] && i < n; i++)
            run->gradients[0][i] += dy[i] * x[i] * inverse;
        if (!run->dx[0])
            continue;
        float *dx = run->dx[0] + r * n;
        for (size_t i = 0; i < n; i++)
            dx[i] = weight ? dy[i] * weight[i] : dy[i];
        double sums[2];
        run->kernels->products(x, dx, n, &plain, sums);
        const double s = (double)inverse;
        const fedge_norm_gradient slope = {.dz = inverse,
                                           .x = (float)(-s * s * s * sums[1] / (double)n)};
        run->kernels->normalize_backward(x, dx, n, &plain, &slope, dx);
    }
}

#define AT(member) offsetof(fedge_layer_spec, u.rmsnorm.member)
#define EPSILON 1.1920928955078125e-07 /* torch.finfo(torch.float32).eps, PyTorch's default */

static const fedge_argument ARGUMENTS[] = {
    {.name = "normalized_shape",
     .kind = FEDGE_ARGUMENT_U32S,
     .required = true,
     .offset = AT(normalized_shape),
     .extra = AT(rank),
     .min = 1,
     .max = FEDGE_ARGUMENT_MAX_COUNT},
    FEDGE_F32_ARGUMENT("eps", AT(eps), 1e-30, 1, EPSILON),
    FEDGE_BOOL_ARGUMENT("elementwise_affine", AT(elementwise_affine), 1),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_rmsnorm = {.arguments = ARGUMENTS,
                                             .flags = FEDGE_USES_X | FEDGE_DX_ON_DY,
                                             .infer = infer,
                                             .tensors = tensors,
                                             .sizes = sizes,
                                             .forward = forward,
                                             .backward = backward};
