/* What a peer's verified chain rests on, so that it can be judged again while the connection lives:
 * roots may be taken away, and certificates expire. For servers.
 */
#ifndef FEDGE_SECURE_IDENTITY_CHAIN_H
#define FEDGE_SECURE_IDENTITY_CHAIN_H

#include <stdint.h>

#include "edge/core/status.h"
#include "secure/identity/identity.h"

/* Plain data. */
typedef struct fedge_chain {
    uint8_t root[FEDGE_FINGERPRINT_SIZE]; /* SHA-256 of its name and key: it may be issued anew */
    uint64_t not_before_ms,
        not_after_ms; /* Unix; while all certificates under the root are valid */
} fedge_chain;

/* Called when a handshake's peer has been verified, before it is done; [socket] as in
 * fedge_tls_refused_socket. One handler for each thread, which sets it for itself; NULL removes
 * it. */
typedef void (*fedge_chain_verified_fn)(void *user, int socket, const fedge_chain *chain);
void fedge_chain_on_verified(fedge_chain_verified_fn fn, void *user);

/* Would the chain be accepted at [now_ms], with the roots of fedge_tls_set_roots? FEDGE_EXPIRED (or
 * not valid yet), FEDGE_DENIED: its root is no longer trusted. */
FEDGE_MUST_USE fedge_status fedge_chain_check(const fedge_chain *chain, uint64_t now_ms,
                                              fedge_error *err);

/* Verdicts on chains, remembered by a server: a device that comes back shows the certificates that
 * it has shown before, and checking their signatures again would cost as much as the rest of the
 * handshake together.
 *
 * What is remembered is that a chain, byte by byte, leads to a trusted root, and for how long its
 * certificates are valid. It counts as long as the roots are those that were set then
 * (fedge_tls_set_roots) and the time is within; who a device is and whether it is revoked is asked
 * anew each time. The peer proves that it has the key each time, too.
 *
 * One memory per process; any thread. The program is linked with
 * mbedtls_x509_crt_verify_restartable wrapped.
 */

#define FEDGE_VERDICTS_MAX (1u << 20)

/* Remembers verdicts on up to about [number] chains, at most FEDGE_VERDICTS_MAX; a new one takes an
 * old one's place. Before threads run connections. */
FEDGE_MUST_USE fedge_status fedge_verdicts_begin(uint32_t number, fedge_error *err);
void fedge_verdicts_end(void); /* nothing happens when it did not begin */

/* Since the beginning: chains whose verdict was remembered. */
uint64_t fedge_verdicts_recalled(void);

#endif
