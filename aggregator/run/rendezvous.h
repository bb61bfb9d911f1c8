/* How the ranks of one aggregator begin together: which of them share a disk, and what each has of
 * the open phase. Calls of the collective, before the service runs.
 */
#ifndef FEDGE_AGGREGATOR_RUN_RENDEZVOUS_H
#define FEDGE_AGGREGATOR_RUN_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/collective.h"
#include "aggregator/store/journal.h"
#include "aggregator/store/run.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

/* ---- recovered updates ------------------------------------------------------------------------
 */

/* Updates that ranks from 1 on have made durable in the open phase, found on a disk by a start. */

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

/* ---- the rendezvous ---------------------------------------------------------------------------
 */

/* All ranks: with the status that they have come to. [run_id] is rank 0's, and becomes that of the
 * others; rank 0 has opened [state_dir]. Of the others the lowest of each disk of its own locks it:
 * [state]. The failure of one is that of all. Alone (collective NULL): this disk. */
FEDGE_MUST_USE fedge_status fedge_rendezvous(const fedge_collective *collective,
                                             fedge_status status, const char *state_dir,
                                             char run_id[FEDGE_RUN_ID_TEXT],
                                             fedge_rank_disks *disks, fedge_state *state,
                                             fedge_error *err);

/* What rank 0 wants of the others at a start, in any order, until the end. */
typedef enum fedge_rendezvous_command_kind {
    FEDGE_RENDEZVOUS_RECOVER, /* phase and tasks follow: say what you have of it */
    FEDGE_RENDEZVOUS_SUMS,    /* fedge_joined_follow */
    FEDGE_RENDEZVOUS_END
} fedge_rendezvous_command_kind;

typedef struct fedge_rendezvous_command {
    uint32_t kind;
    uint32_t num_tasks; /* FIND */
} fedge_rendezvous_command;

/* Rank 0 says it, the others hear it. */
void fedge_rendezvous_broadcast_command(const fedge_collective *collective,
                                        fedge_rendezvous_command *word);
void fedge_rendezvous_broadcast_phase(const fedge_collective *collective,
                                      fedge_journal_phase *phase, fedge_journal_task *tasks,
                                      uint32_t num_tasks);

/* The findings of another rank, as rank 0 gets them, and the weights of each, as it gets them back;
 * [status], [err]: how this side has fared. Returns that, or FEDGE_CLOSED when the other has
 * failed. */
FEDGE_MUST_USE fedge_status fedge_rendezvous_send_updates(const fedge_collective *collective,
                                                          fedge_recovered_updates *recovered,
                                                          fedge_status status, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_rendezvous_receive_updates(const fedge_collective *collective,
                                                             uint32_t from,
                                                             fedge_recovered_updates *recovered,
                                                             fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_rendezvous_receive_weights(const fedge_collective *collective,
                                                             fedge_recovered_updates *recovered,
                                                             fedge_error *err);
void fedge_rendezvous_send_weights(const fedge_collective *collective, uint32_t to,
                                   const fedge_recovered_updates *recovered, fedge_status status);

#endif
