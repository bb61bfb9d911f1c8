/* The interface of losses: a table of operations per type, in a file each. */
#ifndef FEDGE_EDGE_TRAIN_LOSSES_LOSSES_H
#define FEDGE_EDGE_TRAIN_LOSSES_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/train/layers/layer.h"
#include "edge/train/model.h"

/* A batch with a label or [outputs] targets for each example. */
typedef struct fedge_loss_run {
    float argument;        /* Huber's delta, CrossEntropy's label smoothing */
    const float *y;        /* (batch, outputs) */
    const int32_t *labels; /* (batch), each within range; NULL with targets */
    const float *targets;  /* (batch, outputs), or NULL */
    uint32_t batch, outputs;
    float *dy; /* (batch, outputs): set to the gradient of the mean loss; may be y or NULL */
} fedge_loss_run;

typedef struct fedge_loss_ops {
    const fedge_argument *arguments; /* arguments in a fedge_model_spec; NULL: none */
    bool needs_labels;               /* targets are not enough */
    uint32_t min_outputs;            /* fewer outputs would make the loss 0; 0 means 1 */
    float target_max;                /* targets are 0 to this; 0: any numbers */
    uint32_t labels_of_one;          /* labels that one output can distinguish; 0: any number */
    /* As in fedge_layer_ops. */
    const char *(*feature)(const fedge_model_spec *model);

    /* Returns the sum of the examples' losses. *correct: examples classified correctly; 0 if the
     * loss does not classify. */
    double (*run)(const fedge_loss_run *run, uint32_t *correct);
} fedge_loss_ops;

#define FEDGE_LOSS_DECLARE(upper, lower, class) extern const fedge_loss_ops fedge_loss_##lower;
FEDGE_LOSS_MAP(FEDGE_LOSS_DECLARE)
#undef FEDGE_LOSS_DECLARE

/* Checks [spec]'s loss and its argument: FEDGE_UNSUPPORTED, or FEDGE_INVALID_ARGUMENT with the
 * loss's name and the numbers. */
FEDGE_MUST_USE fedge_status fedge_loss_check(const fedge_model_spec *spec, fedge_error *err);

/* NULL for an unknown type. */
const fedge_loss_ops *fedge_loss_ops_of(fedge_loss_type type);

/* Target [output] of example [b]; without targets from the label, as a number for one output and
 * one-hot for more. */
float fedge_loss_target(const fedge_loss_run *run, size_t b, uint32_t output);

#endif
