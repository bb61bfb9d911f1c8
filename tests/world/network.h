/* The simulated network between clients and the server: connections as TCP and TLS provide them, in
 * virtual time.
 *
 * A connection carries whole websocket messages. Messages to the server arrive in random fragments,
 * those to a client whole. Bytes of one direction keep their order. All else is random: the delay,
 * the rate, and when an end learns that the other end is gone, which may be never. */
#ifndef FEDGE_TESTS_WORLD_NETWORK_H
#define FEDGE_TESTS_WORLD_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_MAX_LINKS = 256, NET_SERVER_END = 0, NET_CLIENT_END = 1 };

/* What is received at once: a part of a message or all of it. */
typedef struct world_arrival {
    size_t size; /* 0: a ping at the server's end, a pong at the client's */
    bool final;  /* the message is complete */
} world_arrival;

typedef struct world_connection world_connection;

void world_net_begin(void);
void world_net_end(void);

/* Sets the number of the server's ranks, which is 1 at first. */
void world_net_set_ranks(uint32_t num);
/* The node of a random rank. */
uint32_t world_net_draw_rank(void);

/* Sets the client's delay and rate from now on. */
void world_net_place(uint32_t client, uint64_t delay_ns, uint64_t ns_per_byte);
/* No byte from or to the client arrives before [until_ns]. */
void world_net_partition(uint32_t client, uint64_t until_ns);
/* Ends the client's connections. A random part of the bytes under way is lost. */
void world_net_cut(uint32_t client);
/* The node's process has ended, so the system closes its connections. [power]: the machine is off,
 * and other ends notice it only by their own time limits. */
void world_net_drop(uint32_t node, bool power);
/* The node's machine runs again: it resets connections that it does not know. */
void world_net_boot(uint32_t node);

/* ---- for both ends --------------------------------------------------------------------------- */

/* The address at which the node's fiber waits (world_wait). It is woken when something was sent to
 * the node. */
const void *world_net_address(uint32_t node);
/* The next time at which something arrives at the node; WORLD_NEVER: nothing is under way. */
uint64_t world_net_due_ns(uint32_t node);
/* On a fiber of the node: waits until something arrives there or is sent to it, or until
 * [until_ns]. If something is due already, only lets other fibers run. */
void world_net_wait(uint32_t node, uint64_t until_ns);

bool world_net_may_send(const world_connection *connection, int end);
void world_net_send(world_connection *connection, int end, const uint8_t *data, size_t size);
/* Sends the next part of a message, but not the last one. */
void world_net_send_part(world_connection *connection, int end, const uint8_t *data, size_t size);
/* Receives what has arrived next into [out]. [out_size]: the size of a whole message at least.
 * False: nothing has arrived. */
bool world_net_receive(world_connection *connection, int end, uint8_t *out, size_t out_size,
                       world_arrival *arrival);
/* A paused end receives nothing, so the window of its peer fills up. */
void world_net_pause(world_connection *connection, int end, bool paused);
/* Whether the end has learned that the connection is over. It still has to call world_net_close. */
bool world_net_is_over(const world_connection *connection, int end);
/* Whether the other end is closed, of which this one may not know yet. */
bool world_net_is_left(const world_connection *connection, int end);
/* Closes this end, which must not use the connection afterwards. */
void world_net_close(world_connection *connection, int end);

/* ---- the client's end ------------------------------------------------------------------------ */

/* Connects to a random rank of the server. Never NULL. Without a listener the connection is over at
 * once. */
world_connection *world_net_connect(uint32_t client);
bool world_net_is_open(const world_connection *connection); /* the server has admitted it */
unsigned
world_net_http_status(const world_connection *connection); /* HTTP status of a refusal; 0: none */

/* ---- the server's end ------------------------------------------------------------------------ */

/* Sets whether the rank whose fiber runs listens. */
void world_net_listen(bool listens);
/* A connection that has arrived; NULL: none. The server then admits it or refuses it with an HTTP
 * status. */
world_connection *world_net_accept(void);
void world_net_admit(world_connection *connection);
void world_net_refuse(world_connection *connection, unsigned http_status);
uint32_t world_net_client(const world_connection *connection);

#endif
