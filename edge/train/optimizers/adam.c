/* torch.optim.Adam and AdamW (amsgrad off), in the order of PyTorch's operations:
 *   Adam:  g ← g + weight_decay · w          AdamW: w ← w − lr · weight_decay · w
 *   m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²
 *   w ← w − lr / (1 − β1^t) · m / (sqrt(v) / sqrt(1 − β2^t) + ε) */
#include <math.h>

#include "edge/train/optimizers/optimizers.h"

static void step_along(const fedge_optimizer *o, bool decoupled, const fedge_kernels *kernels,
                       uint64_t step, size_t n, const float *g, float *w,
                       float *const states[FEDGE_MAX_OPTIMIZER_STATES])
{
    const float b1 = o->num_betas == 0 ? 0.9f : o->betas[0];
    const float b2 = o->num_betas == 0 ? 0.999f : o->betas[1];
    const double t = (double)step;
    const fedge_adam_step sizes = {
        .beta1 = b1,
        .beta2 = b2,
        .epsilon = o->epsilon == 0.0f ? 1e-8f : o->epsilon,
        .step_size = (float)((double)o->learning_rate / (1.0 - pow((double)b1, t))),
        .root = (float)sqrt(1.0 - pow((double)b2, t)),
        .decay_factor = decoupled ? 1.0f - o->learning_rate * o->weight_decay : 1.0f,
        .coupled_decay = decoupled ? 0.0f : o->weight_decay,
    };
    kernels->adam(&sizes, n, g, w, states[0], states[1]);
}

static void update_adam(const fedge_optimizer *optimizer, const fedge_kernels *kernels,
                        uint64_t step, size_t n, const float *g, float *w,
                        float *const states[FEDGE_MAX_OPTIMIZER_STATES])
{
    step_along(optimizer, false, kernels, step, n, g, w, states);
}

static void update_adamw(const fedge_optimizer *optimizer, const fedge_kernels *kernels,
                         uint64_t step, size_t n, const float *g, float *w,
                         float *const states[FEDGE_MAX_OPTIMIZER_STATES])
{
    step_along(optimizer, true, kernels, step, n, g, w, states);
}

#define AT(member) offsetof(fedge_optimizer, member)
#define MAX_BETA 0.99999988 /* the largest float below 1 */
#define EPSILON                                                                                    \
    {                                                                                              \
        .name = "eps", .kind = FEDGE_ARGUMENT_F32, .offset = AT(epsilon), .min = 1e-37, .max = 1,  \
        .fallback = 1e-8, .zero_is_default = true                                                  \
    }

static const fedge_argument ADAM[] = {
    {.name = "betas",
     .kind = FEDGE_ARGUMENT_F32S,
     .offset = AT(betas),
     .extra = AT(num_betas),
     .max = MAX_BETA},
    EPSILON,
    FEDGE_F32_ARGUMENT("weight_decay", AT(weight_decay), 0, 1e6, 0),
    FEDGE_NO_ARGUMENT,
};

static const fedge_argument ADAMW[] = {
    {.name = "betas",
     .kind = FEDGE_ARGUMENT_F32S,
     .offset = AT(betas),
     .extra = AT(num_betas),
     .max = MAX_BETA},
    EPSILON,
    FEDGE_F32_ARGUMENT("weight_decay", AT(weight_decay), 0, 1e6, 0.01),
    FEDGE_NO_ARGUMENT,
};

const fedge_optimizer_ops fedge_optimizer_adam = {
    .arguments = ADAM, .num_states = 2, .update = update_adam};

const fedge_optimizer_ops fedge_optimizer_adamw = {
    .arguments = ADAMW, .num_states = 2, .update = update_adamw};
