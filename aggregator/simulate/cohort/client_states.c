#include "aggregator/simulate/cohort/client_states.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/message.h"
#include "edge/core/os.h"

#define MAGIC "FEDGECV1"
#define HEADER_SIZE 32u

/* ---- locations ------------------------------------------------------------------------------- */

static size_t values_size(const fedge_client_states *states)
{
    return states->num_values * sizeof(float);
}

uint64_t fedge_client_states_size(uint32_t num_clients, uint32_t cohort, uint32_t rounds,
                                  size_t num_values, uint64_t memory)
{
    const uint64_t max_trained = (uint64_t)cohort * rounds;
    const uint64_t clients = max_trained < num_clients ? max_trained : num_clients;
    /* In an open round each client of the cohort has a committed and a pending state. */
    const uint64_t values = (clients + cohort) * num_values * sizeof(float);
    return (memory > 0 && memory < values ? memory : values) +
           (uint64_t)num_clients * 2 * sizeof(fedge_client_location);
}

fedge_status fedge_client_states_init(fedge_client_states *states, uint32_t num_clients,
                                      size_t num_values, const fedge_client_states_limit *limit,
                                      fedge_error *err)
{
    *states = (fedge_client_states){.num_clients = num_clients,
                                    .num_values = num_values,
                                    .committed = calloc(num_clients, sizeof(*states->committed)),
                                    .pending = calloc(num_clients, sizeof(*states->pending))};
    if (limit)
        states->limit = *limit;
    pthread_mutex_init(&states->lock, NULL);
    if (!states->committed || !states->pending) {
        fedge_client_states_fini(states);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the states of %" PRIu32 " clients",
                          num_clients);
    }
    return FEDGE_OK;
}

void fedge_client_states_fini(fedge_client_states *states)
{
    if (states->num_clients == 0)
        return;
    for (uint32_t i = 0; states->committed && states->pending && i < states->num_clients; i++) {
        free(states->committed[i].values);
        free(states->pending[i].values);
    }
    free(states->committed);
    free(states->pending);
    free(states->unused);
    if (states->has_file)
        fedge_os_close(&states->file);
    pthread_mutex_destroy(&states->lock);
    *states = (fedge_client_states){0};
}

static bool is_taken(const fedge_client_location *location)
{
    return location->values || location->slot > 0;
}

static fedge_status fail_file(fedge_status status, fedge_error *err)
{
    return fedge_error_prefix(err, status,
                              "cannot store clients' states in a file (raise "
                              "--client-state-memory, or name another folder in TMPDIR)");
}

/* The caller holds the lock. */
static fedge_status open_file(fedge_client_states *states, fedge_error *err)
{
    char folder[FEDGE_OS_MAX_PATH];
    const fedge_status status =
        fedge_os_open_temporary(&states->file, states->limit.folder, folder, err);
    if (status != FEDGE_OK)
        return fail_file(status, err);
    states->has_file = true;
    if (states->limit.on_spill)
        states->limit.on_spill(states->limit.user, folder);
    return FEDGE_OK;
}

/* Takes an unused slot of the file, or a new one. The caller holds the lock. */
static fedge_status take_slot(fedge_client_states *states, uint32_t *slot, fedge_error *err)
{
    FEDGE_TRY(states->has_file ? FEDGE_OK : open_file(states, err));
    *slot = states->num_unused > 0 ? states->unused[--states->num_unused] : ++states->num_slots;
    return FEDGE_OK;
}

/* Takes memory up to the limit, else a slot of the file. */
static fedge_status take_location(fedge_client_states *states, fedge_client_location *location,
                                  fedge_error *err)
{
    const size_t size = values_size(states);
    const uint64_t memory = states->limit.memory;
    fedge_status status = FEDGE_OK;
    pthread_mutex_lock(&states->lock);
    /* [used] never goes over [memory], so the difference does not wrap. */
    if (memory == 0 || size <= memory - states->used)
        location->values = malloc(size);
    if (location->values) {
        states->used += size;
    } else if (memory == 0) {
        status = fedge_fail(err, FEDGE_NO_MEMORY,
                            "no memory for the %zu bytes of a client's state: "
                            "--client-state-memory BYTES has them in a file beyond that",
                            size);
    } else {
        status = take_slot(states, &location->slot, err);
    }
    pthread_mutex_unlock(&states->lock);
    return status;
}

/* Frees a location while no thread uses the states. */
static void release(fedge_client_states *states, fedge_client_location *location)
{
    if (location->values)
        states->used -= values_size(states);
    free(location->values);
    if (location->slot > 0) {
        uint32_t *unused =
            realloc(states->unused, ((size_t)states->num_unused + 1) * sizeof(*unused));
        states->unused = unused ? unused : states->unused;
        if (unused) /* else the slot is lost, which costs only disk space */ {
            unused[states->num_unused++] = location->slot;
        }
    }
    *location = (fedge_client_location){0};
}

static fedge_status write_location(const fedge_client_states *states,
                                   const fedge_client_location *location, const float *values,
                                   fedge_error *err)
{
    const size_t size = values_size(states);
    if (location->values) {
        memcpy(location->values, values, size);
        return FEDGE_OK;
    }
    /* Needs no lock: a slot belongs to one client, and one thread at a time works for a client. */
    const fedge_status status =
        fedge_os_write_at(&states->file, (uint64_t)(location->slot - 1) * size, values, size, err);
    return status == FEDGE_OK ? status : fail_file(status, err);
}

static fedge_status read_location(const fedge_client_states *states,
                                  const fedge_client_location *location, float *values,
                                  fedge_error *err)
{
    const size_t size = values_size(states);
    if (location->slot == 0) {
        if (location->values)
            memcpy(values, location->values, size);
        else
            memset(values, 0, size);
        return FEDGE_OK;
    }
    const fedge_status status =
        fedge_os_read_at(&states->file, (uint64_t)(location->slot - 1) * size, values, size, err);
    return status == FEDGE_OK ? status : fail_file(status, err);
}

/* ---- values ---------------------------------------------------------------------------------- */

bool fedge_client_states_has(const fedge_client_states *states, uint32_t client)
{
    return is_taken(&states->committed[client]);
}

bool fedge_client_states_has_pending(const fedge_client_states *states, uint32_t client)
{
    return is_taken(&states->pending[client]);
}

fedge_status fedge_client_states_get(const fedge_client_states *states, uint32_t client,
                                     float *values, fedge_error *err)
{
    const fedge_client_location *pending = &states->pending[client];
    return read_location(states, is_taken(pending) ? pending : &states->committed[client], values,
                         err);
}

fedge_status fedge_client_states_put(fedge_client_states *states, uint32_t client,
                                     const float *values, fedge_error *err)
{
    fedge_client_location *pending = &states->pending[client];
    FEDGE_TRY(is_taken(pending) ? FEDGE_OK : take_location(states, pending, err));
    return write_location(states, pending, values, err);
}

static void commit(fedge_client_states *states, uint32_t client)
{
    if (!is_taken(&states->pending[client]))
        return;
    release(states, &states->committed[client]);
    states->committed[client] = states->pending[client];
    states->pending[client] = (fedge_client_location){0};
}

fedge_status fedge_client_states_set(fedge_client_states *states, uint32_t client,
                                     const float *values, fedge_error *err)
{
    FEDGE_TRY(fedge_client_states_put(states, client, values, err));
    commit(states, client);
    return FEDGE_OK;
}

void fedge_client_states_commit(fedge_client_states *states, uint32_t round)
{
    for (uint32_t i = 0; i < states->num_clients; i++)
        commit(states, i);
    states->round = round;
}

void fedge_client_states_roll_back(fedge_client_states *states)
{
    for (uint32_t i = 0; i < states->num_clients; i++)
        release(states, &states->pending[i]);
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

static size_t row_size(const fedge_client_states *states)
{
    return sizeof(uint32_t) + states->num_values * sizeof(float);
}

static fedge_status no_memory(const fedge_client_states *states, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the %zu bytes of a client's state",
                      row_size(states));
}

/* Writes the rows, then the header before them with their number and checksum: a file cut short by
 * a crash has no magic. */
static fedge_status write_all(const fedge_client_states *states, const fedge_os_file *file,
                              uint8_t *row, float *values, fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    uint32_t count = 0, crc = 0;
    for (uint32_t i = 0; i < states->num_clients; i++) {
        if (!is_taken(&states->committed[i]))
            continue;
        FEDGE_TRY(read_location(states, &states->committed[i], values, err));
        fedge_put_u32(row, i);
        fedge_put_f32s(row + sizeof(uint32_t), values, states->num_values);
        crc = fedge_crc32(crc, row, row_size(states));
        FEDGE_TRY(fedge_os_write_at(file, HEADER_SIZE + (uint64_t)count++ * row_size(states), row,
                                    row_size(states), err));
    }
    memcpy(header, MAGIC, 8);
    fedge_put_u32(header + 8, states->round);
    fedge_put_u32(header + 12, states->num_clients);
    fedge_put_u64(header + 16, states->num_values);
    fedge_put_u32(header + 24, count);
    fedge_put_u32(header + 28, crc);
    FEDGE_TRY(fedge_os_write_at(file, 0, header, sizeof(header), err));
    return fedge_os_sync(file, err);
}

fedge_status fedge_client_states_save(const fedge_client_states *states, const char *path,
                                      fedge_error *err)
{
    char built[FEDGE_OS_MAX_PATH];
    fedge_os_file file;
    if (snprintf(built, sizeof(built), "%s.new", path) >= (int)sizeof(built))
        return fedge_fail(err, FEDGE_TOO_BIG, "the path of %.200s… is too long", path);
    uint8_t *row = malloc(row_size(states));
    float *values = malloc(values_size(states));
    fedge_status status;
    FEDGE_TRY_OR(row && values ? FEDGE_OK : no_memory(states, err), done);
    FEDGE_TRY_OR(fedge_os_remove_tree(built, err), done); /* A killed program may have left it. */
    FEDGE_TRY_OR(fedge_os_open(&file, built, FEDGE_OS_CREATE, err), done);
    status = write_all(states, &file, row, values, err);
    fedge_os_close(&file);
done:
    free(values);
    free(row);
    FEDGE_TRY(status);
    return fedge_os_publish(built, path, err);
}

static fedge_status read_row(fedge_client_states *states, const uint8_t *row, float *values,
                             const char *path, fedge_error *err)
{
    const uint32_t client = fedge_get_u32(row);
    if (client >= states->num_clients || is_taken(&states->committed[client])) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: client %" PRIu32 " does not exist, or has two states", path, client);
    }
    fedge_get_f32s(row + sizeof(uint32_t), values, states->num_values);
    return fedge_client_states_set(states, client, values, err);
}

static fedge_status read_all(fedge_client_states *states, const fedge_os_file *file, uint8_t *row,
                             float *values, fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    uint32_t crc = 0;
    FEDGE_TRY(fedge_os_read_at(file, 0, header, sizeof(header), err));
    if (memcmp(header, MAGIC, 8) != 0)
        return fedge_fail(err, FEDGE_CORRUPT, "%s is not a file of clients' states", file->path);
    if (fedge_get_u32(header + 12) != states->num_clients ||
        fedge_get_u64(header + 16) != states->num_values) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s is of %" PRIu32 " clients with %" PRIu64
                          " values each, not of %" PRIu32 " with %zu",
                          file->path, fedge_get_u32(header + 12), fedge_get_u64(header + 16),
                          states->num_clients, states->num_values);
    }
    const uint32_t count = fedge_get_u32(header + 24);
    states->round = fedge_get_u32(header + 8);
    /* A false count ends at the file's end, or at a client that has a row already. */
    for (uint32_t i = 0; i < count; i++) {
        FEDGE_TRY(fedge_os_read_at(file, HEADER_SIZE + (uint64_t)i * row_size(states), row,
                                   row_size(states), err));
        crc = fedge_crc32(crc, row, row_size(states));
        FEDGE_TRY(read_row(states, row, values, file->path, err));
    }
    return crc == fedge_get_u32(header + 28)
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_CORRUPT, "%s is damaged", file->path);
}

fedge_status fedge_client_states_load(fedge_client_states *states, const char *path,
                                      fedge_error *err)
{
    fedge_os_file file;
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_READ, err));
    uint8_t *row = malloc(row_size(states));
    float *values = malloc(values_size(states));
    const fedge_status status =
        row && values ? read_all(states, &file, row, values, err) : no_memory(states, err);
    free(values);
    free(row);
    fedge_os_close(&file);
    return status;
}
