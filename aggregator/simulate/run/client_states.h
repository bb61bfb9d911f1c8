/* What virtual clients keep for the strategy (edge/io/client_hooks.h), in memory: each takes its
 * place when its client first trains.
 *
 * A client moves it as soon as it has trained, but a round that fails or is interrupted
 * begins again: until a round closes a copy is kept of what was moved in it.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_CLIENT_STATES_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_CLIENT_STATES_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* One that is all 0 has no clients. */
typedef struct fedge_client_states {
    uint32_t num_clients;
    size_t num_values; /* of each */
    float **of;        /* (num_clients); NULL: 0 still */
    float **before;    /* (num_clients); as it was when the open round began; NULL: as it is */
    uint32_t round;    /* closed rounds that they have seen */
} fedge_client_states;

/* Bytes that they take in so many rounds, each of a cohort of so many clients: of all that can have
 * trained, and the copies of an open round. */
uint64_t fedge_client_states_size(uint32_t num_clients, uint32_t cohort, uint32_t rounds,
                                  size_t num_values);

/* Takes room for the places; the values take theirs as clients train. */
FEDGE_MUST_USE fedge_status fedge_client_states_init(fedge_client_states *states,
                                                     uint32_t num_clients, size_t num_values,
                                                     fedge_error *err);
void fedge_client_states_fini(fedge_client_states *states);

/* That of a client, made of zeros the first time, to be moved; NULL: no memory. Different
 * threads may ask for different clients. */
float *fedge_client_states_of(fedge_client_states *states, uint32_t client);

/* [round] has closed: what was moved stays so. */
void fedge_client_states_keep(fedge_client_states *states, uint32_t round);
/* The open round is dropped: all are as they were when it began. */
void fedge_client_states_undo(fedge_client_states *states);

/* Writes those that are not 0, whole or not at all. Little-endian: "FEDGECV1", u32 round, u32
 * clients, u64 values of each, u32 how many follow, u32 CRC-32 of all that follows; then for each
 * u32 client and its values as f32. */
FEDGE_MUST_USE fedge_status fedge_client_states_save(const fedge_client_states *states,
                                                     const char *path, fedge_error *err);
/* Into states that have not been used. FEDGE_NOT_FOUND, FEDGE_TRUNCATED, FEDGE_CORRUPT,
 * FEDGE_MISMATCH (of other clients or another model), FEDGE_NO_MEMORY; then they are not to be
 * used. */
FEDGE_MUST_USE fedge_status fedge_client_states_load(fedge_client_states *states, const char *path,
                                                     fedge_error *err);

#endif
