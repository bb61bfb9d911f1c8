/* Sequential reading of a data file, plain or gzip (found out by its contents).
 *
 * Internal to edge/data. Every message begins with the file's path. Positions count decoded bytes.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_READER_H
#define FEDGE_EDGE_DATA_FORMATS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Deflate never does better than 1032 to 1, so a gzip file cannot hold more than this many times
 * its size. */
#define FEDGE_READER_MAX_RATIO 1032

typedef struct fedge_reader {
    void *file;       /* a gzFile; NULL when closed */
    const char *path; /* the caller's; must outlive the reader */
    uint64_t size;    /* of the file on the disk, in bytes */
} fedge_reader;

/* Opens [path] for reading. FEDGE_NOT_FOUND, FEDGE_DENIED, FEDGE_IO. On failure the reader is
 * closed. */
FEDGE_MUST_USE fedge_status fedge_reader_open(fedge_reader *reader, const char *path,
                                              fedge_error *err);
void fedge_reader_close(fedge_reader *reader); /* one that is closed is fine */

/* Copies up to [size] of the first bytes of the file and goes back to its beginning; *got says how
 * many there were. FEDGE_TRUNCATED for an empty file. */
FEDGE_MUST_USE fedge_status fedge_reader_peek(fedge_reader *reader, uint8_t *out, size_t size,
                                              size_t *got, fedge_error *err);

/* Reads up to [size] bytes; *got is less only at the end of the file. Errors as
 * fedge_reader_read but for the end. */
FEDGE_MUST_USE fedge_status fedge_reader_some(fedge_reader *reader, void *out, size_t size,
                                              size_t *got, fedge_error *err);

/* How many bytes there are in all, decoded. At the beginning of the file, where it stays; a gzip
 * stream is read through for it. Errors as fedge_reader_read. */
FEDGE_MUST_USE fedge_status fedge_reader_total(fedge_reader *reader, uint64_t *total,
                                               fedge_error *err);

/* Reads exactly [size] bytes. [what] is used in the message: FEDGE_TRUNCATED with the position and
 * both counts when the file (or its gzip stream) ends before; FEDGE_CORRUPT for a broken gzip
 * stream. */
FEDGE_MUST_USE fedge_status fedge_reader_read(fedge_reader *reader, void *out, size_t size,
                                              const char *what, fedge_error *err);

/* Passes over [size] bytes, checked as in fedge_reader_read. */
FEDGE_MUST_USE fedge_status fedge_reader_skip(fedge_reader *reader, uint64_t size, const char *what,
                                              fedge_error *err);

/* Reads a line of at most [capacity] − 2 bytes, without its end ("\n" or "\r\n"), NUL-terminated.
 * *end is true, and the line empty, behind the last one. FEDGE_TOO_BIG for a longer line;
 * FEDGE_CORRUPT when it contains a NUL. */
FEDGE_MUST_USE fedge_status fedge_reader_line(fedge_reader *reader, char *out, size_t capacity,
                                              size_t *length, bool *end, fedge_error *err);

/* Checks that nothing follows, and a gzip stream's checksum with it. FEDGE_MISMATCH when more
 * data follows. */
FEDGE_MUST_USE fedge_status fedge_reader_end(fedge_reader *reader, fedge_error *err);

/* FEDGE_TRUNCATED when the file cannot hold [size] decoded bytes beyond the present position: asked
 * before memory is taken for what a header promises. */
FEDGE_MUST_USE fedge_status fedge_reader_expect(fedge_reader *reader, uint64_t size,
                                                const char *what, fedge_error *err);

#endif
