/* Layers on a GPU: one table of operations for each type, in the files of edge/train/cuda/layers/.
 * A model that has a layer without a table is trained on the CPU. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_LAYER_H
#define FEDGE_EDGE_TRAIN_CUDA_LAYER_H

#include <stdbool.h>

#include "edge/train/cuda/kernels/kernels.h"
#include "edge/train/layers/layer.h"
#include "edge/train/model.h"

#define FEDGE_COHORT_MAX_LEVELS 3 /* levels of an LSTM or GRU */

typedef struct fedge_cohort_layer_ops fedge_cohort_layer_ops;

/* One layer of a cohort's model. Arrays are (slots, batch, …). */
typedef struct fedge_cohort_layer {
    const fedge_cohort_layer_ops *ops;
    fedge_layer_spec spec;
    uint32_t num_inputs;
    uint16_t inputs[FEDGE_MAX_LAYER_INPUTS]; /* layers, or FEDGE_INPUT_MODEL */
    fedge_shape in, out;                     /* shapes; in: one for each input */
    bool over_input;     /* y is x[0], and dx[0] is dy: only this layer reads that array */
    bool fuses_relu;     /* it applies the ReLU that follows it */
    bool is_done;        /* it is a ReLU that the layer before applies */
    bool recompute;      /* its output is not stored; backward computes it anew (cohort_step.c) */
    bool trains;         /* some of its values are trained */
    bool wants;          /* it, or a layer that it reads from, trains */
    size_t examples;     /* capacity of the arrays, over all slots */
    size_t first_value;  /* index of its parameters in the model's state */
    size_t first_buffer; /* index of its statistics in the model's state */
    uint64_t drawn_before,
        drawn_all; /* random words of an example: of earlier layers, and of all */
    float *x[FEDGE_MAX_LAYER_INPUTS], *y, *dy;
    void *saved; /* ops->saved bytes for each example, from forward to backward */
} fedge_cohort_layer;

/* One pass over a layer. */
typedef struct fedge_cohort_pass {
    fedge_cohort_shape shape;
    uint32_t dropped;            /* fedge_cohort_linear's, for products that use the precision */
    bool training;               /* otherwise evaluation */
    fedge_cohort_weights values; /* the model's state: parameters, then statistics */
    float *tracked;   /* values.values, for statistics that are updated; NULL: none are */
    float *gradients; /* (slots, gradient_stride); NULL: not wanted */
    size_t gradient_stride;
    float *dx; /* backward: gradient of the input; dy itself where over_input; NULL: not wanted */
} fedge_cohort_pass;

struct fedge_cohort_layer_ops {
    bool in_place;      /* forward and backward may overwrite their input */
    bool changes;       /* in_place: forward writes other values than its input's */
    bool keeps_y;       /* backward reads y */
    bool may_fuse_relu; /* forward may apply a ReLU as it stores y */
    bool many_inputs;   /* it sums several inputs; other layers have one */
    /* Returns why the GPU cannot train the layer, such as "its groups"; NULL: it can. May be NULL:
     * it always can. */
    const char *(*refuse)(const fedge_layer_spec *spec);
    /* Returns true when, in training, the result for an example depends on the others of the batch.
     * May be NULL: it does not. */
    bool (*batch_coupled)(const fedge_layer_spec *spec);
    size_t (*saved)(const fedge_cohort_layer *layer); /* shapes are set; may be NULL: 0 bytes */
    /* Words of the step's stream that it draws for an example. May be NULL: none. */
    uint64_t (*draws)(const fedge_cohort_layer *layer);
    cudaError_t (*forward)(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass);
    /* May be NULL: dy is the gradient of each input. */
    cudaError_t (*backward)(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass);
};

extern const fedge_cohort_layer_ops fedge_cohort_layer_linear;
extern const fedge_cohort_layer_ops fedge_cohort_layer_conv2d;
extern const fedge_cohort_layer_ops fedge_cohort_layer_maxpool2d;
extern const fedge_cohort_layer_ops fedge_cohort_layer_relu;
extern const fedge_cohort_layer_ops fedge_cohort_layer_flatten;
extern const fedge_cohort_layer_ops fedge_cohort_layer_add;
extern const fedge_cohort_layer_ops fedge_cohort_layer_activation; /* all but ReLU */
extern const fedge_cohort_layer_ops fedge_cohort_layer_adaptiveavgpool2d;
extern const fedge_cohort_layer_ops fedge_cohort_layer_avgpool2d;
extern const fedge_cohort_layer_ops fedge_cohort_layer_groupnorm;
extern const fedge_cohort_layer_ops fedge_cohort_layer_layernorm;
extern const fedge_cohort_layer_ops fedge_cohort_layer_embedding;
extern const fedge_cohort_layer_ops fedge_cohort_layer_positionalembedding;
extern const fedge_cohort_layer_ops fedge_cohort_layer_recurrent;
extern const fedge_cohort_layer_ops fedge_cohort_layer_batchnorm2d;
extern const fedge_cohort_layer_ops fedge_cohort_layer_dropout;
extern const fedge_cohort_layer_ops fedge_cohort_layer_multiheadattention;
extern const fedge_cohort_layer_ops fedge_cohort_layer_transformerencoderlayer;
extern const fedge_cohort_layer_ops fedge_cohort_layer_select;
extern const fedge_cohort_layer_ops fedge_cohort_layer_mean;

/* Dropout with probability p in this pass; p becomes 0 in evaluation. The caller sets words, and
 * where the layer drops several arrays also earlier and chunk. */
fedge_cohort_drop fedge_cohort_drop_of(const fedge_cohort_layer *layer,
                                       const fedge_cohort_pass *pass, float p);

/* Words that attention draws for an example. */
uint64_t fedge_cohort_attention_words(uint64_t steps, uint64_t heads, bool causal);

/* Returns NULL when GPUs do not support the type. */
const fedge_cohort_layer_ops *fedge_cohort_layer_ops_of(fedge_layer_type type);

#endif
