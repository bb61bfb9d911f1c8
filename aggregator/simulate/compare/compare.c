#include "aggregator/simulate/compare/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/table_csv.h"
#include "aggregator/rounds/progress.h"
#include "aggregator/simulate/compare/compare_internal.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/simulate/output/run_summary.h"
#include "aggregator/simulate/sweep/sweep.h"
#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"
#include "edge/core/os.h"
#include "edge/plan/plan.h"

#define MAX_SUMMARY ((size_t)1 << 20) /* bytes of summary.json */
#define SWEEP_PICTURE "sweep.svg"     /* a file that sweeps of older releases wrote */
#define BYTES (-1)                    /* a value of [decimals]: print with a unit of bytes */
#define MAX_CELL 64
#define MAX_KEY 64

/* ---- the table ------------------------------------------------------------------------------- */

/* The columns of the table; one for which no run has a number is left out. */
static const struct {
    const char *title, *within, *key; /* within an object of the summary, or NULL */
    double scale;
    int width, decimals; /* characters; [decimals] may be BYTES */
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
#define SEED 1 /* its index: a mean of seeds is no seed */

static const char *text_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsString(item) ? item->valuestring : "-";
}

/* The spread over the runs of a group that count. */
static fedge_spread spread_of(const comparison *of, uint32_t group, size_t column)
{
    fedge_spread spread = {0};
    const char *within = COLUMNS[column].within;
    for (uint32_t i = 0; i < of->num_runs; i++) {
        const compared_run *run = &of->runs[i];
        const cJSON *from =
            within ? cJSON_GetObjectItemCaseSensitive(run->summary, within) : run->summary;
        if (run->group == group && run->counts)
            fedge_spread_add(&spread, fedge_json_number(from, COLUMNS[column].key));
    }
    return column == SEED && of->groups[group].num_runs > 1 ? (fedge_spread){0} : spread;
}

/* Writes a mean, with its deviation where values differ. Returns [text]. */
static char *cell(const comparison *of, uint32_t group, size_t column, char text[MAX_CELL])
{
    const fedge_spread spread = spread_of(of, group, column);
    const double scale = COLUMNS[column].scale, deviation = fedge_spread_deviation(&spread);
    const int decimals = COLUMNS[column].decimals;
    char bytes[FEDGE_BYTES_TEXT];
    if (spread.count == 0) {
        (void)snprintf(text, MAX_CELL, "-");
    } else if (decimals == BYTES) {
        (void)snprintf(text, MAX_CELL, "%s",
                       fedge_bytes_text((uint64_t)llround(spread.mean), bytes));
    } else if (spread.squares > 0.0) {
        (void)snprintf(text, MAX_CELL, "%.*f ± %.*f", decimals, scale * spread.mean, decimals,
                       scale * deviation);
    } else {
        (void)snprintf(text, MAX_CELL, "%.*f", decimals, scale * spread.mean);
    }
    return text;
}

/* The width of a text; "±" is two bytes and one column. */
static int columns_of(const char *text)
{
    return (int)strlen(text) - (strstr(text, "±") ? 1 : 0);
}

static int longest(int width, const char *text)
{
    return columns_of(text) > width ? columns_of(text) : width;
}

static bool is_known(const comparison *of, size_t column)
{
    for (uint32_t g = 0; g < of->num_groups; g++) {
        if (spread_of(of, g, column).count > 0)
            return true;
    }
    return false;
}

static const char *partition_of(const comparison *of, uint32_t group)
{
    return text_of(of->runs[of->groups[group].first].summary, "partition");
}

/* Prints why a run ended early; for several runs how many did for each reason. */
static void print_endings(const comparison *of, uint32_t group, FILE *out)
{
    static const char *const ENDINGS[] = {"early-stopping", "target", "interrupted", "unfinished",
                                          "failed"};
    for (size_t e = 0; e < sizeof(ENDINGS) / sizeof(ENDINGS[0]); e++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < of->num_runs; i++) {
            count += of->runs[i].group == group &&
                     strcmp(text_of(of->runs[i].summary, "ending"), ENDINGS[e]) == 0;
        }
        if (count > 0 && of->groups[group].num_runs > 1)
            fprintf(out, "  %" PRIu32 " %s", count, ENDINGS[e]);
        else if (count > 0)
            fprintf(out, "  %s", ENDINGS[e]);
    }
}

static void print_table(const comparison *of, FILE *out)
{
    int run = 4, partition = 9, widths[NUM_COLUMNS];
    char text[MAX_CELL];
    const bool several = of->num_groups < of->num_runs;
    for (uint32_t g = 0; g < of->num_groups; g++) {
        run = longest(run, of->groups[g].name);
        partition = longest(partition, partition_of(of, g));
    }
    fprintf(out, "%-*s %-*s", run, "run", partition, "partition");
    fputs(several ? " seeds" : "", out);
    for (size_t c = 0; c < NUM_COLUMNS; c++) {
        widths[c] = is_known(of, c) ? COLUMNS[c].width : 0;
        for (uint32_t g = 0; g < of->num_groups && widths[c] > 0; g++)
            widths[c] = longest(widths[c], cell(of, g, c, text));
        if (widths[c] > 0)
            fprintf(out, " %*s", widths[c], COLUMNS[c].title);
    }
    fputc('\n', out);
    for (uint32_t g = 0; g < of->num_groups; g++) {
        fprintf(out, "%-*s %-*s", run, of->groups[g].name, partition, partition_of(of, g));
        if (several)
            fprintf(out, " %5" PRIu32, of->groups[g].num_runs);
        for (size_t c = 0; c < NUM_COLUMNS; c++) {
            if (widths[c] > 0) {
                cell(of, g, c, text);
                fprintf(out, " %*s%s", widths[c] - columns_of(text), "", text);
            }
        }
        print_endings(of, g, out);
        fputc('\n', out);
    }
}

static fedge_status write_csv(const comparison *of, const char *path, fedge_error *err)
{
    fedge_table_csv table;
    fedge_table_csv_init(&table);
    fedge_table_csv_text(&table, "run");
    fedge_table_csv_text(&table, "partition");
    fedge_table_csv_text(&table, "seeds");
    for (size_t c = 0; c < NUM_COLUMNS; c++) {
        char key[MAX_KEY];
        (void)snprintf(key, sizeof(key), "%s%s%s", COLUMNS[c].within ? COLUMNS[c].within : "",
                       COLUMNS[c].within ? "_" : "", COLUMNS[c].key);
        if (c == SEED)
            fedge_table_csv_text(&table, key);
        else if (is_known(of, c))
            fedge_table_csv_spread_head(&table, key);
    }
    fedge_table_csv_end_row(&table);
    for (uint32_t g = 0; g < of->num_groups; g++) {
        fedge_table_csv_text(&table, of->groups[g].name);
        fedge_table_csv_text(&table, partition_of(of, g));
        fedge_table_csv_number(&table, of->groups[g].num_runs);
        for (size_t c = 0; c < NUM_COLUMNS; c++) {
            const fedge_spread spread = spread_of(of, g, c);
            if (c == SEED)
                fedge_table_csv_number(&table, fedge_spread_mean(&spread));
            else if (is_known(of, c))
                fedge_table_csv_spread(&table, &spread);
        }
        fedge_table_csv_end_row(&table);
    }
    const fedge_status status = fedge_table_csv_write(&table, path, err);
    fedge_table_csv_fini(&table);
    return status;
}

/* ---- deployed runs -------------------------------------------------------------------------- */

/* Adds what job and state say. */
static bool add_texts(cJSON *to, const cJSON *job, const cJSON *run)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(job, "name");
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(job, "seed");
    const bool finished = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(run, "finished"));
    cJSON *copy = cJSON_IsNumber(seed) ? cJSON_Duplicate(seed, true) : cJSON_CreateNull();
    return fedge_json_add_text(to, "job", cJSON_IsString(name) ? name->valuestring : "") &&
           cJSON_AddStringToObject(to, "ending", finished ? "complete" : "unfinished") &&
           cJSON_AddStringToObject(to, "partition", "deployed") &&
           cJSON_AddItemToObject(to, "seed", copy);
}

static bool add_numbers(cJSON *to, const fedge_run_summary *of)
{
    const fedge_json_number_field numbers[] = {
        {"clients", NAN},
        {"rounds", of->rounds},
        {"accuracy", of->test.accuracy},
        {"loss", of->test.loss},
        {"accuracy_last_10", fedge_run_summary_last_mean(&of->test)},
        {"accuracy_best", of->test.best},
        {"client_accuracy", of->client_accuracy},
        {"client_loss", of->client_loss},
        {"clients_trained", (double)of->clients},
        {"examples_trained", (double)of->examples},
        {"bytes_up", (double)of->bytes_up},
        {"bytes_down", (double)of->bytes_down},
        {"clamped", (double)of->clamped},
        {"seconds", of->seconds}};
    return fedge_json_add_numbers(to, numbers, sizeof(numbers) / sizeof(numbers[0])) &&
           (of->model[0] ? cJSON_AddStringToObject(to, "model_sha256", of->model)
                         : cJSON_AddNullToObject(to, "model_sha256"));
}

static fedge_status read_deployed(const char *dir, cJSON **summary, fedge_error *err)
{
    fedge_run_summary numbers;
    cJSON *job = NULL, *run = NULL;
    char path[FEDGE_MAX_PATH];
    *summary = NULL;
    fedge_run_summary_init(&numbers, NULL, 0);
    fedge_status status;
    FEDGE_TRY_OR(fedge_compare_read(dir, "run.json", FEDGE_JOB_MAX_SIZE, &run, err), done);
    FEDGE_TRY_OR(fedge_compare_read(dir, "job.json", FEDGE_JOB_MAX_SIZE, &job, err), done);
    FEDGE_TRY_OR(fedge_path_join(dir, "rounds.jsonl", path, err), done);
    FEDGE_TRY_OR(fedge_run_summary_read(&numbers, path, err), done);
    *summary = cJSON_CreateObject();
    if (!*summary || !add_texts(*summary, job, run) || !add_numbers(*summary, &numbers))
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a summary");
done:
    cJSON_Delete(run);
    cJSON_Delete(job);
    return status;
}

/* ---- the runs -------------------------------------------------------------------------------- */

static bool has_file(const char *dir, const char *name)
{
    char path[FEDGE_MAX_PATH];
    return fedge_path_join(dir, name, path, NULL) == FEDGE_OK && fedge_os_exists(path);
}

/* Reads the summary of a simulation, or of a server's run. */
static fedge_status read_summary(const char *dir, cJSON **json, fedge_error *err)
{
    if (!has_file(dir, "summary.json") && has_file(dir, "run.json"))
        return read_deployed(dir, json, err);
    const fedge_status status = fedge_compare_read(dir, "summary.json", MAX_SUMMARY, json, err);
    return status == FEDGE_OK || status == FEDGE_NO_MEMORY
               ? status
               : fedge_error_prefix(err, FEDGE_NOT_FOUND,
                                    "%.200s has no simulation that has ended, and no run of a "
                                    "server (of a sweep name the folders in it, of a server's "
                                    "state those in STATE/runs)",
                                    dir);
}

static fedge_status print_json(FILE *out, const char *dir, cJSON *json, fedge_error *err)
{
    char *text = fedge_json_add_text(json, "dir", dir) ? cJSON_PrintUnformatted(json) : NULL;
    if (!text)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a summary");
    fprintf(out, "%s\n", text);
    free(text);
    return FEDGE_OK;
}

static fedge_status write_table(const comparison *of, const char *path, fedge_error *err)
{
    const fedge_status status = write_csv(of, path, err);
    return status == FEDGE_OK || status == FEDGE_NO_MEMORY || status == FEDGE_NO_SPACE
               ? status
               : fedge_error_prefix(err, FEDGE_IO, "--out");
}

/* Is it a sweep's file beside its runs, which grid/\* names too? */
static bool is_sweeps(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return (strcmp(name, FEDGE_SWEEP_TABLE) == 0 || strcmp(name, SWEEP_PICTURE) == 0) &&
           !fedge_os_is_dir(path);
}

static fedge_status read_run(const char *dir, compared_run *to, fedge_error *err)
{
    size_t size = strlen(dir);
    while (size > 1 && dir[size - 1] == '/')
        size--;
    to->dir = malloc(size + 1);
    if (!to->dir)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a name");
    memcpy(to->dir, dir, size);
    to->dir[size] = '\0';
    FEDGE_TRY(read_summary(to->dir, &to->summary, err));
    return fedge_compare_settings(to->dir, &to->settings, err);
}

static fedge_status read_runs(const char *const *dirs, uint32_t num_dirs, comparison *to,
                              fedge_error *err)
{
    to->runs = calloc(num_dirs, sizeof(*to->runs));
    if (!to->runs)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u runs", num_dirs);
    for (uint32_t i = 0; i < num_dirs; i++) {
        if (num_dirs == 1 || !is_sweeps(dirs[i]))
            FEDGE_TRY(read_run(dirs[i], &to->runs[to->num_runs++], err));
    }
    return to->num_runs > 0 ? FEDGE_OK
                            : fedge_fail(err, FEDGE_NOT_FOUND, "%.200s has no simulation", dirs[0]);
}

static void free_comparison(comparison *of)
{
    for (uint32_t i = 0; i < of->num_runs; i++) {
        free(of->runs[i].dir);
        free(of->runs[i].settings);
        cJSON_Delete(of->runs[i].summary);
    }
    free(of->runs);
    free(of->groups);
}

fedge_status fedge_compare(const fedge_compare_request *what, FILE *out, fedge_error *err)
{
    comparison of = {.runs = NULL};
    fedge_status status;
    FEDGE_TRY_OR(read_runs(what->dirs, what->num_dirs, &of, err), end);
    FEDGE_TRY_OR(fedge_compare_group(&of, what->each, err), end);
    for (uint32_t i = 0; i < of.num_runs && what->json; i++)
        FEDGE_TRY_OR(print_json(out, of.runs[i].dir, of.runs[i].summary, err), end);
    if (!what->json)
        print_table(&of, out);
    if (what->csv_path)
        status = write_table(&of, what->csv_path, err);
end:
    free_comparison(&of);
    return status;
}
