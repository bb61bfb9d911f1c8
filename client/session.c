#include "client/session.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session_private.h"
#include "edge/wire/protocol.h"

fedge_status fedge_session_new(const fedge_session_config *config, fedge_session **session,
                               fedge_error *err)
{
    *session = NULL;
    fedge_session *s = calloc(1, sizeof(*s));
    if (!s)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a session of %zu bytes", sizeof(*s));
    s->config = *config;
    s->jitter = fedge_rng_stream(config->jitter_seed, FEDGE_PURPOSE_JITTER, 0, 0, 0);
    s->connect_at = FEDGE_SESSION_NEVER;
    *session = s;
    return FEDGE_OK;
}

void fedge_session_free(fedge_session *session)
{
    free(session);
}

/* --- actions ------------------------------------------------------------------------------- */

fedge_session_action *fedge_session_push(fedge_session *s, fedge_session_action_type type)
{
    assert(s->num_actions < FEDGE_SESSION_MAX_ACTIONS);
    unsigned at = (s->first_action + s->num_actions++) % FEDGE_SESSION_MAX_ACTIONS;
    fedge_session_action *action = &s->actions[at];
    memset(action, 0, sizeof(*action));
    action->type = type;
    return action;
}

void fedge_session_note(fedge_session *s, fedge_log_level level, const char *event,
                        const char *format, ...)
{
    fedge_session_action *action = fedge_session_push(s, FEDGE_SESSION_NOTE);
    action->level = level;
    action->event = event;
    va_list args;
    va_start(args, format);
    vsnprintf(action->text, sizeof(action->text), format, args);
    va_end(args);
}

static void push_blob(fedge_session *s, fedge_session_action_type type, const session_fetch *fetch)
{
    fedge_session_action *action = fedge_session_push(s, type);
    memcpy(action->hash, fetch->hash, sizeof(action->hash));
    action->size = fetch->size;
    action->task = fetch == &s->model_fetch ? &s->task : NULL;
}

static void copy_text(char out[FEDGE_MAX_TEXT], const char *text)
{
    snprintf(out, FEDGE_MAX_TEXT, "%s", text);
}

/* --- the link ------------------------------------------------------------------------------ */

uint64_t fedge_session_jitter(fedge_session *s, uint64_t most)
{
    uint32_t bound = most < UINT32_MAX ? (uint32_t)most + 1 : UINT32_MAX;
    return fedge_rng_below(&s->jitter, bound);
}

/* [most], or the server's time for all devices to return, whichever is longer. */
static uint64_t with_all(const fedge_session *s, uint64_t most)
{
    return most < s->welcome.return_within_ms ? s->welcome.return_within_ms : most;
}

/* Full jitter (Brooker, "Exponential Backoff and Jitter", 2015): spreads reconnects evenly, and the
 * cap bounds the wait. */
static uint64_t backoff(fedge_session *s)
{
    uint64_t most = s->config.backoff_base_ms;
    unsigned rounds = s->attempt / (s->config.num_servers ? s->config.num_servers : 1);
    /* Otherwise two clients with one identity would replace each other forever. */
    if (rounds < s->replaced)
        rounds = s->replaced;
    /* Doubled only after trying all servers: one that is down must not delay the next. */
    for (unsigned i = 0; i < rounds && most < s->config.backoff_cap_ms; i++)
        most *= 2;
    if (most > s->config.backoff_cap_ms)
        most = s->config.backoff_cap_ms;
    s->attempt++;
    /* Many devices may have lost the server at once. */
    return fedge_session_jitter(s, with_all(s, most));
}

void fedge_session_progress(fedge_session *s)
{
    s->progress_at = s->now_ms;
    s->attempt = 0;
}

/* The link is down. Fetches and uploads continue after the next WELCOME. */
static void go_offline(fedge_session *s, uint64_t later_ms)
{
    /* A link that held for long is progress, even without messages. */
    if (s->link == LINK_ONLINE && s->now_ms - s->online_since >= s->config.backoff_cap_ms)
        s->attempt = s->replaced = 0;
    s->link = LINK_OFFLINE;
    s->say_hello = s->say_decline = false;
    s->upload = UPLOAD_NONE; /* RESUME says where it continues */
    s->plan_fetch.ask = s->model_fetch.ask = false;
    /* A server's time gets jitter, since thousands of devices may have the same one. It is bounded,
     * so that a device waiting for its site's hours does not miss them. */
    const uint64_t cap = with_all(s, s->config.backoff_cap_ms);
    const uint64_t jitter = later_ms / 8 < cap ? later_ms / 8 : cap;
    /* The time applies to that server: others of the list are tried meanwhile. */
    const bool others = s->config.num_servers > 1 && s->last.reason != FEDGE_REASON_COME_LATER;
    uint64_t wait = later_ms ? later_ms + fedge_session_jitter(s, jitter) : backoff(s);
    const uint64_t sooner = later_ms && others ? backoff(s) : wait;
    wait = sooner < wait ? sooner : wait;
    s->connect_at = s->now_ms + wait;
    if (!s->stopping) {
        fedge_session_note(s, FEDGE_LOG_INFO, "reconnect", "next connection in %.1f s",
                           (double)wait / 1e3);
    }
}

static void close_link(fedge_session *s, fedge_reason reason, const char *text)
{
    if (s->link == LINK_OFFLINE)
        return;
    fedge_session_action *action = fedge_session_push(s, FEDGE_SESSION_CLOSE);
    action->reason = reason;
    /* A server that asks to come back is tried again instead of the next one. */
    action->flag = s->last.reason == FEDGE_REASON_COME_LATER;
    action->server = s->last.server;
    copy_text(action->text, text);
}

void fedge_session_drop(fedge_session *s, fedge_reason reason, uint64_t later_ms, const char *text)
{
    if (later_ms > FEDGE_SESSION_MAX_LATER_MS) {
        later_ms = FEDGE_SESSION_MAX_LATER_MS;
        s->last.reason = FEDGE_REASON_NONE; /* so that another one is tried */
    }
    /* Devices that disconnect between tasks log this many times a day. */
    const bool is_normal = s->last.reason == FEDGE_REASON_COME_LATER;
    fedge_session_note(s, is_normal ? FEDGE_LOG_INFO : FEDGE_LOG_WARN, "disconnect", "%s", text);
    close_link(s, reason, text);
    go_offline(s, later_ms);
}

void fedge_session_restore(fedge_session *session, const char *run_id, uint32_t incarnation,
                           const fedge_upload *result)
{
    snprintf(session->run_id, sizeof(session->run_id), "%s", run_id);
    session->incarnation = incarnation;
    session->has_result = result != NULL;
    if (result)
        session->result = *result;
}

void fedge_session_start(fedge_session *session, uint64_t now_ms)
{
    session->connect_at = now_ms;
    fedge_session_tick(session, now_ms);
}

void fedge_session_connected(fedge_session *session, uint64_t now_ms)
{
    session->now_ms = now_ms;
    if (session->stopping || session->link != LINK_CONNECTING)
        return;
    session->link = LINK_GREETING;
    session->progress_at = now_ms;
    session->say_hello = true;
}

void fedge_session_disconnected(fedge_session *session, uint64_t now_ms, unsigned http_status,
                                const char *why)
{
    session->now_ms = now_ms;
    /* Closing ends within this call. */
    if (session->stopped || session->link == LINK_OFFLINE)
        return;
    if (session->stopping) {
        session->link = LINK_OFFLINE;
        return;
    }
    /* TLS cannot say why a certificate is refused, so the server completes the handshake and
     * answers 403. The client retries after anything else. */
    if (http_status == 403) {
        session->link = LINK_OFFLINE;
        fedge_session_end(session, FEDGE_EXIT_NOT_ADMITTED, 0, FEDGE_REASON_REVOKED,
                          "the server does not admit this device: its certificate is revoked or "
                          "not registered (HTTP 403)");
        return;
    }
    if (http_status) {
        fedge_session_note(session, FEDGE_LOG_WARN, "disconnected", "%s (HTTP %u)", why,
                           http_status);
    } else {
        fedge_session_note(session, FEDGE_LOG_WARN, "disconnected", "%s", why);
    }
    go_offline(session, 0);
}

bool fedge_session_has_task(const fedge_session *session)
{
    return session->has_task || (session->working && !session->cancelled);
}

/* --- the end ------------------------------------------------------------------------------- */

void fedge_session_end(fedge_session *s, fedge_exit exit_code, fedge_message_type farewell,
                       fedge_reason reason, const char *text)
{
    if (s->stopping)
        return;
    s->stopping = true;
    s->exit_code = exit_code;
    copy_text(s->stop_text, text);
    s->stop_at = s->now_ms + FEDGE_SESSION_FAREWELL_MS;
    if (s->working && !s->cancelled) {
        s->cancelled = true;
        fedge_session_push(s, FEDGE_SESSION_CANCEL);
    }
    if (farewell && s->link == LINK_ONLINE) {
        s->say_farewell = true;
        s->farewell_type = farewell;
        memset(&s->farewell, 0, sizeof(s->farewell));
        s->farewell.reason = reason;
        copy_text(s->farewell.text, text);
    }
}

void fedge_session_stop(fedge_session *session, uint64_t now_ms, fedge_exit exit_code,
                        const char *text)
{
    session->now_ms = now_ms;
    fedge_session_end(session, exit_code, FEDGE_MESSAGE_BYE, FEDGE_REASON_SHUTTING_DOWN, text);
}

/* Called when nothing else is pending. */
static void finish(fedge_session *s)
{
    /* A farewell that the link does not take in time is dropped. */
    if (s->say_farewell && s->link == LINK_ONLINE && s->now_ms < s->stop_at)
        return;
    close_link(s, s->say_farewell ? FEDGE_REASON_TIMEOUT : FEDGE_REASON_NONE, s->stop_text);
    s->link = LINK_OFFLINE;
    s->stopped = true;
    fedge_session_action *action = fedge_session_push(s, FEDGE_SESSION_STOP);
    action->exit_code = s->exit_code;
    copy_text(action->text, s->stop_text);
}

/* --- blobs, plan, task --------------------------------------------------------------------- */

static session_fetch *fetch_of(fedge_session *s, const char *hash)
{
    session_fetch *both[] = {&s->plan_fetch, &s->model_fetch};
    for (size_t i = 0; i < 2; i++) {
        if (strcmp(both[i]->hash, hash) == 0)
            return both[i];
    }
    return NULL;
}

static void look_up(fedge_session *s, session_fetch *fetch, const char *hash, uint64_t size)
{
    /* Damaged downloads are counted per blob, over all its fetches, so that the client does not
     * request a file that is damaged on the server forever. */
    unsigned bad = strcmp(fetch->hash, hash) == 0 ? fetch->bad : 0;
    memset(fetch, 0, sizeof(*fetch));
    memcpy(fetch->hash, hash, sizeof(fetch->hash));
    fetch->size = size;
    fetch->bad = bad;
    fetch->state = BLOB_LOOKUP;
    push_blob(s, FEDGE_SESSION_LOOKUP_BLOB, fetch);
}

static void advance_plan(fedge_session *s)
{
    if (s->plan_fetch.state == BLOB_UNKNOWN) {
        look_up(s, &s->plan_fetch, s->welcome.plan, s->welcome.plan_size);
    } else if (s->plan_fetch.state == BLOB_WHOLE) {
        s->plan = PLAN_LOADING;
        push_blob(s, FEDGE_SESSION_LOAD_PLAN, &s->plan_fetch);
    }
}

/* Refuses the waiting task with a reason. */
static void decline_task(fedge_session *s, uint64_t task_id, fedge_reason reason, const char *text)
{
    /* A policy's temporary refusal is no error for the next HELLO to report. */
    fedge_session_note(s, reason > FEDGE_REASON_INTERNAL ? FEDGE_LOG_INFO : FEDGE_LOG_ERROR,
                       "decline", "task %llu: %s", (unsigned long long)task_id, text);
    memset(&s->decline, 0, sizeof(s->decline));
    s->decline.has_task = true;
    s->decline.task_id = task_id;
    s->decline.reason = reason;
    copy_text(s->decline.text, text);
    s->say_decline = s->link == LINK_ONLINE;
}

static void advance_task(fedge_session *s)
{
    /* The plan bounds the size of its models; checked before a byte is fetched. */
    if (s->task.model_size > s->max_model_size) {
        char text[FEDGE_MAX_TEXT];
        snprintf(text, sizeof(text), "its model has %llu bytes; this plan's has at most %llu",
                 (unsigned long long)s->task.model_size, (unsigned long long)s->max_model_size);
        s->has_task = false;
        decline_task(s, s->task.task_id, FEDGE_REASON_TOO_BIG, text);
        return;
    }
    session_fetch *fetch = &s->model_fetch;
    const fedge_delta_ref *delta = s->task.delta ? &s->task.deltas[s->task.delta - 1] : NULL;
    const bool list = FEDGE_TAKES_PARTS && s->task.list == FEDGE_LIST_FETCHED;
    const char *hash = delta ? delta->hash : list ? s->task.parts : s->task.model;
    if (fetch->state == BLOB_UNKNOWN || strcmp(fetch->hash, hash) != 0) {
        look_up(s, fetch, hash,
                delta  ? delta->size
                : list ? s->task.parts_size
                       : s->task.model_size);
    } else if (fetch->state == BLOB_WHOLE && list) {
        s->task.list = FEDGE_LIST_HELD;
        look_up(s, fetch, s->task.model, s->task.model_size);
    } else if (fetch->state == BLOB_WHOLE) {
        s->work = s->task;
        s->has_task = false;
        s->working = true;
        s->cancelled = false;
        fedge_session_push(s, FEDGE_SESSION_WORK)->task = &s->work;
    }
}

void fedge_session_advance(fedge_session *s)
{
    if (s->stopping || s->link != LINK_ONLINE)
        return;
    /* After a reconnect and after training alike, RESUME says where to start. */
    if (s->has_result && s->upload == UPLOAD_NONE) {
        s->upload = UPLOAD_ANNOUNCE;
        s->progress_at = s->now_ms;
    }
    if (s->plan == PLAN_NONE)
        advance_plan(s);
    /* One at a time: a device has memory for one model and disk space for one result. */
    else if (s->plan == PLAN_READY && s->has_task && !s->working && !s->has_result)
        advance_task(s);
}

void fedge_session_store_failed(fedge_session *session, uint64_t now_ms, const char *hash,
                                fedge_reason reason, const char *text)
{
    session_fetch *fetch = fetch_of(session, hash);
    session->now_ms = now_ms;
    if (!fetch)
        return;
    /* Chunks in flight are ignored; the next task looks up what is stored. */
    fetch->state = BLOB_UNKNOWN;
    fetch->ask = false;
    if (session->has_task)
        decline_task(session, session->task.task_id, reason, text);
    session->has_task = false;
}

void fedge_session_blob_at(fedge_session *session, uint64_t now_ms, const char *hash,
                           uint64_t offset)
{
    session->now_ms = now_ms;
    session_fetch *fetch = fetch_of(session, hash);
    if (!fetch || fetch->state == BLOB_WHOLE || fetch->state == BLOB_UNKNOWN)
        return;
    bool first = fetch->state == BLOB_LOOKUP;
    if (!first)
        fedge_session_progress(session); /* only for chunks that were stored */
    /* An offset beyond the blob's size is ignored. */
    fetch->offset = offset <= fetch->size ? offset : 0;
    if (fetch->offset == fetch->size && fetch->size > 0) {
        fetch->state = BLOB_WHOLE;
        fetch->ask = false;
    } else if (FEDGE_TAKES_PARTS && fetch->end > 0 && fetch->offset >= fetch->end) {
        fetch->state = BLOB_LOOKUP;
        fetch->ask = false;
        fetch->look = true;
    } else {
        fetch->state = BLOB_FETCH;
        /* Requested once per fetch: every arriving chunk comes through here, too. */
        fetch->ask = first || fetch->ask;
        session->progress_at = now_ms;
    }
    fedge_session_advance(session);
}

/* False for a late answer to the lookup of an ended task. */
static bool looks_up_model(const fedge_session *s, const char *hash)
{
    return s->has_task && s->model_fetch.state == BLOB_LOOKUP &&
           strcmp(s->model_fetch.hash, hash) == 0 && strcmp(s->task.model, hash) == 0;
}

void fedge_session_base_held(fedge_session *session, uint64_t now_ms, const char *hash,
                             uint32_t index)
{
    session_fetch *fetch = &session->model_fetch;
    session->now_ms = now_ms;
    if (!looks_up_model(session, hash) || index >= session->task.num_deltas)
        return;
    session->task.delta = index + 1;
    fetch->state = BLOB_UNKNOWN;
    fedge_session_advance(session);
}

void fedge_session_wants_list(fedge_session *session, uint64_t now_ms, const char *hash)
{
    session_fetch *fetch = &session->model_fetch;
    session->now_ms = now_ms;
    if (!looks_up_model(session, hash) || session->task.list != FEDGE_LIST_UNUSED)
        return;
    session->task.list = FEDGE_LIST_FETCHED;
    fetch->state = BLOB_UNKNOWN;
    fedge_session_advance(session);
}

void fedge_session_blob_run(fedge_session *session, uint64_t now_ms, const char *hash,
                            uint64_t offset, uint64_t end)
{
    session_fetch *fetch = fetch_of(session, hash);
    if (fetch)
        fetch->end = end;
    fedge_session_blob_at(session, now_ms, hash, offset);
}

void fedge_session_blob_bad(fedge_session *session, uint64_t now_ms, const char *hash)
{
    session->now_ms = now_ms;
    session_fetch *fetch = fetch_of(session, hash);
    if (!fetch)
        return;
    /* A plan being loaded is fetched again, and so is the model of a task that had begun. */
    if (fetch == &session->plan_fetch && session->plan == PLAN_LOADING)
        session->plan = PLAN_NONE;
    if (fetch == &session->model_fetch && session->working) {
        session->working = false;
        session->has_task = session->has_task || !session->cancelled;
        if (!session->cancelled)
            session->task = session->work;
        /* After a wrong base or delta the whole model is fetched. */
        session->task.delta = session->task.num_deltas = 0;
        if (FEDGE_TAKES_PARTS) {
            session->task.parts_size = 0;
            session->task.list = FEDGE_LIST_UNUSED;
        }
    }
    fetch->state = BLOB_UNKNOWN;
    fetch->bad++;
    fedge_session_note(session, FEDGE_LOG_WARN, "bad-blob", "blob %.12s… has another hash", hash);
    /* The next server may have an undamaged one. */
    if (fetch->bad % FEDGE_SESSION_MAX_REPEATS == 0 && session->link == LINK_ONLINE &&
        !session->stopping) {
        fedge_session_drop(session, FEDGE_REASON_BAD_DATA, 0,
                           "a download does not have its hash, again and again");
    }
    fedge_session_advance(session);
}

void fedge_session_plan_ready(fedge_session *session, uint64_t now_ms, const char *hash,
                              uint64_t max_model_size)
{
    session->now_ms = now_ms;
    if (session->plan != PLAN_LOADING || strcmp(session->plan_fetch.hash, hash) != 0)
        return;
    session->plan = PLAN_READY;
    session->max_model_size = max_model_size;
    fedge_session_advance(session);
}

void fedge_session_plan_failed(fedge_session *session, uint64_t now_ms, const char *hash,
                               fedge_reason reason, fedge_exit exit_code, const char *text)
{
    session->now_ms = now_ms;
    if (session->plan != PLAN_LOADING || strcmp(session->plan_fetch.hash, hash) != 0)
        return;
    session->plan = PLAN_NONE;
    fedge_session_end(session, exit_code, FEDGE_MESSAGE_DECLINE, reason, text);
}

/* --- work and result ----------------------------------------------------------------------- */

void fedge_session_discard_result(fedge_session *s)
{
    s->has_result = false;
    s->upload = UPLOAD_NONE;
    s->upload_repeats = 0;
    s->upload_offset = s->bytes_resent = 0;
    (void)fedge_session_push(s, FEDGE_SESSION_DISCARD_RESULT);
}

void fedge_session_drop_task(fedge_session *s, uint64_t task_id)
{
    if (s->has_task && s->task.task_id == task_id) {
        s->has_task = false;
        s->model_fetch.ask = false;
        s->model_fetch.state = BLOB_UNKNOWN;
    }
    if (s->working && !s->cancelled && s->work.task_id == task_id) {
        s->cancelled = true;
        fedge_session_push(s, FEDGE_SESSION_CANCEL);
    }
}

void fedge_session_task_done(fedge_session *session, uint64_t now_ms, const fedge_upload *result)
{
    session->now_ms = now_ms;
    session->working = false;
    bool wanted = !session->cancelled && strcmp(result->run_id, session->run_id) == 0 &&
                  result->incarnation == session->incarnation;
    if (session->stopping && strcmp(result->run_id, session->run_id) == 0)
        return; /* it is stored: the next process offers it */
    /* Unwanted: the task was cancelled, or the server has left the run. */
    if (!wanted) {
        fedge_session_discard_result(session);
    } else {
        session->has_result = true;
        session->result = *result;
        session->upload = UPLOAD_NONE;
        session->upload_repeats = 0;
        session->upload_offset = session->bytes_resent = 0;
    }
    fedge_session_advance(session);
}

void fedge_session_task_failed(fedge_session *session, uint64_t now_ms, fedge_reason reason,
                               const char *text)
{
    session->now_ms = now_ms;
    if (!session->working)
        return;
    session->working = false;
    /* The server gave up a cancelled task and expects no answer. */
    if (reason != FEDGE_REASON_NONE && !session->cancelled)
        decline_task(session, session->work.task_id, reason, text);
    fedge_session_advance(session);
}

void fedge_session_task_declined(fedge_session *session, uint64_t now_ms, fedge_reason reason,
                                 uint64_t after_ms, const char *text)
{
    const bool working = session->working && !session->cancelled;
    session->now_ms = now_ms;
    if (!working && !session->has_task)
        return;
    const uint64_t task_id = working ? session->work.task_id : session->task.task_id;
    fedge_session_drop_task(session, task_id);
    decline_task(session, task_id, reason, text);
    session->decline.after_ms = after_ms;
    fedge_session_advance(session);
}

void fedge_session_result_lost(fedge_session *session, uint64_t now_ms, const char *text)
{
    session->now_ms = now_ms;
    if (!session->has_result)
        return;
    uint64_t task_id = session->result.task_id;
    fedge_session_discard_result(session);
    decline_task(session, task_id, FEDGE_REASON_INTERNAL, text);
    fedge_session_advance(session);
}

/* --- messages ------------------------------------------------------------------------------ */

void fedge_session_garbage(fedge_session *session, uint64_t now_ms, const char *what)
{
    session->now_ms = now_ms;
    if (session->stopping || session->link == LINK_OFFLINE)
        return;
    fedge_session_drop(session, FEDGE_REASON_BAD_FRAME, 0, what);
}

/* --- time ---------------------------------------------------------------------------------- */

/* Whether an answer of the server, or a write of the link, is due. */
static bool waits(const fedge_session *s)
{
    if (s->link == LINK_CONNECTING || s->link == LINK_GREETING)
        return true;
    if (s->link != LINK_ONLINE)
        return false;
    return (s->upload != UPLOAD_NONE && s->upload != UPLOAD_PAUSED) ||
           s->plan_fetch.state == BLOB_FETCH || (s->has_task && s->model_fetch.state == BLOB_FETCH);
}

static bool has_pending_lookup(const fedge_session *s)
{
    return FEDGE_TAKES_PARTS && s->model_fetch.look && s->model_fetch.state == BLOB_LOOKUP &&
           s->link == LINK_ONLINE && s->has_task;
}

uint64_t fedge_session_deadline(const fedge_session *session)
{
    if (session->stopped)
        return FEDGE_SESSION_NEVER;
    if (session->stopping)
        return session->stop_at;
    if (session->link == LINK_OFFLINE)
        return session->connect_at;
    uint64_t at = FEDGE_SESSION_NEVER;
    if (waits(session))
        at = session->progress_at + session->config.progress_timeout_ms;
    if (session->upload == UPLOAD_PAUSED && session->upload_retry_at < at)
        at = session->upload_retry_at;
    /* At once: a long lookup has several steps, and the link is served between them. */
    return has_pending_lookup(session) ? session->now_ms : at;
}

void fedge_session_tick(fedge_session *session, uint64_t now_ms)
{
    session->now_ms = now_ms;
    if (session->stopping)
        return;
    if (session->link == LINK_OFFLINE) {
        if (now_ms < session->connect_at)
            return;
        session->link = LINK_CONNECTING;
        session->last = (fedge_notice){0};
        session->progress_at = now_ms;
        fedge_session_push(session, FEDGE_SESSION_CONNECT);
        return;
    }
    if (has_pending_lookup(session)) {
        session->model_fetch.look = false;
        push_blob(session, FEDGE_SESSION_LOOKUP_BLOB, &session->model_fetch);
        return;
    }
    /* Each part of an upload or download updates progress_at. */
    if (waits(session) && now_ms >= session->progress_at + session->config.progress_timeout_ms) {
        fedge_session_drop(session, FEDGE_REASON_TIMEOUT, 0,
                           session->link == LINK_CONNECTING ? "the connection does not come up"
                                                            : "the server has gone silent");
        return;
    }
    if (session->upload == UPLOAD_PAUSED && now_ms >= session->upload_retry_at) {
        session->upload = UPLOAD_NONE;
        fedge_session_advance(session);
    }
}

/* --- sending ------------------------------------------------------------------------------- */

bool fedge_session_wants_write(const fedge_session *session)
{
    if (session->stopped)
        return false;
    if (session->stopping)
        return session->say_farewell && session->link == LINK_ONLINE;
    if (session->link == LINK_GREETING)
        return session->say_hello;
    return session->link == LINK_ONLINE &&
           (session->say_decline || session->plan_fetch.ask || session->model_fetch.ask ||
            session->upload == UPLOAD_ANNOUNCE || session->upload == UPLOAD_SENDING);
}

static void pack_fetch(fedge_session *s, session_fetch *fetch, size_t *size)
{
    fedge_blob_ref ref = {.offset = fetch->offset,
                          .size =
                              FEDGE_TAKES_PARTS && fetch->end > 0 ? fetch->end - fetch->offset : 0};
    memcpy(ref.hash, fetch->hash, sizeof(ref.hash));
    fetch->ask = false;
    if (fedge_fetch_pack(&ref, s->frame, sizeof(s->frame), size, NULL))
        *size = 0;
}

static void next_part(fedge_session *s, fedge_session_action *action)
{
    uint64_t left = s->result.size - s->upload_offset;
    memset(action, 0, sizeof(*action));
    action->type = FEDGE_SESSION_SEND_PART;
    action->task_id = s->result.task_id;
    action->offset = s->upload_offset;
    action->data_size =
        (uint32_t)(left < FEDGE_MESSAGE_MAX_PAYLOAD ? left : FEDGE_MESSAGE_MAX_PAYLOAD);
    s->upload_offset += action->data_size;
    if (s->upload_offset == s->result.size)
        s->upload = UPLOAD_SENT;
}

/* Packs the most urgent frame. Texts and names were bounded on input, so packing can only fail for
 * an upload with too much metadata, which is dropped. */
static void next_frame(fedge_session *s, fedge_session_action *action)
{
    size_t size = 0;
    fedge_error err;
    /* A writeable link is progress: the peer has taken the earlier frames. */
    s->progress_at = s->now_ms;
    /* Parts come last: other messages are short and must not wait behind an upload. */
    if (!s->stopping && s->link == LINK_ONLINE && s->upload == UPLOAD_SENDING && !s->say_decline &&
        !s->plan_fetch.ask && !s->model_fetch.ask) {
        next_part(s, action);
        return;
    }
    memset(action, 0, sizeof(*action));
    action->type = FEDGE_SESSION_SEND;
    fedge_status status = FEDGE_OK;
    if (s->stopping) {
        s->say_farewell = false;
        status = fedge_notice_pack(s->farewell_type, &s->farewell, s->frame, sizeof(s->frame),
                                   &size, &err);
    } else if (s->say_hello) {
        s->say_hello = false;
        status = fedge_hello_pack(s->config.hello, s->frame, sizeof(s->frame), &size, &err);
    } else if (s->say_decline) {
        s->say_decline = false;
        status = fedge_notice_pack(FEDGE_MESSAGE_DECLINE, &s->decline, s->frame, sizeof(s->frame),
                                   &size, &err);
    } else if (s->plan_fetch.ask) {
        pack_fetch(s, &s->plan_fetch, &size);
    } else if (s->model_fetch.ask) {
        pack_fetch(s, &s->model_fetch, &size);
    } else {
        s->upload = UPLOAD_ANNOUNCED;
        status = fedge_upload_pack(&s->result, s->frame, sizeof(s->frame), &size, &err);
        if (status != FEDGE_OK)
            fedge_session_result_lost(s, s->now_ms, err.message);
    }
    if (status != FEDGE_OK && !s->stopping) {
        fedge_session_note(s, FEDGE_LOG_ERROR, "internal", "cannot write a message: %s",
                           err.message);
    }
    action->data = s->frame;
    action->data_size = (uint32_t)size;
}

bool fedge_session_next(fedge_session *session, bool writeable, fedge_session_action *action)
{
    /* After all other actions, so that STOP is the last. */
    if (session->num_actions == 0 && session->stopping && !session->stopped)
        finish(session);
    if (session->num_actions > 0) {
        *action = session->actions[session->first_action];
        session->first_action = (session->first_action + 1) % FEDGE_SESSION_MAX_ACTIONS;
        session->num_actions--;
        return true;
    }
    if (!writeable || !fedge_session_wants_write(session))
        return false;
    next_frame(session, action);
    if (action->data_size > 0)
        return true;
    /* Not packed: return the actions that this added. */
    return fedge_session_next(session, writeable, action);
}
