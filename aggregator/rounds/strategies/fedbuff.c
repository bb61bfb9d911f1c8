/* FedBuff (Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS
 * 2022): a round closes when the buffer holds K updates, on any base model, while other clients
 * continue,
 *
 *     x ← x + η_s · 1/K · Σ w(s_i) Δ_i
 *
 * w(s) = 1 / √(1 + s) by default, as in the paper, where η_s is tuned and K is 10. The weights are
 * not divided by their sum: a buffer of stale updates moves the model less. Examples have no
 * weight.
 */
#include "aggregator/rounds/strategies/asynchronous.h"

static const fedge_json_field ARGUMENTS[] = {
    {"buffer-size", "buffer_size", FEDGE_JSON_U32, FEDGE_JSON_AT(fedge_asynchronous, buffer_size),
     .min = 1, .max = 65536, .fallback = 10},
    FEDGE_ASYNCHRONOUS_FIELDS,
    FEDGE_JSON_END,
};

static fedge_status step(void *state, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    const fedge_asynchronous *with = self->settings;
    FEDGE_TRY(fedge_asynchronous_check(self, sum, err));
    /* The mean is Σ w Δ / W. */
    const double fraction = (double)sum->total_weight / fedge_asynchronous_unit(sum->job);
    fedge_asynchronous_keep(self, sum, model);
    return fedge_strategy_move(
        sum, &sum->delta,
        fedge_strategy_rate(&with->common, sum->round) * fraction / sum->num_updates, model, err);
}

const fedge_strategy_ops fedge_strategy_fedbuff =
    FEDGE_ASYNCHRONOUS_OPS("FedBuff", ARGUMENTS, fedge_asynchronous_derive, step);
