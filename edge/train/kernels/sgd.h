/* One step of torch.optim.SGD without Nesterov; private to edge/train. */
#ifndef FEDGE_EDGE_TRAIN_KERNELS_SGD_H
#define FEDGE_EDGE_TRAIN_KERNELS_SGD_H

#include <stddef.h>

#include "edge/train/model.h"

/* One parameter: g += weight_decay · w;  v = momentum · v + g;  w −= lr · v.
 * Without a velocity (momentum 0) v is g. */
static inline void fedge_sgd_apply(const fedge_optimizer *sgd, float g, float *w, float *v)
{
    g += sgd->weight_decay * *w;
    if (v) {
        *v = sgd->momentum * *v + g;
        g = *v;
    }
    *w -= sgd->learning_rate * g;
}

/* The same over [n] contiguous parameters. v: (n) or NULL. */
void fedge_sgd_update(const fedge_optimizer *sgd, size_t n, const float *g, float *w, float *v);

#endif
