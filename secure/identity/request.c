#include "secure/identity/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/oid.h>
#include <mbedtls/pem.h>
#include <mbedtls/pk.h>
#include <mbedtls/platform_util.h>
#include <mbedtls/sha256.h>

#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"
#include "secure/identity/x509.h"

#define RENEWAL_BEGIN "-----BEGIN FEDGE RENEWAL-----"
#define RENEWAL_END "-----END FEDGE RENEWAL-----"
#define RENEWAL_CONTEXT "fedge renewal 1"
#define CANNOT_SIGN "cannot sign the renewal"

void fedge_key_request_wipe(char *secret)
{
    if (secret)
        mbedtls_platform_zeroize(secret, strlen(secret));
    free(secret);
}

/* --- making ----------------------------------------------------------------------------------- */

/* [out] points into [addresses], which stores the bytes of the IP addresses. */
static fedge_status read_hosts(const fedge_key_request_names *names, fedge_x509_names *out,
                               uint8_t addresses[FEDGE_X509_MAX_HOSTS][16], fedge_error *err)
{
    if (names->num_dns > FEDGE_X509_MAX_HOSTS || names->num_ip > FEDGE_X509_MAX_HOSTS) {
        return fedge_fail(err, FEDGE_TOO_BIG, "at most %d DNS names and %d IP addresses",
                          FEDGE_X509_MAX_HOSTS, FEDGE_X509_MAX_HOSTS);
    }
    for (; out->num_dns < names->num_dns; out->num_dns++) {
        const char *dns = names->dns[out->num_dns];
        if (!fedge_x509_dns_valid(dns, strlen(dns)))
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%.80s' is not a DNS name", dns);
        out->dns[out->num_dns].p = (unsigned char *)(uintptr_t)dns; /* it is only read */
        out->dns[out->num_dns].len = strlen(dns);
    }
    for (; out->num_ip < names->num_ip; out->num_ip++) {
        const char *ip = names->ip[out->num_ip];
        size_t size = mbedtls_x509_crt_parse_cn_inet_pton(ip, addresses[out->num_ip]);
        if (size == 0)
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%.80s' is not an IP address", ip);
        out->ip[out->num_ip].p = addresses[out->num_ip];
        out->ip[out->num_ip].len = size;
    }
    return FEDGE_OK;
}

static fedge_status read_names(const fedge_key_request_names *names, fedge_x509_names *out,
                               uint8_t addresses[FEDGE_X509_MAX_HOSTS][16], fedge_error *err)
{
    fedge_device_id id;
    *out = (fedge_x509_names){.role = names->role};
    if (!fedge_name_valid(names->name)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the name '%.70s' is not 1 to %d letters, digits and ' ._:@-'",
                          names->name, FEDGE_NAME_SIZE - 1);
    }
    FEDGE_TRY(fedge_device_id_parse(names->device_id, &id, err));
    fedge_device_id_format(&id, out->device_id);
    FEDGE_TRY(read_hosts(names, out, addresses, err));
    return fedge_x509_check_hosts(out, err);
}

/* Writes the request for [key] as PEM into [out]. */
static fedge_status write_request(const char *name, const fedge_x509_names *names,
                                  mbedtls_pk_context *key, fedge_buffer *out, fedge_error *err)
{
    char subject[FEDGE_NAME_SIZE + 4];
    fedge_x509_san_nodes list;
    snprintf(subject, sizeof(subject), "CN=%s", name);
    fedge_x509_names_list(names, &list);
    uint8_t *buffer = NULL;
    FEDGE_TRY(fedge_buffer_reserve(out, FEDGE_X509_MAX_PEM / 2, &buffer, err));
    mbedtls_x509write_csr csr;
    mbedtls_x509write_csr_init(&csr);
    mbedtls_x509write_csr_set_key(&csr, key);
    mbedtls_x509write_csr_set_md_alg(&csr, MBEDTLS_MD_SHA256);
    int code = mbedtls_x509write_csr_set_subject_name(&csr, subject);
    if (code == 0)
        code = mbedtls_x509write_csr_set_subject_alternative_name(&csr, list.nodes);
    if (code == 0) {
        code = mbedtls_x509write_csr_pem(&csr, buffer, FEDGE_X509_MAX_PEM / 2, fedge_x509_random,
                                         NULL);
    }
    mbedtls_x509write_csr_free(&csr);
    if (code != 0)
        return fedge_x509_fail(err, FEDGE_INTERNAL, code, "cannot write the request");
    out->size += strlen((const char *)buffer);
    return FEDGE_OK;
}

static fedge_status make_with_key(const char *name, const fedge_x509_names *names, char **key_pem,
                                  fedge_buffer *out, fedge_error *err)
{
    mbedtls_pk_context key;
    mbedtls_pk_init(&key);
    fedge_status status;
    FEDGE_TRY_OR(fedge_x509_make_key(&key, err), done);
    FEDGE_TRY_OR(write_request(name, names, &key, out, err), done);
    status = fedge_x509_key_text(&key, key_pem, err);
done:
    mbedtls_pk_free(&key);
    return status;
}

/* Ends the text in [out] and passes it to the caller, unless [status] is a failure; cleans up then.
 */
static fedge_status finish(fedge_status status, fedge_buffer *out, char **key_pem,
                           char **request_pem, fedge_error *err)
{
    FEDGE_TRY_OR(status, failed);
    FEDGE_TRY_OR(fedge_buffer_append(out, "", 1, err), failed);
    *request_pem = (char *)out->data;
    return FEDGE_OK;
failed:
    fedge_buffer_fini(out);
    fedge_key_request_wipe(*key_pem);
    *key_pem = NULL;
    return status;
}

fedge_status fedge_key_request_make(const fedge_key_request_names *names, char **key_pem,
                                    char **request_pem, fedge_error *err)
{
    *key_pem = NULL;
    *request_pem = NULL;
    fedge_x509_names parsed;
    uint8_t addresses[FEDGE_X509_MAX_HOSTS][16];
    FEDGE_TRY(read_names(names, &parsed, addresses, err));
    fedge_buffer out;
    fedge_buffer_init(&out, FEDGE_X509_MAX_PEM);
    return finish(make_with_key(names->name, &parsed, key_pem, &out, err), &out, key_pem,
                  request_pem, err);
}

/* --- renewal ---------------------------------------------------------------------------------- */

/* The common name's value, or FEDGE_DENIED if there is no usable one. */
static fedge_status read_common_name(const mbedtls_x509_name *subject, char name[FEDGE_NAME_SIZE],
                                     fedge_error *err)
{
    for (; subject != NULL; subject = subject->next) {
        if (MBEDTLS_OID_CMP(MBEDTLS_OID_AT_CN, &subject->oid) != 0)
            continue;
        if (subject->val.len < FEDGE_NAME_SIZE) {
            memcpy(name, subject->val.p, subject->val.len);
            name[subject->val.len] = '\0';
            if (strlen(name) == subject->val.len && fedge_name_valid(name))
                return FEDGE_OK;
        }
        break;
    }
    return fedge_fail(err, FEDGE_DENIED,
                      "its common name is not 1 to %d letters, digits and ' ._:@-'",
                      FEDGE_NAME_SIZE - 1);
}

/* The context separates renewal signatures from those that the same key makes in TLS handshakes. */
static void renewal_hash(const uint8_t *der, size_t size, uint8_t hash[32])
{
    mbedtls_sha256_context context;
    mbedtls_sha256_init(&context);
    int code = mbedtls_sha256_starts(&context, 0);
    if (code == 0) {
        code = mbedtls_sha256_update(&context, (const unsigned char *)RENEWAL_CONTEXT,
                                     sizeof(RENEWAL_CONTEXT) - 1);
    }
    if (code == 0)
        code = mbedtls_sha256_update(&context, der, size);
    if (code == 0)
        code = mbedtls_sha256_finish(&context, hash);
    mbedtls_sha256_free(&context);
    if (code != 0)
        abort(); /* fails only where a hardware driver does, which fedge does not configure */
}

static fedge_status append_pem(const char *begin, const char *end, const mbedtls_x509_buf *data,
                               fedge_buffer *out, fedge_error *err)
{
    unsigned char text[FEDGE_X509_MAX_PEM / 4];
    size_t length = 0;
    const int code =
        mbedtls_pem_write_buffer(begin, end, data->p, data->len, text, sizeof(text), &length);
    return code == 0 ? fedge_buffer_printf(out, err, "%s", (const char *)text)
                     : fedge_x509_fail(err, FEDGE_INTERNAL, code, CANNOT_SIGN);
}

/* Appends the present certificate, and its key's signature of the request in [out]. */
static fedge_status append_proof(const mbedtls_x509_crt *present, mbedtls_pk_context *key,
                                 fedge_buffer *out, fedge_error *err)
{
    unsigned char signature[MBEDTLS_PK_SIGNATURE_MAX_SIZE];
    uint8_t hash[32];
    size_t size = 0;
    mbedtls_x509_csr csr;
    mbedtls_x509_csr_init(&csr);
    int code = mbedtls_x509_csr_parse(&csr, out->data, out->size + 1);
    if (code == 0) {
        /* The whole request is signed, so the proof cannot be moved to another one. */
        renewal_hash(csr.raw.p, csr.raw.len, hash);
        code = mbedtls_pk_sign(key, MBEDTLS_MD_SHA256, hash, sizeof(hash), signature,
                               sizeof(signature), &size, fedge_x509_random, NULL);
    }
    mbedtls_x509_csr_free(&csr);
    if (code != 0)
        return fedge_x509_fail(err, FEDGE_INTERNAL, code, CANNOT_SIGN);
    FEDGE_TRY(append_pem("-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n",
                         &present->raw, out, err));
    const mbedtls_x509_buf proof = {.p = signature, .len = size};
    return append_pem(RENEWAL_BEGIN "\n", RENEWAL_END "\n", &proof, out, err);
}

static fedge_status renew_parsed(const mbedtls_x509_crt *chain, mbedtls_pk_context *key,
                                 bool new_key, char **key_pem, fedge_buffer *out, fedge_error *err)
{
    fedge_x509_names names;
    char name[FEDGE_NAME_SIZE];
    fedge_status status;
    FEDGE_TRY_OR(fedge_x509_names_read(&chain->subject_alt_names, &names, err), refused);
    FEDGE_TRY_OR(read_common_name(&chain->subject, name, err), refused);
    FEDGE_TRY(new_key ? make_with_key(name, &names, key_pem, out, err)
                      : write_request(name, &names, key, out, err));
    return append_proof(chain, key, out, err);
refused:
    return fedge_error_prefix(err, status, "the present certificate cannot be renewed");
}

fedge_status fedge_key_request_renew(const fedge_identity *present, bool new_key, char **key_pem,
                                     char **request_pem, fedge_error *err)
{
    *key_pem = NULL;
    *request_pem = NULL;
    fedge_buffer out;
    fedge_buffer_init(&out, FEDGE_X509_MAX_PEM);
    mbedtls_x509_crt chain;
    mbedtls_pk_context key;
    mbedtls_x509_crt_init(&chain);
    mbedtls_pk_init(&key);
    fedge_status status;
    FEDGE_TRY_OR(fedge_x509_parse_chain(present->chain_pem, "the present chain", &chain, err),
                 done);
    FEDGE_TRY_OR(fedge_x509_parse_key(present->key_pem, "the present key", &key, err), done);
    status = renew_parsed(&chain, &key, new_key, key_pem, &out, err);
done:
    mbedtls_pk_free(&key);
    mbedtls_x509_crt_free(&chain);
    return finish(status, &out, key_pem, request_pem, err);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* mbedTLS parses a request without checking that its key signed it. */
static fedge_status check_signature(mbedtls_x509_csr *csr, fedge_error *err)
{
    uint8_t hash[32];
    FEDGE_TRY(fedge_x509_check_curve(&csr->pk, err));
    if (csr->MBEDTLS_PRIVATE(sig_md) != MBEDTLS_MD_SHA256)
        return fedge_fail(err, FEDGE_DENIED, "it is not signed with SHA-256");
    fedge_sha256(csr->cri.p, csr->cri.len, hash);
    if (mbedtls_pk_verify(&csr->pk, MBEDTLS_MD_SHA256, hash, sizeof(hash),
                          csr->MBEDTLS_PRIVATE(sig).p, csr->MBEDTLS_PRIVATE(sig).len) != 0)
        return fedge_fail(err, FEDGE_DENIED, "its signature is not by its own key");
    return FEDGE_OK;
}

/* Checks a renewal's certificate and signature. */
static fedge_status check_proof(fedge_key_request *request, mbedtls_x509_crt *present,
                                mbedtls_pem_context *proof, fedge_error *err)
{
    size_t size = 0;
    const unsigned char *signature = mbedtls_pem_get_buffer(proof, &size);
    FEDGE_TRY(fedge_x509_info(present, &request->present, err));
    /* The signer checks the certificate against its registry; this only compares the two. */
    if (strcmp(request->present.device_id, request->names.device_id) != 0 ||
        request->present.role != request->names.role) {
        return fedge_fail(err, FEDGE_DENIED,
                          "it renews the certificate of another device or role: %s, %s",
                          request->present.device_id, fedge_role_name(request->present.role));
    }
    fedge_x509_names names, added;
    FEDGE_TRY(fedge_x509_names_read(&present->subject_alt_names, &names, err));
    if (fedge_x509_hosts_beyond(&request->names, &names, &added) > 0) {
        char asked[FEDGE_X509_HOSTS_TEXT];
        return fedge_fail(err, FEDGE_DENIED,
                          "it asks for names that the certificate it renews lacks, and a renewal "
                          "adds none: %s",
                          fedge_x509_hosts_text(&added, asked));
    }
    uint8_t hash[32];
    renewal_hash(request->csr.raw.p, request->csr.raw.len, hash);
    if (mbedtls_pk_verify(&present->pk, MBEDTLS_MD_SHA256, hash, sizeof(hash), signature, size) !=
        0) {
        return fedge_fail(err, FEDGE_DENIED,
                          "its renewal is not signed by the key of the present certificate");
    }
    request->renews = true;
    return FEDGE_OK;
}

static fedge_status read_proof(const char *pem, fedge_key_request *request, fedge_error *err)
{
    if (!strstr(pem, RENEWAL_BEGIN))
        return FEDGE_OK;
    const char *certificate = strstr(pem, "-----BEGIN CERTIFICATE-----");
    if (!certificate)
        return fedge_fail(err, FEDGE_DENIED, "its renewal lacks the present certificate");
    size_t used = 0;
    mbedtls_pem_context proof;
    mbedtls_x509_crt present;
    mbedtls_pem_init(&proof);
    mbedtls_x509_crt_init(&present);
    int code = mbedtls_pem_read_buffer(&proof, RENEWAL_BEGIN, RENEWAL_END,
                                       (const unsigned char *)pem, NULL, 0, &used);
    fedge_status status;
    FEDGE_TRY_OR(code == 0
                     ? fedge_x509_parse_chain(certificate, "its present certificate", &present, err)
                     : fedge_x509_fail(err, FEDGE_CORRUPT, code, "its renewal cannot be read"),
                 done);
    status = check_proof(request, &present, &proof, err);
done:
    mbedtls_x509_crt_free(&present);
    mbedtls_pem_free(&proof);
    return status;
}

static fedge_status check_parsed(const char *pem, fedge_key_request *request, fedge_error *err)
{
    FEDGE_TRY(check_signature(&request->csr, err));
    FEDGE_TRY(fedge_x509_names_read(&request->csr.subject_alt_names, &request->names, err));
    FEDGE_TRY(fedge_x509_check_hosts(&request->names, err));
    FEDGE_TRY(read_common_name(&request->csr.subject, request->name, err));
    return read_proof(pem, request, err);
}

fedge_status fedge_key_request_read(const char *pem, fedge_key_request *request, fedge_error *err)
{
    memset(request, 0, sizeof(*request));
    mbedtls_x509_csr_init(&request->csr);
    int code = mbedtls_x509_csr_parse(&request->csr, (const unsigned char *)pem, strlen(pem) + 1);
    if (code != 0)
        return fedge_x509_fail(err, FEDGE_CORRUPT, code, "this is not a certificate request");
    const fedge_status status = check_parsed(pem, request, err);
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "the request is refused");
}

void fedge_key_request_fini(fedge_key_request *request)
{
    mbedtls_x509_csr_free(&request->csr);
}

fedge_status fedge_key_request_check_hosts(const fedge_key_request *request,
                                           const fedge_key_request_names *granted, fedge_error *err)
{
    fedge_x509_names parsed = {.num_dns = 0};
    uint8_t addresses[FEDGE_X509_MAX_HOSTS][16];
    FEDGE_TRY(read_hosts(granted, &parsed, addresses, err));
    fedge_x509_names asked_only, granted_only;
    const size_t num_asked = fedge_x509_hosts_beyond(&request->names, &parsed, &asked_only);
    const size_t num_granted = fedge_x509_hosts_beyond(&parsed, &request->names, &granted_only);
    if (num_asked + num_granted == 0)
        return FEDGE_OK;
    if (request->names.num_dns + request->names.num_ip == 0) {
        return fedge_fail(err, FEDGE_DENIED,
                          "it asks for no DNS names or IP addresses: leave out --dns and --ip");
    }
    char hosts[FEDGE_X509_HOSTS_TEXT], asked[FEDGE_X509_HOSTS_TEXT];
    if (num_granted > 0) {
        return fedge_fail(err, FEDGE_DENIED,
                          "it does not ask for %s, only for %s: leave out the first%s",
                          fedge_x509_hosts_text(&granted_only, hosts),
                          fedge_x509_hosts_text(&request->names, asked),
                          request->renews ? "; a renewal cannot add names" : "");
    }
    return fedge_fail(err, FEDGE_DENIED,
                      "it %sasks for %s%s: check them, then grant them with --dns and --ip, or all "
                      "that it asks for with --accept-names",
                      granted->num_dns + granted->num_ip > 0 ? "also " : "",
                      fedge_x509_hosts_text(&asked_only, hosts),
                      granted->num_dns + granted->num_ip > 0 ? ", which you have not granted" : "");
}

/* --- putting a signed chain beside its key ------------------------------------------------------
 */

fedge_status fedge_x509_compare_key(const char *dir, const char *name,
                                    const mbedtls_pk_context *public_key,
                                    char path[FEDGE_OS_MAX_PATH], fedge_error *err)
{
    char *pem = NULL;
    FEDGE_TRY(fedge_x509_read_text(dir, name, path, &pem, err));
    mbedtls_pk_context key;
    mbedtls_pk_init(&key);
    fedge_status status = fedge_x509_parse_key(pem, path, &key, err);
    if (status == FEDGE_OK && mbedtls_pk_check_pair(public_key, &key, fedge_x509_random, NULL) != 0)
        status = fedge_fail(err, FEDGE_MISMATCH, "the certificate does not belong to %s", path);
    mbedtls_pk_free(&key);
    fedge_key_request_wipe(pem);
    return status;
}

static fedge_status install_chain(const char *dir, const char *chain_pem,
                                  const mbedtls_x509_crt *chain, fedge_error *err)
{
    char next[FEDGE_OS_MAX_PATH];
    char path[FEDGE_OS_MAX_PATH];
    const fedge_status status = fedge_x509_compare_key(dir, "next-key.pem", &chain->pk, next, err);
    if (status == FEDGE_NOT_FOUND || status == FEDGE_MISMATCH) {
        FEDGE_TRY(fedge_x509_compare_key(dir, "key.pem", &chain->pk, path, err));
    } else {
        FEDGE_TRY(status);
        FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, "key.pem", err));
        /* A crash after this leaves a key without its chain; running it again repairs that. */
        FEDGE_TRY(fedge_os_rename(next, path, err));
    }
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, "chain.pem", err));
    return fedge_os_write_file(path, chain_pem, strlen(chain_pem), 0644, err);
}

fedge_status fedge_identity_install(const char *dir, const char *chain_pem,
                                    fedge_certificate_info *info, fedge_error *err)
{
    mbedtls_x509_crt chain;
    mbedtls_x509_crt_init(&chain);
    fedge_status status;
    FEDGE_TRY_OR(fedge_x509_parse_chain(chain_pem, "the chain", &chain, err), done);
    FEDGE_TRY_OR(fedge_x509_info(&chain, info, err), done);
    status = install_chain(dir, chain_pem, &chain, err);
done:
    mbedtls_x509_crt_free(&chain);
    return status;
}
