/* Lion (Chen et al. 2023, Symbolic Discovery of Optimization Algorithms), algorithm 2:
 *   c = β1 m + (1 − β1) g;  w ← w − lr · (sign(c) + weight_decay · w);  m ← β2 m + (1 − β2) g */
#include "edge/train/optimizers/optimizers.h"

static void update(const fedge_optimizer *o, const fedge_kernels *kernels, uint64_t step, size_t n,
                   const float *g, float *w, float *const states[FEDGE_MAX_OPTIMIZER_STATES])
{
    const float b1 = o->num_betas == 0 ? 0.9f : o->betas[0];
    const float b2 = o->num_betas == 0 ? 0.99f : o->betas[1];
    float *m = states[0];
    (void)kernels;
    (void)step;
    for (size_t i = 0; i < n; i++) {
        const float c = b1 * m[i] + (1.0f - b1) * g[i];
        const float sign = (c > 0.0f ? 1.0f : 0.0f) - (c < 0.0f ? 1.0f : 0.0f);
        w[i] -= o->learning_rate * (sign + o->weight_decay * w[i]);
        m[i] = b2 * m[i] + (1.0f - b2) * g[i];
    }
}

#define AT(member) offsetof(fedge_optimizer, member)

static const fedge_argument ARGUMENTS[] = {
    {.name = "betas",
     .kind = FEDGE_ARGUMENT_F32S,
     .offset = AT(betas),
     .extra = AT(num_betas),
     .max = 0.99999988}, /* the largest float below 1 */
    FEDGE_F32_ARGUMENT("weight_decay", AT(weight_decay), 0, 1e6, 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_optimizer_ops fedge_optimizer_lion = {
    .arguments = ARGUMENTS, .num_states = 1, .update = update};
