/* What all parts of the transport use: records of connections and their lists, guests, answers. */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "aggregator/net/transport_internal.h"
#include "edge/core/os.h"

/* ---- lists ----------------------------------------------------------------------------------- */

void fedge_peer_append(fedge_peer_list *list, fedge_peer *peer)
{
    assert(!peer->list); /* it is in one at a time */
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

/* ---- guests ---------------------------------------------------------------------------------- */

void fedge_guest_leave(fedge_transport *transport, fedge_guest *guest)
{
    fedge_guests *guests = &transport->guests;
    pthread_mutex_lock(&guests->mutex);
    assert(guests->count > 0);
    *(guest->previous ? &guest->previous->next : &guests->first) = guest->next;
    *(guest->next ? &guest->next->previous : &guests->last) = guest->previous;
    guests->count--;
    pthread_mutex_unlock(&guests->mutex);
    free(guest);
}

uint32_t fedge_door_num_guests(fedge_transport *transport)
{
    pthread_mutex_lock(&transport->guests.mutex);
    const uint32_t count = transport->guests.count;
    pthread_mutex_unlock(&transport->guests.mutex);
    return count;
}

uint32_t fedge_transport_num_connections(fedge_transport *transport)
{
    /* In this order: who is let in is counted twice for a moment, and never not at all. */
    const uint32_t guests = fedge_door_num_guests(transport);
    return guests + atomic_load(&transport->num_clients);
}

/* ---- life ------------------------------------------------------------------------------------ */

fedge_peer *fedge_peer_new(fedge_network *network, int socket, const fedge_peer_address *address,
                           fedge_guest *guest)
{
    fedge_peer *peer = calloc(1, sizeof(*peer));
    if (peer) {
        peer->network = network;
        peer->socket = socket;
        peer->address = *address;
        peer->guest = guest;
        peer->heard_ms = fedge_os_monotonic_ms();
        atomic_fetch_add(&network->num_connections, 1);
    }
    return peer;
}

void fedge_peer_note(const fedge_peer *peer, const fedge_conn_note *note)
{
    fedge_log_write(&peer->log, note->level, note->event, note->fields, note->num_fields);
}

/* The engine hears that it has gone. */
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

void fedge_peer_end_guest(fedge_peer *peer)
{
    if (peer->guest) {
        fedge_guest_leave(peer->network->transport, peer->guest);
        peer->guest = NULL;
    }
}

/* Of handshakes that are in vain the CPU has better to do even where the thread has not: while
 * there are many, they begin in their turns only. */
static void count_in_vain(fedge_network *network)
{
    if (fedge_turns_in_vain(&network->turns))
        ev_idle_stop(network->loop, &network->idle_watcher);
}

void fedge_peer_forget(fedge_peer *gone)
{
    fedge_network *network = gone->network;
    const bool in_vain = gone->guest && gone->list == &network->newcomers;
    end_conn(gone);
    for (fedge_peer **at = &network->drops; *at; at = &(*at)->next_drop) {
        if (*at == gone) {
            *at = gone->next_drop;
            break;
        }
    }
    for (fedge_peer **at = &network->first_for_room; gone->waits && *at;) {
        if (*at == gone)
            *at = gone->next_waiting;
        else
            at = &(*at)->next_waiting;
        if (!*at)
            network->last_for_room = at;
    }
    if (network->adopting == gone)
        network->adopting = NULL;
    if (gone->list)
        fedge_peer_take_out(gone);
    if (gone->admitted)
        atomic_fetch_sub(&network->transport->num_clients, 1);
    if (in_vain)
        count_in_vain(network);
    fedge_peer_end_guest(gone);
    free(gone->ticket);
    atomic_fetch_sub(&network->num_connections, 1);
    free(gone);
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

/* ---- answers --------------------------------------------------------------------------------- */

bool fedge_http_host_of(struct lws *wsi, char host[FEDGE_HTTP_MAX_HOST])
{
    return lws_hdr_copy(wsi, host, FEDGE_HTTP_MAX_HOST, WSI_TOKEN_HOST) > 0 &&
           lws_hdr_fragment_length(wsi, WSI_TOKEN_HOST, 1) == 0 && fedge_http_host_valid(host);
}

int fedge_http_send(fedge_network *network, struct lws *wsi, bool head, unsigned status,
                    const char *type, const char *body, size_t size)
{
    static const struct {
        unsigned status;
        const char *text;
    } TEXTS[] = {{200, "OK"},
                 {400, "Bad Request"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {426, "Upgrade Required"},
                 {505, "HTTP Version Not Supported"}};
    const char *text = "Service Unavailable";
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        if (TEXTS[i].status == status)
            text = TEXTS[i].text;
    }
    const char *extra = status == 405   ? "Allow: GET, HEAD\r\n"
                        : status == 426 ? "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                                        : "";
    char *out = (char *)network->out + LWS_PRE;
    int used = snprintf(out, FEDGE_MESSAGE_MAX_SIZE,
                        "HTTP/1.1 %u %s\r\n"
                        "Content-Type: %s\r\n"
                        "Content-Length: %zu\r\n"
                        "%s"
                        "Connection: close\r\n\r\n"
                        "%.*s",
                        status, text, type, size, extra, head ? 0 : (int)size, body);
    assert(used >= 0 && (size_t)used < FEDGE_MESSAGE_MAX_SIZE); /* the caller's page is whole */
    lws_write(wsi, (unsigned char *)out, (size_t)used, LWS_WRITE_HTTP_HEADERS);
    return -1;
}

int fedge_http_send_text(fedge_network *network, struct lws *wsi, unsigned status, const char *text)
{
    char line[FEDGE_ERROR_MESSAGE_SIZE + 2];
    int size = snprintf(line, sizeof(line), "%s\n", text);
    return fedge_http_send(network, wsi, false, status, "text/plain; charset=utf-8", line,
                           (size_t)size);
}
