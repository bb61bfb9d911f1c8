/* The table of compare, for people and as csv. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "aggregator/report/table_csv.h"
#include "aggregator/rounds/progress.h"
#include "aggregator/simulate/compare/compare_internal.h"
#include "aggregator/store/json_file.h"

#define BYTES (-1) /* in place of decimals: with a unit of bytes */
#define MAX_CELL 64
#define MAX_KEY 64

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
#define SEED 1 /* its place: the mean of seeds is no seed */

static const char *text_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsString(item) ? item->valuestring : "-";
}

/* Over the runs of a group that count. */
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

/* A mean with its deviation, where values differ. Returns [text]. */
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

/* Columns that a text takes: "±" has two bytes. */
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

/* Why a run ended if it is not complete; of several how many ended so. */
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

void fedge_compare_print(const comparison *of, FILE *out)
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

fedge_status fedge_compare_write_csv(const comparison *of, const char *path, fedge_error *err)
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
