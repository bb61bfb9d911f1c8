/* A client's store: in a directory, where it outlives the process, or in memory.
 *
 *   STATE/lock           locked by the process that uses the store; a second one is refused
 *   STATE/state.json     format, run, incarnation, last server time, last errors, with a seal
 *                        (edge/json/json.h)
 *   STATE/blobs/HASH     plan and model, possibly partial: a download resumes where it stopped
 *   STATE/result         the unacknowledged result: the UPLOAD message (edge/wire/protocol.h; it
 *                        has a CRC and the size and CRC of what follows), then its sections
 *   STATE/kv/RUN/KEY+crc32   a value of the trainer, then its CRC-32, u32 little-endian; older
 *                        releases wrote neither "+crc32" nor a CRC
 *
 * Every load of a blob checks its SHA-256, so blobs are not fsynced, which saves flash wear. Other
 * files are replaced atomically and durably. Nothing of a damaged file is ever used. Several
 * threads may call the functions, one thread at a time for each blob or key.
 */
#ifndef FEDGE_CLIENT_STORE_H
#define FEDGE_CLIENT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

#define FEDGE_STORE_FORMAT 1     /* newer formats are refused, older ones read */
#define FEDGE_STORE_MAX_ERRORS 4 /* kept for the next HELLO */
#define FEDGE_STORE_MAX_KEY 64   /* letters, digits, "-", "_", "." (not first) */
#define FEDGE_STORE_MAX_KEYS 64  /* keys of one run */
#define FEDGE_STORE_MAX_STATE ((size_t)16 * 1024)
#define FEDGE_STORE_DEFAULT_MAX_BYTES ((uint64_t)8 << 30)

typedef struct fedge_store fedge_store;

/* State of an earlier process. Plain data. */
typedef struct fedge_store_state {
    uint32_t format;
    char run_id[FEDGE_RUN_ID_TEXT]; /* "" before the first WELCOME */
    uint32_t incarnation;
    uint64_t server_time_ms; /* Unix time of the last server, or 0 */
    uint32_t num_errors;
    char errors[FEDGE_STORE_MAX_ERRORS][FEDGE_MAX_TEXT]; /* newest first */
} fedge_store_state;

/* Opens the directory [path], creating it if missing; NULL: a store in memory. No blob, result or
 * value may exceed [max_bytes]; 0: FEDGE_STORE_DEFAULT_MAX_BYTES. FEDGE_BUSY: another client uses
 * the directory; FEDGE_UNSUPPORTED: a newer format. */
FEDGE_MUST_USE fedge_status fedge_store_open(const char *path, uint64_t max_bytes,
                                             fedge_store **store, fedge_error *err);
void fedge_store_close(fedge_store *store); /* NULL is allowed */

/* The state; all 0 if there is none. FEDGE_CORRUPT names the file. */
FEDGE_MUST_USE fedge_status fedge_store_read_state(fedge_store *store, fedge_store_state *state,
                                                   fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_store_write_state(fedge_store *store,
                                                    const fedge_store_state *state,
                                                    fedge_error *err);

/* Adds the file [path] as a blob, which is read in place and never copied or removed. It must not
 * change. FEDGE_NOT_FOUND, FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_store_seed(fedge_store *store, const char *path,
                                             fedge_error *err);

/* The hash of that file, "" if there is none, and its size. */
const char *fedge_store_seed_hash(const fedge_store *store, uint64_t *size);

/* *held: stored bytes of blob [hash], at most [size]; 0 if there is none. */
FEDGE_MUST_USE fedge_status fedge_store_blob_held(fedge_store *store, const char *hash,
                                                  uint64_t size, uint64_t *held, fedge_error *err);
/* Appends at [offset], the number of stored bytes. [total]: size of the whole blob, for max_bytes.
 */
FEDGE_MUST_USE fedge_status fedge_store_blob_append(fedge_store *store, const char *hash,
                                                    uint64_t offset, const uint8_t *data,
                                                    size_t size, uint64_t total, fedge_error *err);
/* Checks that the whole blob is stored and has its hash. FEDGE_CORRUPT: it has another and was
 * removed; FEDGE_NOT_FOUND or FEDGE_TRUNCATED: it is incomplete. Takes 64 KiB of memory. */
FEDGE_MUST_USE fedge_status fedge_store_blob_check(fedge_store *store, const char *hash,
                                                   uint64_t size, fedge_error *err);
/* A blob in the store, to be read in parts. */
typedef struct fedge_store_blob {
    fedge_store *store;
    const char *hash;
    uint64_t size;
} fedge_store_blob;
/* Bytes [offset, offset + n) of [blob], a fedge_store_blob. */
FEDGE_MUST_USE fedge_status fedge_store_blob_read(void *blob, uint64_t offset, uint8_t *out,
                                                  size_t n, fedge_error *err);
/* Loads the whole blob, malloc'ed, after fedge_store_blob_check, with the same errors. */
FEDGE_MUST_USE fedge_status fedge_store_blob_load(fedge_store *store, const char *hash,
                                                  uint64_t size, uint8_t **data, fedge_error *err);
/* Counts the blobs, partial ones included. */
FEDGE_MUST_USE fedge_status fedge_store_blobs_count(fedge_store *store, unsigned *count,
                                                    fedge_error *err);
/* Calls [visit] with the hash of each blob; it may remove that blob. */
FEDGE_MUST_USE fedge_status fedge_store_blobs_visit(fedge_store *store, fedge_os_visit visit,
                                                    void *user, fedge_error *err);
/* Removes every blob but the [count] of [hashes] (each may be ""). */
FEDGE_MUST_USE fedge_status fedge_store_blobs_keep(fedge_store *store, const char *const *hashes,
                                                   size_t count, fedge_error *err);

/* Stores the one result of upload->size bytes, durably when this returns. */
FEDGE_MUST_USE fedge_status fedge_store_result_put(fedge_store *store, const fedge_upload *upload,
                                                   const uint8_t *bytes, fedge_error *err);
/* FEDGE_NOT_FOUND if there is none; FEDGE_CORRUPT if it was damaged, and so removed. */
FEDGE_MUST_USE fedge_status fedge_store_result_find(fedge_store *store, fedge_upload *upload,
                                                    fedge_error *err);
/* Bytes [offset, offset + size) of the result. */
FEDGE_MUST_USE fedge_status fedge_store_result_read(fedge_store *store, uint64_t offset,
                                                    uint8_t *out, size_t size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_store_result_discard(fedge_store *store, fedge_error *err);

/* Stores a trainer's value for the run [run_id]. FEDGE_INVALID_ARGUMENT: a bad key; FEDGE_TOO_BIG:
 * the value, or too many keys. */
FEDGE_MUST_USE fedge_status fedge_store_put(fedge_store *store, const char *run_id, const char *key,
                                            const void *data, size_t size, fedge_error *err);
/* *data is malloc'ed. FEDGE_NOT_FOUND; FEDGE_CORRUPT if it was damaged, and so removed. */
FEDGE_MUST_USE fedge_status fedge_store_get(fedge_store *store, const char *run_id, const char *key,
                                            uint8_t **data, size_t *size, fedge_error *err);

/* Removes the result and the values of an ended run. Blobs stay, since another run's model may
 * share parts with them. */
FEDGE_MUST_USE fedge_status fedge_store_discard_run(fedge_store *store, fedge_error *err);

#endif
