/* The transport's state, shared by transport.c (ports, loop), transport_door.c (connections
 * without a certificate), transport_peer.c (all connections), transport_frames.c (what clients
 * send) and transport_http.c (answers to HTTP requests). */
#ifndef FEDGE_AGGREGATOR_SERVER_TRANSPORT_INTERNAL_H
#define FEDGE_AGGREGATOR_SERVER_TRANSPORT_INTERNAL_H

#include <ev.h>
#include <libwebsockets.h>

#include "aggregator/server/conn.h"
#include "aggregator/server/http.h"
#include "aggregator/server/slots.h"
#include "aggregator/server/transport.h"
#include "aggregator/server/ws_frame.h"
#include "secure/identity/chain.h"

struct fedge_peer;

/* Connections in the order in which they came into the list. */
typedef struct fedge_peer_list {
    struct fedge_peer *first, *last;
    uint32_t count;
} fedge_peer_list;

/* A connection, from accept to close; libwebsockets carries it as opaque user data. */
typedef struct fedge_peer {
    struct fedge_peer *previous, *next;
    fedge_peer_list *list;
    struct fedge_peer *next_drop;
    fedge_transport *transport;
    ev_io *door;      /* until its first bytes have come; libwebsockets does not know it then */
    struct lws *wsi;  /* NULL until libwebsockets has returned it */
    fedge_conn *conn; /* NULL until its certificate is accepted; always on the HTTP port */
    int socket;
    fedge_peer_address address;
    uint64_t accepted_ms, heard_ms, pinged_ms;
    fedge_chain chain; /* of its certificate, once chain_known */
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE];
    fedge_ws_frames frames;
    fedge_log log; /* the transport's, for what the device causes: limited */
    fedge_quota lines;
    bool on_http, chain_known, paused, ping_due, dropping, text_refused;
} fedge_peer;

struct fedge_transport {
    fedge_transport_config config;
    fedge_engine_thread *engine;
    fedge_slots slots; /* names the connections of [clients] */
    struct lws_context *context;
    struct lws_vhost *clients_vhost, *http_vhost;
    int clients_listener, http_listener;
    uint16_t clients_port, http_port;
    ev_io clients_watcher, http_watcher;
    ev_prepare drop_watcher;

    fedge_peer_list newcomers; /* of the clients' port, without an accepted certificate */
    fedge_peer_list clients;   /* with one */
    fedge_peer_list http;
    fedge_peer *adopting; /* within lws_adopt…: told when it is gone on return */
    fedge_peer *drops;    /* to be closed before the loop waits again */
    bool nudge;           /* libwebsockets must look at its timers and buffers */
    bool ending, out_of_files;
    uint64_t started_ms, judged_ms;

    union lws_tls_cert_info_results *certificate; /* with FEDGE_MAX_CERTIFICATE_SIZE behind it */
    fedge_http_facts facts;
    fedge_http_answer answer;
    uint8_t out[LWS_PRE + FEDGE_MESSAGE_MAX_SIZE];
};

/* transport_peer.c */

/* A record of an accepted socket, among the newcomers or those of the HTTP port. NULL: no memory.
 */
fedge_peer *fedge_peer_new(fedge_transport *transport, int socket,
                           const fedge_peer_address *address, bool on_http);
/* Hands it to libwebsockets, which closes the socket when that fails; the record is gone then. */
void fedge_peer_adopt(fedge_peer *peer);
/* The latest in [list] with this socket; NULL: none. */
fedge_peer *fedge_peer_find(const fedge_peer_list *list, int socket);
/* Closes it, telling it why, when its certificate is none of a registered device any more, its
 * chain has expired or its root is not trusted any more. */
void fedge_peer_judge(fedge_peer *peer, uint64_t now_unix_ms);
/* The end of a connection, whatever stage it had reached. */
void fedge_peer_forget(fedge_peer *gone);
/* Carries out what its fedge_conn wants. */
void fedge_peer_carry_out(fedge_peer *peer);
/* Asks for its end; also from within callbacks, where nothing may be freed. */
void fedge_peer_drop(fedge_peer *peer);
/* Frees its fedge_conn and says so in the log. */
void fedge_peer_end_conn(fedge_peer *peer);
void fedge_peer_tick(fedge_peer *peer, uint64_t now_ms, uint64_t now_unix_ms);
int fedge_peer_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

/* transport_door.c */

/* Takes an accepted socket of the clients' port, if there is room for one more newcomer. */
void fedge_door_enter(fedge_transport *transport, int socket, const fedge_peer_address *address);
/* Ends the wait of a connection at the door and closes its socket; nothing for others. */
void fedge_door_close(fedge_peer *peer);
/* Once a second: turns away who says nothing. */
void fedge_door_tick(fedge_transport *transport, uint64_t now_ms);
/* Turns all newcomers away. */
void fedge_door_shut(fedge_transport *transport);
/* For fedge_chain_on_verified; [user]: the transport. */
void fedge_door_on_verified(void *user, int socket, const fedge_chain *chain);

/* transport_frames.c */

/* Bytes of a message. Returns what the callback returns. */
int fedge_peer_receive(fedge_peer *peer, struct lws *wsi, const uint8_t *data, size_t size);

/* transport_http.c */

/* Answers a request, or an upgrade that is refused, with one line of text. Returns what the
 * callback must return: the connection closes behind it. */
int fedge_http_send_text(fedge_transport *transport, struct lws *wsi, unsigned status,
                         const char *text);
int fedge_http_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

#endif
