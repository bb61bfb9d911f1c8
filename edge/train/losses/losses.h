/* What a loss is: one table of operations per type, one file per table under edge/train/losses/. */
#ifndef FEDGE_EDGE_TRAIN_LOSSES_LOSSES_H
#define FEDGE_EDGE_TRAIN_LOSSES_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/train/layers/layer.h"
#include "edge/train/model.h"

/* One batch. What belongs to an example comes as a label or as [outputs] targets. */
typedef struct fedge_loss_run {
    float argument;        /* the loss's one argument: Huber's delta, CrossEntropy's smoothing */
    const float *y;        /* (batch, outputs) */
    const int32_t *labels; /* (batch), each within range; NULL when there are targets */
    const float *targets;  /* (batch, outputs), or NULL */
    uint32_t batch, outputs;
    float *dy; /* (batch, outputs), the gradient of the batch's mean loss; may be y; NULL: none */
} fedge_loss_run;

typedef struct fedge_loss_ops {
    const fedge_argument *arguments; /* of a fedge_model_spec; NULL: none */
    bool needs_labels;               /* targets will not do */
    uint32_t min_outputs;            /* with fewer it is always 0; 0: one will do */
    uint32_t labels_of_one;          /* how many labels one output can tell apart; 0: any number */
    /* As of a layer (edge/train/layers/layer.h). */
    const char *(*feature)(const fedge_model_spec *model);

    /* Σ over the batch of the example's loss; *correct: how many were classified right, 0 where
     * that has no meaning. */
    double (*run)(const fedge_loss_run *run, uint32_t *correct);
} fedge_loss_ops;

#define FEDGE_LOSS_DECLARE(upper, lower, class) extern const fedge_loss_ops fedge_loss_##lower;
FEDGE_LOSS_MAP(FEDGE_LOSS_DECLARE)
#undef FEDGE_LOSS_DECLARE

/* Is [spec]'s loss known, and its argument within range? FEDGE_UNSUPPORTED, or
 * FEDGE_INVALID_ARGUMENT with the loss's name and the numbers. */
FEDGE_MUST_USE fedge_status fedge_loss_check(const fedge_model_spec *spec, fedge_error *err);

/* NULL for an unknown type. */
const fedge_loss_ops *fedge_loss_ops_of(fedge_loss_type type);

/* Target [output] of example [b]: targets[b][output]; else from the label, as the number itself
 * for one output and one-hot for more. */
float fedge_loss_target(const fedge_loss_run *run, size_t b, uint32_t output);

#endif
