#include "aggregator/rounds/strategy_vectors.h"

#include <stdlib.h>
#include <string.h>

fedge_status fedge_strategy_vectors_new(const fedge_strategy_config *config, uint32_t count,
                                        fedge_strategy_vectors **state, fedge_error *err)
{
    *state = NULL;
    const size_t values = config->schema->num_elements;
    const char *name = config->job->strategy;
    fedge_strategy_vectors *made = calloc(1, sizeof(*made) + count * values * sizeof(float));
    *state = made;
    if (!made) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %u times %zu values", name,
                          (unsigned)count, values);
    }
    made->name = name;
    made->settings = config->job->strategy_settings;
    made->num_values = values;
    made->num_vectors = count;
    return FEDGE_OK;
}

fedge_status fedge_strategy_vectors_init_one(const fedge_strategy_config *config, void **state,
                                             fedge_error *err)
{
    fedge_strategy_vectors *made = NULL;
    const fedge_status status = fedge_strategy_vectors_new(config, 1, &made, err);
    *state = made;
    return status;
}

fedge_status fedge_strategy_vectors_save(const void *state, fedge_buffer *out, fedge_error *err)
{
    const fedge_strategy_vectors *self = state;
    return fedge_strategy_save_floats(self->values, self->num_vectors * self->num_values, out, err);
}

fedge_status fedge_strategy_vectors_load(void *state, const uint8_t *bytes, size_t size,
                                         fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    return fedge_strategy_load_floats(self->values, self->num_vectors * self->num_values, bytes,
                                      size, self->name, err);
}

void fedge_strategy_vectors_forget(void *state)
{
    fedge_strategy_vectors *self = state;
    memset(self->values, 0, self->num_vectors * self->num_values * sizeof(self->values[0]));
}

const float *fedge_strategy_vectors_told(const void *state)
{
    return ((const fedge_strategy_vectors *)state)->values;
}
