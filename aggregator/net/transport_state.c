/* Functions that all parts of the transport use: connection records and their lists. */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include <assert.h>
#include <stdlib.h>

#include "aggregator/net/transport_internal.h"
#include "edge/core/os.h"

/* ---- lists ----------------------------------------------------------------------------------- */

void fedge_peer_append(fedge_peer_list *list, fedge_peer *peer)
{
    assert(!peer->list); /* a peer is in one list at a time */
    peer->list = list;
    peer->previous = list->last;
    peer->next = NULL;
    *(list->last ? &list->last->next : &list->first) = peer;
    list->last = peer;
    list->count++;
}

void fedge_peer_take_out(fedge_peer *peer)
{
    fedge_peer_list *list = peer->list;
    assert(list && list->count > 0);
    *(peer->previous ? &peer->previous->next : &list->first) = peer->next;
    *(peer->next ? &peer->next->previous : &list->last) = peer->previous;
    list->count--;
    peer->list = NULL;
}

fedge_peer *fedge_peer_find(const fedge_peer_list *list, int socket)
{
    fedge_peer *peer = list->last;
    while (peer && peer->socket != socket)
        peer = peer->previous;
    return peer;
}

/* ---- unauthenticated peers ------------------------------------------------------------------- */

void fedge_unauthenticated_end(fedge_unauthenticated *self)
{
    fedge_unauthenticated_list *list = &self->transport->unauthenticated;
    pthread_mutex_lock(&list->mutex);
    assert(list->count > 0);
    *(self->previous ? &self->previous->next : &list->first) = self->next;
    *(self->next ? &self->next->previous : &list->last) = self->previous;
    list->count--;
    pthread_mutex_unlock(&list->mutex);
    free(self);
}

uint32_t fedge_admission_count(fedge_transport *transport)
{
    pthread_mutex_lock(&transport->unauthenticated.mutex);
    const uint32_t count = transport->unauthenticated.count;
    pthread_mutex_unlock(&transport->unauthenticated.mutex);
    return count;
}

uint32_t fedge_transport_num_connections(fedge_transport *transport)
{
    /* This order may count an admitted peer twice for a moment, but never omits it. */
    const uint32_t num_unauthenticated = fedge_admission_count(transport);
    return num_unauthenticated + atomic_load(&transport->num_clients);
}

/* ---- life ------------------------------------------------------------------------------------ */

fedge_peer *fedge_peer_new(fedge_network *network, int socket, const fedge_peer_address *address,
                           fedge_unauthenticated *unauthenticated)
{
    fedge_peer *peer = calloc(1, sizeof(*peer));
    if (peer) {
        peer->network = network;
        peer->socket = socket;
        peer->address = *address;
        peer->unauthenticated = unauthenticated;
        peer->heard_ms = fedge_os_monotonic_ms();
        atomic_fetch_add(&network->num_connections, 1);
    }
    return peer;
}

void fedge_peer_note(const fedge_peer *peer, const fedge_conn_note *note)
{
    fedge_log_write(&peer->log, note->level, note->event, note->fields, note->num_fields);
}

/* Sends the engine the final requests, and frees the fedge_conn. */
static void end_conn(fedge_peer *peer)
{
    if (peer->conn) {
        fedge_network *network = peer->network;
        fedge_conn_action action;
        fedge_conn_end(peer->conn);
        while (fedge_conn_next_action(peer->conn, &action)) {
            if (action.type == FEDGE_CONN_NOTE)
                fedge_peer_note(peer, action.note);
            if (action.type == FEDGE_CONN_REQUEST)
                (void)network->transport->run.post(network->transport->run.run, action.request);
        }
        fedge_slots_give_back(&network->slots, fedge_conn_id(peer->conn));
        fedge_conn_free(peer->conn);
        peer->conn = NULL;
    }
}

void fedge_peer_end_unauthenticated(fedge_peer *peer)
{
    if (peer->unauthenticated) {
        fedge_unauthenticated_end(peer->unauthenticated);
        peer->unauthenticated = NULL;
    }
}

/* In a flood only the timer begins handshakes, even on an idle thread, to leave CPU to other work.
 */
static void count_failed(fedge_network *network)
{
    if (fedge_handshake_failed(&network->handshakes))
        ev_idle_stop(network->loop, &network->idle_watcher);
}

void fedge_peer_forget(fedge_peer *peer)
{
    fedge_network *network = peer->network;
    const bool failed = peer->unauthenticated && peer->list == &network->newcomers;
    end_conn(peer);
    for (fedge_peer **at = &network->drops; *at; at = &(*at)->next_drop) {
        if (*at == peer) {
            *at = peer->next_drop;
            break;
        }
    }
    for (fedge_peer **at = &network->first_waiting; peer->waits && *at;) {
        if (*at == peer)
            *at = peer->next_waiting;
        else
            at = &(*at)->next_waiting;
        if (!*at)
            network->last_waiting = at;
    }
    if (network->adopting == peer)
        network->adopting = NULL;
    if (peer->list)
        fedge_peer_take_out(peer);
    if (peer->admitted)
        atomic_fetch_sub(&network->transport->num_clients, 1);
    if (failed)
        count_failed(network);
    fedge_peer_end_unauthenticated(peer);
    free(peer->ticket);
    atomic_fetch_sub(&network->num_connections, 1);
    free(peer);
}

void fedge_peer_end_conn(fedge_peer *peer)
{
    if (!peer->conn)
        return;
    char address[FEDGE_ADDRESS_TEXT];
    const fedge_registry_match *match = fedge_conn_match(peer->conn);
    FEDGE_LOG(&peer->log, FEDGE_LOG_INFO, "client-disconnected",
              fedge_log_str("device", match->device_id), fedge_log_int("client", match->index),
              fedge_log_str("address", fedge_peer_address_text(&peer->address, address)));
    end_conn(peer);
}

void fedge_peer_drop(fedge_peer *peer)
{
    if (!peer->dropping) {
        peer->dropping = true;
        peer->next_drop = peer->network->drops;
        peer->network->drops = peer;
    }
}

void fedge_network_wake(void *network)
{
    fedge_network *self = network;
    ev_async_send(self->loop, &self->mailbox_watcher);
}
