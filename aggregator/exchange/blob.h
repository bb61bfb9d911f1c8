/* Blobs: the immutable bytes that clients fetch (the plan, a model), named by their SHA-256.
 *
 * Counted references, because a slow client may still read the last round's model when the next
 * one is announced. A model lies in memory until its checkpoint is on the disk; from then on it is
 * read from that file, which the system keeps in its page cache, and which may be removed
 * meanwhile. What is read from a file is checked: a byte that the disk has changed never goes out
 * under the blob's name. Any thread may retain, read and release.
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

#define FEDGE_BLOB_CHUNK ((size_t)16384) /* bytes with a checksum of their own */

typedef struct fedge_blob {
    char hash[FEDGE_HASH_TEXT];
    size_t size;
    _Atomic uint32_t references;
    pthread_mutex_t lock; /* of what follows */
    uint8_t *bytes;       /* NULL: they are in file */
    fedge_os_file file;
    uint32_t *sums;       /* CRC-32s of its chunks, with file */
    _Atomic bool damaged; /* what file gave could not be used, and it has not been mended since */
    struct fedge_blob
        *parts; /* the list of its parts (edge/wire/protocol.h); NULL: none is offered */
    struct fedge_blob *parent; /* whose bytes these are a part of; NULL: they are its own */
    uint8_t *retired;          /* what bytes was, until nobody reads it any more */
    uint32_t num_readers;
} fedge_blob;

/* Takes ownership of [bytes] (malloc'ed), also on failure; one reference. */
FEDGE_MUST_USE fedge_status fedge_blob_new(uint8_t *bytes, size_t size, fedge_blob **blob,
                                           fedge_error *err);
/* The last [size] bytes of [parent], which lies in memory: no bytes are copied. */
FEDGE_MUST_USE fedge_status fedge_blob_new_end(fedge_blob *parent, size_t size, fedge_blob **blob,
                                               fedge_error *err);
/* Reads [size] bytes at [offset], which are inside of the blob. FEDGE_CORRUPT: the file has other
 * bytes by now, and [out] is garbage; FEDGE_IO. The blob is damaged then, until it is mended. */
FEDGE_MUST_USE fedge_status fedge_blob_read(fedge_blob *blob, uint64_t offset, void *out,
                                            size_t size, fedge_error *err);
/* The file [path] has the blob's bytes and is never written again: they are read from it from now
 * on, and their memory is free. On failure they stay in memory. */
FEDGE_MUST_USE fedge_status fedge_blob_move_to_file(fedge_blob *blob, const char *path,
                                                    fedge_error *err);
bool fedge_blob_is_damaged(const fedge_blob *blob);
/* Takes ownership of [bytes] (malloc'ed), blob->size of them that were made anew, also on failure:
 * they are read from memory from now on. FEDGE_MISMATCH: they are not the blob's. */
FEDGE_MUST_USE fedge_status fedge_blob_mend(fedge_blob *blob, uint8_t *bytes, fedge_error *err);
fedge_blob *fedge_blob_retain(fedge_blob *blob);
void fedge_blob_release(fedge_blob *blob); /* NULL is fine */

#endif
