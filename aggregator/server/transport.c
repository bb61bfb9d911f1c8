#define _GNU_SOURCE /* libwebsockets.h needs more than C11; explicit_bzero */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/server/transport_internal.h"
#include "edge/core/os.h"
#include "secure/identity/tls.h"

#define ACCEPT_BATCH 64           /* connections taken before others have their turn again */
#define SERVICE_BUFFER_SIZE 32768 /* of libwebsockets, for all connections */
#define RECEIVE_SIZE 4096         /* of libwebsockets, for each connection */

/* libwebsockets' log callback has no context. */
static const fedge_log *lws_log;

static void log_lws(int level, const char *line)
{
    (void)level;
    char text[256];
    snprintf(text, sizeof(text), "%.*s", (int)strcspn(line, "\n"), line);
    FEDGE_LOG(lws_log, FEDGE_LOG_DEBUG, "libwebsockets", fedge_log_str("text", text));
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Before the loop waits: carries out what could not be done inside callbacks. */
static void end_dropped(struct ev_loop *loop, ev_prepare *watcher, int events)
{
    (void)loop, (void)events;
    fedge_transport *transport = watcher->data;
    while (transport->drops) {
        fedge_peer *peer = transport->drops;
        transport->drops = peer->next_drop;
        peer->next_drop = NULL;
        fedge_peer_end_conn(peer);
        lws_set_timeout(peer->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_SYNC);
        transport->nudge = true;
    }
    if (transport->nudge) {
        transport->nudge = false;
        lws_cancel_service(transport->context);
    }
}

static void take_http(fedge_transport *transport, int socket, const fedge_peer_address *from)
{
    char reason[96];
    char address[FEDGE_ADDRESS_TEXT];
    fedge_peer *peer = NULL;
    if (transport->http.count >= FEDGE_HTTP_MAX_CONNECTIONS) {
        snprintf(reason, sizeof(reason), "%u connections are open, the limit of the HTTP port",
                 FEDGE_HTTP_MAX_CONNECTIONS);
        fedge_peers_refused(transport->config.peers, fedge_peer_address_text(from, address), "",
                            reason, fedge_os_monotonic_ms());
    } else {
        peer = fedge_peer_new(transport, socket, from, true);
    }
    if (peer) {
        fedge_peer_adopt(peer);
    } else {
        fedge_listener_close(socket);
    }
}

static void on_connection(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    fedge_transport *transport = watcher->data;
    bool on_http = watcher == &transport->http_watcher;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int socket = -1;
        fedge_peer_address from;
        fedge_error err;
        if (fedge_listener_accept(watcher->fd, &socket, &from, &err) != FEDGE_OK) {
            /* The event would come again at once: the next tick listens again. */
            fedge_log_failure(transport->config.log, FEDGE_LOG_ERROR, "cannot-accept", &err);
            ev_io_stop(loop, watcher);
            transport->out_of_files = true;
            return;
        }
        if (socket < 0) {
            return;
        }
        if (on_http) {
            take_http(transport, socket, &from);
        } else {
            fedge_door_enter(transport, socket, &from);
        }
    }
}

/* A handshake failed: no callback of libwebsockets says why. */
static void on_handshake_refused(void *user, const char *subject, const char *reason)
{
    fedge_transport *transport = user;
    int socket = fedge_tls_refused_socket();
    const fedge_peer *peer = fedge_peer_find(&transport->newcomers, socket);
    if (!peer) { /* refused by the peer, once it was let in */
        peer = fedge_peer_find(&transport->clients, socket);
    }
    char address[FEDGE_ADDRESS_TEXT] = "";
    if (peer) {
        fedge_peer_address_text(&peer->address, address);
    }
    fedge_peers_refused(transport->config.peers, address, subject, reason, fedge_os_monotonic_ms());
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* libwebsockets passes memory that does not begin like PEM on to mbedTLS, which reads PEM with a
 * newline in front as well: the other way, its own decoder would fail on a chain. */
static char *copy_pem(const char *pem, size_t *size)
{
    *size = strlen(pem) + 1;
    char *copy = malloc(*size + 1);
    if (copy) {
        copy[0] = '\n';
        memcpy(copy + 1, pem, *size);
    }
    return copy;
}

static const struct lws_protocols CLIENT_PROTOCOLS[] = {
    {.name = FEDGE_SUBPROTOCOL, .callback = fedge_peer_callback, .rx_buffer_size = RECEIVE_SIZE},
    {.name = NULL},
};
static const struct lws_protocols HTTP_PROTOCOLS[] = {
    {.name = "http", .callback = fedge_http_callback, .rx_buffer_size = RECEIVE_SIZE},
    {.name = NULL},
};
/* Pings are sent by fedge_transport_tick, whose cost does not grow with the connections' timers. */
static const lws_retry_bo_t NO_PINGS = {.secs_since_valid_ping = 0};

static fedge_status make_clients_vhost(fedge_transport *transport, fedge_error *err)
{
    const fedge_identity *identity = fedge_peers_identity(transport->config.peers);
    size_t chain_size = 0;
    size_t key_size = 0;
    char *chain = copy_pem(identity->chain_pem, &chain_size);
    char *key = copy_pem(identity->key_pem, &key_size);
    if (chain && key) {
        struct lws_context_creation_info info = {
            .vhost_name = "clients",
            .port = CONTEXT_PORT_NO_LISTEN_SERVER,
            .protocols = CLIENT_PROTOCOLS,
            .options = LWS_SERVER_OPTION_REQUIRE_VALID_OPENSSL_CLIENT_CERT,
            .retry_and_idle_policy = &NO_PINGS,
            .server_ssl_cert_mem = chain,
            .server_ssl_cert_mem_len = (unsigned)chain_size,
            .server_ssl_private_key_mem = key,
            .server_ssl_private_key_mem_len = (unsigned)key_size + 1, /* mbedTLS wants the NUL */
        };
        transport->clients_vhost = lws_create_vhost(transport->context, &info);
    }
    if (key) {
        explicit_bzero(key, key_size);
    }
    free(chain);
    free(key);
    return transport->clients_vhost ? FEDGE_OK
                                    : fedge_fail(err, FEDGE_INTERNAL,
                                                 "the TLS port could not be set up (--log-level "
                                                 "debug shows libwebsockets' reason)");
}

static fedge_status make_vhosts(fedge_transport *transport, fedge_error *err)
{
    void *loops[] = {transport->config.loop};
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_LIBEV |
                   LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
        .foreign_loops = loops,
        .timeout_secs = FEDGE_HANDSHAKE_TIMEOUT_S,
        .pt_serv_buf_size = SERVICE_BUFFER_SIZE,
    };
    transport->context = lws_create_context(&info);
    if (!transport->context) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "libwebsockets could not be set up");
    }
    /* Another port number than the clients' host: by it libwebsockets looks hosts up. */
    struct lws_context_creation_info http = {.vhost_name = "http",
                                             .port = CONTEXT_PORT_NO_LISTEN,
                                             .protocols = HTTP_PROTOCOLS,
                                             .retry_and_idle_policy = &NO_PINGS};
    transport->http_vhost = lws_create_vhost(transport->context, &http);
    if (!transport->http_vhost) {
        return fedge_fail(err, FEDGE_INTERNAL, "the HTTP port could not be set up");
    }
    return make_clients_vhost(transport, err);
}

static void watch(ev_io *watcher, int listener, fedge_transport *transport)
{
    ev_io_init(watcher, on_connection, listener, EV_READ);
    watcher->data = transport;
}

fedge_status fedge_transport_new(const fedge_transport_config *config, fedge_transport **transport,
                                 fedge_error *err)
{
    *transport = NULL;
    fedge_transport *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the transport");
    }
    fresh->config = *config;
    if (fresh->config.ping_after_ms == 0) {
        fresh->config.ping_after_ms = FEDGE_PING_AFTER_MS;
    }
    if (fresh->config.silent_timeout_ms == 0) {
        fresh->config.silent_timeout_ms = FEDGE_SILENT_TIMEOUT_MS;
    }
    if (fresh->config.newcomer_timeout_ms == 0) {
        fresh->config.newcomer_timeout_ms = FEDGE_NEWCOMER_TIMEOUT_MS;
    }
    fresh->clients_listener = fresh->http_listener = -1;
    fresh->started_ms = fresh->judged_ms = fedge_os_monotonic_ms();
    fresh->certificate = malloc(sizeof(*fresh->certificate) + FEDGE_MAX_CERTIFICATE_SIZE);
    lws_log = config->log;
    lws_set_log_level(LLL_ERR | LLL_WARN, log_lws);
    fedge_status status = fresh->certificate
                              ? fedge_slots_init(&fresh->slots, config->max_connections, err)
                              : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the transport");
    if (status == FEDGE_OK) {
        status = fedge_listener_open(&config->listen, "--listen", &fresh->clients_listener,
                                     &fresh->clients_port, err);
    }
    if (status == FEDGE_OK && config->http_on) {
        status = fedge_listener_open(&config->http, "--http", &fresh->http_listener,
                                     &fresh->http_port, err);
    }
    if (status == FEDGE_OK) {
        watch(&fresh->clients_watcher, fresh->clients_listener, fresh);
        watch(&fresh->http_watcher, fresh->http_listener, fresh);
        ev_prepare_init(&fresh->drop_watcher, end_dropped);
        fresh->drop_watcher.data = fresh;
        status = make_vhosts(fresh, err);
    }
    if (status != FEDGE_OK) {
        fedge_transport_free(fresh);
        return status;
    }
    fedge_tls_on_refused(on_handshake_refused, fresh);
    fedge_chain_on_verified(fedge_door_on_verified, fresh);
    *transport = fresh;
    return FEDGE_OK;
}

static void stop_listening(fedge_transport *transport)
{
    ev_io_stop(transport->config.loop, &transport->clients_watcher);
    ev_io_stop(transport->config.loop, &transport->http_watcher);
    fedge_listener_close(transport->clients_listener);
    fedge_listener_close(transport->http_listener);
    transport->clients_listener = transport->http_listener = -1;
}

void fedge_transport_free(fedge_transport *transport)
{
    if (!transport) {
        return;
    }
    transport->ending = true;
    stop_listening(transport);
    fedge_door_shut(transport);
    ev_prepare_stop(transport->config.loop, &transport->drop_watcher);
    if (transport->context) {
        lws_context_destroy(transport->context);
    }
    fedge_tls_on_refused(NULL, NULL);
    fedge_chain_on_verified(NULL, NULL);
    lws_set_log_level(0, NULL);
    fedge_slots_fini(&transport->slots);
    free(transport->certificate);
    free(transport);
}

void fedge_transport_ports(const fedge_transport *transport, uint16_t *clients, uint16_t *http)
{
    *clients = transport->clients_port;
    *http = transport->http_port;
}

/* ---- running --------------------------------------------------------------------------------- */

static void listen_again(fedge_transport *transport)
{
    if (!transport->ending) {
        ev_io_start(transport->config.loop, &transport->clients_watcher);
        if (transport->http_listener >= 0) {
            ev_io_start(transport->config.loop, &transport->http_watcher);
        }
    }
    transport->out_of_files = false;
}

void fedge_transport_start(fedge_transport *transport, fedge_engine_thread *engine)
{
    transport->engine = engine;
    ev_prepare_start(transport->config.loop, &transport->drop_watcher);
    listen_again(transport);
}

static void give(fedge_peer *peer, const fedge_reply *reply, uint64_t now_ms)
{
    if (peer->conn) {
        fedge_conn_take(peer->conn, reply, now_ms);
        fedge_peer_carry_out(peer);
    }
}

void fedge_transport_take(fedge_transport *transport, const fedge_reply *reply, uint64_t now_ms)
{
    if (reply->conn_id != FEDGE_CONN_ALL) {
        fedge_peer *peer = fedge_slots_find(&transport->slots, reply->conn_id);
        if (peer) {
            give(peer, reply, now_ms);
        }
        return;
    }
    for (fedge_peer *peer = transport->clients.first; peer; peer = peer->next) {
        give(peer, reply, now_ms);
    }
}

static void judge_all(fedge_transport *transport, uint64_t now_ms)
{
    uint64_t now_unix_ms = fedge_tls_now_ms();
    transport->judged_ms = now_ms;
    for (fedge_peer *peer = transport->clients.first; peer; peer = peer->next) {
        if (peer->conn) {
            fedge_peer_judge(peer, now_unix_ms);
        }
    }
}

void fedge_transport_tick(fedge_transport *transport, uint64_t now_ms)
{
    if (transport->out_of_files) {
        listen_again(transport);
    }
    fedge_peers_tick(transport->config.peers, now_ms);
    fedge_door_tick(transport, now_ms);
    uint64_t now_unix_ms = fedge_tls_now_ms();
    for (fedge_peer *peer = transport->clients.first; peer; peer = peer->next) {
        if (peer->conn) {
            fedge_peer_tick(peer, now_ms, now_unix_ms);
        }
    }
    if (now_ms >= transport->judged_ms + FEDGE_JUDGE_EVERY_MS) {
        judge_all(transport, now_ms);
    }
    /* Timers that were set from outside libwebsockets' own callbacks start running now. */
    transport->nudge = true;
}

void fedge_transport_reload(fedge_transport *transport)
{
    fedge_error err;
    const fedge_log *log = transport->config.log;
    if (fedge_peers_reload(transport->config.peers, &err) != FEDGE_OK) {
        fedge_log_failure(log, FEDGE_LOG_ERROR, "reload-failed", &err);
        return;
    }
    FEDGE_LOG(log, FEDGE_LOG_INFO, "reloaded",
              fedge_log_int("devices", fedge_peers_num_devices(transport->config.peers)));
    judge_all(transport, fedge_os_monotonic_ms());
}

void fedge_transport_close_all(fedge_transport *transport, fedge_message_type type,
                               fedge_reason reason, uint64_t after_ms, const char *text)
{
    const uint64_t now_ms = fedge_os_monotonic_ms();
    transport->ending = true;
    stop_listening(transport);
    fedge_door_shut(transport);
    for (fedge_peer *peer = transport->clients.first; peer; peer = peer->next) {
        if (peer->conn) {
            fedge_conn_close(peer->conn, type, reason, after_ms, text, now_ms);
            fedge_peer_carry_out(peer);
        } else {
            fedge_peer_drop(peer);
        }
    }
}

uint32_t fedge_transport_num_connections(const fedge_transport *transport)
{
    return transport->newcomers.count + transport->clients.count;
}
