#include "aggregator/simulate/time/client_profiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/time/trace.h"

/* Last number of a profile's streams. */
enum { STREAM_COMPUTE, STREAM_DOWN, STREAM_UP };

#define FORWARD_SHARE (1.0 / 3.0) /* of a training step: the backward pass is two products more */

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
    fedge_status status = FEDGE_OK;
    *out = (distributions){.symmetric = true};
    if (settings->compute)
        status = parse("compute", settings->compute, strlen(settings->compute), &out->compute, err);
    if (status == FEDGE_OK && settings->bandwidth) {
        const char *text = settings->bandwidth;
        const size_t down = strcspn(text, "/");
        status = parse("bandwidth", text, down, &out->down, err);
        out->symmetric = text[down] == '\0';
        if (status == FEDGE_OK && !out->symmetric)
            status = parse("bandwidth", text + down + 1, strlen(text + down + 1), &out->up, err);
    }
    if (status == FEDGE_OK && !(settings->failure >= 0.0 && settings->failure < 1.0)) {
        status =
            fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                       "--failure is %g, but must be at least 0 and below 1", settings->failure);
    }
    return status;
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

/* Clients fall into as many groups as there are quantiles, of equal size, by compute speed first;
 * ties go by the client's number, so that the same clients are in the same group in each run. */
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

/* A trace comes after the drawing and replaces the columns it has; those it lacks keep what was
 * drawn. An option for a column of the trace would have no effect, and is refused for that. */
static fedge_status load_trace(fedge_client_profiles *profiles,
                               const fedge_client_profiles_settings *settings, fedge_error *err)
{
    fedge_trace_columns has;
    if (!settings->trace)
        return FEDGE_OK;
    fedge_status status =
        fedge_trace_load(settings->trace, profiles->num_clients, profiles->clients, &has, err);
    const char *both = NULL;
    if (settings->compute && has.compute)
        both = "compute";
    else if (settings->bandwidth && (has.down || has.up))
        both = "bandwidth";
    else if (settings->failure > 0.0 && has.failure)
        both = "failure";
    return status == FEDGE_OK && both
               ? fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "--%s, which %s has a column for: drop one of them", both,
                            settings->trace)
               : status;
}

fedge_status fedge_client_profiles_new(const fedge_client_profiles_settings *settings,
                                       uint64_t seed, uint32_t num_clients,
                                       fedge_client_profiles **profiles, fedge_error *err)
{
    *profiles = NULL;
    distributions from;
    fedge_status status = parse_profiles(settings, &from, err);
    if (status != FEDGE_OK)
        return status;
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
    status = load_trace(fresh, settings, err);
    if (status == FEDGE_OK)
        status = rank(fresh, err);
    if (status == FEDGE_OK && settings->availability) {
        status = fedge_availability_new(settings->availability, seed, num_clients,
                                        &fresh->availability, err);
    }
    if (status != FEDGE_OK) {
        fedge_client_profiles_free(fresh);
        return status;
    }
    *profiles = fresh;
    return FEDGE_OK;
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

/* ---- tasks ----------------------------------------------------------------------------------- */

double fedge_client_profiles_examples(const fedge_training_spec *training, fedge_task_kind kind,
                                      uint32_t count)
{
    if (kind == FEDGE_TASK_EVALUATE)
        return FORWARD_SHARE * count;
    if (training->local_steps == 0)
        return (double)training->local_epochs * count;
    /* Steps go over the epochs, of which each ends with a step of what is left. */
    const uint32_t batch = training->batch_size;
    const uint32_t per_epoch = count / batch + (count % batch > 0);
    if (per_epoch == 0)
        return 0.0;
    const uint32_t epochs = training->local_steps / per_epoch;
    const double rest = (double)(training->local_steps % per_epoch) * batch;
    return (double)epochs * count + fmin(rest, count);
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
                                 double *share)
{
    const double failure = (double)profiles->clients[client].failure;
    if (failure <= 0.0)
        return false;
    fedge_rng rng = fedge_rng_stream(profiles->seed, FEDGE_PURPOSE_FAILURE, round, client,
                                     fedge_client_profiles_stream(kind, attempt));
    const bool fails = fedge_rng_double(&rng) < failure;
    *share = fedge_rng_double(&rng);
    return fails;
}
