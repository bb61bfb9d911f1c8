#include "secure/identity/identity.h"

#include <stdlib.h>
#include <string.h>

#include <mbedtls/pk.h>
#include <mbedtls/platform_util.h>

#include "edge/core/os.h"
#include "secure/identity/certificate.h"
#include "secure/identity/x509.h"

#define MAX_TRUST_BYTES 1048576u /* total size of all roots */

fedge_status fedge_certificate_read(const uint8_t *der, size_t der_size,
                                    fedge_certificate_info *info, fedge_error *err)
{
    mbedtls_x509_crt certificate;
    mbedtls_x509_crt_init(&certificate);
    /* Trailing bytes would be hashed, too, and give a certificate many fingerprints. */
    int code = mbedtls_x509_crt_parse_der_nocopy(&certificate, der, der_size);
    fedge_status status;
    if (code != 0) {
        status = fedge_x509_fail(err, FEDGE_CORRUPT, code, "this is not an X.509 certificate");
    } else if (certificate.raw.len != der_size) {
        status = fedge_fail(err, FEDGE_CORRUPT,
                            "the certificate is followed by %zu bytes that are not part of it",
                            der_size - certificate.raw.len);
    } else {
        status = fedge_x509_info(&certificate, info, err);
    }
    mbedtls_x509_crt_free(&certificate);
    return status;
}

static fedge_status load_key(const char *dir, fedge_identity *identity, mbedtls_pk_context *key,
                             fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    const fedge_status status = fedge_x509_read_text(dir, "key.pem", path, &identity->key_pem, err);
    if (status == FEDGE_NOT_FOUND) {
        return fedge_fail(err, status,
                          "%s does not exist: make the key with 'fedge-keys request --identity %s'",
                          path, dir);
    }
    FEDGE_TRY(status);
    FEDGE_TRY(fedge_os_check_private(path, err));
    return fedge_x509_parse_key(identity->key_pem, path, key, err);
}

static fedge_status load_chain(const char *dir, fedge_identity *identity, mbedtls_x509_crt *chain,
                               fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    fedge_status status = fedge_x509_read_text(dir, "chain.pem", path, &identity->chain_pem, err);
    if (status == FEDGE_NOT_FOUND) {
        return fedge_fail(err, status,
                          "%s does not exist: have %s/request.pem signed ('fedge-keys sign') and "
                          "put the answer there ('fedge-keys install')",
                          path, dir);
    }
    FEDGE_TRY(status);
    FEDGE_TRY(fedge_x509_parse_chain(identity->chain_pem, path, chain, err));
    status = fedge_x509_info(chain, &identity->certificate, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "%s", path);
}

static fedge_status check_identity(const char *dir, const fedge_identity *identity, fedge_role role,
                                   uint64_t now_ms, const mbedtls_x509_crt *chain,
                                   const mbedtls_pk_context *key, fedge_error *err)
{
    const fedge_certificate_info *certificate = &identity->certificate;
    if (mbedtls_pk_check_pair(&chain->pk, key, fedge_x509_random, NULL) != 0) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s/key.pem does not belong to the certificate in %s/chain.pem: install "
                          "the answer to this key's request ('fedge-keys install')",
                          dir, dir);
    }
    if (certificate->role != role) {
        return fedge_fail(err, FEDGE_DENIED,
                          "%s/chain.pem has role %s, but %s is needed: name another directory, or "
                          "request that role ('fedge-keys request --role %s')",
                          dir, fedge_role_name(certificate->role), fedge_role_name(role),
                          fedge_role_name(role));
    }
    if (now_ms != 0 && certificate->not_after_ms < now_ms) {
        char end[FEDGE_CALENDAR_TEXT];
        fedge_calendar_text(certificate->not_after_ms, end);
        return fedge_fail(err, FEDGE_EXPIRED,
                          "%s/chain.pem expired at %s: renew it ('fedge-keys renew --identity %s')",
                          dir, end, dir);
    }
    return FEDGE_OK;
}

fedge_status fedge_identity_load(const char *dir, fedge_role role, uint64_t now_ms,
                                 fedge_identity **identity, fedge_error *err)
{
    *identity = NULL;
    fedge_identity *loaded = calloc(1, sizeof(*loaded));
    if (!loaded)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the identity in %s", dir);
    mbedtls_pk_context key;
    mbedtls_x509_crt chain;
    mbedtls_pk_init(&key);
    mbedtls_x509_crt_init(&chain);
    fedge_status status;
    FEDGE_TRY_OR(load_key(dir, loaded, &key, err), done);
    FEDGE_TRY_OR(load_chain(dir, loaded, &chain, err), done);
    status = check_identity(dir, loaded, role, now_ms, &chain, &key, err);
done:
    mbedtls_x509_crt_free(&chain);
    mbedtls_pk_free(&key);
    if (status != FEDGE_OK)
        fedge_identity_free(loaded);
    else
        *identity = loaded;
    return status;
}

void fedge_identity_free(fedge_identity *identity)
{
    if (!identity)
        return;
    if (identity->key_pem)
        mbedtls_platform_zeroize(identity->key_pem, strlen(identity->key_pem));
    free(identity->key_pem);
    free(identity->chain_pem);
    free(identity);
}

/* The roots of a directory so far. */
typedef struct trust {
    const char *dir;
    char *pem; /* NUL-terminated */
    size_t size;
} trust;

static fedge_status check_root(const char *pem, const char *path, fedge_error *err)
{
    mbedtls_x509_crt roots;
    if (strstr(pem, "PRIVATE KEY")) {
        return fedge_fail(
            err, FEDGE_DENIED,
            "%s is a private key, of a ca folder: name that of 'fedge-keys ca --trust'", path);
    }
    mbedtls_x509_crt_init(&roots);
    fedge_status status = fedge_x509_parse_chain(pem, path, &roots, err);
    for (const mbedtls_x509_crt *root = &roots; status == FEDGE_OK && root; root = root->next) {
        if (!root->MBEDTLS_PRIVATE(ca_istrue)) {
            status = fedge_fail(err, FEDGE_DENIED,
                                "%s is not a root but some program's certificate: put the "
                                "authority's root.pem there instead",
                                path);
        }
    }
    mbedtls_x509_crt_free(&roots);
    return status;
}

static fedge_status append(trust *all, const char *pem, fedge_error *err)
{
    size_t added = strlen(pem);
    char *grown =
        all->size + added < MAX_TRUST_BYTES ? realloc(all->pem, all->size + added + 2) : NULL;
    if (!grown) {
        return fedge_fail(err, FEDGE_TOO_BIG, "the roots in %s are more than %u bytes", all->dir,
                          MAX_TRUST_BYTES);
    }
    /* A newline between files: one may end without it, and "-----END…-----BEGIN" is not PEM. */
    memcpy(grown + all->size, pem, added);
    grown[all->size + added] = '\n';
    grown[all->size + added + 1] = '\0';
    all->pem = grown;
    all->size += added + 1;
    return FEDGE_OK;
}

static fedge_status add_root(void *user, const char *name, fedge_error *err)
{
    trust *all = user;
    size_t length = strlen(name);
    if (length < 5 || strcmp(name + length - 4, ".pem") != 0)
        return FEDGE_OK;
    char path[FEDGE_OS_MAX_PATH];
    char *pem = NULL;
    FEDGE_TRY(fedge_x509_read_text(all->dir, name, path, &pem, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_os_check_not_writable(path, err), done);
    FEDGE_TRY_OR(check_root(pem, path, err), done);
    status = append(all, pem, err);
done:
    free(pem);
    return status;
}

fedge_status fedge_trust_load(const char *dir, char **pem, fedge_error *err)
{
    *pem = NULL;
    trust all = {.dir = dir};
    FEDGE_TRY(fedge_os_check_not_writable(dir, err));
    const fedge_status status = fedge_os_list_dir(dir, add_root, &all, err);
    if (status != FEDGE_OK) {
        free(all.pem);
        return status;
    }
    *pem = all.pem;
    return all.pem ? FEDGE_OK
                   : fedge_fail(err, FEDGE_NOT_FOUND,
                                "%s holds no *.pem: copy the authority's root.pem there", dir);
}
