/* torch.optim.RMSprop, in the order of PyTorch's operations:
 *   g ← g + weight_decay · w;  v ← α v + (1 − α) g²
 *   centered: a ← α a + (1 − α) g;  d = sqrt(v − a²) + ε      otherwise: d = sqrt(v) + ε
 *   momentum: b ← momentum · b + g / d;  w ← w − lr · b         otherwise: w ← w − lr · g / d */
#include <math.h>

#include "edge/train/optimizers/optimizers.h"

/* What a step divides by. Rounding may make v − a² negative, which is then 0. */
static float divisor(float v, float a, float epsilon)
{
    const float variance = v - a * a;
    return sqrtf(variance > 0.0f ? variance : 0.0f) + epsilon;
}

static void update(const fedge_optimizer *o, const fedge_kernels *kernels, uint64_t step, size_t n,
                   const float *g, float *w, float *const states[FEDGE_MAX_OPTIMIZER_STATES])
{
    const float alpha = o->alpha == 0.0f ? 0.99f : o->alpha, rate = o->learning_rate;
    const float epsilon = o->epsilon == 0.0f ? 1e-8f : o->epsilon;
    float *v = states[0], *a = o->centered ? states[1] : NULL;
    float *b = o->momentum == 0.0f ? NULL : a ? states[2] : states[1];
    (void)kernels;
    (void)step;
    for (size_t i = 0; i < n; i++) {
        const float gradient = g[i] + o->weight_decay * w[i];
        float mean = 0.0f;
        v[i] = alpha * v[i] + (1.0f - alpha) * gradient * gradient;
        if (a)
            mean = a[i] = alpha * a[i] + (1.0f - alpha) * gradient;
        float change = gradient / divisor(v[i], mean, epsilon);
        if (b)
            change = b[i] = o->momentum * b[i] + change;
        w[i] -= rate * change;
    }
}

#define AT(member) offsetof(fedge_optimizer, member)
#define MAX_ALPHA 0.99999988 /* the largest float below 1 */

static const fedge_argument ARGUMENTS[] = {
    {.name = "alpha",
     .kind = FEDGE_ARGUMENT_F32,
     .offset = AT(alpha),
     .min = 1e-6,
     .max = MAX_ALPHA,
     .fallback = 0.99,
     .zero_is_default = true},
    {.name = "eps",
     .kind = FEDGE_ARGUMENT_F32,
     .offset = AT(epsilon),
     .min = 1e-37,
     .max = 1,
     .fallback = 1e-8,
     .zero_is_default = true},
    FEDGE_F32_ARGUMENT("weight_decay", AT(weight_decay), 0, 1e6, 0),
    FEDGE_F32_ARGUMENT("momentum", AT(momentum), 0, 1, 0),
    FEDGE_BOOL_ARGUMENT("centered", AT(centered), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_optimizer_ops fedge_optimizer_rmsprop = {
    .arguments = ARGUMENTS, .num_states = 1, .momentum = true, .centered = true, .update = update};
