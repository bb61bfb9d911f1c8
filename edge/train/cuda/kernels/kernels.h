/* C interface of the kernels of cohort training. The .cu files of this folder implement it.
 *
 * Many clients' models are trained side by side. Each has a slot, and every array has one part for
 * each slot: (slots, …). One launch works on all slots; a fedge_cohort_slot_step says what each of
 * them does. Shapes are row-major and have llm.c's names:
 *
 *     B   examples that a slot's batch has memory for       T    steps of a sequence
 *     C   channels or values of the input, OC of the output NH   heads
 *     H W height and width of an image, OH OW of the output V    classes
 *
 * The order of each sum depends on shapes alone: one thread adds its terms from the first to the
 * last with fused products, or a tree of fixed form does. Where factors are rounded, tensor cores
 * add 8 or 16 products at a time (tile.cuh). A client's result therefore depends neither on its
 * slot nor on the other clients, and differs from the CPU's by rounding only. naive.h has a slow,
 * simple version of each fast kernel.
 *
 * All pointers are to memory of the current GPU, and all work is queued on [stream] of that GPU. A
 * launcher returns the error of its launch; an error of the kernel itself appears in a later call,
 * as usual in CUDA.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_KERNELS_H
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/train/cuda/kernels/shared.h"

#define FEDGE_COHORT_MAX_DATA 2       /* sets of examples on a GPU */
#define FEDGE_COHORT_MAX_SLOTS 16384u /* the third dimension of a grid ends at 65,535 */
#define FEDGE_COHORT_NORM_PARTS 64    /* partial sums of the squares of a slot's gradient */

#ifdef __cplusplus
extern "C" {
#endif

/* One step of one slot. */
typedef struct fedge_cohort_slot_step {
    uint32_t count;             /* examples in the slot's batch; an idle slot has 0 */
    uint32_t step;              /* number of the task's step; the first is 1 */
    uint32_t data;              /* index of the set of examples */
    uint32_t member;            /* index of the member whose model the task started from */
    float rate, keep;           /* learning rate; AdamW's 1 − lr · weight_decay, otherwise 1 */
    float size, root;           /* Adam's lr / (1 − β1^step) and sqrt(1 − β2^step) */
    uint32_t key[2], stream[3]; /* Philox's key, and the words of its counter after the block's
                                   number, for the step's random numbers */
    uint32_t whole, first;      /* size of the batch that the slot trains a part of, and the index
                                   of the slot's first example in it */
    uint32_t part;              /* examples per micro-batch; 0: the batch is not divided */
} fedge_cohort_slot_step;

/* Running results of a slot's task. */
typedef struct fedge_cohort_tally {
    double loss_sum, bad_loss; /* bad_loss: the loss of bad_step's batch */
    uint64_t correct;
    uint32_t bad_step, bad_count; /* first step whose loss was not finite, and its examples; 0:
                                     every loss was finite */
    uint32_t bad_value; /* accumulate: complement of the index of the first value that is not
                           finite; 0: all values are finite */
    unsigned long long clamped; /* accumulate: values that were clamped to their bound */
} fedge_cohort_tally;

/* What every launch needs. */
typedef struct fedge_cohort_shape {
    const fedge_cohort_slot_step *slot_steps; /* (slots) */
    uint32_t slots, batch;                    /* batch: B */
    cudaStream_t stream;
} fedge_cohort_shape;

/* Slot s's weights begin at values + s · stride. With stride 0 all slots use the same. */
typedef struct fedge_cohort_weights {
    const float *values;
    size_t stride;
} fedge_cohort_weights;

/* ---- gather.cu: x[b] ← (v / divide_by − mean[c]) / std[c], bit for bit as on the CPU. v is the
 * stored value of example indices[b]. With augmentation (edge/train/augment.h), v is the value of
 * row h + shift_h and column w + shift_w, or 0 outside the image; a flip mirrors w first. */

typedef struct fedge_cohort_move {
    int16_t shift_h, shift_w;
    uint16_t flip, unused;
} fedge_cohort_move;

typedef struct fedge_cohort_set {
    const void *values; /* (examples, example_values) */
    const int32_t *labels;
} fedge_cohort_set;

typedef struct fedge_cohort_gather {
    fedge_cohort_set sets[FEDGE_COHORT_MAX_DATA];
    uint32_t is_float;       /* type of stored values: float or uint8_t */
    uint32_t example_values; /* values per example */
    uint32_t plane;          /* values per channel */
    uint32_t num_channels;   /* channels of mean and std; 0: no normalisation */
    float divide_by;
    const float *mean, *std;        /* (num_channels) */
    const fedge_cohort_move *moves; /* (slots, B); NULL: no augmentation */
    uint32_t height, width;         /* image size, with augmentation */
    const uint32_t *indices;        /* (slots, B) */
    float *x;                       /* (slots, B, example_values) */
} fedge_cohort_gather;
cudaError_t fedge_cohort_launch_gather(const fedge_cohort_shape *shape,
                                       const fedge_cohort_gather *args);

/* Returns an error, such as cudaErrorNoKernelImageForDevice, when this build has no kernels for the
 * current GPU. */
cudaError_t fedge_cohort_has_code(void);

/* ---- gather.cu: copies the next step of each slot out of an uploaded run of steps, so that all
 * steps of a run are launched with the same arguments. The shape's slot_steps are not read. */

typedef struct fedge_cohort_advance {
    const fedge_cohort_slot_step *slot_steps; /* (run, slots) */
    const uint32_t *indices;                  /* (run, slots, B) */
    const fedge_cohort_move *moves;           /* (run, slots, B); NULL: no augmentation */
    uint32_t *steps_taken;                    /* (slots); each launch adds 1 */
    fedge_cohort_slot_step *slot_step;        /* (slots); the copies, as the next two */
    uint32_t *batch;                          /* (slots, B) */
    fedge_cohort_move *step_moves;            /* (slots, B) */
} fedge_cohort_advance;
cudaError_t fedge_cohort_launch_advance(const fedge_cohort_shape *shape,
                                        const fedge_cohort_advance *args);

/* Mantissa bits that rounding drops, of a float's 23. GPUs round ties away from 0 for tf32, and to
 * even for bf16. */
enum { FEDGE_COHORT_TF32 = 13, FEDGE_COHORT_BF16 = 16 };

/* ---- linear.cu: y = y_factor · (x Wᵀ + b), then ReLU if wanted;  dx = dx_factor · dy W;
 * dW = dyᵀ x;  db = Σ dy. */

typedef struct fedge_cohort_linear {
    fedge_cohort_weights weight, bias; /* (OC, C), (OC); bias.values NULL: no bias */
    uint32_t in, out;                  /* C, OC */
    uint32_t steps;                    /* T; unused by convolutions */
    uint32_t dropped;       /* bits that rounding drops: FEDGE_COHORT_TF32, FEDGE_COHORT_BF16, 0 */
    const float *x;         /* (slots, B, T, C) */
    float *y;               /* (slots, B, T, OC) */
    const float *dy;        /* (slots, B, T, OC) */
    float *dx;              /* (slots, B, T, C); NULL: not wanted */
    float *dweight, *dbias; /* slots are gradient_stride apart; dbias NULL: no bias; dweight NULL:
                               neither is wanted */
    size_t gradient_stride;
    float y_factor, dx_factor; /* 0 means 1; unused by convolutions, as y_adds and dx_adds */
    uint32_t y_adds, dx_adds;  /* add to y or dx instead of overwriting it */
    uint32_t relu;             /* apply ReLU to y */
} fedge_cohort_linear;
cudaError_t fedge_cohort_launch_linear(const fedge_cohort_shape *shape,
                                       const fedge_cohort_linear *args);
cudaError_t fedge_cohort_launch_linear_backward(const fedge_cohort_shape *shape,
                                                const fedge_cohort_linear *args);

/* ---- conv2d.cu, and grouped.cu for more than one group: the same with x (slots, B, C, H, W),
 * weight (OC, C / groups, KH, KW) and y (slots, B, OC, OH, OW). Pairs are (height, width). */

typedef struct fedge_cohort_conv2d {
    fedge_cohort_linear tensors;
    uint32_t in_size[2], out_size[2], kernel[2], stride[2], padding[2], dilation[2];
    uint32_t groups;
} fedge_cohort_conv2d;
cudaError_t fedge_cohort_launch_conv2d(const fedge_cohort_shape *shape,
                                       const fedge_cohort_conv2d *args);
cudaError_t fedge_cohort_launch_conv2d_backward(const fedge_cohort_shape *shape,
                                                const fedge_cohort_conv2d *args);
cudaError_t fedge_cohort_launch_grouped(const fedge_cohort_shape *shape,
                                        const fedge_cohort_conv2d *args);
cudaError_t fedge_cohort_launch_grouped_backward(const fedge_cohort_shape *shape,
                                                 const fedge_cohort_conv2d *args);

/* ---- pooling.cu: y = the maximum of a window, or its last NaN; backward finds it by argmax */

typedef struct fedge_cohort_maxpool2d {
    uint32_t channels, in_size[2], out_size[2], kernel[2], stride[2], padding[2], dilation[2];
    const float *x;   /* (slots, B, C, H, W) */
    float *y;         /* (slots, B, C, OH, OW) */
    uint16_t *argmax; /* (slots, B, C, OH, OW): kernel row · kernel width + kernel column */
    const float *dy;  /* (slots, B, C, OH, OW) */
    float *dx;        /* (slots, B, C, H, W) */
} fedge_cohort_maxpool2d;
cudaError_t fedge_cohort_launch_maxpool2d(const fedge_cohort_shape *shape,
                                          const fedge_cohort_maxpool2d *args);
cudaError_t fedge_cohort_launch_maxpool2d_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_maxpool2d *args);

/* ---- elementwise.cu: functions of one number (edge/train/layers/activations.c, relu.c). y may be
 * x, and dx may be dy, except that functions whose backward reads x need it unchanged. */

enum {
    FEDGE_COHORT_RELU, /* passes NaN on */
    FEDGE_COHORT_RELU6,
    FEDGE_COHORT_LEAKYRELU, /* uses [slope] */
    FEDGE_COHORT_GELU,
    FEDGE_COHORT_GELU_TANH,
    FEDGE_COHORT_SIGMOID,
    FEDGE_COHORT_TANH,
    FEDGE_COHORT_SILU
};

typedef struct fedge_cohort_activation {
    uint32_t function, values; /* values: per example */
    float slope;
    const float *x; /* (slots, B, values), as all four */
    float *y;
    const float *dy;
    float *dx;
} fedge_cohort_activation;
cudaError_t fedge_cohort_launch_activation(const fedge_cohort_shape *shape,
                                           const fedge_cohort_activation *args);
cudaError_t fedge_cohort_launch_activation_backward(const fedge_cohort_shape *shape,
                                                    const fedge_cohort_activation *args);

/* ---- elementwise.cu: to = from, or with [adds] to += from */

typedef struct fedge_cohort_add {
    const float *from; /* (slots, B, values) */
    float *to;         /* (slots, B, values) */
    uint32_t values, adds;
} fedge_cohort_add;
cudaError_t fedge_cohort_launch_add(const fedge_cohort_shape *shape, const fedge_cohort_add *args);

/* ---- pooling.cu: y = the mean of a window. Along each axis output i's window begins at
 * ⌊i · in / out⌋ and ends before ⌈(i + 1) · in / out⌉. */

typedef struct fedge_cohort_adaptiveavgpool2d {
    uint32_t channels, in_size[2], out_size[2];
    const float *x;  /* (slots, B, C, H, W) */
    float *y;        /* (slots, B, C, OH, OW) */
    const float *dy; /* (slots, B, C, OH, OW) */
    float *dx;       /* (slots, B, C, H, W) */
} fedge_cohort_adaptiveavgpool2d;
cudaError_t fedge_cohort_launch_adaptiveavgpool2d(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_adaptiveavgpool2d *args);
cudaError_t
fedge_cohort_launch_adaptiveavgpool2d_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_adaptiveavgpool2d *args);

/* ---- pooling.cu: y = the sum of a window / divisor. With divisor 0 it is the number of the
 * window's pixels inside the image, or with count_pad inside the image and its padding. */

typedef struct fedge_cohort_avgpool2d {
    uint32_t channels, in_size[2], out_size[2], kernel[2], stride[2], padding[2];
    uint32_t count_pad, divisor;
    const float *x;  /* (slots, B, C, H, W) */
    float *y;        /* (slots, B, C, OH, OW) */
    const float *dy; /* (slots, B, C, OH, OW) */
    float *dx;       /* (slots, B, C, H, W) */
} fedge_cohort_avgpool2d;
cudaError_t fedge_cohort_launch_avgpool2d(const fedge_cohort_shape *shape,
                                          const fedge_cohort_avgpool2d *args);
cudaError_t fedge_cohort_launch_avgpool2d_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_avgpool2d *args);

/* ---- norm.cu: LayerNorm and GroupNorm (edge/train/layers/norm.c). Each row of C · spatial values
 * is normalised by its mean and variance; channel c of row r has weight (r mod groups) · C + c. */

typedef struct fedge_cohort_norm {
    fedge_cohort_weights weight, bias; /* (groups, C); values NULL: 1 and 0 */
    uint32_t rows, groups, channels, spatial;
    float eps;
    const float *x;         /* (slots, B, rows, C, spatial) */
    float *y;               /* (slots, B, rows, C, spatial) */
    float *moments;         /* (slots, B, rows, 2): mean and 1 / deviation, for backward */
    const float *dy;        /* (slots, B, rows, C, spatial) */
    float *dx;              /* (slots, B, rows, C, spatial); NULL: not wanted */
    float *dweight, *dbias; /* slots are gradient_stride apart; NULL: not wanted */
    size_t gradient_stride;
} fedge_cohort_norm;
cudaError_t fedge_cohort_launch_norm(const fedge_cohort_shape *shape,
                                     const fedge_cohort_norm *args);
cudaError_t fedge_cohort_launch_norm_backward(const fedge_cohort_shape *shape,
                                              const fedge_cohort_norm *args);

/* ---- norm.cu: BatchNorm2d (edge/train/layers/batchnorm2d.c). Each channel is normalised by its
 * mean and variance over the slot's batch, or by the running ones. */

typedef struct fedge_cohort_batchnorm {
    fedge_cohort_weights weight, bias; /* (C); values NULL: 1 and 0 */
    fedge_cohort_weights running;      /* (2, C): mean and variance */
    float *tracked;                    /* running.values, to be updated; NULL: they stay */
    uint32_t channels, spatial;
    uint32_t by_batch; /* normalise by the batch, not by running */
    float momentum, eps;
    const float *x;         /* (slots, B, C, spatial) */
    float *y;               /* (slots, B, C, spatial) */
    float *moments;         /* (slots, C, 2): mean and 1 / deviation, for backward */
    const float *dy;        /* (slots, B, C, spatial) */
    float *dx;              /* (slots, B, C, spatial); NULL: not wanted */
    float *dweight, *dbias; /* slots are gradient_stride apart; NULL: not wanted */
    size_t gradient_stride;
} fedge_cohort_batchnorm;
cudaError_t fedge_cohort_launch_batchnorm(const fedge_cohort_shape *shape,
                                          const fedge_cohort_batchnorm *args);
cudaError_t fedge_cohort_launch_batchnorm_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_batchnorm *args);

/* ---- embedding.cu: y = row x of the weight, with whole numbers x below [rows]. A row's gradient
 * is the sum of dy over the steps that have its index. Positions: y = x + the weight's first T
 * rows. */

typedef struct fedge_cohort_embedding {
    fedge_cohort_weights weight; /* (rows, C) */
    uint32_t rows, dim, steps;   /* dim: C, steps: T */
    const float *x;              /* (slots, B, T); positions: (slots, B, T, C) */
    float *y;                    /* (slots, B, T, C) */
    const float *dy;             /* (slots, B, T, C) */
    float *dweight;              /* slots are gradient_stride apart; NULL: not wanted */
    size_t gradient_stride;
} fedge_cohort_embedding;
cudaError_t fedge_cohort_launch_embedding(const fedge_cohort_shape *shape,
                                          const fedge_cohort_embedding *args);
cudaError_t fedge_cohort_launch_embedding_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_embedding *args);
cudaError_t fedge_cohort_launch_positions(const fedge_cohort_shape *shape,
                                          const fedge_cohort_embedding *args);
cudaError_t fedge_cohort_launch_positions_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_embedding *args);

/* ---- elementwise.cu: y = x / (1 − p) where a random number in [0, 1) is at least p, else 0.
 * Backward is the same on dy. The CPU draws the numbers one after another, layer by layer; a GPU
 * computes each from its position in the step's stream (device.cuh). */

typedef struct fedge_cohort_drop {
    float p;          /* probability; 0: nothing is dropped, and nothing drawn */
    uint32_t chunk;   /* maximum of examples that the layer draws for at a time; 0: all */
    uint64_t all;     /* words that all layers draw for an example */
    uint64_t before;  /* words that the layers before this one draw for an example */
    uint64_t layer;   /* words that this layer draws for an example */
    uint64_t earlier; /* words that this layer draws for an example before it drops this array */
    uint64_t words;   /* words that this array takes for an example */
} fedge_cohort_drop;

typedef struct fedge_cohort_dropout {
    fedge_cohort_drop drop;
    uint32_t values; /* per example */
    const float *x;  /* (slots, B, values) */
    float *y;        /* (slots, B, values); may be x */
} fedge_cohort_dropout;
cudaError_t fedge_cohort_launch_dropout(const fedge_cohort_shape *shape,
                                        const fedge_cohort_dropout *args);

/* ---- attention.cu: att = softmax(q kᵀ / √(C / NH)) and context = att v, for each head. Dropout
 * sets the sign bit of the weights that it drops; these do not count in the context. */

typedef struct fedge_cohort_attention {
    uint32_t steps, dim, heads; /* T, C, NH */
    uint32_t causal;            /* steps attend to themselves and to earlier steps only */
    fedge_cohort_drop drop;     /* one word for each weight that is not masked, in att's order */
    const float *qkv;           /* (slots, B, T, 3, C) */
    float *att;                 /* (slots, B, NH, T, T) */
    float *context;             /* (slots, B, T, C) */
    const float *dcontext;      /* (slots, B, T, C) */
    float *dscores;             /* (slots, B, NH, T, T) */
    float *dqkv;                /* (slots, B, T, 3, C) */
} fedge_cohort_attention;
cudaError_t fedge_cohort_launch_attention(const fedge_cohort_shape *shape,
                                          const fedge_cohort_attention *args);
cudaError_t fedge_cohort_launch_attention_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_attention *args);

/* ---- recurrent.cu: LSTM and GRU, step by step (edge/train/layers/lstm.c, gru.c). The caller puts
 * W_ih x + b_ih into gates (i, f, g, o or r, z, n). Forward replaces these by the gates' values,
 * and backward by the gradients of the sums that the gates are functions of. */

typedef struct fedge_cohort_recurrent {
    fedge_cohort_weights weight, bias; /* W_hh (G · C, C) and b_hh (G · C), with G = 4 for an LSTM
                                          and 3 for a GRU; bias.values NULL: no bias */
    uint32_t is_gru, steps, hidden;    /* hidden: C */
    uint32_t reverse;                  /* go from the last step to the first */
    uint32_t h_row;                    /* floats from one step of h and dy to the next */
    float *gates;                      /* (slots, B, T, G, C) */
    float *cell;       /* (slots, B, T, C): LSTM: c; GRU: W_hn h + b_hn of the step before */
    float *before;     /* (slots, B, T, C): h of the step before */
    float *h;          /* (slots, B, T, h_row); the first C of a row are written */
    const float *dy;   /* (slots, B, T, h_row): gradient of h */
    float *dstate;     /* (slots, B, T, G, C): gradient of W_hh h + b_hh; LSTM: gates itself */
    float *dh, *dcell; /* (slots, B, C): gradients from the step after */
} fedge_cohort_recurrent;
cudaError_t fedge_cohort_launch_recurrent(const fedge_cohort_shape *shape,
                                          const fedge_cohort_recurrent *args);
cudaError_t fedge_cohort_launch_recurrent_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_recurrent *args);

/* ---- elementwise.cu: removes a dimension: y = the mean of x over its indices [first, first +
 * count) */

typedef struct fedge_cohort_axis {
    uint32_t outer, length, inner; /* shape of an example of x */
    uint32_t first, count;
    const float *x;  /* (slots, B, outer, length, inner) */
    float *y;        /* (slots, B, outer, inner) */
    const float *dy; /* (slots, B, outer, inner) */
    float *dx;       /* (slots, B, outer, length, inner) */
} fedge_cohort_axis;
cudaError_t fedge_cohort_launch_axis(const fedge_cohort_shape *shape,
                                     const fedge_cohort_axis *args);
cudaError_t fedge_cohort_launch_axis_backward(const fedge_cohort_shape *shape,
                                              const fedge_cohort_axis *args);

/* ---- loss.cu: the losses of edge/train/losses */

enum {
    FEDGE_COHORT_CROSS_ENTROPY, /* argument: label smoothing */
    FEDGE_COHORT_BCE_WITH_LOGITS,
    FEDGE_COHORT_MSE,
    FEDGE_COHORT_L1,
    FEDGE_COHORT_HUBER,    /* argument: delta */
    FEDGE_COHORT_SMOOTH_L1 /* argument: beta */
};

typedef struct fedge_cohort_loss {
    fedge_cohort_set sets[FEDGE_COHORT_MAX_DATA];
    const uint32_t *indices;     /* (slots, B) */
    const float *y;              /* (slots, B, V) */
    float *dy;                   /* (slots, B, V); NULL: not wanted */
    int32_t *predicted;          /* (slots, B) */
    fedge_cohort_tally *tallies; /* (slots) */
    uint32_t function, classes;  /* classes: V, outputs of the model */
    float argument;
} fedge_cohort_loss;
cudaError_t fedge_cohort_launch_loss(const fedge_cohort_shape *shape,
                                     const fedge_cohort_loss *args);

/* ---- step.cu: the optimizer, for all parameters of all slots in one launch */

enum { FEDGE_COHORT_SGD, FEDGE_COHORT_ADAM, FEDGE_COHORT_ADAMW };

typedef struct fedge_cohort_step {
    uint32_t optimizer, nesterov;
    float momentum, weight_decay; /* momentum 0: states[0] is not used */
    float beta1, beta2, epsilon;
    float proximal_mu, clip_norm; /* 0: not used */
    const float *start;           /* (members, stride): each member's global model */
    const float *corrections;     /* (slots, stride): SCAFFOLD's; NULL: none */
    float *values, *gradients;    /* (slots, stride) */
    void *states[2];              /* (slots, states_stride): optimizer states of trained values */
    size_t states_stride;
    double *squares; /* (slots, FEDGE_COHORT_NORM_PARTS), for clip_norm */
    size_t stride;
    uint32_t num_values;
    uint32_t first, count; /* range of trained values that this launch steps */
    uint32_t adds;         /* squares: add to the sums of earlier ranges */
    uint32_t states_first; /* index of value [first]'s states */
    uint32_t states_bf16;  /* states are bf16 with stochastic rounding, otherwise fp32 */
    uint32_t rounding;     /* states_bf16: upper half of stream[0] of its random numbers */
} fedge_cohort_step;
/* Slots at step 1 begin: sets values to their member's start, and states and tallies to 0. */
cudaError_t fedge_cohort_launch_begin(const fedge_cohort_shape *shape,
                                      const fedge_cohort_step *args, fedge_cohort_tally *tallies);
/* Before the first step's launch with clip_norm, launch this for all ranges. */
cudaError_t fedge_cohort_launch_squares(const fedge_cohort_shape *shape,
                                        const fedge_cohort_step *args);
cudaError_t fedge_cohort_launch_step(const fedge_cohort_shape *shape,
                                     const fedge_cohort_step *args);

/* ---- accumulate.cu: sums the gradients of a batch's parts in fixed point, so that the result does
 * not depend on which GPU summed which parts: sums += round(gradient · examples · 2^fraction). A
 * gradient beyond ±2^16 is not added; it sets the tally's bad_value. The second launcher converts
 * back: gradient = sums / 2^fraction / examples. */

#define FEDGE_COHORT_MAX_GRADIENT 65536.0f

typedef struct fedge_cohort_gradient_sums {
    float *gradients; /* (slots, gradient_stride); mean: (values) */
    size_t gradient_stride;
    int64_t *sums; /* (values); mean: (count), from value [first] on */
    uint32_t first, count, fraction;
    uint32_t examples;           /* mean: examples of the whole batch */
    fedge_cohort_tally *tallies; /* (slots) */
} fedge_cohort_gradient_sums;
cudaError_t fedge_cohort_launch_sum_gradients(const fedge_cohort_shape *shape,
                                              const fedge_cohort_gradient_sums *args);
cudaError_t fedge_cohort_launch_mean_gradients(const fedge_cohort_gradient_sums *args,
                                               cudaStream_t stream);

/* ---- accumulate.cu: sums += weight · codec(values − start) for one slot, bit for bit as
 * edge/core/codec/codec.h encodes it. Adds nothing when the tally has a bad step or value. Two
 * launches must not use the same sums at the same time. */

typedef struct fedge_cohort_accumulate {
    const fedge_cohort_chunk *chunks; /* (num_chunks) */
    uint32_t num_chunks, weight;
    const float *values, *start; /* (num_values) */
    uint32_t num_values;
    fedge_cohort_tally *tally;
} fedge_cohort_accumulate;
cudaError_t fedge_cohort_launch_accumulate(const fedge_cohort_accumulate *args,
                                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
