/* Model internals, and the two ways to run a model; private to edge/train.
 *
 * Fused (edge/train/fused): whole stages on channels-last images, with the SGD step inside the
 * backward pass. The fastest way, for chains of Linear, Conv2d, MaxPool2d, ReLU and Flatten.
 * General (graph.c): layer by layer with the table of edge/train/layers/layer.h. Runs every model.
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

/* ---- the arena: aligned parts of the caller's block (memory.c) ---- */

#define FEDGE_BLOCK_ALIGNMENT 64

/* Without a block the arena counts bytes only. Counting and allocating run the same code, so the
 * planned size is exact. */
typedef struct fedge_arena {
    uint8_t *block; /* NULL: count only */
    size_t used;
    bool overflow; /* more than this machine can address was requested */
} fedge_arena;

/* [count] aligned elements, or NULL without a block. Adds their bytes to *account. */
void *fedge_arena_take(fedge_arena *arena, size_t count, size_t element_size, size_t *account);

/* a · b, or on overflow SIZE_MAX, which no block can hold. */
size_t fedge_arena_product(size_t a, size_t b);

/* ---- properties of the options (spec.c) ---- */

/* Checks the options and the loss: FEDGE_INVALID_ARGUMENT, FEDGE_UNSUPPORTED. */
FEDGE_MUST_USE fedge_status fedge_model_check_options(const fedge_model_spec *spec,
                                                      const fedge_model_options *options,
                                                      fedge_error *err);

/* The CPU's features that the options allow to use. */
unsigned fedge_model_features(const fedge_model_options *options);

/* The kernels for the options' precision and features. */
fedge_kernels fedge_kernels_for(const fedge_model_options *options);

/* True if CPUs compute matrix products in fp32, as they do for tf32. */
bool fedge_multiplies_fp32(const fedge_model_options *options);

/* Examples that pass through the layers at a time, at most. */
uint32_t fedge_micro_batch(const fedge_model_options *options);

/* Floats stored per parameter besides its value and gradient. */
uint32_t fedge_states_per_parameter(const fedge_model_options *options);

/* True if all gradients are stored before the optimizer's step. */
bool fedge_stores_gradients(const fedge_model_options *options);

/* ---- the model ---- */

typedef struct fedge_fused fedge_fused;
typedef struct fedge_graph fedge_graph;

struct fedge_model {
    const fedge_kernels *kernels;
    fedge_fused *fused; /* either this or [graph] is NULL */
    fedge_graph *graph;
    fedge_model_options options;
    const fedge_loss_ops *loss;
    fedge_loss_type loss_type;
    fedge_layer_type first_layer_type;
    float loss_argument;
    uint32_t outputs;
    const float *last_outputs;
    float *all_outputs; /* (max_batch, outputs) with micro-batches, else NULL */
    size_t example_size, num_values, num_buffers;
    size_t num_floats;       /* length of values: num_values without those in int8 */
    float *values, *buffers; /* values: NULL if weights are stored in 16 bits */
    uint16_t *half;          /* (num_values): weights in 16 bits, or NULL */
    float *states[FEDGE_MAX_OPTIMIZER_STATES];
    float *anchor, *correction, *gradients; /* (num_values) each, or NULL */
    uint64_t num_steps, seed;
    uint32_t round, client_index;
};

/* Memory that fused stages use in turn, in elements. */
typedef struct fedge_scratch_counts {
    size_t packed;                         /* floats: weights in the kernels' order */
    size_t bias;                           /* floats: biases padded to lanes */
    size_t band;                           /* floats: rows of a convolution before pooling */
    size_t input;                          /* floats: one padded planar example, or its gradient */
    size_t weight_gradient, bias_gradient; /* floats */
    size_t entries, entry_counts;          /* fedge_grad_entry; uint32_t */
} fedge_scratch_counts;

/* The result of fedge_fused_survey, for fedge_fused_lay_out. */
typedef struct fedge_fused_needs {
    uint32_t num_stages;
    size_t buffers[2]; /* floats per example, used alternately: gradients, or activations without
                          training */
    fedge_scratch_counts scratch;
} fedge_fused_needs;

/* A model while it is laid out. Without a block the pointers of [model] stay NULL. */
typedef struct fedge_model_layout {
    fedge_arena arena;
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    const fedge_kernels *kernels;
    fedge_model *model; /* never NULL; values, buffers and states are allocated before lay_out */
    fedge_model_memory *memory;
    fedge_fused_needs fused; /* set by fedge_fused_survey */
} fedge_model_layout;

/* The layer and the tensor to which a value belongs. */
typedef struct fedge_value_owner {
    uint32_t layer;
    fedge_layer_type type;
    const char *tensor; /* "weight" */
    size_t index;       /* index in the tensor */
} fedge_value_owner;

/* The index of the first of [n] values that is not finite; [n] if all are. */
size_t fedge_find_not_finite(const fedge_kernels *kernels, const float *values, size_t n);

/* For messages: drops the sign of a NaN, which differs between CPUs. */
static inline double fedge_printable(double value)
{
    return isnan(value) ? (double)NAN : value;
}

/* ---- bytes of each layer (memory.c) ---- */

/* Receives the layers in order. Stores all of them if [layers] is set, and finds the largest. */
typedef struct fedge_memory_sink {
    fedge_layer_memory *layers; /* may be NULL */
    uint32_t count, largest;
    size_t largest_bytes;
} fedge_memory_sink;

void fedge_memory_put(fedge_memory_sink *sink, const fedge_layer_memory *layer);

/* The parameters, values and optimizer's states of a layer with this output shape; other members
 * are 0. */
fedge_layer_memory fedge_describe_layer(const fedge_layer_spec *layer,
                                        const fedge_model_options *options, uint32_t rank,
                                        const uint32_t *shape);

/* ---- the fused way: the interface of edge/train/fused (fused.c) ---- */

/* True if the fused stages can run this model with these options. The spec need not be valid. */
bool fedge_fused_fits(const fedge_model_spec *spec, const fedge_model_options *options);

/* Sets the model's num_values, outputs and example_size. Allocates nothing. */
FEDGE_MUST_USE fedge_status fedge_fused_survey(fedge_model_layout *layout, fedge_error *err);

/* Allocates the remaining memory and sets model->fused. */
FEDGE_MUST_USE fedge_status fedge_fused_lay_out(fedge_model_layout *layout, fedge_error *err);

/* *outputs: (batch, outputs). *gradient: the loss writes their gradient there before the backward
 * pass; NULL without training. */
FEDGE_MUST_USE fedge_status fedge_fused_forward(fedge_model *model, const float *x, uint32_t batch,
                                                const float **outputs, float **gradient);

/* The backward pass and the optimizer's step. */
void fedge_fused_backward(fedge_model *model, const float *x, const fedge_optimizer *optimizer);

/* The owner of the parameters' value [index] in schema order. */
fedge_value_owner fedge_fused_owner(const fedge_model *model, size_t index);

/* Passes the bytes of every layer to [sink]. */
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

/* As in the fused way. With [train] false, forward saves nothing for a backward pass. */
FEDGE_MUST_USE fedge_status fedge_graph_survey(fedge_model_layout *layout, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_graph_lay_out(fedge_model_layout *layout, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_graph_forward(fedge_model *model, const float *x, uint32_t batch,
                                                bool train, const float **outputs, float **gradient,
                                                fedge_error *err);

/* The owner of value [index] of the parameters, or of the buffers. */
fedge_value_owner fedge_graph_owner(const fedge_model *model, bool buffer, size_t index);

/* Checks that every layer accepts a pass of [batch] examples, whatever their values:
 * FEDGE_INVALID_ARGUMENT with the layer and the numbers. */
FEDGE_MUST_USE fedge_status fedge_graph_check(const fedge_graph *graph, uint32_t batch, bool train,
                                              fedge_error *err);

/* Loads parameters in schema order into a model with some of them in int8. */
void fedge_graph_load(fedge_model *model, const float *values);

/* Before the first part of a batch: starts the step's random stream and clears stored gradients. */
void fedge_graph_begin(fedge_model *model);

/* The backward pass. Each layer takes its optimizer step at once, or, if gradients are stored, adds
 * to them; then fedge_graph_finish takes the step. */
void fedge_graph_backward(fedge_model *model, const fedge_optimizer *optimizer);
void fedge_graph_finish(fedge_model *model, const fedge_optimizer *optimizer);

/* For tests of the plan: calls [watch] with FEDGE_TIME_BEGIN before a forward pass, and with each
 * time of graph_plan.h after its work. Returns the arena of the plan's intervals. Only for models
 * that run layer by layer. */
#define FEDGE_TIME_BEGIN UINT32_MAX
typedef void (*fedge_graph_watcher)(void *user, uint32_t time);
uint8_t *fedge_graph_watch(fedge_model *model, fedge_graph_watcher watch, void *user);

#endif
