/* What the server has seen of its clients: who brought updates, of what, and who did not.
 *
 * Samplers draw by it (sampler.h). It changes when a training round closes, by that round's
 * journal alone, and lies in the checkpoint: a run that is killed goes on with the same draws.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_CLIENT_HISTORY_H
#define FEDGE_AGGREGATOR_ROUNDS_CLIENT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/status.h"

#define FEDGE_CLIENT_HISTORY_RECORD 32u /* bytes of each in a checkpoint */

/* Of one client. All 0: it has not been seen. */
typedef struct fedge_client_record {
    uint64_t examples;   /* of its last update */
    double loss;         /* the mean while it trained, of its last update; 0: not said */
    uint32_t last_round; /* of its last update, from 1; 0: none yet */
    uint32_t reported;   /* rounds that have its update */
    uint32_t missed;     /* times its task went to another, or was not there at the deadline */
} fedge_client_record;

/* One that is all 0 is empty. Plain data; the records are its own. */
typedef struct fedge_client_history {
    fedge_client_record *of; /* (num), by client index; those above it have not been seen */
    uint32_t num, capacity;
} fedge_client_history;

void fedge_client_history_fini(fedge_client_history *history);

/* Of any index. */
fedge_client_record fedge_client_history_get(const fedge_client_history *history, uint32_t client);

/* Its update is in the model of [round]. A loss that is not finite or below 0 counts as 0.
 * FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_client_history_report(fedge_client_history *history,
                                                        uint32_t client, uint32_t round,
                                                        uint64_t examples, double loss,
                                                        fedge_error *err);
/* It was asked in a round that has closed, and brought nothing. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_client_history_miss(fedge_client_history *history,
                                                      uint32_t client, fedge_error *err);

/* Appends all of it: the records, little-endian, and behind them their number as u32. */
FEDGE_MUST_USE fedge_status fedge_client_history_save(const fedge_client_history *history,
                                                      fedge_buffer *out, fedge_error *err);
/* Takes what save appended last from the end of [bytes]; *size becomes what is left before it.
 * FEDGE_TRUNCATED, FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_client_history_load(fedge_client_history *history,
                                                      const uint8_t *bytes, size_t *size,
                                                      fedge_error *err);

#endif
