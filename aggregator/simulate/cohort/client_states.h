/* States of virtual clients: the values that each keeps between rounds, for the strategy or as a
 * residual (edge/plan/client_hooks.h). They are in memory up to a limit, and beyond it in an
 * unnamed file, with the same values.
 *
 * A client changes its state as soon as it has trained, but a round that fails or is interrupted
 * begins again. So the changes of the open round are pending until it closes.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_STATES_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_STATES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/os.h"
#include "edge/core/status.h"

/* Limits the memory of the states. All 0: no limit. */
typedef struct fedge_client_states_limit {
    uint64_t memory;    /* bytes of values; 0: no limit */
    const char *folder; /* the file's folder; NULL: TMPDIR, or /var/tmp */
    /* Called on any thread once the file is made in [folder]; may be NULL. */
    void (*on_spill)(void *user, const char *folder);
    void *user;
} fedge_client_states_limit;

/* Where one client's values are. All 0: nowhere, and they are zeros. */
typedef struct fedge_client_location {
    float *values; /* NULL: not in memory */
    uint32_t slot; /* 1-based position in the file; 0: not in the file */
} fedge_client_location;

/* All 0: no clients. */
typedef struct fedge_client_states {
    uint32_t num_clients;
    size_t num_values;                /* values of each client */
    fedge_client_location *committed; /* (num_clients): values after the closed rounds */
    fedge_client_location *pending;   /* (num_clients): open round's values; nowhere: unchanged */
    uint32_t round;                   /* the last closed round */
    fedge_client_states_limit limit;
    pthread_mutex_t lock; /* guards the fields below */
    uint64_t used;        /* bytes of values in memory */
    bool has_file;
    fedge_os_file file;
    uint32_t num_slots, num_unused;
    uint32_t *unused; /* (num_unused) slots */
} fedge_client_states;

/* Bytes of memory in [rounds] rounds with cohorts of [cohort] clients: the states of all clients
 * that can have trained and those of an open round, at most [memory] (0: no limit), and the tables.
 */
uint64_t fedge_client_states_size(uint32_t num_clients, uint32_t cohort, uint32_t rounds,
                                  size_t num_values, uint64_t memory);

/* Takes memory for the tables; values take theirs as clients train. [limit] NULL: all in memory. */
FEDGE_MUST_USE fedge_status fedge_client_states_init(fedge_client_states *states,
                                                     uint32_t num_clients, size_t num_values,
                                                     const fedge_client_states_limit *limit,
                                                     fedge_error *err);
void fedge_client_states_fini(fedge_client_states *states);

/* Has the client a state of closed rounds? Has it changed its state in the open one? */
bool fedge_client_states_has(const fedge_client_states *states, uint32_t client);
bool fedge_client_states_has_pending(const fedge_client_states *states, uint32_t client);

/* Fills values (num_values), with zeros for a client without a state. Threads may get and put
 * states of different clients at once. FEDGE_IO, FEDGE_NO_SPACE: of the file. */
FEDGE_MUST_USE fedge_status fedge_client_states_get(const fedge_client_states *states,
                                                    uint32_t client, float *values,
                                                    fedge_error *err);
/* Changes a state in the open round. FEDGE_NO_MEMORY: only without a limit. */
FEDGE_MUST_USE fedge_status fedge_client_states_put(fedge_client_states *states, uint32_t client,
                                                    const float *values, fedge_error *err);
/* Sets a state of closed rounds, while no round is open. */
FEDGE_MUST_USE fedge_status fedge_client_states_set(fedge_client_states *states, uint32_t client,
                                                    const float *values, fedge_error *err);

/* Makes the changes of [round], which has closed, permanent. */
void fedge_client_states_commit(fedge_client_states *states, uint32_t round);
/* Discards the changes of the open round. */
void fedge_client_states_roll_back(fedge_client_states *states);

/* Writes the states of all clients that have one; a failure leaves no file. Little-endian:
 * "FEDGECV1", u32 round, u32 clients, u64 values of each, u32 how many follow, u32 CRC-32 of all
 * that follows; then for each u32 client and its values as f32. */
FEDGE_MUST_USE fedge_status fedge_client_states_save(const fedge_client_states *states,
                                                     const char *path, fedge_error *err);
/* Loads into unused states, which must not be used after a failure. FEDGE_NOT_FOUND,
 * FEDGE_TRUNCATED, FEDGE_CORRUPT, FEDGE_NO_MEMORY; FEDGE_MISMATCH: of other clients or another
 * model. */
FEDGE_MUST_USE fedge_status fedge_client_states_load(fedge_client_states *states, const char *path,
                                                     fedge_error *err);

#endif
