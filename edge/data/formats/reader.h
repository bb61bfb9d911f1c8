/* Sequential reader of a data file, plain or gzip, which it detects. Internal to edge/data. Every
 * message begins with the file's path. Offsets count decoded bytes. */
#ifndef FEDGE_EDGE_DATA_FORMATS_READER_H
#define FEDGE_EDGE_DATA_FORMATS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Deflate's maximum ratio is 1032, so a gzip file cannot decode to more than this many times its
 * size. */
#define FEDGE_READER_MAX_RATIO 1032

typedef struct fedge_reader {
    void *file;       /* a gzFile; NULL if closed */
    const char *path; /* must outlive the reader */
    uint64_t size;    /* size on disk, in bytes */
} fedge_reader;

/* Opens [path] for reading. FEDGE_NOT_FOUND, FEDGE_DENIED, FEDGE_IO. On failure the reader is
 * closed. */
FEDGE_MUST_USE fedge_status fedge_reader_open(fedge_reader *reader, const char *path,
                                              fedge_error *err);
void fedge_reader_close(fedge_reader *reader); /* a closed one is allowed */

/* Copies up to [size] first bytes and returns to the beginning; *got is their number.
 * FEDGE_TRUNCATED: the file is empty. */
FEDGE_MUST_USE fedge_status fedge_reader_peek(fedge_reader *reader, uint8_t *out, size_t size,
                                              size_t *got, fedge_error *err);

/* Reads up to [size] bytes; *got is less only at the end of the file. Errors as fedge_reader_read,
 * but an early end is none. */
FEDGE_MUST_USE fedge_status fedge_reader_some(fedge_reader *reader, void *out, size_t size,
                                              size_t *got, fedge_error *err);

/* The decoded size of the file. Call at the beginning, where the reader stays; it reads a whole
 * gzip stream. Errors as fedge_reader_read. */
FEDGE_MUST_USE fedge_status fedge_reader_total(fedge_reader *reader, uint64_t *total,
                                               fedge_error *err);

/* Reads exactly [size] bytes. Messages name [what]. FEDGE_TRUNCATED, with offset and both counts:
 * the file or gzip stream ends early; FEDGE_CORRUPT: a broken gzip stream. */
FEDGE_MUST_USE fedge_status fedge_reader_read(fedge_reader *reader, void *out, size_t size,
                                              const char *what, fedge_error *err);

/* Skips [size] bytes with the checks of fedge_reader_read. */
FEDGE_MUST_USE fedge_status fedge_reader_skip(fedge_reader *reader, uint64_t size, const char *what,
                                              fedge_error *err);

/* Reads a line of at most [capacity] − 2 bytes without its end ("\n" or "\r\n"), NUL-terminated.
 * *end is true, and the line empty, after the last one. FEDGE_TOO_BIG: the line is longer;
 * FEDGE_CORRUPT: it contains a NUL. */
FEDGE_MUST_USE fedge_status fedge_reader_line(fedge_reader *reader, char *out, size_t capacity,
                                              size_t *length, bool *end, fedge_error *err);

/* Checks that nothing follows, and the gzip checksum. FEDGE_MISMATCH: more data follows. */
FEDGE_MUST_USE fedge_status fedge_reader_end(fedge_reader *reader, fedge_error *err);

/* FEDGE_TRUNCATED if the file cannot have [size] more decoded bytes. Call it before allocating by a
 * header. */
FEDGE_MUST_USE fedge_status fedge_reader_expect(fedge_reader *reader, uint64_t size,
                                                const char *what, fedge_error *err);

#endif
