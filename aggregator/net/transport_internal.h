/* The transport's state. From the top: transport.c (ports, the accepting thread),
 * transport_thread.c (network threads), transport_door.c (connections until their first bytes, and
 * the limits of those without a certificate), transport_http.c (answers to HTTP requests),
 * transport_peer.c (a connection on its thread), transport_frames.c (what clients send),
 * transport_records.c (TLS records to and from sockets),
 * transport_state.c (what all use).
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

#include "aggregator/exchange/slots.h"
#include "aggregator/net/conn.h"
#include "aggregator/net/handshake_queue.h"
#include "aggregator/net/http.h"
#include "aggregator/net/transport.h"
#include "aggregator/net/ws_frame.h"
#include "secure/identity/chain.h"
#include "secure/identity/tickets.h"

struct fedge_peer;
struct fedge_network;

/* A connection of the clients' port that has shown no accepted certificate: what the limits count.
 */
typedef struct fedge_guest {
    struct fedge_guest *previous, *next;
    fedge_peer_address address;
    uint64_t accepted_ms;
    uint64_t heard_ms; /* when something of its handshake came, as its thread last saw it */
    bool sent_away;    /* its thread is to drop it */
    bool at_door;      /* until its first bytes have come; then it is on a network thread, */
    bool waits;        /* and waits until its handshake begins */
    const struct fedge_network *network; /* that thread's; NULL at the door */
    /* Of the accepting thread: */
    fedge_transport *transport;
    int socket;
    bool disarmed; /* some bytes have come, too few to tell: the next tick looks again */
} fedge_guest;

/* In the order in which they were accepted. All threads, with [mutex] held. */
typedef struct fedge_guests {
    pthread_mutex_t mutex;
    fedge_guest *first, *last;
    uint32_t count;
} fedge_guests;

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
    fedge_guest *guest; /* NULL: its certificate was accepted, or it is on the HTTP port */
    struct lws *wsi;    /* NULL until libwebsockets has returned it */
    fedge_conn *conn;   /* NULL until its certificate is accepted; always on the HTTP port */
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
    ev_idle idle_watcher;  /* while there are arrivals whose handshake has not begun: */
    ev_timer turn_watcher; /* one begins when nothing else is to be done, or in its turn */

    /* Any thread posts, and wakes the loop. */
    fedge_mailbox *arrivals; /* fedge_peer */
    fedge_mailbox *replies;  /* fedge_reply */
    atomic_bool must_evict;  /* a guest was sent away */
    atomic_bool must_judge;  /* registry or roots have changed */
    atomic_bool must_close;  /* the transport's farewell was written */
    atomic_bool must_stop;
    _Atomic uint32_t num_connections; /* handshakes and arrivals included */

    fedge_slots slots;         /* names the connections of [clients] */
    fedge_peer_list waiting;   /* arrivals whose handshake has not begun */
    fedge_turns turns;         /* which of them is next; in a flood the idle watcher rests */
    fedge_peer_list newcomers; /* of the clients' port, without an accepted certificate */
    fedge_peer_list clients;   /* with one; of the HTTP port: all */
    fedge_peer *adopting;      /* within lws_adopt…: told when it is gone on return */
    fedge_peer *drops;         /* to be closed before the loop waits again */
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
    int door; /* an epoll of the sockets at the door: the loop's would hold on to who has left it */
    ev_io door_watcher;
    fedge_guests guests;
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
                           fedge_guest *guest);
/* The end of a connection, whatever stage it had reached. */
void fedge_peer_forget(fedge_peer *gone);
/* Its certificate was accepted, or it is gone. */
void fedge_peer_end_guest(fedge_peer *peer);
/* To the log, within what its device may cause there. */
void fedge_peer_note(const fedge_peer *peer, const fedge_conn_note *note);
/* Frees its fedge_conn and says so in the log. */
void fedge_peer_end_conn(fedge_peer *peer);
/* Asks for its end; also from within callbacks, where nothing may be freed. */
void fedge_peer_drop(fedge_peer *peer);
/* For any thread: a guest is gone, or is one no more. */
void fedge_guest_leave(fedge_transport *transport, fedge_guest *guest);
uint32_t fedge_door_num_guests(fedge_transport *transport);
/* Any thread: has the loop look at its mailbox and orders. [network] is one. */
void fedge_network_wake(void *network);
/* The host that a request names. false: it names none or several, or what is no host. */
bool fedge_http_host_of(struct lws *wsi, char host[FEDGE_HTTP_MAX_HOST]);
/* Answers a request, or an upgrade that is refused; [head]: without the body. Returns what the
 * callback must return: the connection closes behind it. */
int fedge_http_send(fedge_network *network, struct lws *wsi, bool head, unsigned status,
                    const char *type, const char *body, size_t size);
/* The same with one line of text. */
int fedge_http_send_text(fedge_network *network, struct lws *wsi, unsigned status,
                         const char *text);

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
/* Closes it, telling it why, when its certificate is none of a registered device any more, its
 * chain has expired or its root is not trusted any more. */
void fedge_peer_judge(fedge_peer *peer, uint64_t now_unix_ms);
void fedge_peer_tick(fedge_peer *peer, uint64_t now_ms, uint64_t now_unix_ms);
int fedge_peer_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

/* transport_door.c */

/* Takes an accepted socket of the clients' port, if there is room for one more newcomer. */
void fedge_door_enter(fedge_transport *transport, int socket, const fedge_peer_address *address);
FEDGE_MUST_USE fedge_status fedge_door_open(fedge_transport *transport, fedge_error *err);
/* After fedge_door_shut; nothing happens when it was not opened. */
void fedge_door_close(fedge_transport *transport);
/* Once a second, on the accepting thread: turns away who says nothing. */
void fedge_door_tick(fedge_transport *transport, uint64_t now_ms);
/* Turns all away that are still at the door. */
void fedge_door_shut(fedge_transport *transport);
/* For network threads: the handshake of one that has waited begins. */
void fedge_door_begin(fedge_peer *peer);
/* For network threads: looks once a second how long [network]'s newcomers have said nothing, and
 * turns away who fell silent. */
void fedge_door_watch(fedge_network *network, uint64_t now_ms);
/* Whether the door wants the newcomer to make room. */
bool fedge_door_has_sent_away(const fedge_peer *peer);
/* Drops those of [network]'s newcomers that the door has sent away. */
void fedge_door_evict(fedge_network *network);

/* transport_frames.c */

/* Carries out what its fedge_conn wants. */
void fedge_peer_carry_out(fedge_peer *peer);
/* Has those be read again that waited for room which there is now. */
void fedge_network_give_room(fedge_network *network);
/* Bytes of a message. Returns what the callback returns. */
int fedge_peer_receive(fedge_peer *peer, struct lws *wsi, const uint8_t *data, size_t size);

/* transport_records.c */

/* lws_write of a whole frame, whose records leave together. */
int fedge_peer_write(struct lws *wsi, uint8_t *frame, size_t size);

/* transport_http.c */

int fedge_http_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size);

#endif
