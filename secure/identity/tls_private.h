/* Shared by tls.c, chain.c, tls_buffers.c and tickets.c. Private to this folder. */
#ifndef FEDGE_SECURE_IDENTITY_TLS_PRIVATE_H
#define FEDGE_SECURE_IDENTITY_TLS_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include <mbedtls/ssl.h>
#include <mbedtls/x509_crt.h>

#include "secure/identity/chain.h"

/* The list of trusted roots; NULL if none were set. Stays valid for minutes after a replacement. */
const mbedtls_x509_crt *fedge_tls_roots(void);

/* The number of times roots were set; 0: never. */
uint64_t fedge_tls_roots_version(void);

/* On this thread, calls [take] before each read of a connection to provide its buffers (false: no
 * memory), and [give_back] after it to release idle ones. NULL: stop. */
void fedge_tls_on_read(bool (*take)(mbedtls_ssl_context *ssl),
                       void (*give_back)(mbedtls_ssl_context *ssl));

/* On this thread, calls [see] for each certificate that passes verification, from the root (highest
 * depth) to the peer's (0), and [end] after each step of a handshake, with its socket, or −1 if the
 * step failed. NULL: stop. */
void fedge_tls_watch_chains(void (*see)(const mbedtls_x509_crt *certificate, int depth),
                            void (*end)(int socket));

/* Whether a handshake step returned this because the connection was lost. */
bool fedge_tls_is_lost(int code);

/* Callbacks of tickets.c for the connections of this thread. Any may be NULL. */
typedef struct fedge_tls_resumption {
    void (*configure)(mbedtls_ssl_config *conf); /* called when a configuration gets its defaults */
    void (*before_step)(mbedtls_ssl_context *ssl,
                        int socket); /* called before each step of a handshake */
    void (*after_step)(mbedtls_ssl_context *ssl, int code);
    bool (*after_read)(mbedtls_ssl_context *ssl, int code); /* true: read again */
} fedge_tls_resumption;
/* Not copied. NULL: stop. */
void fedge_tls_resume(const fedge_tls_resumption *hooks);

#define FEDGE_TICKET_SECRET_SIZE 32
/* Derived from the key of the server's identity; false: none was set. */
bool fedge_tls_ticket_secret(uint8_t secret[FEDGE_TICKET_SECRET_SIZE]);

/* Begins the definition of a wrapped function of mbedTLS. The linker's --wrap calls __wrap_X in
 * place of X; __real_X is mbedTLS's. */
#define FEDGE_TLS_WRAP(result, function, ...)                                                      \
    result __real_##function(__VA_ARGS__);                                                         \
    result __wrap_##function(__VA_ARGS__);                                                         \
    result __wrap_##function(__VA_ARGS__)

#endif
