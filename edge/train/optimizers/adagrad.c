/* torch.optim.Adagrad, in the order of PyTorch's operations, at step t from 1:
 *   g ← g + weight_decay · w;  v ← v + g² (v = initial_accumulator_value before the first step)
 *   w ← w − lr / (1 + (t − 1) · lr_decay) · g / (sqrt(v) + ε) */
#include <math.h>

#include "edge/train/optimizers/optimizers.h"

static void update(const fedge_optimizer *o, const fedge_kernels *kernels, uint64_t step, size_t n,
                   const float *g, float *w, float *const states[FEDGE_MAX_OPTIMIZER_STATES])
{
    const float epsilon = o->epsilon == 0.0f ? 1e-10f : o->epsilon;
    const float initial = step == 1 ? o->initial_accumulator_value : 0.0f;
    const float rate =
        (float)((double)o->learning_rate / (1.0 + ((double)step - 1.0) * (double)o->lr_decay));
    float *v = states[0];
    (void)kernels;
    for (size_t i = 0; i < n; i++) {
        const float gradient = g[i] + o->weight_decay * w[i];
        v[i] = (v[i] + initial) + gradient * gradient;
        w[i] -= rate * gradient / (sqrtf(v[i]) + epsilon);
    }
}

#define AT(member) offsetof(fedge_optimizer, member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_F32_ARGUMENT("lr_decay", AT(lr_decay), 0, 1e6, 0),
    FEDGE_F32_ARGUMENT("weight_decay", AT(weight_decay), 0, 1e6, 0),
    FEDGE_F32_ARGUMENT("initial_accumulator_value", AT(initial_accumulator_value), 0, 1e30, 0),
    {.name = "eps",
     .kind = FEDGE_ARGUMENT_F32,
     .offset = AT(epsilon),
     .min = 1e-37,
     .max = 1,
     .fallback = 1e-10,
     .zero_is_default = true},
    FEDGE_NO_ARGUMENT,
};

const fedge_optimizer_ops fedge_optimizer_adagrad = {
    .arguments = ARGUMENTS, .num_states = 1, .update = update};
