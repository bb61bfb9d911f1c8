#include "aggregator/rounds/updates.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"

/* ---- chunks ---------------------------------------------------------------------------------- */

fedge_status fedge_update_chunks_init(fedge_update_chunks *chunks, const fedge_schema *schema,
                                      fedge_error *err)
{
    *chunks = (fedge_update_chunks){.schema = schema,
                                    .first = calloc(schema->num_tensors, sizeof(*chunks->first))};
    if (!chunks->first)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the chunks of an update");
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        chunks->first[t] = chunks->num;
        chunks->num += (schema->tensors[t].count + FEDGE_UPDATES_CHUNK - 1) / FEDGE_UPDATES_CHUNK;
    }
    return FEDGE_OK;
}

void fedge_update_chunks_fini(fedge_update_chunks *chunks)
{
    free(chunks->first);
    *chunks = (fedge_update_chunks){0};
}

fedge_chunk fedge_update_chunks_at(const fedge_update_chunks *chunks, uint32_t tensor, size_t at,
                                   size_t wanted)
{
    const size_t total = chunks->schema->tensors[tensor].count;
    assert(at < total);
    fedge_chunk chunk = fedge_chunk_at(total, FEDGE_UPDATES_CHUNK, at, wanted);
    chunk.number += chunks->first[tensor];
    return chunk;
}

/* ---- updates kept until their round closes --------------------------------------------------- */

void fedge_kept_updates_init(fedge_kept_updates *kept, const fedge_schema *schema, uint64_t limit)
{
    *kept = (fedge_kept_updates){.schema = schema, .limit = limit};
}

void fedge_kept_updates_fini(fedge_kept_updates *kept)
{
    if (!kept->schema)
        return;
    for (uint32_t i = 0; i < kept->capacity; i++) {
        free(kept->values[i]);
        free(kept->sums[i]);
    }
    free(kept->values);
    free(kept->sums);
    fedge_update_chunks_fini(&kept->chunks);
    free(kept->order);
    if (kept->has_file)
        fedge_os_close(&kept->file);
    *kept = (fedge_kept_updates){0};
}

static size_t size_of(const fedge_kept_updates *kept)
{
    return kept->schema->num_elements * sizeof(int32_t);
}

static fedge_status fail_file(fedge_status status, fedge_error *err)
{
    return fedge_error_prefix(err, status,
                              "cannot keep a round's updates in a file (raise --robust-memory, or "
                              "name another folder in TMPDIR)");
}

static fedge_status open_file(fedge_kept_updates *kept, fedge_error *err)
{
    char folder[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(fedge_update_chunks_init(&kept->chunks, kept->schema, err));
    const fedge_status status = fedge_os_open_temporary(&kept->file, NULL, folder, err);
    kept->has_file = status == FEDGE_OK;
    if (kept->has_file)
        return FEDGE_OK;
    fedge_update_chunks_fini(&kept->chunks);
    return fail_file(status, err);
}

/* Finds the update [index] a buffer in memory, or its range of the file and a list of checksums. */
static fedge_status reserve_one(fedge_kept_updates *kept, uint32_t index, fedge_error *err)
{
    if (kept->values[index])
        return FEDGE_OK;
    /* Divided, so that nothing overflows. The first updates are in memory, the others in the file.
     */
    if (size_of(kept) <= kept->limit / ((uint64_t)index + 1)) {
        kept->values[index] = malloc(size_of(kept));
        if (kept->values[index])
            return FEDGE_OK;
    }
    if (!kept->has_file)
        FEDGE_TRY(open_file(kept, err));
    if (!kept->sums[index])
        kept->sums[index] = calloc(kept->chunks.num, sizeof(**kept->sums));
    return kept->sums[index]
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the checksums of an update");
}

fedge_status fedge_kept_updates_reserve(fedge_kept_updates *kept, uint32_t count, uint32_t *first,
                                        fedge_error *err)
{
    *first = kept->num;
    if (count > kept->capacity - kept->num) {
        const uint32_t capacity = kept->num + count;
        int32_t **values = realloc(kept->values, capacity * sizeof(*values));
        kept->values = values ? values : kept->values;
        uint32_t **sums = values ? realloc(kept->sums, capacity * sizeof(*sums)) : NULL;
        if (!sums)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u updates", (unsigned)capacity);
        kept->sums = sums;
        memset(values + kept->capacity, 0, (capacity - kept->capacity) * sizeof(*values));
        memset(sums + kept->capacity, 0, (capacity - kept->capacity) * sizeof(*sums));
        kept->capacity = capacity;
    }
    for (uint32_t i = 0; i < count; i++)
        FEDGE_TRY(reserve_one(kept, kept->num + i, err));
    kept->num += count;
    return FEDGE_OK;
}

fedge_status fedge_kept_updates_put(fedge_kept_updates *kept, uint32_t index, const int32_t *v,
                                    fedge_error *err)
{
    const size_t size = size_of(kept);
    if (kept->values[index]) {
        memcpy(kept->values[index], v, size);
        return FEDGE_OK;
    }
    uint32_t *sums = kept->sums[index];
    for (uint32_t t = 0; t < kept->schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &kept->schema->tensors[t];
        for (size_t at = 0; at < tensor->count;) {
            const fedge_chunk chunk = fedge_update_chunks_at(&kept->chunks, t, at, tensor->count);
            sums[chunk.number] = fedge_crc32(0, v + tensor->offset + at, chunk.count * sizeof(*v));
            at += chunk.count;
        }
    }
    const fedge_status status =
        fedge_os_write_at(&kept->file, (uint64_t)index * size, v, size, err);
    return status == FEDGE_OK ? status : fail_file(status, err);
}

/* Reads a whole chunk from the file. */
static fedge_status read_chunk(fedge_kept_updates *kept, uint32_t index, uint32_t tensor,
                               const fedge_chunk *chunk, int32_t *v, fedge_error *err)
{
    const size_t size = chunk->count * sizeof(*v);
    const uint64_t first = kept->schema->tensors[tensor].offset + chunk->first;
    fedge_status status = fedge_os_read_at(
        &kept->file, (uint64_t)index * size_of(kept) + first * sizeof(*v), v, size, err);
    if (status == FEDGE_OK && fedge_crc32(0, v, size) != kept->sums[index][chunk->number]) {
        status =
            fedge_fail(err, FEDGE_CORRUPT, "%s has other bytes than were written", kept->file.path);
    }
    return status == FEDGE_OK ? status : fail_file(status, err);
}

fedge_status fedge_kept_updates_read(fedge_kept_updates *kept, uint32_t index, uint32_t tensor,
                                     size_t at, size_t count, int32_t *v, fedge_error *err)
{
    if (kept->values[index]) {
        memcpy(v, kept->values[index] + kept->schema->tensors[tensor].offset + at,
               count * sizeof(*v));
        return FEDGE_OK;
    }
    for (size_t done = 0; done < count;) {
        int32_t whole[FEDGE_UPDATES_CHUNK];
        const fedge_chunk chunk =
            fedge_update_chunks_at(&kept->chunks, tensor, at + done, count - done);
        const bool all = chunk.taken == chunk.count;
        FEDGE_TRY(read_chunk(kept, index, tensor, &chunk, all ? v + done : whole, err));
        if (!all)
            memcpy(v + done, whole + chunk.skip, chunk.taken * sizeof(*v));
        done += chunk.taken;
    }
    return FEDGE_OK;
}

static fedge_status read_listed(void *user, uint32_t index, uint32_t tensor, size_t at,
                                size_t count, int32_t *v, fedge_error *err)
{
    fedge_kept_updates *kept = user;
    return fedge_kept_updates_read(kept, kept->order[index], tensor, at, count, v, err);
}

fedge_status fedge_kept_updates_list(fedge_kept_updates *kept, const uint32_t *indices,
                                     uint32_t num, fedge_updates *updates, fedge_error *err)
{
    free(kept->order);
    kept->order = malloc(((size_t)num + 1) * sizeof(*kept->order));
    if (!kept->order)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u updates", (unsigned)num);
    memcpy(kept->order, indices, num * sizeof(*indices));
    *updates = (fedge_updates){.num = num, .read = read_listed, .user = kept};
    return FEDGE_OK;
}

void fedge_kept_updates_clear(fedge_kept_updates *kept)
{
    /* Memory and file stay for the next round. */
    kept->num = 0;
}
