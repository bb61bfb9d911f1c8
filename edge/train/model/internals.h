/* Model internals, and the two ways to run a model; private to edge/train.
 *
 * Fused (edge/train/fused): whole stages on channels-last images with the SGD step inside the
 * backward pass; the fastest, for plain lists of Linear, Conv2d, MaxPool2d, ReLU and Flatten.
 * General (graph.c): layer by layer by the table of edge/train/layers/layer.h, for everything.
 */
#ifndef FEDGE_EDGE_TRAIN_MODEL_INTERNALS_H
#define FEDGE_EDGE_TRAIN_MODEL_INTERNALS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/train/kernels/kernels.h"
#include "edge/train/losses/losses.h"
#include "edge/train/model.h"
#include "edge/train/optimizers/optimizers.h"

/* ---- the arena: aligned parts of the caller's one block (memory.c) ---- */

#define FEDGE_BLOCK_ALIGNMENT 64

/* Counting bytes and handing them out are the same walk: without a block the bytes are counted
 * only, so the planned size is exact. */
typedef struct fedge_arena {
    uint8_t *block; /* NULL: count only */
    size_t used;
    bool overflow; /* more was requested than this machine can address */
} fedge_arena;

/* [count] aligned elements; their bytes are added to *account. NULL without a block. */
void *fedge_arena_take(fedge_arena *arena, size_t count, size_t element_size, size_t *account);

/* a · b, or SIZE_MAX (which no block holds) on overflow. */
size_t fedge_arena_product(size_t a, size_t b);

/* ---- what the options ask for, before there is a model (spec.c) ---- */

/* Checks that the options and the loss are known and possible: FEDGE_INVALID_ARGUMENT,
 * FEDGE_UNSUPPORTED. */
FEDGE_MUST_USE fedge_status fedge_model_check_options(const fedge_model_spec *spec,
                                                      const fedge_model_options *options,
                                                      fedge_error *err);

/* The CPU's features that the options allow. */
unsigned fedge_model_features(const fedge_model_options *options);

/* The kernels that the options ask for. */
fedge_kernels fedge_kernels_for(const fedge_model_options *options);

/* True if matrix products are made in fp32 on a CPU (tf32 is for GPUs). */
bool fedge_multiplies_fp32(const fedge_model_options *options);

/* Examples that pass through the layers at a time. */
uint32_t fedge_micro_batch(const fedge_model_options *options);

/* Floats kept for each parameter besides its value. */
uint32_t fedge_states_of_each(const fedge_model_options *options);

/* True if every parameter's gradient is kept until all have been made. */
bool fedge_keeps_gradients(const fedge_model_options *options);

/* ---- the model ---- */

typedef struct fedge_fused fedge_fused;
typedef struct fedge_graph fedge_graph;

struct fedge_model {
    const fedge_kernels *kernels;
    fedge_fused *fused; /* one of the two, the other NULL */
    fedge_graph *graph;
    fedge_model_options options;
    const fedge_loss_ops *loss;
    fedge_loss_type loss_type;
    fedge_layer_type first_layer_type;
    float loss_argument;
    uint32_t outputs;
    const float *last_outputs;
    float *all_outputs; /* (max_batch, outputs): of all micro-batches; NULL without */
    size_t example_size, num_values, num_buffers;
    size_t num_floats;       /* in values: num_values, less those kept in int8 */
    float *values, *buffers; /* values: NULL with weights of 16 bits */
    uint16_t *half;          /* (num_values): the values in 16 bits, or NULL */
    float *states[FEDGE_MAX_OPTIMIZER_STATES];
    float *anchor, *correction, *gradients; /* (num_values) each, or NULL */
    uint64_t num_steps, seed;
    uint32_t round, client_index;
};

/* Memory that fused stages share, one after another: counts of elements. */
typedef struct fedge_scratch_counts {
    size_t packed; /* floats: weights in the kernels' order */
    size_t bias;   /* floats: biases padded to lanes */
    size_t band;   /* floats: convolution rows waiting to be pooled */
    size_t input;  /* floats: one padded planar example; or the gradient of one in place */
    size_t weight_gradient, bias_gradient; /* floats */
    size_t entries, entry_counts;          /* fedge_grad_entry; uint32_t */
} fedge_scratch_counts;

/* What fedge_fused_survey finds, for fedge_fused_lay_out. */
typedef struct fedge_fused_needs {
    uint32_t num_stages;
    size_t buffers[2]; /* floats per example: gradients in training, else activations in turn */
    fedge_scratch_counts scratch;
} fedge_fused_needs;

/* A model while it is laid out. Without a block the pointers of [model] stay NULL. */
typedef struct fedge_model_layout {
    fedge_arena arena;
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    const fedge_kernels *kernels;
    fedge_model *model; /* never NULL; its values, buffers and states are taken already */
    fedge_model_memory *memory;
    fedge_fused_needs fused; /* set by fedge_fused_survey */
} fedge_model_layout;

/* The layer and tensor that a value belongs to. */
typedef struct fedge_value_owner {
    uint32_t layer;
    fedge_layer_type type;
    const char *tensor; /* "weight" */
    size_t index;       /* in the tensor */
} fedge_value_owner;

/* The index of the first of [n] values that is not finite; [n] if all are. */
size_t fedge_find_not_finite(const fedge_kernels *kernels, const float *values, size_t n);

/* For messages: a NaN without its sign, which says nothing and differs between CPUs. */
static inline double fedge_printable(double value)
{
    return isnan(value) ? (double)NAN : value;
}

/* ---- bytes of each layer (memory.c) ---- */

/* Takes the layers in their order: keeps all of them, or only the largest. */
typedef struct fedge_memory_sink {
    fedge_layer_memory *layers; /* or NULL */
    uint32_t count, largest;
    size_t most; /* bytes of the largest */
} fedge_memory_sink;

void fedge_memory_put(fedge_memory_sink *sink, const fedge_layer_memory *layer);

/* A layer with the output [shape]: its parameters, values and optimizer's states; the rest 0. */
fedge_layer_memory fedge_describe_layer(const fedge_layer_spec *layer,
                                        const fedge_model_options *options, uint32_t rank,
                                        const uint32_t *shape);

/* ---- the fused way: all that edge/train/model calls of edge/train/fused (fused.c) ---- */

/* True if the fused stages can run this model as the options ask. The spec may still be wrong. */
bool fedge_fused_fits(const fedge_model_spec *spec, const fedge_model_options *options);

/* Sizes before anything is taken: sets the model's num_values, outputs and example_size. */
FEDGE_MUST_USE fedge_status fedge_fused_survey(fedge_model_layout *layout, fedge_error *err);

/* Takes the rest of the memory; sets model->fused. */
FEDGE_MUST_USE fedge_status fedge_fused_lay_out(fedge_model_layout *layout, fedge_error *err);

/* *outputs: (batch, outputs); *gradient: where the loss puts their gradient before backward (NULL
 * when not training). */
FEDGE_MUST_USE fedge_status fedge_fused_forward(fedge_model *model, const float *x, uint32_t batch,
                                                const float **outputs, float **gradient);

/* Backward, and the optimizer's step. */
void fedge_fused_backward(fedge_model *model, const float *x, const fedge_optimizer *optimizer);

/* The owner of the parameters' value [index] in schema order. */
fedge_value_owner fedge_fused_owner(const fedge_model *model, size_t index);

/* Puts the bytes of every layer into [sink]. */
FEDGE_MUST_USE fedge_status fedge_fused_layer_memory(const fedge_model_spec *spec,
                                                     const fedge_model_options *options,
                                                     const fedge_kernels *kernels,
                                                     fedge_memory_sink *sink, fedge_error *err);

/* ---- the general way (graph.c; fedge_graph_layer_memory: memory.c) ---- */

/* As fedge_fused_layer_memory. */
FEDGE_MUST_USE fedge_status fedge_graph_layer_memory(const fedge_model_spec *spec,
                                                     const fedge_model_options *options,
                                                     const fedge_kernels *kernels,
                                                     fedge_memory_sink *sink, fedge_error *err);

/* As their fused namesakes. [train] false: forward keeps nothing for a backward pass. */
FEDGE_MUST_USE fedge_status fedge_graph_survey(fedge_model_layout *layout, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_graph_lay_out(fedge_model_layout *layout, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_graph_forward(fedge_model *model, const float *x, uint32_t batch,
                                                bool train, const float **outputs, float **gradient,
                                                fedge_error *err);

/* The owner of value [index] of the parameters, or of the buffers. */
fedge_value_owner fedge_graph_owner(const fedge_model *model, bool buffer, size_t index);

/* Checks that every layer can work on a pass of [batch] examples, whatever is in them:
 * FEDGE_INVALID_ARGUMENT with the layer and the numbers. */
FEDGE_MUST_USE fedge_status fedge_graph_check(const fedge_graph *graph, uint32_t batch, bool train,
                                              fedge_error *err);

/* Loads parameters in schema order into a model that keeps some in int8. */
void fedge_graph_load(fedge_model *model, const float *values);

/* Before the first part of a batch: names the step's stream of random numbers, clears the gradients
 * that are kept. */
void fedge_graph_begin(fedge_model *model);

/* Backward. Parameters step at once unless gradients are kept; those are added to, and
 * fedge_graph_finish takes the step. */
void fedge_graph_backward(fedge_model *model, const fedge_optimizer *optimizer);
void fedge_graph_finish(fedge_model *model, const fedge_optimizer *optimizer);

/* For tests of the plan: calls [watch] with FEDGE_TIME_BEGIN before a forward pass, and with each
 * time of graph_plan.h once its work is done. Returns the arena of the plan's intervals. Only for a
 * model that is run layer by layer. */
#define FEDGE_TIME_BEGIN UINT32_MAX
typedef void (*fedge_graph_watcher)(void *user, uint32_t time);
uint8_t *fedge_graph_watch(fedge_model *model, fedge_graph_watcher watch, void *user);

#endif
