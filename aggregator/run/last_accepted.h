/* Which update of each client was accepted last, and counted: for strategies whose clients keep
 * something and move it by that (client/kept.h). Part of a checkpoint (last-accepted.bin).
 */
#ifndef FEDGE_AGGREGATOR_RUN_LAST_ACCEPTED_H
#define FEDGE_AGGREGATOR_RUN_LAST_ACCEPTED_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/store/journal.h"
#include "edge/core/status.h"

/* One that is all 0 is empty. */
typedef struct fedge_last_accepted {
    uint64_t *task_ids; /* by client index; 0: none */
    uint32_t num_clients;
} fedge_last_accepted;

void fedge_last_accepted_clear(fedge_last_accepted *last_accepted);

/* The task id, or 0. */
uint64_t fedge_last_accepted_task(const fedge_last_accepted *last_accepted, uint32_t client_index);

/* The accepted updates of a journal that is closed. FEDGE_CORRUPT: of clients that no registry can
 * have. */
FEDGE_MUST_USE fedge_status fedge_last_accepted_add(fedge_last_accepted *last_accepted,
                                                    fedge_journal *journal, fedge_error *err);

/* As bytes, malloc'ed: u64 task ids, little-endian, by client index; NULL of size 0 when empty. */
FEDGE_MUST_USE fedge_status fedge_last_accepted_write(const fedge_last_accepted *last_accepted,
                                                      uint8_t **bytes, size_t *size,
                                                      fedge_error *err);
/* What write made replaces [last_accepted]. FEDGE_CORRUPT. */
FEDGE_MUST_USE fedge_status fedge_last_accepted_read(fedge_last_accepted *last_accepted,
                                                     const uint8_t *bytes, size_t size,
                                                     fedge_error *err);

#endif
