/* A history of each client's updates and missed tasks, which samplers read (sampler.h).
 *
 * It changes when a training round closes, depends only on that round's journal, and is saved in
 * the checkpoint. A run that is killed continues with the same draws.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_CLIENT_HISTORY_H
#define FEDGE_AGGREGATOR_ROUNDS_CLIENT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/bytes.h"
#include "edge/core/status.h"

#define FEDGE_CLIENT_HISTORY_RECORD 32u /* bytes of a record in a checkpoint */

/* The history of one client. All 0: the client has not been seen. */
typedef struct fedge_client_record {
    uint64_t examples;   /* examples of the last update */
    double loss;         /* mean training loss of the last update; 0: not reported */
    uint32_t last_round; /* round of the last update, from 1; 0: none yet */
    uint32_t reported;   /* rounds with an update of the client */
    uint32_t missed;     /* tasks given to another client, or open at the deadline */
} fedge_client_record;

/* Plain data that owns the records; all 0 is empty. */
typedef struct fedge_client_history {
    fedge_client_record *of; /* (num), by client index; higher ones have not been seen */
    uint32_t num, capacity;
} fedge_client_history;

void fedge_client_history_fini(fedge_client_history *history);

/* The record of any index. */
fedge_client_record fedge_client_history_get(const fedge_client_history *history, uint32_t client);

/* Adds an update that the model of [round] contains. A loss that is not finite or below 0 counts as
 * 0. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_client_history_report(fedge_client_history *history,
                                                        uint32_t client, uint32_t round,
                                                        uint64_t examples, double loss,
                                                        fedge_error *err);
/* Adds a missed task of a round that has closed. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_client_history_miss(fedge_client_history *history,
                                                      uint32_t client, fedge_error *err);

/* Appends the records, little-endian, then their number as u32. */
FEDGE_MUST_USE fedge_status fedge_client_history_save(const fedge_client_history *history,
                                                      fedge_buffer *out, fedge_error *err);
/* Reads what save appended from the end of [bytes] and reduces *size by its length.
 * FEDGE_TRUNCATED, FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_client_history_load(fedge_client_history *history,
                                                      const uint8_t *bytes, size_t *size,
                                                      fedge_error *err);

#endif
