/* Who may connect, and what is used after the directories were loaded again. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/ssl.h>

#include "aggregator/net/peers.h"
#include "edge/core/os.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/x509.h"
#include "tests/secure/identity/forge.h"

#define DIR "test_peers.tmp"
#define IDENTITY DIR "/identity"
#define TRUST DIR "/trust"
#define REGISTRY DIR "/registry"

static fedge_error err;

/* ---- the log ----------------------------------------------------------------------------------
 */

static char last_line[FEDGE_LOG_MAX_LINE + 1];
static unsigned num_lines;

static void take_line(void *user, const char *line, size_t size)
{
    (void)user;
    memcpy(last_line, line, size);
    last_line[size] = '\0';
    num_lines++;
}

static const fedge_log the_log = {.level = FEDGE_LOG_INFO, .write = take_line};

/* ---- directories ------------------------------------------------------------------------------
 */

static void copy_file(const char *from, const char *to, const char *name, const char *as)
{
    char *text = forge_read(from, name);
    forge_write(to, as, text, 0600);
    free(text);
}

static void use_identity(const char *from)
{
    copy_file(from, IDENTITY, "key.pem", "key.pem");
    copy_file(from, IDENTITY, "chain.pem", "chain.pem");
}

static void use_root(const char *ca)
{
    assert_int_equal(fedge_os_remove_tree(TRUST, &err), FEDGE_OK);
    copy_file(ca, TRUST, "root.pem", "root.pem");
}

/* A registry with the device of DIR/device and, with [both], that of DIR/foreign, in this state. */
static void use_registry(bool both, fedge_certificate_state state)
{
    static const char *const devices[] = {DIR "/device", DIR "/foreign"};
    fedge_registry *registry = NULL;
    fedge_registry_match match;
    assert_int_equal(fedge_os_remove_tree(REGISTRY, &err), FEDGE_OK);
    assert_int_equal(fedge_os_make_dirs(REGISTRY, &err), FEDGE_OK);
    assert_int_equal(fedge_registry_open(REGISTRY, &registry, &err), FEDGE_OK);
    for (int i = 0; i < (both ? 2 : 1); i++) {
        uint8_t der[4096];
        fedge_certificate_info info;
        const size_t size = forge_der(devices[i], der);
        assert_int_equal(fedge_certificate_read(der, size, &info, &err), FEDGE_OK);
        assert_int_equal(
            fedge_registry_add(registry, &info, i ? "b" : "a", state, false, &match, &err),
            FEDGE_OK);
    }
    assert_int_equal(fedge_registry_save(registry, REGISTRY, &err), FEDGE_OK);
    fedge_registry_free(registry);
}

static int group_set_up(void **state)
{
    (void)state;
    forge_ca(DIR "/ca");
    forge_ca(DIR "/next");
    forge_identity(DIR "/server", DIR "/ca", FEDGE_ROLE_SERVER, FORGE_OTHER_ID, "hub");
    forge_identity(DIR "/next-server", DIR "/next", FEDGE_ROLE_SERVER, FORGE_OTHER_ID, "hub2");
    forge_identity(DIR "/device", DIR "/ca", FEDGE_ROLE_DEVICE, FORGE_ID, "pi-4");
    forge_identity(DIR "/foreign", DIR "/next", FEDGE_ROLE_DEVICE, FORGE_OTHER_ID, "pi-5");
    return 0;
}

static int group_tear_down(void **state)
{
    (void)state;
    return fedge_os_remove_tree(DIR, NULL) == FEDGE_OK ? 0 : -1;
}

static fedge_peers *open_peers(void)
{
    fedge_peers *peers = NULL;
    num_lines = 0;
    use_identity(DIR "/server");
    use_root(DIR "/ca");
    use_registry(false, FEDGE_CERTIFICATE_ACTIVE);
    if (fedge_peers_new(IDENTITY, TRUST, REGISTRY, &the_log, &peers, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return peers;
}

/* ---- what connections made from now on would use ----------------------------------------------
 */

/* With the identity that a server presents. */
static void make_config(const fedge_peers *peers, mbedtls_ssl_config *conf)
{
    fedge_tls_group *group = NULL;
    assert_int_equal(fedge_tls_group_new(fedge_peers_tls(peers), &group, &err), FEDGE_OK);
    assert_null(fedge_tls_enter(group));
    mbedtls_ssl_config_init(conf);
    assert_int_equal(mbedtls_ssl_config_defaults(conf, MBEDTLS_SSL_IS_SERVER,
                                                 MBEDTLS_SSL_TRANSPORT_STREAM,
                                                 MBEDTLS_SSL_PRESET_DEFAULT),
                     0);
    assert_int_equal(mbedtls_ssl_conf_own_cert(conf, NULL, NULL), 0);
    assert_ptr_equal(fedge_tls_enter(NULL), group);
    fedge_tls_group_free(group);
}

static void assert_root(const fedge_peers *peers, const char *ca)
{
    mbedtls_ssl_config conf;
    mbedtls_x509_crt expected;
    char *pem = forge_read(ca, "root.pem");
    mbedtls_x509_crt_init(&expected);
    assert_int_equal(fedge_x509_parse_chain(pem, ca, &expected, &err), FEDGE_OK);
    free(pem);
    make_config(peers, &conf);
    const mbedtls_x509_crt *root = conf.MBEDTLS_PRIVATE(ca_chain);
    assert_non_null(root);
    assert_int_equal(root->raw.len, expected.raw.len);
    assert_memory_equal(root->raw.p, expected.raw.p, root->raw.len);
    mbedtls_ssl_config_free(&conf);
    mbedtls_x509_crt_free(&expected);
}

/* Kept, and presented by a server. */
static void assert_identity(const fedge_peers *peers, const char *dir)
{
    mbedtls_ssl_config conf;
    uint8_t der[4096];
    const size_t size = forge_der(dir, der);
    char *chain = forge_read(dir, "chain.pem");
    assert_string_equal(fedge_peers_identity(peers)->chain_pem, chain);
    free(chain);
    make_config(peers, &conf);
    /* In mbedTLS 3.6 its first member is the certificate (library/ssl_misc.h). */
    const void *own = conf.MBEDTLS_PRIVATE(key_cert);
    const mbedtls_x509_crt *presented = *(const mbedtls_x509_crt *const *)own;
    assert_non_null(presented);
    assert_int_equal(presented->raw.len, size);
    assert_memory_equal(presented->raw.p, der, size);
    mbedtls_ssl_config_free(&conf);
}

static fedge_status admit(fedge_peers *peers, const char *dir, fedge_registry_match *match)
{
    uint8_t der[4096], fingerprint[FEDGE_FINGERPRINT_SIZE] = {0}, expected[FEDGE_FINGERPRINT_SIZE];
    const size_t size = forge_der(dir, der);
    fedge_status status = fedge_peers_admit(peers, der, size, fingerprint, match, &err);
    fedge_sha256(der, size, expected);
    assert_int_equal(memcmp(fingerprint, expected, sizeof(fingerprint)) == 0, status == FEDGE_OK);
    return status;
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void what_is_loaded_again_is_used(void **state)
{
    (void)state;
    fedge_registry_match match;
    fedge_peers *peers = open_peers();
    assert_root(peers, DIR "/ca");
    assert_identity(peers, DIR "/server");
    assert_int_equal(fedge_peers_num_devices(peers), 1);
    assert_int_equal(admit(peers, DIR "/device", &match), FEDGE_OK);
    assert_string_equal(match.device_id, FORGE_ID);
    assert_string_equal(match.name, "a");
    assert_int_equal(admit(peers, DIR "/foreign", &match), FEDGE_NOT_FOUND);
    assert_int_equal(admit(peers, DIR "/server", &match), FEDGE_DENIED);

    use_root(DIR "/next");
    assert_root(peers, DIR "/ca"); /* not before it is asked for */
    assert_int_equal(fedge_peers_reload(peers, &err), FEDGE_OK);
    assert_root(peers, DIR "/next");
    assert_identity(peers, DIR "/server");

    use_identity(DIR "/next-server");
    assert_int_equal(fedge_peers_reload(peers, &err), FEDGE_OK);
    assert_identity(peers, DIR "/next-server");
    assert_root(peers, DIR "/next");

    use_registry(true, FEDGE_CERTIFICATE_ACTIVE);
    assert_int_equal(fedge_peers_num_devices(peers), 1);
    assert_int_equal(fedge_peers_reload(peers, &err), FEDGE_OK);
    assert_int_equal(fedge_peers_num_devices(peers), 2);
    assert_int_equal(admit(peers, DIR "/foreign", &match), FEDGE_OK);
    assert_int_equal(match.index, 1);

    use_registry(true, FEDGE_CERTIFICATE_REVOKED);
    assert_int_equal(fedge_peers_reload(peers, &err), FEDGE_OK);
    assert_int_equal(admit(peers, DIR "/device", &match), FEDGE_REVOKED);
    use_registry(true, FEDGE_CERTIFICATE_PENDING);
    assert_int_equal(fedge_peers_reload(peers, &err), FEDGE_OK);
    assert_int_equal(admit(peers, DIR "/device", &match), FEDGE_DENIED);
    fedge_peers_free(peers);
}

/* One thing that cannot be loaded stays as it was, and the rest is taken over: a revocation does
 * not wait for somebody to mend a root. */
static void what_cannot_be_loaded_stays(void **state)
{
    (void)state;
    static const char *const files[][2] = {{IDENTITY, "chain.pem"},
                                           {IDENTITY, "key.pem"},
                                           {TRUST, "root.pem"},
                                           {REGISTRY, "registry.json"}};
    fedge_registry_match match;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        fedge_peers *peers = open_peers();
        char *before = forge_read(DIR "/server", "chain.pem");
        use_identity(DIR "/next-server");
        use_root(DIR "/next");
        use_registry(true, FEDGE_CERTIFICATE_REVOKED);
        forge_write(files[i][0], files[i][1], "nonsense", 0600);
        err = (fedge_error){0};
        assert_int_not_equal(fedge_peers_reload(peers, &err), FEDGE_OK);
        assert_true(strlen(err.message) > 10);
        const bool no_root = strcmp(files[i][0], TRUST) == 0;
        const bool no_registry = strcmp(files[i][0], REGISTRY) == 0;
        const bool no_identity = strcmp(files[i][0], IDENTITY) == 0;
        assert_root(peers, no_root ? DIR "/ca" : DIR "/next");
        if (no_identity)
            assert_string_equal(fedge_peers_identity(peers)->chain_pem, before);
        else
            assert_identity(peers, DIR "/next-server");
        assert_int_equal(fedge_peers_num_devices(peers), no_registry ? 1 : 2);
        assert_int_equal(admit(peers, DIR "/device", &match),
                         no_registry ? FEDGE_OK : FEDGE_REVOKED);
        free(before);
        fedge_peers *second = NULL;
        assert_int_not_equal(fedge_peers_new(IDENTITY, TRUST, REGISTRY, &the_log, &second, &err),
                             FEDGE_OK);
        assert_null(second);
        fedge_peers_free(peers);
    }
}

static void each_that_cannot_be_loaded_is_told(void **state)
{
    (void)state;
    fedge_peers *peers = open_peers();
    forge_write(TRUST, "root.pem", "nonsense", 0600);
    forge_write(REGISTRY, "registry.json", "nonsense", 0600);
    num_lines = 0;
    assert_int_not_equal(fedge_peers_reload(peers, &err), FEDGE_OK);
    assert_non_null(strstr(err.message, "root.pem"));
    assert_int_equal(num_lines, 1);
    assert_non_null(strstr(last_line, "reload-failed"));
    assert_non_null(strstr(last_line, "registry.json"));
    fedge_peers_free(peers);
}

/* So many lines a second, and one that counts the others. */
static void refusals_are_logged_within_bounds(void **state)
{
    (void)state;
    fedge_peers *peers = open_peers();
    for (uint32_t second = 0; second < 3; second++) {
        const uint64_t now_ms = 50000 + second * 1000;
        num_lines = 0;
        fedge_peers_tick(peers, now_ms);
        assert_int_equal(num_lines, second > 0);
        if (second > 0)
            assert_non_null(strstr(last_line, "more-connections-refused number=15"));
        for (uint32_t i = 0; i < FEDGE_REFUSALS_PER_SECOND + 15; i++)
            fedge_peers_refused(peers, "192.0.2.7", "CN=x", "expired", now_ms + i);
        assert_int_equal(num_lines, FEDGE_REFUSALS_PER_SECOND + (second > 0));
        assert_non_null(strstr(last_line, "connection-refused address=192.0.2.7"));
        assert_int_equal(fedge_peers_num_refused(peers),
                         (second + 1) * (FEDGE_REFUSALS_PER_SECOND + 15));
        fedge_peers_tick(peers, now_ms + 999);
        assert_int_equal(num_lines, FEDGE_REFUSALS_PER_SECOND + (second > 0));
    }
    fedge_peers_tick(peers, 53000);
    num_lines = 0;
    fedge_peers_tick(peers, 54000); /* nothing more to tell */
    assert_int_equal(num_lines, 0);
    fedge_peers_free(peers);
    fedge_peers_free(NULL);
}

/* A device that causes lines without end fills no disk: its connection has so many a second, the
 * device so many more over other connections, and what is left is counted. */
static void lines_of_a_noisy_device_are_limited(void **state)
{
    (void)state;
    fedge_peers *peers = open_peers();
    fedge_registry_match match;
    assert_int_equal(admit(peers, DIR "/device", &match), FEDGE_OK);
    fedge_quota first = {0};
    uint32_t logged = 0;
    fedge_peers_tick(peers, 50000);
    for (uint32_t i = 0; i < 100; i++)
        logged += fedge_peers_may_log(peers, &match, &first, 50000);
    assert_int_equal(logged, FEDGE_LINES_PER_SECOND);
    for (uint32_t i = 0; i < 100; i++) { /* a device that connects again and again */
        fedge_quota other = {0};
        for (uint32_t line = 0; line < FEDGE_LINES_PER_SECOND; line++)
            logged += fedge_peers_may_log(peers, &match, &other, 50000);
    }
    assert_int_equal(logged, FEDGE_LINES_BURST);
    num_lines = 0;
    fedge_peers_tick(peers, 50999);
    assert_int_equal(num_lines, 0);
    fedge_peers_tick(peers, 51000);
    assert_int_equal(num_lines, 1);
    char expected[128];
    snprintf(expected, sizeof(expected), "more-lines-of-device device=%s number=%u",
             match.device_id, 100 + 100 * FEDGE_LINES_PER_SECOND - FEDGE_LINES_BURST);
    assert_non_null(strstr(last_line, expected));
    for (logged = 0; fedge_peers_may_log(peers, &match, &first, 51000);)
        logged++;
    assert_int_equal(logged, FEDGE_LINES_PER_SECOND);
    fedge_peers_tick(peers, 52000);
    assert_int_equal(num_lines, 2); /* counted from new */
    assert_non_null(strstr(last_line, " number=1"));
    fedge_peers_tick(peers, 53000);
    assert_int_equal(num_lines, 2); /* nothing more to tell */
    fedge_peers_free(peers);
}

/* Many noisy devices have a line each up to a limit, and one for the rest. */
static void lines_of_many_noisy_devices_are_counted(void **state)
{
    (void)state;
    enum { DEVICES = 70, NAMED = 64, UNLOGGED = 3 };
    fedge_quota connections[DEVICES] = {{0}};
    fedge_peers *peers = open_peers();
    fedge_peers_tick(peers, 50000);
    for (uint32_t i = 0; i < (FEDGE_LINES_PER_SECOND + UNLOGGED) * DEVICES; i++) {
        fedge_registry_match match = {.index = 1000000}; /* new, and no memory was left for it */
        snprintf(match.device_id, sizeof(match.device_id), "device-%u", i % DEVICES);
        assert_int_equal(
            fedge_peers_may_log(peers, &match, &connections[i % DEVICES], 50000 + i / DEVICES),
            i < FEDGE_LINES_PER_SECOND * DEVICES);
    }
    num_lines = 0;
    fedge_peers_tick(peers, 51000);
    assert_int_equal(num_lines, NAMED + 1);
    assert_non_null(strstr(last_line, "more-lines-of-devices number=18"));
    fedge_peers_tick(peers, 52000);
    assert_int_equal(num_lines, NAMED + 1);
    fedge_peers_free(peers);
}

/* Two devices with one identity push each other off: said once each time that it goes on so long.
 */
static void an_identity_in_use_twice_is_told(void **state)
{
    (void)state;
    fedge_peers *peers = open_peers();
    fedge_registry_match match;
    assert_int_equal(admit(peers, DIR "/device", &match), FEDGE_OK);
    const fedge_peer_address one = {.host = {[10] = 0xFF, [11] = 0xFF, 192, 0, 2, 7}, .port = 1};
    const fedge_peer_address other = {.host = {[10] = 0xFF, [11] = 0xFF, 192, 0, 2, 8}, .port = 2};
    uint64_t now_ms = 50000;
    assert_false(fedge_peers_has_seen(peers, &one));
    fedge_peers_connected(peers, &match, &one);
    assert_true(fedge_peers_has_seen(peers, &one));
    assert_false(fedge_peers_has_seen(peers, &(fedge_peer_address){.host = {7}}));
    fedge_peers_connected(peers, &match, &other);
    for (uint32_t time = 0; time < 2; time++) {
        num_lines = 0;
        for (uint32_t i = 0; i < FEDGE_DISPLACED_TIMES + 2; i++) {
            assert_int_equal(num_lines, i >= FEDGE_DISPLACED_TIMES);
            fedge_peers_displaced(peers, &match, &one, now_ms + i);
        }
        assert_int_equal(num_lines, 1);
        assert_non_null(strstr(last_line, "identity-in-use-twice"));
        assert_non_null(strstr(last_line, "address=192.0.2.7:1 other-address=192.0.2.8:2"));
        now_ms += FEDGE_DISPLACED_MS;
    }
    num_lines = 0;
    for (uint32_t i = 0; i < 4 * FEDGE_DISPLACED_TIMES; i++) { /* slowly: a bad network */
        now_ms += FEDGE_DISPLACED_MS / (FEDGE_DISPLACED_TIMES - 1);
        fedge_peers_displaced(peers, &match, &one, now_ms);
    }
    match.index = 1; /* not of this registry */
    for (uint32_t i = 0; i < FEDGE_DISPLACED_TIMES; i++)
        fedge_peers_displaced(peers, &match, &one, now_ms);
    assert_int_equal(num_lines, 0);
    fedge_peers_free(peers);
}

static void the_days_that_its_own_certificate_has_left_are_told(void **state)
{
    (void)state;
    fedge_peers *peers = open_peers();
    assert_int_equal(num_lines, 0);
    fedge_peers_free(peers);
    forge_leaf leaf = {.cn = "hub",
                       .uris = {"urn:fedge:device:" FORGE_OTHER_ID, "urn:fedge:role:server"},
                       .usage = 2,
                       .from_days = -1,
                       .to_days = 10};
    forge_certificate(DIR "/short", DIR "/ca", &leaf);
    use_identity(DIR "/short");
    if (fedge_peers_new(IDENTITY, TRUST, REGISTRY, &the_log, &peers, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(num_lines, 1);
    assert_non_null(strstr(last_line, "own-certificate-expires-soon"));
    assert_non_null(strstr(last_line, "days-left=9"));
    fedge_peers_free(peers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_loaded_again_is_used),
        cmocka_unit_test(what_cannot_be_loaded_stays),
        cmocka_unit_test(each_that_cannot_be_loaded_is_told),
        cmocka_unit_test(refusals_are_logged_within_bounds),
        cmocka_unit_test(lines_of_a_noisy_device_are_limited),
        cmocka_unit_test(lines_of_many_noisy_devices_are_counted),
        cmocka_unit_test(an_identity_in_use_twice_is_told),
        cmocka_unit_test(the_days_that_its_own_certificate_has_left_are_told),
    };
    return cmocka_run_group_tests(tests, group_set_up, group_tear_down);
}
