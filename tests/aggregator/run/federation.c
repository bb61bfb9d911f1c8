#define _POSIX_C_SOURCE 200809L /* getpid, nanosleep */

#include "tests/aggregator/run/federation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/cluster/ranks.h"
#include "aggregator/rounds/strategy.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"

#define PATIENCE_MS 600000 /* what takes longer does not go on: a machine may be slow */

/* Of a shape, layers before the one that travels, and the insides of rounds and strategy. */
static const char JOB[] =
    "{\"fedge-job\":1,\"name\":\"tiny\",\"seed\":3,\"model\":{\"input-shape\":%s,\"layers\":[%s"
    "{\"type\":\"Linear\",\"in_features\":3,\"out_features\":4}],\"loss\":{\"type\":"
    "\"CrossEntropyLoss\"}},\"data\":{\"name\":\"points\",\"shape\":%s,\"dtype\":\"f32\","
    "\"labels\":4},\"training\":{\"local-epochs\":1,\"batch-size\":4,\"learning-rate\":0.1,"
    "\"optimizer\":{\"type\":\"SGD\"}},\"rounds\":{%s},\"strategy\":{%s},"
    "\"update\":{\"codec\":\"none\",\"deflate\":false},\"min-free-disk\":0}";
static const char BATCHNORM[] =
    "{\"type\":\"BatchNorm2d\",\"num_features\":3},{\"type\":\"Flatten\"},";

void fed_must(bool holds, const char *what, const char *why)
{
    if (!holds) {
        fprintf(stderr, "federation: %s: %s\n", what, why);
        abort();
    }
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void load_job(federation *fed)
{
    MUST(
        fedge_strategy_job_parse(fed->job_text, strlen(fed->job_text), "job.json", &fed->job, ERR));
    fed_must(fed->job->plan.sent.schema.num_elements == FED_ELEMENTS, "job", "another model");
}

void fed_init(federation *fed, const char *name, const char *rounds)
{
    fed_init_strategy(fed, name, rounds, "\"type\":\"FedAvg\"");
}

void fed_init_strategy(federation *fed, const char *name, const char *rounds, const char *strategy)
{
    memset(fed, 0, sizeof(*fed));
    fed->num_workers = 2;
    fed->accumulator = "cpu";
    fed->sums.num_lanes = 1;
    fed->now_ms = 1000;
    snprintf(fed->state_dir, sizeof(fed->state_dir), "%s-%ld", name, (long)getpid());
    const bool keeps_layers = strstr(strategy, "\"FedBN\"") != NULL;
    const char *shape = keeps_layers ? "[3,1,1]" : "[3]";
    int size = snprintf(fed->job_text, sizeof(fed->job_text), JOB, shape,
                        keeps_layers ? BATCHNORM : "", shape, rounds, strategy);
    fed_must(size > 0 && (size_t)size < sizeof(fed->job_text), "job", "too long");
    MUST(fedge_os_remove_tree(fed->state_dir, ERR));
    load_job(fed);
    for (uint32_t i = 0; i < FED_DEVICES; i++) {
        fed->devices[i].federation = fed;
        fed->devices[i].index = i;
    }
}

void fed_encode_by(federation *fed, const char *update)
{
    static const char KEY[] = "\"update\":{";
    char *at = strstr(fed->job_text, KEY), rest[64];
    fed_must(at != NULL, "job", "without an update");
    at += strlen(KEY);
    snprintf(rest, sizeof(rest), "%s", strchr(at, '}'));
    const size_t room = sizeof(fed->job_text) - (size_t)(at - fed->job_text);
    int size = snprintf(at, room, "%s%s", update, rest);
    fed_must(size > 0 && (size_t)size < room, "job", "too long");
    fedge_job_free(fed->job);
    load_job(fed);
}

void fed_fini(federation *fed)
{
    fed_close(fed);
    fedge_job_free(fed->job);
    fed->job = NULL;
    MUST(fedge_os_remove_tree(fed->state_dir, ERR));
}

/* Takes the actions of a device's connection, as a transport does; nothing but the engine answers
 * within. */
static void carry_out(fed_device *device)
{
    federation *fed = device->federation;
    fedge_conn_action action;
    while (device->conn && fedge_conn_next_action(device->conn, &action)) {
        if (action.type == FEDGE_CONN_NOTE) {
            fedge_log_write(&fed->log, action.note->level, action.note->event, action.note->fields,
                            action.note->num_fields);
        }
        if (action.type == FEDGE_CONN_REQUEST && fed->post)
            fed->post(fed, device->rank, action.request);
        else if (action.type == FEDGE_CONN_REQUEST)
            fedge_engine_handle(fed->engine, action.request, fed->now_ms);
        device->dropped = device->dropped || action.type == FEDGE_CONN_DROP;
        device->paused =
            action.type == FEDGE_CONN_PAUSE || (device->paused && action.type != FEDGE_CONN_RESUME);
    }
}

static void on_round(federation *fed, const fedge_round_summary *summary);

void fed_give(federation *fed, uint32_t rank, const fedge_reply *reply)
{
    for (uint32_t i = 0; i < FED_DEVICES; i++) {
        fed_device *device = &fed->devices[i];
        if (device->conn && device->rank == rank &&
            (reply->conn_id == FEDGE_CONN_ALL || reply->conn_id == fedge_conn_id(device->conn))) {
            fedge_conn_take(device->conn, reply, fed->now_ms);
            carry_out(device);
        }
    }
}

/* What the engine has said, until it says no more. */
void fed_take_replies(federation *fed)
{
    for (fedge_mailbox_item *item = fedge_mailbox_take(fed->replies), *next; item; item = next) {
        fedge_reply *reply = (fedge_reply *)item;
        if (reply->type != FEDGE_REPLY_ROUND && fed->pass_on)
            fed->pass_on(fed, reply);
        if (reply->type == FEDGE_REPLY_ROUND)
            on_round(fed, &reply->summary);
        else
            fed_give(fed, 0, reply);
        next = item->next ? item->next : fedge_mailbox_take(fed->replies);
        fedge_reply_free(reply);
    }
}

static void wake(void *user)
{
    (void)user; /* fed_step looks at the completions anyway */
}

static uint32_t num_registered(void *user)
{
    return ((federation *)user)->num_registered;
}

static void on_round(federation *fed, const fedge_round_summary *summary)
{
    fed_must(fed->num_summaries < FED_MAX_SUMMARIES, "summaries", "too many");
    fed->summaries[fed->num_summaries++] = *summary;
}

void fed_open(federation *fed)
{
    MUST(fed_try_open(fed, ERR));
}

fedge_status fed_try_open(federation *fed, fedge_error *err)
{
    fedge_engine_config config = {.job = fed->job,
                                  .heartbeat_s = 20,
                                  .run = {.job = fed->job_text, .job_size = strlen(fed->job_text)},
                                  .state_dir = fed->state_dir,
                                  .restored = fed->restored,
                                  .num_workers = fed->num_workers,
                                  .accumulator = fed->accumulator,
                                  .sums = fed->sums,
                                  .num_registered = num_registered,
                                  .registry = fed,
                                  .ranks = fed->ranks,
                                  .return_every_us = fed->return_every_us,
                                  .log = &fed->log,
                                  .wake = wake,
                                  .traffic = &fed->traffic};
    fed->life++;
    MUST(fedge_mailbox_new(&fed->replies, NULL, NULL, ERR));
    config.replies = fed->replies;
    return fedge_engine_new(&config, fed->now_ms, &fed->engine, err);
}

void fed_close(federation *fed)
{
    for (uint32_t i = 0; i < FED_DEVICES; i++)
        fed_leave(fed, i);
    fedge_engine_free(fed->engine);
    fed->engine = NULL;
    if (fed->replies) {
        fed_take_replies(fed);
        fedge_mailbox_free(fed->replies);
        fed->replies = NULL;
    }
}

fedge_run_status fed_status(const federation *fed)
{
    fedge_run_status status;
    fedge_engine_get_status(fed->engine, &status);
    return status;
}

/* ---- what devices send ----------------------------------------------------------------------- */

static void receive(fed_device *device, const uint8_t *frame, size_t size)
{
    federation *fed = device->federation;
    if (device->conn && !device->dropped) {
        if (fed->tell)
            fed->tell(device->index, false, frame, size);
        fedge_conn_receive(device->conn, frame, size, true, fed->now_ms);
        carry_out(device);
        fed_take_replies(fed);
    }
}

void fed_send(fed_device *device, fedge_message_type type, const char *meta, const void *payload,
              uint32_t payload_size)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    fedge_message message = {.type = type,
                             .meta = meta,
                             .meta_size = (uint32_t)strlen(meta),
                             .payload = payload,
                             .payload_size = payload_size};
    MUST(fedge_message_pack(&message, frame, sizeof(frame), ERR));
    receive(device, frame, fedge_message_size(&message));
}

static void say_hello(fed_device *device)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    fedge_hello hello = {.protocol_min = 1,
                         .protocol_max = 1,
                         .release = "test",
                         .arch = "test",
                         .hangs_up = device->hangs_up};
    MUST(fedge_hello_pack(&hello, frame, sizeof(frame), &size, ERR));
    receive(device, frame, size);
}

void fed_make_result(fed_device *device)
{
    const fedge_plan *plan = &device->federation->job->plan;
    fedge_upload *result = &device->result;
    *result = (fedge_upload){.task_id = device->task.task_id,
                             .incarnation = device->welcome.incarnation,
                             .num_examples = 10 + 7 * device->index,
                             .num_metrics = 4};
    memcpy(result->run_id, device->welcome.run_id, sizeof(result->run_id));
    result->metrics[0] = (fedge_metric){.name = "loss", .value = 1.0 + device->index};
    result->metrics[1] = (fedge_metric){.name = "accuracy", .value = 0.5};
    result->metrics[2] = (fedge_metric){.name = FEDGE_START_LOSS, .value = 2.0 + device->index};
    result->metrics[3] = (fedge_metric){.name = FEDGE_SQUARED_NORM, .value = 1.5};
    if (fedge_plan_is_clustered(plan)) {
        result->metrics[result->num_metrics++] =
            (fedge_metric){.name = FEDGE_CLUSTER, .value = device->index % 2};
    }
    device->has_result = true;
    device->announced = false;
    if (device->task.kind == FEDGE_TASK_EVALUATE)
        return;
    float delta[FED_ELEMENTS];
    for (uint32_t i = 0; i < FED_ELEMENTS; i++) {
        uint32_t mixed = (device->index + 1) * 2654435761u + device->task.round * 40503u + i * 97u;
        delta[i] = (float)(mixed % 2001u) * 1e-3f - 1.0f;
    }
    int8_t bounds[FEDGE_MAX_TENSORS];
    memset(bounds, plan->update.bound_log2, sizeof(bounds));
    uint8_t *bytes = NULL;
    float residual[FED_ELEMENTS + 1] = {0}; /* a device keeps none */
    MUST(fedge_update_encode(
        &(fedge_update){.plan = plan,
                        .bounds_log2 = bounds,
                        .changes = delta,
                        .round = device->task.round,
                        .residual = fedge_plan_makes_residual(plan) ? residual : NULL},
        result, &bytes, ERR));
    fed_must(result->size <= sizeof(device->bytes), "update", "too large");
    memcpy(device->bytes, bytes, (size_t)result->size);
    free(bytes);
}

void fed_announce(fed_device *device)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    MUST(fedge_upload_pack(&device->result, frame, sizeof(frame), &size, ERR));
    device->announced = true;
    device->sending = false;
    device->awaiting = device->result.size == 0;
    receive(device, frame, size);
}

void fed_send_part(fed_device *device)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    uint64_t left = device->result.size - device->offset;
    uint32_t part = left < FED_PART_SIZE ? (uint32_t)left : FED_PART_SIZE;
    fedge_position position = {.task_id = device->result.task_id, .offset = device->offset};
    MUST(fedge_part_pack(&position, device->bytes + device->offset, part, frame, sizeof(frame),
                         &size, ERR));
    device->offset += part;
    device->sending = device->offset < device->result.size;
    device->awaiting = !device->sending;
    receive(device, frame, size);
}

static void decline(fed_device *device, const fedge_notice *notice)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    MUST(fedge_notice_pack(FEDGE_MESSAGE_DECLINE, notice, frame, sizeof(frame), &size, ERR));
    receive(device, frame, size);
}

void fed_decline(fed_device *device, bool task)
{
    decline(device, &(fedge_notice){.has_task = task,
                                    .task_id = device->task.task_id,
                                    .reason = FEDGE_REASON_POLICY,
                                    .text = "not\u202ehere"});
}

void fed_put_off(fed_device *device, fedge_reason reason, uint64_t after_ms)
{
    decline(device, &(fedge_notice){.has_task = true,
                                    .task_id = device->task.task_id,
                                    .reason = reason,
                                    .after_ms = after_ms,
                                    .text = "not now"});
}

void fed_end_conn(fed_device *device, fedge_reason reason)
{
    federation *fed = device->federation;
    fedge_conn_close(device->conn, FEDGE_MESSAGE_REFUSE, reason, 0, "gone", fed->now_ms);
    carry_out(device);
    fed_take_replies(fed);
}

void fed_fetch(fed_device *device, const char *hash, uint64_t offset)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    fedge_blob_ref ref = {.offset = offset};
    memcpy(ref.hash, hash, sizeof(ref.hash));
    MUST(fedge_fetch_pack(&ref, frame, sizeof(frame), &size, ERR));
    receive(device, frame, size);
}

/* ---- what devices are told ------------------------------------------------------------------- */

/* No task id is ever used for two tasks. */
static void note_issued(const fed_device *device)
{
    federation *fed = device->federation;
    const bool evaluates = device->task.kind == FEDGE_TASK_EVALUATE;
    const fed_issue issue = {device->task.task_id, device->task.kind, device->task.round,
                             device->index, evaluates ? fed->life : 0};
    for (uint32_t i = 0; i < fed->num_issued; i++) {
        const fed_issue *old = &fed->issued[i];
        if (old->task_id == issue.task_id) {
            fed_must(old->kind == issue.kind && old->round == issue.round &&
                         old->device == issue.device && old->life == issue.life,
                     "task id", "used twice");
            return;
        }
    }
    fed_must(fed->num_issued < FED_MAX_ISSUED, "issued tasks", "too many");
    fed->issued[fed->num_issued++] = issue;
}

static void take_task(fed_device *device)
{
    note_issued(device);
    device->num_tasks++;
    device->num_asked_again +=
        device->task.kind == FEDGE_TASK_TRAIN && device->task.round <= device->acked_round;
    if (device->idle || (device->has_result && device->result.task_id == device->task.task_id))
        return;
    fed_make_result(device);
}

static void forget_result(fed_device *device, uint64_t task_id)
{
    if (device->has_result && device->result.task_id == task_id)
        device->has_result = device->sending = false;
}

static void take_notice(fed_device *device, const fedge_message *message)
{
    fedge_notice notice;
    MUST(fedge_notice_read(message, &notice, ERR));
    device->awaiting = false;
    if (message->type == FEDGE_MESSAGE_CANCEL) {
        device->num_cancels++;
        forget_result(device, notice.task_id);
    } else if (notice.has_task) {
        device->num_refusals++;
        device->refusal = notice.reason;
        device->refused_task = notice.task_id;
        if (notice.reason == FEDGE_REASON_BAD_DATA)
            device->announced = device->sending = false; /* once more */
        else
            forget_result(device, notice.task_id);
    } else {
        device->farewell = notice.reason;
        device->farewell_after_ms = notice.after_ms;
    }
}

static void take_ack(fed_device *device, const fedge_message *message)
{
    MUST(fedge_ack_read(message, &device->ack, ERR));
    fed_must(device->num_acks < FED_MAX_ACKS, "acks", "too many");
    device->awaiting = false;
    device->acks[device->num_acks++] = device->ack.task_id;
    if (device->task.task_id == device->ack.task_id && device->task.kind == FEDGE_TASK_TRAIN)
        device->acked_round = device->task.round;
    forget_result(device, device->ack.task_id);
}

static void take_frame(fed_device *device, const uint8_t *frame, size_t size)
{
    fedge_message message;
    fedge_position position;
    MUST(fedge_message_unpack(frame, size, &message, ERR));
    switch (message.type) {
    case FEDGE_MESSAGE_WELCOME:
        MUST(fedge_welcome_read(&message, &device->welcome, ERR));
        device->welcomed = true;
        break;
    case FEDGE_MESSAGE_TASK:
        MUST(fedge_task_read(&message, &device->task, ERR));
        take_task(device);
        break;
    case FEDGE_MESSAGE_RESUME:
        MUST(fedge_position_read(&message, &position, ERR));
        device->num_resumes++;
        device->resumed_at = device->offset = position.offset;
        device->sending = device->has_result && position.task_id == device->result.task_id;
        break;
    case FEDGE_MESSAGE_ACK:
        take_ack(device, &message);
        break;
    case FEDGE_MESSAGE_CHUNK:
        MUST(fedge_chunk_read(&message, &device->chunk, ERR));
        device->fetched += message.payload_size;
        break;
    default:
        take_notice(device, &message);
    }
}

/* One frame, or one thing to say; false when there is neither. */
static bool act(fed_device *device)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    if (!device->conn || device->dropped || device->deaf)
        return false;
    fedge_conn_chunk chunk;
    if (fedge_conn_next_chunk(device->conn, &chunk))
        MUST(fedge_blob_read(chunk.blob, chunk.offset, frame + chunk.at, chunk.size, ERR));
    size_t size = fedge_conn_next_frame(device->conn, frame);
    if (size > 0 && device->federation->tell)
        device->federation->tell(device->index, true, frame, size);
    if (size > 0)
        take_frame(device, frame, size);
    else if (fedge_conn_should_close(device->conn))
        fed_leave(device->federation, device->index);
    else if (device->idle || !device->welcomed || !device->has_result || device->paused)
        return false;
    else if (!device->announced)
        fed_announce(device);
    else if (device->sending)
        fed_send_part(device);
    else
        return false;
    return true;
}

/* ---- connections ----------------------------------------------------------------------------- */

void fed_join(federation *fed, uint32_t index)
{
    fed_device *device = &fed->devices[index];
    fed_leave(fed, index);
    fedge_registry_match match = {
        .index = index, .role = FEDGE_ROLE_DEVICE, .state = FEDGE_CERTIFICATE_ACTIVE};
    snprintf(match.device_id, sizeof(match.device_id), "00000000-0000-4000-8000-%012u", index);
    device->dropped = device->paused = device->welcomed = false;
    device->announced = device->sending = false;
    fed->budget.limit = FEDGE_CONN_WAITING_BYTES;
    /* As fedge_slots makes ids of connections; the engine reads the rank from them. */
    const uint64_t tag = (uint64_t)device->rank * FEDGE_RANKS_TAGS;
    const uint64_t conn_id = ++fed->next_conn_id << 32 | tag << 20;
    MUST(fedge_conn_new(&device->conn, conn_id, &match, &fed->traffic, &fed->budget, fed->now_ms,
                        ERR));
    say_hello(device);
}

void fed_join_all(federation *fed, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        fed_join(fed, i);
}

void fed_leave(federation *fed, uint32_t index)
{
    fed_device *device = &fed->devices[index];
    fedge_conn *conn = device->conn;
    if (conn) {
        fedge_conn_end(conn);
        carry_out(device);
        device->conn = NULL;
        fedge_conn_free(conn);
        fed_take_replies(fed);
    }
    device->awaiting = false;
}

/* ---- time ------------------------------------------------------------------------------------ */

static bool turn(federation *fed)
{
    bool busy = false;
    fedge_engine_tick(fed->engine, fed->now_ms);
    fedge_engine_handle_completions(fed->engine, fed->now_ms);
    fed_take_replies(fed);
    for (uint32_t i = 0; i < FED_DEVICES; i++) {
        uint32_t index = (i + fed->turn) % FED_DEVICES;
        index = fed->turn % 2 == 0 ? index : FED_DEVICES - 1 - index;
        if (act(&fed->devices[index]))
            busy = true;
    }
    return busy;
}

static void wait_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

void fed_step(federation *fed)
{
    if (!turn(fed))
        wait_a_little();
}

void fed_until(federation *fed, bool (*condition)(const federation *fed), const char *what)
{
    uint64_t end = fedge_os_monotonic_ms() + PATIENCE_MS;
    while (!condition(fed)) {
        fed_must(fedge_os_monotonic_ms() < end, "waited in vain for", what);
        fed_step(fed);
    }
}

static bool is_done(const federation *fed)
{
    fedge_error failure;
    return fedge_engine_done(fed->engine, &failure);
}

void fed_finish(federation *fed, fedge_error *failure)
{
    fed_until(fed, is_done, "the end of the run");
    fed_must(fedge_engine_done(fed->engine, failure), "run", "not done");
}

/* Whether a thread of the engine owes something. */
static bool is_at_work(const federation *fed)
{
    fedge_run_status status = fed_status(fed);
    if (strncmp(status.state, "opening", 7) == 0 || strncmp(status.state, "closing", 7) == 0 ||
        strncmp(status.state, "giving up", 9) == 0 || status.ingest_queued_bytes > 0)
        return true;
    for (uint32_t i = 0; i < FED_DEVICES; i++) {
        if (fed->devices[i].awaiting)
            return true;
    }
    return false;
}

void fed_settle(federation *fed)
{
    uint64_t end = fedge_os_monotonic_ms() + PATIENCE_MS;
    for (int quiet = 0; quiet < 3;) {
        fed_must(fedge_os_monotonic_ms() < end, "waited in vain for", "quiet");
        quiet = turn(fed) || is_at_work(fed) ? 0 : quiet + 1;
        wait_a_little();
    }
}
