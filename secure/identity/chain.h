/* Root and validity of a peer's verified chain, so that a live connection can be rechecked: roots
 * may be removed, and certificates expire. For servers. */
#ifndef FEDGE_SECURE_IDENTITY_CHAIN_H
#define FEDGE_SECURE_IDENTITY_CHAIN_H

#include <stdint.h>

#include "edge/core/status.h"
#include "secure/identity/identity.h"
#include "secure/identity/tls.h"

/* Plain data. */
typedef struct fedge_chain {
    uint8_t root[FEDGE_FINGERPRINT_SIZE]; /* SHA-256 of the root's name and key, which a renewal
                                             does not change */
    /* Unix times between which all certificates under the root are valid */
    uint64_t not_before_ms, not_after_ms;
} fedge_chain;

/* Called when a handshake's peer has been verified, before the handshake ends; [socket]: the
 * connection's. NULL removes the handler. */
typedef void (*fedge_chain_verified_fn)(void *user, int socket, const fedge_chain *chain);
void fedge_chain_on_verified(fedge_tls_group *group, fedge_chain_verified_fn fn, void *user);

/* Checks a chain at [now_ms] against the roots of fedge_tls_set_roots. FEDGE_EXPIRED: expired, or
 * not yet valid; FEDGE_DENIED: its root is no longer trusted. */
FEDGE_MUST_USE fedge_status fedge_chain_check(const fedge_tls *tls, const fedge_chain *chain,
                                              uint64_t now_ms, fedge_error *err);

/* A server's cache of verified chains: a reconnecting device presents the same certificates, and
 * verifying their signatures costs as much as the rest of the handshake.
 *
 * An entry states that a chain, byte by byte, leads to a trusted root, and its validity. It is used
 * while the roots are unchanged (fedge_tls_set_roots) and the time is within the validity.
 * Identity, revocation and the proof of the key are always checked. One cache per node; any
 * thread. The program must wrap mbedtls_x509_crt_verify_restartable.
 */

#define FEDGE_CHAIN_CACHE_MAX (1u << 20)

/* Caches about [number] chains, at most FEDGE_CHAIN_CACHE_MAX; new chains replace old ones. Call
 * before threads run connections. */
FEDGE_MUST_USE fedge_status fedge_chain_cache_begin(fedge_tls *tls, uint32_t number,
                                                    fedge_error *err);
void fedge_chain_cache_end(fedge_tls *tls); /* does nothing without a cache */

/* Cache hits since fedge_chain_cache_begin. */
uint64_t fedge_chain_cache_hits(const fedge_tls *tls);

#endif
