/* The network between clients and the server: connections as TCP and TLS give them, in virtual
 * time.
 *
 * A connection carries whole websocket messages. Those for the server arrive in drawn fragments,
 * those for a client whole. Bytes of one direction keep their order; everything else is drawn:
 * delay, rate, and when an end learns that the other one is gone, which may be never.
 */
#ifndef FEDGE_TESTS_WORLD_NETWORK_H
#define FEDGE_TESTS_WORLD_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_MAX_LINKS = 256, NET_SERVER_END = 0, NET_CLIENT_END = 1 };

/* What arrives at once: a part of a message, or all of it. */
typedef struct world_arrival {
    size_t size; /* 0: a ping at the server's end, a pong at the client's */
    bool final;  /* the message ends with it */
} world_arrival;

typedef struct world_connection world_connection;

void world_net_begin(void);
void world_net_end(void);

/* The server has so many ranks, 1 at first. */
void world_net_set_ranks(uint32_t num);
/* The node of one of them. */
uint32_t world_net_draw_rank(void);

/* Draws how far and how slow the client is from now on. */
void world_net_place(uint32_t client, uint64_t delay_ns, uint64_t ns_per_byte);
/* No byte arrives at or from the client until then. */
void world_net_partition(uint32_t client, uint64_t until_ns);
/* Ends the client's connections within the bytes under way. */
void world_net_cut(uint32_t client);
/* The node's process has ended: the system closes its connections. [power]: nobody tells the other
 * ends, which find out by their own time limits. */
void world_net_drop(uint32_t node, bool power);
/* The node's machine runs again: it answers what it knows no connection for by a reset. */
void world_net_boot(uint32_t node);

/* ---- for both ends --------------------------------------------------------------------------- */

/* What the node's fiber waits for with world_wait; woken when something was sent to it. */
const void *world_net_address(uint32_t node);
/* The next moment at which something arrives there; WORLD_NEVER: nothing is under way. */
uint64_t world_net_due_ns(uint32_t node);
/* On a fiber of the node: waits until something arrives there or is sent to it, or the world's time
 * is [until_ns]. Where something is due, only lets other fibers run. */
void world_net_wait(uint32_t node, uint64_t until_ns);

bool world_net_may_send(const world_connection *connection, int end);
void world_net_send(world_connection *connection, int end, const uint8_t *data, size_t size);
/* Sends the beginning of a message, or more of it, but not its end. */
void world_net_send_part(world_connection *connection, int end, const uint8_t *data, size_t size);
/* Writes what has arrived next to [out]; false: nothing. [out_size]: that of a message at least. */
bool world_net_receive(world_connection *connection, int end, uint8_t *out, size_t out_size,
                       world_arrival *arrival);
/* A paused end receives nothing: its peer's window fills up. */
void world_net_pause(world_connection *connection, int end, bool paused);
/* The end has learned that the connection is over. It calls world_net_close, too. */
bool world_net_is_over(const world_connection *connection, int end);
/* Closes this end, after which it does not use the connection any more. */
void world_net_close(world_connection *connection, int end);

/* ---- the client's end ------------------------------------------------------------------------ */

/* To a drawn rank of the server. Never NULL. Where nobody listens, it is over at once. */
world_connection *world_net_connect(uint32_t client);
bool world_net_is_open(const world_connection *connection);         /* the server has admitted it */
unsigned world_net_http_status(const world_connection *connection); /* of a refusal; else 0 */

/* ---- the server's end ------------------------------------------------------------------------ */

/* Of the rank whose fiber runs. */
void world_net_listen(bool listens);
/* A connection that has arrived; NULL: none. It is admitted, or closed with an HTTP status. */
world_connection *world_net_accept(void);
void world_net_admit(world_connection *connection);
void world_net_refuse(world_connection *connection, unsigned http_status);
uint32_t world_net_client(const world_connection *connection);

#endif
