/* Updates that are kept decoded until their round closes: in memory up to a limit, the others in a
 * file without a name, in the folder that TMPDIR says or /var/tmp.
 *
 *     _init → { _reserve → _put of each, by any thread → _list → read → _clear } … → _fini
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_KEPT_UPDATES_H
#define FEDGE_AGGREGATOR_ROUNDS_KEPT_UPDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/pieces.h"
#include "aggregator/rounds/updates.h"
#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

/* One that is all 0 has nothing. Plain data; all of it is its own but the schema. */
typedef struct fedge_kept_updates {
    const fedge_schema *schema; /* of the delta */
    uint64_t limit;             /* bytes in memory */
    uint32_t num, capacity;     /* places that are reserved, and have been */
    int32_t **values;           /* (capacity) of schema->num_elements; NULL: in the file */
    uint32_t **sums;            /* (capacity) CRC-32s of each piece; NULL: in memory */
    fedge_os_file file;         /* of the others */
    fedge_pieces pieces;        /* with the file */
    bool has_file;
    uint32_t *order; /* as _list was told */
} fedge_kept_updates;

/* [schema] outlives it; its first tensor lies at offset 0. limit: bytes. */
void fedge_kept_updates_init(fedge_kept_updates *kept, const fedge_schema *schema, uint64_t limit);
void fedge_kept_updates_fini(fedge_kept_updates *kept);

/* Room for [count] more; *first: the place of the first of them. FEDGE_NO_MEMORY, FEDGE_IO,
 * FEDGE_NO_SPACE. */
FEDGE_MUST_USE fedge_status fedge_kept_updates_reserve(fedge_kept_updates *kept, uint32_t count,
                                                       uint32_t *first, fedge_error *err);
/* v: schema->num_elements fixed-point integers. Different threads may put to different places. */
FEDGE_MUST_USE fedge_status fedge_kept_updates_put(fedge_kept_updates *kept, uint32_t place,
                                                   const int32_t *v, fedge_error *err);
/* As fedge_updates.read, of the place [index]. FEDGE_CORRUPT: the file has other bytes than were
 * put there. */
FEDGE_MUST_USE fedge_status fedge_kept_updates_read(fedge_kept_updates *kept, uint32_t place,
                                                    uint32_t tensor, size_t at, size_t count,
                                                    int32_t *v, fedge_error *err);
/* Those at places[0, num), in that order, as a round's updates. Valid until the next call of
 * anything but read; [places] is copied. */
FEDGE_MUST_USE fedge_status fedge_kept_updates_list(fedge_kept_updates *kept,
                                                    const uint32_t *places, uint32_t num,
                                                    fedge_updates *updates, fedge_error *err);
/* Nothing is reserved any more; the memory stays for the next round. */
void fedge_kept_updates_clear(fedge_kept_updates *kept);

#endif
