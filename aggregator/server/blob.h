/* Blobs: the immutable bytes that clients fetch (the plan, a model), named by their SHA-256.
 *
 * Counted references, because a slow client may still read the last round's model when the next
 * one is announced. Any thread may retain and release.
 */
#ifndef FEDGE_AGGREGATOR_SERVER_BLOB_H
#define FEDGE_AGGREGATOR_SERVER_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/io/protocol.h"

typedef struct fedge_blob {
    char hash[FEDGE_HASH_TEXT];
    uint8_t *bytes;
    size_t size;
    _Atomic uint32_t references;
} fedge_blob;

/* Takes ownership of [bytes] (malloc'ed), also on failure; one reference. */
FEDGE_MUST_USE fedge_status fedge_blob_new(uint8_t *bytes, size_t size, fedge_blob **blob,
                                           fedge_error *err);
fedge_blob *fedge_blob_retain(fedge_blob *blob);
void fedge_blob_release(fedge_blob *blob); /* NULL is fine */

#endif
