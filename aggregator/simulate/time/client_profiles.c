#include "aggregator/simulate/time/client_profiles.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/csv.h"
#include "edge/json/json.h"

/* The last number of a profile's streams. */
enum { STREAM_COMPUTE, STREAM_DOWN, STREAM_UP };

/* A training step computes one product forward and two backward. */
#define FORWARD_FRACTION (1.0 / 3.0)

bool fedge_client_profiles_is_wanted(const fedge_client_profiles_settings *settings)
{
    return settings->compute || settings->bandwidth || settings->failure > 0.0 ||
           settings->availability || settings->trace;
}

/* ---- drawing --------------------------------------------------------------------------------- */

typedef struct distributions {
    fedge_distribution compute, down, up;
    bool symmetric; /* up is down */
} distributions;

static fedge_status parse(const char *option, const char *text, size_t size,
                          fedge_distribution *distribution, fedge_error *err)
{
    fedge_status status = fedge_distribution_parse(text, size, distribution, err);
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "--%s", option);
}

static fedge_status parse_profiles(const fedge_client_profiles_settings *settings,
                                   distributions *out, fedge_error *err)
{
    *out = (distributions){.symmetric = true};
    if (settings->compute) {
        FEDGE_TRY(
            parse("compute", settings->compute, strlen(settings->compute), &out->compute, err));
    }
    if (settings->bandwidth) {
        const char *text = settings->bandwidth;
        const size_t down = strcspn(text, "/");
        FEDGE_TRY(parse("bandwidth", text, down, &out->down, err));
        out->symmetric = text[down] == '\0';
        if (!out->symmetric)
            FEDGE_TRY(parse("bandwidth", text + down + 1, strlen(text + down + 1), &out->up, err));
    }
    if (!(settings->failure >= 0.0 && settings->failure < 1.0)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--failure is %g, but must be at least 0 and below 1", settings->failure);
    }
    return FEDGE_OK;
}

static float draw(const fedge_client_profiles *profiles, const fedge_distribution *distribution,
                  uint32_t client, uint16_t stream)
{
    fedge_rng rng =
        fedge_rng_stream(profiles->seed, FEDGE_PURPOSE_CLIENT_PROFILES, client, 0, stream);
    return (float)fedge_distribution_draw(distribution, &rng);
}

/* ---- quantiles ------------------------------------------------------------------------------- */

typedef struct ranked {
    fedge_client_profile speed;
    uint32_t client;
} ranked;

static int by_speed(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    const float left[] = {x->speed.compute, x->speed.down, x->speed.up};
    const float right[] = {y->speed.compute, y->speed.down, y->speed.up};
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    }
    return x->client < y->client ? -1 : x->client > y->client;
}

/* Sets each client's quantile, by compute speed first and by its number last, so that every run has
 * the same. */
static fedge_status rank(fedge_client_profiles *profiles, fedge_error *err)
{
    ranked *all = malloc(profiles->num_clients * sizeof(*all));
    if (!all) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to rank %u clients",
                          profiles->num_clients);
    }
    for (uint32_t c = 0; c < profiles->num_clients; c++)
        all[c] = (ranked){profiles->clients[c], c};
    qsort(all, profiles->num_clients, sizeof(*all), by_speed);
    for (uint32_t i = 0; i < profiles->num_clients; i++) {
        profiles->quantile[all[i].client] =
            (uint8_t)((uint64_t)i * FEDGE_SPEED_QUANTILES / profiles->num_clients);
    }
    free(all);
    return FEDGE_OK;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

double fedge_client_profiles_examples(const fedge_training_spec *training, fedge_task_kind kind,
                                      uint32_t count)
{
    if (kind == FEDGE_TASK_EVALUATE)
        return FORWARD_FRACTION * count;
    if (training->local_steps == 0)
        return (double)training->local_epochs * count;
    /* Each epoch ends with a smaller step for the examples that are left. */
    const uint32_t batch = training->batch_size;
    const uint32_t per_epoch = count / batch + (count % batch > 0);
    if (per_epoch == 0)
        return 0.0;
    const uint32_t epochs = training->local_steps / per_epoch;
    const double more = (double)(training->local_steps % per_epoch) * batch;
    return (double)epochs * count + fmin(more, count);
}

uint64_t fedge_client_profiles_task_us(const fedge_client_profiles *profiles, uint32_t client,
                                       const fedge_client_profiles_work *work)
{
    const fedge_client_profile *at = &profiles->clients[client];
    const double seconds = (double)work->bytes_down / (double)at->down +
                           work->examples / (double)at->compute +
                           (double)work->bytes_up / (double)at->up;
    return (uint64_t)fmin(round(seconds * 1e6), (double)FEDGE_CLIENT_PROFILES_MAX_TASK_US);
}

uint16_t fedge_client_profiles_stream(fedge_task_kind kind, uint32_t attempt)
{
    return (uint16_t)(kind == FEDGE_TASK_EVALUATE ? UINT16_MAX : attempt % UINT16_MAX);
}

bool fedge_client_profiles_fails(const fedge_client_profiles *profiles, uint32_t client,
                                 uint32_t round, uint32_t attempt, fedge_task_kind kind,
                                 double *fraction)
{
    const double failure = (double)profiles->clients[client].failure;
    if (failure <= 0.0)
        return false;
    fedge_rng rng = fedge_rng_stream(profiles->seed, FEDGE_PURPOSE_FAILURE, round, client,
                                     fedge_client_profiles_stream(kind, attempt));
    const bool fails = fedge_rng_double(&rng) < failure;
    *fraction = fedge_rng_double(&rng);
    return fails;
}

/* ---- distributions --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    fedge_distribution_kind kind;
    int parameters;
} KINDS[] = {{"fixed:", FEDGE_DISTRIBUTION_FIXED, 1},
             {"uniform:", FEDGE_DISTRIBUTION_UNIFORM, 2},
             {"lognormal:", FEDGE_DISTRIBUTION_LOGNORMAL, 2}};

/* Parses "A" or "A,B" up to the text's end. */
static bool parse_numbers(const char *at, int count, double out[2])
{
    for (int i = 0; i < count; i++) {
        char *end = NULL;
        out[i] = strtod(at, &end);
        if (end == at || *end != (i + 1 < count ? ',' : '\0'))
            return false;
        at = end + 1;
    }
    return true;
}

static bool is_in_range(double value)
{
    return value >= FEDGE_DISTRIBUTION_MIN && value <= FEDGE_DISTRIBUTION_MAX;
}

static fedge_status check(const fedge_distribution *distribution, const char *text,
                          fedge_error *err)
{
    const bool lognormal = distribution->kind == FEDGE_DISTRIBUTION_LOGNORMAL;
    const bool uniform = distribution->kind == FEDGE_DISTRIBUTION_UNIFORM;
    if (!is_in_range(distribution->a) || (uniform && !is_in_range(distribution->b))) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s': numbers must be from %g to %g", text,
                          FEDGE_DISTRIBUTION_MIN, FEDGE_DISTRIBUTION_MAX);
    }
    if (uniform && distribution->b < distribution->a) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s': the smaller number comes first",
                          text);
    }
    if (lognormal && !(distribution->b >= 0.0 && distribution->b <= FEDGE_DISTRIBUTION_MAX_SIGMA)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%s': the second number is the spread of the logarithm, from 0 to %g",
                          text, FEDGE_DISTRIBUTION_MAX_SIGMA);
    }
    return FEDGE_OK;
}

fedge_status fedge_distribution_parse(const char *text, size_t size,
                                      fedge_distribution *distribution, fedge_error *err)
{
    char copy[FEDGE_DISTRIBUTION_MAX_TEXT];
    if (size < sizeof(copy)) {
        memcpy(copy, text, size);
        copy[size] = '\0';
        for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
            const size_t name = strlen(KINDS[i].name);
            double numbers[2] = {0.0, 0.0};
            if (strncmp(copy, KINDS[i].name, name) == 0 &&
                parse_numbers(copy + name, KINDS[i].parameters, numbers)) {
                *distribution = (fedge_distribution){KINDS[i].kind, numbers[0], numbers[1]};
                return check(distribution, copy, err);
            }
        }
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "'%.*s' is not fixed:A, uniform:A,B or lognormal:MEDIAN,SIGMA",
                      size < sizeof(copy) ? (int)size : (int)sizeof(copy), text);
}

double fedge_distribution_draw(const fedge_distribution *distribution, fedge_rng *rng)
{
    double value = distribution->a;
    switch (distribution->kind) {
    case FEDGE_DISTRIBUTION_NONE:
        return INFINITY;
    case FEDGE_DISTRIBUTION_FIXED:
        break;
    case FEDGE_DISTRIBUTION_UNIFORM:
        value += (distribution->b - distribution->a) * fedge_rng_double(rng);
        break;
    case FEDGE_DISTRIBUTION_LOGNORMAL:
        value *= exp(distribution->b * fedge_rng_normal(rng));
        break;
    }
    return fmin(fmax(value, FEDGE_DISTRIBUTION_MIN), FEDGE_DISTRIBUTION_MAX);
}

/* ---- traces ---------------------------------------------------------------------------------- */

enum { CLIENT, COMPUTE, DOWN, UP, FAILURE, NUM_COLUMNS };

static const char *const NAMES[NUM_COLUMNS] = {"client", "compute", "down", "up", "failure"};

typedef struct trace {
    fedge_csv csv;
    const char *path;
    uint32_t column[NUM_COLUMNS]; /* its field */
    bool has[NUM_COLUMNS];
    uint32_t num_clients;
    uint64_t *line_of; /* (num_clients): the line of its row; 0: none yet */
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
    FEDGE_TRY(fedge_csv_header(&self->csv, err));
    const char *at = self->csv.line;
    uint32_t field = 0;
    for (;;) {
        const size_t size = strcspn(at, ",");
        FEDGE_TRY(take_name(self, at, size, field++, err));
        if (at[size] == '\0')
            break;
        at += size + 1;
    }
    self->csv.columns = field;
    if (!self->has[CLIENT]) {
        return fedge_fail(
            err, FEDGE_CORRUPT,
            "%s:%" PRIu64
            ": there is no column \"client\": it must say which client each row is for",
            self->path, self->csv.number);
    }
    return FEDGE_OK;
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

/* Checks and copies the row's value of a column, if the trace has it. */
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
    FEDGE_TRY(fedge_csv_values(&self->csv, FEDGE_F32, self->csv.columns, row, err));
    FEDGE_TRY(check_client(self, row[self->column[CLIENT]], &client, err));
    fedge_client_profile *to = &clients[client];
    float *const targets[NUM_COLUMNS] = {NULL, &to->compute, &to->down, &to->up, &to->failure};
    for (uint32_t i = COMPUTE; i < NUM_COLUMNS; i++)
        FEDGE_TRY(take_value(self, row, i, targets[i], err));
    return FEDGE_OK;
}

static fedge_status read_rows(trace *self, fedge_client_profile *clients, fedge_error *err)
{
    for (;;) {
        bool end = false;
        FEDGE_TRY(fedge_csv_next(&self->csv, &end, err));
        if (end)
            break;
        FEDGE_TRY(read_row(self, clients, err));
    }
    for (uint32_t c = 0; c < self->num_clients; c++) {
        if (self->line_of[c] == 0) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "%s: client %" PRIu32 " has no row: each of 0 to %" PRIu32
                              " needs one",
                              self->path, c, self->num_clients - 1);
        }
    }
    return FEDGE_OK;
}

/* Replaces the drawn values by the columns of the trace. Refuses an option for such a column, which
 * would have no effect. */
static fedge_status load_trace(fedge_client_profiles *profiles,
                               const fedge_client_profiles_settings *settings, fedge_error *err)
{
    trace self = {.path = settings->trace, .num_clients = profiles->num_clients};
    if (!settings->trace)
        return FEDGE_OK;
    FEDGE_TRY(fedge_csv_open(&self.csv, self.path, 0, err));
    self.line_of = calloc(self.num_clients, sizeof(*self.line_of));
    fedge_status status;
    FEDGE_TRY_OR(self.line_of
                     ? FEDGE_OK
                     : fedge_fail(err, FEDGE_NO_MEMORY,
                                  "no memory for a trace of %" PRIu32 " clients", self.num_clients),
                 done);
    FEDGE_TRY_OR(read_header(&self, err), done);
    FEDGE_TRY_OR(read_rows(&self, profiles->clients, err), done);
    const char *both = settings->compute && self.has[COMPUTE]                    ? "compute"
                       : settings->bandwidth && (self.has[DOWN] || self.has[UP]) ? "bandwidth"
                       : settings->failure > 0.0 && self.has[FAILURE]            ? "failure"
                                                                                 : NULL;
    if (both) {
        status = fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "--%s, which %s has a column for: drop one of them", both, self.path);
    }
done:
    free(self.line_of);
    fedge_csv_close(&self.csv);
    return status;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void draw_clients(fedge_client_profiles *profiles, const distributions *from, float failure)
{
    for (uint32_t c = 0; c < profiles->num_clients; c++) {
        fedge_client_profile *client = &profiles->clients[c];
        client->compute = draw(profiles, &from->compute, c, STREAM_COMPUTE);
        client->down = draw(profiles, &from->down, c, STREAM_DOWN);
        client->up = from->symmetric ? client->down : draw(profiles, &from->up, c, STREAM_UP);
        client->failure = failure;
    }
}

fedge_status fedge_client_profiles_new(const fedge_client_profiles_settings *settings,
                                       uint64_t seed, uint32_t num_clients,
                                       fedge_client_profiles **profiles, fedge_error *err)
{
    *profiles = NULL;
    distributions from;
    FEDGE_TRY(parse_profiles(settings, &from, err));
    fedge_client_profiles *fresh = calloc(1, sizeof(*fresh));
    if (fresh) {
        fresh->seed = seed;
        fresh->num_clients = num_clients;
        fresh->clients = calloc(num_clients, sizeof(*fresh->clients));
        fresh->quantile = calloc(num_clients, sizeof(*fresh->quantile));
    }
    if (!fresh || !fresh->clients || !fresh->quantile) {
        fedge_client_profiles_free(fresh);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the profiles of %u clients",
                          num_clients);
    }
    draw_clients(fresh, &from, (float)settings->failure);
    fedge_status status;
    FEDGE_TRY_OR(load_trace(fresh, settings, err), failed);
    FEDGE_TRY_OR(rank(fresh, err), failed);
    if (settings->availability) {
        FEDGE_TRY_OR(fedge_availability_new(settings->availability, seed, num_clients,
                                            &fresh->availability, err),
                     failed);
    }
    *profiles = fresh;
    return FEDGE_OK;
failed:
    fedge_client_profiles_free(fresh);
    return status;
}

void fedge_client_profiles_free(fedge_client_profiles *profiles)
{
    if (profiles) {
        free(profiles->clients);
        free(profiles->quantile);
        fedge_availability_free(profiles->availability);
        free(profiles);
    }
}
