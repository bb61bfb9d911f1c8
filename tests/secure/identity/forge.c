#include "tests/secure/identity/forge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <mbedtls/oid.h>

#include "edge/core/os.h"
#include "secure/identity/certificate.h"

static void must(fedge_status status, const fedge_error *err)
{
    if (status != FEDGE_OK)
        fail_msg("%s", err->message);
}

char *forge_read(const char *dir, const char *name)
{
    char path[FEDGE_OS_MAX_PATH];
    fedge_error err;
    uint8_t *data = NULL;
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    must(fedge_os_read_file(path, 1u << 20, &data, &size, &err), &err);
    return (char *)data;
}

void forge_write(const char *dir, const char *name, const char *text, unsigned mode)
{
    char path[FEDGE_OS_MAX_PATH];
    fedge_error err;
    must(fedge_os_make_dirs(dir, &err), &err);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    must(fedge_os_write_file(path, text, strlen(text), mode, &err), &err);
}

void forge_ca(const char *dir)
{
    fedge_error err;
    uint64_t root_end_ms;
    uint64_t issuing_end_ms;
    must(fedge_os_remove_tree(dir, &err), &err);
    must(fedge_ca_create(dir, "test", 3650, 1825, fedge_os_unix_ms(), &root_end_ms, &issuing_end_ms,
                         &err),
         &err);
}

void forge_identity(const char *dir, const char *ca_dir, fedge_role role, const char *device_id,
                    const char *name)
{
    static const char *const dns[] = {"localhost"};
    static const char *const ip[] = {"127.0.0.1"};
    bool hosts = role == FEDGE_ROLE_SERVER;
    fedge_key_request_names names = {.name = name,
                                     .role = role,
                                     .device_id = device_id,
                                     .dns = dns,
                                     .num_dns = hosts,
                                     .ip = ip,
                                     .num_ip = hosts};
    fedge_error err;
    fedge_ca *ca = NULL;
    fedge_key_request request;
    fedge_certificate_info info;
    char *key = NULL;
    char *text = NULL;
    char *chain = NULL;
    must(fedge_ca_load(ca_dir, fedge_os_unix_ms(), &ca, &err), &err);
    must(fedge_key_request_make(&names, &key, &text, &err), &err);
    must(fedge_key_request_read(text, &request, &err), &err);
    must(fedge_ca_sign(ca, &request, 365, fedge_os_unix_ms(), &chain, &info, &err), &err);
    must(fedge_os_remove_tree(dir, &err), &err);
    forge_write(dir, "key.pem", key, 0600);
    forge_write(dir, "chain.pem", chain, 0644);
    fedge_key_request_fini(&request);
    fedge_ca_free(ca);
    free(key);
    free(text);
    free(chain);
}

void forge_identities(const char *dir)
{
    char ca[128], next[128], server[128], device[128];
    snprintf(ca, sizeof(ca), "%s/ca", dir);
    snprintf(next, sizeof(next), "%s/next", dir);
    snprintf(server, sizeof(server), "%s/server", dir);
    snprintf(device, sizeof(device), "%s/device", dir);
    forge_ca(ca);
    forge_ca(next);
    forge_identity(server, ca, FEDGE_ROLE_SERVER, FORGE_OTHER_ID, "hub");
    forge_identity(device, ca, FEDGE_ROLE_DEVICE, FORGE_ID, "pi-4");
}

static void set_extensions(mbedtls_x509write_cert *writer, const forge_leaf *leaf)
{
    mbedtls_x509_san_list names[4] = {{{0}, NULL}};
    for (int i = 0; i < 4 && leaf->uris[i]; i++) {
        names[i].node.type = MBEDTLS_X509_SAN_UNIFORM_RESOURCE_IDENTIFIER;
        names[i].node.san.unstructured_name.p = (unsigned char *)(uintptr_t)leaf->uris[i];
        names[i].node.san.unstructured_name.len = strlen(leaf->uris[i]);
        if (i > 0)
            names[i - 1].next = &names[i];
    }
    if (leaf->uris[0])
        assert_int_equal(mbedtls_x509write_crt_set_subject_alternative_name(writer, names), 0);
    static const char *const usages[] = {"", MBEDTLS_OID_CLIENT_AUTH, MBEDTLS_OID_SERVER_AUTH,
                                         MBEDTLS_OID_ANY_EXTENDED_KEY_USAGE};
    mbedtls_asn1_sequence usage = {0};
    usage.buf.tag = MBEDTLS_ASN1_OID;
    usage.buf.p = (unsigned char *)(uintptr_t)usages[leaf->usage];
    usage.buf.len = strlen(usages[leaf->usage]);
    if (leaf->usage != 0)
        assert_int_equal(mbedtls_x509write_crt_set_ext_key_usage(writer, &usage), 0);
    assert_int_equal(mbedtls_x509write_crt_set_basic_constraints(writer, leaf->is_ca, -1), 0);
}

static void time_text(int64_t days, char text[32])
{
    uint64_t ms = (uint64_t)((int64_t)fedge_os_unix_ms() + days * (int64_t)FEDGE_DAY_MS);
    fedge_calendar at = fedge_calendar_from_ms(ms);
    snprintf(text, 32, "%04d%02d%02d%02d%02d%02d", at.year % 10000, at.month % 100, at.day % 100,
             at.hour % 100, at.minute % 100, at.second % 100);
}

void forge_certificate(const char *dir, const char *ca_dir, const forge_leaf *leaf)
{
    char from[32];
    char to[32];
    char issuer[FEDGE_X509_MAX_SUBJECT];
    char subject[128];
    unsigned char text[16384];
    unsigned char serial[] = {1};
    fedge_error err;
    mbedtls_pk_context key;
    mbedtls_pk_context issuer_key;
    mbedtls_x509_crt issuer_certificate;
    mbedtls_x509write_cert writer;
    mbedtls_pk_init(&key);
    mbedtls_pk_init(&issuer_key);
    mbedtls_x509_crt_init(&issuer_certificate);
    mbedtls_x509write_crt_init(&writer);
    char *issuing = forge_read(ca_dir, "issuing.pem");
    char *issuing_key = forge_read(ca_dir, "issuing-key.pem");
    char *key_text = NULL;
    must(fedge_x509_parse_chain(issuing, "issuing.pem", &issuer_certificate, &err), &err);
    assert_int_equal(mbedtls_pk_parse_key(&issuer_key, (const unsigned char *)issuing_key,
                                          strlen(issuing_key) + 1, NULL, 0, fedge_x509_random,
                                          NULL),
                     0);
    must(fedge_x509_make_key(&key, &err), &err);
    must(fedge_x509_key_text(&key, &key_text, &err), &err);
    fedge_x509_subject(&issuer_certificate.subject, issuer, sizeof(issuer));
    snprintf(subject, sizeof(subject), "CN=%s", leaf->cn);
    time_text(leaf->from_days, from);
    time_text(leaf->to_days, to);
    mbedtls_x509write_crt_set_version(&writer, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(&writer, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(&writer, &key);
    mbedtls_x509write_crt_set_issuer_key(&writer, &issuer_key);
    assert_int_equal(mbedtls_x509write_crt_set_subject_name(&writer, subject), 0);
    assert_int_equal(mbedtls_x509write_crt_set_issuer_name(&writer, issuer), 0);
    assert_int_equal(mbedtls_x509write_crt_set_serial_raw(&writer, serial, sizeof(serial)), 0);
    assert_int_equal(mbedtls_x509write_crt_set_validity(&writer, from, to), 0);
    set_extensions(&writer, leaf);
    assert_int_equal(
        mbedtls_x509write_crt_pem(&writer, text, sizeof(text), fedge_x509_random, NULL), 0);
    strcat((char *)text, issuing);
    must(fedge_os_remove_tree(dir, &err), &err);
    forge_write(dir, "key.pem", key_text, 0600);
    forge_write(dir, "chain.pem", (const char *)text, 0644);
    mbedtls_x509write_crt_free(&writer);
    mbedtls_x509_crt_free(&issuer_certificate);
    mbedtls_pk_free(&issuer_key);
    mbedtls_pk_free(&key);
    free(key_text);
    free(issuing);
    free(issuing_key);
}

size_t forge_der(const char *dir, uint8_t out[4096])
{
    fedge_error err;
    char *pem = forge_read(dir, "chain.pem");
    mbedtls_x509_crt chain;
    mbedtls_x509_crt_init(&chain);
    must(fedge_x509_parse_chain(pem, "chain.pem", &chain, &err), &err);
    size_t size = chain.raw.len;
    assert_true(size <= 4096);
    memcpy(out, chain.raw.p, size);
    mbedtls_x509_crt_free(&chain);
    free(pem);
    return size;
}
