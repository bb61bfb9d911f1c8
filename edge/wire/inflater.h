/* What inflates a stream in zlib's format (RFC 1950) piece by piece, behind fedge_inflate_read:
 * zlib, the reference and the devices', or ISA-L, which takes less time and is built
 * in for servers (FEDGE_FAST_INFLATE). Both take the same streams (deflate_header.h). Internal to
 * edge/wire and its tests. */
#ifndef FEDGE_EDGE_WIRE_INFLATER_H
#define FEDGE_EDGE_WIRE_INFLATER_H

#include <stddef.h>
#include <stdint.h>

#include "edge/wire/deflate.h"

typedef enum fedge_inflater_state {
    FEDGE_INFLATER_GOES_ON, /* input or room are used up */
    FEDGE_INFLATER_ENDED,   /* the stream is whole, its checksum right */
    FEDGE_INFLATER_BROKEN,
    FEDGE_INFLATER_MANY_BLOCKS, /* one began when none was left */
    FEDGE_INFLATER_NO_MEMORY
} fedge_inflater_state;

/* What is left of the input and of the room; a step moves it on. */
typedef struct fedge_inflater_span {
    const uint8_t *in;
    uint8_t *out;
    size_t in_size, out_size;
    const uint8_t
        *begin; /* what has come out: made bytes, right before out unless there is no room */
    size_t made;
    uint64_t blocks_left; /* that may still begin */
} fedge_inflater_span;

typedef struct fedge_inflater {
    const char *name;
    size_t piece_bytes;   /* to be read at a time */
    uint64_t max_size;    /* of what comes out */
    void *(*begin)(void); /* NULL: no memory */
    fedge_inflater_state (*step)(void *stream, fedge_inflater_span *span);
    const char *(*why)(const void *stream); /* it is broken; static text */
    void (*end)(void *stream);
} fedge_inflater;

extern const fedge_inflater fedge_inflater_zlib;
extern const fedge_inflater fedge_inflater_isal; /* with FEDGE_WITH_ISAL */

/* What this build has, NULL behind them, the fastest first and zlib last. */
const fedge_inflater *const *fedge_inflaters(void);

/* fedge_inflate_read by [inflater]; out_size ≤ its max_size. */
FEDGE_MUST_USE fedge_status fedge_inflate_read_by(const fedge_inflater *inflater,
                                                  fedge_read_fn read, void *user, uint64_t in_size,
                                                  uint8_t *out, size_t out_size, fedge_error *err);

#endif
