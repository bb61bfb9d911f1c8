#include "aggregator/rounds/kept_updates.h"

#include <stdlib.h>
#include <string.h>

void fedge_kept_updates_init(fedge_kept_updates *kept, const fedge_schema *schema, uint64_t limit)
{
    *kept = (fedge_kept_updates){.schema = schema, .limit = limit};
}

void fedge_kept_updates_fini(fedge_kept_updates *kept)
{
    if (!kept->schema)
        return;
    for (uint32_t i = 0; i < kept->capacity; i++)
        free(kept->values[i]);
    free(kept->values);
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
    const fedge_status status = fedge_os_open_temporary(&kept->file, NULL, folder, err);
    kept->has_file = status == FEDGE_OK;
    return status == FEDGE_OK ? status : fail_file(status, err);
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
    return kept->has_file ? FEDGE_OK : open_file(kept, err);
}

fedge_status fedge_kept_updates_reserve(fedge_kept_updates *kept, uint32_t count, uint32_t *first,
                                        fedge_error *err)
{
    *first = kept->num;
    if (count > kept->capacity - kept->num) {
        const uint32_t capacity = kept->num + count;
        int32_t **values = realloc(kept->values, capacity * sizeof(*values));
        if (!values)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u updates", (unsigned)capacity);
        memset(values + kept->capacity, 0, (capacity - kept->capacity) * sizeof(*values));
        kept->values = values;
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
    const fedge_status status =
        fedge_os_write_at(&kept->file, (uint64_t)place * size, v, size, err);
    return status == FEDGE_OK ? status : fail_file(status, err);
}

fedge_status fedge_kept_updates_read(fedge_kept_updates *kept, uint32_t place, uint32_t tensor,
                                     size_t at, size_t count, int32_t *v, fedge_error *err)
{
    const size_t first = kept->schema->tensors[tensor].offset + at, size = count * sizeof(*v);
    if (kept->values[place]) {
        memcpy(v, kept->values[place] + first, size);
        return FEDGE_OK;
    }
    const fedge_status status = fedge_os_read_at(
        &kept->file, (uint64_t)place * size_of(kept) + first * sizeof(*v), v, size, err);
    return status == FEDGE_OK ? status : fail_file(status, err);
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
