#include "tests/client/fake_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEX16 "00112233445566778899aabbccddeeff"
const char FAKE_RUN[] = HEX16;
const char FAKE_OTHER_RUN[] = "ffeeddccbbaa99887766554433221100";
const char FAKE_PLAN[] = "aa112233445566778899aabbccddeeff" HEX16;
const char FAKE_MODEL[] = "bb112233445566778899aabbccddeeff" HEX16;
const char FAKE_LIST[] = "dd112233445566778899aabbccddeeff" HEX16;
const char FAKE_MODEL2[] = "cc112233445566778899aabbccddeeff" HEX16;

#define PLAN_SIZE 70000 /* two parts */
#define LIST_SIZE 100

uint8_t fake_result_byte(uint64_t at)
{
    return (uint8_t)(at * 31 + at / 251);
}

static void new_session(fake *f)
{
    const fedge_session_config config = {.backoff_base_ms = 500,
                                         .backoff_cap_ms = 60000,
                                         .num_servers = f->num_servers,
                                         .progress_timeout_ms = 30000,
                                         .jitter_seed = 7,
                                         .hello = &f->hello};
    assert_int_equal(fedge_session_new(&config, &f->session, NULL), FEDGE_OK);
}

void fake_init(fake *f)
{
    memset(f, 0, sizeof(*f));
    f->now_ms = 1000;
    f->work_incarnation = 1;
    f->hello.protocol_min = f->hello.protocol_max = 1;
    strcpy(f->hello.release, "test");
    strcpy(f->hello.arch, "test");
    new_session(f);
    fedge_session_start(f->session, f->now_ms);
    fake_run(f);
}

void fake_fini(fake *f)
{
    fedge_session_free(f->session);
}

void fake_restart(fake *f)
{
    fedge_session_free(f->session);
    new_session(f);
    f->linked = f->working = f->cancel_asked = f->plan_asked = f->stopped = false;
    fedge_session_restore(f->session, f->num_welcomed ? FAKE_RUN : "", 1,
                          f->has_result ? &f->result : NULL);
    fedge_session_start(f->session, f->now_ms);
    fake_run(f);
}

static uint64_t *held(fake *f, const char *hash)
{
    return strcmp(hash, FAKE_PLAN) == 0   ? &f->plan_held
           : strcmp(hash, FAKE_LIST) == 0 ? &f->list_held
                                          : &f->model_held;
}

/* The server's view of what the client sends. */
static void take_sent(fake *f, const uint8_t *frame, size_t size)
{
    fedge_message message;
    fedge_error err;
    if (fedge_message_unpack(frame, size, &message, &err))
        fail_msg("the client sent a bad frame: %s", err.message);
    assert_in_range(message.type, 1, FEDGE_MESSAGE_BYE);
    f->sent[message.type]++;
    fedge_hello hello;
    fedge_position position;
    switch (message.type) {
    case FEDGE_MESSAGE_HELLO:
        assert_int_equal(fedge_hello_read(&message, &hello, &err), FEDGE_OK);
        break;
    case FEDGE_MESSAGE_FETCH:
        assert_int_equal(fedge_fetch_read(&message, &f->fetch, &err), FEDGE_OK);
        break;
    case FEDGE_MESSAGE_UPLOAD:
        assert_int_equal(fedge_upload_read(&message, &f->upload, &err), FEDGE_OK);
        break;
    case FEDGE_MESSAGE_PART:
        assert_int_equal(fedge_position_read(&message, &position, &err), FEDGE_OK);
        f->part_offset = position.offset;
        if (position.offset == f->uploaded) {
            f->uploaded += message.payload_size;
            f->upload_crc = fedge_crc32(f->upload_crc, message.payload, message.payload_size);
        }
        break;
    case FEDGE_MESSAGE_DECLINE:
    case FEDGE_MESSAGE_BYE:
        assert_int_equal(fedge_notice_read(&message, &f->notice, &err), FEDGE_OK);
        break;
    default:
        fail_msg("the client sent a message that only servers send: %u", message.type);
    }
}

static void send_part(fake *f, const fedge_session_action *action)
{
    uint8_t payload[FEDGE_MESSAGE_MAX_PAYLOAD];
    size_t size;
    assert_in_range(action->data_size, 1, sizeof(payload));
    for (uint32_t i = 0; i < action->data_size; i++)
        payload[i] = fake_result_byte(action->offset + i);
    const fedge_position position = {action->task_id, action->offset};
    assert_int_equal(fedge_part_pack(&position, payload, action->data_size, f->frame,
                                     sizeof(f->frame), &size, NULL),
                     FEDGE_OK);
    take_sent(f, f->frame, size);
}

static void look_up(fake *f, const fedge_session_action *action)
{
    if (f->store_fails) {
        fedge_session_store_failed(f->session, f->now_ms, action->hash, FEDGE_REASON_NO_SPACE,
                                   "no room");
    } else if (f->has_list && action->task && strcmp(action->hash, FAKE_LIST) != 0) {
        if (action->task->list == FEDGE_LIST_HELD) {
            fedge_session_blob_run(f->session, f->now_ms, action->hash, f->model_held,
                                   FAKE_BLOB_SIZE);
        } else {
            fedge_session_wants_list(f->session, f->now_ms, action->hash);
        }
    } else {
        fedge_session_blob_at(f->session, f->now_ms, action->hash, *held(f, action->hash));
    }
}

static void store_chunk(fake *f, const fedge_session_action *action)
{
    uint64_t *at = held(f, action->hash);
    if (f->store_fails) {
        fedge_session_store_failed(f->session, f->now_ms, action->hash, FEDGE_REASON_NO_SPACE,
                                   "no room");
        return;
    }
    assert_int_equal(action->offset, *at);
    *at += action->data_size;
    fedge_session_blob_at(f->session, f->now_ms, action->hash, *at);
}

static void perform_link(fake *f, const fedge_session_action *action)
{
    switch (action->type) {
    case FEDGE_SESSION_CONNECT:
        assert_false(f->linked);
        f->linked = true;
        f->num_connects++;
        break;
    case FEDGE_SESSION_CLOSE:
        f->linked = false;
        f->close_reason = action->reason;
        f->stays = action->flag;
        snprintf(f->sent_to, sizeof(f->sent_to), "%s", action->server);
        break;
    case FEDGE_SESSION_SEND:
        take_sent(f, action->data, action->data_size);
        break;
    case FEDGE_SESSION_SEND_PART:
        send_part(f, action);
        break;
    case FEDGE_SESSION_STOP:
        f->stopped = true;
        f->exit_code = action->exit_code;
        snprintf(f->text, sizeof(f->text), "%s", action->text);
        break;
    default:
        fail_msg("unknown action %d", (int)action->type);
    }
}

static void perform(fake *f, const fedge_session_action *action)
{
    assert_false(f->stopped);
    switch (action->type) {
    case FEDGE_SESSION_WELCOMED:
        f->num_welcomed++;
        f->run_discarded = action->flag;
        if (action->flag)
            f->plan_held = f->model_held = 0;
        break;
    case FEDGE_SESSION_LOOKUP_BLOB:
        look_up(f, action);
        break;
    case FEDGE_SESSION_STORE_CHUNK:
        store_chunk(f, action);
        break;
    case FEDGE_SESSION_LOAD_PLAN:
        f->plan_asked = true;
        break;
    case FEDGE_SESSION_WORK:
        assert_false(f->working);
        f->working = true;
        f->num_works++;
        f->work = *action->task;
        break;
    case FEDGE_SESSION_CANCEL:
        assert_true(f->working);
        f->cancel_asked = true;
        f->num_cancels++;
        break;
    case FEDGE_SESSION_DISCARD_RESULT:
        f->has_result = false;
        f->num_discards++;
        break;
    case FEDGE_SESSION_NOTE:
        snprintf(f->last_event, sizeof(f->last_event), "%s", action->event);
        f->num_accepted += strcmp(action->event, "accepted") == 0;
        break;
    default:
        perform_link(f, action);
        break;
    }
}

void fake_run(fake *f)
{
    fedge_session_action action;
    for (unsigned i = 0; i < 10000; i++) {
        bool writeable = f->linked && (!f->block_after_parts ||
                                       f->sent[FEDGE_MESSAGE_PART] < f->block_after_parts);
        if (!fedge_session_next(f->session, writeable, &action))
            return;
        perform(f, &action);
    }
    fail_msg("the session never comes to rest");
}

void fake_wait(fake *f, uint64_t ms)
{
    f->now_ms += ms;
    fedge_session_tick(f->session, f->now_ms);
    fake_run(f);
}

void fake_frame(fake *f, const uint8_t *frame, size_t size)
{
    fedge_session_frame(f->session, f->now_ms, frame, size);
    fake_run(f);
}

void fake_welcome_as(fake *f, const char *run_id, uint32_t incarnation, const char *plan)
{
    uint64_t due = fedge_session_deadline(f->session);
    if (!f->linked)
        fake_wait(f, due > f->now_ms ? due - f->now_ms : 0);
    assert_true(f->linked);
    unsigned hellos = f->sent[FEDGE_MESSAGE_HELLO];
    fedge_session_connected(f->session, f->now_ms);
    fake_run(f);
    assert_int_equal(f->sent[FEDGE_MESSAGE_HELLO], hellos + 1);
    fedge_welcome welcome = {.protocol = 1,
                             .client_index = 3,
                             .server_time_ms = 1700000000000,
                             .incarnation = incarnation,
                             .plan_size = PLAN_SIZE,
                             .heartbeat_s = 30,
                             .return_within_ms = f->return_within_ms};
    strcpy(welcome.run_id, run_id);
    strcpy(welcome.plan, plan);
    size_t size;
    assert_int_equal(fedge_welcome_pack(&welcome, f->frame, sizeof(f->frame), &size, NULL),
                     FEDGE_OK);
    fake_frame(f, f->frame, size);
}

void fake_welcome(fake *f)
{
    fake_welcome_as(f, FAKE_RUN, 1, FAKE_PLAN);
}

static uint64_t size_of(const char *hash)
{
    return strcmp(hash, FAKE_PLAN) == 0   ? PLAN_SIZE
           : strcmp(hash, FAKE_LIST) == 0 ? LIST_SIZE
                                          : FAKE_BLOB_SIZE;
}

void fake_chunk(fake *f, const char *hash, uint64_t offset, uint32_t part)
{
    static const uint8_t payload[FEDGE_MESSAGE_MAX_PAYLOAD];
    fedge_blob_ref ref = {.offset = offset, .size = size_of(hash)};
    strcpy(ref.hash, hash);
    size_t size;
    assert_int_equal(fedge_chunk_pack(&ref, payload, part, f->frame, sizeof(f->frame), &size, NULL),
                     FEDGE_OK);
    fake_frame(f, f->frame, size);
}

void fake_serve(fake *f, const char *hash)
{
    while (*held(f, hash) < size_of(hash)) {
        uint64_t at = *held(f, hash), left = size_of(hash) - at;
        fake_chunk(f, hash, at, left < 65536 ? (uint32_t)left : 65536);
        assert_int_not_equal(*held(f, hash), at); /* the client wants it */
    }
}

void fake_plan(fake *f)
{
    fake_serve(f, FAKE_PLAN);
    assert_true(f->plan_asked);
    f->plan_asked = false;
    fedge_session_plan_ready(f->session, f->now_ms, FAKE_PLAN, FAKE_BLOB_SIZE);
    fake_run(f);
}

void fake_task(fake *f, uint64_t task_id, const char *model)
{
    fedge_task task = {.task_id = task_id,
                       .kind = FEDGE_TASK_TRAIN,
                       .round = 1,
                       .model_size = FAKE_BLOB_SIZE,
                       .deadline_ms = 60000,
                       .learning_rate = 0.1};
    strcpy(task.model, model);
    if (f->has_list) {
        strcpy(task.parts, FAKE_LIST);
        task.parts_size = LIST_SIZE;
    }
    size_t size;
    assert_int_equal(fedge_task_pack(&task, f->frame, sizeof(f->frame), &size, NULL), FEDGE_OK);
    fake_frame(f, f->frame, size);
}

void fake_work_done(fake *f)
{
    assert_true(f->working);
    f->working = f->cancel_asked = false;
    memset(&f->result, 0, sizeof(f->result));
    f->result.task_id = f->work.task_id;
    strcpy(f->result.run_id, FAKE_RUN);
    f->result.incarnation = f->work_incarnation;
    f->result.size = FAKE_RESULT_SIZE;
    for (uint64_t i = 0; i < FAKE_RESULT_SIZE; i++) {
        uint8_t byte = fake_result_byte(i);
        f->result.crc32 = fedge_crc32(f->result.crc32, &byte, 1);
    }
    f->result.num_examples = 10;
    f->result.num_sections = 1;
    strcpy(f->result.sections[0].name, "delta");
    f->result.sections[0].codec = fedge_codec_lossless();
    f->result.sections[0].size = f->result.sections[0].raw_size = FAKE_RESULT_SIZE;
    f->has_result = true;
    fedge_session_task_done(f->session, f->now_ms, &f->result);
    fake_run(f);
}

void fake_resume(fake *f, uint64_t task_id, uint64_t offset)
{
    const fedge_position position = {task_id, offset};
    size_t size;
    assert_int_equal(fedge_resume_pack(&position, f->frame, sizeof(f->frame), &size, NULL),
                     FEDGE_OK);
    fake_frame(f, f->frame, size);
}

void fake_ack(fake *f, uint64_t task_id, bool duplicate)
{
    const fedge_ack ack = {task_id, duplicate};
    size_t size;
    assert_int_equal(fedge_ack_pack(&ack, f->frame, sizeof(f->frame), &size, NULL), FEDGE_OK);
    fake_frame(f, f->frame, size);
}

void fake_notice(fake *f, fedge_message_type type, bool has_task, uint64_t task_id,
                 fedge_reason reason, uint64_t after_ms)
{
    fedge_notice notice = {
        .has_task = has_task, .task_id = task_id, .reason = reason, .after_ms = after_ms};
    strcpy(notice.text, "because");
    snprintf(notice.server, sizeof(notice.server), "%s", f->send_to);
    size_t size;
    assert_int_equal(fedge_notice_pack(type, &notice, f->frame, sizeof(f->frame), &size, NULL),
                     FEDGE_OK);
    fake_frame(f, f->frame, size);
}

void fake_break(fake *f)
{
    f->linked = false;
    fedge_session_disconnected(f->session, f->now_ms, 0, "connection reset");
    fake_run(f);
}

int fake_set_up(void **state)
{
    fake *f = malloc(sizeof(*f));
    assert_non_null(f);
    fake_init(f);
    *state = f;
    return 0;
}

int fake_tear_down(void **state)
{
    fake_fini(*state);
    free(*state);
    return 0;
}

unsigned fake_sent(const fake *f, fedge_message_type type)
{
    return f->sent[type];
}

void fake_go_to_upload(fake *f)
{
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    fake_work_done(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 1);
}
