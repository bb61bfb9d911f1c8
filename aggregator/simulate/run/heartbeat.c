#include "aggregator/simulate/run/heartbeat.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "aggregator/threads/thread.h"
#include "aggregator/threads/waiting.h"
#include "edge/core/os.h"

#define NAP_US 50000u
#define LAST_NAP_US 1000u /* others wait for the end */

static const uint8_t ALIVE = 1, LAST = 2;

/* Messages being sent to another rank; NULL: none. */
typedef struct peer {
    void *alive, *last;
    bool sent_last; /* [last] was begun */
} peer;

struct fedge_heartbeat {
    fedge_collective collective;
    fedge_ranks_watch watch;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards [changed] and [ends] */
    pthread_cond_t changed;
    bool ends;

    /* Used by the thread only. */
    peer *peers;   /* (num_ranks): rank 0 has all others, and these have rank 0 */
    void *reading; /* into word; NULL: nothing */
    uint8_t word;
    uint32_t from;
    uint32_t num_ended;
    uint64_t next_ms; /* time of the next heartbeat */
};

static bool is_peer(const fedge_heartbeat *self, uint32_t rank)
{
    return rank != self->collective.rank && (rank == 0 || self->collective.rank == 0);
}

static bool is_sent(const fedge_heartbeat *self, void **sending)
{
    if (*sending && fedge_collective_is_done(&self->collective, *sending))
        *sending = NULL;
    return !*sending;
}

static void send_heartbeats(fedge_heartbeat *self, uint64_t now_ms)
{
    if (now_ms < self->next_ms)
        return;
    self->next_ms = now_ms + FEDGE_HEARTBEAT_EVERY_MS;
    for (uint32_t rank = 0; rank < self->collective.num_ranks; rank++) {
        peer *to = &self->peers[rank];
        /* One that cannot be sent for lack of memory is skipped; the next comes in time. */
        if (is_peer(self, rank) && is_sent(self, &to->alive))
            to->alive = fedge_collective_begin_send(&self->collective, &ALIVE, sizeof(ALIVE), rank);
    }
}

/* Sends the last message; true once all peers have it. */
static bool send_last(fedge_heartbeat *self)
{
    bool delivered = true;
    for (uint32_t rank = 0; rank < self->collective.num_ranks; rank++) {
        peer *to = &self->peers[rank];
        if (!is_peer(self, rank))
            continue;
        if (!to->sent_last) {
            to->last = fedge_collective_begin_send(&self->collective, &LAST, sizeof(LAST), rank);
            to->sent_last = to->last != NULL;
        }
        delivered = is_sent(self, &to->alive) && delivered;
        delivered = is_sent(self, &to->last) && to->sent_last && delivered;
    }
    return delivered;
}

static bool receive(fedge_heartbeat *self)
{
    size_t size = 0;
    if (!self->reading && fedge_collective_probe(&self->collective, &self->from, &size)) {
        self->reading = fedge_collective_begin_receive(&self->collective, &self->word,
                                                       sizeof(self->word), self->from);
    }
    if (!self->reading || !fedge_collective_is_done(&self->collective, self->reading))
        return false;
    self->reading = NULL;
    if (self->word == LAST) {
        self->num_ended++;
        fedge_ranks_watch_forget(&self->watch, self->from);
    } else {
        fedge_ranks_watch_heard(&self->watch, self->from);
    }
    return true;
}

static bool nap(fedge_heartbeat *self, bool ending)
{
    pthread_mutex_lock(&self->mutex);
    if (ending || !self->ends)
        fedge_condition_wait_us(&self->changed, &self->mutex, ending ? LAST_NAP_US : NAP_US);
    ending = self->ends;
    pthread_mutex_unlock(&self->mutex);
    return ending;
}

static void *run(void *arg)
{
    fedge_heartbeat *self = arg;
    const uint32_t others = self->collective.rank == 0 ? self->collective.num_ranks - 1 : 1;
    bool ending = false;
    fedge_os_name_thread("heartbeat");
    for (;;) {
        if (!ending)
            send_heartbeats(self, fedge_os_monotonic_ms());
        while (receive(self)) {
        }
        if (ending && send_last(self) && self->num_ended == others)
            return NULL;
        ending = nap(self, ending);
    }
}

static fedge_status start(fedge_heartbeat *self, fedge_ranks_stuck_fn stuck, void *user,
                          fedge_error *err)
{
    self->peers = calloc(self->collective.num_ranks, sizeof(*self->peers));
    if (!self->peers)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for heartbeats between ranks");
    FEDGE_TRY(fedge_ranks_watch_init(&self->watch, fedge_ranks_silence_ms(0), stuck, user, err));
    for (uint32_t rank = 0; rank < self->collective.num_ranks; rank++) {
        if (is_peer(self, rank))
            fedge_ranks_watch_heard(&self->watch, rank);
    }
    const int failed = fedge_thread_create(&self->thread, NULL, run, self);
    return failed
               ? fedge_fail_errno(err, failed, "cannot start a thread for heartbeats between ranks")
               : FEDGE_OK;
}

static void free_heartbeat(fedge_heartbeat *self)
{
    fedge_ranks_watch_fini(&self->watch);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->mutex);
    free(self->peers);
    free(self);
}

fedge_status fedge_heartbeat_new(const fedge_collective *collective, fedge_ranks_stuck_fn stuck,
                                 void *user, fedge_heartbeat **heartbeat, fedge_error *err)
{
    *heartbeat = NULL;
    if (fedge_collective_is_alone(collective))
        return FEDGE_OK;
    fedge_heartbeat *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for heartbeats between ranks");
    fedge_condition_init(&fresh->changed);
    pthread_mutex_init(&fresh->mutex, NULL);
    fedge_status status;
    FEDGE_TRY_OR(fedge_collective_split(collective, 0, &fresh->collective, err), failed);
    FEDGE_TRY_OR(start(fresh, stuck, user, err), failed);
    *heartbeat = fresh;
    return FEDGE_OK;
failed:
    free_heartbeat(fresh);
    return status;
}

void fedge_heartbeat_end(fedge_heartbeat *heartbeat)
{
    if (!heartbeat)
        return;
    pthread_mutex_lock(&heartbeat->mutex);
    heartbeat->ends = true;
    pthread_cond_signal(&heartbeat->changed);
    pthread_mutex_unlock(&heartbeat->mutex);
    (void)pthread_join(heartbeat->thread, NULL);
    fedge_collective_close(&heartbeat->collective);
    free_heartbeat(heartbeat);
}
