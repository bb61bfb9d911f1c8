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

#endif
