/* The certificate authority: an offline root, and an issuing intermediate that signs requests.
 *
 *     DIR/root.pem         self-signed, path length 1; goes into every trust/
 *     DIR/root-key.pem     0600; only needed for a new intermediate, so best kept elsewhere
 *     DIR/issuing.pem      signed by the root, path length 0; part of every chain
 *     DIR/issuing-key.pem  0600
 *
 * All keys are ECDSA on P-256, signatures use SHA-256, and serial numbers are 128 random bits.
 * notBefore is FEDGE_CA_BACKDATE_MS in the past, for boards with slow clocks.
 */
#ifndef FEDGE_SECURE_IDENTITY_CA_H
#define FEDGE_SECURE_IDENTITY_CA_H

#include <stdbool.h>
#include <stdint.h>

#include <mbedtls/x509_crt.h>

#include "edge/core/status.h"
#include "secure/identity/identity.h"
#include "secure/identity/request.h"

#define FEDGE_CA_BACKDATE_MS UINT64_C(86400000)
#define FEDGE_CA_ROOT_DAYS 7305
#define FEDGE_CA_ISSUING_DAYS 1826
#define FEDGE_CA_LEAF_DAYS 365
#define FEDGE_CA_MAX_DAYS 36500

/* Creates DIR (0700) with a new root and intermediate. A repeated call continues an interrupted
 * one, and does not change a complete authority of this name. FEDGE_EXISTS: the files belong to
 * another authority. [name]: fedge_name_valid and at most 40 bytes. [root_end_ms] and
 * [issuing_end_ms] get the ends of validity (Unix). */
FEDGE_MUST_USE fedge_status fedge_ca_create(const char *dir, const char *name, unsigned root_days,
                                            unsigned issuing_days, uint64_t now_ms,
                                            uint64_t *root_end_ms, uint64_t *issuing_end_ms,
                                            fedge_error *err);

/* Replaces DIR's intermediate by a new one with a new key, signed by DIR's root. Issued
 * certificates stay valid: their chains include the old intermediate. */
FEDGE_MUST_USE fedge_status fedge_ca_renew_issuing(const char *dir, const char *name,
                                                   unsigned issuing_days, uint64_t now_ms,
                                                   uint64_t *issuing_end_ms, fedge_error *err);

/* An authority ready to sign. Opaque; its key is wiped by fedge_ca_free. */
typedef struct fedge_ca fedge_ca;

/* Loads DIR's intermediate and its key. FEDGE_EXPIRED at [now_ms]; FEDGE_DENIED: others can read
 * the key; FEDGE_MISMATCH: key and certificate do not match. */
FEDGE_MUST_USE fedge_status fedge_ca_load(const char *dir, uint64_t now_ms, fedge_ca **ca,
                                          fedge_error *err);
void fedge_ca_free(fedge_ca *ca); /* NULL is allowed */

/* Whether [chain] is a certificate followed by [ca]'s intermediate, as fedge_ca_sign makes it. */
bool fedge_ca_is_of(const fedge_ca *ca, const mbedtls_x509_crt *chain);

/* Signs a request accepted by fedge_key_request_read for [days], but not beyond the intermediate's
 * validity. *chain_pem: the new certificate, then the intermediate; the caller frees it. */
FEDGE_MUST_USE fedge_status fedge_ca_sign(const fedge_ca *ca, const fedge_key_request *request,
                                          unsigned days, uint64_t now_ms, char **chain_pem,
                                          fedge_certificate_info *info, fedge_error *err);

#endif
