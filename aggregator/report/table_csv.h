/* Tables as CSV files (RFC 4180, lines end with \n) for spreadsheets and scripts. */
#ifndef FEDGE_AGGREGATOR_REPORT_TABLE_CSV_H
#define FEDGE_AGGREGATOR_REPORT_TABLE_CSV_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/status.h"

/* Mean and sample standard deviation of a number over runs with different seeds. Plain data;
 * initialise it with zeros. */
typedef struct fedge_spread {
    uint32_t count;
    double mean;    /* mean of the values; 0 without any */
    double squares; /* the sum of (x − mean)² */
} fedge_spread;

/* Ignores a value that is not finite. */
void fedge_spread_add(fedge_spread *spread, double value);

double fedge_spread_mean(const fedge_spread *spread);      /* NaN without values */
double fedge_spread_deviation(const fedge_spread *spread); /* NaN for fewer than two */

#define FEDGE_TABLE_CSV_MAX_SIZE ((size_t)64 << 20)

/* A table that is being written row by row, field by field. After a failure, which [status] and
 * [err] keep, further calls do nothing. */
typedef struct fedge_table_csv {
    fedge_buffer text;
    bool in_row; /* the current row has a field */
    fedge_status status;
    fedge_error err;
} fedge_table_csv;

void fedge_table_csv_init(fedge_table_csv *table);
void fedge_table_csv_fini(fedge_table_csv *table);

void fedge_table_csv_text(fedge_table_csv *table, const char *text);
/* Writes 10 digits; a value that is not finite leaves the field empty. */
void fedge_table_csv_number(fedge_table_csv *table, double value);
void fedge_table_csv_end_row(fedge_table_csv *table);

/* Add the column heads KEY and KEY_deviation, and the two fields below them. */
void fedge_table_csv_spread_head(fedge_table_csv *table, const char *key);
void fedge_table_csv_spread(fedge_table_csv *table, const fedge_spread *spread);

/* FEDGE_EXISTS: [path] is another file, which has a different first column than [column]. */
FEDGE_MUST_USE fedge_status fedge_table_csv_check(const char *path, const char *column,
                                                  fedge_error *err);

/* Replaces [path] atomically. Errors: the table's first failure, those of fedge_table_csv_check
 * with the table's first column, and those of writing a file. */
FEDGE_MUST_USE fedge_status fedge_table_csv_write(const fedge_table_csv *table, const char *path,
                                                  fedge_error *err);

#endif
