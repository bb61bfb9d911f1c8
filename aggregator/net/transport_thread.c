/* Network threads. Each runs TLS and websockets of its connections on a separate loop and
 * libwebsockets context, so that no two threads share a connection. */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11; explicit_bzero */

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/net/transport_internal.h"
#include "aggregator/threads/thread.h"
#include "edge/core/os.h"

#define SERVICE_BUFFER_SIZE 32768 /* libwebsockets' buffer for all connections of a thread */
#define RECEIVE_SIZE 4096         /* libwebsockets' buffer per connection */

/* ---- the loop -------------------------------------------------------------------------------- */

/* Before the loop waits: does what callbacks must not do. */
static void end_dropped(struct ev_loop *loop, ev_prepare *watcher, int events)
{
    (void)loop, (void)events;
    fedge_network *network = watcher->data;
    do {
        while (network->drops) {
            fedge_peer *peer = network->drops;
            network->drops = peer->next_drop;
            peer->next_drop = NULL;
            fedge_peer_end_conn(peer);
            lws_set_timeout(peer->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_SYNC);
            network->nudge = true;
        }
        /* A dropped connection may free memory that others wait for, and one of these may be
         * dropped in turn. */
        fedge_network_resume_waiting(network);
    } while (network->drops);
    if (network->nudge) {
        network->nudge = false;
        lws_cancel_service(network->context);
    }
}

/* ---- mailbox --------------------------------------------------------------------------------- */

static void deliver(fedge_peer *peer, const fedge_reply *reply, uint64_t now_ms)
{
    if (peer->conn) {
        fedge_conn_take(peer->conn, reply, now_ms);
        fedge_peer_carry_out(peer);
    }
}

/* Spaces the times to return, so that handshakes do not all begin together. */
static uint64_t spread(uint64_t after_ms, uint32_t *number)
{
    return after_ms > 0 ? after_ms + FEDGE_RETURN_EVERY_MS * (uint64_t)(*number)++ : 0;
}

static void deliver_to_all(fedge_network *network, fedge_reply *reply, uint64_t now_ms)
{
    uint32_t number = 0;
    const uint64_t after_ms = reply->notice.after_ms;
    for (fedge_peer *peer = network->clients.first; peer; peer = peer->next) {
        /* Only the time to return differs between connections. */
        if (reply->type == FEDGE_REPLY_CLOSE)
            reply->notice.after_ms = spread(after_ms, &number);
        deliver(peer, reply, now_ms);
    }
}

static void take_replies(fedge_network *network)
{
    const uint64_t now_ms = fedge_os_monotonic_ms();
    fedge_mailbox_item *item = fedge_mailbox_take(network->replies);
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        fedge_reply *reply = (fedge_reply *)item;
        if (reply->conn_id == FEDGE_CONN_ALL) {
            deliver_to_all(network, reply, now_ms);
        } else {
            /* The connection may have ended; its number is never reused. */
            fedge_peer *peer = fedge_slots_find(&network->slots, reply->conn_id);
            if (peer)
                deliver(peer, reply, now_ms);
        }
        fedge_reply_free(reply);
    }
}

static void refuse_arrival(fedge_peer *peer)
{
    fedge_listener_close(peer->socket);
    fedge_peer_forget(peer);
}

static void take_arrivals(fedge_network *network)
{
    fedge_mailbox_item *item = fedge_mailbox_take(network->arrivals);
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        if (network->ending) {
            refuse_arrival((fedge_peer *)item);
        } else {
            fedge_peer_append(&network->waiting, (fedge_peer *)item);
            /* In a flood only the timer begins handshakes, even on an idle thread. */
            if (!network->handshakes.flooded)
                ev_idle_start(network->loop, &network->idle_watcher);
            ev_timer_start(network->loop, &network->handshake_timer);
        }
    }
}

/* ---- handshakes begin ------------------------------------------------------------------------ */

static fedge_peer *choose_next(const fedge_network *network)
{
    const fedge_handshake_queue *queue = &network->handshakes;
    fedge_peers *peers = network->transport->config.peers;
    fedge_peer *next = NULL;
    unsigned best = UINT_MAX;
    for (fedge_peer *peer = network->waiting.first; peer && best > 0; peer = peer->next) {
        const bool known = queue->flooded && fedge_peers_has_seen(peers, &peer->address);
        const unsigned priority = fedge_handshake_priority(queue, &peer->address, known);
        if (priority < best) {
            best = priority;
            next = peer;
        }
    }
    return next;
}

/* A handshake takes milliseconds of the thread, for any peer. One begins when the thread is idle,
 * so that messages of connected devices are not delayed, and at least every
 * FEDGE_HANDSHAKE_INTERVAL_MS. */
static void begin_one(fedge_network *network)
{
    fedge_peer *next = choose_next(network);
    /* A peer that hung up while waiting costs no handshake. */
    while (next && fedge_socket_has_hung_up(next->socket)) {
        refuse_arrival(next);
        next = choose_next(network);
    }
    if (next) {
        fedge_handshake_begins(&network->handshakes, &next->address);
        fedge_admission_begin_handshake(next);
        fedge_peer_take_out(next);
        fedge_peer_adopt(next);
    }
    /* An idle watcher without work would keep the loop busy. */
    if (!network->waiting.first) {
        ev_idle_stop(network->loop, &network->idle_watcher);
        ev_timer_stop(network->loop, &network->handshake_timer);
    }
}

static void judge_flood(fedge_network *network)
{
    fedge_handshake_second_over(&network->handshakes);
    if (!network->handshakes.flooded && network->waiting.first)
        ev_idle_start(network->loop, &network->idle_watcher);
}

static void on_idle(struct ev_loop *loop, ev_idle *watcher, int events)
{
    (void)loop, (void)events;
    begin_one(watcher->data);
}

static void on_handshake_timer(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop, (void)events;
    begin_one(watcher->data);
}

static void refuse_waiting(fedge_network *network, bool all)
{
    for (fedge_peer *peer = network->waiting.first, *next; peer; peer = next) {
        next = peer->next;
        if (all || fedge_admission_is_evicted(peer))
            refuse_arrival(peer);
    }
}

static void recheck_all(fedge_network *network, uint64_t now_ms)
{
    const uint64_t now_unix_ms = fedge_peers_now_ms(network->transport->config.peers);
    network->rechecked_ms = now_ms;
    for (fedge_peer *peer = network->clients.first; peer; peer = peer->next) {
        if (peer->conn)
            fedge_peer_recheck_admission(peer, now_unix_ms);
    }
}

static void close_all(fedge_network *network)
{
    const uint64_t now_ms = fedge_os_monotonic_ms();
    const fedge_farewell *last = &network->transport->farewell;
    uint32_t number = 0;
    network->ending = true;
    refuse_waiting(network, true);
    for (fedge_peer *peer = network->newcomers.first, *next; peer; peer = next) {
        next = peer->next;
        if (peer->wsi)
            fedge_peer_drop(peer);
    }
    for (fedge_peer *peer = network->clients.first; peer; peer = peer->next) {
        if (peer->conn) {
            /* A peer that has sent no request gets no answer. */
            fedge_conn_close(peer->conn, last->type, last->reason, spread(last->after_ms, &number),
                             last->text, now_ms);
            fedge_peer_carry_out(peer);
        } else {
            fedge_peer_drop(peer);
        }
    }
}

static void on_mailbox(struct ev_loop *loop, ev_async *watcher, int events)
{
    (void)events;
    fedge_network *network = watcher->data;
    /* Read the flag first: replies posted before it must be delivered. */
    const bool must_close = atomic_exchange(&network->must_close, false);
    take_arrivals(network);
    if (atomic_exchange(&network->must_evict, false)) {
        refuse_waiting(network, false);
        fedge_admission_drop_evicted(network);
    }
    take_replies(network);
    if (atomic_exchange(&network->must_recheck, false))
        recheck_all(network, fedge_os_monotonic_ms());
    if (must_close)
        close_all(network);
    /* Stop last, after everything posted before it. */
    if (atomic_load(&network->must_stop))
        ev_break(loop, EVBREAK_ALL);
}

static void on_tick(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop, (void)events;
    fedge_network *network = watcher->data;
    const uint64_t now_ms = fedge_os_monotonic_ms();
    const uint64_t now_unix_ms = fedge_peers_now_ms(network->transport->config.peers);
    judge_flood(network);
    fedge_admission_check_silence(network, now_ms);
    for (fedge_peer *peer = network->clients.first; peer; peer = peer->next) {
        if (peer->conn)
            fedge_peer_tick(peer, now_ms, now_unix_ms);
    }
    /* Certificates and roots expire without a reload. */
    if (now_ms >= network->rechecked_ms + FEDGE_RECHECK_EVERY_MS)
        recheck_all(network, now_ms);
    /* Starts timers that were set outside libwebsockets' callbacks. */
    network->nudge = true;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Logs a failed handshake; libwebsockets' callbacks do not report the reason. */
static void on_handshake_refused(void *user, int socket, const char *subject, const char *reason)
{
    fedge_network *network = user;
    const fedge_peer *peer = fedge_peer_find(&network->newcomers, socket);
    if (!peer) { /* the peer refused the aggregator's certificate after its admission */
        peer = fedge_peer_find(&network->clients, socket);
    }
    char address[FEDGE_ADDRESS_TEXT] = "";
    if (peer)
        fedge_peer_address_text(&peer->address, address);
    fedge_peers_refused(network->transport->config.peers, address, subject, reason,
                        fedge_os_monotonic_ms());
}

/* Stores the verified chain of a handshake. */
static void on_verified(void *user, int socket, const fedge_chain *chain)
{
    fedge_network *network = user;
    fedge_peer *peer = fedge_peer_find(&network->newcomers, socket);
    if (peer) {
        peer->chain = *chain;
        peer->chain_known = true;
    }
}

static bool chain_of(void *user, int socket, fedge_chain *chain)
{
    fedge_network *network = user;
    const fedge_peer *peer = fedge_peer_find(&network->newcomers, socket);
    if (peer && peer->chain_known)
        *chain = peer->chain;
    return peer && peer->chain_known;
}

/* Without memory, the peer is refused for the missing certificate. */
static void on_ticket(void *user, int socket, const fedge_ticket_owner *owner)
{
    fedge_network *network = user;
    fedge_peer *peer = fedge_peer_find(&network->newcomers, socket);
    if (peer && !peer->ticket)
        peer->ticket = malloc(sizeof(*peer->ticket));
    if (peer && peer->ticket)
        *peer->ticket = *owner;
}

static void *run(void *arg)
{
    fedge_network *network = arg;
    fedge_tls_enter(network->tls_connections);
    ev_run(network->loop, 0);
    fedge_tls_enter(NULL);
    return NULL;
}

void fedge_network_stop(fedge_network *network)
{
    if (network && network->running) {
        assert(!pthread_equal(network->thread, pthread_self()));
        atomic_store(&network->must_stop, true);
        fedge_network_wake(network);
        pthread_join(network->thread, NULL);
        network->running = false;
    }
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* libwebsockets' PEM decoder fails on a chain. With a newline in front it passes the memory to
 * mbedTLS, which reads PEM. */
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
    {.name = FEDGE_SUBPROTOCOL,
     .callback = fedge_peer_callback,
     .rx_buffer_size = RECEIVE_SIZE,
     .tx_packet_size = FEDGE_MESSAGE_MAX_SIZE}, /* the default is rx_buffer_size */
    {.name = NULL},
};
static const struct lws_protocols HTTP_PROTOCOLS[] = {
    {.name = "http", .callback = fedge_http_callback, .rx_buffer_size = RECEIVE_SIZE},
    {.name = NULL},
};
/* fedge_peer_tick sends pings; libwebsockets' timers get slower with the number of connections. */
static const lws_retry_bo_t NO_PINGS = {.secs_since_valid_ping = 0};

static fedge_status make_clients_vhost(fedge_network *network, fedge_error *err)
{
    const fedge_identity *identity = fedge_peers_identity(network->transport->config.peers);
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
            .server_ssl_private_key_mem_len = (unsigned)key_size + 1, /* mbedTLS requires the NUL */
        };
        network->vhost = lws_create_vhost(network->context, &info);
    }
    if (key)
        explicit_bzero(key, key_size);
    free(chain);
    free(key);
    return network->vhost ? FEDGE_OK
                          : fedge_fail(err, FEDGE_INTERNAL,
                                       "the TLS port could not be set up (--log-level debug shows "
                                       "libwebsockets' reason)");
}

static fedge_status make_http_vhost(fedge_network *network, fedge_error *err)
{
    struct lws_context_creation_info info = {.vhost_name = "http",
                                             .port = CONTEXT_PORT_NO_LISTEN,
                                             .protocols = HTTP_PROTOCOLS,
                                             .retry_and_idle_policy = &NO_PINGS};
    network->vhost = lws_create_vhost(network->context, &info);
    return network->vhost ? FEDGE_OK
                          : fedge_fail(err, FEDGE_INTERNAL, "the HTTP port could not be set up");
}

static fedge_status make_context(fedge_network *network, fedge_error *err)
{
    void *loops[] = {network->loop};
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_LIBEV |
                   LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
        .foreign_loops = loops,
        .timeout_secs = FEDGE_HANDSHAKE_TIMEOUT_S,
        .pt_serv_buf_size = SERVICE_BUFFER_SIZE,
    };
    network->context = lws_create_context(&info);
    return network->context ? FEDGE_OK
                            : fedge_fail(err, FEDGE_NO_MEMORY, "libwebsockets could not be set up");
}

static void watch(fedge_network *network)
{
    ev_prepare_init(&network->drop_watcher, end_dropped);
    ev_async_init(&network->mailbox_watcher, on_mailbox);
    ev_timer_init(&network->tick_watcher, on_tick, 1.0, 1.0);
    ev_idle_init(&network->idle_watcher, on_idle);
    ev_timer_init(&network->handshake_timer, on_handshake_timer,
                  FEDGE_HANDSHAKE_INTERVAL_MS / 1000.0, FEDGE_HANDSHAKE_INTERVAL_MS / 1000.0);
    network->drop_watcher.data = network;
    network->mailbox_watcher.data = network;
    network->tick_watcher.data = network;
    network->idle_watcher.data = network;
    network->handshake_timer.data = network;
    ev_prepare_start(network->loop, &network->drop_watcher);
    ev_async_start(network->loop, &network->mailbox_watcher);
    ev_timer_start(network->loop, &network->tick_watcher);
}

static fedge_status make_tls_connections(fedge_network *network, fedge_error *err)
{
    FEDGE_TRY(fedge_tls_group_new(fedge_peers_tls(network->transport->config.peers),
                                  &network->tls_connections, err));
    fedge_tls_on_refused(network->tls_connections, on_handshake_refused, network);
    fedge_chain_on_verified(network->tls_connections, on_verified, network);
    fedge_tickets_begin(
        network->tls_connections,
        &(fedge_tickets){.user = network, .chain_of = chain_of, .shown = on_ticket});
    fedge_tls_share_buffers(network->tls_connections);
    return FEDGE_OK;
}

/* Creates mailboxes and watchers, and starts the thread. */
static fedge_status start(fedge_network *network, fedge_error *err)
{
    const uint32_t most = network->transport->config.max_connections + FEDGE_REDIRECT_CONNECTIONS;
    /* A connection number's tag identifies the thread and rank that own it. */
    const uint32_t tag = network->transport->config.first_tag + network->index;
    FEDGE_TRY(fedge_slots_init(&network->slots, most, tag, err));
    FEDGE_TRY(fedge_mailbox_new(&network->arrivals, fedge_network_wake, network, err));
    FEDGE_TRY(fedge_mailbox_new(&network->replies, fedge_network_wake, network, err));
    FEDGE_TRY(make_tls_connections(network, err));
    FEDGE_TRY(make_clients_vhost(network, err));
    watch(network);
    const int failed = fedge_thread_create(&network->thread, NULL, run, network);
    network->running = failed == 0;
    return failed ? fedge_fail_errno(err, failed, "cannot start a network thread") : FEDGE_OK;
}

fedge_status fedge_network_new(fedge_transport *transport, uint32_t index, struct ev_loop *loop,
                               fedge_network **network, fedge_error *err)
{
    *network = NULL;
    fedge_network *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the transport");
    fresh->transport = transport;
    fresh->index = index;
    fresh->rechecked_ms = fedge_os_monotonic_ms();
    const fedge_transport_config *config = &transport->config;
    const uint64_t waiting =
        config->waiting_bytes ? config->waiting_bytes : FEDGE_CONN_WAITING_BYTES;
    /* One part for each thread, which then counts without a lock. */
    fresh->budget.limit = waiting / config->num_threads;
    fresh->certificate = malloc(sizeof(*fresh->certificate) + FEDGE_MAX_CERTIFICATE_SIZE);
    fresh->owns_loop = !loop;
    fresh->loop = loop ? loop : ev_loop_new(EVFLAG_AUTO);
    fedge_status status = fresh->certificate && fresh->loop
                              ? make_context(fresh, err)
                              : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the transport");
    /* The HTTP port runs on the caller's loop without a thread. */
    if (status == FEDGE_OK && loop) {
        ev_prepare_init(&fresh->drop_watcher, end_dropped);
        fresh->drop_watcher.data = fresh;
        ev_prepare_start(loop, &fresh->drop_watcher);
        status = make_http_vhost(fresh, err);
    } else if (status == FEDGE_OK) {
        status = start(fresh, err);
    }
    if (status != FEDGE_OK) {
        fedge_network_free(fresh);
        return status;
    }
    *network = fresh;
    return FEDGE_OK;
}

static void empty_mailboxes(fedge_network *network)
{
    fedge_mailbox_item *next;
    for (fedge_mailbox_item *item = fedge_mailbox_take(network->arrivals); item; item = next) {
        next = item->next;
        refuse_arrival((fedge_peer *)item);
    }
    for (fedge_mailbox_item *item = fedge_mailbox_take(network->replies); item; item = next) {
        next = item->next;
        fedge_reply_free((fedge_reply *)item);
    }
}

void fedge_network_free(fedge_network *network)
{
    if (!network)
        return;
    fedge_network_stop(network);
    network->ending = true;
    if (network->loop)
        ev_prepare_stop(network->loop, &network->drop_watcher);
    /* It calls back for every connection, and the callbacks use what is freed below. */
    if (network->context)
        lws_context_destroy(network->context);
    fedge_tls_group_free(network->tls_connections);
    refuse_waiting(network, true);
    if (network->arrivals && network->replies)
        empty_mailboxes(network);
    fedge_mailbox_free(network->arrivals);
    fedge_mailbox_free(network->replies);
    assert(atomic_load(&network->num_connections) == 0);
    if (network->loop && network->owns_loop)
        ev_loop_destroy(network->loop);
    fedge_slots_fini(&network->slots);
    free(network->certificate);
    free(network);
}
