/* What clients send, from libwebsockets' parser to their fedge_conn, and what that wants done. */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include "aggregator/net/transport_internal.h"
#include "edge/core/os.h"

static void pause_reading(fedge_peer *peer, bool paused)
{
    peer->paused = paused;
    peer->heard_ms = fedge_os_monotonic_ms();
    lws_rx_flow_control(peer->wsi, !paused);
    /* Bytes that are decrypted already raise no event of the socket. */
    peer->network->nudge = true;
}

static void tell_replaced(const fedge_peer *peer)
{
    fedge_peers_displaced(peer->network->transport->config.peers, fedge_conn_match(peer->conn),
                          &peer->address, fedge_os_monotonic_ms());
}

static void queue_for_room(fedge_peer *peer)
{
    fedge_network *network = peer->network;
    if (peer->waits)
        return; /* the frame that it waited for has ended, and the next has its place */
    if (!network->first_for_room)
        network->last_for_room = &network->first_for_room;
    peer->waits = true;
    peer->next_waiting = NULL;
    *network->last_for_room = peer;
    network->last_for_room = &peer->next_waiting;
}

void fedge_network_give_room(fedge_network *network)
{
    for (fedge_peer *peer = network->first_for_room; peer; peer = network->first_for_room) {
        if (peer->conn && !fedge_conn_take_room(peer->conn, fedge_os_monotonic_ms()))
            break;
        network->first_for_room = peer->next_waiting;
        peer->waits = false;
        if (peer->conn)
            fedge_peer_carry_out(peer);
    }
}

/* False: the engine has too much to do, and what it gets from this peer is enough for now. */
static bool carry_out(fedge_peer *peer)
{
    bool goes_on = true;
    fedge_conn_action action;
    while (fedge_conn_next_action(peer->conn, &action)) {
        switch (action.type) {
        case FEDGE_CONN_NOTE:
            fedge_peer_note(peer, action.note);
            break;
        case FEDGE_CONN_REQUEST:
            if (!peer->network->transport->run.post(peer->network->transport->run.run,
                                                    action.request))
                goes_on = false;
            break;
        case FEDGE_CONN_REPLACED:
            tell_replaced(peer);
            break;
        case FEDGE_CONN_PAUSE:
        case FEDGE_CONN_RESUME:
            pause_reading(peer, action.type == FEDGE_CONN_PAUSE);
            break;
        case FEDGE_CONN_WAIT:
            queue_for_room(peer);
            break;
        case FEDGE_CONN_WRITE:
            lws_callback_on_writable(peer->wsi);
            break;
        case FEDGE_CONN_DROP:
            fedge_peer_drop(peer);
        }
    }
    return goes_on;
}

void fedge_peer_carry_out(fedge_peer *peer)
{
    if (!carry_out(peer)) {
        const fedge_reply pause = {.type = FEDGE_REPLY_PAUSE};
        fedge_conn_take(peer->conn, &pause, fedge_os_monotonic_ms());
        (void)carry_out(peer); /* which posts nothing */
    }
}

int fedge_peer_receive(fedge_peer *peer, struct lws *wsi, const uint8_t *data, size_t size)
{
    if (!peer->conn)
        return -1;
    if (peer->frames.closed)
        return 0; /* RFC 6455, 5.5.1: nothing comes behind a close frame */
    peer->heard_ms = fedge_os_monotonic_ms();
    if (lws_frame_is_binary(wsi)) {
        bool final = lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0;
        fedge_conn_receive(peer->conn, data, size, final, peer->heard_ms);
        fedge_peer_carry_out(peer);
    } else if (!peer->text_refused) {
        peer->text_refused = true;
        fedge_conn_receive_text(peer->conn, peer->heard_ms);
        fedge_peer_carry_out(peer);
    }
    return 0;
}

/* It sent a frame that no websocket's client may: nothing of it counts any more. */
static void broke_rules(fedge_peer *peer, const char *why)
{
    if (peer->conn) {
        fedge_conn_broke_rules(peer->conn, why);
        fedge_peer_carry_out(peer);
        fedge_peer_end_conn(peer);
    }
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */

/* libwebsockets' parser of the frames that a client sends, which the linker calls through the
 * function below (--wrap, checked against 4.3.5, lib/roles/ws): [processed] is 0 when [byte] is the
 * next of a header or of a control frame. */
int __real_lws_ws_rx_sm(struct lws *wsi, char processed, unsigned char byte);
int __wrap_lws_ws_rx_sm(struct lws *wsi, char processed, unsigned char byte);

int __wrap_lws_ws_rx_sm(struct lws *wsi, char processed, unsigned char byte)
{
    fedge_peer *peer = lws_get_opaque_user_data(wsi);
    if (!peer || processed)
        return __real_lws_ws_rx_sm(wsi, processed, byte);
    if (peer->frames.failed)
        return 0; /* passed over, until the close frame is on its way */
    const char *why = NULL;
    int status = fedge_ws_frames_take(&peer->frames, byte, &why);
    if (status == 0)
        return __real_lws_ws_rx_sm(wsi, processed, byte);
    broke_rules(peer, why);
    lws_close_reason(wsi, (enum lws_close_status)status, NULL, 0);
    return -1;
}

/* NOLINTEND(bugprone-reserved-identifier) */
