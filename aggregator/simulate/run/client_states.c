#include "aggregator/simulate/run/client_states.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/message.h"
#include "edge/core/os.h"

#define MAGIC "FEDGECV1"
#define HEADER_SIZE 32u

/* ---- in memory ------------------------------------------------------------------------------- */

uint64_t fedge_client_states_size(uint32_t num_clients, uint32_t cohort, uint32_t rounds,
                                  size_t num_values)
{
    const uint64_t most = (uint64_t)cohort * rounds;
    const uint64_t clients = most < num_clients ? most : num_clients;
    return (clients + cohort) * num_values * sizeof(float) +
           (uint64_t)num_clients * 2 * sizeof(float *);
}

fedge_status fedge_client_states_init(fedge_client_states *states, uint32_t num_clients,
                                      size_t num_values, fedge_error *err)
{
    *states = (fedge_client_states){.num_clients = num_clients,
                                    .num_values = num_values,
                                    .of = calloc(num_clients, sizeof(float *)),
                                    .before = calloc(num_clients, sizeof(float *))};
    if (!states->of || !states->before) {
        states->num_clients = 0;
        fedge_client_states_fini(states);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what %" PRIu32 " clients keep",
                          num_clients);
    }
    return FEDGE_OK;
}

void fedge_client_states_fini(fedge_client_states *states)
{
    for (uint32_t i = 0; i < states->num_clients; i++) {
        free(states->of[i]);
        free(states->before[i]);
    }
    free(states->of);
    free(states->before);
    *states = (fedge_client_states){0};
}

float *fedge_client_states_of(fedge_client_states *states, uint32_t client)
{
    float **of = &states->of[client], **before = &states->before[client];
    const size_t size = states->num_values * sizeof(float);
    if (!*of)
        *of = calloc(1, size);
    if (*of && !*before) {
        *before = malloc(size);
        if (!*before)
            return NULL;
        memcpy(*before, *of, size);
    }
    return *of;
}

void fedge_client_states_keep(fedge_client_states *states, uint32_t round)
{
    for (uint32_t i = 0; i < states->num_clients; i++) {
        free(states->before[i]);
        states->before[i] = NULL;
    }
    states->round = round;
}

void fedge_client_states_undo(fedge_client_states *states)
{
    for (uint32_t i = 0; i < states->num_clients; i++) {
        if (states->before[i]) {
            free(states->of[i]);
            states->of[i] = states->before[i];
            states->before[i] = NULL;
        }
    }
}

/* ---- in a file ------------------------------------------------------------------------------- */

static size_t row_size(const fedge_client_states *states)
{
    return sizeof(uint32_t) + states->num_values * sizeof(float);
}

static fedge_status no_room(const fedge_client_states *states, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the %zu bytes that a client keeps",
                      row_size(states));
}

/* The rows, then the header in front of them. */
static fedge_status write_all(const fedge_client_states *states, const fedge_os_file *file,
                              uint8_t *row, fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    uint32_t count = 0, crc = 0;
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < states->num_clients && status == FEDGE_OK; i++) {
        if (!states->of[i])
            continue;
        fedge_put_u32(row, i);
        fedge_put_f32s(row + sizeof(uint32_t), states->of[i], states->num_values);
        crc = fedge_crc32(crc, row, row_size(states));
        status = fedge_os_write_at(file, HEADER_SIZE + (uint64_t)count++ * row_size(states), row,
                                   row_size(states), err);
    }
    memcpy(header, MAGIC, 8);
    fedge_put_u32(header + 8, states->round);
    fedge_put_u32(header + 12, states->num_clients);
    fedge_put_u64(header + 16, states->num_values);
    fedge_put_u32(header + 24, count);
    fedge_put_u32(header + 28, crc);
    if (status == FEDGE_OK)
        status = fedge_os_write_at(file, 0, header, sizeof(header), err);
    return status == FEDGE_OK ? fedge_os_sync(file, err) : status;
}

fedge_status fedge_client_states_save(const fedge_client_states *states, const char *path,
                                      fedge_error *err)
{
    char built[FEDGE_OS_MAX_PATH];
    fedge_os_file file;
    if (snprintf(built, sizeof(built), "%s.new", path) >= (int)sizeof(built))
        return fedge_fail(err, FEDGE_TOO_BIG, "the path of %.200s… is too long", path);
    uint8_t *row = malloc(row_size(states));
    if (!row)
        return no_room(states, err);
    fedge_status status = fedge_os_remove_tree(built, err); /* of a program that was killed */
    if (status == FEDGE_OK)
        status = fedge_os_open(&file, built, FEDGE_OS_CREATE, err);
    if (status == FEDGE_OK) {
        status = write_all(states, &file, row, err);
        fedge_os_close(&file);
    }
    free(row);
    return status == FEDGE_OK ? fedge_os_publish(built, path, err) : status;
}

static fedge_status read_row(fedge_client_states *states, const uint8_t *row, const char *path,
                             fedge_error *err)
{
    const uint32_t client = fedge_get_u32(row);
    if (client >= states->num_clients || states->of[client]) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: client %" PRIu32 " has no place, or two", path,
                          client);
    }
    states->of[client] = malloc(states->num_values * sizeof(float));
    if (!states->of[client])
        return no_room(states, err);
    fedge_get_f32s(row + sizeof(uint32_t), states->of[client], states->num_values);
    return FEDGE_OK;
}

static fedge_status read_all(fedge_client_states *states, const fedge_os_file *file, uint8_t *row,
                             fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    uint32_t crc = 0;
    fedge_status status = fedge_os_read_at(file, 0, header, sizeof(header), err);
    if (status != FEDGE_OK)
        return status;
    if (memcmp(header, MAGIC, 8) != 0)
        return fedge_fail(err, FEDGE_CORRUPT, "%s is not a file of what clients keep", file->path);
    if (fedge_get_u32(header + 12) != states->num_clients ||
        fedge_get_u64(header + 16) != states->num_values) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s is of %" PRIu32 " clients with %" PRIu64
                          " values each, not of %" PRIu32 " with %zu",
                          file->path, fedge_get_u32(header + 12), fedge_get_u64(header + 16),
                          states->num_clients, states->num_values);
    }
    const uint32_t count = fedge_get_u32(header + 24);
    for (uint32_t i = 0; i < count && status == FEDGE_OK; i++) {
        status = fedge_os_read_at(file, HEADER_SIZE + (uint64_t)i * row_size(states), row,
                                  row_size(states), err);
        if (status == FEDGE_OK) {
            crc = fedge_crc32(crc, row, row_size(states));
            status = read_row(states, row, file->path, err);
        }
    }
    if (status == FEDGE_OK && crc != fedge_get_u32(header + 28))
        status = fedge_fail(err, FEDGE_CORRUPT, "%s is damaged", file->path);
    states->round = fedge_get_u32(header + 8);
    return status;
}

fedge_status fedge_client_states_load(fedge_client_states *states, const char *path,
                                      fedge_error *err)
{
    fedge_os_file file;
    fedge_status status = fedge_os_open(&file, path, FEDGE_OS_READ, err);
    if (status != FEDGE_OK)
        return status;
    uint8_t *row = malloc(row_size(states));
    status = row ? read_all(states, &file, row, err) : no_room(states, err);
    free(row);
    fedge_os_close(&file);
    return status;
}
