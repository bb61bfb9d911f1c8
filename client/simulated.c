#include "client/simulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/own_trainer.h"
#include "client/worker.h"
#include "edge/core/os.h"
#include "edge/plan/simulated.h"

#define MAX_CHANNEL 65535
#define NO_RUN "00000000000000000000000000000000" /* a simulation has no id */

struct fedge_simulated {
    int channel;
    fedge_client *client;
    fedge_client_callbacks callbacks;
    fedge_plan *plan; /* NULL before the first */
    fedge_client_plan view;
    fedge_simulated_layout layout;
    float *memory;
    fedge_own_trainer own;
    fedge_client_report report;
};

bool fedge_simulated_wanted(void)
{
    return getenv(FEDGE_SIMULATED_CHANNEL) != NULL;
}

static void drop_plan(fedge_simulated *s)
{
    fedge_os_shared_unmap(s->memory, s->layout.bytes);
    fedge_own_trainer_fini(&s->own);
    fedge_plan_free(s->plan);
    s->memory = NULL;
    s->plan = NULL;
}

fedge_status fedge_simulated_new(fedge_client *client, const fedge_client_callbacks *callbacks,
                                 fedge_simulated **simulated, fedge_error *err)
{
    const char *text = getenv(FEDGE_SIMULATED_CHANNEL);
    char *end = NULL;
    const long channel = text ? strtol(text, &end, 10) : -1;
    fedge_simulated_hello hello = {.magic = FEDGE_SIMULATED_MAGIC};
    *simulated = NULL;
    if (!text || end == text || *end != '\0' || channel < 0 || channel > MAX_CHANNEL) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          FEDGE_SIMULATED_CHANNEL " names no channel: fedge-simulate sets it for "
                                                  "the trainers that it starts; remove it");
    }
    (void)snprintf(hello.release, sizeof(hello.release), "%s", FEDGE_VERSION);
    const fedge_status sent = fedge_os_channel_send((int)channel, &hello, sizeof(hello), -1, err);
    /* A closed channel: the simulation has ended already. */
    if (sent != FEDGE_OK && sent != FEDGE_CLOSED)
        return sent;
    fedge_simulated *s = calloc(1, sizeof(*s));
    if (!s)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a client of %zu bytes", sizeof(*s));
    s->channel = (int)channel;
    s->client = client;
    s->callbacks = *callbacks;
    *simulated = s;
    return FEDGE_OK;
}

void fedge_simulated_free(fedge_simulated *simulated)
{
    if (!simulated)
        return;
    drop_plan(simulated);
    fedge_os_channel_close(simulated->channel);
    free(simulated);
}

/* ---- work ------------------------------------------------------------------------------------ */

static fedge_status take_plan(fedge_simulated *s, const char *text, size_t size, int memory,
                              fedge_error *err)
{
    void *mapped = NULL;
    drop_plan(s);
    FEDGE_TRY(fedge_plan_parse(text ? text : "", size, &s->plan, err));
    s->layout = fedge_simulated_layout_of(s->plan);
    FEDGE_TRY(fedge_os_shared_map(memory, s->layout.bytes, &mapped, err));
    s->memory = mapped;
    s->view = fedge_worker_view(s->plan, NO_RUN);
    if (s->callbacks.check)
        FEDGE_TRY(s->callbacks.check(s->callbacks.user, s->client, &s->view, err));
    FEDGE_TRY(fedge_own_trainer_init(&s->own, s->plan, &s->callbacks, s->memory, err));
    return s->callbacks.plan ? s->callbacks.plan(s->callbacks.user, s->client, &s->view, err)
                             : FEDGE_OK;
}

static fedge_status do_task(fedge_simulated *s, const fedge_simulated_message *message,
                            fedge_error *err)
{
    const fedge_simulated_layout *layout = &s->layout;
    const bool train = message->kind == FEDGE_SIMULATED_TRAIN;
    if (!s->memory)
        return fedge_fail(err, FEDGE_INTERNAL, "a task without a plan");
    const fedge_client_task task = {
        .task_id = message->task_id,
        .round = message->round,
        .client_index = message->client_index,
        .learning_rate = message->learning_rate,
        .deadline_ms = message->deadline_ms,
        .plan = &s->view,
        .correction = layout->correction > 0 ? s->memory + layout->correction_at : NULL,
        .personal = layout->personal > 0 ? s->memory + layout->personal_at : NULL,
        .others = layout->others > 0 ? s->memory + layout->others_at : NULL,
        .num_clients = message->num_clients};
    FEDGE_TRY(fedge_own_trainer_call(&s->own, &s->callbacks, s->client, &task, train, s->memory,
                                     &s->report, err));
    return fedge_worker_check_report(&s->report, train ? FEDGE_TASK_TRAIN : FEDGE_TASK_EVALUATE,
                                     err);
}

/* Sends the report, or why there is none. */
static fedge_status answer(fedge_simulated *s, fedge_status status, const fedge_error *why,
                           fedge_error *err)
{
    fedge_simulated_metric metrics[FEDGE_CLIENT_MAX_METRICS];
    const uint32_t num = s->report.num_metrics < FEDGE_CLIENT_MAX_METRICS
                             ? s->report.num_metrics
                             : FEDGE_CLIENT_MAX_METRICS;
    memset(metrics, 0, sizeof(metrics));
    for (uint32_t i = 0; i < num; i++) {
        memcpy(metrics[i].name, s->report.metrics[i].name, sizeof(s->report.metrics[i].name));
        metrics[i].value = s->report.metrics[i].value;
    }
    const fedge_simulated_message message = {.kind = FEDGE_SIMULATED_RESULT,
                                             .status = (int32_t)status,
                                             .size = status == FEDGE_OK ? num * sizeof(*metrics)
                                                                        : strlen(why->message),
                                             .chosen = s->report.chosen,
                                             .num_examples = s->report.num_examples,
                                             .num_steps = s->report.num_steps};
    return fedge_simulated_send(
        s->channel, &message,
        status == FEDGE_OK ? (const void *)metrics : (const void *)why->message, -1, err);
}

/* Serves one message. Failures are those of the channel. */
static fedge_status serve(fedge_simulated *s, fedge_error *err)
{
    fedge_simulated_message message;
    fedge_error why = {.message = ""};
    void *data = NULL;
    int memory = -1;
    FEDGE_TRY(
        fedge_simulated_receive(s->channel, &message, FEDGE_PLAN_MAX_SIZE, &data, &memory, err));
    memset(&s->report, 0, sizeof(s->report));
    const fedge_status status = message.kind == FEDGE_SIMULATED_PLAN
                                    ? take_plan(s, data, (size_t)message.size, memory, &why)
                                    : do_task(s, &message, &why);
    free(data);
    fedge_os_channel_close(memory);
    return answer(s, status, &why, err);
}

fedge_exit fedge_simulated_run(fedge_simulated *simulated, fedge_error *err)
{
    fedge_status status;
    do
        status = serve(simulated, err);
    while (status == FEDGE_OK);
    if (status != FEDGE_CLOSED)
        return FEDGE_EXIT_INTERNAL;
    (void)fedge_fail(err, FEDGE_OK, "the simulation has ended");
    return FEDGE_EXIT_OK;
}

void fedge_simulated_stop(fedge_simulated *simulated)
{
    fedge_os_channel_end(simulated->channel, true);
}

bool fedge_simulated_cancelled(const fedge_simulated *simulated)
{
    return fedge_os_channel_ended(simulated->channel);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Asks the simulator, and waits for its answer. */
static fedge_status ask(fedge_simulated *s, fedge_simulated_message *message, const char *key,
                        const void *given, void **data, fedge_error *err)
{
    *data = NULL;
    if (strlen(key) > FEDGE_SIMULATED_MAX_KEY || message->size > FEDGE_SIMULATED_MAX_VALUE) {
        return fedge_fail(err, FEDGE_TOO_BIG, "value %.64s: %llu bytes, and the limit is %llu", key,
                          (unsigned long long)message->size,
                          (unsigned long long)FEDGE_SIMULATED_MAX_VALUE);
    }
    (void)snprintf(message->key, sizeof(message->key), "%s", key);
    FEDGE_TRY(fedge_simulated_send(s->channel, message, given, -1, err));
    FEDGE_TRY(
        fedge_simulated_receive(s->channel, message, FEDGE_SIMULATED_MAX_VALUE, data, NULL, err));
    if (message->status == FEDGE_OK)
        return FEDGE_OK;
    const fedge_status status = fedge_fail(err, (fedge_status)message->status, "%.400s",
                                           *data ? (const char *)*data : "no such value");
    free(*data);
    *data = NULL;
    return status;
}

fedge_status fedge_simulated_put(fedge_simulated *simulated, const char *key, const void *data,
                                 size_t size, fedge_error *err)
{
    fedge_simulated_message message = {.kind = FEDGE_SIMULATED_PUT, .size = size};
    void *nothing = NULL;
    FEDGE_TRY(ask(simulated, &message, key, data, &nothing, err));
    free(nothing);
    return FEDGE_OK;
}

fedge_status fedge_simulated_get(fedge_simulated *simulated, const char *key, void **data,
                                 size_t *size, fedge_error *err)
{
    fedge_simulated_message message = {.kind = FEDGE_SIMULATED_GET};
    FEDGE_TRY(ask(simulated, &message, key, NULL, data, err));
    *size = (size_t)message.size;
    if (!*data)
        *data = calloc(1, 1); /* an empty value is one, too */
    return *data ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a value");
}
