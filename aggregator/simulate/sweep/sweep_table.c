#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/table_csv.h"
#include "aggregator/rounds/progress.h"
#include "aggregator/simulate/sweep/sweep_internal.h"
#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"

/* ---- numbers over seeds ---------------------------------------------------------------------- */

/* A number of a run. ROUNDS_TO + t: the rounds to target t. */
typedef enum measure {
    LAST_ACCURACY,
    LAST_TEN,
    BEST_VALIDATION,
    TEST_AT_BEST,
    CLIENT_ACCURACY,
    LAST_LOSS,
    VALIDATION_LOSS,
    CLIENT_LOSS,
    VIRTUAL_SECONDS,
    BYTES_UP,
    SECONDS,
    ROUNDS_TO
} measure;

static double value_of(const fedge_run_summary *of, uint32_t what)
{
    const double values[ROUNDS_TO] = {[LAST_ACCURACY] = of->test.accuracy,
                                      [LAST_TEN] = fedge_run_summary_last_mean(&of->test),
                                      [BEST_VALIDATION] = of->validation.best,
                                      [TEST_AT_BEST] = of->test_at_best,
                                      [CLIENT_ACCURACY] = of->client_accuracy,
                                      [LAST_LOSS] = of->test.loss,
                                      [VALIDATION_LOSS] = of->validation.loss,
                                      [CLIENT_LOSS] = of->client_loss,
                                      [VIRTUAL_SECONDS] =
                                          of->has_virtual_time ? of->virtual_time : NAN,
                                      [BYTES_UP] = (double)of->bytes_up,
                                      [SECONDS] = of->seconds};
    return what < ROUNDS_TO ? values[what] : of->reached[what - ROUNDS_TO];
}

static const sweep_outcome *outcome_of(const fedge_sweep *sweep, uint32_t combination,
                                       uint32_t seed)
{
    return &sweep->outcomes[(size_t)combination * sweep->num_seeds + seed];
}

/* The spread of the measure [what] over a combination's seeds that did not fail. */
static fedge_spread spread_of(const fedge_sweep *sweep, uint32_t combination, uint32_t what)
{
    fedge_spread spread = {0};
    for (uint32_t i = 0; i < sweep->num_seeds; i++) {
        const sweep_outcome *of = outcome_of(sweep, combination, i);
        if (of->done && !of->failed)
            fedge_spread_add(&spread, value_of(&of->run_summary, what));
    }
    return spread;
}

static double mean_of(const fedge_sweep *sweep, uint32_t combination, uint32_t what)
{
    const fedge_spread of = spread_of(sweep, combination, what);
    return fedge_spread_mean(&of);
}

/* The columns of measures; one for which no run has a number is left out. */
static const struct {
    const char *title, *key;
    measure what;
    bool in_json; /* always in JSON */
    bool is_loss; /* only where there is no accuracy */
    double scale;
    int decimals;
} MEASURES[] = {{"accuracy %", "accuracy", LAST_ACCURACY, true, false, 100.0, 2},
                {"mean of last 10", "accuracy_last_10", LAST_TEN, true, false, 100.0, 2},
                {"best validation", "validation_best", BEST_VALIDATION, false, false, 100.0, 2},
                {"accuracy there", "accuracy_at_best", TEST_AT_BEST, false, false, 100.0, 2},
                {"on clients %", "client_accuracy", CLIENT_ACCURACY, false, false, 100.0, 2},
                {"loss", "loss", LAST_LOSS, false, true, 1.0, 4},
                {"validation loss", "validation_loss", VALIDATION_LOSS, false, true, 1.0, 4},
                {"loss on clients", "client_loss", CLIENT_LOSS, false, true, 1.0, 4},
                {"virtual seconds", "virtual_seconds", VIRTUAL_SECONDS, false, false, 1.0, 1}};

#define NUM_MEASURES (sizeof(MEASURES) / sizeof(MEASURES[0]))
#define NONE UINT32_MAX
#define MIN_WIDTH 12 /* characters of an axis's column */

/* The columns that the table has. */
typedef struct columns {
    bool shows[NUM_MEASURES];
    bool measured;                       /* more than times is known */
    uint32_t chosen;                     /* the combination with the best validation, or NONE */
    int widths[FEDGE_SIMULATE_MAX_AXES]; /* characters of each axis's column */
} columns;

/* The combination with the best validation over the seeds that did not fail, or NONE. */
static uint32_t choose(const fedge_sweep *sweep)
{
    double best = -INFINITY;
    uint32_t chosen = NONE;
    for (uint32_t c = 0; c < sweep->num_combinations; c++) {
        const fedge_spread of = spread_of(sweep, c, BEST_VALIDATION);
        if (of.count > 0 && of.mean > best) {
            best = of.mean;
            chosen = c;
        }
    }
    return chosen;
}

/* Has any run this number? */
static bool any(const fedge_sweep *sweep, measure what)
{
    for (uint32_t c = 0; c < sweep->num_combinations; c++) {
        if (spread_of(sweep, c, what).count > 0)
            return true;
    }
    return false;
}

static columns choose_columns(const fedge_sweep *sweep)
{
    columns of = {.chosen = choose(sweep)};
    const bool has_accuracy =
        any(sweep, LAST_ACCURACY) || any(sweep, BEST_VALIDATION) || any(sweep, CLIENT_ACCURACY);
    for (size_t m = 0; m < NUM_MEASURES; m++) {
        of.shows[m] = any(sweep, MEASURES[m].what) && !(MEASURES[m].is_loss && has_accuracy);
        of.measured = of.measured || (of.shows[m] && MEASURES[m].what != VIRTUAL_SECONDS);
    }
    if (!of.measured)
        of.shows[0] = true;
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        const sweep_axis *axis = &sweep->axes[i];
        of.widths[i] = MIN_WIDTH;
        for (uint32_t k = 0; k <= axis->num_values; k++) {
            const int width = (int)strlen(k < axis->num_values ? axis->values[k] : axis->key);
            of.widths[i] = width > of.widths[i] ? width : of.widths[i];
        }
    }
    return of;
}

/* The runs of a combination over all seeds. */
typedef struct tally {
    uint32_t done, failed; /* done counts those that failed too */
    uint64_t clamped;      /* values of updates that were clamped to their bounds */
} tally;

static tally tally_of(const fedge_sweep *sweep, uint32_t combination)
{
    tally sum = {0};
    for (uint32_t i = 0; i < sweep->num_seeds; i++) {
        const sweep_outcome *of = outcome_of(sweep, combination, i);
        sum.done += of->done;
        sum.failed += of->failed;
        sum.clamped += of->done ? of->run_summary.clamped : 0;
    }
    return sum;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_spread(FILE *out, fedge_spread of, double scale, int decimals)
{
    char text[64] = "-", deviation[24] = "-";
    if (of.count > 1) {
        (void)snprintf(deviation, sizeof(deviation), "%.*f", decimals,
                       scale * fedge_spread_deviation(&of));
    }
    if (of.count > 0) {
        (void)snprintf(text, sizeof(text), "%.*f ± %*s", decimals, scale * of.mean, decimals + 2,
                       deviation);
    }
    /* "±" is two bytes and one column. */
    fprintf(out, " %*s", of.count > 0 ? 17 : 16, text);
}

static void print_bytes(FILE *out, fedge_spread of)
{
    char text[FEDGE_BYTES_TEXT];
    fprintf(out, " %9s", of.count > 0 ? fedge_bytes_text((uint64_t)llround(of.mean), text) : "-");
}

static void print_head(const fedge_sweep *sweep, const columns *of, FILE *out)
{
    for (uint32_t i = 0; i < sweep->num_axes; i++)
        fprintf(out, "%-*s ", of->widths[i], sweep->axes[i].key);
    for (size_t m = 0; m < NUM_MEASURES; m++) {
        if (of->shows[m])
            fprintf(out, " %16s", MEASURES[m].title);
    }
    fprintf(out, " %9s", "bytes up");
    for (uint32_t t = 0; t < sweep->options->num_targets; t++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "rounds to %g%%", 100.0 * sweep->options->targets[t]);
        fprintf(out, " %16s      ", text);
    }
    fprintf(out, " %16s\n", "seconds");
}

static void print_row(const fedge_sweep *sweep, uint32_t combination, const columns *of, FILE *out)
{
    for (uint32_t i = 0; i < sweep->num_axes; i++)
        fprintf(out, "%-*s ", of->widths[i], fedge_sweep_value_of(sweep, combination, i));
    for (size_t m = 0; m < NUM_MEASURES; m++) {
        if (of->shows[m]) {
            print_spread(out, spread_of(sweep, combination, MEASURES[m].what), MEASURES[m].scale,
                         MEASURES[m].decimals);
        }
    }
    print_bytes(out, spread_of(sweep, combination, BYTES_UP));
    const tally runs = tally_of(sweep, combination);
    for (uint32_t t = 0; t < sweep->options->num_targets; t++) {
        const fedge_spread rounds = spread_of(sweep, combination, ROUNDS_TO + t);
        print_spread(out, rounds, 1.0, 1);
        fprintf(out, " %2" PRIu32 "/%-2" PRIu32, rounds.count, runs.done);
    }
    print_spread(out, spread_of(sweep, combination, SECONDS), 1.0, 1);
    if (runs.done < sweep->num_seeds)
        fprintf(out, "  %" PRIu32 " of %" PRIu32 " seeds", runs.done, sweep->num_seeds);
    if (runs.failed > 0)
        fprintf(out, "  %" PRIu32 " failed", runs.failed);
    if (runs.clamped > 0)
        fprintf(out, "  %" PRIu64 " values cut", runs.clamped);
    if (combination == of->chosen) {
        fprintf(out, "  * chosen by validation%s",
                runs.failed > 0 ? ", of the seeds that did not fail" : "");
    }
    fputc('\n', out);
}

/* The first seed from [seed] on that failed for this reason; num_seeds: none. */
static uint32_t next_failed(const fedge_sweep *sweep, uint32_t combination, uint32_t seed,
                            const char *why)
{
    while (seed < sweep->num_seeds &&
           !(outcome_of(sweep, combination, seed)->failed &&
             strcmp(outcome_of(sweep, combination, seed)->why, why) == 0))
        seed++;
    return seed;
}

/* Prints a line for each reason of failures. */
static void print_failures(const fedge_sweep *sweep, uint32_t combination, FILE *out)
{
    char name[FEDGE_SWEEP_MAX_FOLDER];
    for (uint32_t i = 0; i < sweep->num_seeds; i++) {
        const sweep_outcome *of = outcome_of(sweep, combination, i);
        if (!of->failed || next_failed(sweep, combination, 0, of->why) < i)
            continue;
        fputs("failed:", out);
        for (uint32_t k = i; k < sweep->num_seeds;
             k = next_failed(sweep, combination, k + 1, of->why))
            fprintf(out, " %s", fedge_sweep_folder_name(sweep, combination, k, name));
        fprintf(out, ": %s\n", of->why);
    }
}

/* ---- for machines ---------------------------------------------------------------------------- */

static void add_number(cJSON *json, const char *key, double value)
{
    (void)cJSON_AddNumberToObject(json, key, value);
}

static void add_spread(cJSON *json, const char *key, const fedge_spread *of)
{
    char deviation[64];
    (void)snprintf(deviation, sizeof(deviation), "%s_deviation", key);
    add_number(json, key, fedge_spread_mean(of));
    add_number(json, deviation, fedge_spread_deviation(of));
}

static void add_failures(cJSON *json, const fedge_sweep *sweep, uint32_t combination)
{
    cJSON *list = cJSON_AddArrayToObject(json, "failures");
    for (uint32_t i = 0; i < sweep->num_seeds; i++) {
        if (outcome_of(sweep, combination, i)->failed) {
            cJSON *one = cJSON_CreateObject();
            add_number(one, "seed", i + 1);
            (void)fedge_json_add_text(one, "why", outcome_of(sweep, combination, i)->why);
            (void)cJSON_AddItemToArray(list, one);
        }
    }
}

static void print_json_row(const fedge_sweep *sweep, uint32_t combination, const columns *of,
                           FILE *out)
{
    cJSON *json = cJSON_CreateObject();
    const tally runs = tally_of(sweep, combination);
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        (void)fedge_json_add_text(json, sweep->axes[i].key,
                                  fedge_sweep_value_of(sweep, combination, i));
    }
    add_number(json, "seeds", sweep->num_seeds);
    add_number(json, "done", runs.done);
    add_number(json, "failed", runs.failed);
    add_failures(json, sweep, combination);
    add_number(json, "clamped", (double)runs.clamped);
    for (size_t m = 0; m < NUM_MEASURES; m++) {
        if (of->shows[m] || MEASURES[m].in_json) {
            const fedge_spread values = spread_of(sweep, combination, MEASURES[m].what);
            add_spread(json, MEASURES[m].key, &values);
        }
    }
    if (of->chosen != NONE)
        (void)cJSON_AddBoolToObject(json, "chosen", combination == of->chosen);
    add_number(json, "bytes_up", mean_of(sweep, combination, BYTES_UP));
    add_number(json, "seconds", mean_of(sweep, combination, SECONDS));
    cJSON *targets = cJSON_AddArrayToObject(json, "targets");
    for (uint32_t t = 0; t < sweep->options->num_targets; t++) {
        const fedge_spread rounds = spread_of(sweep, combination, ROUNDS_TO + t);
        cJSON *target = cJSON_CreateObject();
        add_number(target, "accuracy", sweep->options->targets[t]);
        add_spread(target, "rounds", &rounds);
        add_number(target, "reached", rounds.count);
        (void)cJSON_AddItemToArray(targets, target);
    }
    char *text = cJSON_PrintUnformatted(json);
    fprintf(out, "%s\n", text ? text : "{}");
    free(text);
    cJSON_Delete(json);
}

static void print_table(const fedge_sweep *sweep, const columns *of, FILE *out)
{
    uint32_t not_run = 0, succeeded = 0;
    print_head(sweep, of, out);
    for (uint32_t c = 0; c < sweep->num_combinations; c++) {
        const tally runs = tally_of(sweep, c);
        succeeded += runs.done - runs.failed;
        if (runs.done > 0)
            print_row(sweep, c, of, out);
        else
            not_run++;
    }
    for (uint32_t c = 0; c < sweep->num_combinations; c++)
        print_failures(sweep, c, out);
    if (!of->measured && succeeded > 0)
        fprintf(out, "nothing was evaluated: " FEDGE_SWEEP_MEASURE "\n");
    if (not_run > 0) {
        fprintf(out, "not yet run: %" PRIu32 " of %" PRIu32 " combinations\n", not_run,
                sweep->num_combinations);
    }
}

void fedge_sweep_print(const fedge_sweep *sweep, FILE *out)
{
    const columns of = choose_columns(sweep);
    if (!sweep->options->json) {
        print_table(sweep, &of, out);
        return;
    }
    for (uint32_t c = 0; c < sweep->num_combinations; c++)
        print_json_row(sweep, c, &of, out);
}

/* ---- as csv ---------------------------------------------------------------------------------- */

static void add_heads(const fedge_sweep *sweep, const columns *of, fedge_table_csv *table)
{
    fedge_table_csv_text(table, FEDGE_SWEEP_COLUMN);
    for (uint32_t i = 0; i < sweep->num_axes; i++)
        fedge_table_csv_text(table, sweep->axes[i].key);
    fedge_table_csv_text(table, "seeds");
    fedge_table_csv_text(table, "done");
    fedge_table_csv_text(table, "failed");
    fedge_table_csv_text(table, "clamped");
    for (size_t m = 0; m < NUM_MEASURES; m++) {
        if (any(sweep, MEASURES[m].what))
            fedge_table_csv_spread_head(table, MEASURES[m].key);
    }
    for (uint32_t t = 0; t < sweep->options->num_targets; t++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "rounds_to_%g", sweep->options->targets[t]);
        fedge_table_csv_spread_head(table, text);
        (void)snprintf(text, sizeof(text), "reached_%g", sweep->options->targets[t]);
        fedge_table_csv_text(table, text);
    }
    fedge_table_csv_text(table, "bytes_up");
    fedge_table_csv_spread_head(table, "seconds");
    if (of->chosen != NONE)
        fedge_table_csv_text(table, "chosen");
    fedge_table_csv_end_row(table);
}

static void add_row(const fedge_sweep *sweep, uint32_t combination, const columns *of,
                    fedge_table_csv *table)
{
    char name[FEDGE_SWEEP_MAX_FOLDER];
    const tally runs = tally_of(sweep, combination);
    fedge_table_csv_text(table, fedge_sweep_group_name(sweep, combination, name));
    for (uint32_t i = 0; i < sweep->num_axes; i++)
        fedge_table_csv_text(table, fedge_sweep_value_of(sweep, combination, i));
    fedge_table_csv_number(table, sweep->num_seeds);
    fedge_table_csv_number(table, runs.done);
    fedge_table_csv_number(table, runs.failed);
    fedge_table_csv_number(table, (double)runs.clamped);
    for (size_t m = 0; m < NUM_MEASURES; m++) {
        if (any(sweep, MEASURES[m].what)) {
            const fedge_spread values = spread_of(sweep, combination, MEASURES[m].what);
            fedge_table_csv_spread(table, &values);
        }
    }
    for (uint32_t t = 0; t < sweep->options->num_targets; t++) {
        const fedge_spread rounds = spread_of(sweep, combination, ROUNDS_TO + t);
        fedge_table_csv_spread(table, &rounds);
        fedge_table_csv_number(table, rounds.count);
    }
    const fedge_spread seconds = spread_of(sweep, combination, SECONDS);
    fedge_table_csv_number(table, mean_of(sweep, combination, BYTES_UP));
    fedge_table_csv_spread(table, &seconds);
    if (of->chosen != NONE)
        fedge_table_csv_text(table, combination == of->chosen ? "true" : "false");
    fedge_table_csv_end_row(table);
}

fedge_status fedge_sweep_write(const fedge_sweep *sweep, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    if (!sweep->options->out)
        return FEDGE_OK;
    FEDGE_TRY(fedge_path_join(sweep->options->out, FEDGE_SWEEP_TABLE, path, err));
    const columns of = choose_columns(sweep);
    fedge_table_csv table;
    fedge_table_csv_init(&table);
    add_heads(sweep, &of, &table);
    for (uint32_t c = 0; c < sweep->num_combinations; c++)
        add_row(sweep, c, &of, &table);
    const fedge_status status = fedge_table_csv_write(&table, path, err);
    fedge_table_csv_fini(&table);
    return status;
}
