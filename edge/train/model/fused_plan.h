/* From layers to stages: what runs, in which layout, in how many bytes; private to edge/train.
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
#ifndef FEDGE_EDGE_TRAIN_MODEL_FUSED_PLAN_H
#define FEDGE_EDGE_TRAIN_MODEL_FUSED_PLAN_H

#include "edge/train/kernels/kernels.h"
#include "edge/train/layers/shape.h"
#include "edge/train/model.h"

/* How one example lies in memory between two stages. */
typedef struct fedge_grid {
    uint32_t channels, height, width; /* flat: features, 1, 1 */
    uint32_t padded_channels;         /* flat: channels */
    uint32_t pad_h, pad_w;            /* border of zeros on each side; flat: 0 */
    size_t size; /* floats: (h + 2 pad_h) · (w + 2 pad_w) · padded_channels */
} fedge_grid;

typedef enum fedge_stage_kind {
    FEDGE_STAGE_IMPORT,    /* the caller's example copied to its grid (first only) */
    FEDGE_STAGE_CONV2D,    /* with an optional pooling behind it */
    FEDGE_STAGE_MAXPOOL2D, /* a pooling that follows no convolution */
    FEDGE_STAGE_FLATTEN,   /* channels-last to the (c, h, w) order of PyTorch */
    FEDGE_STAGE_LINEAR
} fedge_stage_kind;

#define FEDGE_STAGE_MAX_WINDOW 256 /* places that a pooling looks at */

/* A sliding window and the image it slides over. Index 0 is height, 1 is width. */
typedef struct fedge_window {
    uint32_t kernel[2], stride[2], pad[2];
    uint32_t in[2], out[2]; /* pixels without border */
} fedge_window;

/* What only stages that slide a window have. */
typedef struct fedge_slide {
    fedge_window conv, pool;
    fedge_conv_shape shape; /* Conv2d */
    uint32_t row_stride;    /* Conv2d: floats between the patches of neighbouring rows */
} fedge_slide;

typedef struct fedge_stage {
    fedge_stage_kind kind;
    bool image;         /* the output is channels-last (else flat) */
    bool relu;          /* the output is rectified in place */
    bool pass_gradient; /* an earlier stage has parameters, so the input's gradient is needed */
    bool planar;        /* Conv2d that reads the caller's (c, h, w) through a padded copy */
    bool pooled;        /* Conv2d with pool behind it */
    bool bias;
    bool in_place;  /* the input's gradient takes the input's place, example by example */
    bool from_relu; /* then: the input was rectified, and so is its gradient */
    uint16_t layer; /* Conv2d, Linear: the layer's position */
    fedge_grid in, out;
    size_t num_parameters; /* weights and biases, consecutive in the values */
    size_t num_weights;
    fedge_slide *slide; /* Conv2d, MaxPool2d; the walk's own until the next stage */

    /* Carved by fedge_model_new. */
    float *weight, *weight_velocity; /* as in the state_dict; velocity NULL without momentum */
    float *bias_values, *bias_velocity;
    float *activation; /* (batch, out.size) */
    uint8_t *argmax; /* pooling: (batch, out_h, out_w, padded channels); one example to evaluate */
    size_t argmax_stride;
} fedge_stage;

/* Working memory that stages use one after another. Counts while planning, then pointers. */
typedef struct fedge_scratch_counts {
    size_t packed; /* floats: weights in the kernels' order */
    size_t bias;   /* floats: biases padded to lanes */
    size_t band;   /* floats: convolution rows waiting to be pooled */
    size_t input;  /* floats: one padded planar example; or the gradient of one in place */
    size_t weight_gradient, bias_gradient; /* floats */
    size_t entries, entry_counts;          /* fedge_grad_entry; uint32_t */
} fedge_scratch_counts;

/* What a walk over all stages finds out before anything can be carved. */
typedef struct fedge_fused_needs {
    uint32_t num_stages;
    size_t buffers[2]; /* floats per example: gradients in training, else activations in turn */
    fedge_scratch_counts scratch;
} fedge_fused_needs;

/* A walk over the stages of a spec. */
typedef struct fedge_stage_walk {
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    uint32_t lanes;
    uint32_t layer;    /* the next one to place */
    fedge_shape shape; /* into that layer */
    fedge_grid grid;   /* the same, as it lies */
    bool image;        /* grid is channels-last */
    bool started;      /* a stage has been made: grid is not the caller's memory any more */
    size_t num_parameters;
    fedge_slide slide; /* of the stage made last */
} fedge_stage_walk;

/* [spec] and [options] stay until the walk ends. */
FEDGE_MUST_USE fedge_status fedge_stage_walk_begin(fedge_stage_walk *plan,
                                                   const fedge_model_spec *spec,
                                                   const fedge_model_options *options,
                                                   uint32_t lanes, fedge_error *err);

/* The next stage, *more = false when there is none left (then the whole spec has been checked).
 * FEDGE_INTERNAL, with its name: a layer that no stage takes (see fedge_fused_fits). */
FEDGE_MUST_USE fedge_status fedge_stage_walk_next(fedge_stage_walk *plan, fedge_stage *stage,
                                                  bool *more, fedge_error *err);

/* Raises [counts] to what [stage] needs. */
void fedge_plan_scratch(const fedge_stage *stage, bool training, fedge_scratch_counts *counts);

/* Values per example that the pooling of [stage] makes, padded channels counted. */
size_t fedge_stage_pool_size(const fedge_stage *stage);

/* Convolution rows held for pooling: one window's when windows do not overlap, else all. */
uint32_t fedge_stage_band_rows(const fedge_stage *stage);

#endif
