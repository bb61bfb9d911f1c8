/* The interface of optimizers: a table of operations per type, in a file each. */
#ifndef FEDGE_EDGE_TRAIN_OPTIMIZERS_OPTIMIZERS_H
#define FEDGE_EDGE_TRAIN_OPTIMIZERS_OPTIMIZERS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/train/layers/layer.h"
#include "edge/train/model.h"

/* Floats stored per parameter, at most; whether a type has a momentum, and a mean gradient. */
#ifdef FEDGE_FIRST_OPTIMIZERS
#define FEDGE_MAX_OPTIMIZER_STATES 2
#define FEDGE_HAS_MOMENTUM(type) ((type) == FEDGE_OPTIMIZER_SGD)
#define FEDGE_HAS_CENTERED(type) false
#else
#define FEDGE_MAX_OPTIMIZER_STATES 3
#define FEDGE_HAS_MOMENTUM(type) fedge_optimizer_ops_of(type)->momentum
#define FEDGE_HAS_CENTERED(type) fedge_optimizer_ops_of(type)->centered
#endif

typedef struct fedge_optimizer_ops {
    const fedge_argument
        *arguments;     /* arguments in a fedge_optimizer, without those of every type */
    uint8_t num_states; /* floats stored per parameter, without those of [momentum], [centered] */
    bool momentum;      /* one more with a momentum */
    bool centered;      /* one more if centered, before that of the momentum */

    /* One step of the parameters w (n) with the gradient g (n). states: (n) each or NULL, 0 before
     * the first step. step: from 1. */
    void (*update)(const fedge_optimizer *optimizer, const fedge_kernels *kernels, uint64_t step,
                   size_t n, const float *g, float *w,
                   float *const states[FEDGE_MAX_OPTIMIZER_STATES]);
} fedge_optimizer_ops;

#define FEDGE_OPTIMIZER_DECLARE(upper, lower, class)                                               \
    extern const fedge_optimizer_ops fedge_optimizer_##lower;
FEDGE_OPTIMIZER_MAP(FEDGE_OPTIMIZER_DECLARE)
#undef FEDGE_OPTIMIZER_DECLARE

/* A step of SGD without Nesterov over [n] contiguous parameters. v: (n), NULL without momentum. */
void fedge_sgd_update(const fedge_optimizer *sgd, size_t n, const float *g, float *w, float *v);

/* NULL for an unknown type. */
const fedge_optimizer_ops *fedge_optimizer_ops_of(fedge_optimizer_type type);

/* Checks the ranges of all arguments: FEDGE_INVALID_ARGUMENT with the optimizer's name and the
 * numbers. */
FEDGE_MUST_USE fedge_status fedge_optimizer_check(const fedge_optimizer *optimizer,
                                                  fedge_error *err);

/* Number of states that a model with these options stores. */
uint32_t fedge_optimizer_states(const fedge_model_options *options);

#endif
