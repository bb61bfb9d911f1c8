/* What the transport's files share:
 *
 * | file                  | what it does                                                        |
 * | --------------------- | ------------------------------------------------------------------- |
 * | transport.c           | ports, the accepting thread                                         |
 * | transport_admission.c | unauthenticated peers, and their limits                             |
 * | transport_thread.c    | network threads: loop, mailboxes, order of handshakes               |
 * | transport_peer.c      | a connection on its thread                                          |
 * | transport_records.c   | TLS records to and from sockets                                     |
 * | http.c                | answers to HTTP requests                                            |
 * | transport_state.c     | records of connections and their lists, which all others use        |
 *
 * The accepting thread accepts a socket and waits for its first bytes. Then the socket moves, as a
 * fedge_peer, to a network thread, which owns it until it is closed. The HTTP port has a separate
 * fedge_network on the accepting thread.
 */
#ifndef FEDGE_AGGREGATOR_NET_TRANSPORT_INTERNAL_H
#define FEDGE_AGGREGATOR_NET_TRANSPORT_INTERNAL_H

#include <ev.h>
#include <libwebsockets.h>
#include <pthread.h>
#include <stdatomic.h>

#include "aggregator/exchange/exchange.h"
#include "aggregator/net/conn.h"
#include "aggregator/net/handshake_queue.h"
#include "aggregator/net/http.h"
#include "aggregator/net/transport.h"
#include "aggregator/net/ws_frame.h"
#include "secure/identity/chain.h"
#include "secure/identity/tickets.h"
#include "secure/identity/tls.h"

struct fedge_peer;
struct fedge_network;

/* A connection of the clients' port without an accepted certificate. The limits count these. */
typedef struct fedge_unauthenticated {
    struct fedge_unauthenticated *previous, *next;
    fedge_peer_address address;
    uint64_t accepted_ms;
    uint64_t heard_ms; /* last time that bytes of its handshake arrived */
    bool before_hello; /* it has sent less than a ClientHello's header and has no network thread */
    bool queued;       /* its network thread has not begun its handshake */
    bool evicted;      /* its thread must drop it */
    /* Used by the accepting thread: */
    fedge_transport *transport;
    int socket;
    bool disarmed; /* its first bytes are too few to decide: the next tick checks again */
} fedge_unauthenticated;

/* Oldest first. Shared by all threads under [mutex]. */
typedef struct fedge_unauthenticated_list {
    pthread_mutex_t mutex;
    fedge_unauthenticated *first, *last;
    uint32_t count;
} fedge_unauthenticated_list;

/* In the order of insertion. */
typedef struct fedge_peer_list {
    struct fedge_peer *first, *last;
    uint32_t count;
} fedge_peer_list;

/* A connection from its first bytes to its end; libwebsockets' opaque user data. */
typedef struct fedge_peer {
    fedge_mailbox_item item; /* link in its thread's mailbox */
    struct fedge_peer *previous, *next;
    fedge_peer_list *list; /* NULL while in the mailbox */
    struct fedge_peer *next_drop;
    struct fedge_peer *next_waiting; /* link in the queue for frame memory */
    struct fedge_network *network;
    fedge_unauthenticated *unauthenticated; /* NULL once authenticated, and for HTTP */
    struct lws *wsi;                        /* NULL until libwebsockets returns it */
    fedge_conn *conn; /* NULL until the certificate is accepted; always NULL for HTTP */
    int socket;
    fedge_peer_address address;
    uint64_t heard_ms; /* start of its handshake, before authentication */
    uint64_t pinged_ms;
    fedge_chain chain;          /* valid if chain_known */
    fedge_ticket_owner *ticket; /* its session ticket until admission, or NULL */
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE];
    uint8_t ahead[5]; /* the next record's header, as far as it was read ahead */
    uint8_t num_ahead, records_at_once;
    fedge_ws_frames frames;
    fedge_log log; /* the transport's log, limited for lines that the device causes */
    fedge_quota lines;
    bool admitted, chain_known, paused, ping_due, dropping, text_refused, waits, over_limit;
} fedge_peer;

/* A network thread with its event loop, libwebsockets context and connections. Only that thread
 * uses it, except for the members marked otherwise. */
typedef struct fedge_network {
    fedge_transport *transport;
    uint32_t index;
    pthread_t thread;
    bool running;
    struct ev_loop *loop;
    bool owns_loop;
    struct lws_context *context;
    struct lws_vhost *vhost;
    fedge_tls_group *tls_connections; /* NULL for HTTP */
    ev_prepare drop_watcher;
    ev_async mailbox_watcher;
    ev_timer tick_watcher;
    ev_idle idle_watcher;     /* active while handshakes wait: */
    ev_timer handshake_timer; /* one begins when the thread is idle, or on this timer */

    /* Written by any thread, which then wakes the loop. */
    fedge_mailbox *arrivals;  /* items: fedge_peer */
    fedge_mailbox *replies;   /* items: fedge_reply */
    atomic_bool must_evict;   /* one of its unauthenticated peers is evicted */
    atomic_bool must_recheck; /* registry or roots have changed */
    atomic_bool must_close;   /* the transport's farewell is written */
    atomic_bool must_stop;
    _Atomic uint32_t num_connections; /* including arrivals and handshakes */

    fedge_slots slots;                /* numbers of the connections in [clients] */
    fedge_peer_list waiting;          /* arrivals whose handshake has not begun */
    fedge_handshake_queue handshakes; /* order of handshakes; the idle watcher is off in a flood */
    fedge_peer_list newcomers;        /* connections of the clients' port in their handshake */
    fedge_peer_list clients;          /* authenticated connections; for HTTP, all */
    fedge_peer *adopting;             /* peer inside lws_adopt…; NULL on return if it has ended */
    fedge_peer *drops;                /* closed before the loop waits again */
    fedge_peer *first_waiting, **last_waiting; /* queue for frame memory */
    fedge_conn_budget budget;
    bool nudge; /* libwebsockets must check its timers and buffers */
    bool ending;
    uint64_t rechecked_ms;
    union lws_tls_cert_info_results *certificate; /* followed by FEDGE_MAX_CERTIFICATE_SIZE bytes */
    uint8_t out[LWS_PRE + FEDGE_MESSAGE_MAX_SIZE];
} fedge_network;

/* The last message to all connections. */
typedef struct fedge_farewell {
    fedge_message_type type;
    fedge_reason reason;
    uint64_t after_ms;
    char text[FEDGE_ERROR_MESSAGE_SIZE];
} fedge_farewell;

struct fedge_transport {
    fedge_transport_config config;
    fedge_run_link run;
    fedge_network **networks; /* (config.num_threads) */
    fedge_network *http;      /* runs on the accepting thread */
    int clients_listener, http_listener;
    uint16_t clients_port, http_port;
    ev_io clients_watcher, http_watcher;
    int first_bytes_epoll; /* sockets before their hello */
    ev_io admission_watcher;
    fedge_unauthenticated_list unauthenticated;
    _Atomic uint32_t num_clients; /* authenticated connections on all threads */
    fedge_farewell farewell;      /* written once, before must_close */
    bool ending, out_of_files;
    uint64_t started_ms;
    fedge_http_facts facts;
    fedge_http_answer answer;
};

/* transport_state.c */

void fedge_peer_append(fedge_peer_list *list, fedge_peer *peer);
void fedge_peer_take_out(fedge_peer *peer); /* out of its list */
/* The newest peer in [list] with this socket, or NULL. */
fedge_peer *fedge_peer_find(const fedge_peer_list *list, int socket);
/* A peer for [network]; NULL without memory. */
fedge_peer *fedge_peer_new(fedge_network *network, int socket, const fedge_peer_address *address,
                           fedge_unauthenticated *unauthenticated);
/* Frees a peer in any state. */
void fedge_peer_forget(fedge_peer *peer);
/* Frees its fedge_conn and logs the end. */
void fedge_peer_end_conn(fedge_peer *peer);
/* Schedules its end; may be called in callbacks, where nothing may be freed. */
void fedge_peer_drop(fedge_peer *peer);
/* Logs a note within the device's limit. */
void fedge_peer_note(const fedge_peer *peer, const fedge_conn_note *note);
/* Unauthenticated peers of all threads. */
uint32_t fedge_admission_count(fedge_transport *transport);
/* Any thread: frees the record of a peer that has ended or authenticated. */
void fedge_unauthenticated_end(fedge_unauthenticated *self);
/* Does the same for [peer], once. */
void fedge_peer_end_unauthenticated(fedge_peer *peer);
/* Any thread: makes the loop check mailboxes and flags. [network] is a fedge_network. */
void fedge_network_wake(void *network);

/* transport_thread.c */

/* Creates a network with its loop and thread; with [loop], it uses that loop and no thread, for
 * HTTP. NULL may be freed. Freeing sends the engine a LEAVE for each client. Stop all threads
 * before freeing any. */
FEDGE_MUST_USE fedge_status fedge_network_new(fedge_transport *transport, uint32_t index,
                                              struct ev_loop *loop, fedge_network **network,
                                              fedge_error *err);
void fedge_network_stop(fedge_network *network);
void fedge_network_free(fedge_network *network);

/* transport_peer.c */

/* On its thread: adds it to a list and hands it to libwebsockets. On failure the socket is closed
 * and the peer freed. */
void fedge_peer_adopt(fedge_peer *peer);
/* Closes it with the reason if its device is no longer registered, its chain has expired or its
 * root is no longer trusted. */
void fedge_peer_recheck_admission(fedge_peer *peer, uint64_t now_unix_ms);
void fedge_peer_tick(fedge_peer *peer, uint64_t now_ms, uint64_t now_unix_ms);
/* Carries out the actions of its fedge_conn. */
void fedge_peer_carry_out(fedge_peer *peer);
/* Resumes connections that waited for frame memory, in order, as far as it suffices. */
void fedge_network_resume_waiting(fedge_network *network);
int fedge_peer_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

/* transport_admission.c */

/* Takes an accepted socket of the clients' port, or refuses it by the limits. */
void fedge_admission_take(fedge_transport *transport, int socket,
                          const fedge_peer_address *address);
FEDGE_MUST_USE fedge_status fedge_admission_open(fedge_transport *transport, fedge_error *err);
/* After fedge_admission_refuse_all. Does nothing if admission was not opened. */
void fedge_admission_close(fedge_transport *transport);
/* Once a second on the accepting thread: refuses peers that have been silent for too long. */
void fedge_admission_tick(fedge_transport *transport, uint64_t now_ms);
/* Refuses all peers that have sent no hello. */
void fedge_admission_refuse_all(fedge_transport *transport);
/* Network threads: marks that the handshake of a waiting peer begins. */
void fedge_admission_begin_handshake(fedge_peer *peer);
/* Network threads, once a second: records the silence of [network]'s handshakes and drops those
 * that have been silent for too long. */
void fedge_admission_check_silence(fedge_network *network, uint64_t now_ms);
bool fedge_admission_is_evicted(const fedge_peer *peer);
/* Drops [network]'s handshakes that are evicted. */
void fedge_admission_drop_evicted(fedge_network *network);

/* transport_records.c */

/* lws_write of a whole frame; its TLS records are sent together. */
int fedge_peer_write(struct lws *wsi, uint8_t *frame, size_t size);

/* http.c */

/* The host that a request names. False if it names none, several or an invalid one. */
bool fedge_http_host_of(struct lws *wsi, char host[FEDGE_HTTP_MAX_HOST]);
/* Answers a request or refuses an upgrade; [head]: without the body. Returns the callback's result;
 * the connection closes after the answer. */
int fedge_http_send(fedge_network *network, struct lws *wsi, bool head, unsigned status,
                    const char *type, const char *body, size_t size);
/* Answers with one line of text. */
int fedge_http_send_text(fedge_network *network, struct lws *wsi, unsigned status,
                         const char *text);
int fedge_http_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

#endif
