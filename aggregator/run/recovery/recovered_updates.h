/* Updates that ranks from 1 on have made durable in the open phase, found on a disk by a start. */
#ifndef FEDGE_AGGREGATOR_RUN_RECOVERY_RECOVERED_UPDATES_H
#define FEDGE_AGGREGATOR_RUN_RECOVERY_RECOVERED_UPDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/order.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/store/journal.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* One update, as its journal has it. Plain data. */
typedef struct fedge_recovered_update {
    uint32_t slot;
    uint32_t weight;          /* by rank 0: 0: it does not count */
    fedge_journal_slot facts; /* facts.place: where it lies */
    char *meta;               /* malloc'ed; (facts.metadata_size), and NUL */
} fedge_recovered_update;

/* All zero: nothing. */
typedef struct fedge_recovered_updates {
    fedge_recovered_update *items;
    uint32_t num, capacity;
    fedge_journal *journals[FEDGE_RANKS_MAX]; /* by the folder's rank; NULL: none of this phase */
} fedge_recovered_updates;

/* Which ranks there are now, and the disk of each. */
typedef struct fedge_rank_disks {
    uint32_t rank, num_ranks; /* this one; num_ranks ≥ 1 */
    uint64_t disks[FEDGE_RANKS_MAX];
} fedge_rank_disks;

/* Whether [folder] of this rank's disk is for it to read: its own, and for the lowest rank of a
 * disk those of ranks that are not there, or are elsewhere, now. */
bool fedge_rank_disks_reads(const fedge_rank_disks *ranks, uint32_t folder);

/* Recovers the journals of [phase] that are for this rank to read, and adds all accepted updates.
 * What is wrong with one is that of fedge_journal_recover; a journal of another run or model is
 * passed over. */
FEDGE_MUST_USE fedge_status fedge_recovered_updates_read(fedge_recovered_updates *recovered,
                                                         const char *state_dir,
                                                         const fedge_rank_disks *ranks,
                                                         const fedge_journal_phase *phase,
                                                         const fedge_log *log, fedge_error *err);
void fedge_recovered_updates_free(fedge_recovered_updates *recovered);

/* All that counts goes into the sums; of what does not, the journal of [own] forgets its part. */
FEDGE_MUST_USE fedge_status fedge_recovered_updates_sum(fedge_recovered_updates *recovered,
                                                        const fedge_plan *plan,
                                                        fedge_accumulator *accumulator,
                                                        uint32_t own, fedge_error *err);

/* For its way to rank 0: *bytes is malloc'ed. FEDGE_CORRUPT, FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_recovered_updates_pack(const fedge_recovered_updates *recovered,
                                                         uint8_t **bytes, uint64_t *size,
                                                         fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_recovered_updates_unpack(fedge_recovered_updates *recovered,
                                                           const uint8_t *bytes, uint64_t size,
                                                           fedge_error *err);

#endif
