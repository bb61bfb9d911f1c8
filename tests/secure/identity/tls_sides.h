/* Handshakes over loopback sockets with mbedTLS driven as libwebsockets drives it: step by step,
 * and with the settings that libwebsockets would make (optional client certificate, TLS 1.2, the
 * first root only). Any failure of these functions fails the test. */
#ifndef FEDGE_TESTS_SECURE_IDENTITY_TLS_SIDES_H
#define FEDGE_TESTS_SECURE_IDENTITY_TLS_SIDES_H

#include <stdbool.h>

#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>

#include "secure/identity/tls.h"

#define MAX_STEPS 20000 /* of a millisecond at most */

/* A node with one group of connections, whose handler is [told]'s. Without roots, identity and
 * time. */
typedef struct node {
    fedge_clock clock;
    fedge_tls *tls;
    fedge_tls_group *group;
} node;

void node_init(node *one);
void node_fini(node *one);
/* Trusts the roots of two authorities; [second] may be NULL. */
void node_set_roots(node *of, const char *first, const char *second);

/* What the handler was told last, by side: 0 server, 1 client. */
typedef struct refusals {
    int side; /* which of them works at present */
    unsigned count[2];
    char subject[2][256];
    char reason[2][512];
    int socket;
} refusals;

extern refusals told;

/* One side of a connection. */
typedef struct side {
    mbedtls_ssl_config conf;
    mbedtls_ssl_context ssl;
    mbedtls_x509_crt chain;
    mbedtls_x509_crt root;
    mbedtls_pk_context key;
    mbedtls_net_context net;
    bool done, failed;
} side;

/* A side with the identity in a directory (NULL: none) and the root of an authority, of the node
 * that the thread has entered. */
void side_init(side *one, int endpoint, const char *identity, const char *root);
void side_fini(side *one);

/* Connects both sides by a socket, and makes their handshake; the client's side belongs to
 * [client_group], or to the group that the thread has entered if that is NULL. Returns the server's
 * decision: whether it has received the client's byte. */
bool handshake_of(side *server, side *client, fedge_tls_group *client_group);
bool handshake(side *server, side *client);

/* Whether mbedTLS returned [code] because it waits for the peer. */
bool wants(int code);

#endif
