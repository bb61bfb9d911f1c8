/* The door: connections that have shown no certificate of a registered device yet. Until the first
 * bytes of a TLS handshake have come, a connection is a socket and a small record; until its
 * certificate is accepted, it counts against limits of its own. */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include <stdio.h>
#include <stdlib.h>

#include "aggregator/server/transport_internal.h"
#include "edge/core/os.h"

#define STOPPED_AFTER_MS 1000u /* silence in a handshake, when room is needed */
#define SLOW_AFTER_MS 2000u    /* a handshake's age from which it may end for another */
#define MAX_LOOKS 16           /* at sockets for it, from the oldest on */

static void refused(const fedge_peer *peer, const char *reason, uint64_t now_ms)
{
    char address[FEDGE_ADDRESS_TEXT];
    fedge_peers_refused(peer->transport->config.peers,
                        fedge_peer_address_text(&peer->address, address), "", reason, now_ms);
}

/* Ends a newcomer at whichever stage it is; one still at the door is gone on return. */
static void turn_away(fedge_peer *peer, const char *reason, uint64_t now_ms)
{
    refused(peer, reason, now_ms);
    if (peer->door) {
        fedge_peer_forget(peer);
    } else {
        fedge_peer_drop(peer);
    }
}

static uint64_t silent_ms(const fedge_peer *peer, uint64_t now_ms)
{
    return peer->door ? now_ms - peer->accepted_ms : fedge_socket_silent_ms(peer->socket);
}

/* ---- the limits ------------------------------------------------------------------------------ */

static uint32_t count_from(const fedge_transport *transport, const fedge_peer_address *address)
{
    uint32_t count = 0;
    for (const fedge_peer *peer = transport->newcomers.first; peer; peer = peer->next) {
        count += fedge_peer_address_same_place(&peer->address, address);
    }
    return count;
}

/* A newcomer to end in favour of another, so that neither silence nor slowness can keep others out:
 * the oldest that has not begun, the oldest that has stopped in its handshake, or the oldest of all
 * if it has had time enough. [from]: only of this place; NULL: of any. */
static fedge_peer *find_idle(const fedge_transport *transport, const fedge_peer_address *from,
                             uint64_t now_ms)
{
    int looks = MAX_LOOKS;
    fedge_peer *stopped = NULL;
    fedge_peer *slow = NULL;
    for (fedge_peer *peer = transport->newcomers.first; peer; peer = peer->next) {
        if (peer->dropping || (from && !fedge_peer_address_same_place(&peer->address, from))) {
            continue;
        }
        if (peer->door) {
            return peer;
        }
        if (!stopped && looks-- > 0 && fedge_socket_silent_ms(peer->socket) >= STOPPED_AFTER_MS) {
            stopped = peer;
        }
        if (!slow && now_ms - peer->accepted_ms >= SLOW_AFTER_MS) {
            slow = peer;
        }
    }
    return stopped ? stopped : slow;
}

static bool evict_idle(const fedge_transport *transport, const fedge_peer_address *from,
                       const char *reason, uint64_t now_ms)
{
    fedge_peer *peer = find_idle(transport, from, now_ms);
    if (peer) {
        turn_away(peer, reason, now_ms);
    }
    return peer != NULL;
}

/* Whether one more may come from [address]; otherwise *reason is why not. */
static bool has_room(fedge_transport *transport, const fedge_peer_address *address, char *reason,
                     size_t reason_size, uint64_t now_ms)
{
    const fedge_transport_config *config = &transport->config;
    if (count_from(transport, address) >= config->max_per_address) {
        snprintf(reason, reason_size,
                 "%u connections from this address have shown no certificate, the limit "
                 "(--max-per-address)",
                 config->max_per_address);
        return evict_idle(transport, address, reason, now_ms);
    }
    if (transport->newcomers.count >= config->max_unauthenticated) {
        snprintf(reason, reason_size,
                 "%u connections have shown no certificate, the limit (--max-unauthenticated)",
                 config->max_unauthenticated);
        return evict_idle(transport, NULL, reason, now_ms);
    }
    return true;
}

/* ---- the first bytes ------------------------------------------------------------------------- */

static void on_first_bytes(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    fedge_peer *peer = watcher->data;
    switch (fedge_socket_first_bytes(peer->socket)) {
    case FEDGE_FIRST_HELLO:
        ev_io_stop(loop, watcher);
        free(peer->door);
        peer->door = NULL;
        fedge_peer_adopt(peer);
        break;
    case FEDGE_FIRST_TOO_FEW:
        ev_io_stop(loop, watcher); /* the event would come again at once: the next tick looks */
        break;
    case FEDGE_FIRST_OTHER:
        turn_away(peer, "what it sent is not TLS", fedge_os_monotonic_ms());
        break;
    case FEDGE_FIRST_CLOSED:
        fedge_peer_forget(peer);
        break;
    }
}

void fedge_door_enter(fedge_transport *transport, int socket, const fedge_peer_address *address)
{
    char reason[128];
    char text[FEDGE_ADDRESS_TEXT];
    uint64_t now_ms = fedge_os_monotonic_ms();
    if (!has_room(transport, address, reason, sizeof(reason), now_ms)) {
        fedge_peers_refused(transport->config.peers, fedge_peer_address_text(address, text), "",
                            reason, now_ms);
        fedge_listener_close(socket);
        return;
    }
    fedge_peer *peer = fedge_peer_new(transport, socket, address, false);
    ev_io *door = malloc(sizeof(*door));
    if (!peer || !door) {
        free(door);
        if (peer) {
            fedge_peer_forget(peer);
        }
        fedge_listener_close(socket);
        return;
    }
    ev_io_init(door, on_first_bytes, socket, EV_READ);
    door->data = peer;
    peer->door = door;
    ev_io_start(transport->config.loop, door);
}

void fedge_door_close(fedge_peer *peer)
{
    if (peer->door) {
        ev_io_stop(peer->transport->config.loop, peer->door);
        free(peer->door);
        peer->door = NULL;
        fedge_listener_close(peer->socket);
    }
}

void fedge_door_tick(fedge_transport *transport, uint64_t now_ms)
{
    for (fedge_peer *peer = transport->newcomers.first, *next; peer; peer = next) {
        next = peer->next;
        if (peer->dropping) {
            continue;
        }
        /* Who has shown a certificate has libwebsockets' time for the upgrade. */
        if (!peer->chain_known &&
            silent_ms(peer, now_ms) >= transport->config.newcomer_timeout_ms) {
            turn_away(peer, peer->door ? "it said nothing" : "it fell silent in the handshake",
                      now_ms);
        } else if (peer->door && !ev_is_active(peer->door)) {
            ev_io_start(transport->config.loop, peer->door);
        }
    }
}

void fedge_door_shut(fedge_transport *transport)
{
    for (fedge_peer *peer = transport->newcomers.first, *next; peer; peer = next) {
        next = peer->next;
        if (peer->door) {
            fedge_peer_forget(peer);
        } else if (peer->wsi) {
            fedge_peer_drop(peer);
        }
    }
}

/* ---- what handshakes show -------------------------------------------------------------------- */

void fedge_door_on_verified(void *user, int socket, const fedge_chain *chain)
{
    fedge_transport *transport = user;
    fedge_peer *peer = fedge_peer_find(&transport->newcomers, socket);
    if (peer) {
        peer->chain = *chain;
        peer->chain_known = true;
    }
}
