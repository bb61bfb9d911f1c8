/* GRU (Cho et al. 2014), as torch.nn.GRU with batch_first. x: (batch, steps, input_size), y:
 * (batch, steps, hidden_size), the states of the last of num_layers. Weights' blocks are r, z, n; a
 * step's gates n, r, z and q, the state's share in n's sum:
 *
 *   r, z = σ(sums)   q = W_hn h(t − 1) + b_hn   n = tanh(W_in x + b_in + r q)
 *   h = (1 − z) n + z h(t − 1)   h(−1) = 0
 */
#include "edge/train/layers/recurrent.h"

static void cell_forward(const fedge_cell_step *step)
{
    const size_t size = step->hidden;
    const float *h_before = step->h_before;
    float *restrict h = step->h;
    float *n = step->gates, *r = n + size, *z = r + size, *q = z + size;
    step->kernels->sigmoid(r, r, 2 * size);
    for (size_t k = 0; k < size; k++) {
        n[k] += r[k] * q[k];
    }
    step->kernels->tanh(n, n, size);
    for (size_t k = 0; k < size; k++) {
        h[k] = n[k] + z[k] * (h_before[k] - n[k]);
    }
}

static void cell_backward(const fedge_cell_step *step)
{
    const size_t size = step->hidden;
    const float *h_before = step->h_before, *dy = step->dy;
    float *restrict dh = step->dh;
    float *restrict n = step->gates, *restrict r = n + size, *restrict z = r + size;
    float *restrict q = z + size;
    for (size_t k = 0; k < size; k++) {
        const float whole = dy[k] + dh[k];
        const float dn = whole * (1.0f - z[k]) * (1.0f - n[k] * n[k]);
        const float dr = dn * q[k] * r[k] * (1.0f - r[k]);
        const float dz = whole * (h_before[k] - n[k]) * z[k] * (1.0f - z[k]);
        dh[k] = whole * z[k];
        n[k] = dn;
        q[k] = dn * r[k];
        r[k] = dr;
        z[k] = dz;
    }
}

static const fedge_cell CELL = {.blocks = 3,
                                .order = {1, 2, 0},
                                .first = 1,
                                .forward = cell_forward,
                                .backward = cell_backward};

FEDGE_RECURRENT_OPS(gru, CELL)
