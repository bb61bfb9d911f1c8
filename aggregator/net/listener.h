/* Listening addresses and sockets. */
#ifndef FEDGE_AGGREGATOR_NET_LISTENER_H
#define FEDGE_AGGREGATOR_NET_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_ADDRESS_HOST 64
#define FEDGE_ADDRESS_TEXT 64 /* "[…]:65535" with NUL */
#define FEDGE_LISTEN_BACKLOG 1024

typedef struct fedge_address {
    char host[FEDGE_ADDRESS_HOST]; /* host without brackets */
    uint16_t port;                 /* 0: any free port */
} fedge_address;

/* Parses "0.0.0.0:9092", "localhost:9092" or "[::1]:9092". FEDGE_INVALID_ARGUMENT otherwise. */
FEDGE_MUST_USE fedge_status fedge_address_parse(const char *text, fedge_address *address,
                                                fedge_error *err);

/* Opens a non-blocking listening socket; *port is the port it got. FEDGE_BUSY: the port is in use;
 * the message names [option] as what to change. Close it with fedge_listener_close. */
FEDGE_MUST_USE fedge_status fedge_listener_open(const fedge_address *address, const char *option,
                                                int *listener, uint16_t *port, fedge_error *err);
void fedge_listener_close(int listener); /* any socket; −1 is allowed */

/* A peer's address, valid also after its connection has closed. */
typedef struct fedge_peer_address {
    uint8_t host[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
    uint16_t port;
} fedge_peer_address;

/* Formats "127.0.0.1:40000" or "[::1]:40000". Returns [text]. */
char *fedge_peer_address_text(const fedge_peer_address *address, char text[FEDGE_ADDRESS_TEXT]);
/* Whether both addresses probably belong to one party: the same IPv4 address, or the same IPv6 /64.
 */
bool fedge_peer_address_same_party(const fedge_peer_address *one, const fedge_peer_address *other);
/* Hash of an address's party; never 0. */
uint64_t fedge_peer_address_key(const fedge_peer_address *address);

/* Accepts the next connection: *socket is −1 if there is none. FEDGE_BUSY: no file descriptor is
 * left; wait before the next call. */
FEDGE_MUST_USE fedge_status fedge_listener_accept(int listener, int *socket,
                                                  fedge_peer_address *from, fedge_error *err);

/* The first bytes of a peer, which stay in the socket. */
typedef enum fedge_first_bytes {
    FEDGE_FIRST_HELLO,   /* start of a TLS ClientHello */
    FEDGE_FIRST_TOO_FEW, /* too short to decide */
    FEDGE_FIRST_OTHER,
    FEDGE_FIRST_CLOSED /* the peer has closed without sending */
} fedge_first_bytes;
fedge_first_bytes fedge_socket_first_bytes(int socket);

/* Whether the peer has hung up or its connection is broken. */
bool fedge_socket_has_hung_up(int socket);

/* Milliseconds since the peer last sent something; 0 if unread bytes are there or the system does
 * not report it. */
uint64_t fedge_socket_silent_ms(int socket);

/* Raises the limit of file descriptors to [wanted], or to the hard limit; *granted is the result.
 */
FEDGE_MUST_USE fedge_status fedge_raise_file_limit(uint32_t wanted, uint32_t *granted,
                                                   fedge_error *err);

#endif
