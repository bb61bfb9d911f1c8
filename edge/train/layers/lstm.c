/* LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), as
 * torch.nn.LSTM with batch_first. x: (batch, steps, input_size), y: (batch, steps, hidden_size),
 * the states of the last of num_layers. Gates i, f, g, o:
 *
 *   i, f, o = σ(sums)   g = tanh(sum)   c = f c(t − 1) + i g   h = o tanh(c)   h(−1) = c(−1) = 0
 */
#include "edge/train/layers/recurrent.h"

static void cell_forward(const fedge_cell_step *step)
{
    const size_t n = step->hidden;
    float *restrict h = step->h;
    float *i = step->gates, *f = i + n, *g = f + n, *o = g + n;
    step->kernels->sigmoid(i, i, 2 * n);
    step->kernels->tanh(g, g, n);
    step->kernels->sigmoid(o, o, n);
    for (size_t k = 0; k < n; k++) {
        step->c[k] = f[k] * step->c_before[k] + i[k] * g[k];
    }
    step->kernels->tanh(step->c, h, n);
    for (size_t k = 0; k < n; k++) {
        h[k] *= o[k];
    }
}

static void cell_backward(const fedge_cell_step *step)
{
    const size_t n = step->hidden;
    float *restrict i = step->gates, *restrict f = i + n, *restrict g = f + n, *restrict o = g + n;
    float *restrict dh = step->dh, *restrict dc = step->dc;
    const float *c_before = step->c_before, *dy = step->dy, *tanh_c = step->spare;
    step->kernels->tanh(step->c, step->spare, n);
    for (size_t k = 0; k < n; k++) {
        const float whole = dy[k] + dh[k];
        const float d = dc[k] + whole * o[k] * (1.0f - tanh_c[k] * tanh_c[k]);
        const float di = d * g[k], df = d * c_before[k], dg = d * i[k];
        dc[k] = d * f[k];
        i[k] = di * i[k] * (1.0f - i[k]);
        f[k] = df * f[k] * (1.0f - f[k]);
        g[k] = dg * (1.0f - g[k] * g[k]);
        o[k] = whole * tanh_c[k] * o[k] * (1.0f - o[k]);
        dh[k] = 0.0f;
    }
}

static const fedge_cell CELL = {.blocks = 4,
                                .order = {0, 1, 2, 3},
                                .first = 0,
                                .second_state = true,
                                .forward = cell_forward,
                                .backward = cell_backward};

FEDGE_RECURRENT_OPS(lstm, CELL)
