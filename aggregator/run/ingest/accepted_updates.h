/* The accepted updates of a journal, one by one (aggregator/rounds/updates.h): plain ones are
 * decoded chunk by chunk as tiles read them; deflated and sparse ones are stored decoded.
 *
 * All bytes are checked as they are read: first the whole upload, by the checksum that it was
 * accepted with, which also gives each chunk (aggregator/rounds/updates.h) a checksum; then each
 * chunk that a tile reads.
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

/* Plain data. Borrows plan, journal, bounds_log2 and stored, and owns the rest. */
typedef struct fedge_accepted_updates {
    const fedge_plan *plan;
    fedge_journal *journal;
    const int8_t *bounds_log2;
    fedge_stored_updates *stored;
    uint32_t num;
    struct fedge_accepted_update {
        uint32_t slot, index;
        bool is_stored;         /* true: it is at [index] of stored; false: in the journal */
        uint32_t *sums;         /* CRC-32s of the chunks of an update in the journal */
    } * items;                  /* capacity: the cohort's size */
    size_t *offsets;            /* first byte of each tensor in the encoded delta */
    fedge_update_chunks chunks; /* chunks of the delta */
    uint8_t *bytes, *raw;       /* buffers of the upload that is being stored */
    int32_t *v;                 /* its decoded values */
} fedge_accepted_updates;

/* Prepares for at most [most] updates. Call _fini also after a failure. */
FEDGE_MUST_USE fedge_status fedge_accepted_updates_init(fedge_accepted_updates *updates,
                                                        const fedge_plan *plan,
                                                        fedge_journal *journal,
                                                        fedge_stored_updates *stored, uint32_t most,
                                                        fedge_error *err);
void fedge_accepted_updates_fini(fedge_accepted_updates *updates); /* all 0 is fine */

/* Adds an accepted update, as its client described it; call it in slot order. FEDGE_CORRUPT: its
 * bytes are not those that were accepted; the others may still be added. */
FEDGE_MUST_USE fedge_status fedge_accepted_updates_add(fedge_accepted_updates *updates,
                                                       uint32_t slot, const fedge_upload *upload,
                                                       fedge_error *err);

/* A view of all added updates, valid as long as [updates]. Reading bytes that the disk has damaged
 * since is FEDGE_CORRUPT. Frees the buffers of adding, three times an update's size at most. */
fedge_updates fedge_accepted_updates_get(fedge_accepted_updates *updates);

#endif
