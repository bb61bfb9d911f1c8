/* Helpers for mbedTLS: randomness, errors, times, files and the names in a certificate. Private to
 * this folder. */
#ifndef FEDGE_SECURE_IDENTITY_X509_H
#define FEDGE_SECURE_IDENTITY_X509_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mbedtls/x509_crt.h>

#include "edge/core/os.h"
#include "edge/core/status.h"
#include "secure/identity/certificate.h"

#define FEDGE_URN_DEVICE "urn:fedge:device:"
#define FEDGE_URN_ROLE "urn:fedge:role:"

#define FEDGE_X509_MAX_PEM 65536u /* bytes of a key, chain, root or request file */
#define FEDGE_X509_MAX_SUBJECT 256
#define FEDGE_X509_MAX_HOSTS 16 /* DNS names and IP addresses, each */
#define FEDGE_X509_URN_SIZE 64
#define FEDGE_X509_HOSTS_TEXT (FEDGE_X509_MAX_HOSTS * 320) /* bytes of all hosts as text */

/* The operating system's random numbers in mbedTLS's form. */
int fedge_x509_random(void *unused, unsigned char *out, size_t size);

/* mbedTLS's text for [code], or its number in builds without texts. */
void fedge_x509_error_text(int code, char *out, size_t size);

/* fedge_fail with "what: " and that text; FEDGE_NO_MEMORY if [code] means that. */
fedge_status fedge_x509_fail(fedge_error *err, fedge_status status, int code, const char *what);

uint64_t fedge_x509_ms(const mbedtls_x509_time *time);

/* The names in a request or certificate. Hosts point into the parsed data. */
typedef struct fedge_x509_names {
    char device_id[FEDGE_UUID_TEXT];
    fedge_role role;
    mbedtls_x509_buf dns[FEDGE_X509_MAX_HOSTS]; /* names are not NUL-terminated */
    size_t num_dns;
    mbedtls_x509_buf ip[FEDGE_X509_MAX_HOSTS]; /* 4 or 16 bytes each */
    size_t num_ip;
} fedge_x509_names;

/* Reads subject alternative names: exactly one device and one role, any hosts, nothing else.
 * FEDGE_DENIED names the fault. */
FEDGE_MUST_USE fedge_status fedge_x509_names_read(const mbedtls_x509_sequence *names,
                                                  fedge_x509_names *out, fedge_error *err);

/* Names in mbedTLS's form, filled from [names], into which it points. */
typedef struct fedge_x509_san_nodes {
    mbedtls_x509_san_list nodes[2 + 2 * FEDGE_X509_MAX_HOSTS]; /* the list starts at nodes[0] */
    char device[FEDGE_X509_URN_SIZE];
    char role[FEDGE_X509_URN_SIZE];
} fedge_x509_san_nodes;
void fedge_x509_names_list(const fedge_x509_names *names, fedge_x509_san_nodes *list);

/* Whether it has only letters, digits, '.' and '-', at most 253 bytes; no wildcard. */
bool fedge_x509_dns_valid(const char *name, size_t length);
/* FEDGE_DENIED unless servers have a host, only servers and relays have any, and DNS names are
 * valid. */
FEDGE_MUST_USE fedge_status fedge_x509_check_hosts(const fedge_x509_names *names, fedge_error *err);
/* The hosts of [names] that are not in [of]; returns their number. DNS names are compared byte by
 * byte. Sets no other member of [out]. */
size_t fedge_x509_hosts_beyond(const fedge_x509_names *names, const fedge_x509_names *of,
                               fedge_x509_names *out);
/* Whether there are none. */
bool fedge_x509_hosts_within(const fedge_x509_names *names, const fedge_x509_names *of);
/* "fl.example.org, 10.0.0.1", for people. The names must be valid. Returns [out]. */
const char *fedge_x509_hosts_text(const fedge_x509_names *names, char out[FEDGE_X509_HOSTS_TEXT]);

/* Creates an ECDSA key on P-256 in [key], which the caller has initialised; writes a key as PEM
 * text, which the caller frees. */
FEDGE_MUST_USE fedge_status fedge_x509_make_key(mbedtls_pk_context *key, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_x509_key_text(const mbedtls_pk_context *key, char **pem,
                                                fedge_error *err);
/* FEDGE_DENIED unless it is an elliptic-curve key on P-256. */
FEDGE_MUST_USE fedge_status fedge_x509_check_curve(const mbedtls_pk_context *key, fedge_error *err);

/* Parses a key's PEM text to [key], which the caller has initialised. [what] is for messages. */
FEDGE_MUST_USE fedge_status fedge_x509_parse_key(const char *pem, const char *what,
                                                 mbedtls_pk_context *key, fedge_error *err);

/* Checks that DIR/NAME is the private key of [public_key]. FEDGE_NOT_FOUND: no file;
 * FEDGE_MISMATCH: another key. [path] gets its path. */
FEDGE_MUST_USE fedge_status fedge_x509_compare_key(const char *dir, const char *name,
                                                   const mbedtls_pk_context *public_key,
                                                   char path[FEDGE_OS_MAX_PATH], fedge_error *err);

/* fedge_certificate_read of a certificate that is already parsed. */
FEDGE_MUST_USE fedge_status fedge_x509_info(const mbedtls_x509_crt *certificate,
                                            fedge_certificate_info *info, fedge_error *err);

/* Parses a NUL-terminated PEM text of one or more certificates to [chain], which the caller
 * initialises and frees. [what] is the file's name, for messages. */
FEDGE_MUST_USE fedge_status fedge_x509_parse_chain(const char *pem, const char *what,
                                                   mbedtls_x509_crt *chain, fedge_error *err);

/* A distinguished name as text ("CN=pi-4"), truncated at [size]; for people only. */
void fedge_x509_subject(const mbedtls_x509_name *name, char *out, size_t size);

/* DIR/NAME; FEDGE_TOO_BIG if it does not fit. */
FEDGE_MUST_USE fedge_status fedge_x509_path(char *out, size_t size, const char *dir,
                                            const char *name, fedge_error *err);

/* Reads the file DIR/NAME as text, malloc'ed; NULL after a failure. [path] gets its path. */
FEDGE_MUST_USE fedge_status fedge_x509_read_text(const char *dir, const char *name,
                                                 char path[FEDGE_OS_MAX_PATH], char **text,
                                                 fedge_error *err);

#endif
