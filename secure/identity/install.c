/* Putting a signed chain beside its key. */
#include <stdlib.h>
#include <string.h>

#include <mbedtls/pk.h>

#include "edge/core/os.h"
#include "secure/identity/identity.h"
#include "secure/identity/request.h"
#include "secure/identity/x509.h"

fedge_status fedge_x509_compare_key(const char *dir, const char *name,
                                    const mbedtls_pk_context *public_key,
                                    char path[FEDGE_OS_MAX_PATH], fedge_error *err)
{
    uint8_t *pem = NULL;
    size_t size = 0;
    fedge_status status = fedge_x509_path(path, FEDGE_OS_MAX_PATH, dir, name, err);
    if (status == FEDGE_OK)
        status = fedge_os_read_file(path, FEDGE_X509_MAX_PEM, &pem, &size, err);
    if (status != FEDGE_OK)
        return status;
    mbedtls_pk_context key;
    mbedtls_pk_init(&key);
    int code = mbedtls_pk_parse_key(&key, pem, size + 1, NULL, 0, fedge_x509_random, NULL);
    if (code != 0)
        status = fedge_x509_fail(err, FEDGE_CORRUPT, code, path);
    else if (mbedtls_pk_check_pair(public_key, &key, fedge_x509_random, NULL) != 0)
        status = fedge_fail(err, FEDGE_MISMATCH, "the certificate does not belong to %s", path);
    mbedtls_pk_free(&key);
    fedge_key_request_wipe((char *)pem);
    return status;
}

static fedge_status place_chain(const char *dir, const char *chain_pem,
                                const mbedtls_x509_crt *chain, fedge_error *err)
{
    char next[FEDGE_OS_MAX_PATH];
    char path[FEDGE_OS_MAX_PATH];
    fedge_status status = fedge_x509_compare_key(dir, "next-key.pem", &chain->pk, next, err);
    bool is_next = status == FEDGE_OK;
    if (status == FEDGE_NOT_FOUND || status == FEDGE_MISMATCH)
        status = fedge_x509_compare_key(dir, "key.pem", &chain->pk, path, err);
    if (status == FEDGE_OK && is_next)
        status = fedge_x509_path(path, sizeof(path), dir, "key.pem", err);
    /* A crash after this leaves a key whose chain is missing; running it again puts that right. */
    if (status == FEDGE_OK && is_next)
        status = fedge_os_rename(next, path, err);
    if (status == FEDGE_OK)
        status = fedge_x509_path(path, sizeof(path), dir, "chain.pem", err);
    if (status == FEDGE_OK)
        status = fedge_os_write_file(path, chain_pem, strlen(chain_pem), 0644, err);
    return status;
}

fedge_status fedge_identity_install(const char *dir, const char *chain_pem,
                                    fedge_certificate_info *info, fedge_error *err)
{
    mbedtls_x509_crt chain;
    mbedtls_x509_crt_init(&chain);
    fedge_status status = fedge_x509_parse_chain(chain_pem, "the chain", &chain, err);
    if (status == FEDGE_OK)
        status = fedge_x509_info(&chain, info, err);
    if (status == FEDGE_OK)
        status = place_chain(dir, chain_pem, &chain, err);
    mbedtls_x509_crt_free(&chain);
    return status;
}
