/* The accepted updates of a journal, one by one (aggregator/rounds/updates.h): those that lie there
 * value by value are decoded where a tile wants them; deflated and sparse ones are kept decoded.
 *
 * All bytes are checked as they are read: those of a whole upload by the checksum that it was
 * accepted with, and at the same time a checksum is taken of each chunk
 * (aggregator/rounds/updates.h) that a tile reads later.
 */
#ifndef FEDGE_AGGREGATOR_RUN_INGEST_ACCEPTED_UPDATES_H
#define FEDGE_AGGREGATOR_RUN_INGEST_ACCEPTED_UPDATES_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/updates.h"
#include "aggregator/store/journal.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* Plain data; all of it is its own but plan, journal, bounds and kept. */
typedef struct fedge_accepted_updates {
    const fedge_plan *plan;
    fedge_journal *journal;
    const int8_t *bounds_log2;
    fedge_stored_updates *stored;
    uint32_t num;
    struct fedge_accepted_update {
        uint32_t slot, index;
        bool is_stored;         /* at [index] of kept; else: */
        uint32_t *sums;         /* CRC-32s of its chunks, encoded */
    } * items;                  /* (room for the cohort) */
    size_t *offsets;            /* of each tensor of the delta: of its first byte */
    fedge_update_chunks chunks; /* of the delta */
    uint8_t *bytes, *raw;       /* of one upload: for those that are kept */
    int32_t *v;                 /* likewise, decoded */
} fedge_accepted_updates;

/* With room for [most] updates. _fini is to be called also after a failure. */
FEDGE_MUST_USE fedge_status fedge_accepted_updates_init(fedge_accepted_updates *updates,
                                                        const fedge_plan *plan,
                                                        fedge_journal *journal,
                                                        fedge_stored_updates *stored, uint32_t most,
                                                        fedge_error *err);
void fedge_accepted_updates_fini(fedge_accepted_updates *updates); /* one that is all 0 is fine */

/* One that was accepted, as its client described it; to be called in slot order. FEDGE_CORRUPT: its
 * bytes are not those that were accepted; the others may still be added. */
FEDGE_MUST_USE fedge_status fedge_accepted_updates_add(fedge_accepted_updates *updates,
                                                       uint32_t slot, const fedge_upload *upload,
                                                       fedge_error *err);

/* All that were added; valid as long as they are. To read bytes that the disk has damaged since is
 * FEDGE_CORRUPT. What adding takes, three times the size of an
 * update at most, is free then. */
fedge_updates fedge_accepted_updates_get(fedge_accepted_updates *updates);

#endif
