#include "aggregator/report/table_csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"

#define MAX_KEY 96

void fedge_table_csv_init(fedge_table_csv *table)
{
    *table = (fedge_table_csv){.status = FEDGE_OK};
    fedge_buffer_init(&table->text, FEDGE_TABLE_CSV_MAX_SIZE);
}

void fedge_table_csv_fini(fedge_table_csv *table)
{
    fedge_buffer_fini(&table->text);
}

static void add(fedge_table_csv *table, const char *text, size_t size)
{
    if (table->status == FEDGE_OK)
        table->status = fedge_buffer_append(&table->text, text, size, &table->err);
}

static void begin_field(fedge_table_csv *table)
{
    add(table, ",", table->in_row ? 1 : 0);
    table->in_row = true;
}

void fedge_table_csv_text(fedge_table_csv *table, const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    begin_field(table);
    add(table, "\"", quoted ? 1 : 0);
    for (; *text; text++) {
        add(table, "\"", *text == '"' ? 1 : 0);
        add(table, text, 1);
    }
    add(table, "\"", quoted ? 1 : 0);
}

void fedge_table_csv_number(fedge_table_csv *table, double value)
{
    char text[32] = "";
    if (isfinite(value))
        (void)snprintf(text, sizeof(text), "%.10g", value);
    begin_field(table);
    add(table, text, strlen(text));
}

void fedge_table_csv_end_row(fedge_table_csv *table)
{
    add(table, "\n", 1);
    table->in_row = false;
}

void fedge_table_csv_spread_head(fedge_table_csv *table, const char *key)
{
    char text[MAX_KEY];
    (void)snprintf(text, sizeof(text), "%s_deviation", key);
    fedge_table_csv_text(table, key);
    fedge_table_csv_text(table, text);
}

void fedge_table_csv_spread(fedge_table_csv *table, const fedge_spread *spread)
{
    fedge_table_csv_number(table, fedge_spread_mean(spread));
    fedge_table_csv_number(table, fedge_spread_deviation(spread));
}

/* [size]: bytes of [column]. */
static fedge_status check_column(const char *path, const char *column, size_t size,
                                 fedge_error *err)
{
    uint8_t *text = NULL;
    size_t text_size = 0;
    if (!fedge_os_exists(path))
        return FEDGE_OK;
    const bool same =
        fedge_os_read_file(path, FEDGE_TABLE_CSV_MAX_SIZE, &text, &text_size, NULL) == FEDGE_OK &&
        text_size > size && memcmp(text, column, size) == 0 && text[size] == ',';
    free(text);
    return same ? FEDGE_OK
                : fedge_fail(err, FEDGE_EXISTS,
                             "%s exists and is not such a table: choose another name", path);
}

fedge_status fedge_table_csv_check(const char *path, const char *column, fedge_error *err)
{
    return check_column(path, column, strlen(column), err);
}

fedge_status fedge_table_csv_write(const fedge_table_csv *table, const char *path, fedge_error *err)
{
    if (table->status != FEDGE_OK) {
        *err = table->err;
        return table->status;
    }
    const char *text = (const char *)table->text.data;
    FEDGE_TRY(check_column(path, text, strcspn(text, ","), err));
    return fedge_os_write_file(path, table->text.data, table->text.size, 0644, err);
}

/* ---- mean and deviation over seeds ----------------------------------------------------------- */

void fedge_spread_add(fedge_spread *spread, double value)
{
    if (!isfinite(value))
        return;
    const double off = value - spread->mean;
    spread->count++;
    spread->mean += off / spread->count;
    spread->squares += off * (value - spread->mean);
}

double fedge_spread_mean(const fedge_spread *spread)
{
    return spread->count > 0 ? spread->mean : NAN;
}

double fedge_spread_deviation(const fedge_spread *spread)
{
    return spread->count > 1 ? sqrt(spread->squares / (spread->count - 1)) : NAN;
}
