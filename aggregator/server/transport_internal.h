/* The transport's state, shared by transport.c (ports, loop), transport_client.c (connections) and
 * transport_http.c (answers to HTTP requests). */
#ifndef FEDGE_AGGREGATOR_SERVER_TRANSPORT_INTERNAL_H
#define FEDGE_AGGREGATOR_SERVER_TRANSPORT_INTERNAL_H

#include <ev.h>
#include <libwebsockets.h>

#include "aggregator/server/conn.h"
#include "aggregator/server/http.h"
#include "aggregator/server/transport.h"
#include "aggregator/server/ws_frame.h"

/* A connection, from accept to close; libwebsockets carries it as opaque user data. */
typedef struct fedge_client {
    struct fedge_client *previous, *next;
    struct fedge_client *next_drop;
    fedge_transport *transport;
    struct lws *wsi;  /* NULL until libwebsockets has returned it */
    fedge_conn *conn; /* NULL until its certificate is accepted; always on the HTTP port */
    uint64_t heard_ms, pinged_ms;
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE];
    fedge_ws_frames frames;
    bool on_http, paused, ping_due, dropping, text_refused;
} fedge_client;

struct fedge_transport {
    fedge_transport_config config;
    fedge_engine *engine;
    struct lws_context *context;
    struct lws_vhost *clients_vhost, *http_vhost;
    int clients_listener, http_listener;
    uint16_t clients_port, http_port;
    ev_io clients_watcher, http_watcher;
    ev_prepare settle_watcher;

    fedge_client *clients;  /* all, those of the HTTP port included */
    fedge_client *adopting; /* within lws_adopt…: told when it is gone on return */
    fedge_client *drops;    /* to be closed before the loop waits again */
    bool nudge;             /* libwebsockets must look at its timers and buffers */
    bool ending, out_of_files;
    uint32_t num_clients, num_http;
    uint64_t started_ms;

    union lws_tls_cert_info_results *certificate; /* with FEDGE_MAX_CERTIFICATE_SIZE behind it */
    fedge_http_facts facts;
    fedge_http_answer answer;
    uint8_t out[LWS_PRE + FEDGE_MESSAGE_MAX_SIZE];
};

/* transport_client.c */

/* Hands an accepted socket to libwebsockets, which closes it when that fails. */
void fedge_client_adopt(fedge_transport *transport, int socket, bool on_http);
/* The end of a connection, whatever stage it had reached. */
void fedge_client_forget(fedge_client *gone);
/* Asks for its end; also from within fedge_conn_… and callbacks, where nothing may be freed. */
void fedge_client_drop(fedge_client *peer);
/* Frees its fedge_conn and says so in the log. */
void fedge_client_end_conn(fedge_client *peer);
void fedge_client_tick(fedge_client *peer, uint64_t now_ms);
int fedge_client_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                          size_t size);

/* transport_frames.c */

/* Bytes of a message. Returns what the callback returns. */
int fedge_client_receive(fedge_client *peer, struct lws *wsi, const uint8_t *data, size_t size);

/* transport_http.c */

/* Answers a request, or an upgrade that is refused, with one line of text. Returns what the
 * callback must return: the connection closes behind it. */
int fedge_http_send_text(fedge_transport *transport, struct lws *wsi, unsigned status,
                         const char *text);
int fedge_http_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

#endif
