/* A strategy that sees single updates: the median of each coordinate, as fedge's FedMedian,
 *
 *     x ← x + η_s · median(Δ_i)
 *
 * with the same bits: integers are sorted, and the mean of the middle two is exact. It is built as
 * strategy.c beside it. */
#include <stdlib.h>

#include <fedge/strategy.h>

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Tiles come on several threads, so each sorts in memory of its own. */
static int combine(const fedge_plugin_tile *tile, double *combined, char *message)
{
    const uint32_t num = tile->num_updates;
    int32_t *values = malloc(num * sizeof(*values));
    (void)message;
    if (!values)
        return 1;
    for (size_t k = 0; k < tile->count; k++) {
        for (uint32_t i = 0; i < num; i++)
            values[i] = tile->rows[i][k];
        qsort(values, num, sizeof(*values), by_value);
        combined[k] = ((double)values[(num - 1) / 2] + values[num / 2]) / 2.0 * tile->unit;
    }
    free(values);
    return 0;
}

static int step(const fedge_plugin_round *round, char *message)
{
    (void)message;
    for (size_t i = 0; i < round->num_values; i++)
        round->model[i] += (float)(round->server_learning_rate * round->mean[i]);
    return 0;
}

static const fedge_strategy_plugin table = {
    .struct_size = sizeof(fedge_strategy_plugin),
    .version = FEDGE_STRATEGY_PLUGIN_VERSION,
    .name = "Median",
    .step = step,
    .combine = combine,
};

const fedge_strategy_plugin *fedge_strategy_plugin_get(void);

const fedge_strategy_plugin *fedge_strategy_plugin_get(void)
{
    return &table;
}
