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
#ifndef FEDGE_SECURE_IDENTITY_VERDICTS_H
#define FEDGE_SECURE_IDENTITY_VERDICTS_H

#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_VERDICTS_MAX (1u << 20)

/* Remembers verdicts on up to about [number] chains, at most FEDGE_VERDICTS_MAX; a new one takes an
 * old one's place. Before threads run connections. */
FEDGE_MUST_USE fedge_status fedge_verdicts_begin(uint32_t number, fedge_error *err);
void fedge_verdicts_end(void); /* nothing happens when it did not begin */

/* Since the beginning: chains whose verdict was remembered. */
uint64_t fedge_verdicts_recalled(void);

#endif
