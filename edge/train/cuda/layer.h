/* What a layer is on a GPU: one table of operations per type, one file per
 * table under edge/train/cuda/layers/. A model that has a layer without a table
 * is trained on the CPU.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_LAYER_H
#define FEDGE_EDGE_TRAIN_CUDA_LAYER_H

#include <stdbool.h>

#include "edge/train/cuda/kernels.h"
#include "edge/train/model.h"
#include "edge/train/shape.h"

typedef struct fedge_cohort_layer_ops fedge_cohort_layer_ops;

/* One layer of a cohort's model. Arrays are of all slots: (slots, batch, …). */
typedef struct fedge_cohort_layer {
    const fedge_cohort_layer_ops *ops;
    fedge_layer_spec spec;
    fedge_shape in, out;
    size_t first_value; /* of its parameters, in the model's */
    float *x, *y;       /* the same array for layers that work in place */
    void *saved;        /* from forward to backward: ops->saved bytes for each example */
} fedge_cohort_layer;

/* One pass over a layer. */
typedef struct fedge_cohort_pass {
    fedge_cohort_shape shape;
    fedge_cohort_weights values; /* of the model */
    float *gradients;            /* likewise, (slots, gradient_stride) */
    size_t gradient_stride;
    float *dy, *dx; /* backward; the same array for layers that work in place; dx
                       NULL: not wanted */
} fedge_cohort_pass;

struct fedge_cohort_layer_ops {
    bool in_place;
    /* Why the GPU cannot do it, such as "its groups"; NULL: it can. NULL
     * function: it always can.
     */
    const char *(*refuse)(const fedge_layer_spec *spec);
    size_t (*saved)(const fedge_shape *out); /* NULL: nothing */
    cudaError_t (*forward)(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass);
    cudaError_t (*backward)(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass);
};

extern const fedge_cohort_layer_ops fedge_cohort_layer_linear;
extern const fedge_cohort_layer_ops fedge_cohort_layer_conv2d;
extern const fedge_cohort_layer_ops fedge_cohort_layer_maxpool2d;
extern const fedge_cohort_layer_ops fedge_cohort_layer_relu;
extern const fedge_cohort_layer_ops fedge_cohort_layer_flatten;

/* NULL: the GPU has no such layer. */
const fedge_cohort_layer_ops *fedge_cohort_layer_ops_of(fedge_layer_type type);

#endif
