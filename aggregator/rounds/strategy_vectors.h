/* The state of strategies that keep vectors of what is trained, as floats: momenta and the like. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGY_VECTORS_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGY_VECTORS_H

#include "aggregator/rounds/strategy.h"

typedef struct fedge_strategy_vectors {
    const char *name;     /* of the strategy */
    const void *settings; /* of its struct */
    size_t num_values;    /* of each vector */
    uint32_t num_vectors;
    float values[]; /* one vector after another */
} fedge_strategy_vectors;

/* A state of [count] vectors, all 0. Freed by free. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_new(const fedge_strategy_config *config,
                                                       uint32_t count,
                                                       fedge_strategy_vectors **state,
                                                       fedge_error *err);
/* As a strategy's init: a state of one vector. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_init_one(const fedge_strategy_config *config,
                                                            void **state, fedge_error *err);
/* As a strategy's save and load; state is a fedge_strategy_vectors. */
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_save(const void *state, fedge_buffer *out,
                                                        fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_strategy_vectors_load(void *state, const uint8_t *bytes,
                                                        size_t size, fedge_error *err);
/* As a strategy's forget: all is 0 again. */
void fedge_strategy_vectors_forget(void *state);
/* As a strategy's told: all of them. */
const float *fedge_strategy_vectors_told(const void *state);

#endif
