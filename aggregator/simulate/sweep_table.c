#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "aggregator/simulate/sweep_internal.h"

/* ---- numbers over seeds ---------------------------------------------------------------------- */

typedef struct spread {
    double mean, deviation; /* NaN: nothing to say; the deviation of one value is 0 */
    uint32_t count;
} spread;

/* A number of a run; [which] is a target's. */
typedef double (*value_fn)(const fedge_totals *totals, uint32_t which);

/* Over the seeds of a combination; values that are not finite do not count. */
static spread spread_of(const fedge_sweep *sweep, uint32_t combination, value_fn value,
                        uint32_t which)
{
    const sweep_outcome *first = &sweep->outcomes[(size_t)combination * sweep->num_seeds];
    double sum = 0.0, squares = 0.0;
    spread of = {NAN, NAN, 0};
    for (uint32_t i = 0; i < sweep->num_seeds; i++) {
        const double x = first[i].done && !first[i].failed ? value(&first[i].totals, which) : NAN;
        sum += isfinite(x) ? x : 0.0;
        of.count += isfinite(x);
    }
    if (of.count == 0) {
        return of;
    }
    of.mean = sum / of.count;
    for (uint32_t i = 0; i < sweep->num_seeds; i++) {
        const double x = first[i].done && !first[i].failed ? value(&first[i].totals, which) : NAN;
        squares += isfinite(x) ? (x - of.mean) * (x - of.mean) : 0.0;
    }
    of.deviation = of.count > 1 ? sqrt(squares / (of.count - 1)) : 0.0;
    return of;
}

static double last_accuracy(const fedge_totals *totals, uint32_t which)
{
    (void)which;
    return totals->test.accuracy;
}

static double last_ten(const fedge_totals *totals, uint32_t which)
{
    (void)which;
    return fedge_totals_last_mean(&totals->test);
}

static double best_validation(const fedge_totals *totals, uint32_t which)
{
    (void)which;
    return totals->validation.best;
}

static double test_at_best(const fedge_totals *totals, uint32_t which)
{
    (void)which;
    return totals->test_at_best;
}

static double rounds_to(const fedge_totals *totals, uint32_t which)
{
    return totals->reached[which];
}

static double seconds(const fedge_totals *totals, uint32_t which)
{
    (void)which;
    return totals->seconds;
}

/* The accuracies that the table has, in its order. */
static const struct {
    const char *title, *key;
    value_fn value;
    bool by_validation; /* only where there are examples for it */
} ACCURACIES[] = {{"accuracy %", "accuracy", last_accuracy, false},
                  {"mean of last 10", "accuracy_last_10", last_ten, false},
                  {"best validation", "validation_best", best_validation, true},
                  {"accuracy there", "accuracy_at_best", test_at_best, true}};

#define NUM_ACCURACIES (sizeof(ACCURACIES) / sizeof(ACCURACIES[0]))
#define NOTHING UINT32_MAX

/* The combination with the best validation, a failed seed not counting; NOTHING without any. */
static uint32_t choose(const fedge_sweep *sweep)
{
    double best = -INFINITY;
    uint32_t chosen = NOTHING;
    for (uint32_t c = 0; c < sweep->num_combinations; c++) {
        const spread of = spread_of(sweep, c, best_validation, 0);
        if (of.count > 0 && of.mean > best) {
            best = of.mean;
            chosen = c;
        }
    }
    return chosen;
}

static uint32_t count_failed(const fedge_sweep *sweep, uint32_t combination)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < sweep->num_seeds; i++) {
        failed += sweep->outcomes[(size_t)combination * sweep->num_seeds + i].failed;
    }
    return failed;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_spread(FILE *out, spread of, double scale, int decimals)
{
    char text[48] = "-";
    if (of.count > 0) {
        (void)snprintf(text, sizeof(text), "%.*f ± %.*f", decimals, scale * of.mean, decimals,
                       scale * of.deviation);
    }
    /* The sign takes two bytes and one column. */
    fprintf(out, " %*s", of.count > 0 ? 17 : 16, text);
}

static void print_head(const fedge_sweep *sweep, bool validated, FILE *out)
{
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        fprintf(out, "%-16s ", sweep->axes[i].key);
    }
    for (size_t a = 0; a < NUM_ACCURACIES; a++) {
        if (validated || !ACCURACIES[a].by_validation) {
            fprintf(out, " %16s", ACCURACIES[a].title);
        }
    }
    for (uint32_t t = 0; t < sweep->options->num_targets; t++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "rounds to %g%%", 100.0 * sweep->options->targets[t]);
        fprintf(out, " %16s      ", text);
    }
    fprintf(out, " %16s\n", "seconds");
}

static void print_row(const fedge_sweep *sweep, uint32_t combination, uint32_t chosen, FILE *out)
{
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        fprintf(out, "%-16s ", fedge_sweep_value_of(sweep, combination, i));
    }
    for (size_t a = 0; a < NUM_ACCURACIES; a++) {
        if (chosen != NOTHING || !ACCURACIES[a].by_validation) {
            print_spread(out, spread_of(sweep, combination, ACCURACIES[a].value, 0), 100.0, 2);
        }
    }
    for (uint32_t t = 0; t < sweep->options->num_targets; t++) {
        const spread of = spread_of(sweep, combination, rounds_to, t);
        print_spread(out, of, 1.0, 1);
        fprintf(out, " %2" PRIu32 "/%-2" PRIu32, of.count, sweep->num_seeds);
    }
    print_spread(out, spread_of(sweep, combination, seconds, 0), 1.0, 1);
    const uint32_t failed = count_failed(sweep, combination);
    if (failed > 0) {
        fprintf(out, "  %" PRIu32 " failed", failed);
    }
    fprintf(out, "%s\n", combination == chosen ? "  * chosen by validation" : "");
}

/* ---- for machines ---------------------------------------------------------------------------- */

static void add_number(cJSON *json, const char *key, const char *suffix, double value)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "%s%s", key, suffix);
    (void)cJSON_AddNumberToObject(json, text, value);
}

static void print_json_row(const fedge_sweep *sweep, uint32_t combination, uint32_t chosen,
                           FILE *out)
{
    cJSON *json = cJSON_CreateObject();
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        (void)cJSON_AddStringToObject(json, sweep->axes[i].key,
                                      fedge_sweep_value_of(sweep, combination, i));
    }
    add_number(json, "seeds", "", sweep->num_seeds);
    add_number(json, "failed", "", count_failed(sweep, combination));
    for (size_t a = 0; a < NUM_ACCURACIES; a++) {
        if (chosen != NOTHING || !ACCURACIES[a].by_validation) {
            const spread of = spread_of(sweep, combination, ACCURACIES[a].value, 0);
            add_number(json, ACCURACIES[a].key, "", of.mean);
            add_number(json, ACCURACIES[a].key, "_deviation", of.deviation);
        }
    }
    if (chosen != NOTHING) {
        (void)cJSON_AddBoolToObject(json, "chosen", combination == chosen);
    }
    add_number(json, "seconds", "", spread_of(sweep, combination, seconds, 0).mean);
    cJSON *targets = cJSON_AddArrayToObject(json, "targets");
    for (uint32_t t = 0; t < sweep->options->num_targets; t++) {
        const spread of = spread_of(sweep, combination, rounds_to, t);
        cJSON *target = cJSON_CreateObject();
        add_number(target, "accuracy", "", sweep->options->targets[t]);
        add_number(target, "rounds", "", of.mean);
        add_number(target, "rounds", "_deviation", of.deviation);
        add_number(target, "reached", "", of.count);
        (void)cJSON_AddItemToArray(targets, target);
    }
    char *text = cJSON_PrintUnformatted(json);
    fprintf(out, "%s\n", text ? text : "{}");
    free(text);
    cJSON_Delete(json);
}

void fedge_sweep_print(const fedge_sweep *sweep, FILE *out)
{
    const uint32_t chosen = choose(sweep);
    if (!sweep->options->json) {
        print_head(sweep, chosen != NOTHING, out);
    }
    for (uint32_t c = 0; c < sweep->num_combinations; c++) {
        if (sweep->options->json) {
            print_json_row(sweep, c, chosen, out);
        } else {
            print_row(sweep, c, chosen, out);
        }
    }
}
