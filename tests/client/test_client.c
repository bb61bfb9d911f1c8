/* What the client stores of the runs and plans that a server names. The server stands in place of
 * the link (client/link.h), in the client's own thread. */
#define _POSIX_C_SOURCE 200809L /* clock_nanosleep, mkdir */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/client_private.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/plan.h"
#include "secure/crypto/sha256.h"

#define DIR "client-test"
#define OBSTACLE DIR "/state.json.new" /* a folder where the client writes its state first */
#define RUN "00112233445566778899aabbccddeeff"
#define KEY "value"
#define JOB                                                                                        \
    "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": \"external\", \"tensors\": ["     \
    "{\"name\": \"w\", \"shape\": [2]}]}, \"training\": {\"learning-rate\": 0.1}, "                \
    "\"rounds\": {\"num-server-rounds\": 1}, \"update\": {\"codec\": \"none\", "                   \
    "\"deflate\": false}}"
enum { NUM_PLANS = 10 };

#define OK(call) assert_int_equal(call, FEDGE_OK)

typedef struct blob {
    uint8_t bytes[2048];
    size_t size;
    char hash[FEDGE_HASH_TEXT];
} blob;

static struct {
    fedge_client *client;
    blob plan, model;
    bool hangs_up; /* after a part of a plan, of which each connection names another */
    unsigned num_connections, num_declined, num_trained, num_found;
    uint64_t num_tasks;
    uint8_t tx[FEDGE_MESSAGE_MAX_SIZE];
} server;

/* ---- who the device is ----------------------------------------------------------------------- */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
fedge_status __wrap_fedge_identity_load(const char *dir, fedge_role role, uint64_t now_ms,
                                        fedge_identity **identity, fedge_error *err);
void __wrap_fedge_identity_free(fedge_identity *identity);
fedge_status __wrap_fedge_trust_load(const char *dir, char **pem, fedge_error *err);

fedge_status __wrap_fedge_identity_load(const char *dir, fedge_role role, uint64_t now_ms,
                                        fedge_identity **identity, fedge_error *err)
{
    (void)dir, (void)role, (void)now_ms, (void)err;
    *identity = calloc(1, sizeof(**identity));
    assert_non_null(*identity);
    (*identity)->certificate.not_after_ms = UINT64_MAX;
    return FEDGE_OK;
}

void __wrap_fedge_identity_free(fedge_identity *identity)
{
    free(identity);
}

fedge_status __wrap_fedge_trust_load(const char *dir, char **pem, fedge_error *err)
{
    (void)dir, (void)err;
    *pem = calloc(1, 1);
    assert_non_null(*pem);
    return FEDGE_OK;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- the link -------------------------------------------------------------------------------- */

struct fedge_link {
    fedge_link_events events;
    bool connects, open, wants_write;
    atomic_bool woken;
    uint64_t due_ms;
    uint8_t rx[FEDGE_MESSAGE_MAX_SIZE];
};

fedge_status fedge_link_check_urls(const char *urls, uint32_t *count, fedge_error *err)
{
    (void)urls, (void)err;
    *count = 1;
    return FEDGE_OK;
}

fedge_status fedge_link_new(const fedge_link_config *config, fedge_link **link, fedge_error *err)
{
    (void)err;
    *link = calloc(1, sizeof(**link));
    assert_non_null(*link);
    (*link)->events = config->events;
    (*link)->due_ms = UINT64_MAX;
    return FEDGE_OK;
}

void fedge_link_free(fedge_link *link)
{
    free(link);
}

const char *fedge_link_use_address(fedge_link *link, uint32_t address_index)
{
    (void)link, (void)address_index;
    return "wss://server";
}

fedge_status fedge_link_set_proxy(fedge_link *link, const char *proxy, fedge_error *err)
{
    (void)link, (void)proxy, (void)err;
    return FEDGE_OK;
}

fedge_status fedge_proxy_for(const char *url, const char *given, char out[FEDGE_PROXY_TEXT],
                             fedge_error *err)
{
    (void)url, (void)given, (void)err;
    out[0] = '\0';
    return FEDGE_OK;
}

bool fedge_link_covers(const fedge_link *link, uint64_t unix_ms)
{
    (void)link, (void)unix_ms;
    return true;
}

void fedge_link_connect(fedge_link *link)
{
    link->connects = true;
}

void fedge_link_close(fedge_link *link, const char *why)
{
    (void)why;
    link->connects = link->open = link->wants_write = false;
}

void fedge_link_want_write(fedge_link *link)
{
    link->wants_write = link->open;
}

void fedge_link_set_heartbeat(fedge_link *link, uint32_t heartbeat_s)
{
    (void)link, (void)heartbeat_s;
}

void fedge_link_set_timer(fedge_link *link, uint64_t after_ms)
{
    link->due_ms = after_ms == UINT64_MAX ? UINT64_MAX : fedge_os_monotonic_ms() + after_ms;
}

bool fedge_link_busy(const fedge_link *link)
{
    return link->open;
}

void fedge_link_wake(fedge_link *link)
{
    atomic_store(&link->woken, true);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* Packs with pack(…, tx, size of tx, &size, NULL) and sends it. */
#define SAY(link, pack, ...)                                                                       \
    do {                                                                                           \
        size_t size_ = 0;                                                                          \
        OK(pack(__VA_ARGS__, server.tx, sizeof(server.tx), &size_, NULL));                         \
        (link)->events.frame((link)->events.user, server.tx, size_);                               \
    } while (0)

static void welcome(fedge_link *link)
{
    fedge_welcome made = {.protocol = 1,
                          .run_id = RUN,
                          .incarnation = 1,
                          .plan_size = server.plan.size,
                          .heartbeat_s = 60};
    memcpy(made.plan, server.plan.hash, sizeof(made.plan));
    if (server.hangs_up)
        made.plan[0] = made.plan[1] = (char)('0' + server.num_connections);
    server.num_connections++;
    SAY(link, fedge_welcome_pack, &made);
}

static void give_task(fedge_link *link)
{
    static fedge_task task;
    task = (fedge_task){.task_id = ++server.num_tasks,
                        .kind = FEDGE_TASK_TRAIN,
                        .round = 1,
                        .model_size = server.model.size,
                        .deadline_ms = 60000,
                        .learning_rate = 0.1};
    memcpy(task.model, server.model.hash, sizeof(task.model));
    SAY(link, fedge_task_pack, &task);
}

static void serve(fedge_link *link, const fedge_message *message)
{
    fedge_blob_ref ref;
    OK(fedge_fetch_read(message, &ref, NULL));
    const blob *of = strcmp(ref.hash, server.model.hash) == 0 ? &server.model : &server.plan;
    ref.size = of->size;
    SAY(link, fedge_chunk_pack, &ref, of->bytes, server.hangs_up ? 9 : (uint32_t)of->size);
    if (!server.hangs_up)
        return;
    fedge_link_close(link, "");
    if (server.num_connections == NUM_PLANS)
        fedge_client_stop(server.client);
    else
        link->events.disconnected(link->events.user, 0, "the connection has ended");
}

static void take(fedge_link *link, size_t size)
{
    fedge_message message;
    fedge_position position = {.task_id = server.num_tasks};
    const fedge_ack ack = {.task_id = server.num_tasks};
    OK(fedge_message_unpack(link->rx, size, &message, NULL));
    switch (message.type) {
    case FEDGE_MESSAGE_HELLO:
        welcome(link);
        if (!server.hangs_up)
            give_task(link);
        break;
    case FEDGE_MESSAGE_FETCH:
        serve(link, &message);
        break;
    case FEDGE_MESSAGE_DECLINE:
        server.num_declined++;
        OK(fedge_os_remove_tree(OBSTACLE, NULL));
        give_task(link);
        break;
    case FEDGE_MESSAGE_UPLOAD:
        SAY(link, fedge_resume_pack, &position);
        break;
    case FEDGE_MESSAGE_PART:
        SAY(link, fedge_ack_pack, &ack);
        fedge_client_stop(server.client);
        break;
    default:
        break;
    }
}

void fedge_link_service(fedge_link *link)
{
    if (link->connects) {
        link->connects = false;
        link->open = true;
        link->events.connected(link->events.user);
    } else if (link->wants_write) {
        link->wants_write = false;
        const size_t size = link->events.writeable(link->events.user, link->rx, sizeof(link->rx));
        link->wants_write = size > 0 && link->open;
        if (size > 0)
            take(link, size);
    } else if (atomic_exchange(&link->woken, false) || fedge_os_monotonic_ms() >= link->due_ms) {
        link->due_ms = UINT64_MAX;
        link->events.woken(link->events.user);
    } else {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* ---- the device ------------------------------------------------------------------------------ */

static fedge_status train(void *user, fedge_client *client, const fedge_client_task *task,
                          float *values, fedge_client_report *report, fedge_error *err)
{
    (void)user, (void)task;
    void *data = NULL;
    size_t size = 0;
    server.num_trained++;
    server.num_found += fedge_client_get(client, KEY, &data, &size, NULL) == FEDGE_OK;
    free(data);
    values[0] += 1;
    report->num_examples = 1;
    return fedge_client_put(client, KEY, "one", 3, err);
}

/* A process of the device, until the server has what it wants. */
static void live(void)
{
    const fedge_client_config config = {.struct_size = sizeof(config),
                                        .server = "wss://server",
                                        .identity_dir = "identity",
                                        .trust_dir = "trust",
                                        .state_dir = DIR,
                                        .backoff_base_ms = 1,
                                        .backoff_cap_ms = 1};
    const fedge_client_callbacks callbacks = {.struct_size = sizeof(callbacks), .train = train};
    fedge_error err;
    OK(fedge_client_new(&config, &callbacks, &server.client, &err));
    assert_int_equal(fedge_client_run(server.client, &err), FEDGE_EXIT_OK);
    fedge_client_free(server.client);
}

static int set_up(void **state)
{
    (void)state;
    static const float MODEL[2] = {0.25F, -1.5F};
    fedge_job *job;
    char *text;
    memset(&server, 0, sizeof(server));
    OK(fedge_os_remove_tree(DIR, NULL));
    OK(fedge_job_parse(JOB, sizeof(JOB) - 1, "job.json", &job, NULL));
    OK(fedge_plan_write(&job->plan, &text, &server.plan.size, NULL));
    assert_in_range(server.plan.size, 1, sizeof(server.plan.bytes));
    memcpy(server.plan.bytes, text, server.plan.size);
    free(text);
    OK(fedge_safetensors_size(&job->plan.schema, &server.model.size, NULL));
    OK(fedge_safetensors_write(&job->plan.schema, MODEL, server.model.bytes, server.model.size,
                               NULL));
    fedge_job_free(job);
    for (int i = 0; i < 2; i++) {
        blob *of = i == 0 ? &server.plan : &server.model;
        fedge_sha256_text(of->bytes, of->size, of->hash);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return fedge_os_remove_tree(DIR, NULL);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A device whose disk fails at the first WELCOME: once it has stored which run it is in, it works,
 * and a later process of it has what this one has stored. */
static void values_are_not_stored_before_their_run(void **state)
{
    (void)state;
    OK(fedge_os_make_dirs(OBSTACLE "/full", NULL));
    live();
    assert_int_equal(server.num_declined, 1);
    assert_int_equal(server.num_trained, 1);
    live();
    assert_int_equal(server.num_trained, 2);
    assert_int_equal(server.num_found, 1);
}

static void plans_without_a_task_do_not_fill_the_disk(void **state)
{
    (void)state;
    fedge_store *store;
    unsigned count = 0;
    server.hangs_up = true;
    live();
    assert_int_equal(server.num_connections, NUM_PLANS);
    OK(fedge_store_open(DIR, 0, &store, NULL));
    OK(fedge_store_blobs_count(store, &count, NULL));
    assert_in_range(count, 1, FEDGE_CLIENT_MAX_BLOBS);
    fedge_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_are_not_stored_before_their_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(plans_without_a_task_do_not_fill_the_disk, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
