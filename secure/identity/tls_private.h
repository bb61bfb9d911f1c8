/* What tls.c shares with chain.c. Not for other folders. */
#ifndef FEDGE_SECURE_IDENTITY_TLS_PRIVATE_H
#define FEDGE_SECURE_IDENTITY_TLS_PRIVATE_H

#include <mbedtls/x509_crt.h>

/* The trusted roots, a list; NULL when none were set. Valid for minutes after they are replaced. */
const mbedtls_x509_crt *fedge_tls_roots(void);

/* From now on, on this thread, calls [see] for each certificate that verification passes, from the
 * root (highest depth) to the peer's own (0), and [end] after each step of a handshake, with its
 * socket, or −1 when the step did not succeed. NULL: no more. */
void fedge_tls_watch_chains(void (*see)(const mbedtls_x509_crt *certificate, int depth),
                            void (*end)(int socket));

#endif
