#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "edge/core/bytes.h"

typedef struct scaffold {
    const fedge_schema *schema;
    double server_learning_rate;
    uint32_t num_clients; /* N */
    float control[];      /* c: schema->num_elements */
} scaffold;

static fedge_status scaffold_init(const fedge_strategy_config *config, void **state,
                                  fedge_error *err)
{
    double rate = config->server_learning_rate;
    if (!isfinite(rate) || rate <= 0.0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "SCAFFOLD: server-learning-rate is %g; it must be above 0", rate);
    if (config->num_clients == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "SCAFFOLD: num-clients is 0; say how many clients there are");
    size_t count = config->schema->num_elements;
    scaffold *made = calloc(1, sizeof *made + count * sizeof made->control[0]);
    if (made == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "SCAFFOLD: no memory for %zu control values",
                          count);
    made->schema = config->schema;
    made->server_learning_rate = rate;
    made->num_clients = config->num_clients;
    *state = made;
    return FEDGE_OK;
}

static fedge_status scaffold_step(void *state, const fedge_strategy_sum *sum, float *model,
                                  fedge_error *err)
{
    scaffold *self = state;
    if (sum->total_weight == 0 || sum->control.schema == NULL)
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "SCAFFOLD: round %u has %s", (unsigned)sum->round,
            sum->control.schema == NULL ? "no control section" : "no update to average");
    /* |S| / N, at most 1 when more took part than there are said to be. */
    double share = (double)sum->num_updates / (double)self->num_clients;
    share = share < 1.0 ? share : 1.0;
    fedge_status status =
        fedge_strategy_move(sum, &sum->delta, self->server_learning_rate, model, err);
    return status == FEDGE_OK ? fedge_strategy_move(sum, &sum->control, share, self->control, err)
                              : status;
}

static fedge_status scaffold_save(const void *state, fedge_buffer *out, fedge_error *err)
{
    const scaffold *self = state;
    const size_t count = self->schema->num_elements;
    uint8_t *room = NULL;
    fedge_status status = fedge_buffer_reserve(out, count * sizeof(float), &room, err);
    if (status == FEDGE_OK) {
        fedge_put_f32s(room, self->control, count);
        out->size += count * sizeof(float);
    }
    return status;
}

static fedge_status scaffold_load(void *state, const uint8_t *bytes, size_t size, fedge_error *err)
{
    scaffold *self = state;
    const size_t count = self->schema->num_elements;
    if (size != count * sizeof(float))
        return fedge_fail(err, FEDGE_CORRUPT,
                          "SCAFFOLD keeps %zu control values, but the checkpoint has %zu bytes of "
                          "them",
                          count, size);
    fedge_get_f32s(bytes, self->control, count);
    return FEDGE_OK;
}

static const float *scaffold_control(const void *state)
{
    return ((const scaffold *)state)->control;
}

static void scaffold_forget(void *state)
{
    scaffold *self = state;
    memset(self->control, 0, self->schema->num_elements * sizeof self->control[0]);
}

const fedge_strategy_ops fedge_strategy_scaffold = {
    .struct_size = sizeof(fedge_strategy_ops),
    .name = "SCAFFOLD",
    .init = scaffold_init,
    .step = scaffold_step,
    .save = scaffold_save,
    .load = scaffold_load,
    .free = free,
    .control = scaffold_control,
    .forget = scaffold_forget,
};
