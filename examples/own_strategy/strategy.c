/* An additional strategy, normalised averaging with momentum: the length of its step does not
 * depend on the clients',
 *
 *     v ← β v + mean(Δ_i) / max(‖mean(Δ_i)‖, ε),   x ← x + η_s v
 *
 * Against an installed fedge:
 *
 *     cc -shared -fPIC strategy.c $(pkg-config --cflags fedge-strategy) -lm -o strategy.so
 *     fedge-simulate generate fedprox:1,1 --out run
 *     sed -i '2i "strategy": {"type": "NormalisedAvg", "server-learning-rate": 0.1},' run/job.json
 *     fedge-simulate --job run/job.json --strategy-plugin ./strategy.so
 */
#include <math.h>
#include <stdio.h>

#include <fedge/strategy.h>

enum { BETA, LEAST, NUM_ARGUMENTS };

static const fedge_plugin_argument arguments[NUM_ARGUMENTS] = {
    [BETA] = {"beta", 0.0, 0.9999, 0.9},
    [LEAST] = {"least-norm", 1e-12, 1e6, 1e-6},
};

static int step(const fedge_plugin_round *round, char *message)
{
    double square = 0.0;
    for (size_t i = 0; i < round->num_values; i++)
        square += round->mean[i] * round->mean[i];
    if (!isfinite(square)) {
        snprintf(message, 256, "the mean change of round %u is too large", round->round);
        return 1;
    }
    const double norm = fmax(sqrt(square), round->arguments[LEAST]);
    for (size_t i = 0; i < round->num_values; i++) {
        round->vectors[i] =
            (float)(round->arguments[BETA] * round->vectors[i] + round->mean[i] / norm);
        round->model[i] += (float)(round->server_learning_rate * round->vectors[i]);
    }
    return 0;
}

static const fedge_strategy_plugin table = {
    .struct_size = sizeof(fedge_strategy_plugin),
    .version = FEDGE_STRATEGY_PLUGIN_VERSION,
    .num_arguments = NUM_ARGUMENTS,
    .name = "NormalisedAvg",
    .arguments = arguments,
    .num_vectors = 1,
    .step = step,
};

const fedge_strategy_plugin *fedge_strategy_plugin_get(void);

const fedge_strategy_plugin *fedge_strategy_plugin_get(void)
{
    return &table;
}
