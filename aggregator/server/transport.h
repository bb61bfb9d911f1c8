/* Sockets: the TLS port of the clients and the read-only HTTP port, on libwebsockets and libev.
 *
 * One thread, that of the loop. The transport accepts connections itself and hands them to
 * libwebsockets, so that it knows every address, counts every handshake and can say why a port is
 * not to be had. A connection becomes a fedge_conn only when its certificate is one of a
 * registered, active device; nothing that a peer sends is read before.
 */
#ifndef FEDGE_AGGREGATOR_SERVER_TRANSPORT_H
#define FEDGE_AGGREGATOR_SERVER_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/server/engine_thread.h"
#include "aggregator/server/listener.h"
#include "aggregator/server/peers.h"
#include "edge/core/log.h"
#include "edge/core/message.h"
#include "edge/core/status.h"

#define FEDGE_HANDSHAKE_TIMEOUT_S 10     /* from the first bytes to the end of TLS; then for HTTP */
#define FEDGE_NEWCOMER_TIMEOUT_MS 5000   /* silence until a certificate is shown */
#define FEDGE_JUDGE_EVERY_MS 60000       /* all connections' chains, besides at each reload */
#define FEDGE_PING_AFTER_MS 20000        /* a connection that is silent so long gets a ping */
#define FEDGE_SILENT_TIMEOUT_MS 60000    /* one that is silent so long is dropped */
#define FEDGE_HTTP_MAX_CONNECTIONS 64    /* on the HTTP port */
#define FEDGE_OTHER_FILES 128            /* descriptors for everything but clients' connections */
#define FEDGE_MAX_CERTIFICATE_SIZE 8192u /* of a peer, DER */

struct ev_loop; /* ev.h */

typedef struct fedge_transport fedge_transport;

typedef struct fedge_transport_config {
    struct ev_loop *loop;
    fedge_address listen, http;
    bool http_on;
    const char *http_host; /* that requests may name besides addresses and localhost; NULL: none */
    uint32_t max_connections;                      /* with an accepted certificate */
    uint32_t max_unauthenticated, max_per_address; /* others */
    uint64_t ping_after_ms, silent_timeout_ms, newcomer_timeout_ms; /* 0: the limits above */
    fedge_peers *peers; /* outlives the transport, as does [log] */
    const fedge_log *log;
} fedge_transport_config;

/* Opens the ports; accepts nothing yet. FEDGE_BUSY and others of fedge_listener_open are about a
 * port. */
FEDGE_MUST_USE fedge_status fedge_transport_new(const fedge_transport_config *config,
                                                fedge_transport **transport, fedge_error *err);
/* Closes everything; connections leave the engine, whose thread must still be there. NULL is fine.
 */
void fedge_transport_free(fedge_transport *transport);

void fedge_transport_ports(const fedge_transport *transport, uint16_t *clients,
                           uint16_t *http); /* *http is 0 when off */

/* From now on accepts connections, for [engine]. */
void fedge_transport_start(fedge_transport *transport, fedge_engine_thread *engine);

/* What the engine says to one connection or to all; not ROUND. [reply] stays the caller's. */
void fedge_transport_take(fedge_transport *transport, const fedge_reply *reply, uint64_t now_ms);

/* Once a second: pings, timeouts. */
void fedge_transport_tick(fedge_transport *transport, uint64_t now_ms);

/* Loads identity, roots and registry again, logs how that went, and closes the connections of
 * devices that may not stay. That is asked again each minute, and when a certificate expires. */
void fedge_transport_reload(fedge_transport *transport);

/* Accepts no more and closes every connection with such a last message. */
void fedge_transport_close_all(fedge_transport *transport, fedge_message_type type,
                               fedge_reason reason, uint64_t after_ms, const char *text);

/* Open connections of the clients' port, those without a certificate included. */
uint32_t fedge_transport_num_connections(const fedge_transport *transport);

#endif
