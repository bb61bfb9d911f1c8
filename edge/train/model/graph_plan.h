/* The memory plan of a model that runs layer by layer; private to edge/train.
 *
 * Time runs 0 … L − 1 forward through the layers, L at the loss, and 2L − i backward through layer
 * i. Each array lives for an interval of time; arrays whose intervals do not overlap share memory.
 * If a layer works in place, its output and its first input are one array, or its first input's
 * gradient and its output's gradient.
 *
 * The output of a layer with "recompute" ends with its last reader forward. It is recomputed at the
 * first time backward that needs it, before the layer of that time runs, and lives a second time.
 * With options.activations of 16 bits, an array that the backward pass reads is stored in 16 bits
 * after its last use forward, and restored at its first use backward, where it lives a second time.
 * A layer that can rectify its own output (a norm) absorbs a rectifier after it, which then does
 * not run.
 */
#ifndef FEDGE_EDGE_TRAIN_MODEL_GRAPH_PLAN_H
#define FEDGE_EDGE_TRAIN_MODEL_GRAPH_PLAN_H

#include "edge/train/layers/layer.h"

typedef enum fedge_part {
    FEDGE_PART_OUTPUT,    /* y: (batch, out…) */
    FEDGE_PART_RECOMPUTE, /* y, recomputed or restored for the backward pass */
    FEDGE_PART_HALF,      /* y in 16 bits, between its uses forward and backward */
    FEDGE_PART_GRADIENT,  /* dy: (batch, out…) */
    FEDGE_PART_SAVED,     /* lives from the layer's forward pass to its backward pass */
    FEDGE_PART_FORWARD,   /* the layer's forward scratch */
    FEDGE_PART_BACKWARD,  /* first the forward scratch of the layers recomputed at this time, one
                             after another; then, in the same memory, the layer's backward scratch,
                             its parameters' gradients unless the model stores them all, and
                             separate gradients of inputs */
    FEDGE_PARTS
} fedge_part;

typedef struct fedge_interval {
    uint32_t size, offset; /* units of FEDGE_BLOCK_ALIGNMENT bytes; size 0: unused */
    uint16_t begin, end;   /* times, both inclusive */
} fedge_interval;

typedef struct fedge_layer_plan {
    fedge_shape out;
    uint16_t sources[FEDGE_MAX_LAYER_INPUTS];
    uint8_t num_sources;
    uint16_t recompute;             /* time at which its output is recomputed; 0: never */
    uint16_t to_half, from_half;    /* times at which FEDGE_PART_HALF is stored and restored */
    bool masked : 1, fuses_sgd : 1; /* see fedge_layer_run, fedge_layer_sizes */
    bool backward : 1;              /* this layer or one before it is trained */
    bool fuses_relu : 1;            /* absorbs its only reader, a rectifier */
    bool absorbed : 1;              /* is that rectifier */
    bool in_int8 : 1;               /* its weight is in int8 */
    bool output_read_backward : 1;  /* a layer whose output is this array reads it backward */
    uint16_t num_readers;           /* layers that read the output, and the loss */
    uint16_t first_reader; /* the last of them, which gives the output its first gradient */
    uint16_t output_of, gradient_of; /* the layer that owns the array; itself, unless in place */
    fedge_interval parts[FEDGE_PARTS];
} fedge_layer_plan;

typedef struct fedge_graph_plan {
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    const fedge_kernels *kernels;
    fedge_shape input;
    size_t num_values, num_buffers, num_trained;
    size_t num_floats; /* float values; the others are in int8 */
    size_t arena;      /* bytes */
    fedge_layer_plan layers[FEDGE_MAX_LAYERS];
} fedge_graph_plan;

/* Checks the whole spec and makes its plan. */
FEDGE_MUST_USE fedge_status fedge_graph_plan_make(fedge_graph_plan *plan,
                                                  const fedge_model_spec *spec,
                                                  const fedge_model_options *options,
                                                  const fedge_kernels *kernels, fedge_error *err);

/* Sets the members of layer [index]'s run that the plan knows: spec, kernels, batch, shapes. */
void fedge_graph_plan_run(const fedge_graph_plan *plan, uint32_t index, fedge_layer_run *run);

/* The memory that layer [index] needs for a (micro-)batch. */
fedge_layer_sizes fedge_graph_sizes(const fedge_graph_plan *plan, uint32_t index);

/* Bytes rounded up to the alignment. */
uint64_t fedge_graph_aligned(uint64_t bytes);

/* Bytes of the separate gradient that layer [index] computes for an input before it is added,
 * because another reader has written that input's gradient already. 0: the layer writes directly.
 */
uint64_t fedge_graph_separate_bytes(const fedge_graph_plan *plan, uint32_t index, uint32_t input);

/* Bytes of the layer's parameters in fp32, each tensor rounded up to the alignment, if the model
 * stores them in 16 bits. They are the end of FEDGE_PART_FORWARD and FEDGE_PART_BACKWARD, and
 * follow the scratch of a recomputed layer. */
uint64_t fedge_graph_widened_bytes(const fedge_graph_plan *plan, uint32_t index);

/* Bytes of all separate gradients of layer [index]. */
uint64_t fedge_graph_all_separate_bytes(const fedge_graph_plan *plan, uint32_t index);

/* Bytes of the parameters' gradients of layer [index], each tensor rounded up to the alignment. */
uint64_t fedge_graph_gradient_bytes(const fedge_graph_plan *plan, uint32_t index);

#endif
