/* Deflate and inflate in zlib's format (RFC 1950), with hard bounds. */
#ifndef FEDGE_EDGE_WIRE_DEFLATE_H
#define FEDGE_EDGE_WIRE_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Tuned for updates, where some bytes are more frequent than others and bytes repeat. Its
 * memory is taken once, for any number of updates. One thread at a time. */
typedef struct fedge_deflater fedge_deflater;

/* FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_deflater_new(fedge_deflater **deflater, fedge_error *err);
void fedge_deflater_free(fedge_deflater *deflater); /* NULL is allowed */
/* Compresses to out[0, out_size); false if it does not fit. */
bool fedge_deflater_run(fedge_deflater *deflater, const uint8_t *in, size_t in_size, uint8_t *out,
                        size_t out_size, size_t *size);

/* The most blocks of a stream of [size] bytes. Even an empty block takes time; blocks of encoders
 * have thousands of bytes. */
#define FEDGE_INFLATE_MAX_BLOCKS(size) (16 + (uint64_t)(size) / 1024)

/* Inflates exactly [out_size] bytes. FEDGE_TOO_BIG after one byte more, or one block too many;
 * FEDGE_TRUNCATED: the stream ends before; FEDGE_CORRUPT: it is broken, or bytes follow it. */
FEDGE_MUST_USE fedge_status fedge_inflate(const uint8_t *in, size_t in_size, uint8_t *out,
                                          size_t out_size, fedge_error *err);

/* Reads the next bytes[0, size) of the stream. */
typedef fedge_status (*fedge_read_fn)(void *user, uint8_t *bytes, size_t size, fedge_error *err);

/* Inflates a stream of [in_size] bytes that is read in chunks, in order. Always reads all of them.
 * Returns a failure of [read] unchanged. */
FEDGE_MUST_USE fedge_status fedge_inflate_read(fedge_read_fn read, void *user, uint64_t in_size,
                                               uint8_t *out, size_t out_size, fedge_error *err);

/* ---- inflaters ------------------------------------------------------------------------------- */

/* Interface to the inflaters of fedge_inflate_read (zlib's format, RFC 1950): zlib, the reference,
 * which devices use, or the faster ISA-L, for servers (FEDGE_FAST_INFLATE). Both accept the same
 * streams. Internal to edge/wire and its tests. */

typedef enum fedge_inflater_state {
    FEDGE_INFLATER_GOES_ON, /* the input or output buffer is used up */
    FEDGE_INFLATER_ENDED,   /* the stream is complete with a correct checksum */
    FEDGE_INFLATER_BROKEN,
    FEDGE_INFLATER_TOO_MANY_BLOCKS, /* the limit of blocks is exceeded */
    FEDGE_INFLATER_NO_MEMORY
} fedge_inflater_state;

/* The remaining input and output; each step advances both. */
typedef struct fedge_inflater_range {
    const uint8_t *in;
    uint8_t *out;
    size_t in_size, out_size;
    const uint8_t
        *begin; /* output so far: [made] bytes that precede [out], unless the buffer is full */
    size_t made;
    uint64_t blocks_left; /* blocks that may still begin */
} fedge_inflater_range;

typedef struct fedge_inflater {
    const char *name;
    size_t chunk_bytes;   /* bytes that it reads at a time */
    uint64_t max_size;    /* maximum of inflated bytes */
    void *(*begin)(void); /* NULL: no memory */
    fedge_inflater_state (*step)(void *stream, fedge_inflater_range *range);
    const char *(*why)(const void *stream); /* broken; static text */
    void (*end)(void *stream);
} fedge_inflater;

extern const fedge_inflater fedge_inflater_zlib;
extern const fedge_inflater fedge_inflater_isal; /* needs FEDGE_WITH_ISAL */

/* The inflaters of this build, NULL-terminated: fastest first, zlib last. */
const fedge_inflater *const *fedge_inflaters(void);

/* fedge_inflate_read with [inflater]; out_size ≤ its max_size. */
FEDGE_MUST_USE fedge_status fedge_inflate_read_by(const fedge_inflater *inflater,
                                                  fedge_read_fn read, void *user, uint64_t in_size,
                                                  uint8_t *out, size_t out_size, fedge_error *err);

/* ---- block headers --------------------------------------------------------------------------- */

/* Checks the header of a deflate block (RFC 1951, 3.2.3 to 3.2.7) by zlib's rules. ISA-L accepts
 * incomplete codes, so a server with it would accept updates that others refuse.
 *
 * zlib's rules: at most 286 literal/length codes and 30 distance codes; a code for the end of the
 * block; no oversubscribed code; no incomplete code, except a single distance code of one bit, or
 * none. Internal to edge/wire and its tests.
 */

/* Bytes of the longest header: 3 + 14 bits, 19 lengths of 3 bits, and 320 of at most 7 + 7. */
#define FEDGE_DEFLATE_MAX_HEADER 576u

/* Input bits, lowest first: those read ahead, then two ranges of bytes. */
typedef struct fedge_deflate_bits {
    uint64_t ahead;
    uint32_t num_ahead; /* ≤ 64 */
    const uint8_t *first, *then;
    size_t num_first, num_then;
} fedge_deflate_bits;

/* FEDGE_INFLATER_ENDED: the header is complete and valid; *last: its block is the last. GOES_ON: it
 * is incomplete. BROKEN. */
fedge_inflater_state fedge_deflate_header(fedge_deflate_bits bits, bool *last);

#endif
