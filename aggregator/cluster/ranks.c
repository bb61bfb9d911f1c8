#define _POSIX_C_SOURCE 200809L /* kill */

#include "aggregator/cluster/ranks.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/cluster/blobs.h"
#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/exchange/exchange.h"
#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/run/exit_codes.h"
#include "aggregator/threads/ranks_watch.h"
#include "aggregator/threads/thread.h"
#include "aggregator/threads/waiting.h"
#include "edge/core/os.h"

#define FIRST_NAP_US 20u
#define STARTING "the start of all ranks"
#define JOINING "joining sums" /* it also names a step on shards of the sums */
#define MOST_AT_ONCE 64        /* messages read before others are sent */

static_assert(FEDGE_RANKS_MAX <= FEDGE_RANKS_WATCH_MAX, "all are watched");

struct fedge_ranks {
    fedge_ranks_config config;
    fedge_mailbox *outbox;   /* mailbox of fedge_rank_message */
    _Atomic uint64_t queued; /* bytes of requests in the outbox or being sent */
    atomic_bool was_full;    /* a peer was paused */
    atomic_bool held;        /* rank 0: the engine's inbox is full; no message is read */
    atomic_bool ending;      /* the service has ended on this rank */
    atomic_bool
        reload_received; /* RELOAD came from rank 0: the signal that follows is not passed on */
    pthread_t thread;
    bool running;

    pthread_mutex_t mutex; /* guards the members down to join_done */
    pthread_cond_t changed;
    bool awake;
    fedge_accumulator *joining; /* sums to join; NULL: none */
    fedge_error join_result;
    bool over; /* the thread has ended, or will end without joining */
    pthread_cond_t join_done;

    /* Used by the thread alone. */
    fedge_rank_message *sending, **sending_tail; /* messages that are not sent yet */
    fedge_rank_blobs blobs;
    fedge_ranks_watch watch;
    uint8_t *in;   /* (FEDGE_RANK_MESSAGE_MAX_SIZE) */
    void *reading; /* the receive in progress; NULL: none */
    size_t in_size;
    uint32_t in_from;
    uint64_t reported_up, reported_down; /* traffic already reported in messages */
    uint64_t status_ms;                  /* due time of the next STATUS or ALIVE message */
    uint32_t num_last;                   /* ranks that have sent LAST */
    uint32_t nap_us;
    bool last_sent;
};

static bool leads(const fedge_ranks *self)
{
    return self->config.collective->rank == 0;
}

uint32_t fedge_ranks_first_tag(const fedge_collective *collective)
{
    return collective->rank * FEDGE_RANKS_TAGS;
}

/* A rank that cannot continue ends all of them: the next start continues from the journals. */
static void give_up(fedge_ranks *self, const fedge_error *err)
{
    const fedge_collective *all = self->config.collective;
    fedge_collective ending = *all;
    fedge_log_failure(self->config.log, FEDGE_LOG_ERROR, "rank-failed", err);
    fprintf(stderr, "fedge-aggregator: rank %u on %s: %s\n", (unsigned)all->rank, all->host,
            err->message);
    fedge_collective_abort(&ending, fedge_exit_code_of(err->status, FEDGE_EXIT_FAILURE));
}

static void wake(void *ranks)
{
    fedge_ranks *self = ranks;
    pthread_mutex_lock(&self->mutex);
    self->awake = true;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

static void post(fedge_ranks *self, fedge_rank_message *message)
{
    if (message) {
        fedge_mailbox_post(self->outbox, &message->item);
        return;
    }
    fedge_error err;
    (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory for a message to another rank");
    give_up(self, &err);
}

static void post_to_all(fedge_ranks *self, fedge_rank_message_kind kind, const void *body,
                        size_t size)
{
    for (uint32_t to = 1; to < self->config.collective->num_ranks; to++)
        post(self, fedge_rank_message_new(kind, body, size, to));
}

/* ---- replies and requests -------------------------------------------------------------------- */

/* Rank 0, on the engine's thread: as fedge_deliver_fn. */
static fedge_status deliver(void *ranks, fedge_reply *reply, fedge_error *err)
{
    fedge_ranks *self = ranks;
    /* Replies to all and replies to one stay in order: they share the mailbox. */
    if (reply->conn_id == FEDGE_CONN_ALL) {
        /* The engine has room again, so messages are read again. */
        if (reply->type == FEDGE_REPLY_RESUME)
            atomic_store(&self->held, false);
        for (uint32_t to = 1; to < self->config.collective->num_ranks; to++)
            post(self, fedge_rank_message_of_reply(reply, to));
        return fedge_transport_deliver(self->config.transport, reply, err);
    }
    const uint32_t to = fedge_slots_tag(reply->conn_id) / FEDGE_RANKS_TAGS;
    if (to == 0)
        return fedge_transport_deliver(self->config.transport, reply, err);
    post(self, fedge_rank_message_of_reply(reply, to));
    fedge_reply_free(reply);
    return FEDGE_OK;
}

/* Any other rank, on a thread of the network: as fedge_engine_thread_post. */
static bool forward(void *ranks, fedge_request *request)
{
    fedge_ranks *self = ranks;
    /* Bytes of an upload stay on the rank that their client is connected to. */
    if (self->config.worker && request->type == FEDGE_REQUEST_MESSAGE &&
        request->message.type == FEDGE_MESSAGE_PART)
        return fedge_rank_worker_post(self->config.worker, request);
    fedge_rank_message *message = fedge_rank_message_of_request(request);
    const uint64_t size = message ? message->size : 0;
    fedge_request_free(request);
    const bool full = atomic_fetch_add(&self->queued, size) + size > FEDGE_RANKS_OUTBOX_BYTES;
    if (full) { /* set before the post, as in engine_thread.c */
        atomic_store(&self->was_full, true);
    }
    post(self, message);
    return !full;
}

void fedge_ranks_send_order(fedge_ranks *ranks, uint32_t to, const fedge_order *order,
                            const void *bytes)
{
    post(ranks, fedge_rank_message_with(FEDGE_RANK_MESSAGE_ORDER, order, sizeof(*order), bytes,
                                        order->size, to));
}

/* Callbacks of fedge_rank_worker_callbacks. */
static void send_report(void *ranks, const fedge_report *report, const void *bytes)
{
    post(ranks, fedge_rank_message_with(FEDGE_RANK_MESSAGE_REPORT, report, sizeof(*report), bytes,
                                        report->size, 0));
}

static void fail_worker(void *ranks, const fedge_error *err)
{
    give_up(ranks, err);
}

/* ---- sums ------------------------------------------------------------------------------------ */

fedge_status fedge_ranks_join_sums(fedge_ranks *ranks, fedge_accumulator *accumulator,
                                   fedge_error *err)
{
    pthread_mutex_lock(&ranks->mutex);
    /* A thread that has ended does not answer. */
    if (ranks->over) {
        pthread_mutex_unlock(&ranks->mutex);
        return fedge_fail(err, FEDGE_CLOSED, "the ranks are ending");
    }
    ranks->joining = accumulator;
    ranks->awake = true;
    pthread_cond_signal(&ranks->changed);
    /* Only the ranks' thread calls MPI; the caller waits for it. */
    while (ranks->joining)
        pthread_cond_wait(&ranks->join_done, &ranks->mutex);
    const fedge_error how = ranks->join_result;
    pthread_mutex_unlock(&ranks->mutex);
    return how.status == FEDGE_OK ? FEDGE_OK : fedge_fail(err, how.status, "%s", how.message);
}

static void answer_join(fedge_ranks *self, const fedge_error *how, bool over)
{
    pthread_mutex_lock(&self->mutex);
    self->joining = NULL;
    self->join_result = *how;
    self->over = over;
    pthread_cond_broadcast(&self->join_done);
    pthread_mutex_unlock(&self->mutex);
}

static fedge_accumulator *to_join(fedge_ranks *self)
{
    pthread_mutex_lock(&self->mutex);
    fedge_accumulator *accumulator = self->joining;
    pthread_mutex_unlock(&self->mutex);
    return accumulator;
}

static void follow_sums(fedge_ranks *self)
{
    fedge_error err;
    fedge_ranks_watch_begin(&self->watch, JOINING);
    if (fedge_distributed_follow(fedge_rank_worker_accumulator(self->config.worker), FEDGE_OK,
                                 &err) != FEDGE_OK)
        give_up(self, &err);
    fedge_ranks_watch_end(&self->watch);
}

/* ---- blobs ----------------------------------------------------------------------------------- */

static fedge_status receive_blob(fedge_ranks *self, const uint8_t *body, size_t size,
                                 fedge_error *err)
{
    fedge_rank_message_blob announced;
    if (size != sizeof(announced))
        return fedge_fail(err, FEDGE_CORRUPT, "a message between ranks names no blob");
    memcpy(&announced, body, sizeof(announced));
    fedge_ranks_watch_begin(&self->watch, "a model's way to all ranks");
    const fedge_status status = fedge_rank_blobs_receive(&self->blobs, &announced, err);
    fedge_ranks_watch_end(&self->watch);
    return status;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void send_message(fedge_ranks *self, fedge_rank_message *message)
{
    const fedge_collective *all = self->config.collective;
    const fedge_traffic *traffic = fedge_engine_thread_traffic(self->config.engine);
    fedge_rank_message_head *head = (fedge_rank_message_head *)(void *)message->bytes;
    /* The traffic since the last message: rank 0 adds up that of all ranks. */
    const uint64_t up = atomic_load(&traffic->up), down = atomic_load(&traffic->down);
    head->up = up - self->reported_up;
    head->down = down - self->reported_down;
    self->reported_up = up;
    self->reported_down = down;
    message->sending = fedge_collective_begin_send(all, message->bytes, message->size, message->to);
    if (!message->sending) {
        fedge_error err;
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory to send a message to another rank");
        give_up(self, &err);
    }
    message->next = NULL;
    *self->sending_tail = message;
    self->sending_tail = &message->next;
}

/* Rank 0: joins the sums of all ranks, if the round finalizer waits for that. */
static bool lead_sums(fedge_ranks *self)
{
    fedge_accumulator *accumulator = to_join(self);
    fedge_error err = {.status = FEDGE_OK};
    if (!accumulator)
        return false;
    /* A message first: the others must enter the collective call before this rank waits in it. */
    for (uint32_t to = 1; to < self->config.collective->num_ranks; to++) {
        fedge_rank_message *announcement =
            fedge_rank_message_new(FEDGE_RANK_MESSAGE_SUMS, NULL, 0, to);
        if (announcement)
            send_message(self, announcement);
        else
            post(self, NULL);
    }
    fedge_ranks_watch_begin(&self->watch, JOINING);
    err.status = fedge_distributed_lead(accumulator, &err);
    fedge_ranks_watch_end(&self->watch);
    answer_join(self, &err, false);
    return true;
}

/* Rank 0: a reply's blob is on all ranks before the reply, and dropped with its withdrawal. */
static void prepare_blob(fedge_ranks *self, fedge_rank_message *message)
{
    /* A rank that has a blob's bytes finds it by hash. */
    const fedge_rank_message_head *head =
        (const fedge_rank_message_head *)(const void *)message->bytes;
    const fedge_reply *reply =
        (const fedge_reply *)(const void *)(message->bytes + sizeof(fedge_rank_message_head));
    if (head->kind != FEDGE_RANK_MESSAGE_REPLY || !message->blob)
        return;
    if (reply->type == FEDGE_REPLY_WITHDRAW) {
        fedge_rank_blobs_drop(&self->blobs, message->blob->hash);
    } else if (!fedge_rank_blobs_find(&self->blobs, message->blob->hash)) {
        for (uint32_t to = 1; to < self->config.collective->num_ranks; to++) {
            fedge_rank_message *announcement = fedge_rank_message_new(
                FEDGE_RANK_MESSAGE_BLOB, &head->blob, sizeof(head->blob), to);
            if (announcement)
                send_message(self, announcement);
            else
                post(self, NULL);
        }
        fedge_error err;
        fedge_ranks_watch_begin(&self->watch, "a model's way to all ranks");
        if (fedge_rank_blobs_broadcast(&self->blobs, message->blob, &err) != FEDGE_OK)
            give_up(self, &err);
        fedge_ranks_watch_end(&self->watch);
    }
    fedge_blob_release(message->blob);
    message->blob = NULL;
}

static bool send_new(fedge_ranks *self)
{
    fedge_mailbox_item *item = fedge_mailbox_take(self->outbox);
    const bool busy = item != NULL;
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        fedge_rank_message *message = (fedge_rank_message *)item;
        prepare_blob(self, message);
        send_message(self, message);
    }
    return busy;
}

/* Reads from paused peers again. */
static void resume_all(fedge_ranks *self)
{
    fedge_error err;
    fedge_reply *reply = calloc(1, sizeof(*reply));
    fedge_status status = FEDGE_NO_MEMORY;
    if (reply) {
        reply->type = FEDGE_REPLY_RESUME;
        status = fedge_transport_deliver(self->config.transport, reply, &err);
    } else {
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory to go on with connections");
    }
    if (status != FEDGE_OK)
        give_up(self, &err);
}

/* Frees the messages that have been sent. */
static bool forget_sent(fedge_ranks *self)
{
    bool busy = false;
    fedge_rank_message **at = &self->sending;
    while (*at) {
        fedge_rank_message *message = *at;
        fedge_rank_message **next = &message->next;
        /* MPI reads from the message until then. */
        if (!fedge_collective_is_done(self->config.collective, message->sending)) {
            at = next;
            continue;
        }
        *at = *next;
        if (self->sending_tail == next)
            self->sending_tail = at;
        if (((fedge_rank_message_head *)(void *)message->bytes)->kind == FEDGE_RANK_MESSAGE_REQUEST)
            atomic_fetch_sub(&self->queued, message->size);
        fedge_rank_message_free(message);
        busy = true;
    }
    /* Peers resume at half; else they would be paused and resumed for each message. */
    if (busy && !atomic_load(&self->ending) &&
        atomic_load(&self->queued) <= FEDGE_RANKS_OUTBOX_BYTES / 2 &&
        atomic_exchange(&self->was_full, false))
        resume_all(self);
    return busy;
}

/* ---- reading --------------------------------------------------------------------------------- */

static fedge_status take_request(fedge_ranks *self, const fedge_rank_message_head *head,
                                 const uint8_t *body, fedge_error *err)
{
    fedge_request *request = NULL;
    FEDGE_TRY(fedge_rank_message_request(head, body, &request, err));
    /* The engine is ending: nothing would answer this request. */
    if (atomic_load(&self->ending)) {
        fedge_request_free(request);
        return FEDGE_OK;
    }
    /* Set before the post: the engine may resume before the post returns. */
    atomic_store(&self->held, true);
    if (fedge_engine_thread_post(self->config.engine, request))
        atomic_store(&self->held, false);
    return FEDGE_OK;
}

/* A report of a rank worker becomes a request to the engine. */
static fedge_status take_report(fedge_ranks *self, const uint8_t *body, size_t size,
                                fedge_error *err)
{
    fedge_request *request = calloc(1, sizeof(*request));
    uint8_t *frame = malloc(size + 1);
    if (!request || !frame || atomic_load(&self->ending)) {
        const bool no_memory = !request || !frame;
        free(request);
        free(frame);
        return no_memory ? fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a report of a rank")
                         : FEDGE_OK;
    }
    /* A copy: the next message is received into the same buffer. */
    memcpy(frame, body, size);
    request->type = FEDGE_REQUEST_REPORT;
    request->frame = frame;
    request->payload = frame;
    request->payload_size = (uint32_t)size;
    atomic_store(&self->held, true);
    if (fedge_engine_thread_post(self->config.engine, request))
        atomic_store(&self->held, false);
    return FEDGE_OK;
}

static fedge_status take_order(fedge_ranks *self, const uint8_t *body, size_t size,
                               fedge_error *err)
{
    fedge_order order;
    if (size < sizeof(order) || !self->config.worker)
        return fedge_fail(err, FEDGE_CORRUPT, "a message between ranks has no order");
    memcpy(&order, body, sizeof(order));
    if (order.size != size - sizeof(order))
        return fedge_fail(err, FEDGE_CORRUPT, "an order of rank 0 is not whole");
    return fedge_rank_worker_order(self->config.worker, &order, body + sizeof(order), err);
}

static fedge_status take_reply(fedge_ranks *self, const fedge_rank_message_head *head,
                               const uint8_t *body, fedge_error *err)
{
    fedge_reply *reply = NULL;
    FEDGE_TRY(fedge_rank_message_reply(head, body, &reply, err));
    /* The pointer in it is another process's: find the blob by its hash. */
    if (head->blob.hash[0]) {
        fedge_blob *blob = fedge_rank_blobs_find(&self->blobs, head->blob.hash);
        if (!blob) { /* the blob was withdrawn, and this rank never requested it */
            fedge_reply_free(reply);
            return FEDGE_OK;
        }
        reply->blob = fedge_blob_retain(blob);
        if (reply->type == FEDGE_REPLY_WITHDRAW)
            fedge_rank_blobs_drop(&self->blobs, head->blob.hash);
    }
    return fedge_transport_deliver(self->config.transport, reply, err);
}

static fedge_status take_status(fedge_ranks *self, const uint8_t *body, size_t size,
                                fedge_error *err)
{
    fedge_run_status status;
    if (size != sizeof(status))
        return fedge_fail(err, FEDGE_CORRUPT, "a message between ranks has no status");
    memcpy(&status, body, sizeof(status));
    fedge_engine_thread_set_status(self->config.engine, &status);
    return FEDGE_OK;
}

static fedge_status take_end(fedge_ranks *self, const uint8_t *body, size_t size, fedge_error *err)
{
    fedge_error how;
    if (size != sizeof(how))
        return fedge_fail(err, FEDGE_CORRUPT, "a message between ranks has no end");
    memcpy(&how, body, sizeof(how));
    fedge_engine_thread_end(self->config.engine, &how);
    return FEDGE_OK;
}

static fedge_status take(fedge_ranks *self, size_t size, fedge_error *err)
{
    fedge_rank_message_head head;
    const uint8_t *body = NULL;
    FEDGE_TRY(fedge_rank_message_open(self->in, size, &head, &body, err));
    fedge_ranks_watch_heard(&self->watch, self->in_from);
    fedge_traffic *traffic = fedge_engine_thread_traffic(self->config.engine);
    if (leads(self)) {
        atomic_fetch_add(&traffic->up, head.up);
        atomic_fetch_add(&traffic->down, head.down);
    }
    switch ((fedge_rank_message_kind)head.kind) {
    case FEDGE_RANK_MESSAGE_REQUEST:
        return leads(self) ? take_request(self, &head, body, err) : FEDGE_OK;
    case FEDGE_RANK_MESSAGE_REPLY:
        return take_reply(self, &head, body, err);
    case FEDGE_RANK_MESSAGE_BLOB:
        return receive_blob(self, body, head.body_size, err);
    case FEDGE_RANK_MESSAGE_ORDER:
        return take_order(self, body, head.body_size, err);
    case FEDGE_RANK_MESSAGE_REPORT:
        return leads(self) ? take_report(self, body, head.body_size, err) : FEDGE_OK;
    case FEDGE_RANK_MESSAGE_SUMS:
        follow_sums(self);
        return FEDGE_OK;
    case FEDGE_RANK_MESSAGE_STATUS:
        return take_status(self, body, head.body_size, err);
    case FEDGE_RANK_MESSAGE_STOP: /* the signal counts as if it had come to this rank */
        if (!atomic_load(&self->ending))
            (void)kill(getpid(), SIGTERM);
        return FEDGE_OK;
    case FEDGE_RANK_MESSAGE_RELOAD:
        atomic_store(&self->reload_received, !leads(self));
        if (!atomic_load(&self->ending))
            (void)kill(getpid(), SIGHUP);
        return FEDGE_OK;
    case FEDGE_RANK_MESSAGE_END:
        return take_end(self, body, head.body_size, err);
    case FEDGE_RANK_MESSAGE_ALIVE:
        return FEDGE_OK;
    case FEDGE_RANK_MESSAGE_LAST:
        fedge_ranks_watch_forget(&self->watch, self->in_from);
        self->num_last++;
        return FEDGE_OK;
    }
    return fedge_fail(err, FEDGE_CORRUPT, "a message between ranks is of kind %u", head.kind);
}

static fedge_status receive_next(fedge_ranks *self, fedge_error *err)
{
    const fedge_collective *all = self->config.collective;
    if (self->in_size > FEDGE_RANK_MESSAGE_MAX_SIZE) {
        return fedge_fail(err, FEDGE_CORRUPT, "a message of rank %u has %zu bytes",
                          (unsigned)self->in_from, self->in_size);
    }
    self->reading = fedge_collective_begin_receive(all, self->in, self->in_size, self->in_from);
    return self->reading ? FEDGE_OK
                         : fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read a message");
}

/* Begins to receive the next message, if there is one. */
static fedge_status begin_to_read(fedge_ranks *self, fedge_error *err)
{
    const fedge_collective *all = self->config.collective;
    /* While the engine's inbox is full no message is read: MPI holds messages back on the sending
     * side. */
    if (atomic_load(&self->held))
        fedge_ranks_watch_pause(&self->watch);
    else if (!self->reading && fedge_collective_probe(all, &self->in_from, &self->in_size))
        return receive_next(self, err);
    return FEDGE_OK;
}

static fedge_status read_messages(fedge_ranks *self, int *count, fedge_error *err)
{
    FEDGE_TRY(begin_to_read(self, err));
    for (*count = 0; *count < MOST_AT_ONCE && self->reading &&
                     fedge_collective_is_done(self->config.collective, self->reading);
         ++*count) {
        self->reading = NULL;
        FEDGE_TRY(take(self, self->in_size, err));
        FEDGE_TRY(begin_to_read(self, err));
    }
    return FEDGE_OK;
}

static bool read_new(fedge_ranks *self)
{
    int count = 0;
    fedge_error err;
    if (read_messages(self, &count, &err) != FEDGE_OK)
        give_up(self, &err);
    return count > 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void send_status(fedge_ranks *self)
{
    const uint64_t now_ms = fedge_os_monotonic_ms();
    if (now_ms < self->status_ms || atomic_load(&self->ending))
        return;
    self->status_ms = now_ms + FEDGE_RANKS_STATUS_MS;
    if (!leads(self)) { /* rank 0 would end all ranks if this one were silent */
        post(self, fedge_rank_message_new(FEDGE_RANK_MESSAGE_ALIVE, NULL, 0, 0));
        return;
    }
    /* Other ranks answer requests for metrics from it. */
    fedge_run_status status;
    fedge_engine_thread_status(self->config.engine, &status);
    post_to_all(self, FEDGE_RANK_MESSAGE_STATUS, &status, sizeof(status));
}

static void nap(fedge_ranks *self)
{
    pthread_mutex_lock(&self->mutex);
    if (!self->awake)
        fedge_condition_wait_us(&self->changed, &self->mutex, self->nap_us);
    self->awake = false;
    pthread_mutex_unlock(&self->mutex);
}

/* Both sides send LAST after all other messages, and read until they have received it. */
static bool is_over(fedge_ranks *self)
{
    const uint32_t others = leads(self) ? self->config.collective->num_ranks - 1 : 1;
    if (!atomic_load(&self->ending))
        return false;
    if (!self->last_sent) {
        /* No thread may wait for sums that will not be joined. */
        self->last_sent = true;
        const fedge_error ending = {.status = FEDGE_CLOSED, .message = "the ranks are ending"};
        answer_join(self, &ending, true);
        if (leads(self))
            post_to_all(self, FEDGE_RANK_MESSAGE_LAST, NULL, 0);
        else
            post(self, fedge_rank_message_new(FEDGE_RANK_MESSAGE_LAST, NULL, 0, 0));
        return false;
    }
    return !self->sending && !self->reading && self->num_last == others;
}

static void *run(void *arg)
{
    fedge_ranks *self = arg;
    fedge_os_name_thread("ranks");
    self->nap_us = FIRST_NAP_US;
    for (;;) {
        /* The order matters: messages sent before a join are on their way when a rank waits in the
         * join. */
        send_status(self);
        bool busy = send_new(self);
        busy = lead_sums(self) || busy;
        busy = forget_sent(self) || busy;
        busy = read_new(self) || busy;
        if (!busy && is_over(self))
            return NULL;
        /* Under load it does not sleep between messages. */
        if (busy) {
            self->nap_us = FIRST_NAP_US;
            continue;
        }
        nap(self);
        self->nap_us =
            2 * self->nap_us < FEDGE_RANKS_MAX_NAP_US ? 2 * self->nap_us : FEDGE_RANKS_MAX_NAP_US;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_stuck(void *ranks, const fedge_error *err)
{
    give_up(ranks, err);
}

fedge_status fedge_ranks_new(const fedge_ranks_config *config, fedge_ranks **ranks,
                             fedge_error *err)
{
    assert(config->collective->num_ranks <= FEDGE_RANKS_MAX);
    *ranks = NULL;
    fedge_ranks *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what ranks tell each other");
    fresh->config = *config;
    fresh->sending_tail = &fresh->sending;
    fedge_condition_init(&fresh->changed);
    pthread_cond_init(&fresh->join_done, NULL);
    pthread_mutex_init(&fresh->mutex, NULL);
    fresh->in = malloc(FEDGE_RANK_MESSAGE_MAX_SIZE);
    fedge_status status;
    FEDGE_TRY_OR(fedge_mailbox_new(&fresh->outbox, wake, fresh, err), failed);
    FEDGE_TRY_OR(fedge_rank_blobs_init(&fresh->blobs, config->collective, config->log, err),
                 failed);
    if (!fresh->in) {
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for what ranks tell each other");
        goto failed;
    }
    FEDGE_TRY_OR(fedge_ranks_watch_init(&fresh->watch, fedge_ranks_silence_ms(config->sum_bytes),
                                        on_stuck, fresh, err),
                 failed);
    /* From here on every step is quick, and the ranks wait for each other. */
    fedge_ranks_watch_begin(&fresh->watch, STARTING);
    if (leads(fresh))
        fedge_engine_thread_deliver_to(config->engine, deliver, fresh);
    else
        fedge_engine_thread_stand_in(config->engine, forward, fresh);
    if (config->worker) {
        const fedge_rank_worker_callbacks callbacks = {.deliver = fedge_transport_deliver,
                                                       .deliver_user = config->transport,
                                                       .report = send_report,
                                                       .fail = fail_worker,
                                                       .user = fresh};
        fedge_rank_worker_connect(config->worker, &callbacks);
    }
    *ranks = fresh;
    return FEDGE_OK;
failed:
    fedge_ranks_free(fresh);
    return status;
}

void fedge_ranks_free(fedge_ranks *ranks)
{
    if (!ranks)
        return;
    assert(!ranks->running);
    fedge_ranks_watch_fini(&ranks->watch);
    fedge_mailbox_item *item = ranks->outbox ? fedge_mailbox_take(ranks->outbox) : NULL;
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        fedge_rank_message_free((fedge_rank_message *)item);
    }
    fedge_mailbox_free(ranks->outbox);
    fedge_rank_blobs_fini(&ranks->blobs);
    free(ranks->in);
    pthread_cond_destroy(&ranks->changed);
    pthread_cond_destroy(&ranks->join_done);
    pthread_mutex_destroy(&ranks->mutex);
    free(ranks);
}

fedge_status fedge_ranks_start(fedge_ranks *ranks, fedge_error *err)
{
    for (uint32_t rank = 1; leads(ranks) && rank < ranks->config.collective->num_ranks; rank++)
        fedge_ranks_watch_heard(&ranks->watch, rank);
    if (!leads(ranks))
        fedge_ranks_watch_heard(&ranks->watch, 0);
    fedge_ranks_watch_end(&ranks->watch);
    const int failed = fedge_thread_create(&ranks->thread, NULL, run, ranks);
    if (failed)
        return fedge_fail_errno(err, failed, "cannot start the thread that speaks to other ranks");
    ranks->running = true;
    return FEDGE_OK;
}

void fedge_ranks_reload(fedge_ranks *ranks)
{
    if (!ranks || !ranks->running || atomic_exchange(&ranks->reload_received, false))
        return;
    if (leads(ranks))
        post_to_all(ranks, FEDGE_RANK_MESSAGE_RELOAD, NULL, 0);
    else
        post(ranks, fedge_rank_message_new(FEDGE_RANK_MESSAGE_RELOAD, NULL, 0, 0));
}

/* Sends the run's final status to the others, then END. */
static void send_end(fedge_ranks *self)
{
    fedge_run_status status;
    fedge_error how = {.status = FEDGE_OK};
    fedge_engine_thread_status(self->config.engine, &status);
    (void)fedge_engine_thread_done(self->config.engine, &how);
    post_to_all(self, FEDGE_RANK_MESSAGE_STATUS, &status, sizeof(status));
    post_to_all(self, FEDGE_RANK_MESSAGE_END, &how, sizeof(how));
}

void fedge_ranks_end(fedge_ranks *ranks, bool stopped)
{
    if (!ranks || !ranks->running)
        return;
    if (!leads(ranks)) {
        if (stopped)
            post(ranks, fedge_rank_message_new(FEDGE_RANK_MESSAGE_STOP, NULL, 0, 0));
    } else if (stopped) {
        post_to_all(ranks, FEDGE_RANK_MESSAGE_STOP, NULL, 0);
    } else {
        send_end(ranks);
    }
    /* A message held back may be the LAST that this rank waits for. */
    atomic_store(&ranks->held, false);
    atomic_store(&ranks->ending, true);
    wake(ranks);
    pthread_join(ranks->thread, NULL);
    fedge_ranks_watch_fini(&ranks->watch);
    ranks->running = false;
}
