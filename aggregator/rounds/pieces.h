/* An update in pieces of FEDGE_UPDATES_PIECE values, or up to the end of a tensor, numbered through
 * all its tensors: who reads an update some coordinates at a time from where bytes may be damaged
 * keeps a checksum of each piece, and reads whole pieces.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_PIECES_H
#define FEDGE_AGGREGATOR_ROUNDS_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"

/* Plain data; [first] is its own. One that is all 0 has nothing. */
typedef struct fedge_pieces {
    const fedge_schema *schema;
    size_t *first; /* (num_tensors): the number of each tensor's first piece */
    size_t num;    /* of an update */
} fedge_pieces;

typedef struct fedge_piece {
    size_t number;
    size_t at, count; /* its values in its tensor */
} fedge_piece;

/* [schema] outlives it. FEDGE_NO_MEMORY. _fini is to be called also after a failure. */
FEDGE_MUST_USE fedge_status fedge_pieces_init(fedge_pieces *pieces, const fedge_schema *schema,
                                              fedge_error *err);
void fedge_pieces_fini(fedge_pieces *pieces);

/* The piece that has value [at] of a tensor, which is one of its own. */
fedge_piece fedge_pieces_find(const fedge_pieces *pieces, uint32_t tensor, size_t at);

#endif
