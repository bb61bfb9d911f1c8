/* Addresses to listen on, and the sockets that do. */
#ifndef FEDGE_AGGREGATOR_NET_LISTENER_H
#define FEDGE_AGGREGATOR_NET_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_ADDRESS_HOST 64
#define FEDGE_ADDRESS_TEXT 64 /* "[…]:65535" and its NUL */
#define FEDGE_LISTEN_BACKLOG 1024

typedef struct fedge_address {
    char host[FEDGE_ADDRESS_HOST]; /* without brackets */
    uint16_t port;                 /* 0: any free one */
} fedge_address;

/* "0.0.0.0:9092", "localhost:9092", "[::1]:9092". FEDGE_INVALID_ARGUMENT. */
FEDGE_MUST_USE fedge_status fedge_address_parse(const char *text, fedge_address *address,
                                                fedge_error *err);

/* Opens a listening socket, non-blocking; *port gets the one taken. FEDGE_BUSY: another program
 * listens there; [option] names what the user would change, for the message. Close it with
 * fedge_listener_close. */
FEDGE_MUST_USE fedge_status fedge_listener_open(const fedge_address *address, const char *option,
                                                int *listener, uint16_t *port, fedge_error *err);
void fedge_listener_close(int listener); /* or any socket; −1 is fine */

/* Where a connection comes from; known also when it is gone. */
typedef struct fedge_peer_address {
    uint8_t host[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
    uint16_t port;
} fedge_peer_address;

/* "127.0.0.1:40000", "[::1]:40000". Returns [text]. */
char *fedge_peer_address_text(const fedge_peer_address *address, char text[FEDGE_ADDRESS_TEXT]);
/* Whether one party is likely to have both: the same IPv4 address, or the same /64 of IPv6. */
bool fedge_peer_address_same_party(const fedge_peer_address *one, const fedge_peer_address *other);
/* The same number for all addresses of one party, and hardly ever for two; never 0. */
uint64_t fedge_peer_address_key(const fedge_peer_address *address);

/* Takes the next connection, if there is one: *socket, or −1, and whose it is. FEDGE_BUSY: no file
 * descriptor is left, wait before the next try. */
FEDGE_MUST_USE fedge_status fedge_listener_accept(int listener, int *socket,
                                                  fedge_peer_address *from, fedge_error *err);

/* What a peer has sent first, without taking it. */
typedef enum fedge_first_bytes {
    FEDGE_FIRST_HELLO,   /* the begin of a TLS ClientHello */
    FEDGE_FIRST_TOO_FEW, /* may become one */
    FEDGE_FIRST_OTHER,
    FEDGE_FIRST_CLOSED /* nothing, and the connection is over */
} fedge_first_bytes;
fedge_first_bytes fedge_socket_first_bytes(int socket);

/* The peer has hung up, or its connection is broken. */
bool fedge_socket_has_hung_up(int socket);

/* For how long the peer has sent nothing; 0 while bytes of it wait to be read, and where the system
 * does not tell. */
uint64_t fedge_socket_silent_ms(int socket);

/* Makes room for [wanted] file descriptors, as far as the hard limit allows; *granted of them. */
FEDGE_MUST_USE fedge_status fedge_raise_file_limit(uint32_t wanted, uint32_t *granted,
                                                   fedge_error *err);

#endif
