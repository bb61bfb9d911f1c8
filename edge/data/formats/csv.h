/* Rows of numbers in comma-separated text files, for data sets and traces.
 *
 * Each line is an example with the same number of fields. Numbers are written as in C; spaces
 * around them are ignored. A first line whose first field is not a number is a header; headers and
 * empty lines are skipped. A named column may be set aside: it is text, and rows are read as if it
 * were not there. Fields may be quoted (RFC 4180: commas in quotes do not separate, and two quotes
 * mean one), but must not span lines. Every message has path and line number.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_CSV_H
#define FEDGE_EDGE_DATA_FORMATS_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/data/formats/reader.h"

/* Bytes of a line: enough for a header and for any notation of the numbers. */
#define FEDGE_CSV_MAX_LINE ((size_t)1 << 24)
#define FEDGE_CSV_LINE_BASE 4096
#define FEDGE_CSV_LINE_PER_FIELD 64
#define FEDGE_CSV_MAX_TEXT 256 /* bytes of the field that is set aside, with NUL */

typedef struct fedge_csv {
    fedge_reader reader;
    char *line; /* the present row without quotes; "\n" for a comma that was quoted; malloc'ed */
    size_t max_line;      /* maximum bytes of a line: the least of the limits above */
    uint64_t number;      /* number of that line, from 1 */
    uint64_t columns;     /* fields of every row, without the one set aside */
    bool labelled;        /* the last column is a label, for messages; set by the caller */
    uint32_t num_targets; /* the last columns are targets, for messages; set by the caller */
    uint64_t aside;       /* column set aside, from 1; 0: none */
    uint32_t *last; /* (num_last): columns of the file, from 1, that are read as the last ones;
                       malloc'ed */
    uint32_t num_last;
    char *other;    /* malloc'ed: for rows whose columns are moved */
    uint32_t names; /* CRC-32 of the header's names in their order, without the one set aside; 0: no
                       header */
    char text[FEDGE_CSV_MAX_TEXT]; /* text of the column set aside in the present row, without
                                      spaces and quotes around it */
} fedge_csv;

/* [columns]: fields of every row; 0: as many as the header that fedge_csv_set_aside reads, or else
 * as the first row. On failure the file is closed. */
FEDGE_MUST_USE fedge_status fedge_csv_open(fedge_csv *csv, const char *path, uint64_t columns,
                                           fedge_error *err);
void fedge_csv_close(fedge_csv *csv); /* a closed one is allowed */

/* Reads the header, the file's first line, into csv->line. Call before reading rows. FEDGE_CORRUPT:
 * it begins with a number; FEDGE_TRUNCATED: there is no line. */
FEDGE_MUST_USE fedge_status fedge_csv_header(fedge_csv *csv, fedge_error *err);

/* Reads the header and sets column [name] aside: csv->text has its field in each row.
 * FEDGE_NOT_FOUND names the nearest column and the others. */
FEDGE_MUST_USE fedge_status fedge_csv_set_aside(fedge_csv *csv, const char *name, fedge_error *err);

/* fedge_csv_open, then fedge_csv_set_aside unless [aside] is NULL. */
FEDGE_MUST_USE fedge_status fedge_csv_open_aside(fedge_csv *csv, const char *path, uint64_t columns,
                                                 const char *aside, fedge_error *err);

/* Reads the header and lets rows be read as if the columns [names], one a line, came last in this
 * order. Then call fedge_csv_set_aside, if at all. FEDGE_NOT_FOUND names the others. */
FEDGE_MUST_USE fedge_status fedge_csv_put_last(fedge_csv *csv, const char *names, fedge_error *err);

/* Reads the next row and counts its fields; *end is true after the last. FEDGE_CORRUPT: the count
 * is wrong. */
FEDGE_MUST_USE fedge_status fedge_csv_next(fedge_csv *csv, bool *end, fedge_error *err);

/* Parses the first [count] fields into out: (count) of FEDGE_U8 (integers from 0 to 255) or
 * FEDGE_F32. FEDGE_CORRUPT, FEDGE_OUT_OF_RANGE, FEDGE_NOT_FINITE. */
FEDGE_MUST_USE fedge_status fedge_csv_values(const fedge_csv *csv, fedge_dtype dtype,
                                             uint64_t count, void *out, fedge_error *err);

/* Parses all fields as integers into out: (columns), saturating. FEDGE_CORRUPT. */
FEDGE_MUST_USE fedge_status fedge_csv_integers(const fedge_csv *csv, int64_t *out,
                                               fedge_error *err);

/* Parses the last [count] fields as finite floats into out: (count). FEDGE_CORRUPT,
 * FEDGE_NOT_FINITE. */
FEDGE_MUST_USE fedge_status fedge_csv_last_floats(const fedge_csv *csv, uint32_t count, float *out,
                                                  fedge_error *err);

/* Parses the last field as an integer. FEDGE_CORRUPT, FEDGE_OUT_OF_RANGE. */
FEDGE_MUST_USE fedge_status fedge_csv_label(const fedge_csv *csv, int64_t *label, fedge_error *err);

#endif
