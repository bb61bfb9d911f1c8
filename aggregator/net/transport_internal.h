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
 * A socket is accepted and waits for its first bytes on the accepting thread. Then it goes, as a
 * fedge_peer, to a network thread, which owns it until it is closed; connections do not move. The
 * accepting thread has a fedge_network of its own for the HTTP port.
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

struct fedge_peer;
struct fedge_network;

/* An unauthenticated peer: a connection of the clients' port that has shown no accepted
 * certificate. The limits count these. */
typedef struct fedge_unauthenticated {
    struct fedge_unauthenticated *previous, *next;
    fedge_peer_address address;
    uint64_t accepted_ms;
    uint64_t heard_ms; /* when bytes of its handshake came last, as far as its thread has checked */
    bool before_hello; /* it has sent too little to be a ClientHello; no network thread has it */
    bool queued;       /* a network thread has it and has not begun its handshake */
    bool evicted;      /* that thread must drop it */
    /* Of the accepting thread: */
    fedge_transport *transport;
    int socket;
    bool disarmed; /* it has sent some bytes, too few to decide: the next tick looks again */
} fedge_unauthenticated;

/* The oldest first. All threads, with [mutex] held. */
typedef struct fedge_unauthenticated_list {
    pthread_mutex_t mutex;
    fedge_unauthenticated *first, *last;
    uint32_t count;
} fedge_unauthenticated_list;

/* Connections in the order in which they came into the list. */
typedef struct fedge_peer_list {
    struct fedge_peer *first, *last;
    uint32_t count;
} fedge_peer_list;

/* A connection, from its first bytes to close; libwebsockets carries it as opaque user data. */
typedef struct fedge_peer {
    fedge_mailbox_item item; /* on its way to its thread */
    struct fedge_peer *previous, *next;
    fedge_peer_list *list; /* NULL until it has arrived */
    struct fedge_peer *next_drop;
    struct fedge_peer *next_waiting; /* for room */
    struct fedge_network *network;
    fedge_unauthenticated *unauthenticated; /* NULL: it has an accepted certificate, or is HTTP */
    struct lws *wsi;                        /* NULL until libwebsockets has returned it */
    fedge_conn *conn; /* NULL until its certificate is accepted; always on the HTTP port */
    int socket;
    fedge_peer_address address;
    uint64_t heard_ms; /* until it is a client: when its handshake began */
    uint64_t pinged_ms;
    fedge_chain chain;          /* of its certificate, once chain_known */
    fedge_ticket_owner *ticket; /* what it has shown, until its certificate is accepted; or NULL */
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE];
    uint8_t ahead[5]; /* read from the socket: the beginning of the next record's header */
    uint8_t num_ahead, records_at_once;
    fedge_ws_frames frames;
    fedge_log log; /* the transport's, for what the device causes: limited */
    fedge_quota lines;
    bool admitted, chain_known, paused, ping_due, dropping, text_refused, waits, one_too_many;
} fedge_peer;

/* A thread with its loop, its libwebsockets context and the connections that it owns. All of it is
 * the thread's own but for what is said to be of any thread. */
typedef struct fedge_network {
    fedge_transport *transport;
    uint32_t index;
    pthread_t thread;
    bool running;
    struct ev_loop *loop;
    bool own_loop;
    struct lws_context *context;
    struct lws_vhost *vhost;
    ev_prepare drop_watcher;
    ev_async mailbox_watcher;
    ev_timer tick_watcher;
    ev_idle idle_watcher;     /* while there are arrivals whose handshake has not begun: */
    ev_timer handshake_timer; /* one begins when the thread is idle, or by this timer */

    /* Any thread posts, and wakes the loop. */
    fedge_mailbox *arrivals; /* fedge_peer */
    fedge_mailbox *replies;  /* fedge_reply */
    atomic_bool must_evict;  /* an unauthenticated peer of it was evicted */
    atomic_bool must_judge;  /* registry or roots have changed */
    atomic_bool must_close;  /* the transport's farewell was written */
    atomic_bool must_stop;
    _Atomic uint32_t num_connections; /* handshakes and arrivals included */

    fedge_slots slots;                /* names the connections of [clients] */
    fedge_peer_list waiting;          /* arrivals whose handshake has not begun */
    fedge_handshake_queue handshakes; /* their order; in a flood the idle watcher is off */
    fedge_peer_list newcomers;        /* of the clients' port, without an accepted certificate */
    fedge_peer_list clients;          /* with one; of the HTTP port: all */
    fedge_peer *adopting;             /* within lws_adopt…: told when it is gone on return */
    fedge_peer *drops;                /* to be closed before the loop waits again */
    fedge_peer *first_for_room, **last_for_room; /* who wait for room in the budget, in order */
    fedge_conn_budget budget;
    bool nudge; /* libwebsockets must look at its timers and buffers */
    bool ending;
    uint64_t judged_ms;
    union lws_tls_cert_info_results *certificate; /* with FEDGE_MAX_CERTIFICATE_SIZE behind it */
    uint8_t out[LWS_PRE + FEDGE_MESSAGE_MAX_SIZE];
} fedge_network;

/* The last message of all connections. */
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
    fedge_network *http;      /* of the accepting thread */
    int clients_listener, http_listener;
    uint16_t clients_port, http_port;
    ev_io clients_watcher, http_watcher;
    int first_bytes_epoll; /* of sockets before their hello */
    ev_io admission_watcher;
    fedge_unauthenticated_list unauthenticated;
    _Atomic uint32_t num_clients; /* with an accepted certificate, on all threads */
    fedge_farewell farewell;      /* written once, before must_close */
    bool ending, out_of_files;
    uint64_t started_ms;
    fedge_http_facts facts;
    fedge_http_answer answer;
};

/* transport_state.c */

void fedge_peer_append(fedge_peer_list *list, fedge_peer *peer);
void fedge_peer_take_out(fedge_peer *peer); /* of its list */
/* The latest in [list] with this socket; NULL: none. */
fedge_peer *fedge_peer_find(const fedge_peer_list *list, int socket);
/* A record of a socket for [network]. NULL: no memory. */
fedge_peer *fedge_peer_new(fedge_network *network, int socket, const fedge_peer_address *address,
                           fedge_unauthenticated *unauthenticated);
/* The end of a connection, whatever stage it had reached. */
void fedge_peer_forget(fedge_peer *gone);
/* Frees its fedge_conn and says so in the log. */
void fedge_peer_end_conn(fedge_peer *peer);
/* Asks for its end; also from within callbacks, where nothing may be freed. */
void fedge_peer_drop(fedge_peer *peer);
/* To the log, within what its device may cause there. */
void fedge_peer_note(const fedge_peer *peer, const fedge_conn_note *note);
/* Unauthenticated peers of all threads. */
uint32_t fedge_admission_count(fedge_transport *transport);
/* Any thread: frees the record of a peer that is gone or has an accepted certificate. */
void fedge_unauthenticated_end(fedge_unauthenticated *self);
/* The same for [peer], unless that has happened. */
void fedge_peer_end_unauthenticated(fedge_peer *peer);
/* Any thread: has the loop look at its mailboxes and flags. [network] is a fedge_network. */
void fedge_network_wake(void *network);

/* transport_thread.c */

/* With a loop of its own and a thread that runs it; [loop]: with this one and without a thread, for
 * HTTP. NULL-safe to free; connections leave the engine. Threads are stopped before any is freed.
 */
FEDGE_MUST_USE fedge_status fedge_network_new(fedge_transport *transport, uint32_t index,
                                              struct ev_loop *loop, fedge_network **network,
                                              fedge_error *err);
void fedge_network_stop(fedge_network *network);
void fedge_network_free(fedge_network *network);

/* transport_peer.c */

/* On its thread: puts it into its list and hands it to libwebsockets, which closes the socket when
 * that fails; the record is gone then. */
void fedge_peer_adopt(fedge_peer *peer);
/* Closes it, with the reason, if its certificate is no registered device's any more, its chain has
 * expired or its root is not trusted any more. */
void fedge_peer_judge(fedge_peer *peer, uint64_t now_unix_ms);
void fedge_peer_tick(fedge_peer *peer, uint64_t now_ms, uint64_t now_unix_ms);
/* Carries out what its fedge_conn wants. */
void fedge_peer_carry_out(fedge_peer *peer);
/* Reads again from connections that waited for memory which is free now. */
void fedge_network_give_room(fedge_network *network);
int fedge_peer_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

/* transport_admission.c */

/* Takes an accepted socket of the clients' port, or refuses it by the limits. */
void fedge_admission_take(fedge_transport *transport, int socket,
                          const fedge_peer_address *address);
FEDGE_MUST_USE fedge_status fedge_admission_open(fedge_transport *transport, fedge_error *err);
/* After fedge_admission_refuse_all; does nothing if it was not opened. */
void fedge_admission_close(fedge_transport *transport);
/* Once a second, on the accepting thread: refuses peers that have sent nothing for too long. */
void fedge_admission_tick(fedge_transport *transport, uint64_t now_ms);
/* Refuses all that have sent no hello. */
void fedge_admission_refuse_all(fedge_transport *transport);
/* Network threads: the handshake of a peer that has waited begins. */
void fedge_admission_begin_handshake(fedge_peer *peer);
/* Network threads: once a second notes how long [network]'s newcomers have sent nothing, and drops
 * those that have been silent for too long. */
void fedge_admission_check_silence(fedge_network *network, uint64_t now_ms);
bool fedge_admission_is_evicted(const fedge_peer *peer);
/* Drops [network]'s newcomers that are evicted. */
void fedge_admission_drop_evicted(fedge_network *network);

/* transport_records.c */

/* lws_write of a whole frame, whose records leave together. */
int fedge_peer_write(struct lws *wsi, uint8_t *frame, size_t size);

/* http.c */

/* The host that a request names. false: it names none or several, or what is no host. */
bool fedge_http_host_of(struct lws *wsi, char host[FEDGE_HTTP_MAX_HOST]);
/* Answers a request, or an upgrade that is refused; [head]: without the body. Returns what the
 * callback must return: the connection closes behind it. */
int fedge_http_send(fedge_network *network, struct lws *wsi, bool head, unsigned status,
                    const char *type, const char *body, size_t size);
/* The same with one line of text. */
int fedge_http_send_text(fedge_network *network, struct lws *wsi, unsigned status,
                         const char *text);
int fedge_http_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

#endif
