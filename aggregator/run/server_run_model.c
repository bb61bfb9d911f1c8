#include "aggregator/run/server_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/text.h"
#include "edge/data/formats/safetensors.h"
#include "edge/wire/protocol.h"
#include "secure/crypto/sha256.h"

/* ---- which parts a model has ----------------------------------------------------------------- */

#define HASH_BYTES 32

/* A list that is being written. */
typedef struct writer {
    const uint8_t *blob;
    size_t begin, at; /* start of the open part, and its end */
    uint8_t *list;    /* NULL: the parts are only counted */
    size_t num_parts;
} writer;

static uint8_t *entry(uint8_t *list, size_t part)
{
    return list + FEDGE_PART_LIST_HEAD + part * FEDGE_PART_LIST_ENTRY;
}

static size_t list_size(size_t num_parts)
{
    return FEDGE_PART_LIST_HEAD + num_parts * FEDGE_PART_LIST_ENTRY;
}

static void close_part(writer *w)
{
    while (w->begin < w->at) {
        const size_t left = w->at - w->begin;
        const size_t size = left < FEDGE_PART_MAX_BYTES ? left : FEDGE_PART_MAX_BYTES;
        if (w->list) {
            fedge_put_u32(entry(w->list, w->num_parts), (uint32_t)size);
            fedge_sha256(w->blob + w->begin, size, entry(w->list, w->num_parts) + 4);
        }
        w->num_parts++;
        w->begin += size;
    }
}

/* [size] bytes follow that belong together. */
static void add(writer *w, size_t size)
{
    if (size >= FEDGE_PART_MIN_BYTES)
        close_part(w);
    w->at += size;
    if (size >= FEDGE_PART_MIN_BYTES || w->at - w->begin >= FEDGE_PART_MIN_BYTES)
        close_part(w);
}

static void add_all(writer *w, size_t size, const fedge_schema *schema, size_t file_size)
{
    const size_t values = fedge_safetensors_data_size(schema);
    const size_t num_files = size % file_size == 0 ? size / file_size : 1;
    assert(values <= file_size && file_size <= size);
    for (size_t i = 0; i < num_files; i++) {
        add(w, file_size - values);
        const fedge_tensor_spec *t = NULL;
        while ((t = fedge_safetensors_next(schema, t)))
            add(w, t->count * fedge_dtype_size(t->dtype));
    }
    close_part(w);
    w->at = size;
    close_part(w);
}

static fedge_status write_head(uint8_t *list, const fedge_blob *model, fedge_error *err)
{
    memcpy(list, FEDGE_PART_LIST_MAGIC, 8);
    fedge_put_u64(list + 8 + HASH_BYTES, model->size);
    return fedge_hex_decode(model->hash, list + 8, HASH_BYTES, err);
}

/* ---- whether a list saves bytes -------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    return memcmp(*(uint8_t *const *)left + 4, *(uint8_t *const *)right + 4, HASH_BYTES);
}

/* Bytes of the parts of [list] that are in [last] or more than once in [list]. */
static fedge_status count_shared(uint8_t *list, size_t num_parts, uint8_t *last, size_t num_last,
                                 size_t *bytes, fedge_error *err)
{
    const size_t count = num_parts + num_last;
    uint8_t **sorted = malloc(count * sizeof(*sorted));
    if (!sorted)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a list of %zu parts", count);
    for (size_t i = 0; i < count; i++)
        sorted[i] = i < num_parts ? entry(list, i) : entry(last, i - num_parts);
    qsort(sorted, count, sizeof(*sorted), compare);
    *bytes = 0;
    for (size_t i = 0, end; i < count; i = end) {
        size_t here = 0, part_size = 0; /* bytes of equal parts in [list], and bytes of one part */
        bool before = false;
        for (end = i; end < count && compare(&sorted[i], &sorted[end]) == 0; end++) {
            const bool mine = sorted[end] >= list && sorted[end] < entry(list, num_parts);
            part_size = mine ? fedge_get_u32(sorted[end]) : part_size;
            here += mine ? part_size : 0;
            before = before || !mine;
        }
        *bytes += before ? here : here - part_size;
    }
    free(sorted);
    return FEDGE_OK;
}

fedge_status fedge_model_parts_add(fedge_blob *model, const fedge_schema *schema, size_t file_size,
                                   fedge_blob **last, fedge_error *err)
{
    writer w = {.blob = model->bytes};
    if (model->size < FEDGE_MODEL_PARTS_MIN_BYTES)
        return FEDGE_OK;
    add_all(&w, model->size, schema, file_size);
    if (w.num_parts > FEDGE_PART_LIST_MAX_PARTS)
        return FEDGE_OK;
    const size_t num_parts = w.num_parts, size = list_size(num_parts);
    uint8_t *list = malloc(size);
    fedge_blob *blob = NULL;
    if (!list)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a list of %zu parts", num_parts);
    w = (writer){.blob = model->bytes, .list = list};
    add_all(&w, model->size, schema, file_size);
    size_t shared = model->size;
    fedge_status status = write_head(list, model, err);
    if (status != FEDGE_OK) {
        free(list);
        return status;
    }
    FEDGE_TRY(fedge_blob_new(list, size, &blob, err));
    if (*last) {
        status = count_shared(list, num_parts, (*last)->bytes,
                              ((*last)->size - FEDGE_PART_LIST_HEAD) / FEDGE_PART_LIST_ENTRY,
                              &shared, err);
    }
    if (status != FEDGE_OK) {
        fedge_blob_release(blob);
        return status;
    }
    if (shared >= model->size / FEDGE_MODEL_PARTS_KNOWN_DIVISOR)
        model->parts = fedge_blob_retain(blob);
    fedge_blob_release(*last);
    *last = blob;
    return FEDGE_OK;
}

/* ---- what clients fetch ---------------------------------------------------------------------- */

/* The model file of the present values, replacing the one that is held. */
fedge_status fedge_server_run_write_model(fedge_server_run *server, fedge_error *err)
{
    uint8_t *file = NULL;
    fedge_blob *model = NULL;
    FEDGE_TRY(fedge_global_model_write(&server->model, &file, &server->model_size,
                                       &server->control_size, err));
    FEDGE_TRY(fedge_blob_new(file, server->model_size + server->control_size, &model, err));
    /* A blob's name is the hash of all its bytes. With a control section behind the model that is
     * not the model's, which must not depend on the strategy. */
    if (server->control_size == 0)
        memcpy(server->model_hash, model->hash, sizeof(server->model_hash));
    else
        fedge_sha256_text(model->bytes, server->model_size, server->model_hash);
    fedge_blob_release(server->model_file);
    server->model_file = model;
    return fedge_model_parts_add(model, &server->plan->schema, server->model_size,
                                 &server->last_parts, err);
}

fedge_blob *fedge_server_run_take_model(fedge_server_run *server)
{
    fedge_blob *model = server->model_file;
    server->model_file = NULL;
    return model;
}

fedge_status fedge_server_run_make_deltas(const fedge_server_run *server, fedge_blob **deltas,
                                          uint32_t *count, fedge_error *err)
{
    const fedge_downlink *downlink = &server->model.downlink;
    uint32_t ages = 0;
    uint8_t *bytes = NULL;
    *count = 0;
    for (uint64_t size; ages < FEDGE_DOWNLINK_STEPS; ages++) {
        size = fedge_downlink_size(downlink, ages + 1);
        /* Sizes grow with age: no later one saves anything. */
        if (size == 0 || size >= server->model_size)
            break;
    }
    if (ages == 0)
        return FEDGE_OK;
    fedge_blob *oldest = NULL;
    fedge_status status;
    FEDGE_TRY(fedge_downlink_delta(downlink, ages, &bytes, err));
    FEDGE_TRY(fedge_blob_new(bytes, (size_t)fedge_downlink_size(downlink, ages), &oldest, err));
    /* A chain of deltas ends with the chain of each younger model. */
    while (*count + 1 < ages) {
        FEDGE_TRY_OR(fedge_blob_new_end(oldest, (size_t)fedge_downlink_size(downlink, *count + 1),
                                        &deltas[*count], err),
                     failed);
        (*count)++;
    }
    deltas[(*count)++] = oldest;
    return FEDGE_OK;
failed:
    fedge_blob_release(oldest);
    return status;
}
