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

void fedge_stored_updates_init(fedge_stored_updates *stored, const fedge_schema *schema,
                               uint64_t limit)
{
    *stored = (fedge_stored_updates){.schema = schema, .limit = limit};
}

void fedge_stored_updates_fini(fedge_stored_updates *stored)
{
    if (!stored->schema)
        return;
    for (uint32_t i = 0; i < stored->capacity; i++) {
        free(stored->values[i]);
        free(stored->sums[i]);
    }
    free(stored->values);
    free(stored->sums);
    fedge_update_chunks_fini(&stored->chunks);
    free(stored->order);
    if (stored->has_file)
        fedge_os_close(&stored->file);
    *stored = (fedge_stored_updates){0};
}

static size_t size_of(const fedge_stored_updates *stored)
{
    return stored->schema->num_elements * sizeof(int32_t);
}

static fedge_status fail_file(fedge_status status, fedge_error *err)
{
    return fedge_error_prefix(err, status,
                              "cannot keep a round's updates in a file (raise --robust-memory, or "
                              "name another folder in TMPDIR)");
}

static fedge_status open_file(fedge_stored_updates *stored, fedge_error *err)
{
    char folder[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(fedge_update_chunks_init(&stored->chunks, stored->schema, err));
    const fedge_status status = fedge_os_open_temporary(&stored->file, NULL, folder, err);
    stored->has_file = status == FEDGE_OK;
    if (stored->has_file)
        return FEDGE_OK;
    fedge_update_chunks_fini(&stored->chunks);
    return fail_file(status, err);
}

/* Reserves for update [index] a buffer in memory, or a range of the file and a list of checksums.
 */
static fedge_status reserve_one(fedge_stored_updates *stored, uint32_t index, fedge_error *err)
{
    if (stored->values[index])
        return FEDGE_OK;
    /* Dividing avoids an overflow. The first updates are in memory, the others in the file.
     */
    if (size_of(stored) <= stored->limit / ((uint64_t)index + 1)) {
        stored->values[index] = malloc(size_of(stored));
        if (stored->values[index])
            return FEDGE_OK;
    }
    if (!stored->has_file)
        FEDGE_TRY(open_file(stored, err));
    if (!stored->sums[index])
        stored->sums[index] = calloc(stored->chunks.num, sizeof(**stored->sums));
    return stored->sums[index]
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the checksums of an update");
}

fedge_status fedge_stored_updates_reserve(fedge_stored_updates *stored, uint32_t count,
                                          uint32_t *first, fedge_error *err)
{
    *first = stored->num;
    if (count > stored->capacity - stored->num) {
        const uint32_t capacity = stored->num + count;
        int32_t **values = realloc(stored->values, capacity * sizeof(*values));
        stored->values = values ? values : stored->values;
        uint32_t **sums = values ? realloc(stored->sums, capacity * sizeof(*sums)) : NULL;
        if (!sums)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u updates", (unsigned)capacity);
        stored->sums = sums;
        memset(values + stored->capacity, 0, (capacity - stored->capacity) * sizeof(*values));
        memset(sums + stored->capacity, 0, (capacity - stored->capacity) * sizeof(*sums));
        stored->capacity = capacity;
    }
    for (uint32_t i = 0; i < count; i++)
        FEDGE_TRY(reserve_one(stored, stored->num + i, err));
    stored->num += count;
    return FEDGE_OK;
}

fedge_status fedge_stored_updates_put(fedge_stored_updates *stored, uint32_t index,
                                      const int32_t *v, fedge_error *err)
{
    const size_t size = size_of(stored);
    if (stored->values[index]) {
        memcpy(stored->values[index], v, size);
        return FEDGE_OK;
    }
    uint32_t *sums = stored->sums[index];
    for (uint32_t t = 0; t < stored->schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &stored->schema->tensors[t];
        for (size_t at = 0; at < tensor->count;) {
            const fedge_chunk chunk = fedge_update_chunks_at(&stored->chunks, t, at, tensor->count);
            sums[chunk.number] = fedge_crc32(0, v + tensor->offset + at, chunk.count * sizeof(*v));
            at += chunk.count;
        }
    }
    const fedge_status status =
        fedge_os_write_at(&stored->file, (uint64_t)index * size, v, size, err);
    return status == FEDGE_OK ? status : fail_file(status, err);
}

/* Reads a whole chunk from the file. */
static fedge_status read_chunk(fedge_stored_updates *stored, uint32_t index, uint32_t tensor,
                               const fedge_chunk *chunk, int32_t *v, fedge_error *err)
{
    const size_t size = chunk->count * sizeof(*v);
    const uint64_t first = stored->schema->tensors[tensor].offset + chunk->first;
    fedge_status status = fedge_os_read_at(
        &stored->file, (uint64_t)index * size_of(stored) + first * sizeof(*v), v, size, err);
    if (status == FEDGE_OK && fedge_crc32(0, v, size) != stored->sums[index][chunk->number]) {
        status = fedge_fail(err, FEDGE_CORRUPT, "%s has other bytes than were written",
                            stored->file.path);
    }
    return status == FEDGE_OK ? status : fail_file(status, err);
}

fedge_status fedge_stored_updates_read(fedge_stored_updates *stored, uint32_t index,
                                       uint32_t tensor, size_t at, size_t count, int32_t *v,
                                       fedge_error *err)
{
    if (stored->values[index]) {
        memcpy(v, stored->values[index] + stored->schema->tensors[tensor].offset + at,
               count * sizeof(*v));
        return FEDGE_OK;
    }
    for (size_t done = 0; done < count;) {
        int32_t whole[FEDGE_UPDATES_CHUNK];
        const fedge_chunk chunk =
            fedge_update_chunks_at(&stored->chunks, tensor, at + done, count - done);
        const bool all = chunk.taken == chunk.count;
        FEDGE_TRY(read_chunk(stored, index, tensor, &chunk, all ? v + done : whole, err));
        if (!all)
            memcpy(v + done, whole + chunk.skip, chunk.taken * sizeof(*v));
        done += chunk.taken;
    }
    return FEDGE_OK;
}

static fedge_status read_listed(void *user, uint32_t index, uint32_t tensor, size_t at,
                                size_t count, int32_t *v, fedge_error *err)
{
    fedge_stored_updates *stored = user;
    return fedge_stored_updates_read(stored, stored->order[index], tensor, at, count, v, err);
}

fedge_status fedge_stored_updates_list(fedge_stored_updates *stored, const uint32_t *indices,
                                       uint32_t num, fedge_updates *updates, fedge_error *err)
{
    free(stored->order);
    stored->order = malloc(((size_t)num + 1) * sizeof(*stored->order));
    if (!stored->order)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u updates", (unsigned)num);
    memcpy(stored->order, indices, num * sizeof(*indices));
    *updates = (fedge_updates){.num = num, .read = read_listed, .user = stored};
    return FEDGE_OK;
}

void fedge_stored_updates_clear(fedge_stored_updates *stored)
{
    /* Memory and file stay for the next round. */
    stored->num = 0;
}
