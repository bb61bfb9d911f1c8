/* Sockets of the aggregator: the TLS port for clients and the read-only HTTP port, on libwebsockets
 * and libev.
 *
 * The loop's thread accepts connections, so it sees every address, counts every handshake and can
 * report why a port is unavailable; it also serves HTTP. Once a connection's first bytes have
 * arrived, it moves to the network thread with the fewest connections and stays there. Network
 * threads exchange messages with the engine only through its mailbox. A connection gets a
 * fedge_conn once its certificate is that of a registered, active device; nothing is read from the
 * peer before that.
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

#define FEDGE_HANDSHAKE_TIMEOUT_S 10   /* limit of a TLS handshake; the same again for HTTP */
#define FEDGE_NEWCOMER_TIMEOUT_MS 5000 /* silence allowed until a certificate is shown */
#define FEDGE_HANDSHAKE_INTERVAL_MS 20 /* a busy thread, too, begins one handshake in this time */
#define FEDGE_RETURN_EVERY_MS 10       /* spacing of the return times of a thread's devices */
#define FEDGE_RECHECK_EVERY_MS 60000   /* rechecks certificate chains, as each reload does */
/* Silence before a ping: the client's, or else the server's. */
#define FEDGE_DEFAULT_HEARTBEAT_S 20
#define FEDGE_MAX_HEARTBEAT_S 3600
#define FEDGE_SILENT_TIMEOUT_MS 60000  /* silence before a connection is dropped */
#define FEDGE_HTTP_MAX_CONNECTIONS 64  /* connections of the HTTP port */
#define FEDGE_OTHER_FILES 128          /* file descriptors besides those of clients' connections */
#define FEDGE_REDIRECT_CONNECTIONS 16u /* over max_connections, while they are redirected */
#define FEDGE_FILES_PER_NETWORK_THREAD 8 /* added to FEDGE_OTHER_FILES */
#define FEDGE_MAX_CERTIFICATE_SIZE 8192u /* DER, of a peer */

struct ev_loop; /* struct of libev */

typedef struct fedge_transport fedge_transport;

typedef struct fedge_transport_config {
    struct ev_loop *loop;
    uint32_t num_threads; /* network threads besides the loop's; ≥ 1 */
    uint32_t first_tag;   /* first tag of connection numbers, one for each thread (exchange.h) */
    fedge_address listen, http;
    bool http_on;
    const char *http_host;    /* allowed as Host besides addresses and localhost, or NULL */
    const char *redirect;     /* server for devices when this one is full or ends; may be NULL */
    uint32_t max_connections; /* authenticated connections */
    uint32_t max_unauthenticated, max_per_address; /* unauthenticated connections */
    uint64_t ping_after_ms, silent_timeout_ms, newcomer_timeout_ms; /* 0: the defaults above */
    uint64_t waiting_bytes; /* 0: FEDGE_CONN_WAITING_BYTES */
    fedge_peers *peers;     /* outlives the transport, like [log] */
    const fedge_log *log;
} fedge_transport_config;

/* Opens the ports and starts the threads, but accepts nothing yet. Errors of fedge_listener_open,
 * such as FEDGE_BUSY, concern a port. */
FEDGE_MUST_USE fedge_status fedge_transport_new(const fedge_transport_config *config,
                                                fedge_transport **transport, fedge_error *err);
/* Closes everything and sends the engine a LEAVE for each client; the engine's thread must have
 * stopped but still exist. NULL is allowed. */
void fedge_transport_free(fedge_transport *transport);

void fedge_transport_ports(const fedge_transport *transport, uint16_t *clients,
                           uint16_t *http); /* *http is 0 if the port is off */

/* Starts accepting connections for [run]. */
void fedge_transport_start(fedge_transport *transport, const fedge_run_link *run);

/* Callback for fedge_engine_thread_deliver_to; [transport] is a fedge_transport. */
FEDGE_MUST_USE fedge_status fedge_transport_deliver(void *transport, fedge_reply *reply,
                                                    fedge_error *err);

/* Call once a second: enforces the time limits of connections that have sent nothing. */
void fedge_transport_tick(fedge_transport *transport, uint64_t now_ms);

/* Reloads identity, roots and registry, logs the result and closes connections of devices that are
 * no longer admitted. Connections are also rechecked each minute, and when a certificate expires.
 */
void fedge_transport_reload(fedge_transport *transport);

/* Stops accepting and closes every connection with this last message. Call once. */
void fedge_transport_close_all(fedge_transport *transport, fedge_message_type type,
                               fedge_reason reason, uint64_t after_ms, const char *text);

/* Open connections of the clients' port, including unauthenticated ones. */
uint32_t fedge_transport_num_connections(fedge_transport *transport);

#endif
