/* When clients are online, drawn or read from a file; both are functions of (client, time) without
 * state.
 *
 * Drawn: a client's periods on and off are exponentially distributed. Time is cut into segments of
 * 64 average periods. Each has its own random stream and begins online with the probability that is
 * the fraction of time online, the chain's stationary state. So a client's state at any time costs
 * one walk through a segment, and does not depend on earlier queries.
 *
 * Read: rows of one period, which ends with the last row and repeats for ever. */
#include "aggregator/simulate/time/availability.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"
#include "edge/data/formats/csv.h"

#define SEGMENT_PERIODS 64.0 /* average periods on and off in a segment of drawn time */

enum { CLIENT, FROM, TO, NUM_COLUMNS };

/* A row of the file. */
typedef struct interval {
    uint32_t client;
    uint64_t from, to; /* seconds */
    uint64_t line;
} interval;

struct fedge_availability {
    uint64_t seed;
    uint32_t num_clients;
    /* Drawn. */
    double fraction, on_us, off_us; /* means */
    uint64_t segment_us;
    /* Read; NULL: drawn. */
    interval *intervals; /* ascending by (client, from) */
    uint32_t num_intervals, capacity;
    uint32_t *first; /* (num_clients + 1): client c has intervals[first[c], first[c + 1]) */
    uint64_t period; /* seconds */
};

/* ---- drawn ----------------------------------------------------------------------------------- */

static fedge_status parse_drawn(fedge_availability *self, const char *text, fedge_error *err)
{
    char *end = NULL;
    const double fraction = strtod(text, &end);
    const bool comma = end != text && *end == ',';
    const char *second = comma ? end + 1 : text;
    const double seconds = comma ? strtod(second, &end) : 0.0;
    if (!comma || end == second || *end != '\0' || !(fraction >= FEDGE_AVAILABILITY_MIN_FRACTION) ||
        !(fraction <= FEDGE_AVAILABILITY_MAX_FRACTION) || !(seconds >= 1.0) ||
        !(seconds <= FEDGE_AVAILABILITY_MAX_SECONDS)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--availability must be file:CSV or the share of time online, %g to %g, "
                          "and the seconds of a period online, 1 to %.0f, such as 0.3,3600, not "
                          "'%.100s'",
                          FEDGE_AVAILABILITY_MIN_FRACTION, FEDGE_AVAILABILITY_MAX_FRACTION,
                          FEDGE_AVAILABILITY_MAX_SECONDS, text);
    }
    self->fraction = fraction;
    self->on_us = seconds * 1e6;
    self->off_us = self->on_us * (1.0 - fraction) / fraction;
    self->segment_us = (uint64_t)(SEGMENT_PERIODS * (self->on_us + self->off_us));
    return FEDGE_OK;
}

/* Draws an exponentially distributed time, at least a microsecond. */
static uint64_t draw_period(fedge_rng *rng, double mean_us)
{
    /* fedge_rng_double is in [0, 1), so the logarithm takes its complement. */
    return 1 + (uint64_t)(-mean_us * log(1.0 - fedge_rng_double(rng)));
}

/* The client's state at [time_us], and the end of it or of the segment. */
static bool drawn_at(const fedge_availability *self, uint32_t client, uint64_t time_us,
                     uint64_t *until_us)
{
    const uint64_t number = time_us / self->segment_us;
    fedge_rng rng = fedge_rng_stream(self->seed, FEDGE_PURPOSE_ONLINE, client, (uint32_t)number, 0);
    bool online = fedge_rng_double(&rng) < self->fraction;
    uint64_t at = number * self->segment_us;
    const uint64_t end = at + self->segment_us;
    for (;;) {
        at += draw_period(&rng, online ? self->on_us : self->off_us);
        if (at > time_us || at >= end) {
            *until_us = at < end ? at : end;
            return online;
        }
        online = !online;
    }
}

/* ---- read ------------------------------------------------------------------------------------ */

static fedge_status read_header(fedge_csv *csv, uint32_t column[NUM_COLUMNS], fedge_error *err)
{
    static const char *const names[NUM_COLUMNS] = {"client", "from", "to"};
    bool has[NUM_COLUMNS] = {false};
    FEDGE_TRY(fedge_csv_header(csv, err));
    const char *at = csv->line;
    for (uint32_t field = 0; field < NUM_COLUMNS; field++) {
        at += strspn(at, " \t");
        const size_t size = strcspn(at, ", \t");
        for (uint32_t i = 0; i < NUM_COLUMNS; i++) {
            if (strlen(names[i]) == size && memcmp(names[i], at, size) == 0) {
                has[i] = true;
                column[i] = field;
            }
        }
        at += size;
        at += strspn(at, " \t");
        at += *at == ',';
    }
    if (!(has[CLIENT] && has[FROM] && has[TO] && *at == '\0')) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s:%" PRIu64 ": the columns must be client, from and to",
                          csv->reader.path, csv->number);
    }
    csv->columns = NUM_COLUMNS;
    return FEDGE_OK;
}

static fedge_status check_row(const fedge_availability *self, const fedge_csv *csv, int64_t client,
                              int64_t from, int64_t to, fedge_error *err)
{
    const char *path = csv->reader.path;
    if (client < 0 || client >= (int64_t)self->num_clients) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s:%" PRIu64 ": client %" PRId64 " is none of 0 to %" PRIu32
                          ": correct it or change --clients",
                          path, csv->number, client, self->num_clients - 1);
    }
    if (from < 0 || to <= from || (double)to > 100.0 * FEDGE_AVAILABILITY_MAX_SECONDS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "%s:%" PRIu64 ": from %" PRId64 " to %" PRId64
                          ": times are from 0 to %.0f seconds, and the second is later",
                          path, csv->number, from, to, 100.0 * FEDGE_AVAILABILITY_MAX_SECONDS);
    }
    return FEDGE_OK;
}

static fedge_status add_interval(fedge_availability *self, interval row, fedge_error *err)
{
    if (self->num_intervals == self->capacity) {
        const uint32_t more = self->capacity > 0 ? self->capacity * 2 : 1024;
        interval *intervals = more <= FEDGE_AVAILABILITY_MAX_ROWS
                                  ? realloc(self->intervals, more * sizeof(*intervals))
                                  : NULL;
        if (!intervals)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " rows", more);
        self->intervals = intervals;
        self->capacity = more;
    }
    self->intervals[self->num_intervals++] = row;
    self->period = row.to > self->period ? row.to : self->period;
    return FEDGE_OK;
}

static fedge_status read_rows(fedge_availability *self, fedge_csv *csv,
                              const uint32_t column[NUM_COLUMNS], fedge_error *err)
{
    for (;;) {
        int64_t row[NUM_COLUMNS] = {0};
        bool end = false;
        FEDGE_TRY(fedge_csv_next(csv, &end, err));
        if (end)
            return FEDGE_OK;
        FEDGE_TRY(fedge_csv_integers(csv, row, err));
        const int64_t client = row[column[CLIENT]], from = row[column[FROM]], to = row[column[TO]];
        FEDGE_TRY(check_row(self, csv, client, from, to, err));
        const interval read = {.client = (uint32_t)client,
                               .from = (uint64_t)from,
                               .to = (uint64_t)to,
                               .line = csv->number};
        FEDGE_TRY(add_interval(self, read, err));
    }
}

static int by_time(const void *a, const void *b)
{
    const interval *x = a, *y = b;
    if (x->client != y->client)
        return x->client < y->client ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* Sorts the intervals by client and checks them. */
static fedge_status index_intervals(fedge_availability *self, const char *path, fedge_error *err)
{
    self->first = calloc((size_t)self->num_clients + 1, sizeof(*self->first));
    if (!self->first) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " clients",
                          self->num_clients);
    }
    if (self->num_intervals > 0)
        qsort(self->intervals, self->num_intervals, sizeof(*self->intervals), by_time);
    uint32_t at = 0;
    for (uint32_t c = 0; c < self->num_clients; c++) {
        self->first[c] = at;
        while (at < self->num_intervals && self->intervals[at].client == c) {
            const interval *row = &self->intervals[at];
            if (at > self->first[c] && row->from < row[-1].to) {
                return fedge_fail(err, FEDGE_CORRUPT,
                                  "%s:%" PRIu64 ": client %" PRIu32 " is online from %" PRIu64
                                  " on, as line %" PRIu64 " says already: merge the two rows",
                                  path, row->line, c, row->from, row[-1].line);
            }
            at++;
        }
        if (at == self->first[c]) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "%s: client %" PRIu32 " has no row: each of 0 to %" PRIu32
                              " needs a time online",
                              path, c, self->num_clients - 1);
        }
    }
    self->first[self->num_clients] = at;
    return FEDGE_OK;
}

static fedge_status load(fedge_availability *self, const char *path, fedge_error *err)
{
    fedge_csv csv;
    uint32_t column[NUM_COLUMNS] = {0};
    FEDGE_TRY(fedge_csv_open(&csv, path, 0, err));
    fedge_status status;
    FEDGE_TRY_OR(read_header(&csv, column, err), done);
    status = read_rows(self, &csv, column, err);
done:
    fedge_csv_close(&csv);
    FEDGE_TRY(status);
    return index_intervals(self, path, err);
}

/* The client's state at [time_us], and the end of its row or of the gap before it. */
static bool read_at(const fedge_availability *self, uint32_t client, uint64_t time_us,
                    uint64_t *until_us)
{
    const uint64_t period_us = self->period * 1000000, base_us = time_us / period_us * period_us;
    const uint64_t within_us = time_us - base_us;
    uint32_t low = self->first[client], high = self->first[client + 1];
    while (low < high) { /* the first row that ends later */
        const uint32_t mid = low + (high - low) / 2;
        if (self->intervals[mid].to * 1000000 <= within_us)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == self->first[client + 1]) {
        *until_us = base_us + period_us;
        return false;
    }
    const bool online = self->intervals[low].from * 1000000 <= within_us;
    *until_us = base_us + 1000000 * (online ? self->intervals[low].to : self->intervals[low].from);
    return online;
}

/* ---- both ------------------------------------------------------------------------------------ */

fedge_status fedge_availability_new(const char *text, uint64_t seed, uint32_t num_clients,
                                    fedge_availability **availability, fedge_error *err)
{
    *availability = NULL;
    fedge_availability *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the clients' availability");
    fresh->seed = seed;
    fresh->num_clients = num_clients;
    fedge_status status =
        strncmp(text, "file:", 5) == 0 ? load(fresh, text + 5, err) : parse_drawn(fresh, text, err);
    if (status != FEDGE_OK) {
        fedge_availability_free(fresh);
        return status;
    }
    *availability = fresh;
    return FEDGE_OK;
}

void fedge_availability_free(fedge_availability *availability)
{
    if (availability) {
        free(availability->intervals);
        free(availability->first);
        free(availability);
    }
}

bool fedge_availability_at(const fedge_availability *self, uint32_t client, uint64_t time_us,
                           uint64_t *until_us)
{
    bool (*const at)(const fedge_availability *, uint32_t, uint64_t, uint64_t *) =
        self->intervals ? read_at : drawn_at;
    const bool online = at(self, client, time_us, until_us);
    uint64_t next_us;
    /* Rows and segments may touch. A client that is online in all of a period is always online. */
    while (at(self, client, *until_us, &next_us) == online) {
        *until_us = next_us;
        if (self->intervals && next_us > time_us + 2 * self->period * 1000000) {
            *until_us = FEDGE_AVAILABILITY_NEVER;
            break;
        }
    }
    return online;
}
