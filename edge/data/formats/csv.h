/* Rows of numbers in a comma-separated text file.
 *
 * For data sets and traces. One example per line, the same number of fields in each, separated by
 * commas; numbers as C writes them, spaces around them allowed. A first line whose first field is
 * not a number is a header and passed over; empty lines are, too. A column with a name may be set
 * aside: it is a text, and the row is as if it were not there. Any field may stand in quotes (RFC
 * 4180: within, a comma separates nothing, and two quotes stand for one), but not go over more than
 * one line. Every message has path and line number.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_CSV_H
#define FEDGE_EDGE_DATA_FORMATS_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/data/formats/reader.h"

/* Bytes of a line: room for a header and for any way to write the numbers, within a bound. */
#define FEDGE_CSV_MAX_LINE ((size_t)1 << 24)
#define FEDGE_CSV_LINE_BASE 4096
#define FEDGE_CSV_LINE_PER_FIELD 64
#define FEDGE_CSV_MAX_TEXT 256 /* bytes of a field that is set aside, with its NUL */

typedef struct fedge_csv {
    fedge_reader reader;
    char *line;                    /* the present row without quotes, "\n" for a comma that stood in
                                      some; malloc'ed */
    size_t max_line;               /* bytes that a line may have: the least of the limits above */
    uint64_t number;               /* of that line, from 1 */
    uint64_t columns;              /* fields in every row, but for one set aside */
    bool labelled;                 /* the last of columns is a label, which messages then say; set
                                      by who opened the file */
    uint64_t aside;                /* column, from 1, that is set aside; 0: none */
    uint32_t names;                /* of a header that rows or fedge_csv_set_aside passed over:
                                      CRC-32 of the names that are not set aside, in their order;
                                      0: none */
    char text[FEDGE_CSV_MAX_TEXT]; /* what stood there in the present row, without spaces and quotes
                                      around */
} fedge_csv;

/* [columns]: how many fields every row must have; 0: as many as the header, which
 * fedge_csv_set_aside then reads, or without one as the first row. On failure the file is closed.
 */
FEDGE_MUST_USE fedge_status fedge_csv_open(fedge_csv *csv, const char *path, uint64_t columns,
                                           fedge_error *err);
void fedge_csv_close(fedge_csv *csv); /* one that is closed is fine */

/* Reads the first line, a header that names the columns, into csv->line. To be called before the
 * first row is read. FEDGE_CORRUPT when a number begins it, FEDGE_TRUNCATED without a line. */
FEDGE_MUST_USE fedge_status fedge_csv_header(fedge_csv *csv, fedge_error *err);

/* Reads the header and sets the column [name] aside: csv->text has it from each row on.
 * FEDGE_NOT_FOUND names the nearest column, and the others. */
FEDGE_MUST_USE fedge_status fedge_csv_set_aside(fedge_csv *csv, const char *name, fedge_error *err);

/* fedge_csv_open, and with a name fedge_csv_set_aside. [aside]: NULL for none. */
FEDGE_MUST_USE fedge_status fedge_csv_open_aside(fedge_csv *csv, const char *path, uint64_t columns,
                                                 const char *aside, fedge_error *err);

/* Goes to the next row and counts its fields; *end is true behind the last. FEDGE_CORRUPT when
 * there are more or fewer than there should be. */
FEDGE_MUST_USE fedge_status fedge_csv_next(fedge_csv *csv, bool *end, fedge_error *err);

/* Parses the first [count] fields of the row into out: (count) of FEDGE_U8 (integers from 0 to 255)
 * or FEDGE_F32. FEDGE_CORRUPT, FEDGE_OUT_OF_RANGE, FEDGE_NOT_FINITE. */
FEDGE_MUST_USE fedge_status fedge_csv_values(const fedge_csv *csv, fedge_dtype dtype,
                                             uint64_t count, void *out, fedge_error *err);

/* Parses all fields of the row as integers into out: (columns). FEDGE_CORRUPT. Saturates. */
FEDGE_MUST_USE fedge_status fedge_csv_integers(const fedge_csv *csv, int64_t *out,
                                               fedge_error *err);

/* Parses the last field of the row as an integer. FEDGE_CORRUPT, FEDGE_OUT_OF_RANGE. */
FEDGE_MUST_USE fedge_status fedge_csv_label(const fedge_csv *csv, int64_t *label, fedge_error *err);

#endif
