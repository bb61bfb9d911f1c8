#include "aggregator/simulate/time/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/csv.h"
#include "edge/json/json.h"

enum { CLIENT, COMPUTE, DOWN, UP, FAILURE, NUM_COLUMNS };

static const char *const NAMES[NUM_COLUMNS] = {"client", "compute", "down", "up", "failure"};

typedef struct trace {
    fedge_csv csv;
    const char *path;
    uint32_t column[NUM_COLUMNS]; /* which field it is */
    bool has[NUM_COLUMNS];
    uint32_t num_clients;
    uint64_t *line_of; /* (num_clients): where its row is; 0: not yet */
} trace;

/* ---- the header ------------------------------------------------------------------------------ */

static fedge_status take_name(trace *self, const char *name, size_t size, uint32_t field,
                              fedge_error *err)
{
    char copy[64];
    while (size > 0 && (*name == ' ' || *name == '\t')) {
        name++;
        size--;
    }
    while (size > 0 && (name[size - 1] == ' ' || name[size - 1] == '\t'))
        size--;
    size = size < sizeof(copy) ? size : sizeof(copy) - 1;
    memcpy(copy, name, size);
    copy[size] = '\0';
    for (uint32_t i = 0; i < NUM_COLUMNS; i++) {
        if (strcmp(copy, NAMES[i]) == 0 && self->has[i]) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "%s:%" PRIu64 ": column \"%s\" is there twice: remove one",
                              self->path, self->csv.number, copy);
        }
        if (strcmp(copy, NAMES[i]) == 0) {
            self->has[i] = true;
            self->column[i] = field;
            return FEDGE_OK;
        }
    }
    const char *nearest = fedge_json_nearest(copy, NAMES, NUM_COLUMNS);
    return fedge_fail(err, FEDGE_CORRUPT,
                      "%s:%" PRIu64 ": no column is called \"%s\"%s%s%s; there are client, "
                      "compute, down, up and failure",
                      self->path, self->csv.number, copy, nearest ? "; did you mean \"" : "",
                      nearest ? nearest : "", nearest ? "\"?" : "");
}

static fedge_status read_header(trace *self, fedge_error *err)
{
    fedge_status status = fedge_csv_header(&self->csv, err);
    const char *at = self->csv.line;
    uint32_t field = 0;
    while (status == FEDGE_OK) {
        const size_t size = strcspn(at, ",");
        status = take_name(self, at, size, field++, err);
        if (at[size] == '\0')
            break;
        at += size + 1;
    }
    self->csv.columns = field;
    if (status == FEDGE_OK && !self->has[CLIENT]) {
        status =
            fedge_fail(err, FEDGE_CORRUPT,
                       "%s:%" PRIu64
                       ": there is no column \"client\": it must say which client each row is for",
                       self->path, self->csv.number);
    }
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static fedge_status check_client(trace *self, float value, uint32_t *client, fedge_error *err)
{
    /* Rows are read as floats, which hold every client's number exactly: there are 2^24 at most. */
    if (!(value >= 0.0f && value < (float)self->num_clients) || value != (float)(uint32_t)value) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s:%" PRIu64 ": client %.9g is none of 0 to %" PRIu32
                          ": correct it or change --clients",
                          self->path, self->csv.number, (double)value, self->num_clients - 1);
    }
    *client = (uint32_t)value;
    if (self->line_of[*client] > 0) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s:%" PRIu64 ": client %" PRIu32 " has a row in line %" PRIu64
                          " already: remove one",
                          self->path, self->csv.number, *client, self->line_of[*client]);
    }
    self->line_of[*client] = self->csv.number;
    return FEDGE_OK;
}

/* Puts the row's value of a column where it belongs; a column that is not there has none. */
static fedge_status take_value(const trace *self, const float *row, uint32_t column, float *to,
                               fedge_error *err)
{
    if (!self->has[column])
        return FEDGE_OK;
    const double value = (double)row[self->column[column]];
    if (column == FAILURE && !(value >= 0.0 && value < 1.0)) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s:%" PRIu64 ": failure is %g, but must be at least 0 and below 1",
                          self->path, self->csv.number, value);
    }
    if (column != FAILURE &&
        !(value >= FEDGE_DISTRIBUTION_MIN && value <= FEDGE_DISTRIBUTION_MAX)) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s:%" PRIu64 ": %s is %g: a number from %g to %g per second is needed",
                          self->path, self->csv.number, NAMES[column], value,
                          FEDGE_DISTRIBUTION_MIN, FEDGE_DISTRIBUTION_MAX);
    }
    *to = row[self->column[column]];
    return FEDGE_OK;
}

static fedge_status read_row(trace *self, fedge_client_profile *clients, fedge_error *err)
{
    float row[NUM_COLUMNS];
    uint32_t client = 0;
    fedge_status status = fedge_csv_values(&self->csv, FEDGE_F32, self->csv.columns, row, err);
    if (status == FEDGE_OK)
        status = check_client(self, row[self->column[CLIENT]], &client, err);
    /* On failure this is client 0, to whom nothing is given. */
    fedge_client_profile *to = &clients[client];
    float *const places[NUM_COLUMNS] = {NULL, &to->compute, &to->down, &to->up, &to->failure};
    for (uint32_t i = COMPUTE; i < NUM_COLUMNS && status == FEDGE_OK; i++)
        status = take_value(self, row, i, places[i], err);
    return status;
}

static fedge_status read_rows(trace *self, fedge_client_profile *clients, fedge_error *err)
{
    bool end = false;
    fedge_status status = FEDGE_OK;
    while (status == FEDGE_OK && !end) {
        status = fedge_csv_next(&self->csv, &end, err);
        if (status == FEDGE_OK && !end)
            status = read_row(self, clients, err);
    }
    for (uint32_t c = 0; c < self->num_clients && status == FEDGE_OK; c++) {
        if (self->line_of[c] == 0) {
            status =
                fedge_fail(err, FEDGE_CORRUPT,
                           "%s: client %" PRIu32 " has no row: each of 0 to %" PRIu32 " needs one",
                           self->path, c, self->num_clients - 1);
        }
    }
    return status;
}

fedge_status fedge_trace_load(const char *path, uint32_t num_clients, fedge_client_profile *clients,
                              fedge_trace_columns *columns, fedge_error *err)
{
    trace self = {.path = path, .num_clients = num_clients};
    fedge_status status = fedge_csv_open(&self.csv, path, 0, err);
    if (status != FEDGE_OK)
        return status;
    self.line_of = calloc(num_clients, sizeof(*self.line_of));
    status = self.line_of ? read_header(&self, err)
                          : fedge_fail(err, FEDGE_NO_MEMORY,
                                       "no memory for a trace of %" PRIu32 " clients", num_clients);
    if (status == FEDGE_OK)
        status = read_rows(&self, clients, err);
    *columns =
        (fedge_trace_columns){self.has[COMPUTE], self.has[DOWN], self.has[UP], self.has[FAILURE]};
    free(self.line_of);
    fedge_csv_close(&self.csv);
    return status;
}
