/* How the ranks of one aggregator begin together: which of them share a disk, and what each has of
 * the open phase. Calls of the collective, before the service runs.
 */
#ifndef FEDGE_AGGREGATOR_RUN_RECOVERY_RENDEZVOUS_H
#define FEDGE_AGGREGATOR_RUN_RECOVERY_RENDEZVOUS_H

#include <stdint.h>

#include "aggregator/reduce/collective.h"
#include "aggregator/run/recovery/recovered_updates.h"
#include "aggregator/store/run.h"
#include "edge/core/status.h"

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
