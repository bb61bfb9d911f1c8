/* A model's insides, and the two ways to run it; private to edge/train.
 *
 * Fused: whole stages on channels-last images with the SGD step inside the backward pass; the
 * fastest, for plain lists of Linear, Conv2d, MaxPool2d, ReLU and Flatten. General: layer by layer
 * by the table of edge/train/layers/layer.h, for everything.
 */
#ifndef FEDGE_EDGE_TRAIN_MODEL_INTERNALS_H
#define FEDGE_EDGE_TRAIN_MODEL_INTERNALS_H

#include <math.h>

#include "edge/core/rng.h"
#include "edge/train/kernels/kernels.h"
#include "edge/train/losses/losses.h"
#include "edge/train/model.h"
#include "edge/train/model/arena.h"
#include "edge/train/model/fused_plan.h"
#include "edge/train/optimizers/optimizers.h"

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
    size_t num_floats;       /* in values: num_values, or those that are not kept in int8 */
    float *values, *buffers; /* values: NULL with weights of 16 bits */
    uint16_t *narrow;        /* then: the values, (num_values); else NULL */
    float *states[FEDGE_MAX_OPTIMIZER_STATES];
    float *anchor, *correction, *gradients; /* (num_values) each, or NULL */
    uint64_t num_steps, seed;
    uint32_t round, client_index;
};

/* What both need to be laid out. Without a block the pointers of [model] stay NULL. */
typedef struct fedge_layout {
    fedge_carver from;
    const fedge_model_spec *spec;
    const fedge_model_options *options;
    const fedge_kernels *kernels;
    fedge_model *model; /* its values, buffers and states are carved; never NULL */
    fedge_model_memory *memory;
    fedge_fused_needs fused; /* set by fedge_fused_survey */
} fedge_layout;

/* What fedge_model_layer_memory gives, of a model that fedge_model_size has passed. */
FEDGE_MUST_USE fedge_status fedge_fill_layer_memory(const fedge_model_spec *spec,
                                                    const fedge_model_options *options,
                                                    fedge_layer_memory *layers, fedge_error *err);

/* FEDGE_TOO_BIG, with the layer whose fedge_layer_memory has most bytes in all. For models that
 * fedge_model_size has passed. */
FEDGE_MUST_USE fedge_status fedge_fail_block(const fedge_model_spec *spec,
                                             const fedge_model_options *options, size_t needed,
                                             size_t given, fedge_error *err);

/* Can the fused stages run this model as the options ask? The spec may still be wrong. */
bool fedge_fused_fits(const fedge_model_spec *spec, const fedge_model_options *options);

/* What [stage] takes of the room that stages share, its parameters' gradients too: bytes. */
size_t fedge_fused_scratch_bytes(const fedge_stage *stage, bool training);

/* Sizes before anything is carved: sets model->num_values, outputs, example_size. */
FEDGE_MUST_USE fedge_status fedge_fused_survey(fedge_layout *layout, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_graph_survey(fedge_layout *layout, fedge_error *err);

/* Carves the rest; sets model->fused or model->graph. */
FEDGE_MUST_USE fedge_status fedge_fused_lay_out(fedge_layout *layout, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_graph_lay_out(fedge_layout *layout, fedge_error *err);

/* The batch's outputs, (batch, outputs); *gradient: where the loss puts their gradient before
 * backward (NULL when not training). [train] false: nothing is kept for a backward pass. */
FEDGE_MUST_USE fedge_status fedge_fused_forward(fedge_model *model, const float *x, uint32_t batch,
                                                const float **outputs, float **gradient);
FEDGE_MUST_USE fedge_status fedge_graph_forward(fedge_model *model, const float *x, uint32_t batch,
                                                bool train, const float **outputs, float **gradient,
                                                fedge_error *err);

/* Can every layer work on a pass of [batch] examples, whatever is in them? FEDGE_INVALID_ARGUMENT
 * with the layer and the numbers. */
FEDGE_MUST_USE fedge_status fedge_graph_check(const fedge_graph *graph, uint32_t batch, bool train,
                                              fedge_error *err);

/* Parameters in schema order into a model that keeps some in int8. */
void fedge_graph_load(fedge_model *model, const float *values);

/* Backward, and the optimizer's step. */
void fedge_fused_backward(fedge_model *model, const float *x, const fedge_optimizer *optimizer);

/* For messages: a NaN without its sign, which says nothing and differs between CPUs. */
static inline double fedge_printable(double value)
{
    return isnan(value) ? (double)NAN : value;
}

/* Whose a value is. */
typedef struct fedge_place {
    uint32_t layer;
    fedge_layer_type type;
    const char *tensor; /* "weight" */
    size_t at;          /* in the tensor */
} fedge_place;

/* Of the parameters' value [index] in schema order, or of the buffers'. */
fedge_place fedge_fused_place(const fedge_model *model, size_t index);
fedge_place fedge_graph_place(const fedge_model *model, bool buffer, size_t index);

/* The first of [n] values that is not finite; [n]: all are. */
size_t fedge_find_not_finite(const fedge_kernels *kernels, const float *values, size_t n);

/* Before the first part of a batch: names the step's stream of random numbers, clears the gradients
 * that are kept. */
void fedge_graph_begin(fedge_model *model);

/* Backward. Parameters step at once unless gradients are kept; those are added to, and
 * fedge_graph_finish takes the step. */
void fedge_graph_backward(fedge_model *model, const fedge_optimizer *optimizer);
void fedge_graph_finish(fedge_model *model, const fedge_optimizer *optimizer);

/* For tests of the plan: [watch] is told FEDGE_TIME_BEGIN before a forward pass, and each time of
 * graph_plan.h as soon as what happens then is done. Returns the arena that the plan's intervals
 * lie in. A model that is run layer by layer only. */
#define FEDGE_TIME_BEGIN UINT32_MAX
typedef void (*fedge_graph_watcher)(void *user, uint32_t time);
uint8_t *fedge_graph_watch(fedge_model *model, fedge_graph_watcher watch, void *user);

#endif
