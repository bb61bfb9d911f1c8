/* Addresses to listen on, and the sockets that do. */
#ifndef FEDGE_AGGREGATOR_SERVER_LISTENER_H
#define FEDGE_AGGREGATOR_SERVER_LISTENER_H

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

/* Takes the next connection, if there is one: *socket, or −1. FEDGE_BUSY: no file descriptor is
 * left, wait before the next try. */
FEDGE_MUST_USE fedge_status fedge_listener_accept(int listener, int *socket, fedge_error *err);

/* The address of a socket's peer: "127.0.0.1:40000", or "unknown". Returns [text]. */
char *fedge_socket_peer(int socket, char text[FEDGE_ADDRESS_TEXT]);

/* Makes room for [wanted] file descriptors, as far as the hard limit allows; *granted of them. */
FEDGE_MUST_USE fedge_status fedge_raise_file_limit(uint32_t wanted, uint32_t *granted,
                                                   fedge_error *err);

#endif
