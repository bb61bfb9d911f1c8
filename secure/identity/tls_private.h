/* Shared by tls.c, chain.c, tls_buffers.c and tickets.c. Private to this folder. */
#ifndef FEDGE_SECURE_IDENTITY_TLS_PRIVATE_H
#define FEDGE_SECURE_IDENTITY_TLS_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include <mbedtls/ssl.h>
#include <mbedtls/x509_crt.h>

#include "secure/identity/chain.h"
#include "secure/identity/tickets.h"
#include "secure/identity/tls.h"

typedef struct fedge_tls_credentials fedge_tls_credentials; /* defined in tls.c */

struct fedge_tls {
    const fedge_clock *clock;
    fedge_tls_credentials *_Atomic roots;
    fedge_tls_credentials *_Atomic identity;
    _Atomic uint64_t roots_version;  /* the number of times roots were set */
    struct fedge_chain_cache *cache; /* defined in chain.c; NULL: none */
};

/* Callbacks of tickets.c for the connections of a group. Any may be NULL. */
typedef struct fedge_tls_resumption {
    /* called when a configuration gets its defaults */
    void (*configure)(fedge_tls_group *group, mbedtls_ssl_config *conf);
    /* called before each step of a handshake */
    void (*before_step)(fedge_tls_group *group, mbedtls_ssl_context *ssl, int socket);
    void (*after_step)(fedge_tls_group *group, mbedtls_ssl_context *ssl, int code);
    /* true: read again */
    bool (*after_read)(fedge_tls_group *group, mbedtls_ssl_context *ssl, int code);
} fedge_tls_resumption;

/* Functions are pointers, so that clients do not link what only servers use. All 0 at first. */
struct fedge_tls_group {
    fedge_tls *tls;
    fedge_tls_refused_fn refused;
    void *refused_user;

    /* chain.c: the chain that the present handshake step verifies, root first. [see_chain] is
     * called for each certificate that passes verification, from the root (highest depth) to the
     * peer's (0); [end_chain] after each step of a handshake, with its socket, or −1 if the step
     * failed. */
    void (*see_chain)(fedge_tls_group *group, const mbedtls_x509_crt *certificate, int depth);
    void (*end_chain)(fedge_tls_group *group, int socket);
    fedge_chain_verified_fn verified;
    void *verified_user;
    fedge_chain chain;
    bool chain_begun, chain_whole;

    /* tls_buffers.c: [take_buffers] is called before each read of a connection to provide its
     * buffers (false: no memory), [give_buffers] after it to release idle ones. */
    bool (*take_buffers)(fedge_tls_group *group, mbedtls_ssl_context *ssl);
    void (*give_buffers)(fedge_tls_group *group, mbedtls_ssl_context *ssl);
    unsigned char *spare_in, *spare_out;

    /* tickets.c, a server's */
    const fedge_tls_resumption *resumption;
    fedge_tickets tickets;
    int socket_in_step;

    /* tickets.c, a client's: the latest ticket and session */
    mbedtls_ssl_session latest;
    bool has_latest;
    bool was_lost; /* the last handshake with it failed */
};

/* The group of this thread; NULL: none. */
fedge_tls_group *fedge_tls_entered(void);

/* The list of trusted roots; NULL if none were set. Stays valid for minutes after a replacement. */
const mbedtls_x509_crt *fedge_tls_roots(const fedge_tls *tls);

/* Whether a handshake step returned this because the connection was lost. */
bool fedge_tls_is_lost(int code);

#define FEDGE_TICKET_SECRET_SIZE 32
/* Derived from the key of the server's identity; false: none was set. */
bool fedge_tls_ticket_secret(const fedge_tls *tls, uint8_t secret[FEDGE_TICKET_SECRET_SIZE]);

/* Begins the definition of a wrapped function of mbedTLS. The linker's --wrap calls __wrap_X in
 * place of X; __real_X is mbedTLS's. */
#define FEDGE_TLS_WRAP(result, function, ...)                                                      \
    result __real_##function(__VA_ARGS__);                                                         \
    result __wrap_##function(__VA_ARGS__);                                                         \
    result __wrap_##function(__VA_ARGS__)

#endif
