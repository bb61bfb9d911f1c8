#include "tests/world/site_oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "edge/wire/protocol.h"
#include "tests/world/scheduler.h"
#include "tests/world/site.h"

enum { MAX_TASKS = 64 };
/* While it fetches and works a client checks its conditions every two seconds. */
#define NOTICED_NS ((uint64_t)3000000000)

/* A task, and when the server first sent it. */
typedef struct sent_task {
    uint64_t id, at_ns;
} sent_task;

typedef struct known_client {
    bool excused;
    uint32_t num_hellos;
    bool greeted;               /* it has received an answer to its last HELLO */
    char plan[FEDGE_HASH_TEXT]; /* plan's hash in that answer */
    uint32_t num_tasks;
    sent_task tasks[MAX_TASKS]; /* the newest MAX_TASKS */
} known_client;

static struct {
    const world_plan *plan;
    char forbidden[FEDGE_HASH_TEXT]; /* a plan of another job; "": none */
    known_client clients[WORLD_JOB_MAX_CLIENTS];
} all;

void site_oracle_begin(const world_plan *plan)
{
    memset(&all, 0, sizeof(all));
    all.plan = plan;
}

void site_oracle_excuse(uint32_t client)
{
    all.clients[client].excused = true;
}

void site_oracle_forbid(const char *hash)
{
    (void)snprintf(all.forbidden, sizeof(all.forbidden), "%s", hash);
}

/* ---- what the server sends ------------------------------------------------------------------- */

static const sent_task *find_task(const known_client *of, uint64_t id)
{
    const uint32_t known = of->num_tasks < MAX_TASKS ? of->num_tasks : MAX_TASKS;
    for (uint32_t i = 0; i < known; i++) {
        if (of->tasks[i].id == id)
            return &of->tasks[i];
    }
    return NULL;
}

static void take_welcome(known_client *of, const fedge_message *message)
{
    fedge_welcome welcome;
    /* A client uses only the first WELCOME. */
    if (of->greeted || fedge_welcome_read(message, &welcome, NULL) != FEDGE_OK)
        return;
    of->greeted = true;
    memcpy(of->plan, welcome.plan, sizeof(of->plan));
}

static void take_task(known_client *of, const fedge_message *message)
{
    static fedge_task task;
    if (fedge_task_read(message, &task, NULL) == FEDGE_OK && !find_task(of, task.task_id)) {
        of->tasks[of->num_tasks++ % MAX_TASKS] =
            (sent_task){.id = task.task_id, .at_ns = world_now_ns()};
    }
}

void site_oracle_server_sent(uint32_t client, const uint8_t *frame, size_t size)
{
    fedge_message message;
    /* It may reconnect to look for another run. */
    if (client < all.plan->job.num_clients && size > 5 && frame[5] == FEDGE_MESSAGE_BYE)
        all.clients[client].num_hellos = 0;
    if (client >= all.plan->job.num_clients || all.plan->sites[client].kind == PLAN_SITE_NONE ||
        size < FEDGE_MESSAGE_HEADER_SIZE || frame[5] == FEDGE_MESSAGE_CHUNK ||
        fedge_message_unpack(frame, size, &message, NULL) != FEDGE_OK)
        return;
    if (message.type == FEDGE_MESSAGE_TASK)
        take_task(&all.clients[client], &message);
}

/* ---- what the client receives ---------------------------------------------------------------- */

/* A hostile server may send WELCOME before HELLO: what a client acts on is what it has received. */
void site_oracle_client_received(uint32_t client, const uint8_t *frame, size_t size)
{
    fedge_message message;
    if (all.plan->sites[client].kind != PLAN_SITE_NONE && size >= FEDGE_MESSAGE_HEADER_SIZE &&
        frame[5] == FEDGE_MESSAGE_WELCOME &&
        fedge_message_unpack(frame, size, &message, NULL) == FEDGE_OK)
        take_welcome(&all.clients[client], &message);
}

/* ---- what the client sends ------------------------------------------------------------------- */

static bool forbids(uint32_t client)
{
    const plan_site *site = &all.plan->sites[client];
    const bool is_other = all.forbidden[0] && strcmp(all.clients[client].plan, all.forbidden) == 0;
    return plan_site_forbids(site) || (is_other && site->kind != PLAN_SITE_NONE);
}

/* Without faults a client connects once, whatever hostile clients do. */
static void count_hello(uint32_t client)
{
    const world_plan *plan = all.plan;
    if (++all.clients[client].num_hellos > 1 && plan->num_faults == 0 && !plan->server_is_hostile &&
        plan->sites[client].kind == PLAN_SITE_NONE)
        world_fail("client %u connects again, and nothing is broken", client);
}

/* Checks that HELLO has the names of the site's data sets and no others. */
static void check_hello(uint32_t client, const fedge_message *message)
{
    static fedge_hello hello;
    const plan_site *site = &all.plan->sites[client];
    bool has_points = false, has_more = false;
    fedge_error err;
    if (fedge_hello_read(message, &hello, &err) != FEDGE_OK) {
        world_fail("site: client %u's HELLO: %s", client, err.message);
        return;
    }
    for (uint32_t i = 0; i < hello.num_data; i++) {
        has_points = has_points || strcmp(hello.data[i], "points") == 0;
        has_more = has_more || strcmp(hello.data[i], SITE_DATA) == 0;
    }
    const bool has_site = site->kind != PLAN_SITE_NONE;
    const bool wants_points = has_site && site->kind != PLAN_SITE_DATA;
    if (has_points != wants_points || has_more != has_site ||
        hello.num_data != (uint32_t)wants_points + has_site)
        world_fail("site: client %u's HELLO tells %u data sets", client, hello.num_data);
    if (hello.hangs_up != site->hangs_up) {
        world_fail("site: client %u's HELLO says that it %s", client,
                   hello.hangs_up ? "hangs up" : "does not hang up");
    }
}

/* Whether the condition was not met when the task was first sent, and long enough to be noticed. */
static bool may_not_begin(uint32_t client, uint64_t from_ns)
{
    const plan_site *site = &all.plan->sites[client];
    return !all.clients[client].excused && site_is_unmet(site, world_now_ns()) &&
           from_ns >= site->unmet_from_ns;
}

/* Checks that no model is fetched against the site's policy. A plan must be read before it can be
 * refused. */
static void check_fetch(uint32_t client, const fedge_message *message)
{
    const known_client *of = &all.clients[client];
    const plan_site *site = &all.plan->sites[client];
    fedge_blob_ref ref;
    if (fedge_fetch_read(message, &ref, NULL) != FEDGE_OK || strcmp(ref.hash, of->plan) == 0)
        return;
    if (forbids(client)) {
        world_fail("site: client %u fetches %.8s for a job that its site forbids", client,
                   ref.hash);
    } else if (world_now_ns() > NOTICED_NS && may_not_begin(client, world_now_ns() - NOTICED_NS)) {
        world_fail("site: client %u fetches %.8s %.1f s after its condition ended", client,
                   ref.hash, (double)(world_now_ns() - site->unmet_from_ns) * 1e-9);
    }
}

/* Checks that results are announced only for tasks that came in time. Finished results are sent in
 * any case. */
static void check_upload(uint32_t client, const fedge_message *message)
{
    static fedge_upload upload;
    if (plan_site_forbids(&all.plan->sites[client])) {
        world_fail("site: client %u announces a result for a job that its site forbids", client);
        return;
    }
    if (fedge_upload_read(message, &upload, NULL) != FEDGE_OK)
        return;
    const sent_task *task = find_task(&all.clients[client], upload.task_id);
    if (task && may_not_begin(client, task->at_ns)) {
        world_fail("site: client %u announces a result of task %" PRIu64
                   ", and its condition was not met since the task came",
                   client, upload.task_id);
    }
}

static bool is_of_condition(const plan_site *site, fedge_reason reason)
{
    switch (reason) {
    case FEDGE_REASON_ON_BATTERY:
        return site->condition == PLAN_ON_MAINS;
    case FEDGE_REASON_BATTERY_LOW:
        return site->condition == PLAN_CHARGED;
    case FEDGE_REASON_TOO_HOT:
        return site->condition == PLAN_COOL;
    case FEDGE_REASON_LOW_MEMORY:
        return site->condition == PLAN_FREE_RAM;
    default:
        return false;
    }
}

static void check_decline(uint32_t client, const fedge_message *message)
{
    const plan_site *site = &all.plan->sites[client];
    fedge_notice notice;
    if (fedge_notice_read(message, &notice, NULL) != FEDGE_OK)
        return;
    const fedge_reason of_plan =
        site->kind == PLAN_SITE_DATA ? FEDGE_REASON_NO_DATA : FEDGE_REASON_POLICY;
    if (all.clients[client].excused || all.plan->server_is_hostile)
        return;
    if (!notice.has_task && forbids(client) && notice.reason != of_plan) {
        world_fail("site: client %u declines the job: %s", client,
                   fedge_reason_name(notice.reason));
    }
    if (!notice.has_task && !forbids(client) &&
        (notice.reason == FEDGE_REASON_POLICY || notice.reason == FEDGE_REASON_NO_DATA))
        world_fail("site: client %u declines a job that its site allows", client);
    const bool is_condition =
        notice.reason >= FEDGE_REASON_ON_BATTERY && notice.reason <= FEDGE_REASON_LOW_MEMORY;
    if (is_condition && (!is_of_condition(site, notice.reason) ||
                         world_now_ns() < site->unmet_from_ns || site->unmet_until_ns == 0))
        world_fail("site: client %u declines for a condition that is met: %s", client, notice.text);
}

void site_oracle_client_sent(uint32_t client, const uint8_t *frame, size_t size)
{
    fedge_message message;
    if (size < FEDGE_MESSAGE_HEADER_SIZE ||
        (all.plan->sites[client].kind == PLAN_SITE_NONE && frame[5] != FEDGE_MESSAGE_DECLINE &&
         frame[5] != FEDGE_MESSAGE_HELLO))
        return;
    if (frame[5] == FEDGE_MESSAGE_PART && plan_site_forbids(&all.plan->sites[client]))
        world_fail("site: client %u sends a part of a result that its site forbids", client);
    if (frame[5] == FEDGE_MESSAGE_PART ||
        fedge_message_unpack(frame, size, &message, NULL) != FEDGE_OK)
        return;
    all.clients[client].greeted =
        all.clients[client].greeted && message.type != FEDGE_MESSAGE_HELLO;
    if (message.type == FEDGE_MESSAGE_HELLO) {
        count_hello(client);
        check_hello(client, &message);
    } else if (message.type == FEDGE_MESSAGE_FETCH) {
        check_fetch(client, &message);
    } else if (message.type == FEDGE_MESSAGE_UPLOAD) {
        check_upload(client, &message);
    } else if (message.type == FEDGE_MESSAGE_DECLINE) {
        check_decline(client, &message);
    }
}
