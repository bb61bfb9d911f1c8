/* Blobs: the immutable bytes that clients fetch (the plan, a model), named by their SHA-256.
 *
 * References are counted, because a slow client may still read the last round's model when the next
 * one is announced. A model stays in memory until its checkpoint is on the disk; from then on it is
 * read from that file, which may be removed meanwhile. Each read from a file is checked, so bytes
 * that the disk has changed are never sent. Any thread may retain, read and release.
 */
#ifndef FEDGE_AGGREGATOR_EXCHANGE_BLOB_H
#define FEDGE_AGGREGATOR_EXCHANGE_BLOB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/wire/protocol.h"

#define FEDGE_BLOB_CHUNK ((size_t)16384) /* bytes that share a checksum */

typedef struct fedge_blob {
    char hash[FEDGE_HASH_TEXT];
    size_t size;
    _Atomic uint32_t references;
    pthread_mutex_t lock; /* guards the members below */
    uint8_t *bytes;       /* NULL: they are in [file] */
    fedge_os_file file;
    uint32_t *sums;            /* CRC-32s of the chunks of [file] */
    _Atomic bool damaged;      /* reading [file] failed, and the blob is not mended yet */
    struct fedge_blob *parts;  /* list of its parts (edge/wire/protocol.h); NULL: none */
    struct fedge_blob *parent; /* owner of [bytes]; NULL: this blob */
    uint8_t *retired; /* bytes that have moved to [file], until their last reader is done */
    uint32_t num_readers;
} fedge_blob;

/* Takes ownership of [bytes] (malloc'ed), also on failure; one reference. */
FEDGE_MUST_USE fedge_status fedge_blob_new(uint8_t *bytes, size_t size, fedge_blob **blob,
                                           fedge_error *err);
/* The last [size] bytes of [parent], which lies in memory: no bytes are copied. */
FEDGE_MUST_USE fedge_status fedge_blob_new_end(fedge_blob *parent, size_t size, fedge_blob **blob,
                                               fedge_error *err);
/* Reads [size] bytes at [offset], which are inside of the blob. FEDGE_CORRUPT: the file's bytes
 * have changed, and [out] is garbage. After this and FEDGE_IO the blob is damaged until it is
 * mended. */
FEDGE_MUST_USE fedge_status fedge_blob_read(fedge_blob *blob, uint64_t offset, void *out,
                                            size_t size, fedge_error *err);
/* Frees the blob's memory and reads from the file [path] from now on, which has the same bytes and
 * is never written again. On failure the bytes stay in memory. */
FEDGE_MUST_USE fedge_status fedge_blob_move_to_file(fedge_blob *blob, const char *path,
                                                    fedge_error *err);
bool fedge_blob_is_damaged(const fedge_blob *blob);
/* Reads from [bytes] (malloc'ed, blob->size) from now on; takes ownership, also on failure.
 * FEDGE_MISMATCH: they are not the blob's. */
FEDGE_MUST_USE fedge_status fedge_blob_mend(fedge_blob *blob, uint8_t *bytes, fedge_error *err);
fedge_blob *fedge_blob_retain(fedge_blob *blob);
void fedge_blob_release(fedge_blob *blob); /* NULL is fine */

#endif
