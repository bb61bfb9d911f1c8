#include "aggregator/simulate/run/control_variates.h"

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

uint64_t fedge_control_variates_size(uint32_t num_clients, uint32_t cohort, uint32_t rounds,
                                     size_t num_values)
{
    const uint64_t most = (uint64_t)cohort * rounds;
    const uint64_t clients = most < num_clients ? most : num_clients;
    return (clients + cohort) * num_values * sizeof(float) +
           (uint64_t)num_clients * 2 * sizeof(float *);
}

fedge_status fedge_control_variates_init(fedge_control_variates *variates, uint32_t num_clients,
                                         size_t num_values, fedge_error *err)
{
    *variates = (fedge_control_variates){.num_clients = num_clients,
                                         .num_values = num_values,
                                         .of = calloc(num_clients, sizeof(float *)),
                                         .before = calloc(num_clients, sizeof(float *))};
    if (!variates->of || !variates->before) {
        variates->num_clients = 0;
        fedge_control_variates_fini(variates);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the variates of %" PRIu32 " clients",
                          num_clients);
    }
    return FEDGE_OK;
}

void fedge_control_variates_fini(fedge_control_variates *variates)
{
    for (uint32_t i = 0; i < variates->num_clients; i++) {
        free(variates->of[i]);
        free(variates->before[i]);
    }
    free(variates->of);
    free(variates->before);
    *variates = (fedge_control_variates){0};
}

float *fedge_control_variates_of(fedge_control_variates *variates, uint32_t client)
{
    float **of = &variates->of[client], **before = &variates->before[client];
    const size_t size = variates->num_values * sizeof(float);
    if (!*of) {
        *of = calloc(1, size);
    }
    if (*of && !*before) {
        *before = malloc(size);
        if (!*before) {
            return NULL;
        }
        memcpy(*before, *of, size);
    }
    return *of;
}

void fedge_control_variates_keep(fedge_control_variates *variates, uint32_t round)
{
    for (uint32_t i = 0; i < variates->num_clients; i++) {
        free(variates->before[i]);
        variates->before[i] = NULL;
    }
    variates->round = round;
}

void fedge_control_variates_undo(fedge_control_variates *variates)
{
    for (uint32_t i = 0; i < variates->num_clients; i++) {
        if (variates->before[i]) {
            free(variates->of[i]);
            variates->of[i] = variates->before[i];
            variates->before[i] = NULL;
        }
    }
}

/* ---- in a file ------------------------------------------------------------------------------- */

static size_t row_size(const fedge_control_variates *variates)
{
    return sizeof(uint32_t) + variates->num_values * sizeof(float);
}

static fedge_status no_room(const fedge_control_variates *variates, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a variate of %zu bytes",
                      row_size(variates));
}

/* The rows, then the header in front of them. */
static fedge_status write_all(const fedge_control_variates *variates, const fedge_os_file *file,
                              uint8_t *row, fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    uint32_t count = 0, crc = 0;
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < variates->num_clients && status == FEDGE_OK; i++) {
        if (!variates->of[i]) {
            continue;
        }
        fedge_put_u32(row, i);
        fedge_put_f32s(row + sizeof(uint32_t), variates->of[i], variates->num_values);
        crc = fedge_crc32(crc, row, row_size(variates));
        status = fedge_os_write_at(file, HEADER_SIZE + (uint64_t)count++ * row_size(variates), row,
                                   row_size(variates), err);
    }
    memcpy(header, MAGIC, 8);
    fedge_put_u32(header + 8, variates->round);
    fedge_put_u32(header + 12, variates->num_clients);
    fedge_put_u64(header + 16, variates->num_values);
    fedge_put_u32(header + 24, count);
    fedge_put_u32(header + 28, crc);
    if (status == FEDGE_OK) {
        status = fedge_os_write_at(file, 0, header, sizeof(header), err);
    }
    return status == FEDGE_OK ? fedge_os_sync(file, err) : status;
}

fedge_status fedge_control_variates_save(const fedge_control_variates *variates, const char *path,
                                         fedge_error *err)
{
    char built[FEDGE_OS_MAX_PATH];
    fedge_os_file file;
    if (snprintf(built, sizeof(built), "%s.new", path) >= (int)sizeof(built)) {
        return fedge_fail(err, FEDGE_TOO_BIG, "the path of %.200s… is too long", path);
    }
    uint8_t *row = malloc(row_size(variates));
    if (!row) {
        return no_room(variates, err);
    }
    fedge_status status = fedge_os_remove_tree(built, err); /* of a program that was killed */
    if (status == FEDGE_OK) {
        status = fedge_os_open(&file, built, FEDGE_OS_CREATE, err);
    }
    if (status == FEDGE_OK) {
        status = write_all(variates, &file, row, err);
        fedge_os_close(&file);
    }
    free(row);
    return status == FEDGE_OK ? fedge_os_publish(built, path, err) : status;
}

static fedge_status read_row(fedge_control_variates *variates, const uint8_t *row, const char *path,
                             fedge_error *err)
{
    const uint32_t client = fedge_get_u32(row);
    if (client >= variates->num_clients || variates->of[client]) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: client %" PRIu32 " has no place, or two", path,
                          client);
    }
    variates->of[client] = malloc(variates->num_values * sizeof(float));
    if (!variates->of[client]) {
        return no_room(variates, err);
    }
    fedge_get_f32s(row + sizeof(uint32_t), variates->of[client], variates->num_values);
    return FEDGE_OK;
}

static fedge_status read_all(fedge_control_variates *variates, const fedge_os_file *file,
                             uint8_t *row, fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    uint32_t crc = 0;
    fedge_status status = fedge_os_read_at(file, 0, header, sizeof(header), err);
    if (status != FEDGE_OK) {
        return status;
    }
    if (memcmp(header, MAGIC, 8) != 0) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s is not a file of variates", file->path);
    }
    if (fedge_get_u32(header + 12) != variates->num_clients ||
        fedge_get_u64(header + 16) != variates->num_values) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s is of %" PRIu32 " clients with %" PRIu64
                          " values each, not of %" PRIu32 " with %zu",
                          file->path, fedge_get_u32(header + 12), fedge_get_u64(header + 16),
                          variates->num_clients, variates->num_values);
    }
    const uint32_t count = fedge_get_u32(header + 24);
    for (uint32_t i = 0; i < count && status == FEDGE_OK; i++) {
        status = fedge_os_read_at(file, HEADER_SIZE + (uint64_t)i * row_size(variates), row,
                                  row_size(variates), err);
        if (status == FEDGE_OK) {
            crc = fedge_crc32(crc, row, row_size(variates));
            status = read_row(variates, row, file->path, err);
        }
    }
    if (status == FEDGE_OK && crc != fedge_get_u32(header + 28)) {
        status = fedge_fail(err, FEDGE_CORRUPT, "%s is damaged", file->path);
    }
    variates->round = fedge_get_u32(header + 8);
    return status;
}

fedge_status fedge_control_variates_load(fedge_control_variates *variates, const char *path,
                                         fedge_error *err)
{
    fedge_os_file file;
    fedge_status status = fedge_os_open(&file, path, FEDGE_OS_READ, err);
    if (status != FEDGE_OK) {
        return status;
    }
    uint8_t *row = malloc(row_size(variates));
    status = row ? read_all(variates, &file, row, err) : no_room(variates, err);
    free(row);
    fedge_os_close(&file);
    return status;
}
