/* Two additional metrics: the fraction of examples whose label is among the five largest outputs,
 * and the lowest accuracy of a class.
 *
 * Against an installed fedge:
 *
 *     cc -shared -fPIC metric.c $(pkg-config --cflags fedge-strategy) -lm -o metric.so
 *     fedge-simulate generate fedprox:1,1 --out synthetic
 *     fedge-simulate --job synthetic/job.json --strategy-plugin ./metric.so --out run
 *     tail -n 1 run/rounds.jsonl
 */
#include <math.h>
#include <stdio.h>

#include <fedge/metric.h>

enum { TOP5, WORST_CLASS, NUM_METRICS, MAX_CLASSES = 1000 };

static const char *const names[NUM_METRICS] = {
    [TOP5] = "top5_accuracy",
    [WORST_CLASS] = "worst_class_accuracy",
};

typedef struct counts {
    uint64_t num, top5;
    uint64_t of_class[MAX_CLASSES], right[MAX_CLASSES];
} counts;

static void add(void *state, const fedge_metric_batch *batch)
{
    counts *to = state;
    for (uint32_t i = 0; i < batch->count; i++) {
        const float *outputs = batch->outputs + (size_t)i * batch->num_outputs;
        const uint32_t label = (uint32_t)batch->labels[i];
        uint32_t above = 0; /* outputs that precede the label's; ties go to the lower index */
        for (uint32_t j = 0; label < batch->num_outputs && j < batch->num_outputs; j++)
            above += outputs[j] > outputs[label] || (outputs[j] == outputs[label] && j < label);
        to->num++;
        to->top5 += above < 5;
        if (label < MAX_CLASSES) {
            to->of_class[label]++;
            to->right[label] += above == 0;
        }
    }
}

static int finish(const void *state, double *values, char *message)
{
    const counts *from = state;
    if (from->num == 0) {
        snprintf(message, 256, "no examples");
        return 1;
    }
    values[TOP5] = (double)from->top5 / (double)from->num;
    values[WORST_CLASS] = 1.0;
    for (uint32_t c = 0; c < MAX_CLASSES; c++) {
        if (from->of_class[c] > 0) {
            values[WORST_CLASS] =
                fmin(values[WORST_CLASS], (double)from->right[c] / (double)from->of_class[c]);
        }
    }
    return 0;
}

static const fedge_metric_plugin table = {
    .struct_size = sizeof(fedge_metric_plugin),
    .version = FEDGE_METRIC_PLUGIN_VERSION,
    .num_metrics = NUM_METRICS,
    .names = names,
    .state_size = sizeof(counts),
    .add = add,
    .finish = finish,
};

const fedge_metric_plugin *fedge_metric_plugin_get(void);

const fedge_metric_plugin *fedge_metric_plugin_get(void)
{
    return &table;
}
