/* The root and validity of a peer's verified chain, so that it can be checked again while the
 * connection lives: roots may be removed, and certificates expire. For servers.
 */
#ifndef FEDGE_SECURE_IDENTITY_CHAIN_H
#define FEDGE_SECURE_IDENTITY_CHAIN_H

#include <stdint.h>

#include "edge/core/status.h"
#include "secure/identity/identity.h"

/* Plain data. */
typedef struct fedge_chain {
    uint8_t root[FEDGE_FINGERPRINT_SIZE]; /* SHA-256 of its name and key, which a renewal keeps */
    /* Unix; all certificates under the root are valid from the first to the second. */
    uint64_t not_before_ms, not_after_ms;
} fedge_chain;

/* Called when a handshake's peer has been verified, before the handshake ends; [socket] as in
 * fedge_tls_refused_socket. One handler for each thread, set by the thread itself; NULL removes it.
 */
typedef void (*fedge_chain_verified_fn)(void *user, int socket, const fedge_chain *chain);
void fedge_chain_on_verified(fedge_chain_verified_fn fn, void *user);

/* FEDGE_OK if the chain is good at [now_ms] with the roots of fedge_tls_set_roots. FEDGE_EXPIRED:
 * expired, or not valid yet; FEDGE_DENIED: its root is no longer trusted. */
FEDGE_MUST_USE fedge_status fedge_chain_check(const fedge_chain *chain, uint64_t now_ms,
                                              fedge_error *err);

/* A cache of verified chains, for a server: a device that reconnects shows the same certificates,
 * and verifying their signatures again costs as much as the rest of the handshake.
 *
 * An entry says that a chain, byte by byte, leads to a trusted root, and how long its certificates
 * are valid. It counts as long as the roots are unchanged (fedge_tls_set_roots) and the time is
 * within. Identity, revocation and the proof of the key are checked anew each time.
 *
 * One per process; any thread. The program is linked with mbedtls_x509_crt_verify_restartable
 * wrapped.
 */

#define FEDGE_CHAIN_CACHE_MAX (1u << 20)

/* Holds about [number] chains, at most FEDGE_CHAIN_CACHE_MAX; a new one replaces an old one. Before
 * threads run connections. */
FEDGE_MUST_USE fedge_status fedge_chain_cache_begin(uint32_t number, fedge_error *err);
void fedge_chain_cache_end(void); /* nothing happens when it did not begin */

/* Chains found in the cache since fedge_chain_cache_begin. */
uint64_t fedge_chain_cache_hits(void);

#endif
