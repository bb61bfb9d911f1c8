#include "client/parts.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/text.h"
#include "edge/wire/protocol.h"
#include "secure/crypto/sha256.h"

#define MAX_SOURCES 8                 /* blobs that share parts, including the model */
#define CHUNK ((size_t)1 << 16)       /* bytes copied at once */
#define MAX_STEP ((uint64_t)16 << 20) /* bytes copied in one call, during which the link waits */
#define MIN_COPY ((uint64_t)16 << 10) /* bytes worth copying: another FETCH takes longer */
#define HASH_BYTES 32
#define ENTRY_HASH 4 /* offset in an entry, after the part's size */

/* A blob and its list. */
typedef struct source {
    char blob[FEDGE_HASH_TEXT], list[FEDGE_HASH_TEXT]; /* list "": made here */
    uint8_t *bytes;                                    /* size of the list */
    uint32_t num_parts;
    uint64_t size, held; /* the blob's bytes: total, stored */
} source;

/* A part that some source has. */
typedef struct known {
    const uint8_t *hash;
    uint64_t offset;
    uint32_t size, source;
} known;

struct fedge_parts {
    fedge_store *store;
    const char *plan;
    source sources[MAX_SOURCES]; /* the first is the model */
    uint32_t num_sources;
    known *known; /* (num_known), sorted by hash, then source and offset */
    size_t num_known;
    uint64_t offset; /* offset of [part] */
    uint32_t part;   /* the model's part to handle next */
    uint8_t chunk[CHUNK];
};

static const uint8_t *entry(const source *of, uint32_t part)
{
    return of->bytes + FEDGE_PART_LIST_HEAD + (size_t)part * FEDGE_PART_LIST_ENTRY;
}

static fedge_status unfit(fedge_error *err, const char *why)
{
    return fedge_fail(err, FEDGE_MISMATCH, "a list of a model's parts is of no use: %s", why);
}

/* Reads the head to find the list's blob. */
static fedge_status read_head(source *s, const uint8_t *head, uint64_t list_size, fedge_error *err)
{
    if (memcmp(head, FEDGE_PART_LIST_MAGIC, 8) != 0)
        return unfit(err, "it is none");
    fedge_hex_encode(head + 8, HASH_BYTES, s->blob);
    s->size = fedge_get_u64(head + 40);
    const uint64_t entries = list_size - FEDGE_PART_LIST_HEAD;
    if (entries % FEDGE_PART_LIST_ENTRY != 0 || list_size > FEDGE_PART_LIST_MAX_SIZE)
        return unfit(err, "its size");
    s->num_parts = (uint32_t)(entries / FEDGE_PART_LIST_ENTRY);
    return FEDGE_OK;
}

/* Loads the list [hash], and adds up its parts. */
static fedge_status load(fedge_parts *p, source *s, const char *hash, uint64_t size,
                         fedge_error *err)
{
    uint64_t sum = 0;
    memcpy(s->list, hash, sizeof(s->list));
    if (size <= FEDGE_PART_LIST_HEAD || size > FEDGE_PART_LIST_MAX_SIZE)
        return unfit(err, "its size");
    FEDGE_TRY(fedge_store_blob_load(p->store, hash, size, &s->bytes, err));
    FEDGE_TRY(read_head(s, s->bytes, size, err));
    /* A list with the right hash may have wrong sizes, so they are checked before use. */
    for (uint32_t i = 0; i < s->num_parts; i++) {
        const uint32_t bytes = fedge_get_u32(entry(s, i));
        sum += bytes;
        if (bytes == 0 || bytes > FEDGE_PART_MAX_BYTES)
            return unfit(err, "the size of a part");
    }
    if (sum != s->size)
        return unfit(err, "its parts are not the whole");
    return fedge_store_blob_held(p->store, s->blob, s->size, &s->held, err);
}

/* Visits blob [name]: if it is the list of a stored blob, that blob becomes a source. */
static fedge_status look_at(void *user, const char *name, fedge_error *err)
{
    fedge_parts *p = user;
    uint8_t head[FEDGE_PART_LIST_HEAD];
    uint64_t size = 0;
    source *s = &p->sources[p->num_sources];
    /* Names of 64 digits are blobs; others are foreign to this store. */
    if (p->num_sources == MAX_SOURCES || strlen(name) != sizeof(s->list) - 1 ||
        strcmp(name, p->sources[0].list) == 0)
        return FEDGE_OK;
    fedge_status status = fedge_store_blob_held(p->store, name, UINT64_MAX, &size, err);
    fedge_store_blob blob = {p->store, name, size};
    if (status != FEDGE_OK || size <= sizeof(head) ||
        fedge_store_blob_read(&blob, 0, head, sizeof(head), NULL) ||
        memcmp(head, FEDGE_PART_LIST_MAGIC, 8) != 0)
        return status;
    memset(s, 0, sizeof(*s));
    status = load(p, s, name, size, err);
    /* The list of a blob that is not stored is useless. */
    if (status == FEDGE_OK && s->held > 0) {
        p->num_sources++;
        return FEDGE_OK;
    }
    free(s->bytes);
    s->bytes = NULL;
    /* Without a damaged list the model can be fetched whole. */
    return status == FEDGE_IO || status == FEDGE_NO_MEMORY ? status : FEDGE_OK;
}

/* Makes the list of a blob that has none, cut like the model: frozen tensors of two models of a
 * kind have the same offsets. */
static fedge_status make_list(fedge_parts *p, source *s, fedge_error *err)
{
    const source *model = &p->sources[0];
    const fedge_store_blob blob = {p->store, s->blob, s->size};
    uint8_t *part = malloc(FEDGE_PART_MAX_BYTES);
    s->bytes = malloc(FEDGE_PART_LIST_HEAD + (size_t)model->num_parts * FEDGE_PART_LIST_ENTRY);
    fedge_status status = part && s->bytes
                              ? FEDGE_OK
                              : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a list of parts");
    uint64_t offset = 0;
    for (uint32_t i = 0; !status && i < model->num_parts; i++) {
        uint8_t *at = s->bytes + FEDGE_PART_LIST_HEAD + (size_t)i * FEDGE_PART_LIST_ENTRY;
        const uint32_t size = fedge_get_u32(entry(model, i));
        /* A partial blob is used as far as it is stored. */
        if (offset + size > s->held)
            break;
        status = fedge_store_blob_read((void *)(uintptr_t)&blob, offset, part, size, err);
        if (status == FEDGE_OK) {
            fedge_put_u32(at, size);
            fedge_sha256(part, size, at + ENTRY_HASH);
            s->num_parts = i + 1;
        }
        offset += size;
    }
    free(part);
    return status;
}

static bool is_source(const fedge_parts *p, const char *name)
{
    for (uint32_t i = 0; i < p->num_sources; i++) {
        if (strcmp(name, p->sources[i].blob) == 0 || strcmp(name, p->sources[i].list) == 0)
            return true;
    }
    return strcmp(name, p->plan) == 0;
}

/* Makes a source of blob [name], of which [size] bytes are stored and which has no list. */
static fedge_status take_unlisted(fedge_parts *p, const char *name, uint64_t size, fedge_error *err)
{
    source *s = &p->sources[p->num_sources];
    if (p->num_sources == MAX_SOURCES || size == 0 || is_source(p, name) ||
        strlen(name) != sizeof(s->blob) - 1)
        return FEDGE_OK;
    memset(s, 0, sizeof(*s));
    memcpy(s->blob, name, sizeof(s->blob));
    s->size = s->held = size;
    const fedge_status status = make_list(p, s, err);
    p->num_sources += status == FEDGE_OK;
    return status;
}

static fedge_status look_at_unlisted(void *user, const char *name, fedge_error *err)
{
    fedge_parts *p = user;
    uint64_t size = 0;
    FEDGE_TRY(fedge_store_blob_held(p->store, name, UINT64_MAX, &size, err));
    return take_unlisted(p, name, size, err);
}

static int compare(const void *left, const void *right)
{
    const known *a = left, *b = right;
    const int order = memcmp(a->hash, b->hash, HASH_BYTES);
    return order                    ? order
           : a->source != b->source ? (a->source < b->source ? 1 : -1) /* the model comes last */
                                    : (a->offset > b->offset) - (a->offset < b->offset);
}

static fedge_status sort_parts(fedge_parts *p, fedge_error *err)
{
    size_t count = 0;
    for (uint32_t i = 0; i < p->num_sources; i++)
        count += p->sources[i].num_parts;
    p->known = calloc(count + 1, sizeof(*p->known));
    if (!p->known)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a list of %zu parts", count);
    for (uint32_t i = 0; i < p->num_sources; i++) {
        uint64_t offset = 0;
        for (uint32_t part = 0; part < p->sources[i].num_parts; part++) {
            const uint8_t *at = entry(&p->sources[i], part);
            const uint32_t size = fedge_get_u32(at);
            p->known[p->num_known++] = (known){at + ENTRY_HASH, offset, size, i};
            offset += size;
        }
    }
    qsort(p->known, p->num_known, sizeof(*p->known), compare);
    return FEDGE_OK;
}

/* Finds a stored copy of a part, or NULL. [held]: stored bytes of the model. */
static const known *find(const fedge_parts *p, const uint8_t *at, uint64_t held)
{
    size_t low = 0, high = p->num_known;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (memcmp(p->known[mid].hash, at + ENTRY_HASH, HASH_BYTES) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    /* Several sources may have it, one of them incompletely. */
    for (; low < p->num_known; low++) {
        const known *k = &p->known[low];
        const uint64_t there = k->source == 0 ? held : p->sources[k->source].held;
        if (memcmp(k->hash, at + ENTRY_HASH, HASH_BYTES) != 0)
            return NULL;
        if (k->size == fedge_get_u32(at) && k->offset + k->size <= there)
            return k;
    }
    return NULL;
}

/* Removes blobs that share no part with the model: a second model may take disk space only if it
 * saves a download. */
static fedge_status drop_others(fedge_parts *p, fedge_error *err)
{
    const source *model = &p->sources[0];
    const char *keep[3 + 2 * MAX_SOURCES] = {p->plan, model->blob, model->list};
    size_t count = 3;
    bool used[MAX_SOURCES] = {false};
    for (uint32_t i = 0; i < model->num_parts; i++) {
        const known *k = find(p, entry(model, i), 0);
        if (k)
            used[k->source] = true;
    }
    for (uint32_t i = 1; i < p->num_sources; i++) {
        if (used[i]) {
            keep[count++] = p->sources[i].blob;
            keep[count++] = p->sources[i].list;
        }
    }
    return fedge_store_blobs_keep(p->store, keep, count, err);
}

static fedge_status fill(fedge_parts *p, const fedge_task *task, fedge_error *err)
{
    const source *model = &p->sources[0];
    uint64_t seed_size = 0;
    const char *seed = fedge_store_seed_hash(p->store, &seed_size);
    FEDGE_TRY(load(p, &p->sources[0], task->parts, task->parts_size, err));
    if (strcmp(model->blob, task->model) != 0 || model->size != task->model_size)
        return unfit(err, "it is of another model");
    FEDGE_TRY(fedge_store_blobs_visit(p->store, look_at, p, err));
    FEDGE_TRY(fedge_store_blobs_visit(p->store, look_at_unlisted, p, err));
    FEDGE_TRY(take_unlisted(p, seed, seed_size, err));
    FEDGE_TRY(sort_parts(p, err));
    return drop_others(p, err);
}

fedge_status fedge_parts_open(fedge_store *store, const fedge_task *task, const char *plan,
                              fedge_parts **parts, fedge_error *err)
{
    *parts = NULL;
    fedge_parts *p = calloc(1, sizeof(*p));
    if (!p)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a list of parts");
    p->store = store;
    p->plan = plan;
    p->num_sources = 1;
    const fedge_status status = fill(p, task, err);
    if (status != FEDGE_OK)
        fedge_parts_free(p);
    else
        *parts = p;
    return status;
}

/* Copies the present part from *held on, where an earlier copy may have stopped. */
static fedge_status copy(fedge_parts *p, const known *k, uint64_t *held, fedge_error *err)
{
    const source *model = &p->sources[0];
    fedge_store_blob from = {p->store, p->sources[k->source].blob, p->sources[k->source].size};
    for (uint64_t done = *held - p->offset; done < k->size;) {
        const size_t n = k->size - done < CHUNK ? (size_t)(k->size - done) : CHUNK;
        FEDGE_TRY(fedge_store_blob_read(&from, k->offset + done, p->chunk, n, err));
        FEDGE_TRY(
            fedge_store_blob_append(p->store, model->blob, *held, p->chunk, n, model->size, err));
        done += n;
        *held += n;
    }
    return FEDGE_OK;
}

/* The end of the range to fetch from the unknown part [part] at [offset]: the next part worth
 * copying. */
static uint64_t end_of_run(const fedge_parts *p, uint32_t part, uint64_t offset, uint64_t held)
{
    const source *model = &p->sources[0];
    uint64_t end = offset, copied = 0;
    for (; part < model->num_parts; part++) {
        const uint8_t *at = entry(model, part);
        const uint32_t size = fedge_get_u32(at);
        /* Parts fetched in this range can be copied after it. */
        if (!find(p, at, end > held ? end : held))
            copied = 0;
        else if ((copied += size) >= MIN_COPY)
            return end + size - copied;
        end += size;
    }
    return end - copied;
}

fedge_status fedge_parts_go_on(fedge_parts *p, uint64_t *held, uint64_t *end, fedge_error *err)
{
    const source *model = &p->sources[0];
    const uint64_t stop = *held + MAX_STEP;
    for (; p->part < model->num_parts && *held < stop; p->part++) {
        const uint8_t *at = entry(model, p->part);
        const uint32_t size = fedge_get_u32(at);
        if (p->offset + size > *held) {
            const known *k = find(p, at, *held);
            if (!k) {
                *end = end_of_run(p, p->part, p->offset, *held);
                return FEDGE_OK;
            }
            FEDGE_TRY(copy(p, k, held, err));
        }
        p->offset += size;
    }
    *end = *held;
    return FEDGE_OK;
}

void fedge_parts_free(fedge_parts *parts)
{
    if (!parts)
        return;
    for (uint32_t i = 0; i < MAX_SOURCES; i++)
        free(parts->sources[i].bytes);
    free(parts->known);
    free(parts);
}
