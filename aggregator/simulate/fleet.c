#include "aggregator/simulate/fleet.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/trace.h"

/* Last number of a profile's streams. */
enum { STREAM_COMPUTE, STREAM_DOWN, STREAM_UP };

#define FORWARD_SHARE (1.0 / 3.0) /* of a training step: the backward pass is two products more */

bool fedge_fleet_is_wanted(const fedge_fleet_settings *settings)
{
    return settings->compute || settings->bandwidth || settings->failure > 0.0 ||
           settings->availability || settings->trace;
}

/* ---- drawing --------------------------------------------------------------------------------- */

typedef struct profiles {
    fedge_distribution compute, down, up;
    bool symmetric; /* up is down */
} profiles;

static fedge_status parse(const char *option, const char *text, size_t size,
                          fedge_distribution *distribution, fedge_error *err)
{
    fedge_status status = fedge_distribution_parse(text, size, distribution, err);
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "--%s", option);
}

static fedge_status parse_profiles(const fedge_fleet_settings *settings, profiles *out,
                                   fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    *out = (profiles){.symmetric = true};
    if (settings->compute) {
        status = parse("compute", settings->compute, strlen(settings->compute), &out->compute, err);
    }
    if (status == FEDGE_OK && settings->bandwidth) {
        const char *text = settings->bandwidth;
        const size_t down = strcspn(text, "/");
        status = parse("bandwidth", text, down, &out->down, err);
        out->symmetric = text[down] == '\0';
        if (status == FEDGE_OK && !out->symmetric) {
            status = parse("bandwidth", text + down + 1, strlen(text + down + 1), &out->up, err);
        }
    }
    if (status == FEDGE_OK && !(settings->failure >= 0.0 && settings->failure < 1.0)) {
        status = fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "--failure is %g: a probability from 0 to below 1 is wanted",
                            settings->failure);
    }
    return status;
}

static float draw(const fedge_fleet *fleet, const fedge_distribution *distribution, uint32_t client,
                  uint16_t stream)
{
    fedge_rng rng = fedge_rng_stream(fleet->seed, FEDGE_PURPOSE_FLEET, client, 0, stream);
    return (float)fedge_distribution_draw(distribution, &rng);
}

/* ---- quantiles ------------------------------------------------------------------------------- */

typedef struct ranked {
    fedge_fleet_client speed;
    uint32_t client;
} ranked;

static int by_speed(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    const float left[] = {x->speed.compute, x->speed.down, x->speed.up};
    const float right[] = {y->speed.compute, y->speed.down, y->speed.up};
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    return x->client < y->client ? -1 : x->client > y->client;
}

static fedge_status rank(fedge_fleet *fleet, fedge_error *err)
{
    ranked *all = malloc(fleet->num_clients * sizeof(*all));
    if (!all) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to rank %u clients", fleet->num_clients);
    }
    for (uint32_t c = 0; c < fleet->num_clients; c++) {
        all[c] = (ranked){fleet->clients[c], c};
    }
    qsort(all, fleet->num_clients, sizeof(*all), by_speed);
    for (uint32_t i = 0; i < fleet->num_clients; i++) {
        fleet->quantile[all[i].client] =
            (uint8_t)((uint64_t)i * FEDGE_SPEED_QUANTILES / fleet->num_clients);
    }
    free(all);
    return FEDGE_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void draw_clients(fedge_fleet *fleet, const profiles *from, float failure)
{
    for (uint32_t c = 0; c < fleet->num_clients; c++) {
        fedge_fleet_client *client = &fleet->clients[c];
        client->compute = draw(fleet, &from->compute, c, STREAM_COMPUTE);
        client->down = draw(fleet, &from->down, c, STREAM_DOWN);
        client->up = from->symmetric ? client->down : draw(fleet, &from->up, c, STREAM_UP);
        client->failure = failure;
    }
}

static fedge_status load_trace(fedge_fleet *fleet, const fedge_fleet_settings *settings,
                               fedge_error *err)
{
    fedge_trace_columns has;
    if (!settings->trace) {
        return FEDGE_OK;
    }
    fedge_status status =
        fedge_trace_load(settings->trace, fleet->num_clients, fleet->clients, &has, err);
    const char *both = NULL;
    if (settings->compute && has.compute) {
        both = "compute";
    } else if (settings->bandwidth && (has.down || has.up)) {
        both = "bandwidth";
    } else if (settings->failure > 0.0 && has.failure) {
        both = "failure";
    }
    return status == FEDGE_OK && both
               ? fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "--%s, which %s has a column for: drop one of them", both,
                            settings->trace)
               : status;
}

fedge_status fedge_fleet_new(const fedge_fleet_settings *settings, uint64_t seed,
                             uint32_t num_clients, fedge_fleet **fleet, fedge_error *err)
{
    *fleet = NULL;
    profiles from;
    fedge_status status = parse_profiles(settings, &from, err);
    if (status != FEDGE_OK) {
        return status;
    }
    fedge_fleet *fresh = calloc(1, sizeof(*fresh));
    if (fresh) {
        fresh->seed = seed;
        fresh->num_clients = num_clients;
        fresh->clients = calloc(num_clients, sizeof(*fresh->clients));
        fresh->quantile = calloc(num_clients, sizeof(*fresh->quantile));
    }
    if (!fresh || !fresh->clients || !fresh->quantile) {
        fedge_fleet_free(fresh);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a fleet of %u clients", num_clients);
    }
    draw_clients(fresh, &from, (float)settings->failure);
    status = load_trace(fresh, settings, err);
    if (status == FEDGE_OK) {
        status = rank(fresh, err);
    }
    if (status == FEDGE_OK && settings->availability) {
        status = fedge_availability_new(settings->availability, seed, num_clients,
                                        &fresh->availability, err);
    }
    if (status != FEDGE_OK) {
        fedge_fleet_free(fresh);
        return status;
    }
    *fleet = fresh;
    return FEDGE_OK;
}

void fedge_fleet_free(fedge_fleet *fleet)
{
    if (fleet) {
        free(fleet->clients);
        free(fleet->quantile);
        fedge_availability_free(fleet->availability);
        free(fleet);
    }
}

/* ---- tasks ----------------------------------------------------------------------------------- */

double fedge_fleet_examples(const fedge_training_spec *training, fedge_task_kind kind,
                            uint32_t count)
{
    if (kind == FEDGE_TASK_EVALUATE) {
        return FORWARD_SHARE * count;
    }
    if (training->local_steps == 0) {
        return (double)training->local_epochs * count;
    }
    /* Steps go over the epochs, of which each ends with a step of what is left. */
    const uint32_t batch = training->batch_size;
    const uint32_t per_epoch = count / batch + (count % batch > 0);
    if (per_epoch == 0) {
        return 0.0;
    }
    const uint32_t epochs = training->local_steps / per_epoch;
    const double rest = (double)(training->local_steps % per_epoch) * batch;
    return (double)epochs * count + fmin(rest, count);
}

uint64_t fedge_fleet_task_us(const fedge_fleet *fleet, uint32_t client,
                             const fedge_fleet_work *work)
{
    const fedge_fleet_client *at = &fleet->clients[client];
    const double seconds = (double)work->bytes_down / (double)at->down +
                           work->examples / (double)at->compute +
                           (double)work->bytes_up / (double)at->up;
    return (uint64_t)fmin(round(seconds * 1e6), (double)FEDGE_FLEET_MAX_TASK_US);
}

uint16_t fedge_fleet_stream(fedge_task_kind kind, uint32_t attempt)
{
    return (uint16_t)(kind == FEDGE_TASK_EVALUATE ? UINT16_MAX : attempt % UINT16_MAX);
}

bool fedge_fleet_fails(const fedge_fleet *fleet, uint32_t client, uint32_t round, uint32_t attempt,
                       fedge_task_kind kind, double *share)
{
    const double failure = (double)fleet->clients[client].failure;
    if (failure <= 0.0) {
        return false;
    }
    fedge_rng rng = fedge_rng_stream(fleet->seed, FEDGE_PURPOSE_FAILURE, round, client,
                                     fedge_fleet_stream(kind, attempt));
    const bool fails = fedge_rng_double(&rng) < failure;
    *share = fedge_rng_double(&rng);
    return fails;
}
