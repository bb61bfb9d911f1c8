#include "aggregator/server/blob.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "secure/hash/sha256.h"
#include "secure/identity/identity.h"

fedge_status fedge_blob_new(uint8_t *bytes, size_t size, fedge_blob **blob, fedge_error *err)
{
    *blob = NULL;
    fedge_blob *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        free(bytes);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a blob of %zu bytes", size);
    }
    fresh->bytes = bytes;
    fresh->size = size;
    atomic_init(&fresh->references, 1);
    fedge_sha256_text(bytes, size, fresh->hash);
    *blob = fresh;
    return FEDGE_OK;
}

fedge_blob *fedge_blob_retain(fedge_blob *blob)
{
    atomic_fetch_add(&blob->references, 1);
    return blob;
}

void fedge_blob_release(fedge_blob *blob)
{
    if (blob && atomic_fetch_sub(&blob->references, 1) == 1) {
        free(blob->bytes);
        free(blob);
    }
}
