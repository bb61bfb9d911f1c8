/* Sockets: the TLS port of the clients and the read-only HTTP port, on libwebsockets and libev.
 *
 * The thread of the loop accepts connections itself, so that it knows every address, counts every
 * handshake and can say why a port is not to be had; it also answers HTTP. Once a connection's
 * first bytes are there, it goes to that of the network threads that has the fewest and stays with
 * it; they speak to the engine by its mailbox alone. A connection becomes a fedge_conn only when
 * its certificate is one of a registered, active device; nothing that a peer sends is read before.
 */
#ifndef FEDGE_AGGREGATOR_NET_TRANSPORT_H
#define FEDGE_AGGREGATOR_NET_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/net/listener.h"
#include "aggregator/net/peers.h"
#include "edge/core/log.h"
#include "edge/core/message.h"
#include "edge/core/status.h"

#define FEDGE_HANDSHAKE_TIMEOUT_S 10   /* from the first bytes to the end of TLS; then for HTTP */
#define FEDGE_NEWCOMER_TIMEOUT_MS 5000 /* silence until a certificate is shown */
#define FEDGE_HANDSHAKE_INTERVAL_MS                                                                \
    20 /* so often at least a handshake begins, whatever else a thread has to do */
#define FEDGE_RETURN_EVERY_MS                                                                      \
    10 /* told to come back later, a thread's connections are so far apart */
#define FEDGE_JUDGE_EVERY_MS 60000 /* all connections' chains, besides at each reload */
/* Silence after which a connection gets a ping: from its client, or else from the server. */
#define FEDGE_DEFAULT_HEARTBEAT_S 20
#define FEDGE_MAX_HEARTBEAT_S 3600
#define FEDGE_SILENT_TIMEOUT_MS 60000    /* silence after which a connection is dropped */
#define FEDGE_HTTP_MAX_CONNECTIONS 64    /* on the HTTP port */
#define FEDGE_OTHER_FILES 128            /* descriptors for everything but clients' connections */
#define FEDGE_REDIRECT_ROOM 16u          /* over max_connections, while they are redirected */
#define FEDGE_FILES_PER_NETWORK_THREAD 8 /* besides FEDGE_OTHER_FILES */
#define FEDGE_MAX_CERTIFICATE_SIZE 8192u /* of a peer, DER */

struct ev_loop; /* ev.h */

typedef struct fedge_transport fedge_transport;

typedef struct fedge_transport_config {
    struct ev_loop *loop;
    uint32_t num_threads; /* that hold connections, besides the loop's; ≥ 1 */
    uint32_t first_tag;   /* of their numbers' tags, one a thread (exchange.h) */
    fedge_address listen, http;
    bool http_on;
    const char *http_host; /* that requests may name besides addresses and localhost; NULL: none */
    const char *redirect;  /* where devices go when this one is full or ends; NULL: nowhere */
    uint32_t max_connections;                      /* with an accepted certificate */
    uint32_t max_unauthenticated, max_per_address; /* others */
    uint64_t ping_after_ms, silent_timeout_ms, newcomer_timeout_ms; /* 0: the limits above */
    uint64_t waiting_bytes; /* 0: FEDGE_CONN_WAITING_BYTES */
    fedge_peers *peers;     /* outlives the transport, as does [log] */
    const fedge_log *log;
} fedge_transport_config;

/* Opens the ports and starts the threads; accepts nothing yet. FEDGE_BUSY and others of
 * fedge_listener_open are about a port. */
FEDGE_MUST_USE fedge_status fedge_transport_new(const fedge_transport_config *config,
                                                fedge_transport **transport, fedge_error *err);
/* Closes everything; connections leave the engine, whose thread has been stopped but not freed.
 * NULL is fine. */
void fedge_transport_free(fedge_transport *transport);

void fedge_transport_ports(const fedge_transport *transport, uint16_t *clients,
                           uint16_t *http); /* *http is 0 when off */

/* From now on accepts connections, for [run]. */
void fedge_transport_start(fedge_transport *transport, const fedge_run_link *run);

/* For fedge_engine_thread_deliver_to; [transport] is one. */
FEDGE_MUST_USE fedge_status fedge_transport_deliver(void *transport, fedge_reply *reply,
                                                    fedge_error *err);

/* Once a second: timeouts of those who have said nothing yet. */
void fedge_transport_tick(fedge_transport *transport, uint64_t now_ms);

/* Loads identity, roots and registry again, logs how that went, and closes the connections of
 * devices that may not stay. That is asked again each minute, and when a certificate expires. */
void fedge_transport_reload(fedge_transport *transport);

/* Accepts no more and has every connection closed with such a last message. Once. */
void fedge_transport_close_all(fedge_transport *transport, fedge_message_type type,
                               fedge_reason reason, uint64_t after_ms, const char *text);

/* Open connections of the clients' port, those without a certificate included. */
uint32_t fedge_transport_num_connections(fedge_transport *transport);

#endif
