/* The door: connections that have shown no certificate of a registered device yet, its guests.
 * Until the first bytes of a TLS handshake have come, one is a socket and a small record of the
 * accepting thread; until its certificate is accepted, it counts against limits of its own, which
 * hold for all network threads together. */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

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

/* ---- guests ---------------------------------------------------------------------------------- */

static fedge_guest *new_guest(fedge_transport *transport, int socket,
                              const fedge_peer_address *address, uint64_t now_ms)
{
    fedge_guest *guest = calloc(1, sizeof(*guest));
    if (!guest)
        return NULL;
    guest->transport = transport;
    guest->socket = socket;
    guest->address = *address;
    guest->accepted_ms = guest->heard_ms = now_ms;
    guest->at_door = true;
    fedge_guests *guests = &transport->guests;
    pthread_mutex_lock(&guests->mutex);
    guest->previous = guests->last;
    *(guests->last ? &guests->last->next : &guests->first) = guest;
    guests->last = guest;
    guests->count++;
    pthread_mutex_unlock(&guests->mutex);
    return guest;
}

static bool arm(fedge_guest *guest, int operation)
{
    /* One-shot: bytes that are too few would raise the event again and again. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = guest};
    return epoll_ctl(guest->transport->door, operation, guest->socket, &event) == 0;
}

static void stop_waiting(const fedge_guest *guest)
{
    (void)epoll_ctl(guest->transport->door, EPOLL_CTL_DEL, guest->socket, NULL);
}

/* Ends one that is still at the door. */
static void close_door(fedge_guest *guest)
{
    stop_waiting(guest);
    fedge_listener_close(guest->socket);
    fedge_guest_leave(guest->transport, guest);
}

/* ---- the limits ------------------------------------------------------------------------------ */

/* What speaks for ending this guest in favour of another. */
static unsigned judge_guest(const fedge_transport *transport, const fedge_guest *guest,
                            uint64_t now_ms)
{
    const fedge_turns_guest facts = {
        .at_door = guest->at_door,
        .waits = guest->waits,
        .known = fedge_peers_has_seen(transport->config.peers, &guest->address),
        .lately = guest->network && fedge_turns_lately(&guest->network->turns, &guest->address),
        .age_ms = now_ms - guest->accepted_ms,
        .silent_ms = now_ms > guest->heard_ms ? now_ms - guest->heard_ms : 0};
    return fedge_turns_spare(&facts);
}

/* A guest to end in favour of another, so that neither silence nor slowness can keep others out.
 * [from]: only of this place; NULL: of any. */
static fedge_guest *find_idle(const fedge_transport *transport, const fedge_peer_address *from,
                              uint64_t now_ms)
{
    fedge_guest *found = NULL;
    unsigned most = 0;
    /* In the order in which they came: the first that fits is the oldest. */
    for (fedge_guest *guest = transport->guests.first; guest && most < FEDGE_TURNS_MOST_SPARE;
         guest = guest->next) {
        if (guest->sent_away || (from && !fedge_peer_address_same_place(&guest->address, from)))
            continue;
        const unsigned spare = judge_guest(transport, guest, now_ms);
        if (spare > most) {
            most = spare;
            found = guest;
        }
    }
    return found;
}

/* Sends one away for another, at whichever stage it is. */
static bool evict_idle(fedge_transport *transport, const fedge_peer_address *from,
                       const char *reason, uint64_t now_ms)
{
    pthread_mutex_lock(&transport->guests.mutex);
    fedge_guest *guest = find_idle(transport, from, now_ms);
    const bool at_door = guest && guest->at_door;
    fedge_peer_address address = {0};
    if (guest) {
        /* Nobody is to be chosen twice. */
        guest->sent_away = true;
        address = guest->address;
    }
    pthread_mutex_unlock(&transport->guests.mutex);
    if (!guest)
        return false;
    log_refused(transport, &address, reason, now_ms);
    /* At the door it is this thread's own, and is closed at once. */
    if (at_door) {
        close_door(guest);
        return true;
    }
    for (uint32_t i = 0; i < transport->config.num_threads; i++) { /* it knows where it is */
        atomic_store(&transport->networks[i]->must_evict, true);
        fedge_network_wake(transport->networks[i]);
    }
    return true;
}

static uint32_t count_from(fedge_transport *transport, const fedge_peer_address *address)
{
    uint32_t count = 0;
    pthread_mutex_lock(&transport->guests.mutex);
    for (const fedge_guest *guest = transport->guests.first; guest; guest = guest->next)
        count += fedge_peer_address_same_place(&guest->address, address);
    pthread_mutex_unlock(&transport->guests.mutex);
    return count;
}

/* Whether one more may come from [address]; otherwise *reason is why not. */
static bool has_room(fedge_transport *transport, const fedge_peer_address *address, char *reason,
                     size_t reason_size, uint64_t now_ms)
{
    const fedge_transport_config *config = &transport->config;
    /* Who has too many of its own pays with one of its own, before others have to. */
    if (count_from(transport, address) >= config->max_per_address) {
        snprintf(reason, reason_size,
                 "%u connections from this address have shown no certificate, the limit "
                 "(--max-per-address)",
                 config->max_per_address);
        return evict_idle(transport, address, reason, now_ms);
    }
    if (fedge_door_num_guests(transport) >= config->max_unauthenticated) {
        snprintf(reason, reason_size,
                 "%u connections have shown no certificate, the limit (--max-unauthenticated)",
                 config->max_unauthenticated);
        return evict_idle(transport, NULL, reason, now_ms);
    }
    return true;
}

/* ---- the first bytes ------------------------------------------------------------------------- */

static void turn_away(fedge_guest *guest, const char *reason, uint64_t now_ms)
{
    log_refused(guest->transport, &guest->address, reason, now_ms);
    close_door(guest);
}

/* To the thread with the fewest connections. */
static void hand_over(fedge_guest *guest)
{
    fedge_transport *transport = guest->transport;
    fedge_network *fewest = transport->networks[0];
    for (uint32_t i = 1; i < transport->config.num_threads; i++) {
        fedge_network *other = transport->networks[i];
        if (atomic_load(&other->num_connections) < atomic_load(&fewest->num_connections))
            fewest = other;
    }
    fedge_peer *peer = fedge_peer_new(fewest, guest->socket, &guest->address, guest);
    if (!peer) {
        close_door(guest);
        return;
    }
    /* Before it changes hands: the event would find a guest that is gone. */
    stop_waiting(guest);
    pthread_mutex_lock(&transport->guests.mutex);
    guest->at_door = false;
    guest->waits = true;
    guest->network = fewest;
    pthread_mutex_unlock(&transport->guests.mutex);
    fedge_mailbox_post(fewest->arrivals, &peer->item);
}

static void look_at(fedge_guest *guest)
{
    switch (fedge_socket_first_bytes(guest->socket)) {
    case FEDGE_FIRST_HELLO:
        hand_over(guest);
        break;
    case FEDGE_FIRST_TOO_FEW:
        guest->disarmed = true; /* the event would come again at once: the next tick looks */
        break;
    case FEDGE_FIRST_OTHER:
        turn_away(guest, "what it sent is not TLS", fedge_os_monotonic_ms());
        break;
    case FEDGE_FIRST_CLOSED:
        close_door(guest);
        break;
    }
}

static void on_first_bytes(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop, (void)events;
    /* An epoll of its own, which libev watches as one file: libev knows no one-shot events, and
     * thousands of silent sockets cost it nothing so. */
    struct epoll_event ready[LOOKS_AT_ONCE];
    const int number = epoll_wait(watcher->fd, ready, LOOKS_AT_ONCE, 0);
    for (int i = 0; i < number; i++)
        look_at(ready[i].data.ptr);
}

fedge_status fedge_door_open(fedge_transport *transport, fedge_error *err)
{
    transport->door = epoll_create1(EPOLL_CLOEXEC);
    if (transport->door < 0)
        return fedge_fail_errno(err, errno, "cannot wait for connections' first bytes");
    ev_io_init(&transport->door_watcher, on_first_bytes, transport->door, EV_READ);
    ev_io_start(transport->config.loop, &transport->door_watcher);
    return FEDGE_OK;
}

void fedge_door_close(fedge_transport *transport)
{
    if (transport->door >= 0) {
        ev_io_stop(transport->config.loop, &transport->door_watcher);
        fedge_listener_close(transport->door);
        transport->door = -1;
    }
}

void fedge_door_enter(fedge_transport *transport, int socket, const fedge_peer_address *address)
{
    char reason[128];
    uint64_t now_ms = fedge_os_monotonic_ms();
    if (!has_room(transport, address, reason, sizeof(reason), now_ms)) {
        log_refused(transport, address, reason, now_ms);
        fedge_listener_close(socket);
        return;
    }
    fedge_guest *guest = new_guest(transport, socket, address, now_ms);
    if (!guest)
        fedge_listener_close(socket);
    else if (!arm(guest, EPOLL_CTL_ADD))
        close_door(guest);
}

/* The next that is still at the door, from [guest] on. Only the accepting thread takes guests away
 * from there, so what is found stays. */
static fedge_guest *next_at_door(fedge_transport *transport, fedge_guest *guest)
{
    pthread_mutex_lock(&transport->guests.mutex);
    guest = guest ? guest->next : transport->guests.first;
    while (guest && !guest->at_door)
        guest = guest->next;
    pthread_mutex_unlock(&transport->guests.mutex);
    return guest;
}

void fedge_door_tick(fedge_transport *transport, uint64_t now_ms)
{
    for (fedge_guest *guest = next_at_door(transport, NULL), *next; guest; guest = next) {
        next = next_at_door(transport, guest);
        if (now_ms - guest->accepted_ms >= transport->config.newcomer_timeout_ms)
            turn_away(guest, "it sent nothing", now_ms);
        else if (guest->disarmed)
            guest->disarmed = !arm(guest, EPOLL_CTL_MOD);
    }
}

void fedge_door_shut(fedge_transport *transport)
{
    for (fedge_guest *guest = next_at_door(transport, NULL), *next; guest; guest = next) {
        next = next_at_door(transport, guest);
        close_door(guest);
    }
}

/* ---- on network threads ---------------------------------------------------------------------- */

void fedge_door_begin(fedge_peer *peer)
{
    fedge_guests *guests = &peer->network->transport->guests;
    peer->heard_ms = fedge_os_monotonic_ms(); /* it owed nothing while it waited */
    pthread_mutex_lock(&guests->mutex);
    peer->guest->waits = false;
    peer->guest->heard_ms = peer->heard_ms;
    pthread_mutex_unlock(&guests->mutex);
}

/* Since its handshake began, at the most. */
static uint64_t silent_ms_of(const fedge_peer *peer, uint64_t now_ms)
{
    const uint64_t silent_ms = fedge_socket_silent_ms(peer->socket);
    const uint64_t begun_ms = now_ms > peer->heard_ms ? now_ms - peer->heard_ms : 0;
    return silent_ms < begun_ms ? silent_ms : begun_ms;
}

void fedge_door_watch(fedge_network *network, uint64_t now_ms)
{
    fedge_transport *transport = network->transport;
    for (fedge_peer *peer = network->newcomers.first; peer; peer = peer->next) {
        /* Who has shown a certificate has libwebsockets' time for the upgrade. */
        if (peer->dropping || peer->chain_known || !peer->wsi)
            continue;
        const uint64_t silent_ms = silent_ms_of(peer, now_ms);
        if (silent_ms >= transport->config.newcomer_timeout_ms) {
            log_refused(transport, &peer->address, "it fell silent in the handshake", now_ms);
            fedge_peer_drop(peer);
        }
        pthread_mutex_lock(&transport->guests.mutex);
        peer->guest->heard_ms = now_ms > silent_ms ? now_ms - silent_ms : 0;
        pthread_mutex_unlock(&transport->guests.mutex);
    }
}

bool fedge_door_has_sent_away(const fedge_peer *peer)
{
    fedge_guests *guests = &peer->network->transport->guests;
    pthread_mutex_lock(&guests->mutex);
    const bool sent_away = peer->guest->sent_away;
    pthread_mutex_unlock(&guests->mutex);
    return sent_away;
}

void fedge_door_evict(fedge_network *network)
{
    for (fedge_peer *peer = network->newcomers.first; peer; peer = peer->next) {
        if (peer->wsi && fedge_door_has_sent_away(peer))
            fedge_peer_drop(peer);
    }
}
