/* Admission of connections that have not yet shown a certificate of a registered device, called
 * unauthenticated peers.
 *
 * Until the first bytes of a TLS handshake arrive, such a peer is a socket and a small record of
 * the accepting thread. Until its certificate is accepted, it counts against separate limits, which
 * cover all network threads together.
 */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "aggregator/net/transport_internal.h"
#include "edge/core/os.h"

#define LOOKS_AT_ONCE 64

static void log_refused(const fedge_transport *transport, const fedge_peer_address *from,
                        const char *reason, uint64_t now_ms)
{
    char address[FEDGE_ADDRESS_TEXT];
    fedge_peers_refused(transport->config.peers, fedge_peer_address_text(from, address), "", reason,
                        now_ms);
}

/* ---- their list ----------------------------------------------------------------------------- */

static fedge_unauthenticated *new_unauthenticated(fedge_transport *transport, int socket,
                                                  const fedge_peer_address *address,
                                                  uint64_t now_ms)
{
    fedge_unauthenticated *self = calloc(1, sizeof(*self));
    if (!self)
        return NULL;
    self->transport = transport;
    self->socket = socket;
    self->address = *address;
    self->accepted_ms = self->heard_ms = now_ms;
    self->before_hello = true;
    fedge_unauthenticated_list *list = &transport->unauthenticated;
    pthread_mutex_lock(&list->mutex);
    self->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = self;
    list->last = self;
    list->count++;
    pthread_mutex_unlock(&list->mutex);
    return self;
}

static bool arm(fedge_unauthenticated *self, int operation)
{
    /* One-shot: an incomplete header would trigger the event again and again. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = self};
    return epoll_ctl(self->transport->first_bytes_epoll, operation, self->socket, &event) == 0;
}

static void stop_waiting(const fedge_unauthenticated *self)
{
    (void)epoll_ctl(self->transport->first_bytes_epoll, EPOLL_CTL_DEL, self->socket, NULL);
}

static void close_before_hello(fedge_unauthenticated *self)
{
    stop_waiting(self);
    fedge_listener_close(self->socket);
    fedge_unauthenticated_end(self);
}

/* ---- the limits ------------------------------------------------------------------------------ */

static unsigned score_of(const fedge_unauthenticated *self, uint64_t now_ms)
{
    const fedge_eviction_facts facts = {.before_hello = self->before_hello,
                                        .queued = self->queued,
                                        .age_ms = now_ms - self->accepted_ms,
                                        .silent_ms =
                                            now_ms > self->heard_ms ? now_ms - self->heard_ms : 0};
    return fedge_eviction_score(&facts);
}

/* The oldest peer with the highest eviction score, or NULL if all scores are 0. With [from], only
 * peers of that party. */
static fedge_unauthenticated *find_evictable(const fedge_transport *transport,
                                             const fedge_peer_address *from, uint64_t now_ms)
{
    fedge_unauthenticated *best = NULL;
    unsigned highest = 0;
    /* The list begins with the oldest. */
    for (fedge_unauthenticated *peer = transport->unauthenticated.first;
         peer && highest < FEDGE_MAX_EVICTION_SCORE; peer = peer->next) {
        if (peer->evicted || (from && !fedge_peer_address_same_party(&peer->address, from)))
            continue;
        const unsigned score = score_of(peer, now_ms);
        if (score > highest) {
            highest = score;
            best = peer;
        }
    }
    return best;
}

/* Evicts a peer, of [from] if it is not NULL. False if no peer can be evicted. */
static bool evict(fedge_transport *transport, const fedge_peer_address *from, const char *reason,
                  uint64_t now_ms)
{
    pthread_mutex_lock(&transport->unauthenticated.mutex);
    fedge_unauthenticated *peer = find_evictable(transport, from, now_ms);
    const bool before_hello = peer && peer->before_hello;
    fedge_peer_address address = {0};
    if (peer) {
        peer->evicted = true; /* it must not be chosen twice */
        address = peer->address;
    }
    pthread_mutex_unlock(&transport->unauthenticated.mutex);
    if (!peer)
        return false;
    log_refused(transport, &address, reason, now_ms);
    /* A peer before its hello belongs to this thread. */
    if (before_hello) {
        close_before_hello(peer);
        return true;
    }
    /* Its thread finds the flag. */
    for (uint32_t i = 0; i < transport->config.num_threads; i++) {
        atomic_store(&transport->networks[i]->must_evict, true);
        fedge_network_wake(transport->networks[i]);
    }
    return true;
}

static uint32_t count_from(fedge_transport *transport, const fedge_peer_address *address)
{
    uint32_t count = 0;
    pthread_mutex_lock(&transport->unauthenticated.mutex);
    for (const fedge_unauthenticated *self = transport->unauthenticated.first; self;
         self = self->next)
        count += fedge_peer_address_same_party(&self->address, address);
    pthread_mutex_unlock(&transport->unauthenticated.mutex);
    return count;
}

/* Whether [address] may have one more connection; *reason otherwise. May evict a peer to make
 * space. */
static bool accepts(fedge_transport *transport, const fedge_peer_address *address, char *reason,
                    size_t reason_size, uint64_t now_ms)
{
    const fedge_transport_config *config = &transport->config;
    /* An address over its limit loses one of its peers. */
    if (count_from(transport, address) >= config->max_per_address) {
        snprintf(reason, reason_size,
                 "%u connections from this address have shown no certificate, the limit "
                 "(--max-per-address)",
                 config->max_per_address);
        return evict(transport, address, reason, now_ms);
    }
    if (fedge_admission_count(transport) >= config->max_unauthenticated) {
        snprintf(reason, reason_size,
                 "%u connections have shown no certificate, the limit (--max-unauthenticated)",
                 config->max_unauthenticated);
        return evict(transport, NULL, reason, now_ms);
    }
    return true;
}

/* ---- the first bytes ------------------------------------------------------------------------- */

static void refuse(fedge_unauthenticated *self, const char *reason, uint64_t now_ms)
{
    log_refused(self->transport, &self->address, reason, now_ms);
    close_before_hello(self);
}

/* Moves the peer to the thread with the fewest connections. */
static void pass_to_network(fedge_unauthenticated *self)
{
    fedge_transport *transport = self->transport;
    fedge_network *fewest = transport->networks[0];
    for (uint32_t i = 1; i < transport->config.num_threads; i++) {
        fedge_network *other = transport->networks[i];
        if (atomic_load(&other->num_connections) < atomic_load(&fewest->num_connections))
            fewest = other;
    }
    fedge_peer *peer = fedge_peer_new(fewest, self->socket, &self->address, self);
    if (!peer) {
        close_before_hello(self);
        return;
    }
    /* The network thread may free [self], so no event may refer to it. */
    stop_waiting(self);
    pthread_mutex_lock(&transport->unauthenticated.mutex);
    self->before_hello = false;
    self->queued = true;
    pthread_mutex_unlock(&transport->unauthenticated.mutex);
    fedge_mailbox_post(fewest->arrivals, &peer->item);
}

static void look_at(fedge_unauthenticated *self)
{
    switch (fedge_socket_first_bytes(self->socket)) {
    case FEDGE_FIRST_HELLO:
        pass_to_network(self);
        break;
    case FEDGE_FIRST_TOO_FEW:
        self->disarmed = true; /* the event would repeat at once: the next tick checks */
        break;
    case FEDGE_FIRST_OTHER:
        refuse(self, "what it sent is not TLS", fedge_os_monotonic_ms());
        break;
    case FEDGE_FIRST_CLOSED:
        close_before_hello(self);
        break;
    }
}

static void on_first_bytes(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop, (void)events;
    /* libev has no one-shot events and would poll thousands of silent sockets. A separate epoll
     * holds them, and libev watches its descriptor. */
    struct epoll_event ready[LOOKS_AT_ONCE];
    const int number = epoll_wait(watcher->fd, ready, LOOKS_AT_ONCE, 0);
    for (int i = 0; i < number; i++)
        look_at(ready[i].data.ptr);
}

fedge_status fedge_admission_open(fedge_transport *transport, fedge_error *err)
{
    transport->first_bytes_epoll = epoll_create1(EPOLL_CLOEXEC);
    if (transport->first_bytes_epoll < 0)
        return fedge_fail_errno(err, errno, "cannot wait for connections' first bytes");
    ev_io_init(&transport->admission_watcher, on_first_bytes, transport->first_bytes_epoll,
               EV_READ);
    ev_io_start(transport->config.loop, &transport->admission_watcher);
    return FEDGE_OK;
}

void fedge_admission_close(fedge_transport *transport)
{
    if (transport->first_bytes_epoll >= 0) {
        ev_io_stop(transport->config.loop, &transport->admission_watcher);
        fedge_listener_close(transport->first_bytes_epoll);
        transport->first_bytes_epoll = -1;
    }
}

void fedge_admission_take(fedge_transport *transport, int socket, const fedge_peer_address *address)
{
    char reason[128];
    uint64_t now_ms = fedge_os_monotonic_ms();
    if (!accepts(transport, address, reason, sizeof(reason), now_ms)) {
        log_refused(transport, address, reason, now_ms);
        fedge_listener_close(socket);
        return;
    }
    fedge_unauthenticated *self = new_unauthenticated(transport, socket, address, now_ms);
    if (!self)
        fedge_listener_close(socket);
    else if (!arm(self, EPOLL_CTL_ADD))
        close_before_hello(self);
}

/* The next peer after [self] that has sent no hello; NULL starts at the oldest. The result stays
 * valid because only the accepting thread, which calls this, ends such peers. */
static fedge_unauthenticated *next_before_hello(fedge_transport *transport,
                                                fedge_unauthenticated *self)
{
    pthread_mutex_lock(&transport->unauthenticated.mutex);
    self = self ? self->next : transport->unauthenticated.first;
    while (self && !self->before_hello)
        self = self->next;
    pthread_mutex_unlock(&transport->unauthenticated.mutex);
    return self;
}

void fedge_admission_tick(fedge_transport *transport, uint64_t now_ms)
{
    for (fedge_unauthenticated *self = next_before_hello(transport, NULL), *next; self;
         self = next) {
        next = next_before_hello(transport, self);
        if (now_ms - self->accepted_ms >= transport->config.newcomer_timeout_ms)
            refuse(self, "it sent nothing", now_ms);
        else if (self->disarmed)
            self->disarmed = !arm(self, EPOLL_CTL_MOD);
    }
}

void fedge_admission_refuse_all(fedge_transport *transport)
{
    for (fedge_unauthenticated *self = next_before_hello(transport, NULL), *next; self;
         self = next) {
        next = next_before_hello(transport, self);
        close_before_hello(self);
    }
}

/* ---- on network threads ---------------------------------------------------------------------- */

void fedge_admission_begin_handshake(fedge_peer *peer)
{
    fedge_unauthenticated_list *list = &peer->network->transport->unauthenticated;
    peer->heard_ms = fedge_os_monotonic_ms(); /* the server caused its silence so far */
    pthread_mutex_lock(&list->mutex);
    peer->unauthenticated->queued = false;
    peer->unauthenticated->heard_ms = peer->heard_ms;
    pthread_mutex_unlock(&list->mutex);
}

/* Silence of the handshake, so not longer than its duration. */
static uint64_t silent_ms_of(const fedge_peer *peer, uint64_t now_ms)
{
    const uint64_t silent_ms = fedge_socket_silent_ms(peer->socket);
    const uint64_t begun_ms = now_ms > peer->heard_ms ? now_ms - peer->heard_ms : 0;
    return silent_ms < begun_ms ? silent_ms : begun_ms;
}

void fedge_admission_check_silence(fedge_network *network, uint64_t now_ms)
{
    fedge_transport *transport = network->transport;
    for (fedge_peer *peer = network->newcomers.first; peer; peer = peer->next) {
        /* libwebsockets limits the time from the certificate to the upgrade. */
        if (peer->dropping || peer->chain_known || !peer->wsi)
            continue;
        const uint64_t silent_ms = silent_ms_of(peer, now_ms);
        if (silent_ms >= transport->config.newcomer_timeout_ms) {
            log_refused(transport, &peer->address, "it fell silent in the handshake", now_ms);
            fedge_peer_drop(peer);
        }
        pthread_mutex_lock(&transport->unauthenticated.mutex);
        peer->unauthenticated->heard_ms = now_ms > silent_ms ? now_ms - silent_ms : 0;
        pthread_mutex_unlock(&transport->unauthenticated.mutex);
    }
}

bool fedge_admission_is_evicted(const fedge_peer *peer)
{
    fedge_unauthenticated_list *list = &peer->network->transport->unauthenticated;
    pthread_mutex_lock(&list->mutex);
    const bool evicted = peer->unauthenticated->evicted;
    pthread_mutex_unlock(&list->mutex);
    return evicted;
}

void fedge_admission_drop_evicted(fedge_network *network)
{
    for (fedge_peer *peer = network->newcomers.first; peer; peer = peer->next) {
        if (peer->wsi && fedge_admission_is_evicted(peer))
            fedge_peer_drop(peer);
    }
}
