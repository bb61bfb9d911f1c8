/* Identities: keys, certificate chains, roles and trusted roots.
 *
 * identity/  key.pem (0600), chain.pem (own certificate, then the issuing intermediate)
 * trust/     *.pem, one root each; the current and the next one during a rollover
 * registry/  registry.json: device_id → certificates (registry.h)
 * ca/        root and intermediate keys; never on a server
 *
 * A certificate names its device as URI SAN urn:fedge:device:UUID and its role as URI SAN
 * urn:fedge:role:ROLE; the extended key usage must agree (serverAuth for servers, clientAuth for
 * all others). The common name is never read.
 */
#ifndef FEDGE_SECURE_IDENTITY_IDENTITY_H
#define FEDGE_SECURE_IDENTITY_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "secure/identity/certificate.h"

/* Parses a DER certificate and checks what TLS leaves to the application: exactly one device SAN
 * and one role SAN, and an extended key usage for that role. FEDGE_CORRUPT: not a certificate;
 * FEDGE_DENIED: names, role or usage, with the reason. */
FEDGE_MUST_USE fedge_status fedge_certificate_read(const uint8_t *der, size_t der_size,
                                                   fedge_certificate_info *info, fedge_error *err);

/* The program's identity, with the PEM texts of its files. fedge_identity_free wipes the key. */
typedef struct fedge_identity {
    fedge_certificate_info certificate;
    char *key_pem;   /* NUL-terminated, PKCS#8 or SEC 1 ("EC PRIVATE KEY") */
    char *chain_pem; /* NUL-terminated: its certificate, then the intermediate */
} fedge_identity;

/* Loads DIR/key.pem and DIR/chain.pem. Refuses a key that others can read, a key that does not
 * match the certificate, and a certificate not for [role]; FEDGE_EXPIRED if it has expired at
 * [now_ms] (0: not checked). Messages name the file and the command that helps. */
FEDGE_MUST_USE fedge_status fedge_identity_load(const char *dir, fedge_role role, uint64_t now_ms,
                                                fedge_identity **identity, fedge_error *err);
void fedge_identity_free(fedge_identity *identity); /* NULL is allowed */

/* Installs a signed chain (certificate, then intermediate) as DIR/chain.pem if it matches
 * DIR/next-key.pem (a renewal's key, which becomes key.pem) or DIR/key.pem. FEDGE_MISMATCH: it
 * matches neither. May be repeated after a crash. */
FEDGE_MUST_USE fedge_status fedge_identity_install(const char *dir, const char *chain_pem,
                                                   fedge_certificate_info *info, fedge_error *err);

/* All roots of a trust directory as one PEM text, malloc'ed. FEDGE_NOT_FOUND: there is none;
 * FEDGE_DENIED: others can write the directory or a root. */
FEDGE_MUST_USE fedge_status fedge_trust_load(const char *dir, char **pem, fedge_error *err);

#endif
