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
void fedge_deflater_free(fedge_deflater *deflater); /* NULL is fine */
/* Compresses into out[0, out_size); false when the result does not fit: the caller then keeps the
 * bytes as they are. */
bool fedge_deflater_run(fedge_deflater *deflater, const uint8_t *in, size_t in_size, uint8_t *out,
                        size_t out_size, size_t *size);

/* The most blocks of a stream of [size] bytes. Even an empty block takes time; blocks of encoders
 * have thousands of bytes. */
#define FEDGE_INFLATE_MAX_BLOCKS(size) (16 + (uint64_t)(size) / 1024)

/* Inflates exactly [out_size] bytes. Stops at out_size + 1, and at a block too many: FEDGE_TOO_BIG.
 * FEDGE_TRUNCATED when the stream ends before, FEDGE_CORRUPT when it is broken or bytes follow it.
 */
FEDGE_MUST_USE fedge_status fedge_inflate(const uint8_t *in, size_t in_size, uint8_t *out,
                                          size_t out_size, fedge_error *err);

/* Fills bytes[0, size) with the next bytes of the stream. */
typedef fedge_status (*fedge_read_fn)(void *user, uint8_t *bytes, size_t size, fedge_error *err);

/* The same of [in_size] bytes that are read chunk by chunk, in order; all of them are read,
 * whatever they are. A failure of [read] is returned as it is. */
FEDGE_MUST_USE fedge_status fedge_inflate_read(fedge_read_fn read, void *user, uint64_t in_size,
                                               uint8_t *out, size_t out_size, fedge_error *err);

/* ---- inflaters ------------------------------------------------------------------------------- */

/* What inflates a stream in zlib's format (RFC 1950) chunk by chunk, behind fedge_inflate_read:
 * zlib, the reference and the devices', or ISA-L, which takes less time and is built
 * in for servers (FEDGE_FAST_INFLATE). Both take the same streams. Internal to
 * edge/wire and its tests. */

typedef enum fedge_inflater_state {
    FEDGE_INFLATER_GOES_ON, /* the input or the output buffer is used up */
    FEDGE_INFLATER_ENDED,   /* the stream is whole, its checksum right */
    FEDGE_INFLATER_BROKEN,
    FEDGE_INFLATER_TOO_MANY_BLOCKS, /* one began when none was left */
    FEDGE_INFLATER_NO_MEMORY
} fedge_inflater_state;

/* The remaining input and output; a step advances both. */
typedef struct fedge_inflater_range {
    const uint8_t *in;
    uint8_t *out;
    size_t in_size, out_size;
    const uint8_t
        *begin; /* what has come out: made bytes, right before out unless there is no room */
    size_t made;
    uint64_t blocks_left; /* blocks that may still begin */
} fedge_inflater_range;

typedef struct fedge_inflater {
    const char *name;
    size_t chunk_bytes;   /* bytes that it reads at a time */
    uint64_t max_size;    /* maximum of inflated bytes */
    void *(*begin)(void); /* NULL: no memory */
    fedge_inflater_state (*step)(void *stream, fedge_inflater_range *range);
    const char *(*why)(const void *stream); /* it is broken; static text */
    void (*end)(void *stream);
} fedge_inflater;

extern const fedge_inflater fedge_inflater_zlib;
extern const fedge_inflater fedge_inflater_isal; /* in builds with FEDGE_WITH_ISAL */

/* The inflaters of this build, NULL-terminated: the fastest first, zlib last. */
const fedge_inflater *const *fedge_inflaters(void);

/* fedge_inflate_read by [inflater]; out_size ≤ its max_size. */
FEDGE_MUST_USE fedge_status fedge_inflate_read_by(const fedge_inflater *inflater,
                                                  fedge_read_fn read, void *user, uint64_t in_size,
                                                  uint8_t *out, size_t out_size, fedge_error *err);

/* ---- block headers --------------------------------------------------------------------------- */

/* Is the header of a deflate block (RFC 1951, 3.2.3 to 3.2.7) one that zlib takes? ISA-L takes
 * more: codes that leave bits without a meaning. A server that inflates by ISA-L would accept
 * updates that another refuses. Rules of zlib: at most 286 codes of lengths and 30 of distances;
 * one for the end of the block; no code with too many words; none with too few, but for a single
 * one of one bit and, of distances, none at all. Internal to edge/wire and its tests. */

/* Bytes of the longest header: 3 + 14 bits, 19 lengths of 3, and 320 of at most 7 and 7. */
#define FEDGE_DEFLATE_MAX_HEADER 576u

/* Bits that come, the lowest first: those that were read ahead, then two runs of bytes. */
typedef struct fedge_deflate_bits {
    uint64_t ahead;
    uint32_t num_ahead; /* ≤ 64 */
    const uint8_t *first, *then;
    size_t num_first, num_then;
} fedge_deflate_bits;

/* FEDGE_INFLATER_ENDED: the header is whole and right, and *last says whether its block is the
 * last. GOES_ON: more of it has to come. BROKEN. */
fedge_inflater_state fedge_deflate_header(fedge_deflate_bits bits, bool *last);

#endif
