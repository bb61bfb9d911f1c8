#include "aggregator/simulate/compare.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/progress.h"
#include "aggregator/simulate/json_text.h"
#include "aggregator/simulate/results.h"
#include "aggregator/store/json_file.h"
#include "aggregator/store/plot.h"
#include "edge/core/os.h"
#include "edge/io/plan.h"

#define MAX_SUMMARY ((size_t)1 << 20) /* bytes of summary.json */
#define BYTES (-1)                    /* in place of decimals: with a unit of bytes */

static fedge_status read_summary(const char *dir, cJSON **json, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_status status = fedge_results_path(dir, "summary.json", path, err);
    if (status == FEDGE_OK) {
        status = fedge_json_file_read(path, MAX_SUMMARY, json, err);
    }
    return status == FEDGE_OK || status == FEDGE_NO_MEMORY
               ? status
               : fedge_error_prefix(err, FEDGE_NOT_FOUND,
                                    "%.200s has no simulation that has ended (of a sweep name the "
                                    "folders in it)",
                                    dir);
}

static const char *text_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsString(item) ? item->valuestring : "-";
}

static void print_number(FILE *out, int width, int decimals, double value)
{
    char text[FEDGE_BYTES_TEXT];
    if (isfinite(value) && decimals == BYTES) {
        fprintf(out, " %*s", width, fedge_bytes_text((uint64_t)llround(value), text));
    } else if (isfinite(value)) {
        fprintf(out, " %*.*f", width, decimals, value);
    } else {
        fprintf(out, " %*s", width, "-");
    }
}

/* What is told of a run, in this order; a column that no run has a number for is left out. */
static const struct {
    const char *title, *within, *key; /* within an object of the summary, or NULL */
    double scale;
    int width, decimals; /* or BYTES */
} COLUMNS[] = {{"clients", NULL, "clients", 1.0, 8, 0},
               {"seed", NULL, "seed", 1.0, 5, 0},
               {"rounds", NULL, "rounds", 1.0, 6, 0},
               {"accuracy %", NULL, "accuracy", 100.0, 10, 2},
               {"last 10", NULL, "accuracy_last_10", 100.0, 8, 2},
               {"best", NULL, "accuracy_best", 100.0, 8, 2},
               {"macro F1", NULL, "macro_f1", 1.0, 8, 4},
               {"validation", "validation", "accuracy_best", 100.0, 10, 2},
               {"there", "validation", "test_accuracy_at_best", 100.0, 8, 2},
               {"on clients", NULL, "client_accuracy", 100.0, 10, 2},
               {"loss", NULL, "loss", 1.0, 9, 4},
               {"bytes up", NULL, "bytes_up", 1.0, 9, BYTES},
               {"seconds", NULL, "seconds", 1.0, 8, 1},
               {"virtual s", NULL, "virtual_seconds", 1.0, 10, 1}};

#define NUM_COLUMNS (sizeof(COLUMNS) / sizeof(COLUMNS[0]))

static double value_of(const cJSON *json, size_t column)
{
    const char *within = COLUMNS[column].within;
    const cJSON *from = within ? cJSON_GetObjectItemCaseSensitive(json, within) : json;
    return COLUMNS[column].scale * fedge_json_number(from, COLUMNS[column].key);
}

static bool is_known(cJSON *const *summaries, uint32_t count, size_t column)
{
    for (uint32_t i = 0; i < count; i++) {
        if (isfinite(value_of(summaries[i], column))) {
            return true;
        }
    }
    return false;
}

static fedge_status print_json(FILE *out, const char *dir, cJSON *json, fedge_error *err)
{
    char *text = fedge_json_add_text(json, "dir", dir) ? cJSON_PrintUnformatted(json) : NULL;
    if (!text) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a summary");
    }
    fprintf(out, "%s\n", text);
    free(text);
    return FEDGE_OK;
}

/* Is it writing that failed, and none of the folders that is at fault? */
static bool is_writing(fedge_status status)
{
    return status != FEDGE_OK && status != FEDGE_CORRUPT && status != FEDGE_NO_MEMORY &&
           status != FEDGE_NO_SPACE;
}

static fedge_status draw(const char *const *dirs, uint32_t num_dirs, const char *svg_path,
                         fedge_error *err)
{
    assert(num_dirs > 0);
    char(*paths)[FEDGE_MAX_PATH] = calloc(num_dirs, sizeof(*paths));
    const char **logs = calloc(num_dirs, sizeof(*logs));
    fedge_status status =
        paths && logs ? FEDGE_OK
                      : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u paths", num_dirs);
    for (uint32_t i = 0; i < num_dirs && status == FEDGE_OK; i++) {
        status = fedge_results_path(dirs[i], "rounds.jsonl", paths[i], err);
        logs[i] = paths[i];
        if (status == FEDGE_OK && !fedge_os_exists(paths[i])) {
            status = fedge_fail(err, FEDGE_NOT_FOUND, "there is no %s to draw", paths[i]);
        }
    }
    if (status == FEDGE_OK) {
        fedge_plot_curve *curves = calloc(num_dirs, sizeof(*curves));
        for (uint32_t i = 0; curves && i < num_dirs; i++) {
            curves[i] = (fedge_plot_curve){dirs[i], &logs[i], 1};
        }
        status = fedge_plot_curves(curves, num_dirs, svg_path, "simulations", err);
        free(curves);
        status = is_writing(status) ? fedge_error_prefix(err, FEDGE_IO, "--out") : status;
    }
    free(paths);
    free(logs);
    return status;
}

const char *fedge_compare_help(void)
{
    return "Usage: fedge-simulate compare DIR... [--out FILE.svg] [--json]\n"
           "Lays simulations side by side: a line for each folder that --out has left,\n"
           "with the columns that any of them has.\n"
           "Those of a sweep are in the folders in its --out: compare grid/*\n"
           "\n"
           "  last 10, best        mean of the last ten accuracies, and the highest\n"
           "  validation, there    best accuracy on the examples of --validation-split, and\n"
           "                       the accuracy on the test set in that round\n"
           "  on clients           last accuracy on what clients hold out\n"
           "  virtual s            simulated time; behind it why a run ended, if not complete\n"
           "\n"
           "  --out FILE.svg       draw up to 10 runs' accuracy and loss into one picture\n"
           "  --json               their summaries, a line of JSON each\n"
           "  --help\n"
           "\n"
           "Exit: 0 done; 1 failed, as when FILE.svg cannot be written; 2 usage, as when\n"
           "its name does not end in .svg; 3 a folder has no simulation that has ended,\n"
           "or more than 10 are to be drawn\n";
}

static int longest(int width, const char *text)
{
    const int length = (int)strlen(text);
    return length > width ? length : width;
}

static void print_table(const char *const *dirs, uint32_t num_dirs, cJSON *const *summaries,
                        FILE *out)
{
    int run = 4, partition = 9;
    for (uint32_t i = 0; i < num_dirs; i++) {
        run = longest(run, dirs[i]);
        partition = longest(partition, text_of(summaries[i], "partition"));
    }
    bool known[NUM_COLUMNS];
    fprintf(out, "%-*s %-*s", run, "run", partition, "partition");
    for (size_t c = 0; c < NUM_COLUMNS; c++) {
        known[c] = is_known(summaries, num_dirs, c);
        if (known[c]) {
            fprintf(out, " %*s", COLUMNS[c].width, COLUMNS[c].title);
        }
    }
    fputc('\n', out);
    for (uint32_t i = 0; i < num_dirs; i++) {
        const char *ending = text_of(summaries[i], "ending");
        const bool whole = strcmp(ending, "complete") == 0;
        fprintf(out, "%-*s %-*s", run, dirs[i], partition, text_of(summaries[i], "partition"));
        for (size_t c = 0; c < NUM_COLUMNS; c++) {
            if (known[c]) {
                print_number(out, COLUMNS[c].width, COLUMNS[c].decimals, value_of(summaries[i], c));
            }
        }
        fprintf(out, "%s%s\n", whole ? "" : "  ", whole ? "" : ending);
    }
}

fedge_status fedge_compare(const char *const *dirs, uint32_t num_dirs, bool json,
                           const char *svg_path, FILE *out, fedge_error *err)
{
    if (svg_path && num_dirs > FEDGE_PLOT_MAX_CURVES) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "--out: %u runs, and a picture has 1 to %d",
                          num_dirs, FEDGE_PLOT_MAX_CURVES);
    }
    cJSON **summaries = calloc(num_dirs, sizeof(*summaries));
    fedge_status status =
        summaries ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u runs", num_dirs);
    for (uint32_t i = 0; i < num_dirs && status == FEDGE_OK; i++) {
        status = read_summary(dirs[i], &summaries[i], err);
    }
    for (uint32_t i = 0; i < num_dirs && json && status == FEDGE_OK; i++) {
        status = print_json(out, dirs[i], summaries[i], err);
    }
    if (status == FEDGE_OK && !json) {
        print_table(dirs, num_dirs, summaries, out);
    }
    for (uint32_t i = 0; summaries && i < num_dirs; i++) {
        cJSON_Delete(summaries[i]);
    }
    free(summaries);
    return status == FEDGE_OK && svg_path ? draw(dirs, num_dirs, svg_path, err) : status;
}
