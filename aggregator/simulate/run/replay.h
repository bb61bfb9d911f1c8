/* The order of an asynchronous run: which updates each of its rounds had, on which models, as the
 * lines of its rounds.jsonl tell. What trains on it is the same run, bit for bit. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_REPLAY_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_REPLAY_H

#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "edge/core/status.h"

#define FEDGE_REPLAY_MAX_UPDATES 16777216u

/* Plain data, its own. */
typedef struct fedge_replay {
    fedge_told_update *updates;
    uint32_t *ends; /* (num_rounds): one past the last update of each round */
    uint32_t num_rounds, num_updates;
    uint32_t most; /* updates of one round */
} fedge_replay;

/* Reads the training lines of [path]. FEDGE_MISMATCH: a line names no updates, or is not of the
 * next round; FEDGE_TOO_BIG; and as fedge_round_lines_read. */
FEDGE_MUST_USE fedge_status fedge_replay_read(const char *path, fedge_replay *replay,
                                              fedge_error *err);
void fedge_replay_fini(fedge_replay *replay); /* all 0 is fine */

/* The updates of [round], from 1; *num of them. FEDGE_MISMATCH: it has no such round. */
FEDGE_MUST_USE fedge_status fedge_replay_round(const fedge_replay *replay, uint32_t round,
                                               const fedge_told_update **updates, uint32_t *num,
                                               fedge_error *err);

#endif
