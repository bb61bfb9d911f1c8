/* Deflate in zlib's format (RFC 1950), with hard bounds. */
#ifndef FEDGE_EDGE_WIRE_DEFLATE_H
#define FEDGE_EDGE_WIRE_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Compresses by what updates have: some bytes more often than others, and runs of one byte. Its
 * memory is taken once, for any number of updates. One thread at a time. */
typedef struct fedge_deflater fedge_deflater;

/* FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_deflater_new(fedge_deflater **deflater, fedge_error *err);
void fedge_deflater_free(fedge_deflater *deflater); /* NULL is fine */
/* Compresses into out[0, out_size); false when the result does not fit: the caller then keeps the
 * bytes as they are. */
bool fedge_deflater_run(fedge_deflater *deflater, const uint8_t *in, size_t in_size, uint8_t *out,
                        size_t out_size, size_t *size);

/* Blocks that a stream of [size] bytes may have. Each takes time whatever comes out of it, which
 * may be nothing; those of encoders have thousands of bytes. */
#define FEDGE_INFLATE_MAX_BLOCKS(size) (16 + (uint64_t)(size) / 1024)

/* Inflates exactly [out_size] bytes. Stops at out_size + 1, and at a block too many: FEDGE_TOO_BIG.
 * FEDGE_TRUNCATED when the stream ends before, FEDGE_CORRUPT when it is broken or bytes follow it.
 */
FEDGE_MUST_USE fedge_status fedge_inflate(const uint8_t *in, size_t in_size, uint8_t *out,
                                          size_t out_size, fedge_error *err);

/* Fills bytes[0, size) with what comes next. */
typedef fedge_status (*fedge_read_fn)(void *user, uint8_t *bytes, size_t size, fedge_error *err);

/* The same of [in_size] bytes that are read piece by piece, in order; all of them are read,
 * whatever they are. A failure of [read] is returned as it is. */
FEDGE_MUST_USE fedge_status fedge_inflate_read(fedge_read_fn read, void *user, uint64_t in_size,
                                               uint8_t *out, size_t out_size, fedge_error *err);

#endif
