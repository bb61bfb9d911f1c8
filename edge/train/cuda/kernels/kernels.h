/* The kernels of cohort training: a C interface, implemented in the .cu files
 * of this folder.
 *
 * Many clients' models are trained side by side. Each has a slot, and every
 * array has one part for each slot: (slots, …). A launch works on all slots at
 * once; what a slot does in it, its turn says. Images are (channels, height,
 * width) and a slot's arrays have the batch first, as on the CPU.
 *
 * Every sum is made in an order that shapes alone decide: by one thread from
 * its first term to its last with fused products, or by a tree whose form is
 * fixed; where factors are rounded, tensor cores add 8 or 16 products at a time
 * (tile.cuh). So a client's result depends neither on its slot nor on who
 * else is trained, and the CPU's results are the same but for rounding.
 *
 * All pointers are to the GPU's memory and all work is queued on [stream], of
 * the current GPU. A launcher returns what the launch returned; errors of the
 * kernels themselves come later, as CUDA has it.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_KERNELS_H
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/train/cuda/kernels/shared.h"

#define FEDGE_COHORT_MAX_DATA 2       /* sets of examples on a GPU */
#define FEDGE_COHORT_MAX_SLOTS 16384u /* the third dimension of a grid ends at 65,535 */
#define FEDGE_COHORT_NORM_PARTS 64    /* of a slot's gradient, in the sum of its squares */

#ifdef __cplusplus
extern "C" {
#endif

/* What a slot does in one step. */
typedef struct fedge_cohort_slot_step {
    uint32_t count;             /* examples of its batch; 0: it is idle */
    uint32_t step;              /* of its task, from 1 */
    uint32_t data;              /* which set its examples are of */
    uint32_t member;            /* whose model it began with */
    float rate, keep;           /* the learning rate; AdamW's 1 − lr · weight_decay, else 1 */
    float size, root;           /* Adam: lr / (1 − β1^step), sqrt(1 − β2^step) */
    uint32_t key[2], stream[3]; /* of the step's draws: Philox's key, and its counter behind the
                                   block's number */
    uint32_t whole, first;      /* of the batch that the slot has a part of: its examples, and the
                                   place of the slot's first among them */
    uint32_t part;              /* examples that are drawn for together; 0: the whole batch */
} fedge_cohort_slot_step;

/* What a slot's task has come to. */
typedef struct fedge_cohort_tally {
    double loss_sum, bad_loss; /* bad_loss: of the batch of bad_step */
    uint64_t correct;
    uint32_t bad_step, bad_count; /* the first step whose loss was not finite, and
                                     its examples; 0: there was none */
    uint32_t bad_value; /* accumulate: the complement of the first value that is not finite; 0: all
                           are */
    unsigned long long clamped; /* accumulate: values that were cut to their bound */
} fedge_cohort_tally;

/* Of a launch. */
typedef struct fedge_cohort_shape {
    const fedge_cohort_slot_step *slot_steps; /* (slots) */
    uint32_t slots, batch;                    /* batch: examples that a slot has room for */
    cudaStream_t stream;
} fedge_cohort_shape;

/* Weights of slot s begin at values + s · stride; stride 0: all slots use the
 * same. */
typedef struct fedge_cohort_weights {
    const float *values;
    size_t stride;
} fedge_cohort_weights;

/* ---- gather.cu: x[b] ← (v / divide_by − mean[channel]) / std[channel], v of example indices[b],
 * with the CPU's bits. Where examples are moved (edge/train/augment.h), v is that of the place
 * (i + down, j + right), 0 outside, and j is counted from the other side with flip. */

typedef struct fedge_cohort_move {
    int16_t down, right;
    uint16_t flip, unused;
} fedge_cohort_move;

typedef struct fedge_cohort_set {
    const void *values; /* (examples, example_values) */
    const int32_t *labels;
} fedge_cohort_set;

typedef struct fedge_cohort_gather {
    fedge_cohort_set sets[FEDGE_COHORT_MAX_DATA];
    uint32_t is_float;       /* values are floats; else bytes */
    uint32_t example_values; /* of each example */
    uint32_t plane;          /* of them, of each channel that has a mean and std */
    uint32_t num_channels;   /* 0: neither mean nor std */
    float divide_by;
    const float *mean, *std;        /* (num_channels) */
    const fedge_cohort_move *moves; /* (slots, batch), of images of height · width; NULL: none */
    uint32_t height, width;
    const uint32_t *indices; /* (slots, batch) */
    float *x;                /* (slots, batch, example_values) */
} fedge_cohort_gather;
cudaError_t fedge_cohort_launch_gather(const fedge_cohort_shape *shape,
                                       const fedge_cohort_gather *args);

/* cudaErrorNoKernelImageForDevice, or what else says so: this build has no kernels for the current
 * GPU's kind. */
cudaError_t fedge_cohort_has_code(void);

/* ---- gather.cu: the next step of each slot, out of a run that was told. So all steps of a run
 * have the same arguments. The shape's turns are not read. */

typedef struct fedge_cohort_advance {
    const fedge_cohort_slot_step *slot_steps; /* (run, slots) */
    const uint32_t *indices;                  /* (run, slots, batch) */
    const fedge_cohort_move *moves;           /* likewise; NULL: none */
    uint32_t *taken;                          /* (slots): steps of the run, one more each time */
    fedge_cohort_slot_step *turn;             /* (slots): of the step */
    uint32_t *batch;                          /* (slots, batch): likewise */
    fedge_cohort_move *moved;                 /* likewise */
} fedge_cohort_advance;
cudaError_t fedge_cohort_launch_advance(const fedge_cohort_shape *shape,
                                        const fedge_cohort_advance *args);

/* Of a float's 23 bits behind the point. To tf32 GPUs round ties away from 0, to bf16 to even. */
enum { FEDGE_COHORT_TF32 = 13, FEDGE_COHORT_BF16 = 16 };

/* ---- linear.cu: y = x Wᵀ + b, or what a ReLU makes of it;  dx = dy W;  dW = dyᵀ x;  db = Σ dy.
 * With a factor y and dx are that many times the sums. */

typedef struct fedge_cohort_linear {
    fedge_cohort_weights weight, bias; /* (out, in), (out); bias.values NULL: none */
    uint32_t in, out;
    uint32_t steps;         /* rows of each example; a convolution has no use for it */
    uint32_t dropped;       /* bits that factors lose by rounding: FEDGE_COHORT_TF32, _BF16 or 0 */
    const float *x;         /* (slots, batch, steps, in) */
    float *y;               /* (slots, batch, steps, out) */
    const float *dy;        /* likewise */
    float *dx;              /* as x, or NULL */
    float *dweight, *dbias; /* with gradient_stride from slot to slot; dbias NULL
                               without bias, dweight NULL: neither is wanted */
    size_t gradient_stride;
    float y_factor, dx_factor; /* 0: 1; a convolution has no use for these four */
    uint32_t y_adds, dx_adds;  /* to what is there */
    uint32_t relu;             /* y is what is stored, but 0 where that is less */
} fedge_cohort_linear;
cudaError_t fedge_cohort_launch_linear(const fedge_cohort_shape *shape,
                                       const fedge_cohort_linear *args);
cudaError_t fedge_cohort_launch_linear_backward(const fedge_cohort_shape *shape,
                                                const fedge_cohort_linear *args);

/* ---- conv2d.cu: the same with weight (out, in / groups, kernel height, kernel width). With more
 * than one group, grouped.cu. */

typedef struct fedge_cohort_conv2d {
    fedge_cohort_linear tensors; /* in and out are channels; x and y are images */
    uint32_t in_size[2], out_size[2], kernel[2], stride[2], padding[2], dilation[2];
    uint32_t groups; /* grouped.cu */
} fedge_cohort_conv2d;
cudaError_t fedge_cohort_launch_conv2d(const fedge_cohort_shape *shape,
                                       const fedge_cohort_conv2d *args);
cudaError_t fedge_cohort_launch_conv2d_backward(const fedge_cohort_shape *shape,
                                                const fedge_cohort_conv2d *args);
cudaError_t fedge_cohort_launch_grouped(const fedge_cohort_shape *shape,
                                        const fedge_cohort_conv2d *args);
cudaError_t fedge_cohort_launch_grouped_backward(const fedge_cohort_shape *shape,
                                                 const fedge_cohort_conv2d *args);

/* ---- pooling.cu: y = the largest of its window, the last NaN if there is
 * one; its place in the window is kept for dx */

typedef struct fedge_cohort_maxpool2d {
    uint32_t channels, in_size[2], out_size[2], kernel[2], stride[2], padding[2], dilation[2];
    const float *x;   /* (slots, batch, channels, in_size) */
    float *y;         /* (slots, batch, channels, out_size) */
    uint16_t *places; /* likewise */
    const float *dy;  /* likewise */
    float *dx;        /* as x */
} fedge_cohort_maxpool2d;
cudaError_t fedge_cohort_launch_maxpool2d(const fedge_cohort_shape *shape,
                                          const fedge_cohort_maxpool2d *args);
cudaError_t fedge_cohort_launch_maxpool2d_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_maxpool2d *args);

/* ---- elementwise.cu: functions of one number (edge/train/layers/activations.c, relu.c). y may lie
 * over x and dx over dy; backward of those that need x finds it unchanged. */

enum {
    FEDGE_COHORT_RELU, /* a NaN stays one */
    FEDGE_COHORT_RELU6,
    FEDGE_COHORT_LEAKYRELU, /* with [slope] */
    FEDGE_COHORT_GELU,
    FEDGE_COHORT_GELU_TANH,
    FEDGE_COHORT_SIGMOID,
    FEDGE_COHORT_TANH,
    FEDGE_COHORT_SILU
};

typedef struct fedge_cohort_activation {
    uint32_t function, values; /* values: of an example */
    float slope;
    const float *x; /* (slots, batch, values), as all */
    float *y;
    const float *dy;
    float *dx;
} fedge_cohort_activation;
cudaError_t fedge_cohort_launch_activation(const fedge_cohort_shape *shape,
                                           const fedge_cohort_activation *args);
cudaError_t fedge_cohort_launch_activation_backward(const fedge_cohort_shape *shape,
                                                    const fedge_cohort_activation *args);

/* ---- elementwise.cu: to = from, or to += from */

typedef struct fedge_cohort_add {
    const float *from; /* (slots, batch, values) */
    float *to;         /* likewise */
    uint32_t values, adds;
} fedge_cohort_add;
cudaError_t fedge_cohort_launch_add(const fedge_cohort_shape *shape, const fedge_cohort_add *args);

/* ---- pooling.cu: y = the mean of its window, from i · in / out to
 * ⌈(i + 1) · in / out⌉ of each side */

typedef struct fedge_cohort_avgpool {
    uint32_t channels, in_size[2], out_size[2];
    const float *x;  /* (slots, batch, channels, in_size) */
    float *y;        /* (slots, batch, channels, out_size) */
    const float *dy; /* likewise */
    float *dx;       /* as x */
} fedge_cohort_avgpool;
cudaError_t fedge_cohort_launch_adaptiveavgpool2d(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_avgpool *args);
cudaError_t fedge_cohort_launch_adaptiveavgpool2d_backward(const fedge_cohort_shape *shape,
                                                           const fedge_cohort_avgpool *args);

/* ---- pooling.cu: y = the sum of its window / divisor; divisor 0: / the window's size, as far as
 * it lies in the image, or with count_pad in image and padding */

typedef struct fedge_cohort_averages {
    uint32_t channels, in_size[2], out_size[2], kernel[2], stride[2], padding[2];
    uint32_t count_pad, divisor;
    const float *x;  /* (slots, batch, channels, in_size) */
    float *y;        /* (slots, batch, channels, out_size) */
    const float *dy; /* likewise */
    float *dx;       /* as x */
} fedge_cohort_averages;
cudaError_t fedge_cohort_launch_avgpool2d(const fedge_cohort_shape *shape,
                                          const fedge_cohort_averages *args);
cudaError_t fedge_cohort_launch_avgpool2d_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_averages *args);

/* ---- norm.cu: rows by their mean and variance (edge/train/layers/norm.c). An example has [rows]
 * rows of channels · spatial values; row r's channel c has weight (r mod groups) · channels + c. */

typedef struct fedge_cohort_norm {
    fedge_cohort_weights weight, bias; /* (groups, channels); values NULL: 1 and 0 */
    uint32_t rows, groups, channels, spatial;
    float eps;
    const float *x;         /* (slots, batch, rows, channels, spatial) */
    float *y;               /* likewise */
    float *moments;         /* (slots, batch, rows, 2): mean and 1 / deviation, for backward */
    const float *dy;        /* as x */
    float *dx;              /* likewise, or NULL */
    float *dweight, *dbias; /* with gradient_stride from slot to slot; NULL: none */
    size_t gradient_stride;
} fedge_cohort_norm;
cudaError_t fedge_cohort_launch_norm(const fedge_cohort_shape *shape,
                                     const fedge_cohort_norm *args);
cudaError_t fedge_cohort_launch_norm_backward(const fedge_cohort_shape *shape,
                                              const fedge_cohort_norm *args);

/* ---- norm.cu: channels by their mean and variance over a slot's batch, or by running ones
 * (edge/train/layers/batchnorm2d.c) */

typedef struct fedge_cohort_batchnorm {
    fedge_cohort_weights weight, bias; /* (channels); values NULL: 1 and 0 */
    fedge_cohort_weights running;      /* (2, channels): mean and variance */
    float *tracked;                    /* the same place, to be moved; NULL: it stays */
    uint32_t channels, spatial;
    uint32_t by_batch; /* else by running */
    float momentum, eps;
    const float *x;         /* (slots, batch, channels, spatial) */
    float *y;               /* likewise */
    float *moments;         /* (slots, channels, 2): mean and 1 / deviation, for backward */
    const float *dy;        /* as x */
    float *dx;              /* likewise, or NULL */
    float *dweight, *dbias; /* with gradient_stride from slot to slot; NULL: none */
    size_t gradient_stride;
} fedge_cohort_batchnorm;
cudaError_t fedge_cohort_launch_batchnorm(const fedge_cohort_shape *shape,
                                          const fedge_cohort_batchnorm *args);
cudaError_t fedge_cohort_launch_batchnorm_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_batchnorm *args);

/* ---- embedding.cu: y = row x of the weight, x whole numbers below [rows];  dW = Σ dy of a row's
 * places. And positions: y = x + W[:steps]. */

typedef struct fedge_cohort_embedding {
    fedge_cohort_weights weight; /* (rows, dim) */
    uint32_t rows, dim, steps;   /* steps: indices of an example */
    const float *x;              /* (slots, batch, steps); positions: as y */
    float *y;                    /* (slots, batch, steps, dim) */
    const float *dy;             /* likewise */
    float *dweight;              /* with gradient_stride from slot to slot */
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

/* ---- elementwise.cu: y = x where a number of the step's stream, in [0, 1), is at least p, times 1
 * / (1 − p), else 0; backward likewise, of dy. The CPU draws one number after another, layer by
 * layer; a GPU finds each by its place (drop.cuh). */

typedef struct fedge_cohort_drop {
    float p;          /* 0: an array that may be dropped is not, and nothing is drawn for it */
    uint32_t chunk;   /* examples that the layer draws for at a time, at most; 0: all */
    uint64_t all;     /* words of an example: in all layers, */
    uint64_t before;  /* in those before this one, */
    uint64_t layer;   /* in this one, */
    uint64_t earlier; /* in this one for arrays before this, */
    uint64_t words;   /* and for this */
} fedge_cohort_drop;

typedef struct fedge_cohort_dropout {
    fedge_cohort_drop drop;
    uint32_t values; /* of an example */
    const float *x;  /* (slots, batch, values) */
    float *y;        /* likewise; may be x */
} fedge_cohort_dropout;
cudaError_t fedge_cohort_launch_dropout(const fedge_cohort_shape *shape,
                                        const fedge_cohort_dropout *args);

/* ---- attention.cu: P = softmax(q kᵀ / √(dim / heads)) and context = P v, for each head. With
 * dropout some of P are dropped before they meet v: those that are have their sign bit set. */

typedef struct fedge_cohort_attention {
    uint32_t steps, dim, heads; /* dim: of all heads together */
    uint32_t causal;            /* a step sees those up to itself */
    fedge_cohort_drop drop;     /* of P: a word for each step seen, by head, step and step seen */
    const float *qkv;           /* (slots, batch, steps, 3, dim) */
    float *shares;              /* (slots, batch, heads, steps, steps): P */
    float *context;             /* (slots, batch, steps, dim) */
    const float *dcontext;      /* likewise */
    float *dscores;             /* as shares */
    float *dqkv;                /* as qkv */
} fedge_cohort_attention;
cudaError_t fedge_cohort_launch_attention(const fedge_cohort_shape *shape,
                                          const fedge_cohort_attention *args);
cudaError_t fedge_cohort_launch_attention_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_attention *args);

/* ---- recurrent.cu: the steps of an LSTM or GRU, one after another (edge/train/layers/lstm.c,
 * gru.c). gates has the inputs' share of the sums, which become values, and going back the sums'
 * gradients: i, f, g, o, or r, z, n. */

typedef struct fedge_cohort_recurrent {
    fedge_cohort_weights weight, bias; /* W_hh (gates, hidden), b_hh; bias.values NULL: none */
    uint32_t is_gru, steps, hidden;
    uint32_t reverse; /* from the last step to the first: the step before is the one behind */
    uint32_t h_row;   /* floats from one step of h and dy to the next */
    float *gates;     /* (slots, batch, steps, gates) */
    float *cell; /* (slots, batch, steps, hidden), as what follows: c, or the state's share in n */
    float *before;     /* h of the step before */
    float *h;          /* (slots, batch, steps, h_row), of which hidden are written */
    const float *dy;   /* likewise: of h */
    float *dstate;     /* as gates: GRU's gradients of the state's share; else gates itself */
    float *dh, *dcell; /* (slots, batch, hidden): from the step behind */
} fedge_cohort_recurrent;
cudaError_t fedge_cohort_launch_recurrent(const fedge_cohort_shape *shape,
                                          const fedge_cohort_recurrent *args);
cudaError_t fedge_cohort_launch_recurrent_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_recurrent *args);

/* ---- elementwise.cu: one index of a dimension, or the mean over all of them; the dimension goes
 * away */

typedef struct fedge_cohort_axis {
    uint32_t outer, length, inner; /* of an example */
    uint32_t first, count;         /* places of the dimension: y = their sum / count */
    const float *x;                /* (slots, batch, outer, length, inner) */
    float *y;                      /* (slots, batch, outer, inner) */
    const float *dy;               /* likewise */
    float *dx;                     /* as x */
} fedge_cohort_axis;
cudaError_t fedge_cohort_launch_axis(const fedge_cohort_shape *shape,
                                     const fedge_cohort_axis *args);
cudaError_t fedge_cohort_launch_axis_backward(const fedge_cohort_shape *shape,
                                              const fedge_cohort_axis *args);

/* ---- loss.cu: edge/train/losses */

enum {
    FEDGE_COHORT_CROSS_ENTROPY, /* argument: label smoothing */
    FEDGE_COHORT_BCE_WITH_LOGITS,
    FEDGE_COHORT_MSE,
    FEDGE_COHORT_L1,
    FEDGE_COHORT_HUBER /* argument: delta */
};

typedef struct fedge_cohort_loss {
    fedge_cohort_set sets[FEDGE_COHORT_MAX_DATA];
    const uint32_t *indices;     /* (slots, batch) */
    const float *y;              /* (slots, batch, classes) */
    float *dy;                   /* likewise; NULL: none is wanted */
    int32_t *predicted;          /* (slots, batch) */
    fedge_cohort_tally *tallies; /* (slots) */
    uint32_t function, classes;  /* classes: outputs */
    float argument;
} fedge_cohort_loss;
cudaError_t fedge_cohort_launch_loss(const fedge_cohort_shape *shape,
                                     const fedge_cohort_loss *args);

/* ---- step.cu: the optimizer, all parameters of all slots in one launch
 * (edge/train/model.h) */

enum { FEDGE_COHORT_SGD, FEDGE_COHORT_ADAM, FEDGE_COHORT_ADAMW };

typedef struct fedge_cohort_step {
    uint32_t optimizer, nesterov;
    float momentum, weight_decay; /* momentum 0: states[0] is not used */
    float beta1, beta2, epsilon;
    float proximal_mu, clip_norm; /* 0: none */
    const float *start;           /* (members, stride): their global models */
    const float *corrections;     /* (slots, stride): SCAFFOLD's; NULL: none */
    float *values, *gradients;    /* (slots, stride) */
    void *states[2];              /* (slots, states_stride): of what is trained alone */
    size_t states_stride;
    double *squares; /* (slots, FEDGE_COHORT_NORM_PARTS), for clip_norm */
    size_t stride;
    uint32_t num_values;
    uint32_t first, count; /* of the values that are trained: a step takes a range of them */
    uint32_t adds;         /* squares: to those of the ranges before */
    uint32_t states_first; /* the place of value [first]'s states */
    uint32_t states_bf16;  /* states are bf16, rounded up or down by chance; else fp32 */
    uint32_t rounding;     /* then: the purpose of the step's stream for it, in its place */
} fedge_cohort_step;
/* Slots whose turn is step 1 begin: values = their member's start, states and tallies 0. */
cudaError_t fedge_cohort_launch_begin(const fedge_cohort_shape *shape,
                                      const fedge_cohort_step *args, fedge_cohort_tally *tallies);
/* With clip_norm, the sums of squares of all ranges come first. */
cudaError_t fedge_cohort_launch_squares(const fedge_cohort_shape *shape,
                                        const fedge_cohort_step *args);
cudaError_t fedge_cohort_launch_step(const fedge_cohort_shape *shape,
                                     const fedge_cohort_step *args);

/* ---- accumulate.cu: gradients of a batch's parts, summed in fixed point so that nobody sees which
 * parts were summed where: sums += round(gradient · examples · 2^fraction). A gradient beyond ±2^16
 * is told as a tally's bad_value, and not added. And back: gradient = sums / 2^fraction / examples.
 */

#define FEDGE_COHORT_SHARE_MOST 65536.0f

typedef struct fedge_cohort_shared_sums {
    float *gradients; /* (slots, gradient_stride); back: (values), of all parts */
    size_t gradient_stride;
    int64_t *sums; /* (values); back: (count), those of value [first] and behind */
    uint32_t first, count, fraction;
    uint32_t examples;           /* back: of the whole batch */
    fedge_cohort_tally *tallies; /* (slots) */
} fedge_cohort_shared_sums;
cudaError_t fedge_cohort_launch_share(const fedge_cohort_shape *shape,
                                      const fedge_cohort_shared_sums *args);
cudaError_t fedge_cohort_launch_unshare(const fedge_cohort_shared_sums *args, cudaStream_t stream);

/* ---- accumulate.cu: sums += weight · v, where v is what a codec makes of values − start, bit for
 * bit as edge/core/codec/codec.h has it. For one slot, whose tally says whether there is something
 * bad: then nothing is added. No two launches at a time for the same sums. */

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
