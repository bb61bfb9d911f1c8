/* Is the header of a deflate block (RFC 1951, 3.2.3 to 3.2.7) one that zlib takes? ISA-L takes
 * more: codes that leave bits without a meaning. A server that inflates by ISA-L would accept
 * updates that another refuses. Rules of zlib: at most 286 codes of lengths and 30 of distances;
 * one for the end of the block; no code with too many words; none with too few, but for a single
 * one of one bit and, of distances, none at all. Internal to edge/wire and its tests. */
#ifndef FEDGE_EDGE_WIRE_DEFLATE_HEADER_H
#define FEDGE_EDGE_WIRE_DEFLATE_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/wire/inflater.h"

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
