/* What tls.c and chain.c share with tls_buffers.c and tickets.c. Not for other folders. */
#ifndef FEDGE_SECURE_IDENTITY_TLS_PRIVATE_H
#define FEDGE_SECURE_IDENTITY_TLS_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include <mbedtls/ssl.h>
#include <mbedtls/x509_crt.h>

#include "secure/identity/chain.h"

/* The trusted roots, a list; NULL when none were set. Valid for minutes after they are replaced. */
const mbedtls_x509_crt *fedge_tls_roots(void);

/* Counts how often they were set, from 1; 0: never. */
uint64_t fedge_tls_roots_version(void);

/* From now on, on this thread, calls [take] before each read of a connection, to provide its
 * buffers (false: no memory), and [give_back] after it, to release idle ones. NULL: no more. */
void fedge_tls_on_read(bool (*take)(mbedtls_ssl_context *ssl),
                       void (*give_back)(mbedtls_ssl_context *ssl));

/* From now on, on this thread, calls [see] for each certificate that verification passes, from the
 * root (highest depth) to the peer's own (0), and [end] after each step of a handshake, with its
 * socket, or −1 when the step did not succeed. NULL: no more. */
void fedge_tls_watch_chains(void (*see)(const mbedtls_x509_crt *certificate, int depth),
                            void (*end)(int socket));

/* Whether a step of a handshake returned this because its connection was gone. */
bool fedge_tls_is_lost(int code);

/* What tickets.c does around the connections of this thread. Any may be NULL. */
typedef struct fedge_tls_resumption {
    void (*configure)(mbedtls_ssl_config *conf); /* called when a configuration gets its defaults */
    void (*before_step)(mbedtls_ssl_context *ssl,
                        int socket); /* called before each step of a handshake */
    void (*after_step)(mbedtls_ssl_context *ssl, int code);
    bool (*after_read)(mbedtls_ssl_context *ssl, int code); /* true: read again */
} fedge_tls_resumption;
/* Not copied. NULL: no more. */
void fedge_tls_resume(const fedge_tls_resumption *hooks);

#define FEDGE_TICKET_SECRET_SIZE 32
/* Made from the key of the server's identity; false: none was set. */
bool fedge_tls_ticket_secret(uint8_t secret[FEDGE_TICKET_SECRET_SIZE]);

/* Begins the definition of a wrapped function of mbedTLS. The linker's --wrap calls __wrap_X in
 * place of X; __real_X is mbedTLS's. */
#define FEDGE_TLS_WRAP(result, function, ...)                                                      \
    result __real_##function(__VA_ARGS__);                                                         \
    result __wrap_##function(__VA_ARGS__);                                                         \
    result __wrap_##function(__VA_ARGS__)

#endif
