#include "aggregator/run/engine_thread.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "aggregator/threads/thread.h"
#include "aggregator/threads/waiting.h"
#include "edge/core/os.h"

struct fedge_engine_thread {
    fedge_engine *engine;
    fedge_mailbox *requests;
    fedge_mailbox *made;    /* replies of the engine, not delivered yet */
    fedge_mailbox *waiting; /* replies for fedge_engine_thread_take */
    fedge_deliver_fn deliver;
    void *deliver_user;
    fedge_forward_fn forward; /* NULL: this process runs the engine */
    void *forward_user;
    fedge_error lost; /* reason why a reply could not be delivered */
    fedge_traffic traffic;
    _Atomic uint64_t queued_bytes; /* bytes of requests in the queue */
    atomic_bool was_full;          /* a peer was paused */
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    bool awake, stopping;
    bool ended; /* the thread has ended, and no longer owns the engine */
    pthread_cond_t answered;
    uint64_t num_status_requests, num_status_answers; /* counters of fedge_engine_thread_status */
    fedge_run_status status;
    bool done;
    fedge_error failure;
};

/* Delivers replies as the engine makes them, on its thread: an ACK must not wait for the engine's
 * next work. */
static void send_replies(void *thread)
{
    fedge_engine_thread *self = thread;
    fedge_mailbox_item *item = fedge_mailbox_take(self->made);
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        fedge_reply *reply = (fedge_reply *)item;
        if (!self->deliver || reply->type == FEDGE_REPLY_ROUND) {
            fedge_mailbox_post(self->waiting, item);
        } else {
            fedge_error err;
            /* The thread ends with it in publish_done: here the engine is in the middle of a call.
             */
            if (self->deliver(self->deliver_user, reply, &err) != FEDGE_OK &&
                self->lost.status == FEDGE_OK)
                self->lost = err; /* the first failure says why */
        }
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

fedge_status fedge_engine_thread_new(fedge_engine_thread **thread, void (*on_reply)(void *user),
                                     void *user, fedge_error *err)
{
    *thread = NULL;
    fedge_engine_thread *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the engine's thread");
    fedge_condition_init(&fresh->changed);
    pthread_mutex_init(&fresh->mutex, NULL);
    pthread_cond_init(&fresh->answered, NULL);
    fedge_status status;
    FEDGE_TRY_OR(fedge_mailbox_new(&fresh->requests, fedge_engine_thread_wake, fresh, err), failed);
    FEDGE_TRY_OR(fedge_mailbox_new(&fresh->made, send_replies, fresh, err), failed);
    FEDGE_TRY_OR(fedge_mailbox_new(&fresh->waiting, on_reply, user, err), failed);
    *thread = fresh;
    return FEDGE_OK;
failed:
    fedge_engine_thread_free(fresh);
    return status;
}

static void drop_requests(fedge_engine_thread *self)
{
    fedge_mailbox_item *item = fedge_mailbox_take(self->requests);
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        fedge_request_free((fedge_request *)item);
    }
}

static void drop_replies(fedge_mailbox *replies)
{
    fedge_mailbox_item *item = replies ? fedge_mailbox_take(replies) : NULL;
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        fedge_reply_free((fedge_reply *)item);
    }
    fedge_mailbox_free(replies);
}

void fedge_engine_thread_free(fedge_engine_thread *thread)
{
    if (!thread)
        return;
    assert(!thread->running);
    if (thread->requests) {
        drop_requests(thread);
        fedge_mailbox_free(thread->requests);
    }
    drop_replies(thread->made);
    drop_replies(thread->waiting);
    pthread_cond_destroy(&thread->answered);
    pthread_cond_destroy(&thread->changed);
    pthread_mutex_destroy(&thread->mutex);
    free(thread);
}

fedge_mailbox *fedge_engine_thread_replies(fedge_engine_thread *thread)
{
    return thread->made;
}

void fedge_engine_thread_deliver_to(fedge_engine_thread *thread, fedge_deliver_fn deliver,
                                    void *user)
{
    assert(!thread->engine && !thread->forward);
    thread->deliver = deliver;
    thread->deliver_user = user;
}

void fedge_engine_thread_stand_in(fedge_engine_thread *thread, fedge_forward_fn forward, void *user)
{
    assert(!thread->engine && !thread->forward && forward);
    thread->forward = forward;
    thread->forward_user = user;
    thread->status = (fedge_run_status){
        .state = "waiting for rank 0", .healthy = true, .accuracy = NAN, .loss = NAN};
}

void fedge_engine_thread_set_status(fedge_engine_thread *thread, const fedge_run_status *status)
{
    assert(thread->forward);
    pthread_mutex_lock(&thread->mutex);
    thread->status = *status;
    pthread_mutex_unlock(&thread->mutex);
}

void fedge_engine_thread_end(fedge_engine_thread *thread, const fedge_error *failure)
{
    assert(thread->forward);
    pthread_mutex_lock(&thread->mutex);
    thread->done = true;
    thread->failure = *failure;
    pthread_mutex_unlock(&thread->mutex);
}

fedge_traffic *fedge_engine_thread_traffic(fedge_engine_thread *thread)
{
    return &thread->traffic;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Publishes that the engine is done. All its replies have been delivered before. */
static void publish_done(fedge_engine_thread *self)
{
    fedge_error failure = self->lost;
    const bool done = failure.status != FEDGE_OK || fedge_engine_done(self->engine, &failure);
    pthread_mutex_lock(&self->mutex);
    self->done = done;
    self->failure = failure;
    pthread_mutex_unlock(&self->mutex);
}

/* Bytes that a request keeps until it is handled. */
static uint64_t size_of(const fedge_request *request)
{
    return sizeof(*request) + request->meta_size + request->payload_size;
}

static void handle_requests(fedge_engine_thread *self)
{
    fedge_mailbox_item *item = fedge_mailbox_take(self->requests);
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        fedge_request *request = (fedge_request *)item;
        /* The request is freed when it has been handled. */
        const uint64_t size = size_of(request);
        fedge_engine_handle(self->engine, request, fedge_os_monotonic_ms());
        atomic_fetch_sub(&self->queued_bytes, size);
    }
    /* Peers resume at half; else they would be paused and resumed for each request. */
    if (atomic_load(&self->queued_bytes) <= FEDGE_ENGINE_INBOX_BYTES / 2 &&
        atomic_exchange(&self->was_full, false))
        fedge_engine_resume_all(self->engine);
}

/* Answers the threads that have asked for the status by now. */
static void answer_status(fedge_engine_thread *self)
{
    pthread_mutex_lock(&self->mutex);
    const uint64_t asked = self->num_status_requests;
    const bool wanted = asked > self->num_status_answers;
    pthread_mutex_unlock(&self->mutex);
    if (wanted) {
        /* Outside the lock: posting threads must not wait for it. */
        fedge_run_status status;
        fedge_engine_get_status(self->engine, &status);
        pthread_mutex_lock(&self->mutex);
        self->status = status;
        self->num_status_answers = asked;
        pthread_cond_broadcast(&self->answered);
        pthread_mutex_unlock(&self->mutex);
    }
}

/* Waits for work or the next tick. False: the thread must end. */
static bool wait_for_work(fedge_engine_thread *self, uint64_t next_tick_ms)
{
    const uint64_t now_ms = fedge_os_monotonic_ms();
    pthread_mutex_lock(&self->mutex);
    if (!self->awake && !self->stopping && now_ms < next_tick_ms)
        fedge_condition_wait_us(&self->changed, &self->mutex, 1000 * (next_tick_ms - now_ms));
    const bool goes_on = !self->stopping;
    /* What comes from here on ends the next wait; what came before is handled after this one. */
    self->awake = false;
    pthread_mutex_unlock(&self->mutex);
    return goes_on;
}

static void *run(void *arg)
{
    fedge_engine_thread *self = arg;
    uint64_t next_tick_ms = 0;
    fedge_os_name_thread("engine");
    fedge_engine_hand_over(self->engine);
    while (wait_for_work(self, next_tick_ms)) {
        handle_requests(self);
        fedge_engine_handle_completions(self->engine, fedge_os_monotonic_ms());
        const uint64_t now_ms = fedge_os_monotonic_ms();
        if (now_ms >= next_tick_ms) {
            fedge_engine_tick(self->engine, now_ms);
            next_tick_ms = now_ms + FEDGE_ENGINE_TICK_MS;
        }
        publish_done(self);
        answer_status(self);
    }
    pthread_mutex_lock(&self->mutex);
    self->ended = true;
    pthread_cond_broadcast(&self->answered);
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

fedge_status fedge_engine_thread_start(fedge_engine_thread *thread, fedge_engine *engine,
                                       fedge_error *err)
{
    assert(!thread->engine && !thread->forward);
    thread->engine = engine;
    const int failed = fedge_thread_create(&thread->thread, NULL, run, thread);
    if (failed)
        return fedge_fail_errno(err, failed, "cannot start the engine's thread");
    thread->running = true;
    return FEDGE_OK;
}

void fedge_engine_thread_stop(fedge_engine_thread *thread)
{
    if (!thread || !thread->running)
        return;
    pthread_mutex_lock(&thread->mutex);
    thread->stopping = true;
    pthread_cond_signal(&thread->changed);
    pthread_mutex_unlock(&thread->mutex);
    pthread_join(thread->thread, NULL);
    thread->running = false;
    fedge_engine_hand_over(thread->engine);
}

/* ---- from other threads ---------------------------------------------------------------------- */

void fedge_engine_thread_wake(void *thread)
{
    fedge_engine_thread *self = thread;
    pthread_mutex_lock(&self->mutex);
    self->awake = true;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

bool fedge_engine_thread_post(fedge_engine_thread *thread, fedge_request *request)
{
    if (thread->forward)
        return thread->forward(thread->forward_user, request);
    const uint64_t size = size_of(request);
    const bool full =
        atomic_fetch_add(&thread->queued_bytes, size) + size > FEDGE_ENGINE_INBOX_BYTES;
    if (full) { /* set before the post, since the thread reads it after the requests */
        atomic_store(&thread->was_full, true);
    }
    fedge_mailbox_post(thread->requests, &request->item);
    return !full;
}

fedge_reply *fedge_engine_thread_take(fedge_engine_thread *thread)
{
    return (fedge_reply *)fedge_mailbox_take(thread->waiting);
}

void fedge_engine_thread_status(fedge_engine_thread *thread, fedge_run_status *status)
{
    assert(thread->engine || thread->forward);
    pthread_mutex_lock(&thread->mutex);
    const uint64_t mine = ++thread->num_status_requests;
    thread->awake = true;
    pthread_cond_signal(&thread->changed);
    while (thread->num_status_answers < mine && !thread->ended && !thread->forward)
        pthread_cond_wait(&thread->answered, &thread->mutex);
    /* After the thread has ended nothing else changes the engine. */
    if (thread->ended)
        fedge_engine_get_status(thread->engine, status);
    else
        *status = thread->status;
    pthread_mutex_unlock(&thread->mutex);
}

bool fedge_engine_thread_done(fedge_engine_thread *thread, fedge_error *failure)
{
    pthread_mutex_lock(&thread->mutex);
    const bool done = thread->done;
    *failure = thread->failure;
    pthread_mutex_unlock(&thread->mutex);
    return done;
}

static bool post(void *run, fedge_request *request)
{
    return fedge_engine_thread_post(run, request);
}

static void get_status(void *run, fedge_run_status *status)
{
    fedge_engine_thread_status(run, status);
}

fedge_run_link fedge_engine_thread_link(fedge_engine_thread *thread)
{
    return (fedge_run_link){.run = thread,
                            .post = post,
                            .status = get_status,
                            .traffic = fedge_engine_thread_traffic(thread)};
}
