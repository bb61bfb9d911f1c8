/* The rendezvous: how the ranks of one aggregator start together. They learn which of them share a
 * disk, and recover the updates that each has of the open phase. All calls of the collective here
 * come before the service runs. */
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

/* ---- recovered updates ----------------------------------------------------------------------- */

/* An update of the open phase that a rank from 1 on has made durable. Plain data. */
typedef struct fedge_recovered_update {
    uint32_t slot;
    uint32_t weight;          /* set by rank 0; 0: it does not count */
    fedge_journal_slot facts; /* [location] has its disk and folder */
    char *meta;               /* (facts.metadata_size) and NUL, malloc'ed */
} fedge_recovered_update;

/* All zero: empty. */
typedef struct fedge_recovered_updates {
    fedge_recovered_update *items;
    uint32_t num, capacity;
    fedge_journal *journals[FEDGE_RANKS_MAX]; /* index: folder's rank; NULL: none of this phase */
} fedge_recovered_updates;

/* The present ranks, and the disk of each. */
typedef struct fedge_rank_disks {
    uint32_t rank, num_ranks; /* this rank; num_ranks ≥ 1 */
    uint64_t disks[FEDGE_RANKS_MAX];
} fedge_rank_disks;

/* True when this rank reads [folder] of its disk: its own folder; and the lowest rank of a disk
 * reads those of ranks that are absent or on another disk now. */
bool fedge_rank_disks_reads(const fedge_rank_disks *ranks, uint32_t folder);

/* Recovers the journals of [phase] that this rank reads, and adds all accepted updates. Errors are
 * those of fedge_journal_recover; a journal of another run or model is ignored. */
FEDGE_MUST_USE fedge_status fedge_recovered_updates_read(fedge_recovered_updates *recovered,
                                                         const char *state_dir,
                                                         const fedge_rank_disks *ranks,
                                                         const fedge_journal_phase *phase,
                                                         const fedge_log *log, fedge_error *err);
void fedge_recovered_updates_free(fedge_recovered_updates *recovered);

/* Adds the updates that count to the sums. The journal of [this_rank] drops its others. */
FEDGE_MUST_USE fedge_status fedge_recovered_updates_sum(fedge_recovered_updates *recovered,
                                                        const fedge_plan *plan,
                                                        fedge_accumulator *accumulator,
                                                        uint32_t this_rank, fedge_error *err);

/* Packs and unpacks them for the way to rank 0; *bytes is malloc'ed. FEDGE_CORRUPT,
 * FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_recovered_updates_pack(const fedge_recovered_updates *recovered,
                                                         uint8_t **bytes, uint64_t *size,
                                                         fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_recovered_updates_unpack(fedge_recovered_updates *recovered,
                                                           const uint8_t *bytes, uint64_t size,
                                                           fedge_error *err);

/* ---- the rendezvous -------------------------------------------------------------------------- */

/* All ranks call it, each with its [status] so far; the failure of one fails all. The others
 * receive rank 0's [run_id]. Rank 0 has opened [state_dir]; on every other disk its lowest rank
 * locks it: [state]. Alone (collective NULL) there is this disk only. */
FEDGE_MUST_USE fedge_status fedge_rendezvous(const fedge_collective *collective,
                                             fedge_status status, const char *state_dir,
                                             char run_id[FEDGE_RUN_ID_TEXT],
                                             fedge_rank_disks *disks, fedge_state *state,
                                             fedge_error *err);

/* Commands that rank 0 broadcasts during a start, in any order until END. */
typedef enum fedge_rendezvous_command_kind {
    FEDGE_RENDEZVOUS_RECOVER, /* phase and tasks follow; the rank sends its updates */
    FEDGE_RENDEZVOUS_SUMS,    /* the rank calls fedge_distributed_follow */
    FEDGE_RENDEZVOUS_END
} fedge_rendezvous_command_kind;

typedef struct fedge_rendezvous_command {
    uint32_t kind;
    uint32_t num_tasks; /* RECOVER: number of tasks */
} fedge_rendezvous_command;

/* Broadcast from rank 0; on the others it fills in the arguments. */
void fedge_rendezvous_broadcast_phase(const fedge_collective *collective,
                                      fedge_journal_phase *phase, fedge_journal_task *tasks,
                                      uint32_t num_tasks);

/* A rank sends rank 0 its recovered updates and receives the weight of each. [status], [err]: of
 * this side so far, which is returned, or FEDGE_CLOSED when the other side has failed. */
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
