#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/ssl.h>

#include "aggregator/net/transport_internal.h"
#include "edge/core/os.h"

#define ACCEPT_BATCH 64 /* connections accepted per event */

/* libwebsockets' log callback has no context pointer. */
static const fedge_log *lws_log;

static void log_lws(int level, const char *line)
{
    (void)level;
    char text[256];
    snprintf(text, sizeof(text), "%.*s", (int)strcspn(line, "\n"), line);
    FEDGE_LOG(lws_log, FEDGE_LOG_DEBUG, "libwebsockets", fedge_log_str("text", text));
}

/* libwebsockets' default allocator updates a counter that all threads share. */
static void *reallocate(void *memory, size_t size, const char *reason)
{
    (void)reason;
    if (size > 0)
        return realloc(memory, size);
    free(memory);
    return NULL;
}

/* Initializes what libraries set up on first use, before there are several threads. */
static void prepare_libraries(const fedge_log *log)
{
    lws_log = log;
    lws_set_log_level(LLL_ERR | LLL_WARN, log_lws);
    lws_set_allocator(reallocate);
    (void)mbedtls_ssl_list_ciphersuites();
}

/* ---- accepting ------------------------------------------------------------------------------- */

/* Closes the oldest idle connection of the HTTP port, so that silent ones cannot keep others out.
 * False if there is none. */
static bool evict_silent_http(fedge_transport *transport)
{
    fedge_peer *peer = transport->http->clients.first;
    while (peer && fedge_socket_silent_ms(peer->socket) == 0)
        peer = peer->next;
    if (peer)
        lws_set_timeout(peer->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_SYNC);
    return peer;
}

static void take_http(fedge_transport *transport, int socket, const fedge_peer_address *from)
{
    char reason[96];
    char address[FEDGE_ADDRESS_TEXT];
    fedge_peer *peer = NULL;
    if (transport->http->clients.count >= FEDGE_HTTP_MAX_CONNECTIONS &&
        !evict_silent_http(transport)) {
        snprintf(reason, sizeof(reason), "%u connections are open, the limit of the HTTP port",
                 FEDGE_HTTP_MAX_CONNECTIONS);
        fedge_peers_refused(transport->config.peers, fedge_peer_address_text(from, address), "",
                            reason, fedge_os_monotonic_ms());
    } else {
        peer = fedge_peer_new(transport->http, socket, from, NULL);
    }
    if (peer)
        fedge_peer_adopt(peer);
    else
        fedge_listener_close(socket);
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
            /* The event would repeat at once: the next tick resumes listening. */
            fedge_log_failure(transport->config.log, FEDGE_LOG_ERROR, "cannot-accept", &err);
            ev_io_stop(loop, watcher);
            transport->out_of_files = true;
            return;
        }
        if (socket < 0)
            return;
        if (on_http)
            take_http(transport, socket, &from);
        else
            fedge_admission_take(transport, socket, &from);
    }
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void watch(ev_io *watcher, int listener, fedge_transport *transport)
{
    ev_io_init(watcher, on_connection, listener, EV_READ);
    watcher->data = transport;
}

static fedge_status open_listeners(fedge_transport *transport, fedge_error *err)
{
    const fedge_transport_config *config = &transport->config;
    FEDGE_TRY(fedge_listener_open(&config->listen, "--listen", &transport->clients_listener,
                                  &transport->clients_port, err));
    if (config->http_on) {
        FEDGE_TRY(fedge_listener_open(&config->http, "--http", &transport->http_listener,
                                      &transport->http_port, err));
    }
    watch(&transport->clients_watcher, transport->clients_listener, transport);
    watch(&transport->http_watcher, transport->http_listener, transport);
    return FEDGE_OK;
}

static fedge_status make_networks(fedge_transport *transport, fedge_error *err)
{
    /* All NULL: fedge_transport_free reads them after a partial failure. */
    transport->networks = calloc(transport->config.num_threads, sizeof(fedge_network *));
    if (!transport->networks)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the transport");
    FEDGE_TRY(fedge_network_new(transport, 0, transport->config.loop, &transport->http, err));
    for (uint32_t i = 0; i < transport->config.num_threads; i++)
        FEDGE_TRY(fedge_network_new(transport, i, NULL, &transport->networks[i], err));
    return FEDGE_OK;
}

fedge_status fedge_transport_new(const fedge_transport_config *config, fedge_transport **transport,
                                 fedge_error *err)
{
    *transport = NULL;
    assert(config->num_threads >= 1 && config->num_threads <= FEDGE_MAX_NETWORK_THREADS);
    fedge_transport *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the transport");
    fresh->config = *config;
    if (fresh->config.ping_after_ms == 0)
        fresh->config.ping_after_ms = FEDGE_DEFAULT_HEARTBEAT_S * 1000;
    if (fresh->config.silent_timeout_ms == 0)
        fresh->config.silent_timeout_ms = FEDGE_SILENT_TIMEOUT_MS;
    /* A ping or its answer may be late twice. */
    if (fresh->config.silent_timeout_ms < 3 * fresh->config.ping_after_ms)
        fresh->config.silent_timeout_ms = 3 * fresh->config.ping_after_ms;
    if (fresh->config.newcomer_timeout_ms == 0)
        fresh->config.newcomer_timeout_ms = FEDGE_NEWCOMER_TIMEOUT_MS;
    pthread_mutex_init(&fresh->unauthenticated.mutex, NULL);
    fresh->clients_listener = fresh->http_listener = fresh->first_bytes_epoll = -1;
    fresh->started_ms = fedge_os_monotonic_ms();
    prepare_libraries(config->log);
    fedge_status status;
    FEDGE_TRY_OR(open_listeners(fresh, err), failed);
    FEDGE_TRY_OR(fedge_admission_open(fresh, err), failed);
    FEDGE_TRY_OR(make_networks(fresh, err), failed);
    *transport = fresh;
    return FEDGE_OK;
failed:
    fedge_transport_free(fresh);
    return status;
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
    if (!transport)
        return;
    transport->ending = true;
    stop_listening(transport);
    fedge_admission_refuse_all(transport);
    fedge_admission_close(transport);
    const uint32_t num_threads = transport->networks ? transport->config.num_threads : 0;
    /* All stop before any is freed: they share counters and the list of unauthenticated peers. */
    for (uint32_t i = 0; i < num_threads; i++)
        fedge_network_stop(transport->networks[i]);
    for (uint32_t i = 0; i < num_threads; i++)
        fedge_network_free(transport->networks[i]);
    fedge_network_free(transport->http);
    free(transport->networks);
    /* The log may be freed before libwebsockets logs again. */
    lws_set_log_level(0, NULL);
    pthread_mutex_destroy(&transport->unauthenticated.mutex);
    free(transport);
}

void fedge_transport_ports(const fedge_transport *transport, uint16_t *clients, uint16_t *http)
{
    *clients = transport->clients_port;
    *http = transport->http_port;
}

/* ---- running --------------------------------------------------------------------------------- */

static void resume_listening(fedge_transport *transport)
{
    if (!transport->ending) {
        ev_io_start(transport->config.loop, &transport->clients_watcher);
        if (transport->http_listener >= 0)
            ev_io_start(transport->config.loop, &transport->http_watcher);
    }
    transport->out_of_files = false;
}

void fedge_transport_start(fedge_transport *transport, const fedge_run_link *run)
{
    transport->run = *run;
    resume_listening(transport);
}

/* A copy for each thread but the last, which gets [reply] itself. */
static fedge_status deliver_to_all(fedge_transport *transport, fedge_reply *reply, fedge_error *err)
/* The original goes last: its receiver may free it at once. */
{
    const uint32_t last = transport->config.num_threads - 1;
    for (uint32_t i = 0; i < last; i++) {
        fedge_reply *copy = malloc(sizeof(*copy));
        if (!copy) {
            fedge_reply_free(reply);
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to answer clients");
        }
        *copy = *reply;
        if (copy->blob)
            fedge_blob_retain(copy->blob);
        fedge_mailbox_post(transport->networks[i]->replies, &copy->item);
    }
    fedge_mailbox_post(transport->networks[last]->replies, &reply->item);
    return FEDGE_OK;
}

fedge_status fedge_transport_deliver(void *transport, fedge_reply *reply, fedge_error *err)
{
    fedge_transport *self = transport;
    if (reply->conn_id == FEDGE_CONN_ALL)
        return deliver_to_all(self, reply, err);
    const uint32_t thread = fedge_slots_tag(reply->conn_id) - self->config.first_tag;
    assert(thread < self->config.num_threads);
    fedge_mailbox_post(self->networks[thread]->replies, &reply->item);
    return FEDGE_OK;
}

void fedge_transport_tick(fedge_transport *transport, uint64_t now_ms)
{
    if (transport->out_of_files)
        resume_listening(transport);
    fedge_peers_tick(transport->config.peers, now_ms);
    fedge_admission_tick(transport, now_ms);
    transport->http->nudge = true;
}

void fedge_transport_reload(fedge_transport *transport)
{
    fedge_error err;
    const fedge_log *log = transport->config.log;
    if (fedge_peers_reload(transport->config.peers, &err) != FEDGE_OK) {
        fedge_log_failure(log, FEDGE_LOG_ERROR, "reload-failed", &err);
    } else {
        const fedge_registry_counts counts = fedge_peers_count(transport->config.peers);
        FEDGE_LOG(log, FEDGE_LOG_INFO, "reloaded",
                  fedge_log_int("devices", fedge_peers_num_devices(transport->config.peers)),
                  fedge_log_int("active", counts.active), fedge_log_int("pending", counts.pending),
                  fedge_log_int("revoked", counts.revoked));
    }
    /* Each thread rechecks its connections. */
    for (uint32_t i = 0; i < transport->config.num_threads; i++) {
        atomic_store(&transport->networks[i]->must_recheck, true);
        fedge_network_wake(transport->networks[i]);
    }
}

void fedge_transport_close_all(fedge_transport *transport, fedge_message_type type,
                               fedge_reason reason, uint64_t after_ms, const char *text)
{
    fedge_farewell *last = &transport->farewell;
    assert(!transport->ending);
    transport->ending = true;
    stop_listening(transport);
    fedge_admission_refuse_all(transport);
    /* Written before must_close is set, which publishes it. */
    *last = (fedge_farewell){.type = type, .reason = reason, .after_ms = after_ms};
    snprintf(last->text, sizeof(last->text), "%s", text);
    for (uint32_t i = 0; i < transport->config.num_threads; i++) {
        atomic_store(&transport->networks[i]->must_close, true);
        fedge_network_wake(transport->networks[i]);
    }
}
