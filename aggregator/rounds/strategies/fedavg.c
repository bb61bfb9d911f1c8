#include <math.h>
#include <stdlib.h>

#include "aggregator/rounds/strategy.h"

typedef struct fedavg {
    double server_learning_rate;
} fedavg;

static fedge_status fedavg_init(const fedge_strategy_config *config, void **state, fedge_error *err)
{
    double rate = config->server_learning_rate;
    if (!isfinite(rate) || rate <= 0.0)
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT,
            "FedAvg: server-learning-rate is %g; it must be above 0 (1 is the mean of "
            "the clients)",
            rate);
    fedavg *made = malloc(sizeof *made);
    if (made == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "FedAvg: no memory");
    *made = (fedavg){.server_learning_rate = rate};
    *state = made;
    return FEDGE_OK;
}

static fedge_status fedavg_step(void *state, const fedge_strategy_sum *sum, float *model,
                                fedge_error *err)
{
    const fedavg *self = state;
    if (sum->total_weight == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "FedAvg: round %u has a total weight of 0: no update to average",
                          (unsigned)sum->round);
    return fedge_strategy_move(sum, &sum->delta, self->server_learning_rate, model, err);
}

/* The next step depends on nothing but the model. */
static fedge_status fedavg_save(const void *state, fedge_buffer *out, fedge_error *err)
{
    (void)state;
    (void)out;
    (void)err;
    return FEDGE_OK;
}

static fedge_status fedavg_load(void *state, const uint8_t *bytes, size_t size, fedge_error *err)
{
    (void)state;
    (void)bytes;
    if (size != 0)
        return fedge_fail(err, FEDGE_CORRUPT,
                          "FedAvg keeps no state, but the checkpoint has %zu bytes of it", size);
    return FEDGE_OK;
}

const fedge_strategy_ops fedge_strategy_fedavg = {
    .struct_size = sizeof(fedge_strategy_ops),
    .name = "FedAvg",
    .init = fedavg_init,
    .step = fedavg_step,
    .save = fedavg_save,
    .load = fedavg_load,
    .free = free,
};
