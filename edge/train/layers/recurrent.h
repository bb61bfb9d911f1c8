/* The common part of LSTM and GRU: stacked layers, products of weights with inputs and states, and
 * backpropagation through time; private to edge/train/layers.
 *
 * A step of an example has four blocks of hidden_size numbers, its gates: first sums, then values,
 * finally the sums' gradients, all in the same memory.
 *
 *   gates[order[k]] += W_ih[k] x + b_ih[k]              k: block of hidden_size rows of the weights
 *   gates[first + k] += W_hh[k] h(t − 1) + b_hh[k]      h(−1) = 0
 *
 * Inputs of several steps are multiplied together before these steps; only W_hh is read at every
 * step, from a copy packed for the product. Gradients of inputs and weights are computed after all
 * steps, when W_hh need not stay in the cache. Without training, only one step's gates are stored.
 *
 * With bidirectional, a second level reads the same x from the last step to the first, with t + 1
 * for t − 1 above. Its h is the second half of y's features, and both levels add to dx.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_RECURRENT_H
#define FEDGE_EDGE_TRAIN_LAYERS_RECURRENT_H

#include <assert.h>

#include "edge/train/layers/layer.h"

#define FEDGE_RECURRENT_GATES 4   /* blocks of a step */
#define FEDGE_RECURRENT_TENSORS 4 /* tensors of one layer, with biases */
#define FEDGE_MAX_RECURRENT_LAYERS 3

static_assert(FEDGE_MAX_RECURRENT_LAYERS * FEDGE_RECURRENT_TENSORS <= FEDGE_MAX_LAYER_TENSORS,
              "a layer has space for their tensors");

typedef struct fedge_cell {
    uint32_t blocks;   /* blocks of hidden_size rows in W_ih and in W_hh: 3 or 4 */
    uint32_t order[4]; /* the gate of W_ih's block k */
    uint32_t first;    /* the gate of W_hh's block 0 */
    bool second_state; /* has c */
    void (*forward)(const fedge_kernels *kernels, const fedge_cell_step *step);
    void (*backward)(const fedge_kernels *kernels, const fedge_cell_step *step);
} fedge_cell;

extern const fedge_argument fedge_recurrent_arguments[];

FEDGE_MUST_USE fedge_status fedge_recurrent_infer(const fedge_layer_spec *layer,
                                                  const fedge_shape *in, uint32_t num_inputs,
                                                  fedge_shape *out, fedge_error *err);
const char *fedge_recurrent_feature(const fedge_layer_spec *layer); /* may return NULL */
uint32_t fedge_recurrent_tensors(const fedge_cell *cell, const fedge_layer_spec *layer,
                                 fedge_layer_tensor *list);
void fedge_recurrent_sizes(const fedge_cell *cell, const fedge_layer_run *run,
                           fedge_layer_sizes *need);
void fedge_recurrent_forward(const fedge_cell *cell, const fedge_layer_run *run);
void fedge_recurrent_backward(const fedge_cell *cell, const fedge_layer_run *run);

/* The table of a layer type with this cell. */
#define FEDGE_RECURRENT_OPS(type, cell)                                                            \
    static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)               \
    {                                                                                              \
        return fedge_recurrent_tensors(&cell, layer, list);                                        \
    }                                                                                              \
    static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)                         \
    {                                                                                              \
        fedge_recurrent_sizes(&cell, run, need);                                                   \
    }                                                                                              \
    static void forward(const fedge_layer_run *run)                                                \
    {                                                                                              \
        fedge_recurrent_forward(&cell, run);                                                       \
    }                                                                                              \
    static void backward(const fedge_layer_run *run)                                               \
    {                                                                                              \
        fedge_recurrent_backward(&cell, run);                                                      \
    }                                                                                              \
    const fedge_layer_ops fedge_layer_##type = {.arguments = fedge_recurrent_arguments,            \
                                                .flags = FEDGE_USES_X | FEDGE_USES_Y |             \
                                                         FEDGE_X_IS_STEPS,                         \
                                                .infer = fedge_recurrent_infer,                    \
                                                .feature = fedge_recurrent_feature,                \
                                                .tensors = tensors,                                \
                                                .sizes = sizes,                                    \
                                                .forward = forward,                                \
                                                .backward = backward};

/* ---- matrix products over sequences (recurrent_product.c) ----
 *
 * A sequence is (steps, batch, width) or (batch, steps, width) floats: element k of example b at
 * step t is at t · step + b · example + k.
 */

typedef struct fedge_strides {
    size_t step, example; /* floats */
} fedge_strides;

/* Steps [first, first + steps) of a batch. */
typedef struct fedge_step_range {
    size_t first, steps, batch;
} fedge_step_range;

/* A matrix b (k, n) for several products: in place, or copied to panels (kernels.h). */
typedef struct fedge_factor {
    const float *b;
    size_t k, n, b_row, b_column;
    bool panels;
} fedge_factor;

/* True if factors are copied: not by the scalar kernels, nor for products in bf16. */
bool fedge_factor_copies(const fedge_kernels *kernels);

/* Floats of the copy; 0 without one. */
uint64_t fedge_factor_size(const fedge_kernels *kernels, uint64_t k, uint64_t n);

/* w: (k, n), or (n, k) if [transposed]; must stay valid until the last product. buffer: for the
 * copy, preferably aligned to 64 bytes. */
fedge_factor fedge_factor_make(const fedge_kernels *kernels, const float *w, bool transposed,
                               size_t k, size_t n, float *buffer);

/* c = start + a · b for every step and example of [range]. start: (n), or NULL for c += a · b. */
void fedge_sequence_multiply(const fedge_layer_run *run, const fedge_step_range *range,
                             const float *a, fedge_strides a_at, const fedge_factor *b,
                             const float *start, float *c, fedge_strides c_at);

/* dw (n, k) += aᵀ · b, where a's step t is multiplied with b's step t + shift, or with zeros if
 * there is no such step. b is k wide. */
typedef struct fedge_outer {
    const float *b;
    fedge_strides b_at;
    size_t k;
    int shift; /* −1, 0, 1 */
    float *dw;
} fedge_outer;

#define FEDGE_OUTER_PRODUCTS 2

/* The left factor of outer products: a row of [n] floats for each step and example. */
typedef struct fedge_outer_rows {
    const float *a;
    fedge_strides at;
    size_t n;
} fedge_outer_rows;

/* One or two outer products over all [steps] of [batch] examples. [buffer] has the size that
 * fedge_outer_size returns. */
void fedge_sequence_outer(const fedge_layer_run *run, size_t steps, size_t batch,
                          const fedge_outer_rows *rows, const fedge_outer *products, size_t count,
                          float *buffer);

/* Floats of working memory for one product or, with [k2] > 0, two products of these widths, for up
 * to [batch] examples. */
uint64_t fedge_outer_size(const fedge_kernels *kernels, uint64_t batch, uint64_t n, uint64_t k,
                          uint64_t k2);

#endif
