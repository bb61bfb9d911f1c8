/* What the wraps make of the settings that libwebsockets would make: handshakes of tls_sides.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>

#include "edge/core/os.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/certificate.h"
#include "secure/identity/chain.h"
#include "secure/identity/tickets.h"
#include "secure/identity/tls.h"
#include "secure/identity/x509.h"
#include "tests/secure/identity/forge.h"
#include "tests/secure/identity/tls_sides.h"

#define DIR "test_tls.tmp"

static fedge_error err;
static node own; /* both sides' */

static void begin_settings(void)
{
    fedge_tls_enter(NULL);
    node_fini(&own);
    node_init(&own);
    fedge_tls_enter(own.group);
}

static void set_roots(const char *first, const char *second)
{
    node_set_roots(&own, first, second);
}

/* What was verified last on the server's side. */
static struct {
    unsigned count;
    int socket;
    fedge_chain chain;
} verified;

static void on_verified(void *user, int socket, const fedge_chain *chain)
{
    assert_ptr_equal(user, &verified);
    if (told.side == 0) {
        verified.count++;
        verified.socket = socket;
        verified.chain = *chain;
    }
}

/* A server with DIR/server, and a client with [identity] (NULL: none) that connects to [host]. */
static void sides_init(side *server, side *client, const char *identity, const char *host)
{
    side_init(server, MBEDTLS_SSL_IS_SERVER, DIR "/server", DIR "/ca");
    side_init(client, MBEDTLS_SSL_IS_CLIENT, identity, DIR "/ca");
    assert_int_equal(mbedtls_ssl_set_hostname(&client->ssl, host), 0);
}

static void sides_fini(side *server, side *client)
{
    side_fini(server);
    side_fini(client);
}

/* Whether the server accepts the client's handshake. */
static bool accepts(const char *identity, const char *host)
{
    side server;
    side client;
    sides_init(&server, &client, identity, host);
    bool accepted = handshake(&server, &client);
    if (accepted) {
        assert_string_equal(mbedtls_ssl_get_version(&server.ssl), "TLSv1.3");
        /* Once more with FEDGE_CPU_LEVEL=scalar, as on a CPU without AES: CMakeLists.txt. */
        const bool has_aes = (fedge_os_cpu_features() & FEDGE_CPU_AES) != 0;
        assert_string_equal(mbedtls_ssl_get_ciphersuite(&server.ssl),
                            has_aes ? "TLS1-3-AES-128-GCM-SHA256"
                                    : "TLS1-3-CHACHA20-POLY1305-SHA256");
        assert_int_equal(told.count[0] + told.count[1], 0);
    }
    sides_fini(&server, &client);
    return accepted;
}

static void expect_refused(const char *identity, const char *subject, const char *reason)
{
    assert_false(accepts(identity, "localhost"));
    assert_int_equal(told.count[0], 1);
    assert_string_equal(told.subject[0], subject);
    if (!strstr(told.reason[0], reason))
        fail_msg("'%s' is not in: %s", reason, told.reason[0]);
    assert_true(told.socket >= 0);
}

static int group_set_up(void **state)
{
    (void)state;
    forge_identities(DIR);
    forge_identity(DIR "/operator", DIR "/ca", FEDGE_ROLE_OPERATOR, FORGE_ID, "ops");
    forge_identity(DIR "/foreign", DIR "/next", FEDGE_ROLE_DEVICE, FORGE_ID, "pi-4");
    forge_identity(DIR "/next-server", DIR "/next", FEDGE_ROLE_SERVER, FORGE_OTHER_ID, "hub2");
    return 0;
}

static int group_tear_down(void **state)
{
    (void)state;
    return fedge_os_remove_tree(DIR, NULL) == FEDGE_OK ? 0 : -1;
}

static int set_up(void **state)
{
    (void)state;
    begin_settings();
    return 0;
}

static void test_accepted(void **state)
{
    (void)state;
    assert_true(accepts(DIR "/device", "localhost"));
    assert_true(accepts(DIR "/device", "127.0.0.1"));
    assert_true(accepts(DIR "/operator", "localhost"));
}

static void test_refused_clients(void **state)
{
    (void)state;
    static const char *const uris[] = {"urn:fedge:device:" FORGE_ID, "urn:fedge:role:device"};
    forge_leaf leaf = {
        .cn = "pi-4", .uris = {uris[0], uris[1]}, .usage = 1, .from_days = -9, .to_days = -1};
    expect_refused(NULL, "", "no certificate");
    expect_refused(DIR "/foreign", "CN=pi-4", "not signed by a trusted root");
    expect_refused(DIR "/server", "CN=hub", "role server cannot be a client");
    forge_certificate(DIR "/forged", DIR "/ca", &leaf);
    expect_refused(DIR "/forged", "CN=pi-4", "expired");
    leaf.from_days = 2;
    leaf.to_days = 9;
    forge_certificate(DIR "/forged", DIR "/ca", &leaf);
    expect_refused(DIR "/forged", "CN=pi-4", "not valid yet");
    leaf.from_days = -1;
    leaf.usage = 0;
    forge_certificate(DIR "/forged", DIR "/ca", &leaf);
    expect_refused(DIR "/forged", "CN=pi-4", "no extended key usage");
    leaf.usage = 1;
    leaf.uris[0] = NULL; /* only the common name is copied */
    forge_certificate(DIR "/forged", DIR "/ca", &leaf);
    expect_refused(DIR "/forged", "CN=pi-4", "names no device");
}

/* The client's side of refusals. [host] NULL: it does not look at the name. */
static void refuse_server(const char *server_identity, const char *host, const char *reason)
{
    side server;
    side client;
    side_init(&server, MBEDTLS_SSL_IS_SERVER, server_identity, DIR "/ca");
    side_init(&client, MBEDTLS_SSL_IS_CLIENT, DIR "/device", DIR "/ca");
    assert_int_equal(mbedtls_ssl_set_hostname(&client.ssl, host), 0);
    assert_false(handshake(&server, &client));
    assert_true(client.failed);
    assert_int_equal(told.count[1], 1);
    if (!strstr(told.reason[1], reason))
        fail_msg("'%s' is not in: %s", reason, told.reason[1]);
    sides_fini(&server, &client);
}

static void test_refused_servers(void **state)
{
    (void)state;
    refuse_server(DIR "/next-server", "localhost", "not signed by a trusted root");
    refuse_server(DIR "/server", "example.org",
                  "the server's certificate is not for example.org, but for localhost, ");
    refuse_server(DIR "/server", "127.0.0.2", "is not for 127.0.0.2, but for localhost, ");
    forge_leaf leaf = {.cn = "localhost",
                       .uris = {"urn:fedge:device:" FORGE_ID, "urn:fedge:role:device"},
                       .usage = 2,
                       .from_days = -1,
                       .to_days = 9};
    forge_certificate(DIR "/forged", DIR "/ca", &leaf); /* a device that plays the server */
    refuse_server(DIR "/forged", NULL, "not clientAuth, which role device needs");
}

static void test_old_protocol(void **state)
{
    (void)state;
    side server;
    side client;
    sides_init(&server, &client, DIR "/device", "localhost");
    static const int suites[] = {MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, 0};
    mbedtls_ssl_conf_min_tls_version(&client.conf, MBEDTLS_SSL_VERSION_TLS1_2);
    mbedtls_ssl_conf_max_tls_version(&client.conf, MBEDTLS_SSL_VERSION_TLS1_2);
    mbedtls_ssl_conf_ciphersuites(&client.conf, suites);
    assert_false(handshake(&server, &client));
    assert_int_equal(told.count[0], 1);
    assert_string_equal(told.subject[0], "");
    sides_fini(&server, &client);
}

/* Two roots at once, whatever libwebsockets was given; then only the next one. */
static void test_rollover(void **state)
{
    (void)state;
    expect_refused(DIR "/foreign", "CN=pi-4", "not signed by a trusted root");
    set_roots(DIR "/ca", DIR "/next");
    assert_true(accepts(DIR "/device", "localhost"));
    assert_true(accepts(DIR "/foreign", "localhost"));
    set_roots(DIR "/next", DIR "/ca");
    assert_true(accepts(DIR "/device", "localhost"));
    assert_true(accepts(DIR "/foreign", "localhost"));
    set_roots(DIR "/next", NULL);
    assert_false(accepts(DIR "/device", "localhost")); /* the client refuses the old server */
    assert_string_equal(told.reason[1], "not signed by a trusted root");
    assert_int_equal(fedge_tls_set_roots(own.tls, "nonsense", &err), FEDGE_CORRUPT);
    assert_false(accepts(DIR "/device", "localhost"));
}

/* The same for what libwebsockets sets during a handshake, when the client names a host: it would
 * trust its own root, present its own chain and ask for a certificate without demanding one. */
static int on_name(void *user, mbedtls_ssl_context *ssl, const unsigned char *name, size_t size)
{
    (void)name, (void)size;
    side *server = user;
    mbedtls_ssl_set_hs_authmode(ssl, MBEDTLS_SSL_VERIFY_OPTIONAL);
    mbedtls_ssl_set_hs_ca_chain(ssl, &server->root, NULL);
    return mbedtls_ssl_set_hs_own_cert(ssl, &server->chain, &server->key);
}

static bool accepts_by_name(const char *identity, char subject[256])
{
    side server;
    side client;
    sides_init(&server, &client, identity, "localhost");
    mbedtls_ssl_conf_sni(&server.conf, on_name, &server);
    bool accepted = handshake(&server, &client);
    subject[0] = '\0';
    if (accepted)
        fedge_x509_subject(&mbedtls_ssl_get_peer_cert(&client.ssl)->subject, subject, 256);
    sides_fini(&server, &client);
    return accepted;
}

static void test_settings_by_name(void **state)
{
    (void)state;
    char subject[256];
    fedge_identity *identity = NULL;
    assert_true(accepts_by_name(DIR "/device", subject));
    assert_string_equal(subject, "CN=hub");
    assert_false(accepts_by_name(NULL, subject));
    assert_string_equal(told.reason[0], "no certificate");
    assert_false(accepts_by_name(DIR "/foreign", subject));
    assert_string_equal(told.reason[0], "not signed by a trusted root");
    set_roots(DIR "/next", DIR "/ca");
    assert_true(accepts_by_name(DIR "/foreign", subject));
    assert_false(accepts_by_name(NULL, subject));
    assert_string_equal(told.reason[0], "no certificate");
    assert_int_equal(fedge_identity_load(DIR "/next-server", FEDGE_ROLE_SERVER, 0, &identity, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_tls_set_server_identity(own.tls, identity, &err), FEDGE_OK);
    fedge_identity_free(identity);
    set_roots(DIR "/next", NULL);
    assert_true(accepts_by_name(DIR "/foreign", subject));
    assert_string_equal(subject, "CN=hub2");
    assert_false(accepts_by_name(DIR "/device", subject));
    assert_string_equal(told.reason[0], "not signed by a trusted root");
}

/* A server's identity is replaced for new connections, and its whole chain is presented though the
 * configuration knows the first certificate only. */
static void test_server_identity(void **state)
{
    (void)state;
    fedge_identity *identity = NULL;
    set_roots(DIR "/ca", DIR "/next");
    assert_int_equal(fedge_identity_load(DIR "/next-server", FEDGE_ROLE_SERVER, 0, &identity, &err),
                     FEDGE_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fedge_tls_set_server_identity(own.tls, identity, &err), FEDGE_OK);
    fedge_identity_free(identity);
    side server;
    side client;
    sides_init(&server, &client, DIR "/device", "localhost");
    assert_true(handshake(&server, &client));
    char subject[256];
    fedge_x509_subject(&mbedtls_ssl_get_peer_cert(&client.ssl)->subject, subject, sizeof(subject));
    assert_string_equal(subject, "CN=hub2");
    sides_fini(&server, &client);
}

/* Validity is judged by certificate time, which never runs behind what was set. */
static void test_time(void **state)
{
    (void)state;
    uint64_t now_ms = fedge_os_unix_ms();
    assert_true(fedge_clock_now_ms(&own.clock) >= now_ms);
    fedge_clock_set_min(&own.clock, now_ms + 366 * FEDGE_DAY_MS);
    assert_true(fedge_clock_now_ms(&own.clock) >= now_ms + 366 * FEDGE_DAY_MS);
    assert_false(accepts(DIR "/device", "localhost"));
    assert_string_equal(told.reason[1], "expired");
    fedge_clock_set_min(&own.clock, 1);
    assert_true(fedge_clock_now_ms(&own.clock) >= now_ms);
    assert_true(accepts(DIR "/device", "localhost"));
}

static void expect_judged(const fedge_chain *chain, uint64_t now_ms, fedge_status status,
                          const char *reason)
{
    assert_int_equal(fedge_chain_check(own.tls, chain, now_ms, &err), status);
    if (status != FEDGE_OK && !strstr(err.message, reason))
        fail_msg("'%s' is not in: %s", reason, err.message);
}

/* A chain that was accepted is judged again by other times and roots. */
/* SHA-256 of the name and the key of the root in [ca]. */
static void hash_root(const char *ca, uint8_t hash[FEDGE_FINGERPRINT_SIZE])
{
    mbedtls_x509_crt root;
    mbedtls_x509_crt_init(&root);
    char *pem = forge_read(ca, "root.pem");
    assert_int_equal(fedge_x509_parse_chain(pem, ca, &root, &err), FEDGE_OK);
    uint8_t both[4096];
    const size_t size = root.subject_raw.len;
    assert_true(size + root.pk_raw.len <= sizeof(both));
    memcpy(both, root.subject_raw.p, size);
    memcpy(both + size, root.pk_raw.p, root.pk_raw.len);
    fedge_sha256(both, size + root.pk_raw.len, hash);
    mbedtls_x509_crt_free(&root);
    free(pem);
}

static void test_chain(void **state)
{
    (void)state;
    memset(&verified, 0, sizeof(verified));
    set_roots(DIR "/next", DIR "/ca");
    fedge_chain_on_verified(own.group, on_verified, &verified);
    assert_true(accepts(DIR "/device", "localhost"));
    assert_int_equal(verified.count, 1);
    assert_true(verified.socket >= 0);
    fedge_chain chain = verified.chain;
    uint8_t root[FEDGE_FINGERPRINT_SIZE];
    hash_root(DIR "/ca", root);
    assert_memory_equal(chain.root, root, sizeof(root));
    uint64_t now_ms = fedge_clock_now_ms(&own.clock);
    expect_judged(&chain, now_ms, FEDGE_OK, "");
    expect_judged(&chain, chain.not_after_ms, FEDGE_OK, "");
    expect_judged(&chain, chain.not_after_ms + 1, FEDGE_EXPIRED, "expired at");
    expect_judged(&chain, chain.not_before_ms, FEDGE_OK, "");
    expect_judged(&chain, chain.not_before_ms - 1, FEDGE_EXPIRED, "is valid from");

    set_roots(DIR "/ca", NULL);
    expect_judged(&chain, now_ms, FEDGE_OK, "");
    set_roots(DIR "/next", NULL);
    expect_judged(&chain, now_ms, FEDGE_DENIED, "no longer trusted");
    set_roots(DIR "/ca", DIR "/next");
    assert_true(accepts(DIR "/foreign", "localhost"));
    assert_int_equal(verified.count, 2);
    expect_judged(&verified.chain, now_ms, FEDGE_OK, "");

    /* Who is refused has shown nothing. */
    set_roots(DIR "/ca", NULL);
    expect_judged(&verified.chain, now_ms, FEDGE_DENIED, "no longer trusted");
    assert_false(accepts(DIR "/foreign", "localhost"));
    assert_int_equal(verified.count, 2);

    /* The root's own time counts, and that of each certificate below it. */
    chain.not_after_ms = UINT64_MAX;
    expect_judged(&chain, now_ms + 100 * 366 * FEDGE_DAY_MS, FEDGE_EXPIRED, "the root");
    forge_leaf leaf = {.cn = "pi-4",
                       .uris = {"urn:fedge:device:" FORGE_ID, "urn:fedge:role:device"},
                       .usage = 1,
                       .from_days = -1,
                       .to_days = 2};
    forge_certificate(DIR "/forged", DIR "/ca", &leaf);
    assert_true(accepts(DIR "/forged", "localhost"));
    expect_judged(&verified.chain, now_ms + 3 * FEDGE_DAY_MS, FEDGE_EXPIRED, "expired at");
    expect_judged(&verified.chain, now_ms - 3 * FEDGE_DAY_MS, FEDGE_EXPIRED, "is valid from");

    unsigned count = verified.count;
    fedge_chain_on_verified(own.group, NULL, NULL);
    assert_true(accepts(DIR "/device", "localhost"));
    assert_int_equal(verified.count, count);
    begin_settings();
    expect_judged(&verified.chain, now_ms, FEDGE_DENIED, "no longer trusted");
}

/* Who comes back is not verified again, unless roots or time have changed meanwhile. */
static void test_chain_cache(void **state)
{
    (void)state;
    memset(&verified, 0, sizeof(verified));
    set_roots(DIR "/ca", NULL);
    assert_int_equal(fedge_chain_cache_begin(own.tls, 4, &err), FEDGE_OK);
    fedge_chain_on_verified(own.group, on_verified, &verified);
    assert_true(accepts(DIR "/device", "localhost"));
    const fedge_chain first = verified.chain;
    assert_int_equal(fedge_chain_cache_hits(own.tls), 0);
    memset(&verified.chain, 0, sizeof(verified.chain));
    assert_true(accepts(DIR "/device", "localhost"));
    assert_int_equal(fedge_chain_cache_hits(own.tls), 1);
    assert_int_equal(verified.count, 2);
    assert_memory_equal(&verified.chain, &first, sizeof(first));

    /* Another device's chain is another one; who was refused is verified again. */
    for (int i = 0; i < 2; i++) {
        assert_false(accepts(DIR "/foreign", "localhost"));
        assert_string_equal(told.reason[0], "not signed by a trusted root");
    }
    assert_int_equal(fedge_chain_cache_hits(own.tls), 1);

    uint64_t now_ms = fedge_os_unix_ms();
    fedge_clock_set_min(&own.clock, first.not_after_ms + 2000);
    assert_false(accepts(DIR "/device", "localhost"));
    fedge_clock_set_min(&own.clock, 1);
    assert_true(fedge_clock_now_ms(&own.clock) >= now_ms);
    assert_int_equal(fedge_chain_cache_hits(own.tls), 1);

    set_roots(DIR "/ca", DIR "/next");
    assert_true(accepts(DIR "/device", "localhost"));
    assert_int_equal(fedge_chain_cache_hits(own.tls), 1);
    assert_true(accepts(DIR "/device", "localhost"));
    assert_int_equal(fedge_chain_cache_hits(own.tls), 2);
    set_roots(DIR "/next", NULL);
    assert_false(accepts(DIR "/device", "localhost"));
    assert_int_equal(fedge_chain_cache_hits(own.tls), 2);
    fedge_chain_on_verified(own.group, NULL, NULL);
    fedge_chain_cache_end(own.tls);
}

/* Sends [size] bytes and receives them on the other side. */
static void pass(side *from, side *to, size_t size, unsigned first)
{
    static unsigned char sent[100000];
    static unsigned char received[100000];
    size_t done = 0;
    size_t come = 0;
    for (size_t i = 0; i < size; i++)
        sent[i] = (unsigned char)(first + i * 7);
    for (int i = 0; i < MAX_STEPS && come < size; i++) {
        if (done < size) {
            int code = mbedtls_ssl_write(&from->ssl, sent + done, size - done);
            assert_true(code > 0 || wants(code));
            done += code > 0 ? (size_t)code : 0;
        }
        int code =
            mbedtls_ssl_read(&to->ssl, received + come, size - come < 999 ? size - come : 999);
        assert_true(code > 0 || wants(code));
        if (code < 0)
            mbedtls_net_poll(&to->net, MBEDTLS_NET_POLL_READ, 1);
        come += code > 0 ? (size_t)code : 0;
    }
    assert_int_equal(come, size);
    assert_memory_equal(sent, received, size);
}

/* Connections at rest have no buffers, and lose nothing by it; nor by a KeyUpdate of either side,
 * sent as if the other had asked for it (cmake/patches/mbedtls-01-key-update.patch). */
static void test_buffers(void **state)
{
    (void)state;
    side server[2];
    side client[2];
    set_roots(DIR "/ca", NULL);
    fedge_tls_share_buffers(own.group);
    for (int i = 0; i < 2; i++) {
        sides_init(&server[i], &client[i], DIR "/device", "localhost");
        assert_true(handshake(&server[i], &client[i]));
        assert_null(server[i].ssl.MBEDTLS_PRIVATE(in_buf));
        assert_null(server[i].ssl.MBEDTLS_PRIVATE(out_buf));
    }
    static const size_t SIZES[] = {1, 998, 999, 1000, 16384, 16385, 70000};
    for (unsigned k = 0; k < sizeof(SIZES) / sizeof(*SIZES); k++) {
        for (int i = 0; i < 2; i++) {
            client[i].ssl.MBEDTLS_PRIVATE(key_update) = k % 2;
            server[i].ssl.MBEDTLS_PRIVATE(key_update) = k / 2 % 2;
            pass(&client[i], &server[i], SIZES[k], k);
            pass(&server[i], &client[i], SIZES[k], k + 100);
            assert_null(server[i].ssl.MBEDTLS_PRIVATE(in_buf));
            assert_null(server[i].ssl.MBEDTLS_PRIVATE(out_buf));
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mbedtls_ssl_close_notify(&server[i].ssl), 0);
        sides_fini(&server[i], &client[i]);
    }
}

/* What the server was shown last. */
static struct {
    unsigned count;
    fedge_ticket_owner owner;
} shown;

static bool chain_of(void *user, int socket, fedge_chain *chain)
{
    assert_ptr_equal(user, &shown);
    assert_int_equal(socket, verified.socket);
    *chain = verified.chain;
    return true;
}

static void on_ticket(void *user, int socket, const fedge_ticket_owner *owner)
{
    assert_ptr_equal(user, &shown);
    assert_true(socket >= 0);
    shown.count++;
    shown.owner = *owner;
}

/* Reads the ticket that has come, if one has. */
static bool receive_ticket(side *client, mbedtls_ssl_session *session)
{
    unsigned char byte;
    for (int i = 0; i < 100; i++) {
        const int code = mbedtls_ssl_read(&client->ssl, &byte, 1);
        if (code == MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET)
            return mbedtls_ssl_get_session(&client->ssl, session) == 0;
        assert_true(wants(code));
        mbedtls_net_poll(&client->net, MBEDTLS_NET_POLL_READ, 1);
    }
    return false;
}

/* A connection that offers [session], if it has a ticket, and takes the next one in its place. Both
 * sides end with the same kind of handshake: whether it was resumed. */
static bool resumes(mbedtls_ssl_session *session, bool *has_ticket)
{
    side server;
    side client;
    sides_init(&server, &client, DIR "/device", "localhost");
    mbedtls_ssl_conf_tls13_enable_signal_new_session_tickets(
        &client.conf, MBEDTLS_SSL_TLS1_3_SIGNAL_NEW_SESSION_TICKETS_ENABLED);
    if (*has_ticket)
        assert_int_equal(mbedtls_ssl_set_session(&client.ssl, session), 0);
    assert_true(handshake(&server, &client));
    const bool resumed = !mbedtls_ssl_get_peer_cert(&server.ssl);
    mbedtls_ssl_session fresh;
    mbedtls_ssl_session_init(&fresh);
    if (receive_ticket(&client, &fresh)) {
        assert_false(resumed); /* a ticket lives from the handshake with a certificate */
        mbedtls_ssl_session_free(session);
        *session = fresh;
        *has_ticket = true;
    } else {
        assert_true(resumed);
    }
    sides_fini(&server, &client);
    return resumed;
}

static void test_tickets(void **state)
{
    (void)state;
    mbedtls_ssl_session session;
    bool has_ticket = false;
    mbedtls_ssl_session_init(&session);
    memset(&shown, 0, sizeof(shown));
    memset(&verified, 0, sizeof(verified));
    set_roots(DIR "/ca", NULL);
    fedge_identity *identity = NULL;
    assert_int_equal(fedge_identity_load(DIR "/server", FEDGE_ROLE_SERVER,
                                         fedge_clock_now_ms(&own.clock), &identity, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_tls_set_server_identity(own.tls, identity, &err), FEDGE_OK);
    fedge_chain_on_verified(own.group, on_verified, &verified);
    fedge_tickets_begin(own.group,
                        &(fedge_tickets){.user = &shown, .chain_of = chain_of, .shown = on_ticket});
    assert_false(resumes(&session, &has_ticket));
    assert_true(has_ticket);
    for (unsigned i = 1; i <= 2; i++) {
        assert_true(resumes(&session, &has_ticket));
        assert_int_equal(shown.count, i);
        session.MBEDTLS_PRIVATE(ticket_reception_time) -= 10000; /* clocks need not agree */
    }
    assert_string_equal(shown.owner.device_id, FORGE_ID);
    assert_int_equal(shown.owner.role, FEDGE_ROLE_DEVICE);
    assert_memory_equal(&shown.owner.chain, &verified.chain, sizeof(verified.chain));

    /* Each byte counts; what is none is answered by a handshake that brings a good one. */
    const size_t size = session.MBEDTLS_PRIVATE(ticket_len);
    for (size_t at = 0; at<size; at += size - 1> 40 ? 40 : 1) {
        session.MBEDTLS_PRIVATE(ticket)[at] ^= 1;
        assert_false(resumes(&session, &has_ticket));
        assert_int_equal(session.MBEDTLS_PRIVATE(ticket_len), size);
    }
    session.MBEDTLS_PRIVATE(ticket_len) = size - 1;
    assert_false(resumes(&session, &has_ticket));
    assert_int_equal(shown.count, 2);

    /* Nor does it count when its time is over, or when the chain's root is no longer trusted. */
    fedge_clock_set_min(&own.clock,
                        fedge_clock_now_ms(&own.clock) + FEDGE_TICKET_LIFETIME_MS + 1000);
    assert_false(resumes(&session, &has_ticket));
    fedge_clock_set_min(&own.clock, 0);
    assert_false(resumes(&session, &has_ticket)); /* it is of next week now */
    assert_true(resumes(&session, &has_ticket));
    assert_int_equal(shown.count, 3);
    set_roots(DIR "/next", NULL);
    side server;
    side client;
    sides_init(&server, &client, DIR "/device", "localhost");
    assert_int_equal(mbedtls_ssl_set_session(&client.ssl, &session), 0);
    assert_false(handshake(&server, &client));
    assert_int_equal(shown.count, 3);
    sides_fini(&server, &client);
    fedge_identity_free(identity);
    mbedtls_ssl_session_free(&session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_accepted, set_up),
        cmocka_unit_test_setup(test_refused_clients, set_up),
        cmocka_unit_test_setup(test_refused_servers, set_up),
        cmocka_unit_test_setup(test_old_protocol, set_up),
        cmocka_unit_test_setup(test_rollover, set_up),
        cmocka_unit_test_setup(test_settings_by_name, set_up),
        cmocka_unit_test_setup(test_server_identity, set_up),
        cmocka_unit_test_setup(test_time, set_up),
        cmocka_unit_test_setup(test_chain, set_up),
        cmocka_unit_test_setup(test_chain_cache, set_up),
        cmocka_unit_test_setup(test_buffers, set_up),
        cmocka_unit_test_setup(test_tickets, set_up),
    };
    int failures = cmocka_run_group_tests(tests, group_set_up, group_tear_down);
    fedge_tls_enter(NULL);
    node_fini(&own);
    return failures;
}
