/* A connection on its network thread: adoption, certificate, upgrade, sending and receiving. */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/net/transport_internal.h"
#include "edge/core/os.h"

static fedge_peers *peers_of(const fedge_peer *peer)
{
    return peer->network->transport->config.peers;
}

static const fedge_log *log_of(const fedge_peer *peer)
{
    return peer->network->transport->config.log;
}

/* Writes a line that the device caused, within its limits. */
static void write_limited(void *user, const char *line, size_t size)
{
    fedge_peer *peer = user;
    const fedge_log *log = log_of(peer);
    if (fedge_peers_may_log(peers_of(peer), fedge_conn_match(peer->conn), &peer->lines,
                            fedge_os_monotonic_ms()))
        log->write(log->user, line, size);
}

void fedge_peer_adopt(fedge_peer *peer)
{
    fedge_network *network = peer->network;
    assert(!peer->wsi && !peer->list && !network->adopting);
    const bool on_http = !peer->unauthenticated;
    lws_adopt_desc_t adoption = {.vh = network->vhost,
                                 .type = LWS_ADOPT_SOCKET | LWS_ADOPT_HTTP |
                                         (on_http ? 0 : LWS_ADOPT_ALLOW_SSL),
                                 .fd.sockfd = peer->socket,
                                 .opaque = peer};
    /* The peer joins its list first: libwebsockets may call back from within the call and end it.
     * fedge_peer_forget clears [adopting] then, and [peer] is freed. */
    fedge_peer_append(on_http ? &network->clients : &network->newcomers, peer);
    network->adopting = peer;
    struct lws *wsi = lws_adopt_descriptor_vhost_via_info(&adoption);
    if (network->adopting == peer) {
        network->adopting = NULL;
        peer->wsi = wsi;
        if (!wsi)
            fedge_peer_forget(peer);
    }
}

/* ---- what its fedge_conn wants done ---------------------------------------------------------- */

static void pause_reading(fedge_peer *peer, bool paused)
{
    peer->paused = paused;
    peer->heard_ms = fedge_os_monotonic_ms();
    lws_rx_flow_control(peer->wsi, !paused);
    /* Bytes that are already decrypted trigger no socket event. */
    peer->network->nudge = true;
}

static void log_replaced(const fedge_peer *peer)
{
    fedge_peers_displaced(peer->network->transport->config.peers, fedge_conn_match(peer->conn),
                          &peer->address, fedge_os_monotonic_ms());
}

static void queue_for_memory(fedge_peer *peer)
{
    fedge_network *network = peer->network;
    if (peer->waits)
        return; /* its earlier frame has ended; the next one keeps its position */
    if (!network->first_waiting)
        network->last_waiting = &network->first_waiting;
    peer->waits = true;
    peer->next_waiting = NULL;
    *network->last_waiting = peer;
    network->last_waiting = &peer->next_waiting;
}

void fedge_network_resume_waiting(fedge_network *network)
{
    for (fedge_peer *peer = network->first_waiting; peer; peer = network->first_waiting) {
        if (peer->conn && !fedge_conn_reserve_frame(peer->conn, fedge_os_monotonic_ms()))
            break;
        network->first_waiting = peer->next_waiting;
        peer->waits = false;
        if (peer->conn)
            fedge_peer_carry_out(peer);
    }
}

/* False: the engine is overloaded, and this peer should pause. */
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
            log_replaced(peer);
            break;
        case FEDGE_CONN_PAUSE:
        case FEDGE_CONN_RESUME:
            pause_reading(peer, action.type == FEDGE_CONN_PAUSE);
            break;
        case FEDGE_CONN_WAIT:
            queue_for_memory(peer);
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
        (void)carry_out(peer); /* pausing posts nothing */
    }
}

/* ---- certificates ---------------------------------------------------------------------------- */

static fedge_status check_chain(const fedge_peer *peer, uint64_t now_unix_ms, fedge_error *err)
{
    return fedge_chain_check(fedge_peers_tls(peers_of(peer)), &peer->chain, now_unix_ms, err);
}

/* Replaces the certificate: a handshake without one succeeds only if the ticket is the peer's. */
static fedge_status check_ticket(fedge_peer *peer, fedge_registry_match *match, fedge_error *err)
{
    const fedge_ticket_owner *owner = peer->ticket;
    FEDGE_TRY(fedge_peers_admit_resumed(peers_of(peer), owner, match, err));
    memcpy(peer->fingerprint, owner->fingerprint, sizeof(peer->fingerprint));
    peer->chain = owner->chain;
    peer->chain_known = true;
    return check_chain(peer, fedge_peers_now_ms(peers_of(peer)), err);
}

/* TLS has verified the certificate; the registry identifies its owner. */
static fedge_status check_certificate(fedge_peer *peer, struct lws *wsi,
                                      fedge_registry_match *match, fedge_error *err)
{
    union lws_tls_cert_info_results *info = peer->network->certificate;
    *match = (fedge_registry_match){0};
    if (lws_is_ssl(wsi) && peer->ticket &&
        lws_tls_peer_cert_info(wsi, LWS_TLS_CERT_INFO_VERIFIED, info, 0) != 0)
        return check_ticket(peer, match, err);
    free(peer->ticket); /* the certificate was sent after all */
    peer->ticket = NULL;
    if (!lws_is_ssl(wsi) || !peer->chain_known ||
        lws_tls_peer_cert_info(wsi, LWS_TLS_CERT_INFO_VERIFIED, info, 0) != 0 || !info->verified)
        return fedge_fail(err, FEDGE_DENIED, "no verified certificate");
    if (lws_tls_peer_cert_info(wsi, LWS_TLS_CERT_INFO_DER_RAW, info, FEDGE_MAX_CERTIFICATE_SIZE) !=
        0) {
        return fedge_fail(err, FEDGE_DENIED, "the certificate is over %u bytes",
                          FEDGE_MAX_CERTIFICATE_SIZE);
    }
    FEDGE_TRY(fedge_peers_admit(peers_of(peer), (const uint8_t *)info->ns.name,
                                (size_t)info->ns.len, peer->fingerprint, match, err));
    /* The roots may have changed since the handshake. */
    return check_chain(peer, fedge_peers_now_ms(peers_of(peer)), err);
}

/* The device is still admitted and its chain still trusted. */
static fedge_status check_admission(const fedge_peer *peer, uint64_t now_unix_ms, fedge_error *err)
{
    FEDGE_TRY(
        fedge_peers_recheck(peers_of(peer), peer->fingerprint, fedge_conn_match(peer->conn), err));
    return check_chain(peer, now_unix_ms, err);
}

void fedge_peer_recheck_admission(fedge_peer *peer, uint64_t now_unix_ms)
{
    fedge_error err;
    const fedge_registry_match *match = fedge_conn_match(peer->conn);
    const fedge_status status = check_admission(peer, now_unix_ms, &err);
    if (status == FEDGE_OK || fedge_conn_is_closing(peer->conn))
        return;
    FEDGE_LOG(log_of(peer), FEDGE_LOG_WARN,
              status == FEDGE_EXPIRED  ? "client-expired"
              : status == FEDGE_DENIED ? "client-not-trusted"
                                       : "client-revoked",
              fedge_log_str("device", match->device_id), fedge_log_str("name", match->name),
              fedge_log_str("reason", err.message));
    fedge_conn_close(peer->conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_REVOKED, 0, err.message,
                     fedge_os_monotonic_ms());
    fedge_peer_carry_out(peer);
}

/* Refuses a certificate in the log, and with HTTP 403 to the peer. */
static int refuse_certificate(fedge_peer *peer, struct lws *wsi, const fedge_registry_match *match,
                              const fedge_error *err)
{
    char address[FEDGE_ADDRESS_TEXT];
    char who[FEDGE_NAME_SIZE + FEDGE_UUID_TEXT + 4] = "";
    if (match->device_id[0])
        snprintf(who, sizeof(who), "%s (%s)", match->name, match->device_id);
    fedge_peers_refused(peers_of(peer), fedge_peer_address_text(&peer->address, address), who,
                        err->message, fedge_os_monotonic_ms());
    return fedge_http_send_text(peer->network, wsi, 403, err->message);
}

static int refuse_over_limit(fedge_peer *peer, struct lws *wsi, const fedge_registry_match *match)
{
    char address[FEDGE_ADDRESS_TEXT];
    char reason[96];
    snprintf(reason, sizeof(reason), "%u connections are open, the limit (--max-connections)",
             peer->network->transport->config.max_connections);
    fedge_peers_refused(peers_of(peer), fedge_peer_address_text(&peer->address, address),
                        match->name, reason, fedge_os_monotonic_ms());
    return fedge_http_send_text(peer->network, wsi, 503, reason);
}

/* A header's value; "" if it is missing, "?" if it is too long, which no check accepts. */
static const char *header_of(struct lws *wsi, enum lws_token_indexes token, char *out, int size)
{
    int length = lws_hdr_copy(wsi, out, size, token);
    if (length <= 0)
        snprintf(out, (size_t)size, "%s", length < 0 ? "?" : "");
    return out;
}

/* Checks an upgrade by RFC 6455 (4.2.1) and fedge.v1, since libwebsockets accepts nearly anything.
 * Returns 0, or the HTTP status of the refusal and *why. */
static unsigned check_upgrade(struct lws *wsi, const char *subprotocol, const char **why)
{
    char text[160];
    char host[FEDGE_HTTP_MAX_HOST];
    char *path = NULL;
    int path_size = 0;
    if (lws_http_get_uri_and_method(wsi, &path, &path_size) != LWSHUMETH_GET) {
        *why = "an upgrade must be a GET";
        return 405;
    }
    if (strcmp(header_of(wsi, WSI_TOKEN_HTTP, text, sizeof(text)), "HTTP/1.1") != 0) {
        *why = "an upgrade needs HTTP/1.1";
        return 505;
    }
    if (path_size != 1 || path[0] != '/' ||
        lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_URI_ARGS) > 0) {
        *why = "websockets are at the path /";
        return 404;
    }
    if (!fedge_http_host_of(wsi, host) ||
        !fedge_ws_has_token(header_of(wsi, WSI_TOKEN_CONNECTION, text, sizeof(text)), "upgrade")) {
        *why = "an upgrade needs one Host, well-formed, and Connection: Upgrade";
        return 400;
    }
    if (strcmp(header_of(wsi, WSI_TOKEN_VERSION, text, sizeof(text)), "13") != 0) {
        *why = "the websocket version here is 13";
        return 426;
    }
    if (!fedge_ws_key_valid(header_of(wsi, WSI_TOKEN_KEY, text, sizeof(text)))) {
        *why = "Sec-WebSocket-Key must be 16 bytes in base64";
        return 400;
    }
    /* libwebsockets selects the first protocol if this one is missing or empty. */
    if (!subprotocol || !fedge_ws_has_token(subprotocol, FEDGE_SUBPROTOCOL)) {
        *why = "the upgrade must name the subprotocol " FEDGE_SUBPROTOCOL;
        return 400;
    }
    return 0;
}

/* Admits a client at its upgrade, before any message. */
static int admit(fedge_peer *peer, struct lws *wsi, const char *subprotocol)
{
    fedge_network *network = peer->network;
    fedge_transport *transport = network->transport;
    fedge_registry_match match;
    fedge_error err;
    /* The certificate is checked first: an unknown peer learns nothing else. */
    if (check_certificate(peer, wsi, &match, &err) != FEDGE_OK)
        return refuse_certificate(peer, wsi, &match, &err);
    const char *why = NULL;
    unsigned status = check_upgrade(wsi, subprotocol, &why);
    if (status != 0)
        return fedge_http_send_text(peer->network, wsi, status, why);
    if (network->ending)
        return fedge_http_send_text(peer->network, wsi, 503, "shutting down");
    const fedge_transport_config *config = &transport->config;
    /* Add before comparing: other threads admit at the same time. */
    const uint32_t count = atomic_fetch_add(&transport->num_clients, 1);
    peer->over_limit = count >= config->max_connections;
    if (peer->over_limit &&
        (!config->redirect || count - config->max_connections >= FEDGE_REDIRECT_CONNECTIONS)) {
        atomic_fetch_sub(&transport->num_clients, 1);
        return refuse_over_limit(peer, wsi, &match);
    }
    peer->admitted = true; /* counted until fedge_peer_forget */
    uint64_t now_ms = fedge_os_monotonic_ms();
    peer->log = *transport->config.log;
    peer->log.write = transport->config.log->write ? write_limited : NULL;
    peer->log.user = peer;
    peer->wsi = wsi;
    peer->heard_ms = now_ms;
    const uint64_t id = fedge_slots_take(&network->slots, peer);
    if (fedge_conn_new(&peer->conn, id, &match, transport->run.traffic, &network->budget, now_ms,
                       &err) != FEDGE_OK) {
        fedge_slots_give_back(&network->slots, id);
        fedge_log_failure(transport->config.log, FEDGE_LOG_ERROR, "client-not-accepted", &err);
        return fedge_http_send_text(peer->network, wsi, 503, err.message);
    }
    fedge_conn_set_redirect(peer->conn, config->redirect);
    /* The limits of clients replace those of unauthenticated peers. */
    fedge_peer_take_out(peer);
    fedge_peer_append(&network->clients, peer);
    fedge_peer_end_unauthenticated(peer);
    fedge_peers_connected(transport->config.peers, &match, &peer->address);
    char address[FEDGE_ADDRESS_TEXT];
    FEDGE_LOG(&peer->log, FEDGE_LOG_INFO, "client-connected",
              fedge_log_str("device", match.device_id), fedge_log_int("client", match.index),
              fedge_log_str("name", match.name),
              fedge_log_str("address", fedge_peer_address_text(&peer->address, address)),
              fedge_log_str("handshake", peer->ticket ? "resumed" : "full"));
    free(peer->ticket);
    peer->ticket = NULL;
    return 0;
}

/* The first moment at which a message, such as a redirection, can be sent. */
static int established(fedge_peer *peer)
{
    if (peer->conn && peer->over_limit) {
        fedge_conn_close(peer->conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_BUSY, 0,
                         "the limit of connections is reached here (--max-connections)",
                         fedge_os_monotonic_ms());
        fedge_peer_carry_out(peer);
    }
    return 0;
}

static int answer_plain(fedge_peer *peer, struct lws *wsi)
{
    fedge_registry_match match;
    fedge_error err;
    if (check_certificate(peer, wsi, &match, &err) != FEDGE_OK)
        return refuse_certificate(peer, wsi, &match, &err);
    return fedge_http_send_text(peer->network, wsi, 404,
                                "this port speaks websockets, subprotocol " FEDGE_SUBPROTOCOL);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Writes the next frame to [out] and returns its size; negative: close the connection. */
static int next_frame(fedge_peer *peer, uint8_t *out)
{
    fedge_conn_chunk chunk;
    fedge_error err;
    if (fedge_conn_next_chunk(peer->conn, &chunk) &&
        fedge_blob_read(chunk.blob, chunk.offset, out + chunk.at, chunk.size, &err) != FEDGE_OK) {
        fedge_log_failure(&peer->log, FEDGE_LOG_ERROR, "blob-not-read", &err);
        return -1;
    }
    const size_t size = fedge_conn_next_frame(peer->conn, out);
    fedge_peer_carry_out(peer);
    return (int)size;
}

/* Sends one frame per call, so that a partly sent one is never mixed with another. */
static int write_next(fedge_peer *peer, struct lws *wsi)
{
    uint8_t *out = peer->network->out + LWS_PRE;
    if (!peer->conn)
        return -1;
    if (peer->ping_due) {
        peer->ping_due = false;
        out[0] = 'f'; /* libwebsockets does not report a pong without payload */
        if (lws_write(wsi, out, 1, LWS_WRITE_PING) < 1)
            return -1;
    } else {
        const int size = next_frame(peer, out);
        if (size < 0 || (size > 0 && fedge_peer_write(wsi, out, (size_t)size) < size))
            return -1;
        if (peer->dropping)
            return 0; /* it is closed before the loop waits again */
    }
    if (fedge_conn_should_close(peer->conn)) {
        lws_close_reason(wsi, LWS_CLOSE_STATUS_NORMAL, NULL, 0);
        return -1;
    }
    if (fedge_conn_has_frames(peer->conn))
        lws_callback_on_writable(wsi);
    return 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static int receive(fedge_peer *peer, struct lws *wsi, const uint8_t *data, size_t size)
{
    if (!peer->conn)
        return -1;
    if (peer->frames.closed)
        return 0; /* RFC 6455, 5.5.1: data after a close frame is ignored */
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

/* Ends the fedge_conn of a peer that violated the websocket protocol. */
static void broke_rules(fedge_peer *peer, const char *why)
{
    if (peer->conn) {
        fedge_conn_broke_rules(peer->conn, why);
        fedge_peer_carry_out(peer);
        fedge_peer_end_conn(peer);
    }
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */

/* libwebsockets' parser of client frames. The linker redirects its calls to the function below
 * (--wrap, checked against 4.3.5, lib/roles/ws). [processed] is 0 if [byte] belongs to a header or
 * a control frame. */
int __real_lws_ws_rx_sm(struct lws *wsi, char processed, unsigned char byte);
int __wrap_lws_ws_rx_sm(struct lws *wsi, char processed, unsigned char byte);

int __wrap_lws_ws_rx_sm(struct lws *wsi, char processed, unsigned char byte)
{
    fedge_peer *peer = lws_get_opaque_user_data(wsi);
    if (!peer || processed)
        return __real_lws_ws_rx_sm(wsi, processed, byte);
    if (peer->frames.failed)
        return 0; /* skipped until the close frame is sent */
    const char *why = NULL;
    int status = fedge_ws_frames_take(&peer->frames, byte, &why);
    if (status == 0)
        return __real_lws_ws_rx_sm(wsi, processed, byte);
    broke_rules(peer, why);
    lws_close_reason(wsi, (enum lws_close_status)status, NULL, 0);
    return -1;
}

/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- callbacks ------------------------------------------------------------------------------- */

void fedge_peer_tick(fedge_peer *peer, uint64_t now_ms, uint64_t now_unix_ms)
{
    const fedge_transport_config *config = &peer->network->transport->config;
    /* Recheck at once, not with the next round of checks. */
    if (now_unix_ms > peer->chain.not_after_ms)
        fedge_peer_recheck_admission(peer, now_unix_ms);
    fedge_conn_tick(peer->conn, now_ms);
    fedge_peer_carry_out(peer);
    /* A paused peer is not read, so its silence means nothing. */
    if (peer->paused || peer->dropping || now_ms < peer->heard_ms + config->ping_after_ms)
        return;
    if (now_ms >= peer->heard_ms + config->silent_timeout_ms) {
        FEDGE_LOG(&peer->log, FEDGE_LOG_WARN, "client-silent",
                  fedge_log_str("device", fedge_conn_match(peer->conn)->device_id),
                  fedge_log_num("seconds", (double)(now_ms - peer->heard_ms) / 1000.0));
        fedge_peer_drop(peer);
        /* One ping at a time; the answer may take until the time limit. */
    } else if (now_ms >= peer->pinged_ms + config->ping_after_ms) {
        peer->pinged_ms = now_ms;
        peer->ping_due = true;
        lws_callback_on_writable(peer->wsi);
    }
}

int fedge_peer_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size)
{
    (void)user;
    fedge_peer *peer = lws_get_opaque_user_data(wsi);
    switch ((int)reason) {
    case LWS_CALLBACK_HTTP:
        return peer ? answer_plain(peer, wsi) : -1;
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return peer ? admit(peer, wsi, in) : -1;
    case LWS_CALLBACK_ESTABLISHED:
        return peer ? established(peer) : -1;
    case LWS_CALLBACK_RECEIVE:
        return peer ? receive(peer, wsi, in, size) : -1;
    case LWS_CALLBACK_RECEIVE_PONG:
        if (peer)
            peer->heard_ms = fedge_os_monotonic_ms();
        return 0;
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return peer ? write_next(peer, wsi) : -1;
    case LWS_CALLBACK_CLOSED:
        if (peer)
            fedge_peer_end_conn(peer);
        return 0;
    case LWS_CALLBACK_WSI_DESTROY:
        if (peer) {
            lws_set_opaque_user_data(wsi, NULL);
            fedge_peer_forget(peer);
        }
        return 0;
    default:
        return 0;
    }
}
