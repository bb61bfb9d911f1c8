/* Where everything lies that a model's layers make, one after another; private to edge/train.
 *
 * Time runs 0 … L − 1 forward through the layers, L at the loss, and 2L − i backward through layer
 * i. Each array is an interval of time; arrays whose intervals do not meet share memory. Where a
 * layer may work in place, its output (or its input's gradient) is the same array as its input (its
 * output's gradient). What a layer with "recompute" makes ends with its last reader forward, and is
 * made again, with a second life, at the first time backward that needs it, before the layer whose
 * time it is goes backward. A rectifier behind a layer that can do its work (a norm) is joined to
 * it, and not run. Likewise with options.activations of 16 bits: an array that the
 * backward pass reads is stored in 16 bits after its last use forward, and restored to a second
 * life at its first use backward.
 */
#ifndef FEDGE_EDGE_TRAIN_MODEL_GRAPH_PLAN_H
#define FEDGE_EDGE_TRAIN_MODEL_GRAPH_PLAN_H

#include "edge/train/layers/layer.h"

typedef enum fedge_part {
    FEDGE_PART_OUTPUT,    /* y: (batch, out…) */
    FEDGE_PART_RECOMPUTE, /* y, made again or widened for the backward pass */
    FEDGE_PART_KEPT,      /* y in 16 bits, between its uses forward and those backward */
    FEDGE_PART_GRADIENT,  /* dy: (batch, out…) */
    FEDGE_PART_SAVED,     /* from the layer's forward pass to its backward pass */
    FEDGE_PART_FORWARD,   /* the layer's scratch forward */
    FEDGE_PART_BACKWARD,  /* backward: at first the forward scratch of layers that are run again at
                             this time, one after another; over it the layer's scratch, then its
                             parameters' gradients unless the model keeps them all, then the
                             gradients of inputs that are made apart
                           */
    FEDGE_PARTS
} fedge_part;

typedef struct fedge_interval {
    uint32_t size, offset; /* in units of FEDGE_BLOCK_ALIGNMENT bytes; size 0: not there */
    uint16_t begin, end;   /* times, both included */
} fedge_interval;

typedef struct fedge_layer_plan {
    fedge_shape out;
    uint16_t sources[FEDGE_MAX_LAYER_INPUTS];
    uint8_t num_sources;
    uint16_t recompute;              /* when its output is made again; 0: never */
    uint16_t to_half, from_half;     /* times at which an array in KEPT is stored and restored */
    bool masked : 1, fuses_sgd : 1;  /* see fedge_layer_run, fedge_layer_sizes */
    bool backward : 1;               /* something here or before it is trained */
    bool fuses_relu : 1;             /* does the work of its only reader, */
    bool joined : 1;                 /* which is this one, a rectifier */
    bool in_int8 : 1;                /* has its factor in int8 */
    bool keeps_output : 1;           /* a layer whose output is this array reads it backward */
    uint16_t num_readers;            /* layers that read the output, the loss counted */
    uint16_t first_reader;           /* backward: the last layer that gives the output a gradient */
    uint16_t output_of, gradient_of; /* the layer whose array this one's is; itself: its own */
    fedge_interval parts[FEDGE_PARTS];
} fedge_layer_plan;

typedef struct fedge_graph_plan {
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    const fedge_kernels *kernels;
    fedge_shape input;
    size_t num_values, num_buffers, num_trained;
    size_t num_floats; /* of the values; the others are kept in int8 */
    size_t arena;      /* bytes */
    fedge_layer_plan layers[FEDGE_MAX_LAYERS];
} fedge_graph_plan;

/* Checks the whole spec and plans it. */
FEDGE_MUST_USE fedge_status fedge_graph_plan_make(fedge_graph_plan *plan,
                                                  const fedge_model_spec *spec,
                                                  const fedge_model_options *options,
                                                  const fedge_kernels *kernels, fedge_error *err);

/* Layer [index]'s run as far as the plan knows it: spec, kernels, batch, shapes. */
void fedge_graph_plan_run(const fedge_graph_plan *plan, uint32_t index, fedge_layer_run *run);

/* What layer [index] wants for a (micro-)batch. */
fedge_layer_sizes fedge_graph_sizes(const fedge_graph_plan *plan, uint32_t index);

/* Bytes rounded up to the alignment. */
uint64_t fedge_graph_aligned(uint64_t bytes);

/* The gradient of an input that another layer gives a gradient to before layer [index] does is made
 * apart, and added: bytes; 0: it is written where it belongs. */
uint64_t fedge_graph_apart(const fedge_graph_plan *plan, uint32_t index, uint32_t input);

/* Room for the layer's parameters widened to fp32, each tensor's rounded up to the alignment, when
 * the model keeps them in 16 bits: bytes. It ends FEDGE_PART_FORWARD and FEDGE_PART_BACKWARD, and
 * follows the scratch of a layer that is run again. */
uint64_t fedge_graph_widened(const fedge_graph_plan *plan, uint32_t index);

/* Gradients of inputs that layer [index] makes apart: bytes. */
uint64_t fedge_graph_all_apart(const fedge_graph_plan *plan, uint32_t index);

/* The gradients that layer [index] makes, each tensor's rounded up to the alignment: bytes. */
uint64_t fedge_graph_gradient_bytes(const fedge_graph_plan *plan, uint32_t index);

#endif
