/* GRU (Cho et al. 2014), as torch.nn.GRU with batch_first. x: (batch, steps, input_size), y:
 * (batch, steps, hidden_size), the states of the last of num_layers; with bidirectional see
 * recurrent.h. The weights' blocks are r, z, n. A step's gates are n, r, z and q, the state's
 * part of n's sum:
 *
 *   r, z = σ(sums)   q = W_hn h(t − 1) + b_hn   n = tanh(W_in x + b_in + r q)
 *   h = (1 − z) n + z h(t − 1)   h(−1) = 0
 */
#include "edge/train/layers/recurrent.h"

static void cell_forward(const fedge_kernels *kernels, const fedge_cell_step *step)
{
    kernels->gru_forward(step);
}

static void cell_backward(const fedge_kernels *kernels, const fedge_cell_step *step)
{
    kernels->gru_backward(step);
}

static const fedge_cell CELL = {.blocks = 3,
                                .order = {1, 2, 0},
                                .first = 1,
                                .forward = cell_forward,
                                .backward = cell_backward};

FEDGE_RECURRENT_OPS(gru, CELL)
