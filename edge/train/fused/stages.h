/* The stages of a fused model: their layouts and sizes (plan.c), and their passes (stages.c,
 * conv2d.c); private to edge/train/fused.
 *
 * A stage is one pass over the batch. ReLU is never a stage of its own: it is applied in place to
 * the output of the stage before it, whose backward pass needs only that output's signs. A
 * MaxPool2d right after a Conv2d is part of the convolution's stage, which then never stores the
 * convolution's full output; max and ReLU commute, so a ReLU between the two runs after the
 * pooling.
 *
 * Conv2d and MaxPool2d work channels-last, (h, w, c) with c padded to the kernels' lanes and with
 * the next convolution's border of zeros already around the image. Everything else is flat.
 */
#ifndef FEDGE_EDGE_TRAIN_FUSED_STAGES_H
#define FEDGE_EDGE_TRAIN_FUSED_STAGES_H

#include "edge/train/kernels/kernels.h"
#include "edge/train/layers/layer.h"
#include "edge/train/model/internals.h"

/* The layout of one example between two stages. */
typedef struct fedge_grid {
    uint32_t channels, height, width; /* flat: features, 1, 1 */
    uint32_t padded_channels;         /* flat: channels */
    uint32_t pad_h, pad_w;            /* border of zeros on each side; flat: 0 */
    size_t size; /* floats: (h + 2 pad_h) · (w + 2 pad_w) · padded_channels */
} fedge_grid;

typedef enum fedge_stage_kind {
    FEDGE_STAGE_IMPORT,    /* copies the caller's example to its grid; first stage only */
    FEDGE_STAGE_CONV2D,    /* optionally with the pooling after it */
    FEDGE_STAGE_MAXPOOL2D, /* pooling without a convolution before it */
    FEDGE_STAGE_FLATTEN,   /* channels-last to the (c, h, w) order of PyTorch */
    FEDGE_STAGE_LINEAR
} fedge_stage_kind;

#define FEDGE_STAGE_MAX_WINDOW 256 /* pixels under a pooling window */

/* A window that slides over an image. Index 0 is height, 1 is width. */
typedef struct fedge_window {
    uint32_t kernel[2], stride[2], pad[2];
    uint32_t in[2], out[2]; /* pixels without border */
} fedge_window;

/* The windows of a Conv2d or MaxPool2d stage. */
typedef struct fedge_stage_windows {
    fedge_window conv, pool;
    fedge_conv_shape shape; /* Conv2d */
    uint32_t row_stride;    /* Conv2d: floats between the patches of adjacent rows */
} fedge_stage_windows;

typedef struct fedge_stage {
    fedge_stage_kind kind;
    bool image;         /* the output is channels-last (else flat) */
    bool relu;          /* the output is rectified in place */
    bool pass_gradient; /* an earlier stage has parameters, so the input's gradient is needed */
    bool planar;        /* Conv2d that reads the caller's (c, h, w) through a padded copy */
    bool pooled;        /* Conv2d with pool after it */
    bool bias;
    bool in_place;  /* the input's gradient overwrites the input, example by example */
    bool from_relu; /* in_place: the input was rectified, and its gradient is, too */
    uint16_t layer; /* Conv2d, Linear: the layer's index */
    fedge_grid in, out;
    size_t num_parameters; /* weights and biases, consecutive in the values */
    size_t num_weights;
    fedge_stage_windows *windows; /* Conv2d, MaxPool2d; during a walk, valid until the next stage */

    /* Set by fedge_fused_lay_out. */
    float *weight,
        *weight_velocity; /* parameters as in the state_dict; velocity NULL without momentum */
    float *bias_values, *bias_velocity;
    float *activation; /* (batch, out.size) */
    uint8_t *argmax;   /* pooling: (batch, out_h, out_w, padded channels); without training one
                          example */
    size_t argmax_stride;
} fedge_stage;

/* A walk over the stages of a spec. */
typedef struct fedge_stage_walk {
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    uint32_t lanes;
    uint32_t layer;    /* index of the next layer */
    fedge_shape shape; /* shape of its input */
    fedge_grid grid;   /* layout of its input */
    bool image;        /* grid is channels-last */
    bool started;      /* the first stage has run: grid is not the caller's memory */
    size_t num_parameters;
    fedge_stage_windows windows; /* windows of the last stage */
} fedge_stage_walk;

/* [spec] and [options] must outlive the walk. */
FEDGE_MUST_USE fedge_status fedge_stage_walk_begin(fedge_stage_walk *plan,
                                                   const fedge_model_spec *spec,
                                                   const fedge_model_options *options,
                                                   uint32_t lanes, fedge_error *err);

/* Makes the next stage, or sets *more to false at the end, when the whole spec has been checked.
 * FEDGE_INTERNAL with the name of a layer that no stage runs (see fedge_fused_fits). */
FEDGE_MUST_USE fedge_status fedge_stage_walk_next(fedge_stage_walk *plan, fedge_stage *stage,
                                                  bool *more, fedge_error *err);

static inline void fedge_raise_to(size_t *max, size_t need)
{
    *max = need > *max ? need : *max;
}

/* Raises [counts] to what [stage] needs. */
void fedge_plan_scratch(const fedge_stage *stage, bool training, fedge_scratch_counts *counts);

/* Outputs per example of the pooling of [stage], including padded channels. */
size_t fedge_stage_pool_size(const fedge_stage *stage);

/* Rows of the convolution stored for pooling: those of one window if windows do not overlap, else
 * all. */
uint32_t fedge_stage_band_rows(const fedge_stage *stage);

/* ---- the passes: forward and backward over a batch ----
 *
 * Forward: x is the stage's input, (batch, in.size), or the caller's memory for the first stage;
 * the result goes to stage->activation. Backward: dy, (batch, out.size), is the gradient of the
 * output and is overwritten; dx, (batch, in.size), receives the input's, unless it
 * is NULL; with stage->in_place it is x. Then the stage's parameters take their SGD step.
 */

/* Working memory; see fedge_scratch_counts. */
typedef struct fedge_scratch {
    float *packed, *bias, *band, *input, *weight_gradient, *bias_gradient;
    fedge_grad_entry *entries;
    uint32_t *entry_counts;
} fedge_scratch;

typedef struct fedge_layer_context {
    const fedge_kernels *kernels;
    fedge_scratch scratch;
    uint32_t batch;
} fedge_layer_context;

void fedge_conv2d_forward(const fedge_layer_context *context, const fedge_stage *stage,
                          const float *x);
void fedge_conv2d_backward(const fedge_layer_context *context, const fedge_stage *stage,
                           const float *x, float *dy, const fedge_optimizer *sgd, float *dx);

void fedge_linear_forward(const fedge_layer_context *context, const fedge_stage *stage,
                          const float *x);
void fedge_linear_backward(const fedge_layer_context *context, const fedge_stage *stage,
                           const float *x, float *dy, const fedge_optimizer *sgd, float *dx);

void fedge_maxpool2d_forward(const fedge_layer_context *context, const fedge_stage *stage,
                             const float *x);
void fedge_maxpool2d_backward(const fedge_layer_context *context, const fedge_stage *stage,
                              float *dy, float *dx);

void fedge_flatten_forward(const fedge_layer_context *context, const fedge_stage *stage,
                           const float *x);
void fedge_flatten_backward(const fedge_layer_context *context, const fedge_stage *stage, float *dy,
                            float *dx);

/* Copies the caller's (c, h, w) or flat examples to the stage's grid. */
void fedge_import_forward(const fedge_layer_context *context, const fedge_stage *stage,
                          const float *x);

/* The in-place ReLU of any stage, on [batch] examples from example [first]. Backward does nothing
 * when dy is the stage's activation: the next stage has rectified it. */
void fedge_relu_forward(const fedge_layer_context *context, const fedge_stage *stage, size_t first,
                        size_t batch);
void fedge_relu_backward(const fedge_layer_context *context, const fedge_stage *stage, float *dy,
                         size_t first, size_t batch);

/* The memory for the gradient of input [b]: in dx, or scratch for fedge_put_in_place. */
float *fedge_input_gradient(const fedge_layer_context *context, const fedge_stage *stage, float *dx,
                            size_t b);

/* With stage->in_place, copies the complete gradient over input [b] in dx, after rectifying it if
 * the input was rectified. Otherwise does nothing. */
void fedge_put_in_place(const fedge_layer_context *context, const fedge_stage *stage, float *dx,
                        size_t b);

/* Computes pooled row [row] of an image. rows: the image's rows from fedge_maxpool2d_first_row on,
 * (…, pool.in[1], padded channels); y, argmax: (pool.out[1], padded channels). */
void fedge_maxpool2d_row(const fedge_kernels *kernels, const fedge_stage *stage, uint32_t row,
                         const float *rows, float *y, uint8_t *argmax);

/* The first row of the image under pooled row [row], within the image. */
uint32_t fedge_maxpool2d_first_row(const fedge_stage *stage, uint32_t row);

/* Zeroes the border of one example on [grid]. */
void fedge_clear_border(const fedge_grid *grid, float *values);

/* Offset, in floats, of pixel (row, 0) inside the border of [grid]. */
size_t fedge_grid_row(const fedge_grid *grid, uint32_t row);

#endif
