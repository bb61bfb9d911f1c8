/* A table as a csv file (RFC 4180, lines end with \n): for spreadsheets and scripts. */
#ifndef FEDGE_AGGREGATOR_REPORT_TABLE_CSV_H
#define FEDGE_AGGREGATOR_REPORT_TABLE_CSV_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/status.h"

/* ---- mean and deviation over seeds ----------------------------------------------------------- */

/* Mean and sample standard deviation of a number over runs that differ in their seeds. */

/* Plain data; starts as zeros. */
typedef struct fedge_spread {
    uint32_t count;
    double mean;    /* 0 without any value */
    double squares; /* the sum of (x − mean)² */
} fedge_spread;

/* A value that is not finite does not count. */
void fedge_spread_add(fedge_spread *spread, double value);

double fedge_spread_mean(const fedge_spread *spread);      /* NaN without any value */
double fedge_spread_deviation(const fedge_spread *spread); /* NaN for fewer than two */

#define FEDGE_TABLE_CSV_MAX_SIZE ((size_t)64 << 20)

/* A table that is being written: fields are added row by row. The first failure is kept, and
 * later calls do nothing. */
typedef struct fedge_table_csv {
    fedge_buffer text;
    bool within; /* a row has begun */
    fedge_status status;
    fedge_error err;
} fedge_table_csv;

void fedge_table_csv_init(fedge_table_csv *table);
void fedge_table_csv_fini(fedge_table_csv *table);

void fedge_table_csv_text(fedge_table_csv *table, const char *text);
/* In 10 digits; nothing for what is not finite. */
void fedge_table_csv_number(fedge_table_csv *table, double value);
void fedge_table_csv_end_row(fedge_table_csv *table);

/* The heads KEY and KEY_deviation, and the two fields below them. */
void fedge_table_csv_spread_head(fedge_table_csv *table, const char *key);
void fedge_table_csv_spread(fedge_table_csv *table, const fedge_spread *spread);

/* FEDGE_EXISTS when [path] is there and its first column is not [column]: it is somebody's file. */
FEDGE_MUST_USE fedge_status fedge_table_csv_check(const char *path, const char *column,
                                                  fedge_error *err);

/* Replaces [path] atomically. The first failure of what was added; of fedge_table_csv_check with
 * the table's first column; what writing gives. */
FEDGE_MUST_USE fedge_status fedge_table_csv_write(const fedge_table_csv *table, const char *path,
                                                  fedge_error *err);

#endif
