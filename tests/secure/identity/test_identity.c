#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <mbedtls/asn1.h>
#include <mbedtls/bignum.h>
#include <mbedtls/pem.h>
#include <mbedtls/pk.h>

#include "edge/core/os.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/certificate.h"
#include "secure/identity/registry.h"
#include "secure/identity/x509.h"
#include "tests/secure/identity/forge.h"

#define DIR "test_identity.tmp"
#define CA DIR "/ca"
#define DEVICE_URI "urn:fedge:device:" FORGE_ID
#define OTHER_URI "urn:fedge:device:" FORGE_OTHER_ID

static fedge_error err;

static int set_up(void **state)
{
    (void)state;
    forge_ca(CA);
    forge_identity(DIR "/device", CA, FEDGE_ROLE_DEVICE, FORGE_ID, "pi-4");
    forge_identity(DIR "/server", CA, FEDGE_ROLE_SERVER, FORGE_OTHER_ID, "hub");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return fedge_os_remove_tree(DIR, NULL) == FEDGE_OK ? 0 : -1;
}

static void expect(fedge_status status, fedge_status wanted, const char *words)
{
    if (status != wanted) {
        fail_msg("status %s, wanted %s: %s", fedge_status_text(status), fedge_status_text(wanted),
                 status == FEDGE_OK ? "" : err.message);
    }
    if (words && !strstr(err.message, words))
        fail_msg("'%s' is not in: %s", words, err.message);
}

/* mbedTLS's flags for DIR/chain.pem under the authority's root. */
static uint32_t verify_chain(const char *dir, const char *ca_dir)
{
    uint32_t flags = 0;
    mbedtls_x509_crt chain;
    mbedtls_x509_crt roots;
    mbedtls_x509_crt_init(&chain);
    mbedtls_x509_crt_init(&roots);
    char *chain_pem = forge_read(dir, "chain.pem");
    char *root_pem = forge_read(ca_dir, "root.pem");
    assert_int_equal(fedge_x509_parse_chain(chain_pem, "chain", &chain, &err), FEDGE_OK);
    assert_int_equal(fedge_x509_parse_chain(root_pem, "root", &roots, &err), FEDGE_OK);
    mbedtls_x509_crt_verify(&chain, &roots, NULL, NULL, &flags, NULL, NULL);
    mbedtls_x509_crt_free(&chain);
    mbedtls_x509_crt_free(&roots);
    free(chain_pem);
    free(root_pem);
    return flags;
}

static void test_round_trip(void **state)
{
    (void)state;
    fedge_identity *identity = NULL;
    assert_int_equal(verify_chain(DIR "/device", CA), 0);
    expect(
        fedge_identity_load(DIR "/device", FEDGE_ROLE_DEVICE, fedge_os_unix_ms(), &identity, &err),
        FEDGE_OK, NULL);
    const fedge_certificate_info *own = &identity->certificate;
    assert_string_equal(own->device_id, FORGE_ID);
    assert_int_equal(own->role, FEDGE_ROLE_DEVICE);
    assert_string_equal(own->subject, "CN=pi-4");
    assert_true(own->not_before_ms <= fedge_os_unix_ms() - FEDGE_CA_BACKDATE_MS);
    uint8_t der[4096];
    uint8_t hash[32];
    fedge_sha256(der, forge_der(DIR "/device", der), hash);
    assert_memory_equal(hash, own->fingerprint, sizeof(hash));
    fedge_identity_free(identity);
}

/* Serial numbers are positive, of one length, and not one number again and again. */
static void test_serial_numbers(void **state)
{
    (void)state;
    unsigned char first = 0;
    bool differ = false;
    for (int i = 0; i < 20; i++) {
        uint8_t der[4096];
        mbedtls_x509_crt certificate;
        forge_identity(DIR "/serial", CA, FEDGE_ROLE_DEVICE, FORGE_ID, "pi-4");
        mbedtls_x509_crt_init(&certificate);
        assert_int_equal(
            mbedtls_x509_crt_parse_der(&certificate, der, forge_der(DIR "/serial", der)), 0);
        assert_int_equal(certificate.serial.len, 16);
        assert_int_equal(certificate.serial.p[0] & 0xC0, 0x40);
        differ = differ || (i > 0 && certificate.serial.p[0] != first);
        first = certificate.serial.p[0];
        mbedtls_x509_crt_free(&certificate);
        assert_int_equal(fedge_os_remove_tree(DIR "/serial", &err), FEDGE_OK);
    }
    assert_true(differ);
}

static void test_foreign_authority(void **state)
{
    (void)state;
    forge_ca(DIR "/ca2");
    forge_identity(DIR "/foreign", DIR "/ca2", FEDGE_ROLE_DEVICE, FORGE_ID, "pi-4");
    assert_int_equal(verify_chain(DIR "/foreign", DIR "/ca2"), 0);
    assert_true(verify_chain(DIR "/foreign", CA) & MBEDTLS_X509_BADCERT_NOT_TRUSTED);
}

/* A device's certificate must not be able to sign others: path length and constraints. */
static void test_path_length(void **state)
{
    (void)state;
    forge_ca(DIR "/ca3");
    forge_leaf sub = {.cn = "sub", .is_ca = true, .from_days = -1, .to_days = 10};
    forge_certificate(DIR "/sub", DIR "/ca3", &sub);
    char *key = forge_read(DIR "/sub", "key.pem");
    char *chain = forge_read(DIR "/sub", "chain.pem");
    forge_write(DIR "/rogue", "issuing-key.pem", key, 0600);
    forge_write(DIR "/rogue", "issuing.pem", chain, 0644);
    forge_identity(DIR "/leaf", DIR "/rogue", FEDGE_ROLE_DEVICE, FORGE_ID, "leaf");
    assert_true(verify_chain(DIR "/leaf", DIR "/ca3") != 0);
    free(key);
    free(chain);
}

static void test_crooked_certificates(void **state)
{
    (void)state;
    static const struct {
        forge_leaf leaf;
        const char *words;
    } cases[] = {
        {{.uris = {"urn:fedge:role:device"}, .usage = 1}, "names no device"},
        {{.uris = {DEVICE_URI}, .usage = 1}, "names no role"},
        {{.uris = {NULL}, .usage = 1}, "names no device"},
        {{.uris = {DEVICE_URI, OTHER_URI, "urn:fedge:role:device"}, .usage = 1},
         "more than one device"},
        {{.uris = {DEVICE_URI, DEVICE_URI, "urn:fedge:role:device"}, .usage = 1},
         "more than one device"},
        {{.uris = {DEVICE_URI, "urn:fedge:role:device", "urn:fedge:role:operator"}, .usage = 1},
         "more than one role"},
        {{.uris = {DEVICE_URI, "urn:fedge:role:king"}, .usage = 1}, "role is none of"},
        {{.uris = {"urn:fedge:device:01234567-89AB-4def-8123-456789abcdef",
                   "urn:fedge:role:device"},
          .usage = 1},
         "not a lower-case UUID"},
        {{.uris = {"urn:fedge:device:x", "urn:fedge:role:device"}, .usage = 1}, "UUID"},
        {{.uris = {DEVICE_URI, "urn:fedge:role:device", "https://example.org"}, .usage = 1},
         "URI name that is neither"},
        {{.uris = {DEVICE_URI, "urn:fedge:role:device"}, .usage = 0}, "no extended key usage"},
        {{.uris = {DEVICE_URI, "urn:fedge:role:device"}, .usage = 2}, "not clientAuth"},
        {{.uris = {DEVICE_URI, "urn:fedge:role:device"}, .usage = 3}, "not clientAuth"},
        {{.uris = {DEVICE_URI, "urn:fedge:role:server"}, .usage = 1}, "not serverAuth"},
        {{.uris = {DEVICE_URI, "urn:fedge:role:device"}, .usage = 1, .is_ca = true}, "authority"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        forge_leaf leaf = cases[i].leaf;
        uint8_t der[4096];
        fedge_certificate_info info;
        leaf.cn = "crooked";
        leaf.from_days = -1;
        leaf.to_days = 10;
        forge_certificate(DIR "/crooked", CA, &leaf);
        size_t size = forge_der(DIR "/crooked", der);
        expect(fedge_certificate_read(der, size, &info, &err), FEDGE_DENIED, cases[i].words);
    }
}

static void test_not_a_certificate(void **state)
{
    (void)state;
    uint8_t der[4097] = {0};
    fedge_certificate_info info;
    size_t size = forge_der(DIR "/device", der);
    expect(fedge_certificate_read(der, 0, &info, &err), FEDGE_CORRUPT, NULL);
    expect(fedge_certificate_read(der, size - 1, &info, &err), FEDGE_CORRUPT, NULL);
    expect(fedge_certificate_read(der, size + 1, &info, &err), FEDGE_CORRUPT, NULL);
    for (size_t i = 0; i < size; i += 7) { /* must not crash, whatever it returns */
        der[i] ^= 0x55;
        (void)!fedge_certificate_read(der, size, &info, &err);
        der[i] ^= 0x55;
    }
    expect(fedge_certificate_read(der, size, &info, &err), FEDGE_OK, NULL);
}

static void test_peer_check(void **state)
{
    (void)state;
    uint8_t der[4096];
    size_t size = forge_der(DIR "/device", der);
    uint64_t now_ms = fedge_os_unix_ms();
    fedge_registry_match match;
    expect(fedge_peer_check(der, size, FEDGE_ROLE_DEVICE, now_ms, NULL, &match, &err), FEDGE_OK,
           NULL);
    assert_string_equal(match.device_id, FORGE_ID);
    expect(fedge_peer_check(der, size, FEDGE_ROLE_SERVER, now_ms, NULL, &match, &err), FEDGE_DENIED,
           "has role device, not server");
    expect(fedge_peer_check(der, size, FEDGE_ROLE_DEVICE, now_ms + 366 * FEDGE_DAY_MS, NULL, &match,
                            &err),
           FEDGE_EXPIRED, "expired at");
    expect(fedge_peer_check(der, size, FEDGE_ROLE_DEVICE, now_ms - 2 * FEDGE_DAY_MS, NULL, &match,
                            &err),
           FEDGE_EXPIRED, "valid from");
}

/* To the millisecond, at both ends. */
static void test_peer_time(void **state)
{
    (void)state;
    uint8_t der[4096];
    fedge_certificate_info info;
    fedge_registry_match match;
    const size_t size = forge_der(DIR "/device", der);
    expect(fedge_certificate_read(der, size, &info, &err), FEDGE_OK, NULL);
    const struct {
        uint64_t now_ms;
        fedge_status status;
    } cases[] = {{info.not_before_ms - 1, FEDGE_EXPIRED},
                 {info.not_before_ms, FEDGE_OK},
                 {info.not_after_ms, FEDGE_OK},
                 {info.not_after_ms + 1, FEDGE_EXPIRED}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect(fedge_peer_check(der, size, FEDGE_ROLE_DEVICE, cases[i].now_ms, NULL, &match, &err),
               cases[i].status, NULL);
    }
}

/* The registry has the last word on whose certificate it is. */
static void test_peer_registered(void **state)
{
    (void)state;
    static const struct {
        const char *device_id;
        fedge_role role;
        fedge_certificate_state state;
        fedge_status status;
        const char *words;
    } cases[] = {
        {FORGE_ID, FEDGE_ROLE_DEVICE, FEDGE_CERTIFICATE_ACTIVE, FEDGE_OK, NULL},
        {FORGE_OTHER_ID, FEDGE_ROLE_DEVICE, FEDGE_CERTIFICATE_ACTIVE, FEDGE_DENIED,
         "the registry says " FORGE_OTHER_ID},
        {FORGE_ID, FEDGE_ROLE_OPERATOR, FEDGE_CERTIFICATE_ACTIVE, FEDGE_DENIED, "operator"},
        {FORGE_ID, FEDGE_ROLE_DEVICE, FEDGE_CERTIFICATE_REVOKED, FEDGE_REVOKED, "is revoked"},
        {FORGE_ID, FEDGE_ROLE_DEVICE, FEDGE_CERTIFICATE_PENDING, FEDGE_DENIED, "activate"},
    };
    uint8_t der[4096];
    const size_t size = forge_der(DIR "/device", der);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_certificate_info info;
        fedge_registry *registry = NULL;
        fedge_registry_match match;
        expect(fedge_certificate_read(der, size, &info, &err), FEDGE_OK, NULL);
        snprintf(info.device_id, sizeof(info.device_id), "%s", cases[i].device_id);
        info.role = cases[i].role;
        expect(fedge_registry_open(DIR "/no-registry", &registry, &err), FEDGE_OK, NULL);
        expect(fedge_peer_check(der, size, FEDGE_ROLE_DEVICE, fedge_os_unix_ms(), registry, &match,
                                &err),
               FEDGE_NOT_FOUND, FORGE_ID);
        expect(fedge_registry_add(registry, &info, "kitchen", cases[i].state, false, &match, &err),
               FEDGE_OK, NULL);
        expect(fedge_peer_check(der, size, FEDGE_ROLE_DEVICE, fedge_os_unix_ms(), registry, &match,
                                &err),
               cases[i].status, cases[i].words);
        assert_string_equal(match.name, "kitchen");
        fedge_registry_free(registry);
    }
}

static fedge_status load(const char *dir, fedge_role role, uint64_t now_ms)
{
    fedge_identity *identity = NULL;
    fedge_status status = fedge_identity_load(dir, role, now_ms, &identity, &err);
    fedge_identity_free(identity);
    return status;
}

static void test_load_refusals(void **state)
{
    (void)state;
    uint64_t now_ms = fedge_os_unix_ms();
    char *key = forge_read(DIR "/device", "key.pem");
    char *chain = forge_read(DIR "/device", "chain.pem");
    char *other_key = forge_read(DIR "/server", "key.pem");
    expect(load(DIR "/nowhere", FEDGE_ROLE_DEVICE, 0), FEDGE_NOT_FOUND, "fedge-keys request");
    forge_write(DIR "/broken", "key.pem", key, 0600);
    expect(load(DIR "/broken", FEDGE_ROLE_DEVICE, 0), FEDGE_NOT_FOUND, "fedge-keys sign");
    forge_write(DIR "/broken", "chain.pem", chain, 0644);
    expect(load(DIR "/broken", FEDGE_ROLE_DEVICE, now_ms), FEDGE_OK, NULL);
    expect(load(DIR "/broken", FEDGE_ROLE_OPERATOR, now_ms), FEDGE_DENIED,
           "has role device, but operator is needed");
    expect(load(DIR "/broken", FEDGE_ROLE_DEVICE, now_ms + 366 * FEDGE_DAY_MS), FEDGE_EXPIRED,
           "fedge-keys renew");
    expect(load(DIR "/broken", FEDGE_ROLE_DEVICE, 0), FEDGE_OK, NULL);
    forge_write(DIR "/broken", "key.pem", key, 0640);
    expect(load(DIR "/broken", FEDGE_ROLE_DEVICE, 0), FEDGE_DENIED, "chmod");
    forge_write(DIR "/broken", "key.pem", other_key, 0600);
    expect(load(DIR "/broken", FEDGE_ROLE_DEVICE, 0), FEDGE_MISMATCH, "does not belong");
    forge_write(DIR "/broken", "key.pem", "nonsense", 0600);
    expect(load(DIR "/broken", FEDGE_ROLE_DEVICE, 0), FEDGE_CORRUPT, "key.pem");
    forge_write(DIR "/broken", "key.pem", key, 0600);
    chain[strlen(chain) / 4] = '!';
    forge_write(DIR "/broken", "chain.pem", chain, 0644);
    expect(load(DIR "/broken", FEDGE_ROLE_DEVICE, 0), FEDGE_CORRUPT, "chain.pem");
    free(key);
    free(chain);
    free(other_key);
}

static void test_trust(void **state)
{
    (void)state;
    char *pem = NULL;
    char *root = forge_read(CA, "root.pem");
    char *leaf = forge_read(DIR "/device", "chain.pem");
    expect(fedge_trust_load(DIR "/nothing", &pem, &err), FEDGE_NOT_FOUND, NULL);
    forge_write(DIR "/trust", "README", "not a root", 0644);
    expect(fedge_trust_load(DIR "/trust", &pem, &err), FEDGE_NOT_FOUND, "holds no *.pem");
    forge_write(DIR "/trust", "a.pem", root, 0644);
    forge_ca(DIR "/ca4");
    char *next = forge_read(DIR "/ca4", "root.pem");
    forge_write(DIR "/trust", "b.pem", next, 0644);
    expect(fedge_trust_load(DIR "/trust", &pem, &err), FEDGE_OK, NULL);
    assert_non_null(strstr(pem, root));
    assert_non_null(strstr(pem, next));
    free(pem);
    /* Who may write there would say whom to trust. */
    assert_int_equal(chmod(DIR "/trust/a.pem", 0646), 0);
    expect(fedge_trust_load(DIR "/trust", &pem, &err), FEDGE_DENIED,
           "run 'chmod o-w " DIR "/trust/a.pem'");
    assert_int_equal(chmod(DIR "/trust/a.pem", 0664), 0);
    assert_int_equal(chmod(DIR "/trust", 01777), 0);
    expect(fedge_trust_load(DIR "/trust", &pem, &err), FEDGE_DENIED,
           "run 'chmod o-w " DIR "/trust'");
    assert_int_equal(chmod(DIR "/trust", 0775), 0);
    expect(fedge_trust_load(DIR "/trust", &pem, &err), FEDGE_OK, NULL);
    free(pem);
    forge_write(DIR "/trust", "c.pem", leaf, 0644);
    expect(fedge_trust_load(DIR "/trust", &pem, &err), FEDGE_DENIED, "not a root");
    forge_write(DIR "/trust", "c.pem", "nonsense", 0644);
    expect(fedge_trust_load(DIR "/trust", &pem, &err), FEDGE_CORRUPT, "c.pem");
    expect(fedge_trust_load(CA, &pem, &err), FEDGE_DENIED, "is a private key, of a ca folder");
    free(root);
    free(next);
    free(leaf);
}

static fedge_status read_request(const char *pem, bool *renews)
{
    fedge_key_request request;
    fedge_status status = fedge_key_request_read(pem, &request, &err);
    *renews = request.renews;
    fedge_key_request_fini(&request);
    return status;
}

static void test_requests(void **state)
{
    (void)state;
    static const char *const bad_dns[] = {"a b"};
    static const char *const bad_ip[] = {"127.0.0"};
    fedge_key_request_names names = {
        .name = "pi-4", .role = FEDGE_ROLE_DEVICE, .device_id = FORGE_ID};
    char *key = NULL;
    char *pem = NULL;
    bool renews;
    fedge_key_request_names bad = names;
    bad.name = "a,O=b";
    expect(fedge_key_request_make(&bad, &key, &pem, &err), FEDGE_INVALID_ARGUMENT, "name");
    bad = names;
    bad.device_id = "x";
    expect(fedge_key_request_make(&bad, &key, &pem, &err), FEDGE_INVALID_ARGUMENT, NULL);
    bad = names;
    bad.role = FEDGE_ROLE_SERVER;
    expect(fedge_key_request_make(&bad, &key, &pem, &err), FEDGE_DENIED, "--dns");
    bad.dns = bad_dns;
    bad.num_dns = 1;
    expect(fedge_key_request_make(&bad, &key, &pem, &err), FEDGE_INVALID_ARGUMENT, "DNS name");
    bad.num_dns = 0;
    bad.ip = bad_ip;
    bad.num_ip = 1;
    expect(fedge_key_request_make(&bad, &key, &pem, &err), FEDGE_INVALID_ARGUMENT, "IP address");
    expect(fedge_key_request_make(&names, &key, &pem, &err), FEDGE_OK, NULL);
    expect(read_request(pem, &renews), FEDGE_OK, NULL);
    assert_false(renews);
    free(key);
    free(pem);
    /* The longest name arrives whole. */
    char longest[FEDGE_NAME_SIZE];
    fedge_key_request request;
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 2] = '9';
    longest[sizeof(longest) - 1] = '\0';
    names.name = longest;
    expect(fedge_key_request_make(&names, &key, &pem, &err), FEDGE_OK, NULL);
    expect(fedge_key_request_read(pem, &request, &err), FEDGE_OK, NULL);
    assert_string_equal(request.name, longest);
    fedge_key_request_fini(&request);
    /* The last base64 characters are the end of the signature. */
    char *end = strstr(pem, "-----END") - 8;
    *end = *end == 'A' ? 'B' : 'A';
    fedge_status status = read_request(pem, &renews);
    assert_true(status == FEDGE_DENIED || status == FEDGE_CORRUPT);
    expect(read_request("nonsense", &renews), FEDGE_CORRUPT, NULL);
    free(key);
    free(pem);
}

static void test_other_kinds_of_names(void **state)
{
    (void)state;
    static unsigned char mail[] = "a@b";
    const mbedtls_x509_sequence names = {
        .buf = {.tag = MBEDTLS_ASN1_CONTEXT_SPECIFIC | MBEDTLS_X509_SAN_RFC822_NAME,
                .p = mail,
                .len = sizeof(mail) - 1}};
    fedge_x509_names out;
    assert_int_equal(fedge_x509_names_read(&names, &out, &err), FEDGE_DENIED);
    assert_string_equal(err.message, "it has an alternative name of type 1");
}

/* The request of a renewal by a certificate for the server's own key that has the name [dns], too.
 */
static char *renew_with(const fedge_identity *server, const char *dns)
{
    char *no_key = NULL;
    char *pem = NULL;
    char *chain = NULL;
    fedge_ca *ca = NULL;
    fedge_key_request request;
    fedge_certificate_info info;
    expect(fedge_ca_load(CA, fedge_os_unix_ms(), &ca, &err), FEDGE_OK, NULL);
    expect(fedge_key_request_renew(server, false, &no_key, &pem, &err), FEDGE_OK, NULL);
    expect(fedge_key_request_read(pem, &request, &err), FEDGE_OK, NULL);
    request.names.dns[request.names.num_dns++] =
        (mbedtls_x509_buf){.p = (unsigned char *)(uintptr_t)dns, .len = strlen(dns)};
    expect(fedge_ca_sign(ca, &request, 1, fedge_os_unix_ms(), &chain, &info, &err), FEDGE_OK, NULL);
    free(pem);
    const fedge_identity wider = {.key_pem = server->key_pem, .chain_pem = chain};
    expect(fedge_key_request_renew(&wider, false, &no_key, &pem, &err), FEDGE_OK, NULL);
    fedge_key_request_fini(&request);
    fedge_ca_free(ca);
    free(chain);
    return pem;
}

static void test_host_names(void **state)
{
    (void)state;
    enum { LONGEST = 253 };
    char name[LONGEST + 2];
    memset(name, 'a', sizeof(name));
    assert_true(fedge_x509_dns_valid(name, LONGEST));
    assert_false(fedge_x509_dns_valid(name, LONGEST + 1));
    assert_false(fedge_x509_dns_valid(name, 0));
    static const char *const GOOD[] = {"a", "fl.example.org", "FL-2.Example", "7.example"};
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(*GOOD); i++)
        assert_true(fedge_x509_dns_valid(GOOD[i], strlen(GOOD[i])));
    static const char *const BAD[] = {"",    ".example",   "-x.example",      "*.example",
                                      "a b", "a,DNS evil", "\xc3\xa9.example"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++)
        assert_false(fedge_x509_dns_valid(BAD[i], strlen(BAD[i])));
}

static void test_a_renewal_adds_no_names(void **state)
{
    (void)state;
    fedge_identity *server = NULL;
    char *no_key = NULL;
    char *own = NULL;
    char mixed[16384];
    bool renews;
    expect(fedge_identity_load(DIR "/server", FEDGE_ROLE_SERVER, 0, &server, &err), FEDGE_OK, NULL);
    expect(fedge_key_request_renew(server, false, &no_key, &own, &err), FEDGE_OK, NULL);
    char *wider = renew_with(server, "other.example.org");
    expect(read_request(wider, &renews), FEDGE_OK, NULL);
    assert_true(renews);
    /* The present certificate in place of the one that has all these names: same key, same proof.
     */
    const char *present = strstr(own, "-----BEGIN CERTIFICATE-----");
    snprintf(mixed, sizeof(mixed), "%.*s%.*s%s",
             (int)(strstr(wider, "-----BEGIN CERTIFICATE-----") - wider), wider,
             (int)(strstr(own, "-----BEGIN FEDGE") - present), present,
             strstr(wider, "-----BEGIN FEDGE"));
    expect(read_request(mixed, &renews), FEDGE_DENIED, "adds none: other.example.org");
    free(wider);
    /* What another program has put into a request. */
    wider = renew_with(server, "*.example.org");
    expect(read_request(wider, &renews), FEDGE_DENIED, "'*.example.org' is not a DNS name");
    free(wider);
    free(own);
    fedge_identity_free(server);
}

static void test_renewal_proof(void **state)
{
    (void)state;
    fedge_identity *device = NULL;
    fedge_identity *server = NULL;
    char *key = NULL;
    char *pem = NULL;
    char *other = NULL;
    bool renews;
    expect(fedge_identity_load(DIR "/device", FEDGE_ROLE_DEVICE, 0, &device, &err), FEDGE_OK, NULL);
    expect(fedge_identity_load(DIR "/server", FEDGE_ROLE_SERVER, 0, &server, &err), FEDGE_OK, NULL);
    expect(fedge_key_request_renew(device, true, &key, &pem, &err), FEDGE_OK, NULL);
    assert_non_null(key);
    expect(read_request(pem, &renews), FEDGE_OK, NULL);
    assert_true(renews);
    /* Another device's proof under this request. */
    char *no_key = NULL;
    expect(fedge_key_request_renew(server, false, &no_key, &other, &err), FEDGE_OK, NULL);
    assert_null(no_key);
    char mixed[16384];
    size_t request_size = (size_t)(strstr(pem, "-----BEGIN CERTIFICATE-----") - pem);
    snprintf(mixed, sizeof(mixed), "%.*s%s", (int)request_size, pem,
             strstr(other, "-----BEGIN CERTIFICATE-----"));
    expect(read_request(mixed, &renews), FEDGE_DENIED, "another device");
    /* The right certificate with the wrong signature. */
    const char *own = strstr(pem, "-----BEGIN CERTIFICATE-----");
    size_t own_size = (size_t)(strstr(pem, "-----BEGIN FEDGE") - own);
    snprintf(mixed, sizeof(mixed), "%.*s%.*s%s", (int)request_size, pem, (int)own_size, own,
             strstr(other, "-----BEGIN FEDGE"));
    expect(read_request(mixed, &renews), FEDGE_DENIED, "not signed by the key");
    snprintf(mixed, sizeof(mixed), "%.*s%s", (int)request_size, pem,
             strstr(pem, "-----BEGIN FEDGE"));
    expect(read_request(mixed, &renews), FEDGE_DENIED, "lacks");
    /* The proof of an earlier renewal, which had another key. */
    char *key_again = NULL;
    char *again = NULL;
    expect(fedge_key_request_renew(device, true, &key_again, &again, &err), FEDGE_OK, NULL);
    request_size = (size_t)(strstr(again, "-----BEGIN CERTIFICATE-----") - again);
    snprintf(mixed, sizeof(mixed), "%.*s%s", (int)request_size, again, own);
    expect(read_request(mixed, &renews), FEDGE_DENIED, "not signed by the key");
    free(key_again);
    free(again);
    free(key);
    free(pem);
    free(other);
    fedge_identity_free(device);
    fedge_identity_free(server);
}

static void test_authority_refusals(void **state)
{
    (void)state;
    fedge_ca *ca = NULL;
    uint64_t end_ms;
    uint64_t now_ms = fedge_os_unix_ms();
    char *before = forge_read(CA, "issuing.pem");
    expect(fedge_ca_create(CA, "test", 10, 10, now_ms, &end_ms, &end_ms, &err), FEDGE_OK, NULL);
    char *after = forge_read(CA, "issuing.pem");
    assert_string_equal(before, after); /* it is there already */
    free(before);
    free(after);
    expect(fedge_ca_create(CA, "other", 10, 10, now_ms, &end_ms, &end_ms, &err), FEDGE_EXISTS,
           "never overwritten");
    expect(fedge_ca_create(DIR "/ca5", "a,b", 10, 10, now_ms, &end_ms, &end_ms, &err),
           FEDGE_INVALID_ARGUMENT, "name");
    expect(fedge_ca_create(DIR "/ca5", "test", 0, 10, now_ms, &end_ms, &end_ms, &err),
           FEDGE_INVALID_ARGUMENT, "days");
    expect(fedge_ca_load(DIR "/nowhere", now_ms, &ca, &err), FEDGE_NOT_FOUND, "fedge-keys ca");
    expect(fedge_ca_load(CA, now_ms + 1826 * FEDGE_DAY_MS, &ca, &err), FEDGE_EXPIRED,
           "--renew-issuing");
    expect(fedge_os_check_private(CA "/root-key.pem", &err), FEDGE_OK, NULL);
    expect(fedge_os_check_private(CA "/issuing-key.pem", &err), FEDGE_OK, NULL);
    expect(fedge_os_check_private(CA, &err), FEDGE_OK, NULL);
    /* A certificate never outlives its issuer. */
    forge_ca(DIR "/ca6");
    expect(fedge_ca_renew_issuing(DIR "/ca6", "test", 5, now_ms, &end_ms, &err), FEDGE_OK, NULL);
    forge_identity(DIR "/short", DIR "/ca6", FEDGE_ROLE_DEVICE, FORGE_ID, "short");
    assert_int_equal(verify_chain(DIR "/short", DIR "/ca6"), 0);
    fedge_identity *identity = NULL;
    expect(fedge_identity_load(DIR "/short", FEDGE_ROLE_DEVICE, 0, &identity, &err), FEDGE_OK,
           NULL);
    assert_true(identity->certificate.not_after_ms <= end_ms);
    fedge_identity_free(identity);
}

/* What passes by itself is told from what must be mended. */
static void test_no_memory(void **state)
{
    (void)state;
    const struct {
        int code;
        fedge_status status;
    } cases[] = {
        {MBEDTLS_ERR_X509_ALLOC_FAILED, FEDGE_NO_MEMORY},
        {MBEDTLS_ERR_PK_ALLOC_FAILED, FEDGE_NO_MEMORY},
        {MBEDTLS_ERR_PEM_ALLOC_FAILED, FEDGE_NO_MEMORY},
        {MBEDTLS_ERR_X509_INVALID_EXTENSIONS + MBEDTLS_ERR_ASN1_ALLOC_FAILED, FEDGE_NO_MEMORY},
        {MBEDTLS_ERR_PK_KEY_INVALID_FORMAT + MBEDTLS_ERR_MPI_ALLOC_FAILED, FEDGE_NO_MEMORY},
        {MBEDTLS_ERR_X509_INVALID_EXTENSIONS + MBEDTLS_ERR_ASN1_OUT_OF_DATA, FEDGE_CORRUPT},
        {MBEDTLS_ERR_X509_INVALID_FORMAT, FEDGE_CORRUPT},
        {MBEDTLS_ERR_PEM_NO_HEADER_FOOTER_PRESENT, FEDGE_CORRUPT}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(fedge_x509_fail(&err, FEDGE_CORRUPT, cases[i].code, "it"),
                         cases[i].status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_serial_numbers),
        cmocka_unit_test(test_foreign_authority),
        cmocka_unit_test(test_path_length),
        cmocka_unit_test(test_crooked_certificates),
        cmocka_unit_test(test_not_a_certificate),
        cmocka_unit_test(test_peer_check),
        cmocka_unit_test(test_peer_time),
        cmocka_unit_test(test_peer_registered),
        cmocka_unit_test(test_load_refusals),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_host_names),
        cmocka_unit_test(test_a_renewal_adds_no_names),
        cmocka_unit_test(test_renewal_proof),
        cmocka_unit_test(test_other_kinds_of_names),
        cmocka_unit_test(test_authority_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
