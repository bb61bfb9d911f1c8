#include "aggregator/simulate/cohort/trainer_values.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/message.h"
#include "edge/core/os.h"
#include "edge/plan/simulated.h"

#define MAGIC "FEDGETV1"
#define HEADER_SIZE 24u
#define ROW_SIZE 16u /* before the key and bytes that a value has */

typedef struct fedge_trainer_value {
    struct fedge_trainer_value *next;
    char key[FEDGE_SIMULATED_MAX_KEY + 1];
    size_t size;
    void *data;   /* NULL: an empty value */
    bool changed; /* in the open phase */
    bool is_new;  /* changed, and not there before it */
    size_t size_before;
    void *before; /* the bytes before a change, as data */
} fedge_trainer_value;

fedge_status fedge_trainer_values_init(fedge_trainer_values *values, uint32_t num_clients,
                                       fedge_error *err)
{
    *values = (fedge_trainer_values){.num_clients = num_clients};
    pthread_mutex_init(&values->mutex, NULL);
    values->clients = calloc(num_clients, sizeof(*values->clients));
    return values->clients ? FEDGE_OK
                           : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u clients' values",
                                        (unsigned)num_clients);
}

static void free_value(fedge_trainer_value *value)
{
    free(value->before);
    free(value->data);
    free(value);
}

void fedge_trainer_values_fini(fedge_trainer_values *values)
{
    if (values->num_clients == 0)
        return;
    for (uint32_t c = 0; values->clients && c < values->num_clients; c++) {
        for (fedge_trainer_value *at = values->clients[c], *next; at; at = next) {
            next = at->next;
            free_value(at);
        }
    }
    free(values->clients);
    pthread_mutex_destroy(&values->mutex);
    *values = (fedge_trainer_values){0};
}

/* As a device's store has them. */
static fedge_status check_key(const char *key, fedge_error *err)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    const bool fine = key[0] != '\0' && key[0] != '.' && key[strspn(key, allowed)] == '\0';
    return fine ? FEDGE_OK
                : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                             "'%.64s' is no key: 1 to %d letters, digits, '-', '_' and '.'", key,
                             FEDGE_SIMULATED_MAX_KEY);
}

/* The value, or NULL and the number of the client's keys. The caller holds the mutex. */
static fedge_trainer_value *find(const fedge_trainer_values *values, uint32_t client,
                                 const char *key, uint32_t *num_keys)
{
    fedge_trainer_value *at = values->clients[client];
    for (*num_keys = 0; at && strcmp(at->key, key) != 0; at = at->next)
        (*num_keys)++;
    return at;
}

static void *copy_of(const void *data, size_t size)
{
    void *copy = size > 0 ? malloc(size) : NULL;
    if (copy)
        memcpy(copy, data, size);
    return copy;
}

static fedge_status no_memory(size_t size, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a client's value of %zu bytes", size);
}

/* Gives a value its new bytes. Returns those that nobody needs any more. */
static void *replace(fedge_trainer_value *at, void *data, size_t size)
{
    void *unused = at->data;
    if (!at->changed) {
        at->before = at->data;
        at->size_before = at->size;
        at->changed = true;
        unused = NULL;
    }
    at->data = data;
    at->size = size;
    return unused;
}

fedge_status fedge_trainer_values_put(fedge_trainer_values *values, uint32_t client,
                                      const char *key, const void *data, size_t size,
                                      fedge_error *err)
{
    uint32_t num_keys = 0;
    FEDGE_TRY(check_key(key, err));
    void *copy = copy_of(data, size);
    if (size > 0 && !copy)
        return no_memory(size, err);
    fedge_trainer_value *fresh = calloc(1, sizeof(*fresh));
    pthread_mutex_lock(&values->mutex);
    fedge_trainer_value *at = find(values, client, key, &num_keys);
    const bool full = !at && num_keys == FEDGE_SIMULATED_MAX_KEYS;
    if (!at && !full && fresh) {
        memcpy(fresh->key, key, strlen(key) + 1);
        fresh->is_new = fresh->changed = true;
        fresh->next = values->clients[client];
        values->clients[client] = at = fresh;
        fresh = NULL;
    }
    if (at)
        copy = replace(at, copy, size);
    pthread_mutex_unlock(&values->mutex);
    free(copy);
    free(fresh);
    return full ? fedge_fail(err, FEDGE_TOO_BIG, "the client has %d values already: no room for %s",
                             FEDGE_SIMULATED_MAX_KEYS, key)
           : at ? FEDGE_OK
                : no_memory(size, err);
}

fedge_status fedge_trainer_values_get(fedge_trainer_values *values, uint32_t client,
                                      const char *key, void **data, size_t *size, fedge_error *err)
{
    uint32_t num_keys = 0;
    *data = NULL;
    *size = 0;
    pthread_mutex_lock(&values->mutex);
    const fedge_trainer_value *at = find(values, client, key, &num_keys);
    const bool found = at != NULL;
    if (found) {
        *size = at->size;
        *data = copy_of(at->data, at->size);
    }
    pthread_mutex_unlock(&values->mutex);
    if (!found)
        return fedge_fail(err, FEDGE_NOT_FOUND, "there is no value %.64s", key);
    return *size == 0 || *data ? FEDGE_OK : no_memory(*size, err);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void commit(fedge_trainer_value *value)
{
    free(value->before);
    value->before = NULL;
    value->changed = value->is_new = false;
}

void fedge_trainer_values_commit(fedge_trainer_values *values)
{
    for (uint32_t c = 0; c < values->num_clients; c++) {
        for (fedge_trainer_value *at = values->clients[c]; at; at = at->next)
            commit(at);
    }
}

static void roll_back(fedge_trainer_value *at)
{
    void *after = at->data;
    at->data = at->before;
    at->size = at->size_before;
    at->before = after;
    commit(at);
}

void fedge_trainer_values_roll_back(fedge_trainer_values *values)
{
    for (uint32_t c = 0; c < values->num_clients; c++) {
        for (fedge_trainer_value **link = &values->clients[c]; *link;) {
            fedge_trainer_value *at = *link;
            if (at->is_new) {
                *link = at->next;
                free_value(at);
                continue;
            }
            if (at->changed)
                roll_back(at);
            link = &at->next;
        }
    }
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

/* A file that is written or read from its header on. */
typedef struct stream {
    fedge_os_file file;
    uint64_t at; /* bytes after the header so far */
    uint32_t crc;
} stream;

static fedge_status write_part(stream *to, const void *data, size_t size, fedge_error *err)
{
    FEDGE_TRY(fedge_os_write_at(&to->file, HEADER_SIZE + to->at, data, size, err));
    to->crc = fedge_crc32(to->crc, data, size);
    to->at += size;
    return FEDGE_OK;
}

static fedge_status write_value(stream *to, uint32_t client, const fedge_trainer_value *value,
                                fedge_error *err)
{
    uint8_t row[ROW_SIZE];
    fedge_put_u32(row, client);
    fedge_put_u32(row + 4, (uint32_t)strlen(value->key));
    fedge_put_u64(row + 8, value->size);
    FEDGE_TRY(write_part(to, row, sizeof(row), err));
    FEDGE_TRY(write_part(to, value->key, strlen(value->key), err));
    return value->size > 0 ? write_part(to, value->data, value->size, err) : FEDGE_OK;
}

/* The header comes last: a file cut short by a crash has no magic. */
static fedge_status write_all(const fedge_trainer_values *values, stream *to, fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    for (uint32_t c = 0; c < values->num_clients; c++) {
        for (const fedge_trainer_value *value = values->clients[c]; value; value = value->next)
            FEDGE_TRY(write_value(to, c, value, err));
    }
    memcpy(header, MAGIC, 8);
    fedge_put_u32(header + 8, values->num_clients);
    fedge_put_u32(header + 12, to->crc);
    fedge_put_u64(header + 16, to->at);
    FEDGE_TRY(fedge_os_write_at(&to->file, 0, header, sizeof(header), err));
    return fedge_os_sync(&to->file, err);
}

fedge_status fedge_trainer_values_save(const fedge_trainer_values *values, const char *path,
                                       fedge_error *err)
{
    char built[FEDGE_OS_MAX_PATH];
    stream to = {.at = 0};
    if (snprintf(built, sizeof(built), "%s.new", path) >= (int)sizeof(built))
        return fedge_fail(err, FEDGE_TOO_BIG, "the path of %.200s… is too long", path);
    FEDGE_TRY(fedge_os_remove_tree(built, err)); /* A killed program may have left it. */
    FEDGE_TRY(fedge_os_open(&to.file, built, FEDGE_OS_CREATE, err));
    const fedge_status status = write_all(values, &to, err);
    fedge_os_close(&to.file);
    FEDGE_TRY(status);
    return fedge_os_publish(built, path, err);
}

static fedge_status read_part(stream *from, void *data, size_t size, fedge_error *err)
{
    FEDGE_TRY(fedge_os_read_at(&from->file, HEADER_SIZE + from->at, data, size, err));
    from->crc = fedge_crc32(from->crc, data, size);
    from->at += size;
    return FEDGE_OK;
}

/* [left]: bytes until the end. */
static fedge_status read_value(fedge_trainer_values *values, stream *from, uint64_t left,
                               fedge_error *err)
{
    uint8_t row[ROW_SIZE];
    char key[FEDGE_SIMULATED_MAX_KEY + 1] = "";
    FEDGE_TRY(read_part(from, row, sizeof(row), err));
    const uint32_t client = fedge_get_u32(row), key_size = fedge_get_u32(row + 4);
    const uint64_t size = fedge_get_u64(row + 8);
    if (client >= values->num_clients || key_size > FEDGE_SIMULATED_MAX_KEY || size > left ||
        size > FEDGE_SIMULATED_MAX_VALUE)
        return fedge_fail(err, FEDGE_CORRUPT, "%s is damaged", from->file.path);
    void *data = malloc((size_t)size + 1);
    fedge_status status;
    FEDGE_TRY_OR(data ? FEDGE_OK : no_memory((size_t)size, err), done);
    FEDGE_TRY_OR(read_part(from, key, key_size, err), done);
    FEDGE_TRY_OR(read_part(from, data, (size_t)size, err), done);
    status = fedge_trainer_values_put(values, client, key, data, (size_t)size, err);
done:
    free(data);
    return status;
}

static fedge_status read_all(fedge_trainer_values *values, stream *from, fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    FEDGE_TRY(fedge_os_read_at(&from->file, 0, header, sizeof(header), err));
    if (memcmp(header, MAGIC, 8) != 0)
        return fedge_fail(err, FEDGE_CORRUPT, "%s has no values of clients", from->file.path);
    if (fedge_get_u32(header + 8) != values->num_clients) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s is of %u clients, not of %u", from->file.path,
                          (unsigned)fedge_get_u32(header + 8), (unsigned)values->num_clients);
    }
    const uint64_t end = fedge_get_u64(header + 16);
    while (from->at < end)
        FEDGE_TRY(read_value(values, from, end - from->at, err));
    return from->at == end && from->crc == fedge_get_u32(header + 12)
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_CORRUPT, "%s is damaged", from->file.path);
}

fedge_status fedge_trainer_values_load(fedge_trainer_values *values, const char *path,
                                       fedge_error *err)
{
    stream from = {.at = 0};
    FEDGE_TRY(fedge_os_open(&from.file, path, FEDGE_OS_READ, err));
    const fedge_status status = read_all(values, &from, err);
    fedge_os_close(&from.file);
    fedge_trainer_values_commit(values);
    return status;
}
