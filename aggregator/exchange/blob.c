#include "aggregator/exchange/blob.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/updates.h"
#include "edge/core/message.h"
#include "secure/crypto/sha256.h"
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

fedge_status fedge_blob_new_end(fedge_blob *parent, size_t size, fedge_blob **blob,
                                fedge_error *err)
{
    *blob = NULL;
    assert(parent->bytes && size <= parent->size);
    FEDGE_TRY(make(parent->bytes + (parent->size - size), size, blob, err));
    (*blob)->parent = fedge_blob_retain(parent);
    return FEDGE_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns the bytes in memory, which stay until [end_reading]; NULL: they are in the file. */
static const uint8_t *begin_reading(fedge_blob *blob)
{
    pthread_mutex_lock(&blob->lock);
    blob->num_readers++;
    /* The bytes are used without the lock. If they move to a file meanwhile they stay in [retired]
     * until the last reader is done. */
    const uint8_t *bytes = blob->bytes;
    pthread_mutex_unlock(&blob->lock);
    return bytes;
}

static void end_reading(fedge_blob *blob)
{
    pthread_mutex_lock(&blob->lock);
    if (--blob->num_readers == 0) {
        free(blob->retired);
        blob->retired = NULL;
    }
    pthread_mutex_unlock(&blob->lock);
}

/* Reads and checks a whole chunk. */
static fedge_status read_chunk(fedge_blob *blob, const fedge_chunk *chunk, uint8_t *out,
                               fedge_error *err)
{
    fedge_status status = fedge_os_read_at(&blob->file, chunk->first, out, chunk->count, err);
    if (status == FEDGE_OK && fedge_crc32(0, out, chunk->count) != blob->sums[chunk->number]) {
        status = fedge_fail(err, FEDGE_CORRUPT,
                            "%s is damaged: its bytes are not those of SHA-256 %s any more",
                            blob->file.path, blob->hash);
    }
    if (status != FEDGE_OK)
        atomic_store(&blob->damaged, true);
    return status;
}

static fedge_status read_file(fedge_blob *blob, uint64_t offset, uint8_t *out, size_t size,
                              fedge_error *err)
{
    uint8_t whole[FEDGE_BLOB_CHUNK];
    for (size_t done = 0; done < size;) {
        const fedge_chunk chunk =
            fedge_chunk_at(blob->size, FEDGE_BLOB_CHUNK, (size_t)offset + done, size - done);
        const bool all = chunk.taken == chunk.count;
        FEDGE_TRY(read_chunk(blob, &chunk, all ? out + done : whole, err));
        if (!all)
            memcpy(out + done, whole + chunk.skip, chunk.taken);
        done += chunk.taken;
    }
    return FEDGE_OK;
}

fedge_status fedge_blob_read(fedge_blob *blob, uint64_t offset, void *out, size_t size,
                             fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    const uint8_t *bytes = begin_reading(blob);
    if (bytes)
        memcpy(out, bytes + offset, size);
    else
        status = read_file(blob, offset, out, size, err);
    end_reading(blob);
    return status;
}

bool fedge_blob_is_damaged(const fedge_blob *blob)
{
    return atomic_load(&blob->damaged);
}

/* ---- to a file, and back --------------------------------------------------------------------- */

/* Computes the checksums of the bytes, if they are in memory; *sums is malloc'ed. */
static fedge_status sum_chunks(fedge_blob *blob, uint32_t **sums, fedge_error *err)
{
    const size_t num = (blob->size + FEDGE_BLOB_CHUNK - 1) / FEDGE_BLOB_CHUNK;
    *sums = malloc(num * sizeof(**sums) + 1);
    if (!*sums)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the checksums of a model's file");
    const uint8_t *bytes = begin_reading(blob);
    for (size_t at = 0; bytes && at < blob->size; at += FEDGE_BLOB_CHUNK) {
        const fedge_chunk chunk = fedge_chunk_at(blob->size, FEDGE_BLOB_CHUNK, at, blob->size);
        (*sums)[chunk.number] = fedge_crc32(0, bytes + at, chunk.count);
    }
    end_reading(blob);
    return FEDGE_OK;
}

fedge_status fedge_blob_move_to_file(fedge_blob *blob, const char *path, fedge_error *err)
{
    fedge_os_file file;
    uint64_t size = 0;
    uint32_t *sums = NULL;
    fedge_status status;
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_READ, err));
    FEDGE_TRY_OR(fedge_os_file_size(&file, &size, err), done);
    if (size != blob->size) {
        status = fedge_fail(err, FEDGE_MISMATCH, "%s has %llu bytes, its blob %zu", path,
                            (unsigned long long)size, blob->size);
        goto done;
    }
    FEDGE_TRY_OR(sum_chunks(blob, &sums, err), done);
    pthread_mutex_lock(&blob->lock);
    /* A second move to the same file changes nothing. */
    if (blob->bytes && blob->file.fd < 0) {
        blob->retired = blob->bytes;
        blob->bytes = NULL;
        blob->file = file;
        blob->sums = sums;
        sums = NULL;
        file.fd = -1;
        if (blob->num_readers == 0) {
            free(blob->retired);
            blob->retired = NULL;
        }
    }
    pthread_mutex_unlock(&blob->lock);
done:
    free(sums);
    if (file.fd >= 0)
        fedge_os_close(&file);
    return status;
}

fedge_status fedge_blob_mend(fedge_blob *blob, uint8_t *bytes, fedge_error *err)
{
    char hash[FEDGE_HASH_TEXT];
    fedge_sha256_text(bytes, blob->size, hash);
    if (strcmp(hash, blob->hash) != 0) {
        free(bytes);
        return fedge_fail(err, FEDGE_MISMATCH, "the rebuilt file has SHA-256 %s, not %s", hash,
                          blob->hash);
    }
    pthread_mutex_lock(&blob->lock);
    /* The file stays open while a thread reads from it. */
    if (!blob->bytes) {
        blob->bytes = bytes;
        bytes = NULL;
    }
    atomic_store(&blob->damaged, false);
    pthread_mutex_unlock(&blob->lock);
    free(bytes);
    return FEDGE_OK;
}

/* ---- references ------------------------------------------------------------------------------ */

fedge_blob *fedge_blob_retain(fedge_blob *blob)
{
    const uint32_t before = atomic_fetch_add(&blob->references, 1);
    assert(before > 0);
    (void)before;
    return blob;
}

void fedge_blob_release(fedge_blob *blob)
{
    /* The last release sees 1, in whatever order threads release. */
    const uint32_t before = blob ? atomic_fetch_sub(&blob->references, 1) : 0;
    assert(!blob || before > 0);
    if (before == 1) {
        if (blob->file.fd >= 0)
            fedge_os_close(&blob->file);
        free(blob->sums);
        pthread_mutex_destroy(&blob->lock);
        fedge_blob_release(blob->parts);
        if (blob->parent)
            fedge_blob_release(blob->parent);
        else
            free(blob->bytes);
        free(blob);
    }
}
