/* What the settings hand to TLS configurations: the newest roots and identity, by every way that
 * libwebsockets takes, and never one that is freed while a handshake may still be using it. */
#include "tests/edge/core/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include <mbedtls/ssl.h>

#include "edge/core/os.h"
#include "secure/identity/tls.h"
#include "secure/identity/x509.h"
#include "tests/secure/identity/forge.h"

#define DIR "test_tls_material.tmp"

enum { MAX_FREED = 64, KEPT_MS = 600000 };

static fedge_error err;

/* ---- the clock, and what was freed ------------------------------------------------------------
 */

uint64_t __wrap_fedge_os_monotonic_ms(void);
void __real_mbedtls_x509_crt_free(mbedtls_x509_crt *certificate);
void __wrap_mbedtls_x509_crt_free(mbedtls_x509_crt *certificate);
void __real_mbedtls_pk_free(mbedtls_pk_context *key);
void __wrap_mbedtls_pk_free(mbedtls_pk_context *key);

static uint64_t now_ms;
static const void *watched[MAX_FREED]; /* certificates and keys in somebody's hand */
static bool freed[MAX_FREED];
static unsigned num_watched;

static void note_freed(const void *gone)
{
    for (unsigned i = 0; i < num_watched; i++)
        freed[i] = freed[i] || watched[i] == gone;
}

uint64_t __wrap_fedge_os_monotonic_ms(void)
{
    return now_ms;
}

void __wrap_mbedtls_x509_crt_free(mbedtls_x509_crt *certificate)
{
    note_freed(certificate);
    __real_mbedtls_x509_crt_free(certificate);
}

void __wrap_mbedtls_pk_free(mbedtls_pk_context *key)
{
    note_freed(key);
    __real_mbedtls_pk_free(key);
}

static unsigned watch(const void *pointer)
{
    assert_non_null(pointer);
    assert_true(num_watched < MAX_FREED);
    watched[num_watched] = pointer;
    freed[num_watched] = false;
    return num_watched++;
}

/* ---- configurations ---------------------------------------------------------------------------
 */

static const fedge_clock clock_of_system;
static fedge_tls *tls;
static fedge_tls_group *group;

/* Ends the node's settings. */
static void end_settings(void)
{
    fedge_tls_enter(NULL);
    fedge_tls_group_free(group);
    fedge_tls_free(tls);
    group = NULL;
    tls = NULL;
}

static void begin_settings(void)
{
    end_settings();
    assert_int_equal(fedge_tls_new(&clock_of_system, &tls, &err), FEDGE_OK);
    assert_int_equal(fedge_tls_group_new(tls, &group, &err), FEDGE_OK);
    assert_null(fedge_tls_enter(group));
}

static void set_roots(const char *ca)
{
    char *pem = forge_read(ca, "root.pem");
    assert_int_equal(fedge_tls_set_roots(tls, pem, &err), FEDGE_OK);
    free(pem);
}

static void set_identity(const char *dir)
{
    fedge_identity *identity = NULL;
    assert_int_equal(fedge_identity_load(dir, FEDGE_ROLE_SERVER, 0, &identity, &err), FEDGE_OK);
    assert_int_equal(fedge_tls_set_server_identity(tls, identity, &err), FEDGE_OK);
    fedge_identity_free(identity);
}

static void make_config(mbedtls_ssl_config *conf, int endpoint)
{
    mbedtls_ssl_config_init(conf);
    assert_int_equal(mbedtls_ssl_config_defaults(conf, endpoint, MBEDTLS_SSL_TRANSPORT_STREAM,
                                                 MBEDTLS_SSL_PRESET_DEFAULT),
                     0);
}

static const mbedtls_x509_crt *roots_of(const mbedtls_ssl_config *conf)
{
    return conf->MBEDTLS_PRIVATE(ca_chain);
}

static void assert_subject(const mbedtls_x509_crt *certificate, const char *dir, const char *name)
{
    char *pem = forge_read(dir, name);
    mbedtls_x509_crt expected;
    mbedtls_x509_crt_init(&expected);
    assert_int_equal(fedge_x509_parse_chain(pem, name, &expected, &err), FEDGE_OK);
    assert_non_null(certificate);
    assert_int_equal(certificate->raw.len, expected.raw.len);
    assert_memory_equal(certificate->raw.p, expected.raw.p, expected.raw.len);
    mbedtls_x509_crt_free(&expected);
    free(pem);
}

/* A configuration of [endpoint] trusts the root of [ca], whether it was made before or after that
 * was set, and whichever root libwebsockets names. */
static void assert_trusts(mbedtls_ssl_config *older, int endpoint, const char *ca)
{
    mbedtls_ssl_config fresh;
    mbedtls_x509_crt other;
    char *pem = forge_read(DIR "/other", "root.pem");
    mbedtls_x509_crt_init(&other);
    assert_int_equal(fedge_x509_parse_chain(pem, "other", &other, &err), FEDGE_OK);
    free(pem);
    make_config(&fresh, endpoint);
    assert_subject(roots_of(&fresh), ca, "root.pem");
    mbedtls_ssl_conf_ca_chain(&fresh, &other, NULL);
    assert_subject(roots_of(&fresh), ca, "root.pem");
    mbedtls_ssl_conf_ca_chain(older, &other, NULL);
    assert_subject(roots_of(older), ca, "root.pem");
    mbedtls_ssl_config_free(&fresh);
    mbedtls_x509_crt_free(&other);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static int group_set_up(void **state)
{
    (void)state;
    forge_identities(DIR);
    forge_ca(DIR "/other");
    forge_identity(DIR "/next-server", DIR "/next", FEDGE_ROLE_SERVER, FORGE_OTHER_ID, "hub2");
    return 0;
}

static int group_tear_down(void **state)
{
    (void)state;
    end_settings();
    return fedge_os_remove_tree(DIR, NULL) == FEDGE_OK ? 0 : -1;
}

static int set_up(void **state)
{
    (void)state;
    begin_settings();
    num_watched = 0;
    now_ms = 5000;
    return 0;
}

static void the_newest_roots_are_used(void **state)
{
    (void)state;
    for (int server = 0; server < 2; server++) {
        const int endpoint = server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT;
        mbedtls_ssl_config older;
        make_config(&older, endpoint);
        assert_null(roots_of(&older));
        set_roots(DIR "/ca");
        assert_trusts(&older, endpoint, DIR "/ca");
        set_roots(DIR "/next");
        assert_trusts(&older, endpoint, DIR "/next");
        assert_int_equal(fedge_tls_set_roots(tls, "nonsense", &err), FEDGE_CORRUPT);
        assert_trusts(&older, endpoint, DIR "/next");
        mbedtls_ssl_config_free(&older);
        begin_settings();
    }
}

/* As mbedTLS 3.6 has it in library/ssl_misc.h, for what a configuration presents. */
typedef struct key_cert {
    const mbedtls_x509_crt *cert;
    const mbedtls_pk_context *key;
    const struct key_cert *next;
} key_cert;

static const key_cert *own_of(const mbedtls_ssl_config *conf)
{
    const void *own = conf->MBEDTLS_PRIVATE(key_cert);
    assert_non_null(own);
    return own;
}

/* For servers alone, and once for each configuration. */
static void the_newest_identity_is_used(void **state)
{
    (void)state;
    mbedtls_x509_crt own;
    mbedtls_pk_context key;
    char *pem = forge_read(DIR "/next-server", "chain.pem");
    mbedtls_x509_crt_init(&own);
    mbedtls_pk_init(&key);
    assert_int_equal(fedge_x509_parse_chain(pem, "chain", &own, &err), FEDGE_OK);
    free(pem);
    const char *const identities[] = {DIR "/server", DIR "/next-server", DIR "/server"};
    for (int i = 0; i < 3; i++) {
        mbedtls_ssl_config server, client;
        set_identity(identities[i]);
        make_config(&server, MBEDTLS_SSL_IS_SERVER);
        make_config(&client, MBEDTLS_SSL_IS_CLIENT);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(mbedtls_ssl_conf_own_cert(&server, &own, &key), 0);
            assert_int_equal(mbedtls_ssl_conf_own_cert(&client, &own, &key), 0);
        }
        assert_subject(own_of(&server)->cert, identities[i], "chain.pem");
        assert_ptr_not_equal(own_of(&server)->key, &key);
        assert_null(own_of(&server)->next);
        assert_ptr_equal(own_of(&client)->cert, &own);
        assert_ptr_equal(own_of(&client)->key, &key);
        assert_null(own_of(&client)->next);
        mbedtls_ssl_config_free(&server);
        mbedtls_ssl_config_free(&client);
    }
    mbedtls_x509_crt_free(&own);
    mbedtls_pk_free(&key);
}

/* A handshake that began with the roots or the identity before the last may go on with them; once
 * none can, they are freed. */
static void nothing_is_freed_under_a_handshake(void **state)
{
    (void)state;
    mbedtls_ssl_config conf[4];
    unsigned roots[4], chains[4], keys[4];
    static const char *const cas[] = {DIR "/ca", DIR "/next", DIR "/ca", DIR "/next"};
    for (unsigned i = 0; i < 4; i++) { /* one replaces the other, a second apart */
        set_roots(cas[i]);
        set_identity(i % 2 ? DIR "/next-server" : DIR "/server");
        make_config(&conf[i], MBEDTLS_SSL_IS_SERVER);
        assert_int_equal(mbedtls_ssl_conf_own_cert(&conf[i], NULL, NULL), 0);
        roots[i] = watch(roots_of(&conf[i]));
        chains[i] = watch(own_of(&conf[i])->cert);
        keys[i] = watch(own_of(&conf[i])->key);
        for (unsigned k = 0; k < num_watched; k++)
            assert_false(freed[k]);
        now_ms += 1000;
    }
    /* The first was replaced at 6000, the second at 7000, the third at 8000. */
    now_ms = 7000 + KEPT_MS;
    set_roots(cas[0]);
    set_identity(DIR "/server");
    assert_true(freed[roots[0]] && freed[chains[0]] && freed[keys[0]]);
    for (unsigned i = 1; i < 4; i++)
        assert_false(freed[roots[i]] || freed[chains[i]] || freed[keys[i]]);
    now_ms = 8001 + KEPT_MS;
    set_roots(cas[0]);
    set_identity(DIR "/server");
    assert_true(freed[roots[1]] && freed[chains[1]] && freed[keys[1]]);
    assert_true(freed[roots[2]] && freed[chains[2]] && freed[keys[2]]);
    assert_false(freed[roots[3]] || freed[chains[3]] || freed[keys[3]]);
    end_settings();
    assert_true(freed[roots[3]] && freed[chains[3]] && freed[keys[3]]);
    for (unsigned i = 0; i < 4; i++)
        mbedtls_ssl_config_free(&conf[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_newest_roots_are_used, set_up),
        cmocka_unit_test_setup(the_newest_identity_is_used, set_up),
        cmocka_unit_test_setup(nothing_is_freed_under_a_handshake, set_up),
    };
    return cmocka_run_group_tests(tests, group_set_up, group_tear_down);
}
