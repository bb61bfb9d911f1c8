/* The certificate authority: an offline root and the issuing intermediate that signs requests.
 *
 *   DIR/root.pem         self-signed, path length 1; goes into every trust/
 *   DIR/root-key.pem     0600; only needed for a new intermediate, so best kept elsewhere
 *   DIR/issuing.pem      signed by the root, path length 0; part of every chain
 *   DIR/issuing-key.pem  0600
 *
 * All keys are ECDSA on P-256, all signatures with SHA-256, serial numbers 128 random bits.
 * notBefore lies FEDGE_CA_BACKDATE_MS back, for boards whose clocks are behind.
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

/* Makes DIR (0700) with a new root and intermediate. Called again it continues where it was cut
 * off, and does not change a complete authority of this name. FEDGE_EXISTS: the files belong to
 * another authority. [name]: the authority's, fedge_name_valid and at most 40 bytes.
 * [root_end_ms] and [issuing_end_ms] get the ends of validity (Unix). */
FEDGE_MUST_USE fedge_status fedge_ca_create(const char *dir, const char *name, unsigned root_days,
                                            unsigned issuing_days, uint64_t now_ms,
                                            uint64_t *root_end_ms, uint64_t *issuing_end_ms,
                                            fedge_error *err);

/* Replaces DIR's intermediate by a new one with a new key, signed by DIR's root. Certificates
 * issued before stay good: their chains carry the old one. */
FEDGE_MUST_USE fedge_status fedge_ca_renew_issuing(const char *dir, const char *name,
                                                   unsigned issuing_days, uint64_t now_ms,
                                                   uint64_t *issuing_end_ms, fedge_error *err);

/* An authority ready to sign. Opaque; its key is wiped by fedge_ca_free. */
typedef struct fedge_ca fedge_ca;

/* Loads DIR's intermediate and its key. FEDGE_EXPIRED at [now_ms]; FEDGE_DENIED when the key is
 * open to others; FEDGE_MISMATCH when key and certificate do not belong together. */
FEDGE_MUST_USE fedge_status fedge_ca_load(const char *dir, uint64_t now_ms, fedge_ca **ca,
                                          fedge_error *err);
void fedge_ca_free(fedge_ca *ca); /* NULL is fine */

/* True if [chain] is a certificate followed by the intermediate of [ca], as fedge_ca_sign makes it.
 */
bool fedge_ca_is_of(const fedge_ca *ca, const mbedtls_x509_crt *chain);

/* Signs a request that fedge_key_request_read has accepted, for [days] but not beyond the
 * intermediate's own end. *chain_pem: the new certificate, then the intermediate, for the caller to
 * free. */
FEDGE_MUST_USE fedge_status fedge_ca_sign(const fedge_ca *ca, const fedge_key_request *request,
                                          unsigned days, uint64_t now_ms, char **chain_pem,
                                          fedge_certificate_info *info, fedge_error *err);

#endif
