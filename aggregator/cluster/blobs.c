#include "aggregator/cluster/blobs.h"

#include <stdlib.h>
#include <string.h>

fedge_status fedge_rank_blobs_init(fedge_rank_blobs *self, const fedge_collective *collective,
                                   const fedge_log *log, fedge_error *err)
{
    *self = (fedge_rank_blobs){
        .collective = collective, .log = log, .chunk = malloc(FEDGE_RANKS_CHUNK_BYTES)};
    return self->chunk ? FEDGE_OK
                       : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for models of other ranks");
}

void fedge_rank_blobs_fini(fedge_rank_blobs *self)
{
    for (uint32_t i = 0; i < FEDGE_RANKS_BLOBS; i++)
        fedge_blob_release(self->blobs[i]);
    free(self->chunk);
    *self = (fedge_rank_blobs){0};
}

static uint32_t index_of(const fedge_rank_blobs *self, const char *hash)
{
    uint32_t i = 0;
    while (i < FEDGE_RANKS_BLOBS && (!self->blobs[i] || strcmp(self->blobs[i]->hash, hash) != 0))
        i++;
    return i;
}

fedge_blob *fedge_rank_blobs_find(const fedge_rank_blobs *self, const char *hash)
{
    const uint32_t index = index_of(self, hash);
    return index < FEDGE_RANKS_BLOBS ? self->blobs[index] : NULL;
}

void fedge_rank_blobs_drop(fedge_rank_blobs *self, const char *hash)
{
    const uint32_t index = index_of(self, hash);
    if (index < FEDGE_RANKS_BLOBS) {
        fedge_blob_release(self->blobs[index]);
        self->blobs[index] = NULL;
    }
}

/* Takes the reference, also on failure. */
static fedge_status keep(fedge_rank_blobs *self, fedge_blob *blob, fedge_error *err)
{
    for (uint32_t i = 0; i < FEDGE_RANKS_BLOBS; i++) {
        if (!self->blobs[i]) {
            self->blobs[i] = blob;
            FEDGE_LOG(self->log, FEDGE_LOG_DEBUG, "blob-broadcast",
                      fedge_log_int("rank", self->collective->rank),
                      fedge_log_str("sha256", blob->hash),
                      fedge_log_int("bytes", (int64_t)blob->size));
            return FEDGE_OK;
        }
    }
    fedge_blob_release(blob);
    return fedge_fail(err, FEDGE_INTERNAL, "more than %u blobs are served", FEDGE_RANKS_BLOBS);
}

static size_t next_size(uint64_t left)
{
    return left < FEDGE_RANKS_CHUNK_BYTES ? (size_t)left : FEDGE_RANKS_CHUNK_BYTES;
}

fedge_status fedge_rank_blobs_broadcast(fedge_rank_blobs *self, fedge_blob *blob, fedge_error *err)
{
    /* Chunks are needed, as a model may be larger than what MPI counts in one call. */
    for (uint64_t at = 0; at < blob->size;) {
        const size_t size = next_size(blob->size - at);
        FEDGE_TRY(fedge_blob_read(blob, at, self->chunk, size, err));
        fedge_collective_broadcast(self->collective, self->chunk, size, 0);
        at += size;
    }
    return keep(self, fedge_blob_retain(blob), err);
}

fedge_status fedge_rank_blobs_receive(fedge_rank_blobs *self,
                                      const fedge_rank_message_blob *announced, fedge_error *err)
{
    fedge_blob *blob = NULL;
    uint8_t *bytes = malloc((size_t)announced->size + 1);
    if (!bytes) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model of %llu bytes",
                          (unsigned long long)announced->size);
    }
    for (uint64_t at = 0; at < announced->size;) {
        const size_t size = next_size(announced->size - at);
        fedge_collective_broadcast(self->collective, bytes + at, size, 0);
        at += size;
    }
    FEDGE_TRY(fedge_blob_new(bytes, (size_t)announced->size, &blob, err));
    /* The transport between machines may have no checksum. */
    if (strcmp(blob->hash, announced->hash) != 0) {
        fedge_blob_release(blob);
        return fedge_fail(err, FEDGE_CORRUPT, "a model has changed on its way from rank 0");
    }
    return keep(self, blob, err);
}
