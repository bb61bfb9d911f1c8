#include "aggregator/rounds/kept_updates.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"

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
    fedge_pieces_fini(&kept->pieces);
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
    fedge_status status = fedge_pieces_init(&kept->pieces, kept->schema, err);
    if (status != FEDGE_OK)
        return status;
    status = fedge_os_open_temporary(&kept->file, NULL, folder, err);
    kept->has_file = status == FEDGE_OK;
    if (status == FEDGE_OK)
        return status;
    fedge_pieces_fini(&kept->pieces);
    return fail_file(status, err);
}

static fedge_status take_room(fedge_kept_updates *kept, uint32_t place, fedge_error *err)
{
    if (kept->values[place])
        return FEDGE_OK;
    /* Divided, so that nothing overflows. The first places are in memory, the others in the file.
     */
    if (size_of(kept) <= kept->limit / ((uint64_t)place + 1)) {
        kept->values[place] = malloc(size_of(kept));
        if (kept->values[place])
            return FEDGE_OK;
    }
    const fedge_status status = kept->has_file ? FEDGE_OK : open_file(kept, err);
    if (status == FEDGE_OK && !kept->sums[place])
        kept->sums[place] = calloc(kept->pieces.num, sizeof(**kept->sums));
    return status != FEDGE_OK || kept->sums[place]
               ? status
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
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < count && status == FEDGE_OK; i++)
        status = take_room(kept, kept->num + i, err);
    kept->num += status == FEDGE_OK ? count : 0;
    return status;
}

fedge_status fedge_kept_updates_put(fedge_kept_updates *kept, uint32_t place, const int32_t *v,
                                    fedge_error *err)
{
    const size_t size = size_of(kept);
    if (kept->values[place]) {
        memcpy(kept->values[place], v, size);
        return FEDGE_OK;
    }
    uint32_t *sums = kept->sums[place];
    for (uint32_t t = 0; t < kept->schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &kept->schema->tensors[t];
        for (size_t at = 0; at < tensor->count;) {
            const fedge_piece piece = fedge_pieces_find(&kept->pieces, t, at);
            sums[piece.number] = fedge_crc32(0, v + tensor->offset + at, piece.count * sizeof(*v));
            at += piece.count;
        }
    }
    const fedge_status status =
        fedge_os_write_at(&kept->file, (uint64_t)place * size, v, size, err);
    return status == FEDGE_OK ? status : fail_file(status, err);
}

/* A whole piece from the file. */
static fedge_status read_piece(fedge_kept_updates *kept, uint32_t place, uint32_t tensor,
                               const fedge_piece *piece, int32_t *v, fedge_error *err)
{
    const size_t size = piece->count * sizeof(*v);
    const uint64_t first = kept->schema->tensors[tensor].offset + piece->at;
    fedge_status status = fedge_os_read_at(
        &kept->file, (uint64_t)place * size_of(kept) + first * sizeof(*v), v, size, err);
    if (status == FEDGE_OK && fedge_crc32(0, v, size) != kept->sums[place][piece->number]) {
        status =
            fedge_fail(err, FEDGE_CORRUPT, "%s has other bytes than were written", kept->file.path);
    }
    return status == FEDGE_OK ? status : fail_file(status, err);
}

fedge_status fedge_kept_updates_read(fedge_kept_updates *kept, uint32_t place, uint32_t tensor,
                                     size_t at, size_t count, int32_t *v, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    if (kept->values[place]) {
        memcpy(v, kept->values[place] + kept->schema->tensors[tensor].offset + at,
               count * sizeof(*v));
        return FEDGE_OK;
    }
    for (size_t done = 0; done < count && status == FEDGE_OK;) {
        int32_t whole[FEDGE_UPDATES_PIECE];
        const fedge_piece piece = fedge_pieces_find(&kept->pieces, tensor, at + done);
        const size_t skip = at + done - piece.at, left = count - done;
        const size_t taken = piece.count - skip < left ? piece.count - skip : left;
        const bool all = taken == piece.count;
        status = read_piece(kept, place, tensor, &piece, all ? v + done : whole, err);
        if (status == FEDGE_OK && !all)
            memcpy(v + done, whole + skip, taken * sizeof(*v));
        done += taken;
    }
    return status;
}

static fedge_status read_listed(void *user, uint32_t index, uint32_t tensor, size_t at,
                                size_t count, int32_t *v, fedge_error *err)
{
    fedge_kept_updates *kept = user;
    return fedge_kept_updates_read(kept, kept->order[index], tensor, at, count, v, err);
}

fedge_status fedge_kept_updates_list(fedge_kept_updates *kept, const uint32_t *places, uint32_t num,
                                     fedge_updates *updates, fedge_error *err)
{
    free(kept->order);
    kept->order = malloc(((size_t)num + 1) * sizeof(*kept->order));
    if (!kept->order)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u updates", (unsigned)num);
    memcpy(kept->order, places, num * sizeof(*places));
    *updates = (fedge_updates){.num = num, .read = read_listed, .user = kept};
    return FEDGE_OK;
}

void fedge_kept_updates_clear(fedge_kept_updates *kept)
{
    /* Memory and file stay for the next round. */
    kept->num = 0;
}
