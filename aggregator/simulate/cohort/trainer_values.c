#include "aggregator/simulate/cohort/trainer_values.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/simulated.h"

typedef struct fedge_trainer_value {
    struct fedge_trainer_value *next;
    char key[FEDGE_SIMULATED_MAX_KEY + 1];
    size_t size;
    void *data; /* NULL: an empty value */
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

void fedge_trainer_values_fini(fedge_trainer_values *values)
{
    for (uint32_t c = 0; values->clients && c < values->num_clients; c++) {
        for (fedge_trainer_value *at = values->clients[c], *next; at; at = next) {
            next = at->next;
            free(at->data);
            free(at);
        }
    }
    free(values->clients);
    pthread_mutex_destroy(&values->mutex);
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
        fresh->next = values->clients[client];
        values->clients[client] = at = fresh;
        fresh = NULL;
    }
    if (at) {
        void *before = at->data;
        at->data = copy;
        at->size = size;
        copy = before;
    }
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
