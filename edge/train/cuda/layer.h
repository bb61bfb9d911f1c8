/* What a layer is on a GPU: one table of operations per type, one file per
 * table under edge/train/cuda/layers/. A model that has a layer without a table
 * is trained on the CPU.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_LAYER_H
#define FEDGE_EDGE_TRAIN_CUDA_LAYER_H

#include <stdbool.h>

#include "edge/train/cuda/kernels/kernels.h"
#include "edge/train/layers/layer.h"
#include "edge/train/model.h"

#define FEDGE_COHORT_MAX_LEVELS 3 /* of an LSTM or GRU */

typedef struct fedge_cohort_layer_ops fedge_cohort_layer_ops;

/* One layer of a cohort's model. Arrays are of all slots: (slots, batch, …). */
typedef struct fedge_cohort_layer {
    const fedge_cohort_layer_ops *ops;
    fedge_layer_spec spec;
    uint32_t num_inputs;
    uint16_t inputs[FEDGE_MAX_LAYER_INPUTS]; /* layers, or FEDGE_INPUT_MODEL */
    fedge_shape in, out;                     /* in: of each input */
    bool over_input;     /* y is x[0], and dx[0] is dy: nobody else reads that array */
    bool fuses_relu;     /* its output is stored as the ReLU over it would make it; then */
    bool is_done;        /* that ReLU has nothing to do going forward */
    bool recompute;      /* its output is not kept: backward has it made again (cohort_step.c) */
    bool trains;         /* some of its values are trained */
    bool wants;          /* it, or a layer that it reads from, trains */
    size_t examples;     /* of all slots: how many the arrays have room for */
    size_t first_value;  /* of its parameters, in the model's state */
    size_t first_buffer; /* of its statistics, likewise */
    uint64_t drawn_before, drawn_all; /* words of an example: in layers before it, and in all */
    float *x[FEDGE_MAX_LAYER_INPUTS], *y, *dy;
    void *saved; /* from forward to backward: ops->saved bytes for each example */
} fedge_cohort_layer;

/* One pass over a layer. */
typedef struct fedge_cohort_pass {
    fedge_cohort_shape shape;
    uint32_t dropped;            /* fedge_cohort_linear's, of products that precision is for */
    bool training;               /* else evaluation */
    fedge_cohort_weights values; /* the model's state: parameters, then statistics */
    float *tracked;              /* the same place, where statistics move; NULL: in evaluation */
    float *gradients;            /* likewise, (slots, gradient_stride); NULL: not wanted */
    size_t gradient_stride;
    float *dx; /* backward: of the input; the same array as dy for layers over their input; NULL:
                  not wanted */
} fedge_cohort_pass;

struct fedge_cohort_layer_ops {
    bool in_place;      /* forward and backward may work over their input */
    bool changes;       /* then: what is there changes */
    bool keeps_y;       /* backward reads y */
    bool may_fuse_relu; /* forward may have a ReLU's work done as it stores y */
    bool many_inputs;   /* it is the sum of its inputs; else it has one */
    /* Why the GPU cannot do it, such as "its groups"; NULL: it can. NULL
     * function: it always can.
     */
    const char *(*refuse)(const fedge_layer_spec *spec);
    /* In training, does what it makes of an example depend on the others of the batch? NULL
     * function: no. */
    bool (*batch_coupled)(const fedge_layer_spec *spec);
    size_t (*saved)(const fedge_cohort_layer *layer); /* shapes are known; NULL: nothing */
    /* How many words of its step's stream it draws for an example; NULL: none. */
    uint64_t (*draws)(const fedge_cohort_layer *layer);
    cudaError_t (*forward)(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass);
    /* NULL: dy is the gradient of each input. */
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

/* What a layer drops with probability p in this pass: p is 0 in evaluation. words and, of several
 * arrays, earlier and chunk are the caller's to say. */
fedge_cohort_drop fedge_cohort_drop_of(const fedge_cohort_layer *layer,
                                       const fedge_cohort_pass *pass, float p);

/* Words that attention draws for an example. */
uint64_t fedge_cohort_attention_words(uint64_t steps, uint64_t heads, bool causal);

/* NULL: the GPU has no such layer. */
const fedge_cohort_layer_ops *fedge_cohort_layer_ops_of(fedge_layer_type type);

#endif
