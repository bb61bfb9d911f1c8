/* The receiving side of the session. A message that the protocol does not allow drops the link; the
 * client reconnects after its backoff, so a broken server costs only reconnects. */
#include <stdio.h>
#include <string.h>

#include "client/session_private.h"
#include "edge/plan/plan.h"

/* Drops the link for a message that cannot be read or is not allowed here. */
static void bad_message(fedge_session *s, fedge_reason reason, const fedge_message *message,
                        const char *what)
{
    char text[FEDGE_MAX_TEXT];
    snprintf(text, sizeof(text), "%s: %.200s", fedge_message_type_name(message->type), what);
    fedge_session_drop(s, reason, 0, text);
}

/* --- WELCOME --------------------------------------------------------------------------------- */

/* Forgets results, bases and the plan of another run, or of one restored from a backup. */
static void leave_run(fedge_session *s)
{
    if (s->has_result)
        fedge_session_discard_result(s);
    s->has_task = false;
    if (s->working)
        fedge_session_drop_task(s, s->work.task_id);
    s->plan_fetch.state = BLOB_UNKNOWN;
    s->model_fetch.state = BLOB_UNKNOWN;
}

static void take_run(fedge_session *s, const fedge_welcome *welcome, bool other_plan)
{
    bool other_run =
        strcmp(s->run_id, welcome->run_id) != 0 || s->incarnation != welcome->incarnation;
    if (other_run)
        leave_run(s);
    if (other_plan) {
        /* Of models nothing is fetched before the site has allowed the plan. */
        s->plan = PLAN_NONE;
        s->plan_fetch.state = BLOB_UNKNOWN;
        s->model_fetch.state = BLOB_UNKNOWN;
    }
    s->welcome = *welcome;
    memcpy(s->run_id, welcome->run_id, sizeof(s->run_id));
    s->incarnation = welcome->incarnation;
    fedge_session_action *action = fedge_session_push(s, FEDGE_SESSION_WELCOMED);
    action->welcome = &s->welcome;
    action->flag = other_run;
}

static void read_welcome(fedge_session *s, const fedge_message *message)
{
    fedge_welcome welcome;
    fedge_error err;
    /* WELCOME answers a HELLO, and comes once. */
    if (s->link != LINK_GREETING || s->say_hello) {
        bad_message(s, FEDGE_REASON_BAD_STATE, message, "a second one");
        return;
    }
    if (fedge_welcome_read(message, &welcome, &err)) {
        bad_message(s, FEDGE_REASON_BAD_META, message, err.message);
        return;
    }
    const fedge_hello *hello = s->config.hello;
    /* The server must choose from HELLO's range. */
    if (welcome.protocol < hello->protocol_min || welcome.protocol > hello->protocol_max) {
        char text[FEDGE_MAX_TEXT];
        snprintf(text, sizeof(text), "the server speaks protocol %u, this release %u to %u",
                 welcome.protocol, hello->protocol_min, hello->protocol_max);
        fedge_session_end(s, FEDGE_EXIT_DECLINED, FEDGE_MESSAGE_BYE, FEDGE_REASON_PROTOCOL_RANGE,
                          text);
        return;
    }
    /* Checked before anything is fetched: the size is only the server's claim. */
    if (welcome.plan_size == 0 || welcome.plan_size > FEDGE_PLAN_MAX_SIZE) {
        bad_message(s, FEDGE_REASON_TOO_BIG, message, "a plan without bytes or over the limit");
        return;
    }
    s->link = LINK_ONLINE;
    s->online_since = s->progress_at = s->now_ms;
    take_run(s, &welcome, strcmp(s->welcome.plan, welcome.plan) != 0);
    session_fetch *both[] = {&s->plan_fetch, &s->model_fetch};
    for (size_t i = 0; i < 2; i++) {
        /* Interrupted fetches continue; their bytes are stored. */
        both[i]->ask = both[i]->state == BLOB_FETCH;
        both[i]->repaired = both[i]->refused = false;
    }
    fedge_session_note(s, FEDGE_LOG_INFO, "welcome", "client %u of run %s, incarnation %u",
                       welcome.client_index, welcome.run_id, welcome.incarnation);
    fedge_session_advance(s);
}

/* --- TASK and blobs -------------------------------------------------------------------------- */

static void read_task(fedge_session *s, const fedge_message *message)
{
    fedge_error err;
    if (fedge_task_read(message, &s->incoming, &err)) {
        bad_message(s, FEDGE_REASON_BAD_META, message, err.message);
        return;
    }
    const fedge_task *task = &s->incoming;
    fedge_session_progress(s);
    /* Its ACK was lost, or the server has restarted. */
    if (s->has_result && s->result.task_id == task->task_id) {
        fedge_session_advance(s); /* it is done: upload the stored bytes */
        return;
    }
    bool working = s->working && !s->cancelled;
    /* The same task after a reconnect, in progress. */
    if (working && s->work.task_id == task->task_id)
        return;
    /* A client has one task at a time: the newer one replaces it. */
    if (working)
        fedge_session_drop_task(s, s->work.task_id);
    s->task = *task;
    s->has_task = true;
    fedge_session_note(s, FEDGE_LOG_INFO, "task", "task %llu: %s, round %u",
                       (unsigned long long)task->task_id,
                       task->kind == FEDGE_TASK_TRAIN ? "train" : "evaluate", task->round);
    fedge_session_advance(s);
}

static void take_chunk(fedge_session *s, session_fetch *fetch, const fedge_blob_ref *ref,
                       const fedge_message *message)
{
    /* The size was announced with the task; no byte may be beyond it. */
    if (ref->size != fetch->size || message->payload_size > fetch->size - fetch->offset) {
        bad_message(s, FEDGE_REASON_TOO_BIG, message, "a blob of another size than announced");
        return;
    }
    fetch->repaired = fetch->refused = false;
    fedge_session_action *action = fedge_session_push(s, FEDGE_SESSION_STORE_CHUNK);
    memcpy(action->hash, fetch->hash, sizeof(action->hash));
    action->offset = fetch->offset;
    action->size = fetch->size;
    action->data = message->payload;
    action->data_size = message->payload_size;
}

static void read_chunk(fedge_session *s, const fedge_message *message)
{
    fedge_blob_ref ref;
    fedge_error err;
    if (fedge_chunk_read(message, &ref, &err)) {
        bad_message(s, FEDGE_REASON_BAD_META, message, err.message);
        return;
    }
    session_fetch *both[] = {&s->plan_fetch, &s->model_fetch};
    for (size_t i = 0; i < 2; i++) {
        session_fetch *fetch = both[i];
        /* A late chunk of a blob that is no longer fetched. */
        if (fetch->state != BLOB_FETCH || strcmp(fetch->hash, ref.hash) != 0)
            continue;
        if (ref.offset == fetch->offset && message->payload_size > 0) {
            take_chunk(s, fetch, &ref, message);
        } else if (ref.offset > fetch->offset && !fetch->repaired) {
            /* A chunk is missing. Those in flight do not match either: request only once. */
            fetch->ask = fetch->repaired = true;
        }
        return;
    }
}

/* --- RESUME and ACK -------------------------------------------------------------------------- */

static void read_resume(fedge_session *s, const fedge_message *message)
{
    fedge_position position;
    fedge_error err;
    if (fedge_position_read(message, &position, &err)) {
        bad_message(s, FEDGE_REASON_BAD_META, message, err.message);
        return;
    }
    /* Ignore the answer to an announcement that has been taken back. */
    if (!s->has_result || s->result.task_id != position.task_id || s->upload == UPLOAD_NONE ||
        s->upload == UPLOAD_ANNOUNCE)
        return;
    if (position.offset > s->result.size) {
        bad_message(s, FEDGE_REASON_BAD_STATE, message, "a position behind the end of the result");
        return;
    }
    /* A server must not make this device send the same bytes forever. */
    if (position.offset < s->upload_offset)
        s->bytes_resent += s->upload_offset - position.offset;
    if (s->bytes_resent / FEDGE_SESSION_MAX_RESENT > s->result.size) {
        fedge_session_note(s, FEDGE_LOG_WARN, "refused", "task %llu: its bytes were asked for %ux",
                           (unsigned long long)position.task_id, FEDGE_SESSION_MAX_RESENT);
        fedge_session_discard_result(s);
        fedge_session_advance(s);
        return;
    }
    fedge_session_progress(s);
    s->upload_offset = position.offset;
    s->upload = position.offset < s->result.size ? UPLOAD_SENDING : UPLOAD_SENT;
}

static void read_ack(fedge_session *s, const fedge_message *message)
{
    fedge_ack ack;
    fedge_error err;
    if (fedge_ack_read(message, &ack, &err)) {
        bad_message(s, FEDGE_REASON_BAD_META, message, err.message);
        return;
    }
    if (!s->has_result || s->result.task_id != ack.task_id)
        return;
    fedge_session_progress(s);
    fedge_session_note(s, FEDGE_LOG_INFO, "accepted", "task %llu: %llu bytes%s",
                       (unsigned long long)ack.task_id, (unsigned long long)s->result.size,
                       ack.duplicate ? " (the server had them already)" : "");
    fedge_session_discard_result(s);
    fedge_session_advance(s);
}

/* --- notices --------------------------------------------------------------------------------- */

static void read_cancel(fedge_session *s, const fedge_notice *notice)
{
    if (!notice->has_task)
        return;
    fedge_session_progress(s);
    fedge_session_note(s, FEDGE_LOG_INFO, "cancel", "task %llu: %s",
                       (unsigned long long)notice->task_id, notice->text);
    fedge_session_drop_task(s, notice->task_id);
    if (s->has_result && s->result.task_id == notice->task_id)
        fedge_session_discard_result(s);
    fedge_session_advance(s);
}

static fedge_exit exit_of(fedge_reason reason)
{
    switch (reason) {
    case FEDGE_REASON_RUN_COMPLETE:
        return FEDGE_EXIT_OK;
    case FEDGE_REASON_REVOKED:
        return FEDGE_EXIT_NOT_ADMITTED;
    default:
        return FEDGE_EXIT_REFUSED;
    }
}

/* Class "never": an operator must act, so the program ends with the server's reason. */
static void end_for(fedge_session *s, const fedge_notice *notice)
{
    char text[FEDGE_MAX_TEXT];
    if (notice->reason == FEDGE_REASON_RUN_COMPLETE) {
        snprintf(text, sizeof(text), "the run is complete");
    } else {
        snprintf(text, sizeof(text), "the server refuses for good (%s): %.200s",
                 fedge_reason_name(notice->reason), notice->text);
    }
    fedge_session_end(s, exit_of(notice->reason), 0, notice->reason, text);
}

/* Handles a refusal of the stored result. */
static void refuse_result(fedge_session *s, const fedge_notice *notice)
{
    const char *class = fedge_reason_class(notice->reason);
    fedge_session_note(s, FEDGE_LOG_WARN, "refused", "result of task %llu: %s: %s",
                       (unsigned long long)notice->task_id, fedge_reason_name(notice->reason),
                       notice->text);
    if (strcmp(class, "later") == 0) {
        uint64_t wait = notice->after_ms ? notice->after_ms : s->config.backoff_base_ms;
        if (wait > FEDGE_SESSION_MAX_LATER_MS)
            wait = FEDGE_SESSION_MAX_LATER_MS;
        /* The server's time plus jitter, since many devices may have the same. */
        s->upload = UPLOAD_PAUSED;
        s->upload_retry_at = s->now_ms + wait + fedge_session_jitter(s, wait / 8);
        return;
    }
    /* Damaged bytes or a slow link may succeed next time; a wrong value would not. */
    const bool again =
        notice->reason == FEDGE_REASON_BAD_DATA || notice->reason == FEDGE_REASON_TIMEOUT;
    if (again && ++s->upload_repeats < FEDGE_SESSION_MAX_REPEATS) {
        s->upload = UPLOAD_NONE;
        fedge_session_advance(s);
        return;
    }
    if (again) {
        /* A server that has restarted meanwhile counts fewer refusals, and would wait for more. */
        fedge_session_result_lost(s, s->now_ms, notice->text);
        return;
    }
    fedge_session_discard_result(s);
    if (strcmp(class, "never") == 0)
        end_for(s, notice);
    fedge_session_advance(s);
}

/* A FETCH was refused because its round is over. It may have concerned an earlier task's model, so
 * a model being fetched is requested once more; a second refusal declines the task. */
static void refuse_fetch(fedge_session *s, const fedge_notice *notice)
{
    fedge_session_note(s, FEDGE_LOG_WARN, "refused", "%s: %s", fedge_reason_name(notice->reason),
                       notice->text);
    session_fetch *fetch = &s->model_fetch;
    if (!s->has_task || fetch->state != BLOB_FETCH)
        return;
    if (fetch->refused) {
        /* Without an answer the round would wait for this task until its deadline. */
        fedge_session_task_declined(s, s->now_ms, notice->reason, 0, notice->text);
    } else if (!fetch->ask) {
        fetch->ask = fetch->refused = true;
    }
}

static void read_refuse(fedge_session *s, const fedge_notice *notice)
{
    if (notice->has_task && s->has_result && s->result.task_id == notice->task_id) {
        refuse_result(s, notice);
        return;
    }
    const char *class = fedge_reason_class(notice->reason);
    /* Not about the stored result: the server refuses this device. */
    if (strcmp(class, "never") == 0) {
        end_for(s, notice);
    } else if (notice->has_task) {
        fedge_session_note(s, FEDGE_LOG_WARN, "refused", "%s: %s",
                           fedge_reason_name(notice->reason), notice->text);
        fedge_session_drop_task(s, notice->task_id);
        fedge_session_advance(s);
    } else if (notice->reason == FEDGE_REASON_STALE_TASK) {
        refuse_fetch(s, notice);
    } else {
        bool later = strcmp(class, "later") == 0;
        char text[FEDGE_MAX_TEXT];
        s->last = *notice;
        snprintf(text, sizeof(text), "refused: %s: %.200s", fedge_reason_name(notice->reason),
                 notice->text);
        fedge_session_drop(s, FEDGE_REASON_NONE, later ? notice->after_ms : 0, text);
    }
}

static void read_bye(fedge_session *s, const fedge_notice *notice)
{
    const char *class = fedge_reason_class(notice->reason);
    if (strcmp(class, "never") == 0) {
        end_for(s, notice);
        return;
    }
    char text[FEDGE_MAX_TEXT];
    s->last = *notice;
    s->replaced += notice->reason == FEDGE_REASON_REPLACED;
    snprintf(text, sizeof(text), "the server says bye: %s: %.200s",
             fedge_reason_name(notice->reason), notice->text);
    fedge_session_drop(s, FEDGE_REASON_NONE, strcmp(class, "later") == 0 ? notice->after_ms : 0,
                       text);
}

static void read_notice(fedge_session *s, const fedge_message *message)
{
    fedge_notice notice;
    fedge_error err;
    if (fedge_notice_read(message, &notice, &err))
        bad_message(s, FEDGE_REASON_BAD_META, message, err.message);
    else if (message->type == FEDGE_MESSAGE_CANCEL)
        read_cancel(s, &notice);
    else if (message->type == FEDGE_MESSAGE_REFUSE)
        read_refuse(s, &notice);
    else
        read_bye(s, &notice);
}

/* One message of a known type. */
static void read_message(fedge_session *s, const fedge_message *message)
{
    unsigned type = message->type;
    bool any_time =
        type == FEDGE_MESSAGE_WELCOME || type == FEDGE_MESSAGE_REFUSE || type == FEDGE_MESSAGE_BYE;
    if (!any_time && s->link != LINK_ONLINE) {
        bad_message(s, FEDGE_REASON_BAD_STATE, message, "before WELCOME");
        return;
    }
    switch (type) {
    case FEDGE_MESSAGE_WELCOME:
        read_welcome(s, message);
        break;
    case FEDGE_MESSAGE_TASK:
        read_task(s, message);
        break;
    case FEDGE_MESSAGE_CHUNK:
        read_chunk(s, message);
        break;
    case FEDGE_MESSAGE_RESUME:
        read_resume(s, message);
        break;
    case FEDGE_MESSAGE_ACK:
        read_ack(s, message);
        break;
    case FEDGE_MESSAGE_CANCEL:
    case FEDGE_MESSAGE_REFUSE:
    case FEDGE_MESSAGE_BYE:
        read_notice(s, message);
        break;
    default: /* types that only a client sends */
        bad_message(s, FEDGE_REASON_BAD_STATE, message, "only clients send it");
        break;
    }
}

void fedge_session_frame(fedge_session *session, uint64_t now_ms, const uint8_t *frame, size_t size)
{
    session->now_ms = now_ms;
    if (session->stopping || (session->link != LINK_GREETING && session->link != LINK_ONLINE))
        return;
    fedge_message message;
    fedge_error err;
    if (fedge_message_unpack(frame, size, &message, &err)) {
        fedge_session_garbage(session, now_ms, err.message);
        return;
    }
    if (fedge_message_type_name(message.type)) {
        read_message(session, &message);
    } else if (message.flags & FEDGE_MESSAGE_FLAG_MUST) {
        char text[FEDGE_MAX_TEXT];
        snprintf(text, sizeof(text),
                 "the server requires a message of type %u, which this release does not know: "
                 "install a newer one",
                 message.type);
        fedge_session_end(session, FEDGE_EXIT_DECLINED, FEDGE_MESSAGE_BYE,
                          FEDGE_REASON_UNKNOWN_TYPE, text);
    }
}
