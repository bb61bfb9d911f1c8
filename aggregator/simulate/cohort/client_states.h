/* What virtual clients keep from round to round, for the strategy or as a residual
 * (edge/plan/client_hooks.h): each has a place once it has first put something, in memory up to a
 * limit and beyond that in a file without a name, with the same values.
 *
 * A client moves it as soon as it has trained, but a round that fails or is interrupted begins
 * again: until a round closes what was moved in it lies at places of its own.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_STATES_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_STATES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/os.h"
#include "edge/core/status.h"

/* How much of it lies in memory. All 0: all of it. */
typedef struct fedge_client_states_limit {
    uint64_t memory;    /* bytes of values; 0: no limit */
    const char *folder; /* for the file; NULL: that in TMPDIR, or /var/tmp */
    /* The file has been made there. Any thread; may be NULL. */
    void (*on_spill)(void *user, const char *folder);
    void *user;
} fedge_client_states_limit;

/* Where one client's values lie. */
typedef struct fedge_client_location {
    float *values; /* NULL: not in memory */
    uint32_t slot; /* in the file, from 1; 0: not there */
} fedge_client_location;

/* One that is all 0 has no clients. */
typedef struct fedge_client_states {
    uint32_t num_clients;
    size_t num_values;                /* of each */
    fedge_client_location *committed; /* (num_clients); nowhere: 0 still */
    fedge_client_location
        *pending;   /* (num_clients) as moved in the open round; nowhere: not moved */
    uint32_t round; /* closed rounds that they have seen */
    fedge_client_states_limit limit;
    pthread_mutex_t lock; /* of all that follows */
    uint64_t used;        /* bytes of values in memory */
    bool has_file;
    fedge_os_file file;
    uint32_t num_slots, num_unused;
    uint32_t *unused; /* (num_unused) slots */
} fedge_client_states;

/* Bytes of memory that they take in [rounds] rounds, each of a cohort of [cohort] clients: of all
 * that can have trained, and of an open round, at most [memory] (0: no limit); and the places. */
uint64_t fedge_client_states_size(uint32_t num_clients, uint32_t cohort, uint32_t rounds,
                                  size_t num_values, uint64_t memory);

/* Takes room for the places; the values take theirs as clients train. limit: NULL: all in memory.
 */
FEDGE_MUST_USE fedge_status fedge_client_states_init(fedge_client_states *states,
                                                     uint32_t num_clients, size_t num_values,
                                                     const fedge_client_states_limit *limit,
                                                     fedge_error *err);
void fedge_client_states_fini(fedge_client_states *states);

/* Has the client anything from closed rounds; has it put anything in the open one? */
bool fedge_client_states_has(const fedge_client_states *states, uint32_t client);
bool fedge_client_states_has_moved(const fedge_client_states *states, uint32_t client);

/* values (num_values): zeros where the client has put nothing yet. Different threads may get and
 * put those of different clients. What fails says so of the file: FEDGE_IO, FEDGE_NO_SPACE. */
FEDGE_MUST_USE fedge_status fedge_client_states_get(const fedge_client_states *states,
                                                    uint32_t client, float *values,
                                                    fedge_error *err);
/* In the open round. FEDGE_NO_MEMORY: without a limit only. */
FEDGE_MUST_USE fedge_status fedge_client_states_put(fedge_client_states *states, uint32_t client,
                                                    const float *values, fedge_error *err);
/* As of closed rounds, while none is open. */
FEDGE_MUST_USE fedge_status fedge_client_states_set(fedge_client_states *states, uint32_t client,
                                                    const float *values, fedge_error *err);

/* [round] has closed: what was moved stays so. */
void fedge_client_states_commit(fedge_client_states *states, uint32_t round);
/* The open round is dropped: all are as they were when it began. */
void fedge_client_states_roll_back(fedge_client_states *states);

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
