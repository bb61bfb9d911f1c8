/* LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), as
 * torch.nn.LSTM with batch_first. x: (batch, steps, input_size), y: (batch, steps, hidden_size),
 * the states of the last of num_layers; with bidirectional see recurrent.h. Gates i, f, g, o:
 *
 *   i, f, o = σ(sums)   g = tanh(sum)   c = f c(t − 1) + i g   h = o tanh(c)   h(−1) = c(−1) = 0
 */
#include "edge/train/layers/recurrent.h"

static void cell_forward(const fedge_kernels *kernels, const fedge_cell_step *step)
{
    kernels->lstm_forward(step);
}

static void cell_backward(const fedge_kernels *kernels, const fedge_cell_step *step)
{
    kernels->lstm_backward(step);
}

static const fedge_cell CELL = {.blocks = 4,
                                .order = {0, 1, 2, 3},
                                .first = 0,
                                .second_state = true,
                                .forward = cell_forward,
                                .backward = cell_backward};

FEDGE_RECURRENT_OPS(lstm, CELL)
