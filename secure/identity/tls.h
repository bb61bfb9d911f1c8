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
 * Roots, identity and time are a node's (fedge_tls): a process may have several nodes.
 * libwebsockets passes none of them to mbedTLS, so a thread first enters the group of connections
 * that it works on (fedge_tls_group). What a process has in common is only what never changes: the
 * wrapped functions, the choice of ciphers, and mbedTLS's source of time, which reads the group's
 * clock.
 */
#ifndef FEDGE_SECURE_IDENTITY_TLS_H
#define FEDGE_SECURE_IDENTITY_TLS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "secure/identity/clock.h"
#include "secure/identity/identity.h"

/* A node's settings. Any number of threads may run TLS connections with them; one thread sets roots
 * and identity. Changes hold for connections made afterwards. */
typedef struct fedge_tls fedge_tls;

/* Connections judge certificates by [clock], which must outlive the settings. Without roots and
 * identity, those of libwebsockets are used. */
FEDGE_MUST_USE fedge_status fedge_tls_new(const fedge_clock *clock, fedge_tls **tls,
                                          fedge_error *err);
void fedge_tls_free(fedge_tls *tls); /* after its groups; NULL is fine */

/* Trusts exactly the roots in [pem] (fedge_trust_load), one or more, instead of libwebsockets'. May
 * be called again at any time, e.g. on SIGHUP. FEDGE_CORRUPT: the old ones stay. */
FEDGE_MUST_USE fedge_status fedge_tls_set_roots(fedge_tls *tls, const char *pem, fedge_error *err);

/* Presents this identity with its whole chain on every server-side connection, instead of
 * libwebsockets', which would present only the first certificate. Copies it. May be called again at
 * any time. FEDGE_CORRUPT: the old one stays. */
FEDGE_MUST_USE fedge_status fedge_tls_set_server_identity(fedge_tls *tls,
                                                          const fedge_identity *identity,
                                                          fedge_error *err);

/* Connections of a node that one thread at a time works on: those of a server's network thread, or
 * a client's. It has their handlers and what they share. */
typedef struct fedge_tls_group fedge_tls_group;

FEDGE_MUST_USE fedge_status fedge_tls_group_new(fedge_tls *tls, fedge_tls_group **group,
                                                fedge_error *err);
void fedge_tls_group_free(fedge_tls_group *group); /* after its connections; NULL is fine */

/* From now on this thread sets up and works on connections of [group]; NULL: of no node. Returns
 * the group before, for the caller to enter again afterwards. */
fedge_tls_group *fedge_tls_enter(fedge_tls_group *group);

/* Called on a connection's thread when its handshake fails. [socket]: the connection's, for
 * getpeername; [reason]: "expired", "not signed by a trusted root", "no certificate", …; [subject]:
 * the peer's claimed name, "" without a certificate. If the connection was lost, only a client's
 * handler is called. Also called if the peer has refused this side: between two fedge programs only
 * the peer's log has the cause, as [reason] says. */
typedef void (*fedge_tls_refused_fn)(void *user, int socket, const char *subject,
                                     const char *reason);
void fedge_tls_on_refused(fedge_tls_group *group, fedge_tls_refused_fn fn, void *user);

/* Shared record buffers, for servers with many idle connections: mbedTLS allocates two buffers of
 * 16 KiB per connection, but an idle one needs neither. From now on connections of [group] have
 * buffers only during transfers. The program must wrap mbedtls_ssl_write and
 * mbedtls_ssl_close_notify. */
void fedge_tls_share_buffers(fedge_tls_group *group);

#endif
