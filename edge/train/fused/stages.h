/* The layers at work: forward and backward over a batch; private to edge/train.
 *
 * Forward: x is the stage's input, (batch, in.size), or the caller's memory for the first stage;
 * the result goes to stage->activation. Backward: dy, (batch, out.size), is the gradient of the
 * output and is overwritten; dx, (batch, in.size), receives the input's (NULL when nobody needs
 * it; x itself with stage->in_place); then the stage's parameters take their SGD step.
 */
#ifndef FEDGE_EDGE_TRAIN_FUSED_STAGES_H
#define FEDGE_EDGE_TRAIN_FUSED_STAGES_H

#include "edge/train/kernels/kernels.h"
#include "edge/train/model/fused_plan.h"

/* Carved working memory; see fedge_scratch_counts for what each is and how much. */
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

/* The caller's (c, h, w) or flat examples to the stage's grid. */
void fedge_import_forward(const fedge_layer_context *context, const fedge_stage *stage,
                          const float *x);

/* The in-place ReLU of any stage, on [batch] examples from example [first]. Backward nothing when
 * dy lies in the place of the output: the next stage has rectified it. */
void fedge_relu_forward(const fedge_layer_context *context, const fedge_stage *stage, size_t first,
                        size_t batch);
void fedge_relu_backward(const fedge_layer_context *context, const fedge_stage *stage, float *dy,
                         size_t first, size_t batch);

/* Where the gradient of input [b] is made: in dx, or in scratch for fedge_put_in_place. */
float *fedge_gradient_place(const fedge_layer_context *context, const fedge_stage *stage, float *dx,
                            size_t b);

/* With stage->in_place: the gradient, made in full, to the place of input [b] of dx; rectified by
 * that, where it was. Else nothing: it is there. */
void fedge_put_in_place(const fedge_layer_context *context, const fedge_stage *stage, float *dx,
                        size_t b);

/* One pooled row [row] of an image. rows: the image's rows from the first that the window touches,
 * (…, pool.in[1], padded channels); y: (pool.out[1], padded channels), argmax alike. */
void fedge_maxpool2d_row(const fedge_kernels *kernels, const fedge_stage *stage, uint32_t row,
                         const float *rows, float *y, uint8_t *argmax);

/* The first row of the image under pooled row [row], within the image. */
uint32_t fedge_maxpool2d_first_row(const fedge_stage *stage, uint32_t row);

/* Zeroes the border of one example on [grid]. */
void fedge_clear_border(const fedge_grid *grid, float *values);

/* Where pixel (row, 0) without border lies on [grid], in floats. */
size_t fedge_grid_row(const fedge_grid *grid, uint32_t row);

#endif
