/* What trainers of one's own keep for their virtual clients (fedge_client_put), in memory.
 *
 * As on a device, a value stays when its round fails. But a run that was interrupted begins its
 * open phase again, so the values before it are kept until it closes. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_VALUES_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_VALUES_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

typedef struct fedge_trainer_values {
    pthread_mutex_t mutex;
    uint32_t num_clients;
    struct fedge_trainer_value **clients; /* (num_clients): a list each; NULL: none */
} fedge_trainer_values;

/* FEDGE_NO_MEMORY; call _fini also then. */
FEDGE_MUST_USE fedge_status fedge_trainer_values_init(fedge_trainer_values *values,
                                                      uint32_t num_clients, fedge_error *err);
void fedge_trainer_values_fini(fedge_trainer_values *values);

/* From any thread. FEDGE_INVALID_ARGUMENT: a bad key; FEDGE_TOO_BIG: too many keys. */
FEDGE_MUST_USE fedge_status fedge_trainer_values_put(fedge_trainer_values *values, uint32_t client,
                                                     const char *key, const void *data, size_t size,
                                                     fedge_error *err);
/* *data: malloc'ed; NULL for an empty value. FEDGE_NOT_FOUND. */
FEDGE_MUST_USE fedge_status fedge_trainer_values_get(fedge_trainer_values *values, uint32_t client,
                                                     const char *key, void **data, size_t *size,
                                                     fedge_error *err);

/* The rest while no trainer works; _commit and _roll_back of all 0 are fine. */

/* Ends the open phase: what was put is there to stay. */
void fedge_trainer_values_commit(fedge_trainer_values *values);
/* Takes back what was put in the open phase. */
void fedge_trainer_values_roll_back(fedge_trainer_values *values);

/* Writes all values; a failure leaves no file. Little-endian: "FEDGETV1", u32 clients, u32 CRC-32
 * of all that follows, u64 its bytes; then for each value u32 client, u32 bytes of its key, u64
 * bytes, key and bytes. */
FEDGE_MUST_USE fedge_status fedge_trainer_values_save(const fedge_trainer_values *values,
                                                      const char *path, fedge_error *err);
/* Loads into values that have none. FEDGE_NOT_FOUND, FEDGE_TRUNCATED, FEDGE_CORRUPT,
 * FEDGE_NO_MEMORY; FEDGE_MISMATCH: of another number of clients. */
FEDGE_MUST_USE fedge_status fedge_trainer_values_load(fedge_trainer_values *values,
                                                      const char *path, fedge_error *err);

#endif
