#include "aggregator/server/blob.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "secure/hash/sha256.h"
#include "secure/identity/identity.h"

static fedge_status make(uint8_t *bytes, size_t size, fedge_blob **blob, fedge_error *err)
{
    *blob = NULL;
    fedge_blob *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a blob of %zu bytes", size);
    fresh->bytes = bytes;
    fresh->size = size;
    fresh->file.fd = -1;
    pthread_mutex_init(&fresh->lock, NULL);
    atomic_init(&fresh->references, 1);
    fedge_sha256_text(bytes, size, fresh->hash);
    *blob = fresh;
    return FEDGE_OK;
}

fedge_status fedge_blob_new(uint8_t *bytes, size_t size, fedge_blob **blob, fedge_error *err)
{
    *blob = NULL;
    const fedge_status status = make(bytes, size, blob, err);
    if (status != FEDGE_OK)
        free(bytes);
    return status;
}

fedge_status fedge_blob_new_end(fedge_blob *whole, size_t size, fedge_blob **blob, fedge_error *err)
{
    *blob = NULL;
    assert(whole->bytes && size <= whole->size);
    const fedge_status status = make(whole->bytes + (whole->size - size), size, blob, err);
    if (status == FEDGE_OK)
        (*blob)->whole = fedge_blob_retain(whole);
    return status;
}

fedge_status fedge_blob_read(fedge_blob *blob, uint64_t offset, void *out, size_t size,
                             fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    pthread_mutex_lock(&blob->lock);
    blob->num_readers++;
    /* The bytes are copied without the lock. Should they move to a file meanwhile they stay in
     * [left] until the last reader is done. */
    const uint8_t *bytes = blob->bytes;
    pthread_mutex_unlock(&blob->lock);
    if (bytes)
        memcpy(out, bytes + offset, size);
    else
        status = fedge_os_read_at(&blob->file, offset, out, size, err);
    pthread_mutex_lock(&blob->lock);
    if (--blob->num_readers == 0) {
        free(blob->left);
        blob->left = NULL;
    }
    pthread_mutex_unlock(&blob->lock);
    return status;
}

fedge_status fedge_blob_move_to_file(fedge_blob *blob, const char *path, fedge_error *err)
{
    fedge_os_file file;
    uint64_t size = 0;
    fedge_status status = fedge_os_open(&file, path, FEDGE_OS_READ, err);
    if (status != FEDGE_OK)
        return status;
    status = fedge_os_file_size(&file, &size, err);
    if (status == FEDGE_OK && size != blob->size) {
        status = fedge_fail(err, FEDGE_MISMATCH, "%s has %llu bytes, its blob %zu", path,
                            (unsigned long long)size, blob->size);
    }
    pthread_mutex_lock(&blob->lock);
    /* Once: of two who have written the same file the second changes nothing. */
    if (status == FEDGE_OK && blob->bytes) {
        blob->left = blob->bytes;
        blob->bytes = NULL;
        blob->file = file;
        file.fd = -1;
        if (blob->num_readers == 0) {
            free(blob->left);
            blob->left = NULL;
        }
    }
    pthread_mutex_unlock(&blob->lock);
    if (file.fd >= 0)
        fedge_os_close(&file);
    return status;
}

fedge_blob *fedge_blob_retain(fedge_blob *blob)
{
    const uint32_t before = atomic_fetch_add(&blob->references, 1);
    assert(before > 0);
    (void)before;
    return blob;
}

void fedge_blob_release(fedge_blob *blob)
{
    /* The last one sees 1, whatever the order in which threads let go. */
    const uint32_t before = blob ? atomic_fetch_sub(&blob->references, 1) : 0;
    assert(!blob || before > 0);
    if (before == 1) {
        if (blob->file.fd >= 0)
            fedge_os_close(&blob->file);
        pthread_mutex_destroy(&blob->lock);
        fedge_blob_release(blob->parts);
        if (blob->whole)
            fedge_blob_release(blob->whole);
        else
            free(blob->bytes);
        free(blob);
    }
}
