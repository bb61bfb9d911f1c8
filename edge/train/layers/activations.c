/* Activations: ReLU6, LeakyReLU, GELU, Sigmoid, Tanh, SiLU. Those whose derivative follows from
 * their value work in place. */
#include <math.h>

#include "edge/train/layers/elementwise.h"
#include "edge/train/layers/layer.h"

#define TWO_OVER_PI 0.79788456080286536f /* √(2/π) */
#define CUBE 0.044715f                   /* coefficient of GELU's approximation */

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Defines NAME_masked_forward and NAME_masked_backward, which use NAME_forward and NAME_backward.
 * If the planner chose a mask, backward reads bits instead of x and y. The bits are of x, which y
 * may overwrite. */
#define MASKED(name, high, slope)                                                                  \
    static void name##_masked_forward(const fedge_layer_run *run)                                  \
    {                                                                                              \
        if (run->masked && run->saved) {                                                           \
            fedge_mask_between(run->x[0], fedge_elementwise_count(run), 0.0f, high, run->saved);   \
        }                                                                                          \
        name##_forward(run);                                                                       \
    }                                                                                              \
    static void name##_masked_backward(const fedge_layer_run *run)                                 \
    {                                                                                              \
        if (run->masked) {                                                                         \
            fedge_mask_scale(run->saved, fedge_elementwise_count(run), slope, run->dy,             \
                             run->dx[0]);                                                          \
            return;                                                                                \
        }                                                                                          \
        name##_backward(run);                                                                      \
    }

/* Defines NAME_forward and NAME_backward from expressions of x[i] or y[i]. */
#define ACTIVATION(name, value, derivative)                                                        \
    static void name##_forward(const fedge_layer_run *run)                                         \
    {                                                                                              \
        const size_t n = fedge_elementwise_count(run);                                             \
        const float *x = run->x[0];                                                                \
        float *y = run->y;                                                                         \
        for (size_t i = 0; i < n; i++) {                                                           \
            y[i] = value;                                                                          \
        }                                                                                          \
    }                                                                                              \
    static void name##_backward(const fedge_layer_run *run)                                        \
    {                                                                                              \
        const size_t n = fedge_elementwise_count(run);                                             \
        const float *x = run->x[0], *y = run->y, *dy = run->dy;                                    \
        float *dx = run->dx[0];                                                                    \
        (void)x;                                                                                   \
        (void)y;                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            dx[i] = dy[i] * (derivative);                                                          \
        }                                                                                          \
    }

#define FROM_Y (FEDGE_USES_Y | FEDGE_Y_ON_X | FEDGE_DX_ON_DY)
#define FROM_X (FEDGE_USES_X | FEDGE_DX_ON_DY)

static void relu6_forward(const fedge_layer_run *run)
{
    run->kernels->relu6_forward(run->x[0], fedge_elementwise_count(run), run->y);
}

static void relu6_backward(const fedge_layer_run *run)
{
    run->kernels->relu6_backward(run->y, run->dy, fedge_elementwise_count(run), run->dx[0]);
}

MASKED(relu6, 6.0f, 0.0f)

const fedge_layer_ops fedge_layer_relu6 = {.arguments = fedge_inplace_argument,
                                           .flags = FROM_Y,
                                           .ceiling = 6.0f,
                                           .infer = fedge_elementwise_infer,
                                           .sizes = fedge_elementwise_mask_sizes,
                                           .forward = relu6_masked_forward,
                                           .backward = relu6_masked_backward};

ACTIVATION(leakyrelu, x[i] > 0.0f ? x[i] : run->spec->u.leakyrelu.negative_slope * x[i],
           x[i] > 0.0f ? 1.0f : run->spec->u.leakyrelu.negative_slope)

MASKED(leakyrelu, INFINITY, run->spec->u.leakyrelu.negative_slope)

static const fedge_argument LEAKYRELU[] = {
    FEDGE_F32_ARGUMENT("negative_slope", offsetof(fedge_layer_spec, u.leakyrelu.negative_slope),
                       -1e6, 1e6, 0.01),
    FEDGE_BOOL_ARGUMENT("inplace", offsetof(fedge_layer_spec, u.leakyrelu.inplace), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_leakyrelu = {.arguments = LEAKYRELU,
                                               .flags = FROM_X | FEDGE_Y_ON_X,
                                               .infer = fedge_elementwise_infer,
                                               .sizes = fedge_elementwise_mask_sizes,
                                               .forward = leakyrelu_masked_forward,
                                               .backward = leakyrelu_masked_backward};

ACTIVATION(sigmoid, sigmoid(x[i]), y[i] * (1.0f - y[i]))

const fedge_layer_ops fedge_layer_sigmoid = {.flags = FROM_Y,
                                             .infer = fedge_elementwise_infer,
                                             .forward = sigmoid_forward,
                                             .backward = sigmoid_backward};

ACTIVATION(tanh, tanhf(x[i]), 1.0f - y[i] * y[i])

const fedge_layer_ops fedge_layer_tanh = {.flags = FROM_Y,
                                          .infer = fedge_elementwise_infer,
                                          .forward = tanh_forward,
                                          .backward = tanh_backward};

/* x · σ(x); derivative σ(x) (1 + x (1 − σ(x))) */
static float silu_derivative(float x)
{
    const float s = sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

ACTIVATION(silu, x[i] * sigmoid(x[i]), silu_derivative(x[i]))

const fedge_layer_ops fedge_layer_silu = {.arguments = fedge_inplace_argument,
                                          .flags = FROM_X,
                                          .infer = fedge_elementwise_infer,
                                          .forward = silu_forward,
                                          .backward = silu_backward};

/* x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))). The kernels compute GELU by the error function. */
static float gelu_value(float x)
{
    return 0.5f * x * (1.0f + tanhf(TWO_OVER_PI * (x + CUBE * x * x * x)));
}

static float gelu_derivative(float x)
{
    const float t = tanhf(TWO_OVER_PI * (x + CUBE * x * x * x));
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * TWO_OVER_PI * (1.0f + 3.0f * CUBE * x * x);
}

ACTIVATION(gelu_tanh, gelu_value(x[i]), gelu_derivative(x[i]))

static void gelu_forward(const fedge_layer_run *run)
{
    if (run->spec->u.gelu.approximate != 0)
        gelu_tanh_forward(run);
    else
        run->kernels->gelu(run->x[0], run->y, fedge_elementwise_count(run));
}

static void gelu_backward(const fedge_layer_run *run)
{
    if (run->spec->u.gelu.approximate != 0) {
        gelu_tanh_backward(run);
    } else {
        run->kernels->gelu_backward(run->x[0], run->dy, run->dx[0], NULL,
                                    fedge_elementwise_count(run));
    }
}

static const char *approximation_name(unsigned choice)
{
    return choice == 0 ? "none" : choice == 1 ? "tanh" : NULL;
}

static const fedge_argument GELU[] = {
    {.name = "approximate",
     .kind = FEDGE_ARGUMENT_CHOICE,
     .offset = offsetof(fedge_layer_spec, u.gelu.approximate),
     .num_choices = 2,
     .choice_name = approximation_name},
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_gelu = {.arguments = GELU,
                                          .flags = FROM_X,
                                          .infer = fedge_elementwise_infer,
                                          .forward = gelu_forward,
                                          .backward = gelu_backward};
