#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/data/formats/csv.h"
#include "edge/data/partitions/scheme.h"

#define HEADER "example,client"
#define TEMPORARY ".part" /* suffix of the path while it is written */
#define CHUNK ((size_t)1 << 16)
#define MAX_ROW 32      /* bytes of two numbers */
#define VALIDATION (-1) /* an invalid client */

static int64_t client_of(uint32_t owner)
{
    return owner == FEDGE_PARTITION_VALIDATION ? VALIDATION : (int64_t)owner;
}

/* --- reading ---------------------------------------------------------------------------------- */

static fedge_status open_file(fedge_csv *csv, const char *path, fedge_error *err)
{
    FEDGE_TRY(fedge_csv_open(csv, path, 2, err));
    fedge_status status = fedge_csv_header(csv, err);
    if (status == FEDGE_OK && strcmp(csv->line, HEADER) != 0) {
        status = fedge_fail(err, FEDGE_CORRUPT, "%s:%" PRIu64 ": \"%.40s\" is not \"" HEADER "\"",
                            path, csv->number, csv->line);
    }
    if (status != FEDGE_OK)
        fedge_csv_close(csv);
    return status;
}

/* Reads the next row. */
static fedge_status next_row(fedge_csv *csv, bool *end, int64_t *example, int64_t *client,
                             fedge_error *err)
{
    int64_t fields[2] = {0, 0};
    FEDGE_TRY(fedge_csv_next(csv, end, err));
    if (!*end)
        FEDGE_TRY(fedge_csv_integers(csv, fields, err));
    *example = fields[0];
    *client = fields[1];
    return FEDGE_OK;
}

static fedge_status take_row(const fedge_csv *csv, int64_t example, int64_t client,
                             uint32_t num_examples, uint32_t num_parts, uint32_t *owner,
                             fedge_error *err)
{
    const char *path = csv->reader.path;
    if (example < 0 || example >= num_examples) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s:%" PRIu64 ": example %" PRId64 "; the data has %" PRIu32
                          ", counted from 0",
                          path, csv->number, example, num_examples);
    }
    if (client != VALIDATION && (client < 0 || client >= num_parts)) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s:%" PRIu64 ": client %" PRId64 "; there are to be %" PRIu32
                          ", counted from 0: correct it or ask for more clients",
                          path, csv->number, client, num_parts);
    }
    if (owner[example] != FEDGE_PARTITION_UNUSED) {
        return fedge_fail(err, FEDGE_DUPLICATE,
                          "%s:%" PRIu64 ": example %" PRId64 " is given twice; client %" PRId64
                          " has it already",
                          path, csv->number, example, client_of(owner[example]));
    }
    owner[example] = client == VALIDATION ? FEDGE_PARTITION_VALIDATION : (uint32_t)client;
    return FEDGE_OK;
}

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    fedge_csv csv;
    FEDGE_TRY(open_file(&csv, spec->source, err));
    fedge_status status;
    memset(owner, 0xFF, data->num_examples * sizeof(*owner)); /* FEDGE_PARTITION_UNUSED */
    for (;;) {
        bool end = false;
        int64_t example, client;
        FEDGE_TRY_OR(next_row(&csv, &end, &example, &client, err), done);
        if (end)
            break;
        FEDGE_TRY_OR(take_row(&csv, example, client, data->num_examples, num_parts, owner, err),
                     done);
    }
done:
    fedge_csv_close(&csv);
    return status;
}

static fedge_status count_clients(const fedge_partition_spec *spec, const char *values_path,
                                  uint32_t *num_parts, fedge_error *err)
{
    (void)values_path;
    fedge_csv csv;
    bool apart = false;
    FEDGE_TRY(open_file(&csv, spec->source, err));
    fedge_status status;
    for (;;) {
        bool end = false;
        int64_t example, client;
        status = next_row(&csv, &end, &example, &client, err);
        if (status != FEDGE_OK || end)
            break;
        if (client < VALIDATION || client >= FEDGE_PARTITION_VALIDATION) {
            status = fedge_fail(err, FEDGE_OUT_OF_RANGE,
                                "%s:%" PRIu64 ": client %" PRId64
                                " is not in 0 to %u; give clients numbers counted from 0",
                                spec->source, csv.number, client, FEDGE_PARTITION_VALIDATION - 1);
            break;
        }
        *num_parts = client >= (int64_t)*num_parts ? (uint32_t)client + 1 : *num_parts;
        apart = apart || client == VALIDATION;
    }
    fedge_csv_close(&csv);
    if (status == FEDGE_OK && *num_parts == 0) {
        status = fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s: %s; give examples to clients, from 0",
                            spec->source,
                            apart ? "every row's client is -1, for validation, and nobody trains"
                                  : "there is no row in it");
    }
    return status;
}

const fedge_partition_ops fedge_partition_file = {.name = "file",
                                                  .usage = "file:CSV",
                                                  .argument = FEDGE_PARTITION_SOURCE,
                                                  .min_examples = 1,
                                                  .assign = assign,
                                                  .num_parts = count_clients};

/* --- writing ---------------------------------------------------------------------------------- */

static fedge_status flush(const fedge_os_file *file, fedge_buffer *rows, uint64_t *offset,
                          fedge_error *err)
{
    const fedge_status status = fedge_os_write_at(file, *offset, rows->data, rows->size, err);
    *offset += rows->size;
    fedge_buffer_consume(rows, rows->size);
    return status;
}

static fedge_status write_rows(const fedge_os_file *file, const uint32_t *owner,
                               uint32_t num_examples, fedge_error *err)
{
    fedge_buffer rows;
    fedge_buffer_init(&rows, CHUNK);
    uint64_t offset = 0;
    fedge_status status;
    FEDGE_TRY_OR(fedge_buffer_printf(&rows, err, HEADER "\n"), done);
    for (uint32_t i = 0; i < num_examples; i++) {
        if (owner[i] == FEDGE_PARTITION_UNUSED)
            continue;
        FEDGE_TRY_OR(
            fedge_buffer_printf(&rows, err, "%" PRIu32 ",%" PRId64 "\n", i, client_of(owner[i])),
            done);
        if (rows.size > CHUNK - MAX_ROW)
            FEDGE_TRY_OR(flush(file, &rows, &offset, err), done);
    }
    FEDGE_TRY_OR(flush(file, &rows, &offset, err), done);
    status = fedge_os_sync(file, err);
done:
    fedge_buffer_fini(&rows);
    return status;
}

fedge_status fedge_partition_write_csv(const char *path, const uint32_t *owner,
                                       uint32_t num_examples, fedge_error *err)
{
    char temporary[FEDGE_OS_MAX_PATH];
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s" TEMPORARY, path) >= sizeof(temporary)) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%.64s…: a path of over %zu bytes", path,
                          sizeof(temporary) - sizeof(TEMPORARY));
    }
    fedge_os_file file;
    /* A crash may have left one. */
    if (fedge_os_exists(temporary))
        FEDGE_TRY(fedge_os_remove(temporary, err));
    FEDGE_TRY(fedge_os_open(&file, temporary, FEDGE_OS_CREATE, err));
    fedge_status status = write_rows(&file, owner, num_examples, err);
    fedge_os_close(&file);
    FEDGE_TRY_OR(status, failed);
    FEDGE_TRY_OR(fedge_os_publish(temporary, path, err), failed);
    return FEDGE_OK;
failed: /* the first failure counts */
    (void)!fedge_os_remove(temporary, NULL);
    return status;
}
