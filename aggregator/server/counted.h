/* Which update of each client was the last to count: for strategies whose clients keep
 * something and move it by that (client/kept.h). Part of a checkpoint (counted.bin).
 */
#ifndef FEDGE_AGGREGATOR_SERVER_COUNTED_H
#define FEDGE_AGGREGATOR_SERVER_COUNTED_H

#include <stddef.h>
#include <stdint.h>

#include "aggregator/store/journal.h"
#include "edge/core/status.h"

/* One that is all 0 is empty. */
typedef struct fedge_counted {
    uint64_t *task_ids; /* by client index; 0: none */
    uint32_t num_clients;
} fedge_counted;

void fedge_counted_clear(fedge_counted *counted);

/* The task id, or 0. */
uint64_t fedge_counted_of(const fedge_counted *counted, uint32_t client_index);

/* The accepted updates of a journal that is closed. FEDGE_CORRUPT: of clients that no registry can
 * have. */
FEDGE_MUST_USE fedge_status fedge_counted_add(fedge_counted *counted, fedge_journal *journal,
                                              fedge_error *err);

/* As bytes, malloc'ed: u64 task ids, little-endian, by client index; NULL of size 0 when empty. */
FEDGE_MUST_USE fedge_status fedge_counted_write(const fedge_counted *counted, uint8_t **bytes,
                                                size_t *size, fedge_error *err);
/* What write made replaces [counted]. FEDGE_CORRUPT. */
FEDGE_MUST_USE fedge_status fedge_counted_read(fedge_counted *counted, const uint8_t *bytes,
                                               size_t size, fedge_error *err);

#endif
