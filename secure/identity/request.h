/* Requests for a certificate (PKCS #10): made where the key lives, signed where the authority does.
 *
 * A request carries the names that the certificate will have. A request for renewal also carries
 * the device's present certificate and a signature by its key over the request, which proves to the
 * authority that the device has sent it:
 *
 *   -----BEGIN CERTIFICATE REQUEST-----   the request
 *   -----BEGIN CERTIFICATE-----           the present certificate (renewal only)
 *   -----BEGIN FEDGE RENEWAL-----         ECDSA over SHA-256("fedge renewal 1" + the request's DER)
 */
#ifndef FEDGE_SECURE_IDENTITY_REQUEST_H
#define FEDGE_SECURE_IDENTITY_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include <mbedtls/x509_csr.h>

#include "edge/core/status.h"
#include "secure/identity/identity.h"
#include "secure/identity/x509.h"

/* The names in a request. */
typedef struct fedge_key_request_names {
    const char *name; /* name for people; fedge_name_valid */
    fedge_role role;
    const char *device_id;  /* canonical text */
    const char *const *dns; /* [num_dns] host names; servers and relays only */
    size_t num_dns;
    const char *const *ip; /* [num_ip] addresses as text, IPv4 or IPv6 */
    size_t num_ip;
} fedge_key_request_names;

/* Creates a key and a request for it, both as PEM text that the caller frees (the key with
 * fedge_key_request_wipe). FEDGE_INVALID_ARGUMENT, FEDGE_DENIED (hosts and role do not match),
 * FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_key_request_make(const fedge_key_request_names *names,
                                                   char **key_pem, char **request_pem,
                                                   fedge_error *err);

/* Creates a renewal request with the names of the present certificate. With [new_key], *key_pem is
 * a new key; otherwise the present key is reused and *key_pem is NULL. */
FEDGE_MUST_USE fedge_status fedge_key_request_renew(const fedge_identity *present, bool new_key,
                                                    char **key_pem, char **request_pem,
                                                    fedge_error *err);

/* Overwrites a secret text and frees it; NULL is allowed. */
void fedge_key_request_wipe(char *secret);

/* A request that was read and checked: its signature, its key's curve and its names. */
typedef struct fedge_key_request {
    mbedtls_x509_csr csr;
    fedge_x509_names names; /* points into csr */
    char name[FEDGE_NAME_SIZE];
    bool renews; /* signed by the present certificate's key; that certificate names the same device,
                    role and all hosts */
    fedge_certificate_info present;
} fedge_key_request;

/* Reads a request's PEM text. FEDGE_CORRUPT; FEDGE_DENIED: a check failed. Free it with
 * fedge_key_request_fini, also after an error. */
FEDGE_MUST_USE fedge_status fedge_key_request_read(const char *pem, fedge_key_request *request,
                                                   fedge_error *err);
void fedge_key_request_fini(fedge_key_request *request);

/* Checks that [granted] has exactly the hosts of [request], in any order; its other members are
 * ignored. FEDGE_DENIED: the message has the difference. FEDGE_INVALID_ARGUMENT, FEDGE_TOO_BIG: a
 * granted name is not a valid host. */
FEDGE_MUST_USE fedge_status fedge_key_request_check_hosts(const fedge_key_request *request,
                                                          const fedge_key_request_names *granted,
                                                          fedge_error *err);

#endif
