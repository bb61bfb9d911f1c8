#include "client/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/store_backend.h"
#include "edge/core/bytes.h"
#include "edge/json/json.h"
#include "secure/crypto/sha256.h"

struct fedge_store {
    fedge_store_backend backend;
    uint64_t max_bytes;
    size_t result_header; /* size of the UPLOAD message before the result, once known */
    char seed_path[FEDGE_OS_MAX_PATH], seed_hash[FEDGE_HASH_TEXT]; /* "": none */
    uint64_t seed_size;
};

/* --- opening --------------------------------------------------------------------------------- */

fedge_status fedge_store_open(const char *path, uint64_t max_bytes, fedge_store **store,
                              fedge_error *err)
{
    *store = NULL;
    fedge_store *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a store");
    fresh->max_bytes = max_bytes ? max_bytes : FEDGE_STORE_DEFAULT_MAX_BYTES;
    fedge_status status = path ? fedge_store_backend_dir(path, &fresh->backend, err)
                               : fedge_store_backend_memory(&fresh->backend, err);
    if (status != FEDGE_OK) {
        free(fresh);
        return status;
    }
    fedge_store_state state;
    status = fedge_store_read_state(fresh, &state, err);
    if (status != FEDGE_OK) {
        fedge_store_close(fresh);
        return fedge_error_prefix(err, status, "state directory %s", path);
    }
    *store = fresh;
    return FEDGE_OK;
}

void fedge_store_close(fedge_store *store)
{
    if (!store)
        return;
    store->backend.close(store->backend.user);
    free(store);
}

static fedge_status check_size(const fedge_store *store, const char *what, uint64_t size,
                               fedge_error *err)
{
    if (size <= store->max_bytes && size <= SIZE_MAX / 2)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_TOO_BIG, "%s has %llu bytes; the store takes at most %llu", what,
                      (unsigned long long)size, (unsigned long long)store->max_bytes);
}

/* Reads a whole file to a new block, with a NUL after it. */
static fedge_status read_all(fedge_store *store, const char *name, uint64_t limit, uint8_t **data,
                             size_t *size, fedge_error *err)
{
    uint64_t length;
    FEDGE_TRY(store->backend.size(store->backend.user, name, &length, err));
    if (length > limit) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s has %llu bytes; the limit is %llu", name,
                          (unsigned long long)length, (unsigned long long)limit);
    }
    uint8_t *block = malloc((size_t)length + 1);
    if (!block) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %llu bytes of %s",
                          (unsigned long long)length, name);
    }
    const fedge_status status =
        store->backend.read(store->backend.user, name, 0, block, (size_t)length, err);
    if (status != FEDGE_OK) {
        free(block);
        return status;
    }
    block[length] = '\0';
    *data = block;
    *size = (size_t)length;
    return FEDGE_OK;
}

/* --- state ----------------------------------------------------------------------------------- */

static const fedge_json_field state_fields[] = {
    {.key = "format",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_REQUIRED,
     FEDGE_JSON_AT(fedge_store_state, format)},
    {.key = "run-id", .kind = FEDGE_JSON_TEXT, FEDGE_JSON_AT(fedge_store_state, run_id)},
    {.key = "incarnation", .kind = FEDGE_JSON_U32, FEDGE_JSON_AT(fedge_store_state, incarnation)},
    {.key = "server-time-ms",
     .kind = FEDGE_JSON_U64,
     FEDGE_JSON_AT(fedge_store_state, server_time_ms)},
    {.key = "errors",
     .kind = FEDGE_JSON_TEXT,
     .flags = FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(fedge_store_state, errors, num_errors)},
    {.key = NULL}};

static fedge_status parse_state(const char *text, size_t size, fedge_store_state *state,
                                fedge_error *err)
{
    fedge_json json;
    const fedge_json_options options = {.name = "state.json",
                                        .lines = true,
                                        .status = FEDGE_CORRUPT,
                                        .max_size = FEDGE_STORE_MAX_STATE,
                                        .max_depth = 4,
                                        .max_values = 64};
    /* Check the seal first: damage that is valid JSON by chance would be believed. */
    FEDGE_TRY(fedge_seal_check(text, size, options.name, err));
    FEDGE_TRY(fedge_json_open(&json, text, size, &options, err));
    const fedge_status status = fedge_json_read(&json, json.root, state_fields, state, err);
    fedge_json_close(&json);
    return status;
}

fedge_status fedge_store_read_state(fedge_store *store, fedge_store_state *state, fedge_error *err)
{
    uint8_t *text = NULL;
    size_t size = 0;
    memset(state, 0, sizeof(*state));
    fedge_status status = read_all(store, "state.json", FEDGE_STORE_MAX_STATE, &text, &size, err);
    if (status == FEDGE_NOT_FOUND)
        return FEDGE_OK;
    FEDGE_TRY(status);
    status = parse_state((const char *)text, size, state, err);
    free(text);
    /* The file is not removed: run and incarnation prevent offering a result to the wrong round,
     * and a person should notice that the disk fails. */
    if (status == FEDGE_CORRUPT)
        fedge_error_prefix(err, status, "remove state.json to start again");
    if (status == FEDGE_OK && state->format > FEDGE_STORE_FORMAT) {
        status =
            fedge_fail(err, FEDGE_UNSUPPORTED,
                       "state.json has format %u; this release reads up to %d: install a newer "
                       "one or use another state directory",
                       state->format, FEDGE_STORE_FORMAT);
    }
    return status;
}

fedge_status fedge_store_write_state(fedge_store *store, const fedge_store_state *state,
                                     fedge_error *err)
{
    fedge_store_state copy = *state;
    char *text = NULL, seal[FEDGE_SEAL_SIZE + 1];
    size_t size = 0;
    copy.format = FEDGE_STORE_FORMAT;
    FEDGE_TRY(fedge_json_print(state_fields, &copy, &text, &size, err));
    fedge_seal_make(text, size, seal);
    seal[FEDGE_SEAL_SIZE] = '\n';
    const fedge_status status = store->backend.replace(store->backend.user, "state.json",
                                                       (fedge_bytes_view){text, size - 1},
                                                       (fedge_bytes_view){seal, sizeof(seal)}, err);
    free(text);
    return status;
}

static fedge_status count_name(void *user, const char *name, fedge_error *err)
{
    (void)name;
    (void)err;
    ++*(unsigned *)user;
    return FEDGE_OK;
}

/* --- blobs ----------------------------------------------------------------------------------- */

#define NAME_SIZE 192
#define CHUNK ((size_t)1 << 16) /* bytes of a blob read at once */

static void blob_name(const char *hash, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "blobs/%.64s", hash);
}

/* Fills out[0, size) with the bytes from [offset] on. */
typedef fedge_status (*read_at_fn)(void *user, uint64_t offset, uint8_t *out, size_t size,
                                   fedge_error *err);

/* SHA-256 of [size] bytes, chunk by chunk: a model may take most of a device's memory. */
static fedge_status hash_chunks(read_at_fn read, void *user, uint64_t size,
                                char text[FEDGE_HASH_TEXT], fedge_error *err)
{
    fedge_sha256_stream *stream = NULL;
    fedge_status status = fedge_sha256_stream_new(size, &stream, err);
    uint8_t *chunk = malloc(CHUNK);
    if (status == FEDGE_OK && !chunk)
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read a blob");
    for (uint64_t at = 0; at < size && !status;) {
        const size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        status = read(user, at, chunk, n, err);
        if (status == FEDGE_OK)
            fedge_sha256_stream_add(stream, chunk, n);
        at += n;
    }
    if (status == FEDGE_OK)
        fedge_sha256_stream_text(stream, text);
    fedge_sha256_stream_free(stream);
    free(chunk);
    return status;
}

static fedge_status read_file(void *user, uint64_t offset, uint8_t *out, size_t size,
                              fedge_error *err)
{
    return fedge_os_read_at(user, offset, out, size, err);
}

fedge_status fedge_store_seed(fedge_store *store, const char *path, fedge_error *err)
{
    if (strlen(path) >= sizeof(store->seed_path)) {
        return fedge_fail(err, FEDGE_TOO_BIG, "the path %.100s... has over %d bytes", path,
                          FEDGE_OS_MAX_PATH - 1);
    }
    fedge_os_file file;
    uint64_t size = 0;
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_READ, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_os_file_size(&file, &size, err), done);
    FEDGE_TRY_OR(check_size(store, path, size, err), done);
    /* Hashed once, at the start: a model takes seconds on a small board. */
    status = hash_chunks(read_file, &file, size, store->seed_hash, err);
done:
    fedge_os_close(&file);
    FEDGE_TRY(status);
    store->seed_size = size;
    (void)snprintf(store->seed_path, sizeof(store->seed_path), "%s", path);
    return FEDGE_OK;
}

const char *fedge_store_seed_hash(const fedge_store *store, uint64_t *size)
{
    *size = store->seed_hash[0] ? store->seed_size : 0;
    return store->seed_hash;
}

static bool is_seed(const fedge_store *store, const char *hash, uint64_t size)
{
    return store->seed_size == size && strcmp(store->seed_hash, hash) == 0;
}

fedge_status fedge_store_blob_held(fedge_store *store, const char *hash, uint64_t size,
                                   uint64_t *held, fedge_error *err)
{
    char name[NAME_SIZE];
    blob_name(hash, name);
    *held = size;
    /* A seed blob is complete, in a separate file. */
    if (is_seed(store, hash, size))
        return FEDGE_OK;
    *held = 0;
    fedge_status status = store->backend.size(store->backend.user, name, held, err);
    if (status == FEDGE_NOT_FOUND)
        return FEDGE_OK;
    /* This client did not write a file longer than the blob; fedge_store_blob_check refuses it. */
    *held = *held < size ? *held : size;
    return status;
}

fedge_status fedge_store_blob_append(fedge_store *store, const char *hash, uint64_t offset,
                                     const uint8_t *data, size_t size, uint64_t total,
                                     fedge_error *err)
{
    char name[NAME_SIZE];
    uint64_t held;
    blob_name(hash, name);
    FEDGE_TRY(check_size(store, name, total, err));
    FEDGE_TRY(fedge_store_blob_held(store, hash, total, &held, err));
    /* The file's size decides, not the session's offset: after a partly failed write, a gap would
     * break the hash, which only the complete download would show. */
    if (held != offset || size > total - offset) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s: %llu bytes are held, not %llu", name,
                          (unsigned long long)held, (unsigned long long)offset);
    }
    return store->backend.write_at(store->backend.user, name, offset,
                                   (fedge_bytes_view){data, size}, err);
}

fedge_status fedge_store_blob_read(void *blob, uint64_t offset, uint8_t *out, size_t n,
                                   fedge_error *err)
{
    const fedge_store_blob *b = blob;
    char name[NAME_SIZE];
    fedge_os_file file;
    if (!is_seed(b->store, b->hash, b->size)) {
        blob_name(b->hash, name);
        return b->store->backend.read(b->store->backend.user, name, offset, out, n, err);
    }
    /* Opened for each read: it may be on a removable disk. */
    FEDGE_TRY(fedge_os_open(&file, b->store->seed_path, FEDGE_OS_READ, err));
    const fedge_status status = fedge_os_read_at(&file, offset, out, n, err);
    fedge_os_close(&file);
    return status;
}

/* A changed seed file is no longer used. */
static fedge_status seed_changed(fedge_store *store, fedge_error *err)
{
    store->seed_hash[0] = '\0';
    return fedge_fail(err, FEDGE_CORRUPT, "the seed blob %s has changed", store->seed_path);
}

fedge_status fedge_store_blob_check(fedge_store *store, const char *hash, uint64_t size,
                                    fedge_error *err)
{
    char name[NAME_SIZE], actual[FEDGE_HASH_TEXT];
    const bool seed = is_seed(store, hash, size);
    fedge_store_blob b = {store, hash, size};
    blob_name(hash, name);
    FEDGE_TRY(check_size(store, name, size, err));
    /* Checked before each use, not once after the download: flash memory may fail later. */
    const fedge_status status = hash_chunks(fedge_store_blob_read, &b, size, actual, err);
    if (seed && (status == FEDGE_TRUNCATED || status == FEDGE_NOT_FOUND))
        return seed_changed(store, err);
    if (status != FEDGE_OK || strcmp(actual, hash) == 0)
        return status;
    if (seed)
        return seed_changed(store, err);
    FEDGE_TRY(store->backend.remove(store->backend.user, name, err));
    return fedge_fail(err, FEDGE_CORRUPT, "blob %s has the SHA-256 %s: removed", hash, actual);
}

fedge_status fedge_store_blob_load(fedge_store *store, const char *hash, uint64_t size,
                                   uint8_t **data, fedge_error *err)
{
    *data = NULL;
    FEDGE_TRY(fedge_store_blob_check(store, hash, size, err));
    uint8_t *bytes = malloc((size_t)size);
    if (!bytes) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a blob of %llu bytes",
                          (unsigned long long)size);
    }
    fedge_store_blob b = {store, hash, size};
    const fedge_status status = fedge_store_blob_read(&b, 0, bytes, (size_t)size, err);
    if (status != FEDGE_OK)
        free(bytes);
    else
        *data = bytes;
    return status;
}

fedge_status fedge_store_blobs_count(fedge_store *store, unsigned *count, fedge_error *err)
{
    *count = 0;
    return fedge_store_blobs_visit(store, count_name, count, err);
}

fedge_status fedge_store_blobs_visit(fedge_store *store, fedge_os_visit visit, void *user,
                                     fedge_error *err)
{
    return store->backend.list(store->backend.user, "blobs", visit, user, err);
}

typedef struct keep {
    fedge_store *store;
    const char *const *hashes;
    size_t count;
} keep;

static fedge_status remove_blob(void *user, const char *name, fedge_error *err)
{
    const keep *k = user;
    char path[NAME_SIZE];
    for (size_t i = 0; i < k->count; i++) {
        if (strcmp(name, k->hashes[i]) == 0)
            return FEDGE_OK;
    }
    blob_name(name, path);
    return k->store->backend.remove(k->store->backend.user, path, err);
}

fedge_status fedge_store_blobs_keep(fedge_store *store, const char *const *hashes, size_t count,
                                    fedge_error *err)
{
    keep k = {store, hashes, count};
    return fedge_store_blobs_visit(store, remove_blob, &k, err);
}

/* --- the result ------------------------------------------------------------------------------ */

#define RESULT "result"
#define UPLOAD_MAX_SIZE (FEDGE_MESSAGE_HEADER_SIZE + FEDGE_MESSAGE_MAX_META)

fedge_status fedge_store_result_put(fedge_store *store, const fedge_upload *upload,
                                    const uint8_t *bytes, fedge_error *err)
{
    FEDGE_TRY(check_size(store, "the result", upload->size, err));
    uint8_t *header = malloc(UPLOAD_MAX_SIZE);
    if (!header)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to store a result");
    size_t size;
    fedge_status status;
    FEDGE_TRY_OR(fedge_upload_pack(upload, header, UPLOAD_MAX_SIZE, &size, err), done);
    /* One write replaces header and bytes: a crash leaves the old or the new result. */
    FEDGE_TRY_OR(store->backend.replace(store->backend.user, RESULT,
                                        (fedge_bytes_view){header, size},
                                        (fedge_bytes_view){bytes, (size_t)upload->size}, err),
                 done);
    store->result_header = size;
done:
    free(header);
    return status;
}

/* Checks the CRC of the result's bytes, chunk by chunk. */
static fedge_status check_bytes(fedge_store *store, const fedge_upload *upload, uint8_t *chunk,
                                size_t chunk_size, fedge_error *err)
{
    uint32_t crc = 0;
    for (uint64_t at = 0; at < upload->size;) {
        uint64_t left = upload->size - at;
        size_t n = left < chunk_size ? (size_t)left : chunk_size;
        FEDGE_TRY(fedge_store_result_read(store, at, chunk, n, err));
        crc = fedge_crc32(crc, chunk, n);
        at += n;
    }
    if (crc != upload->crc32)
        return fedge_fail(err, FEDGE_CORRUPT, "its bytes have another checksum");
    return FEDGE_OK;
}

static fedge_status find_result(fedge_store *store, uint64_t size, uint8_t *buffer,
                                fedge_upload *upload, fedge_error *err)
{
    size_t head = size < UPLOAD_MAX_SIZE ? (size_t)size : UPLOAD_MAX_SIZE;
    size_t frame;
    fedge_message message;
    FEDGE_TRY(store->backend.read(store->backend.user, RESULT, 0, buffer, head, err));
    FEDGE_TRY(fedge_message_peek(buffer, head, &frame, err));
    if (frame > head)
        return fedge_fail(err, FEDGE_TRUNCATED, "%zu of the %zu bytes of its header", head, frame);
    FEDGE_TRY(fedge_message_unpack(buffer, frame, &message, err));
    if (message.type != FEDGE_MESSAGE_UPLOAD)
        return fedge_fail(err, FEDGE_CORRUPT, "its header is not an UPLOAD message");
    FEDGE_TRY(fedge_upload_read(&message, upload, err));
    /* Both sizes come from the file and must agree. */
    if (upload->size != size - frame) {
        return fedge_fail(err, FEDGE_TRUNCATED, "%llu bytes where its header says %llu",
                          (unsigned long long)(size - frame), (unsigned long long)upload->size);
    }
    store->result_header = frame;
    return check_bytes(store, upload, buffer, UPLOAD_MAX_SIZE, err);
}

fedge_status fedge_store_result_find(fedge_store *store, fedge_upload *upload, fedge_error *err)
{
    uint64_t size;
    FEDGE_TRY(store->backend.size(store->backend.user, RESULT, &size, err));
    uint8_t *buffer = malloc(UPLOAD_MAX_SIZE);
    if (!buffer)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read the stored result");
    const fedge_status status = find_result(store, size, buffer, upload, err);
    free(buffer);
    if (status == FEDGE_OK || status == FEDGE_IO || status == FEDGE_NO_MEMORY)
        return status;
    /* Removed; otherwise every start would find it again. */
    fedge_error_prefix(err, FEDGE_CORRUPT, "the stored result is damaged and was removed");
    fedge_status removed = store->backend.remove(store->backend.user, RESULT, NULL);
    return removed ? removed : FEDGE_CORRUPT;
}

fedge_status fedge_store_result_read(fedge_store *store, uint64_t offset, uint8_t *out, size_t size,
                                     fedge_error *err)
{
    return store->backend.read(store->backend.user, RESULT, store->result_header + offset, out,
                               size, err);
}

fedge_status fedge_store_result_discard(fedge_store *store, fedge_error *err)
{
    return store->backend.remove(store->backend.user, RESULT, err);
}

/* --- the trainer's values -------------------------------------------------------------------- */

#define CRC_SIZE 4
#define WITH_CRC "+crc32" /* after a key, which has no "+" */

/* The name of a value's file; without [suffix] that of older releases. */
static fedge_status key_name(const char *run_id, const char *key, const char *suffix,
                             char name[NAME_SIZE], fedge_error *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t length = strlen(key), run_length = strlen(run_id);
    bool bad = length == 0 || length > FEDGE_STORE_MAX_KEY || key[0] == '.' ||
               strspn(key, allowed) != length || run_length == 0 ||
               run_length >= FEDGE_RUN_ID_TEXT || strspn(run_id, "0123456789abcdef") != run_length;
    if (bad) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%s' of run '%s' is not a key: 1 to %d letters, digits, '-', '_', '.' "
                          "(not first), and a run's id",
                          key, run_id, FEDGE_STORE_MAX_KEY);
    }
    snprintf(name, NAME_SIZE, "kv/%s/%s%s", run_id, key, suffix);
    return FEDGE_OK;
}

fedge_status fedge_store_put(fedge_store *store, const char *run_id, const char *key,
                             const void *data, size_t size, fedge_error *err)
{
    char name[NAME_SIZE], folder[NAME_SIZE];
    uint8_t crc[CRC_SIZE];
    uint64_t old;
    unsigned count = 0;
    FEDGE_TRY(key_name(run_id, key, WITH_CRC, name, err));
    FEDGE_TRY(check_size(store, name, size, err));
    /* Only a new key counts: replacing a value needs no space. */
    if (store->backend.size(store->backend.user, name, &old, NULL) == FEDGE_NOT_FOUND) {
        snprintf(folder, sizeof(folder), "kv/%s", run_id);
        FEDGE_TRY(store->backend.list(store->backend.user, folder, count_name, &count, err));
        if (count >= FEDGE_STORE_MAX_KEYS) {
            return fedge_fail(err, FEDGE_TOO_BIG, "%s would be key %u; the limit is %d", name,
                              count + 1, FEDGE_STORE_MAX_KEYS);
        }
    }
    fedge_put_u32(crc, fedge_crc32(0, data, size));
    FEDGE_TRY(store->backend.replace(store->backend.user, name, (fedge_bytes_view){data, size},
                                     (fedge_bytes_view){crc, CRC_SIZE}, err));
    /* Remove the value of an older release; it would reappear if the new one were lost. */
    name[strlen(name) - strlen(WITH_CRC)] = '\0';
    return store->backend.remove(store->backend.user, name, err);
}

/* Reads a value that an older release left without a CRC, and stores it with one. */
static fedge_status take_old(fedge_store *store, const char *run_id, const char *key,
                             uint8_t **data, size_t *size, fedge_error *err)
{
    char name[NAME_SIZE];
    FEDGE_TRY(key_name(run_id, key, "", name, err));
    FEDGE_TRY(read_all(store, name, store->max_bytes, data, size, err));
    (void)!fedge_store_put(store, run_id, key, *data, *size,
                           NULL); /* a failure is retried next time */
    return FEDGE_OK;
}

fedge_status fedge_store_get(fedge_store *store, const char *run_id, const char *key,
                             uint8_t **data, size_t *size, fedge_error *err)
{
    *data = NULL;
    char name[NAME_SIZE];
    FEDGE_TRY(key_name(run_id, key, WITH_CRC, name, err));
    const fedge_status status = read_all(store, name, store->max_bytes + CRC_SIZE, data, size, err);
    if (status == FEDGE_NOT_FOUND)
        return take_old(store, run_id, key, data, size, err);
    FEDGE_TRY(status);
    *size -= CRC_SIZE;
    /* A size below a CRC's wraps around and is refused with the CRC. */
    if (*size <= SIZE_MAX / 2 && fedge_get_u32(*data + *size) == fedge_crc32(0, *data, *size))
        return FEDGE_OK;
    free(*data);
    *data = NULL;
    FEDGE_TRY(store->backend.remove(store->backend.user, name, err));
    return fedge_fail(err, FEDGE_CORRUPT, "%s is damaged: removed", name);
}

fedge_status fedge_store_discard_run(fedge_store *store, fedge_error *err)
{
    /* The result first: it could be offered to a wrong run. */
    FEDGE_TRY(store->backend.remove(store->backend.user, RESULT, err));
    return store->backend.remove(store->backend.user, "kv", err);
}
