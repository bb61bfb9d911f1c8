/* torch.optim.SGD. */
#include "edge/train/kernels/kernels.h"
#include "edge/train/optimizers/optimizers.h"

void fedge_sgd_update(const fedge_optimizer *sgd, size_t n, const float *g, float *w, float *v)
{
    for (size_t i = 0; i < n; i++)
        fedge_sgd_apply(sgd, g[i], &w[i], !v ? NULL : &v[i]);
}

static void update(const fedge_optimizer *optimizer, const fedge_kernels *kernels, uint64_t step,
                   size_t n, const float *g, float *w,
                   float *const states[FEDGE_MAX_OPTIMIZER_STATES])
{
    float *v = states[0];
    (void)kernels;
    (void)step;
    if (!optimizer->nesterov) {
        fedge_sgd_update(optimizer, n, g, w, v);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float gradient = g[i] + optimizer->weight_decay * w[i];
        v[i] = optimizer->momentum * v[i] + gradient;
        w[i] -= optimizer->learning_rate * (gradient + optimizer->momentum * v[i]);
    }
}

#define AT(member) offsetof(fedge_optimizer, member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_F32_ARGUMENT("momentum", AT(momentum), 0, 1, 0),
    FEDGE_F32_ARGUMENT("weight_decay", AT(weight_decay), 0, 1e6, 0),
    FEDGE_BOOL_ARGUMENT("nesterov", AT(nesterov), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_optimizer_ops fedge_optimizer_sgd = {
    .arguments = ARGUMENTS, .momentum = true, .update = update};
