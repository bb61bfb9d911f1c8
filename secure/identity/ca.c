#include "secure/identity/ca.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/oid.h>
#include <mbedtls/pk.h>

#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "secure/identity/certificate.h"
#include "secure/identity/x509.h"

#define SERIAL_SIZE 16
#define MAX_CA_NAME 40
#define NOT_A_CA (-1)

/* Pairs of a key and its certificate, in the order in which they are written. */
static const char *const FILES[] = {"root-key.pem", "root.pem", "issuing-key.pem", "issuing.pem"};
enum { ROOT = 0, ISSUING = 2, NUM_FILES = sizeof(FILES) / sizeof(*FILES) };

struct fedge_ca {
    mbedtls_x509_crt certificate;
    mbedtls_pk_context key;
    char *pem; /* size of a certificate */
};

/* --- writing one certificate ------------------------------------------------------------------ */

/* Contents of a new certificate. */
typedef struct content {
    const char *subject;            /* "CN=…" */
    const char *issuer;             /* "CN=…" */
    mbedtls_pk_context *key;        /* the subject's */
    mbedtls_pk_context *issuer_key; /* NULL if self-signed */
    int path_length;                /* path length of an authority, or NOT_A_CA */
    const fedge_x509_names *names;  /* NULL for an authority */
    uint64_t now_ms, not_after_ms;
} content;

static int set_serial(mbedtls_x509write_cert *writer)
{
    unsigned char serial[SERIAL_SIZE];
    int code = fedge_x509_random(NULL, serial, sizeof(serial));
    if (code != 0)
        return code;
    serial[0] = (unsigned char)((serial[0] & 0x7f) | 0x40); /* positive, and no leading zero */
    return mbedtls_x509write_crt_set_serial_raw(writer, serial, sizeof(serial));
}

static int set_validity(mbedtls_x509write_cert *writer, uint64_t from_ms, uint64_t to_ms)
{
    char text[2][32];
    const uint64_t times[2] = {from_ms, to_ms};
    for (int i = 0; i < 2; i++) {
        fedge_calendar at = fedge_calendar_from_ms(times[i]);
        snprintf(text[i], sizeof(text[i]), "%04d%02d%02d%02d%02d%02d", at.year % 10000,
                 at.month % 100, at.day % 100, at.hour % 100, at.minute % 100, at.second % 100);
    }
    return mbedtls_x509write_crt_set_validity(writer, text[0], text[1]);
}

/* Adds extended key usage and names of an end-entity certificate. */
static int set_leaf_extensions(mbedtls_x509write_cert *writer, const fedge_x509_names *names)
{
    mbedtls_asn1_sequence usage = {0};
    usage.buf.tag = MBEDTLS_ASN1_OID;
    /* Both object identifiers have the same length. */
    usage.buf.len = MBEDTLS_OID_SIZE(MBEDTLS_OID_CLIENT_AUTH);
    usage.buf.p =
        (unsigned char *)(uintptr_t)(names->role == FEDGE_ROLE_SERVER ? MBEDTLS_OID_SERVER_AUTH
                                                                      : MBEDTLS_OID_CLIENT_AUTH);
    fedge_x509_san_nodes list;
    fedge_x509_names_list(names, &list);
    int code = mbedtls_x509write_crt_set_ext_key_usage(writer, &usage);
    if (code == 0)
        code = mbedtls_x509write_crt_set_subject_alternative_name(writer, list.nodes);
    return code;
}

static int fill(mbedtls_x509write_cert *writer, const content *what)
{
    bool is_ca = what->path_length != NOT_A_CA;
    mbedtls_x509write_crt_set_version(writer, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(writer, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(writer, what->key);
    mbedtls_x509write_crt_set_issuer_key(writer, what->issuer_key);
    int code = mbedtls_x509write_crt_set_subject_name(writer, what->subject);
    if (code == 0)
        code = mbedtls_x509write_crt_set_issuer_name(writer, what->issuer);
    if (code == 0)
        code = set_serial(writer);
    /* Backdated: a device's clock may be behind the signer's. */
    if (code == 0)
        code = set_validity(writer, what->now_ms - FEDGE_CA_BACKDATE_MS, what->not_after_ms);
    if (code == 0)
        code = mbedtls_x509write_crt_set_basic_constraints(writer, is_ca, what->path_length);
    if (code == 0) {
        code = mbedtls_x509write_crt_set_key_usage(
            writer, is_ca ? MBEDTLS_X509_KU_KEY_CERT_SIGN | MBEDTLS_X509_KU_CRL_SIGN
                          : MBEDTLS_X509_KU_DIGITAL_SIGNATURE);
    }
#ifdef MBEDTLS_SHA1_C /* omitted in the small client, where only tests sign */
    if (code == 0)
        code = mbedtls_x509write_crt_set_subject_key_identifier(writer);
    if (code == 0)
        code = mbedtls_x509write_crt_set_authority_key_identifier(writer);
#endif
    if (code == 0 && !is_ca)
        code = set_leaf_extensions(writer, what->names);
    return code;
}

/* Appends the certificate as PEM to [out]; a NUL follows. */
static fedge_status write_certificate(const content *what, fedge_buffer *out, fedge_error *err)
{
    uint8_t *buffer = NULL;
    FEDGE_TRY(fedge_buffer_reserve(out, FEDGE_X509_MAX_PEM / 2, &buffer, err));
    mbedtls_x509write_cert writer;
    mbedtls_x509write_crt_init(&writer);
    int code = fill(&writer, what);
    if (code == 0) {
        code = mbedtls_x509write_crt_pem(&writer, buffer, FEDGE_X509_MAX_PEM / 2, fedge_x509_random,
                                         NULL);
    }
    mbedtls_x509write_crt_free(&writer);
    if (code != 0)
        return fedge_x509_fail(err, FEDGE_INTERNAL, code, "cannot write the certificate");
    out->size += strlen((const char *)buffer);
    return FEDGE_OK;
}

/* --- the authority's files -------------------------------------------------------------------- */

static fedge_status check_days(unsigned days, fedge_error *err)
{
    if (days == 0 || days > FEDGE_CA_MAX_DAYS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "validity must be 1 to %d days, not %u",
                          FEDGE_CA_MAX_DAYS, days);
    }
    return FEDGE_OK;
}

/* "CN=NAME KIND 1f3c": the digits distinguish successive authorities. */
static fedge_status make_subject(const char *name, const char *kind, char *out, size_t size,
                                 fedge_error *err)
{
    uint8_t bytes[2];
    if (!fedge_name_valid(name) || strlen(name) > MAX_CA_NAME) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the authority's name '%.60s' is not 1 to %d letters, digits and "
                          "' ._:@-'",
                          name, MAX_CA_NAME);
    }
    FEDGE_TRY(fedge_os_random(bytes, sizeof(bytes), err));
    snprintf(out, size, "CN=%s %s %02x%02x", name, kind, bytes[0], bytes[1]);
    return FEDGE_OK;
}

static fedge_status read_key(const char *path, mbedtls_pk_context *key, fedge_error *err)
{
    uint8_t *data = NULL;
    size_t size = 0;
    /* A key that others can read is no longer secret, so it is refused. */
    FEDGE_TRY(fedge_os_check_private(path, err));
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_X509_MAX_PEM, &data, &size, err));
    const fedge_status status = fedge_x509_parse_key((char *)data, path, key, err);
    fedge_key_request_wipe((char *)data);
    return status;
}

/* Creates a key in DIR/[key_name]. With [keep] an existing key is used: an interrupted command has
 * left it without a certificate, and keys are never overwritten. */
static fedge_status prepare_key(const char *dir, const char *key_name, bool keep,
                                mbedtls_pk_context *key, fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    char *text = NULL;
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, key_name, err));
    if (keep && fedge_os_exists(path))
        return read_key(path, key, err);
    FEDGE_TRY(fedge_x509_make_key(key, err));
    FEDGE_TRY(fedge_x509_key_text(key, &text, err));
    const fedge_status status = fedge_os_write_file(path, text, strlen(text), 0600, err);
    fedge_key_request_wipe(text);
    return status;
}

/* Loads DIR/[files] to [ca], and checks that key and certificate match and are valid. */
static fedge_status load_pair(const char *dir, const char *const files[2], uint64_t now_ms,
                              fedge_ca *ca, fedge_error *err)
{
    const char *key_name = files[0], *certificate_name = files[1];
    char path[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(fedge_x509_read_text(dir, certificate_name, path, &ca->pem, err));
    FEDGE_TRY(fedge_x509_parse_chain(ca->pem, path, &ca->certificate, err));
    if (fedge_x509_ms(&ca->certificate.valid_to) < now_ms)
        return fedge_fail(err, FEDGE_EXPIRED, "%s has expired", path);
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, key_name, err));
    FEDGE_TRY(read_key(path, &ca->key, err));
    if (mbedtls_pk_check_pair(&ca->certificate.pk, &ca->key, fedge_x509_random, NULL) != 0) {
        return fedge_fail(err, FEDGE_MISMATCH, "%s does not belong to %s/%s", path, dir,
                          certificate_name);
    }
    return FEDGE_OK;
}

void fedge_ca_free(fedge_ca *ca)
{
    if (!ca)
        return;
    mbedtls_pk_free(&ca->key);
    mbedtls_x509_crt_free(&ca->certificate);
    free(ca->pem);
    free(ca);
}

/* Allocates an authority with the pair DIR/[files]; NULL after a failure. */
static fedge_status load_new(const char *dir, const char *const files[2], uint64_t now_ms,
                             fedge_ca **ca, fedge_error *err)
{
    fedge_ca *fresh = calloc(1, sizeof(*fresh));
    *ca = NULL;
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an authority");
    mbedtls_x509_crt_init(&fresh->certificate);
    mbedtls_pk_init(&fresh->key);
    const fedge_status status = load_pair(dir, files, now_ms, fresh, err);
    if (status != FEDGE_OK)
        fedge_ca_free(fresh);
    else
        *ca = fresh;
    return status;
}

fedge_status fedge_ca_load(const char *dir, uint64_t now_ms, fedge_ca **ca, fedge_error *err)
{
    *ca = NULL;
    const fedge_status status = load_new(dir, FILES + ISSUING, now_ms, ca, err);
    if (status == FEDGE_NOT_FOUND) {
        return fedge_error_prefix(err, status, "%s is not an authority ('fedge-keys ca' makes one)",
                                  dir);
    }
    if (status == FEDGE_EXPIRED) {
        return fedge_error_prefix(err, status,
                                  "make a new intermediate ('fedge-keys ca --renew-issuing')");
    }
    if (status == FEDGE_MISMATCH) {
        return fedge_error_prefix(err, status,
                                  "a renewal of the intermediate was cut off; repeat it "
                                  "('fedge-keys ca --renew-issuing')");
    }
    return status;
}

bool fedge_ca_is_of(const fedge_ca *ca, const mbedtls_x509_crt *chain)
{
    const mbedtls_x509_buf *certificate = &ca->certificate.raw;
    return chain->next && chain->next->raw.len == certificate->len &&
           memcmp(chain->next->raw.p, certificate->p, certificate->len) == 0;
}

/* --- making them ------------------------------------------------------------------------------ */

/* Writes a key and its certificate [what] to DIR/[files]. Without an issuer's key the certificate
 * is self-signed. */
static fedge_status make_pair(const char *dir, const char *const files[2], bool keep_key,
                              const content *given, fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    mbedtls_pk_context key;
    fedge_buffer out;
    fedge_status status;
    mbedtls_pk_init(&key);
    fedge_buffer_init(&out, FEDGE_X509_MAX_PEM);
    content what = *given;
    what.key = &key;
    what.issuer_key = given->issuer_key ? given->issuer_key : &key;
    FEDGE_TRY_OR(prepare_key(dir, files[0], keep_key, &key, err), done);
    FEDGE_TRY_OR(write_certificate(&what, &out, err), done);
    FEDGE_TRY_OR(fedge_x509_path(path, sizeof(path), dir, files[1], err), done);
    status = fedge_os_write_file(path, out.data, out.size, 0644, err);
done:
    fedge_buffer_fini(&out);
    mbedtls_pk_free(&key);
    return status;
}

/* Creates an intermediate under [root] in DIR. */
static fedge_status make_issuing(const char *dir, const char *name, bool keep_key, fedge_ca *root,
                                 unsigned days, uint64_t now_ms, uint64_t *end_ms, fedge_error *err)
{
    char subject[FEDGE_X509_MAX_SUBJECT];
    char issuer[FEDGE_X509_MAX_SUBJECT];
    fedge_x509_subject(&root->certificate.subject, issuer, sizeof(issuer));
    FEDGE_TRY(make_subject(name, "issuing", subject, sizeof(subject), err));
    uint64_t root_end_ms = fedge_x509_ms(&root->certificate.valid_to);
    *end_ms = now_ms + days * FEDGE_DAY_MS;
    /* No certificate is valid longer than its issuer. */
    *end_ms = *end_ms < root_end_ms ? *end_ms : root_end_ms;
    const content what = {.subject = subject,
                          .issuer = issuer,
                          .issuer_key = &root->key,
                          .path_length = 0, /* it signs devices and servers, but no authority */
                          .now_ms = now_ms,
                          .not_after_ms = *end_ms};
    return make_pair(dir, FILES + ISSUING, keep_key, &what, err);
}

static fedge_status make_root(const char *dir, const char *name, unsigned days, uint64_t now_ms,
                              uint64_t *end_ms, fedge_error *err)
{
    char subject[FEDGE_X509_MAX_SUBJECT];
    FEDGE_TRY(make_subject(name, "root", subject, sizeof(subject), err));
    *end_ms = now_ms + days * FEDGE_DAY_MS;
    const content what = {.subject = subject,
                          .issuer = subject,
                          .path_length = 1,
                          .now_ms = now_ms,
                          .not_after_ms = *end_ms};
    return make_pair(dir, FILES + ROOT, true, &what, err);
}

static fedge_status add_issuing(const char *dir, const char *name, bool keep_key,
                                unsigned issuing_days, uint64_t now_ms, uint64_t *issuing_end_ms,
                                fedge_error *err)
{
    fedge_ca *root = NULL;
    FEDGE_TRY(load_new(dir, FILES + ROOT, now_ms, &root, err));
    const fedge_status status =
        make_issuing(dir, name, keep_key, root, issuing_days, now_ms, issuing_end_ms, err);
    fedge_ca_free(root);
    return status;
}

fedge_status fedge_ca_renew_issuing(const char *dir, const char *name, unsigned issuing_days,
                                    uint64_t now_ms, uint64_t *issuing_end_ms, fedge_error *err)
{
    FEDGE_TRY(check_days(issuing_days, err));
    return add_issuing(dir, name, false, issuing_days, now_ms, issuing_end_ms, err);
}

/* Loads an existing pair of an authority with this [name]; *end_ms: the end of its validity. */
static fedge_status check_pair(const char *dir, int first, const char *name, const char *kind,
                               uint64_t now_ms, uint64_t *end_ms, fedge_error *err)
{
    char wanted[FEDGE_X509_MAX_SUBJECT];
    char subject[FEDGE_X509_MAX_SUBJECT];
    fedge_ca *loaded = NULL;
    FEDGE_TRY(load_new(dir, FILES + first, now_ms, &loaded, err));
    snprintf(wanted, sizeof(wanted), "CN=%.*s %s ", MAX_CA_NAME, name, kind);
    fedge_x509_subject(&loaded->certificate.subject, subject, sizeof(subject));
    *end_ms = fedge_x509_ms(&loaded->certificate.valid_to);
    fedge_ca_free(loaded);
    if (strncmp(subject, wanted, strlen(wanted)) != 0) {
        return fedge_fail(err, FEDGE_EXISTS,
                          "%s is the authority '%s' already, which is never overwritten: "
                          "name another directory",
                          dir, subject);
    }
    return FEDGE_OK;
}

/* Counts the files of an interrupted fedge_ca_create; FEDGE_EXISTS if they belong to another
 * authority. */
static fedge_status count_files(const char *dir, int *count, fedge_error *err)
{
    *count = 0;
    for (int i = 0; i < NUM_FILES; i++) {
        char path[FEDGE_OS_MAX_PATH];
        FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, FILES[i], err));
        if (!fedge_os_exists(path))
            continue;
        /* An earlier file is missing: someone moved it, since an interrupted command leaves no
         * gaps. */
        if (*count != i) {
            return fedge_fail(err, FEDGE_EXISTS,
                              "%s exists: an authority is never overwritten; name another "
                              "directory",
                              path);
        }
        ++*count;
    }
    return FEDGE_OK;
}

fedge_status fedge_ca_create(const char *dir, const char *name, unsigned root_days,
                             unsigned issuing_days, uint64_t now_ms, uint64_t *root_end_ms,
                             uint64_t *issuing_end_ms, fedge_error *err)
{
    int count = 0;
    FEDGE_TRY(check_days(root_days, err));
    FEDGE_TRY(check_days(issuing_days, err));
    FEDGE_TRY(count_files(dir, &count, err));
    FEDGE_TRY(fedge_os_make_dirs(dir, err));
    FEDGE_TRY(count < ISSUING ? make_root(dir, name, root_days, now_ms, root_end_ms, err)
                              : check_pair(dir, ROOT, name, "root", now_ms, root_end_ms, err));
    return count < NUM_FILES
               ? add_issuing(dir, name, true, issuing_days, now_ms, issuing_end_ms, err)
               : check_pair(dir, ISSUING, name, "issuing", now_ms, issuing_end_ms, err);
}

/* --- signing ---------------------------------------------------------------------------------- */

static fedge_status describe(const char *pem, fedge_certificate_info *info, fedge_error *err)
{
    mbedtls_x509_crt chain;
    mbedtls_x509_crt_init(&chain);
    fedge_status status;
    FEDGE_TRY_OR(fedge_x509_parse_chain(pem, "the new certificate", &chain, err), done);
    status = fedge_x509_info(&chain, info, err);
done:
    mbedtls_x509_crt_free(&chain);
    return status;
}

fedge_status fedge_ca_sign(const fedge_ca *ca, const fedge_key_request *request, unsigned days,
                           uint64_t now_ms, char **chain_pem, fedge_certificate_info *info,
                           fedge_error *err)
{
    *chain_pem = NULL;
    FEDGE_TRY(check_days(days, err));
    char subject[FEDGE_NAME_SIZE + 4];
    char issuer[FEDGE_X509_MAX_SUBJECT];
    snprintf(subject, sizeof(subject), "CN=%s", request->name);
    fedge_x509_subject(&ca->certificate.subject, issuer, sizeof(issuer));
    uint64_t end_ms = now_ms + days * FEDGE_DAY_MS;
    uint64_t issuing_end_ms = fedge_x509_ms(&ca->certificate.valid_to);
    /* mbedTLS only reads both keys, but takes non-const pointers. */
    const content what = {.subject = subject,
                          .issuer = issuer,
                          .key = (mbedtls_pk_context *)(uintptr_t)&request->csr.pk,
                          .issuer_key = (mbedtls_pk_context *)(uintptr_t)&ca->key,
                          .path_length = NOT_A_CA,
                          .names = &request->names,
                          .now_ms = now_ms,
                          .not_after_ms = end_ms < issuing_end_ms ? end_ms : issuing_end_ms};
    fedge_buffer out;
    fedge_buffer_init(&out, FEDGE_X509_MAX_PEM);
    fedge_status status;
    FEDGE_TRY_OR(write_certificate(&what, &out, err), fail);
    FEDGE_TRY_OR(describe((const char *)out.data, info, err), fail);
    FEDGE_TRY_OR(fedge_buffer_append(&out, ca->pem, strlen(ca->pem) + 1, err), fail);
    *chain_pem = (char *)out.data;
    return FEDGE_OK;
fail:
    fedge_buffer_fini(&out);
    return status;
}
