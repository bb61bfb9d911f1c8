/* The TLS settings that libwebsockets leaves open on mbedTLS, applied at link time.
 *
 * Programs that link fedge_identity_tls carry -Wl,--wrap options, so that every TLS configuration
 * of the process
 *   - speaks TLS 1.3 only, with P-256, ECDSA and AEAD suites;
 *   - as a client always demands a good certificate from the server, and as a server demands one
 *     wherever it asks for one (libwebsockets alone only asks). Whether it asks stays a property of
 *     the virtual host: LWS_SERVER_OPTION_REQUIRE_VALID_OPENSSL_CLIENT_CERT;
 *   - trusts all roots given to fedge_tls_set_roots, not just the first in a file;
 *   - refuses, in the handshake, a certificate without fedge's names, and one whose role does not
 *     fit: a client talks to role server only, a server to every other role;
 *   - reports why a handshake failed.
 * What TLS cannot know (registered, pending, revoked) is for fedge_peer_check.
 *
 * The settings are one per process, since the wrapped functions get no other context. Any number of
 * threads may run TLS connections; one thread sets roots and identity, the first time before any
 * connection. Changes hold for connections made afterwards.
 */
#ifndef FEDGE_SECURE_IDENTITY_TLS_H
#define FEDGE_SECURE_IDENTITY_TLS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "secure/identity/identity.h"

/* Trusts exactly the roots in [pem] (fedge_trust_load), one or more, instead of libwebsockets'. May
 * be called again at any time, e.g. on SIGHUP. FEDGE_CORRUPT: the old ones stay. */
FEDGE_MUST_USE fedge_status fedge_tls_set_roots(const char *pem, fedge_error *err);

/* Presents this identity with its whole chain on every server-side connection, instead of
 * libwebsockets', which would present only the first certificate. Copies it. May be called again at
 * any time. FEDGE_CORRUPT: the old one stays. */
FEDGE_MUST_USE fedge_status fedge_tls_set_server_identity(const fedge_identity *identity,
                                                          fedge_error *err);

/* Frees roots, identity and this thread's handler. Only without connections: at the end of a
 * program, and in tests. */
void fedge_tls_reset(void);

/* Called on a connection's thread when its handshake fails. [reason]: "expired", "not signed by a
 * trusted root", "no certificate", …; [subject]: the peer's claimed name, "" without a certificate.
 * If the connection was lost, only a client's handler is called. Also called if the peer has
 * refused this side: between two fedge programs only the peer's log has the cause, as [reason]
 * says. One handler per thread, set by that thread; NULL removes it. */
typedef void (*fedge_tls_refused_fn)(void *user, const char *subject, const char *reason);
void fedge_tls_on_refused(fedge_tls_refused_fn fn, void *user);

/* In the handler: the connection's socket, for getpeername; −1 elsewhere. */
int fedge_tls_refused_socket(void);

/* Certificate time, for validity checks here and in mbedTLS: the latest of the system clock, the
 * build's date and the time set here (the last server time that a client stored), so that boards
 * without a clock battery work. Any thread. */
void fedge_tls_set_min_time(uint64_t unix_ms);
uint64_t fedge_tls_now_ms(void);

/* Shared record buffers, for servers with many idle connections: mbedTLS allocates two buffers of
 * 16 KiB per connection, but an idle one needs neither. After begin, connections of this thread
 * have buffers only during transfers. At the end of the thread, end frees the spare ones. The
 * program must wrap mbedtls_ssl_write and mbedtls_ssl_close_notify. */
void fedge_tls_buffers_begin(void);
void fedge_tls_buffers_end(void);

#endif
