#include "aggregator/rounds/pieces.h"

#include <assert.h>
#include <stdlib.h>

#include "aggregator/rounds/updates.h"

fedge_status fedge_pieces_init(fedge_pieces *pieces, const fedge_schema *schema, fedge_error *err)
{
    *pieces = (fedge_pieces){.schema = schema,
                             .first = calloc(schema->num_tensors, sizeof(*pieces->first))};
    if (!pieces->first)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the pieces of an update");
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        pieces->first[t] = pieces->num;
        pieces->num += (schema->tensors[t].count + FEDGE_UPDATES_PIECE - 1) / FEDGE_UPDATES_PIECE;
    }
    return FEDGE_OK;
}

void fedge_pieces_fini(fedge_pieces *pieces)
{
    free(pieces->first);
    *pieces = (fedge_pieces){0};
}

fedge_piece fedge_pieces_find(const fedge_pieces *pieces, uint32_t tensor, size_t at)
{
    assert(at < pieces->schema->tensors[tensor].count);
    const size_t index = at / FEDGE_UPDATES_PIECE, begin = index * FEDGE_UPDATES_PIECE;
    const size_t left = pieces->schema->tensors[tensor].count - begin;
    return (fedge_piece){.number = pieces->first[tensor] + index,
                         .at = begin,
                         .count = left < FEDGE_UPDATES_PIECE ? left : FEDGE_UPDATES_PIECE};
}
