#include "edge/train/sgd.h"

void fedge_sgd_update(const fedge_sgd *sgd, size_t n, const float *g, float *w, float *v)
{
    for (size_t i = 0; i < n; i++) {
        fedge_sgd_apply(sgd, g[i], &w[i], v == NULL ? NULL : &v[i]);
    }
}
