#define _POSIX_C_SOURCE 200809L /* getaddrinfo */

/* The link against a server of its own: messages, garbage, refusals, and who the server is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <netdb.h>

#include "client/link.h"
#include "edge/core/os.h"
#include "tests/client/test_server.h"

#define DIR "link-test"
#define PATIENCE_MS 600000 /* of what only a broken link needs */

typedef struct rig {
    fedge_link *link;
    fedge_identity *identity;
    fedge_clock clock;
    unsigned num_connected, num_disconnected, num_frames, num_garbage, num_woken, http_status;
    char text[256];
    size_t to_send, frame_size;
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
} rig;

static void on_connected(void *user)
{
    rig *r = user;
    r->num_connected++;
    fedge_link_want_write(r->link);
}

static void on_disconnected(void *user, unsigned http_status, const char *why)
{
    rig *r = user;
    r->num_disconnected++;
    r->http_status = http_status;
    snprintf(r->text, sizeof(r->text), "%s", why);
}

static void on_frame(void *user, const uint8_t *frame, size_t size)
{
    rig *r = user;
    r->num_frames++;
    r->frame_size = size;
    memcpy(r->frame, frame, size);
}

static void on_garbage(void *user, const char *what)
{
    rig *r = user;
    r->num_garbage++;
    snprintf(r->text, sizeof(r->text), "%s", what);
    fedge_link_close(r->link, "garbage");
}

/* A frame of [to_send] bytes of payload, once. */
static size_t on_writeable(void *user, uint8_t *out, size_t out_size)
{
    static uint8_t payload[FEDGE_MESSAGE_MAX_PAYLOAD];
    rig *r = user;
    size_t size = 0;
    if (r->to_send == 0)
        return 0;
    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)(i * 17);
    const fedge_position position = {7, 11};
    assert_int_equal(
        fedge_part_pack(&position, payload, (uint32_t)r->to_send, out, out_size, &size, NULL),
        FEDGE_OK);
    r->to_send = 0;
    return size;
}

static void on_woken(void *user)
{
    rig *r = user;
    r->num_woken++;
}

static void open_rig(rig *r, const char *host, int port, const char *path, const char *identity,
                     const char *trust_dir)
{
    char url[128], *trust = NULL;
    fedge_error err;
    memset(r, 0, sizeof(*r));
    snprintf(url, sizeof(url), "wss://%s:%d%s", host, port, path);
    if (fedge_identity_load(identity, FEDGE_ROLE_DEVICE, 0, &r->identity, &err) ||
        fedge_trust_load(trust_dir, &trust, &err))
        fail_msg("%s", err.message);
    const fedge_link_config config = {
        .urls = url,
        .identity = r->identity,
        .trust_pem = trust,
        .clock = &r->clock,
        .events = {r, on_connected, on_disconnected, on_frame, on_garbage, on_writeable, on_woken}};
    if (fedge_link_new(&config, &r->link, &err))
        fail_msg("%s", err.message);
    free(trust);
}

static void close_rig(rig *r)
{
    fedge_link_free(r->link);
    fedge_identity_free(r->identity);
}

/* Serves until the count is 1, or for a time that only a broken link needs. */
static void wait_for(rig *r, const unsigned *count)
{
    uint64_t end_ms = fedge_os_monotonic_ms() + PATIENCE_MS;
    fedge_link_set_timer(r->link, PATIENCE_MS + 1);
    while (*count == 0 && fedge_os_monotonic_ms() < end_ms)
        fedge_link_service(r->link);
    assert_int_equal(*count, 1);
}

typedef struct servers {
    pid_t good, device, elsewhere, foreign;
    int good_port, device_port, elsewhere_port, foreign_port;
} servers;

static void make_identities(const char *arguments)
{
    char command[600];
    const char *bin = getenv("FEDGE_BIN_DIR");
    snprintf(command, sizeof(command), "%s/fedge-keys demo %s >/dev/null",
             bin ? bin : FEDGE_BINARY_DIR "/bin", arguments);
    assert_int_equal(system(command), 0);
}

static int set_up_all(void **state)
{
    static servers s;
    assert_int_equal(fedge_os_remove_tree(DIR, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_make_dirs(DIR, NULL), FEDGE_OK);
    make_identities("--out " DIR "/a --clients 2");
    make_identities("--out " DIR "/b --clients 1");
    make_identities("--out " DIR "/c --clients 1 --server-name far.example --ip 192.0.2.1");
    s.good = test_server_start(DIR "/a/server", DIR "/a/trust", &s.good_port);
    s.device = test_server_start(DIR "/a/clients/0001", DIR "/a/trust", &s.device_port);
    s.foreign = test_server_start(DIR "/b/server", DIR "/a/trust", &s.foreign_port);
    s.elsewhere = test_server_start(DIR "/c/server", DIR "/c/trust", &s.elsewhere_port);
    *state = &s;
    return 0;
}

static int tear_down_all(void **state)
{
    servers *s = *state;
    test_server_stop(s->good);
    test_server_stop(s->device);
    test_server_stop(s->foreign);
    test_server_stop(s->elsewhere);
    return fedge_os_remove_tree(DIR, NULL) ? -1 : 0;
}

static void test_messages(void **state)
{
    const servers *s = *state;
    static const char *const hosts[] = {"localhost", "127.0.0.1"};
    rig *r = malloc(sizeof(*r));
    assert_non_null(r);
    for (size_t i = 0; i < 2; i++) {
        open_rig(r, hosts[i], s->good_port, "/echo", DIR "/a/clients/0000", DIR "/a/trust");
        r->to_send = i == 0 ? 1 : FEDGE_MESSAGE_MAX_PAYLOAD;
        size_t sent = r->to_send;
        fedge_link_connect(r->link);
        wait_for(r, &r->num_frames);
        fedge_message message;
        assert_int_equal(fedge_message_unpack(r->frame, r->frame_size, &message, NULL), FEDGE_OK);
        assert_int_equal(message.payload_size, sent);
        for (size_t k = 0; k < sent; k++)
            assert_int_equal(message.payload[k], (uint8_t)(k * 17));
        assert_int_equal(r->num_garbage, 0);
        assert_int_equal(r->num_disconnected, 0);
        close_rig(r);
    }
    free(r);
}

/* Links of one process have their own roots, time and reasons. */
static void test_several_links(void **state)
{
    enum { GOOD, OTHER_ROOT, LATE, NUM };
    const servers *s = *state;
    static const char *const trust[NUM] = {DIR "/a/trust", DIR "/b/trust", DIR "/a/trust"};
    rig *links = calloc(NUM, sizeof(*links));
    assert_non_null(links);
    for (size_t i = 0; i < NUM; i++)
        open_rig(&links[i], "localhost", s->good_port, "/echo", DIR "/a/clients/0000", trust[i]);
    fedge_clock_set_min(&links[LATE].clock, links[LATE].identity->certificate.not_after_ms + 1000);
    for (size_t i = 0; i < NUM; i++)
        fedge_link_connect(links[i].link);
    uint64_t end_ms = fedge_os_monotonic_ms() + PATIENCE_MS;
    for (unsigned ended = 0; ended < NUM && fedge_os_monotonic_ms() < end_ms;) {
        ended = 0;
        for (size_t i = 0; i < NUM; i++) {
            fedge_link_set_timer(links[i].link, 1);
            fedge_link_service(links[i].link);
            ended += links[i].num_connected + links[i].num_disconnected;
        }
    }
    assert_int_equal(links[GOOD].num_connected, 1);
    assert_int_equal(links[OTHER_ROOT].num_disconnected, 1);
    assert_non_null(strstr(links[OTHER_ROOT].text, "not signed by a trusted root"));
    assert_int_equal(links[LATE].num_disconnected, 1);
    assert_non_null(strstr(links[LATE].text, "expired"));
    /* One that ends takes nothing from the others. */
    close_rig(&links[OTHER_ROOT]);
    close_rig(&links[LATE]);
    links[GOOD].to_send = 1;
    fedge_link_want_write(links[GOOD].link);
    wait_for(&links[GOOD], &links[GOOD].num_frames);
    close_rig(&links[GOOD]);
    free(links);
}

static void test_garbage(void **state)
{
    const servers *s = *state;
    static const char *const paths[] = {"/text", "/huge", "/endless"};
    rig *r = malloc(sizeof(*r));
    assert_non_null(r);
    for (size_t i = 0; i < 3; i++) {
        open_rig(r, "localhost", s->good_port, paths[i], DIR "/a/clients/0000", DIR "/a/trust");
        fedge_link_connect(r->link);
        wait_for(r, &r->num_garbage);
        assert_int_equal(r->num_frames, 0);
        uint64_t end_ms = fedge_os_monotonic_ms() + PATIENCE_MS;
        fedge_link_set_timer(r->link, PATIENCE_MS + 1);
        while (fedge_link_busy(r->link) && fedge_os_monotonic_ms() < end_ms)
            fedge_link_service(r->link);
        assert_false(fedge_link_busy(r->link));
        assert_int_equal(r->num_disconnected, 0); /* closed by us: not reported */
        r->num_connected = 0;
        fedge_link_connect(r->link); /* and it can be used again */
        wait_for(r, &r->num_connected);
        close_rig(r);
    }
    /* Shorter than a header: whole, so the session is to judge it. */
    open_rig(r, "localhost", s->good_port, "/short", DIR "/a/clients/0000", DIR "/a/trust");
    fedge_link_connect(r->link);
    wait_for(r, &r->num_frames);
    assert_int_equal(r->frame_size, 5);
    close_rig(r);
    free(r);
}

/* The link never comes up, and says why. */
static void refused(const char *host, int port, const char *path, const char *identity,
                    const char *trust, const char *why, unsigned http_status)
{
    rig *r = malloc(sizeof(*r));
    assert_non_null(r);
    open_rig(r, host, port, path, identity, trust);
    fedge_link_connect(r->link);
    wait_for(r, &r->num_disconnected);
    assert_int_equal(r->num_connected, 0);
    assert_int_equal(r->http_status, http_status);
    if (!strstr(r->text, why))
        fail_msg("'%s' does not say '%s'", r->text, why);
    close_rig(r);
    free(r);
}

static void test_wrong_servers(void **state)
{
    const servers *s = *state;
    refused("localhost", s->device_port, "/echo", DIR "/a/clients/0000", DIR "/a/trust", "TLS", 0);
    refused("localhost", s->foreign_port, "/echo", DIR "/a/clients/0000", DIR "/a/trust", "TLS", 0);
    refused("localhost", s->elsewhere_port, "/echo", DIR "/c/clients/0000", DIR "/c/trust",
            "the server's certificate is not for localhost, but for ", 0);
    refused("127.0.0.1", s->elsewhere_port, "/echo", DIR "/c/clients/0000", DIR "/c/trust",
            "the server's certificate is not for 127.0.0.1, but for ", 0);
    refused("localhost", 1, "/echo", DIR "/a/clients/0000", DIR "/a/trust", "refused", 0);
    refused("nowhere.invalid", 1, "/echo", DIR "/a/clients/0000", DIR "/a/trust",
            "cannot resolve the server's name nowhere.invalid", 0);
    refused("localhost", s->good_port, "/refuse", DIR "/a/clients/0000", DIR "/a/trust", "", 403);
    refused("localhost", s->good_port, "/redirect", DIR "/a/clients/0000", DIR "/a/trust",
            "sends elsewhere", 302);
}

static void test_the_end_has_a_reason(void **state)
{
    const servers *s = *state;
    rig *r = malloc(sizeof(*r));
    assert_non_null(r);
    open_rig(r, "localhost", s->good_port, "/bye", DIR "/a/clients/0000", DIR "/a/trust");
    fedge_link_connect(r->link);
    wait_for(r, &r->num_disconnected);
    assert_int_equal(r->num_connected, 1);
    assert_non_null(strstr(r->text, "until tomorrow"));
    r->num_woken = 0;
    fedge_link_wake(r->link);
    wait_for(r, &r->num_woken);
    r->num_woken = 0;
    fedge_link_set_timer(r->link, 1);
    while (r->num_woken == 0)
        fedge_link_service(r->link);
    close_rig(r);
    free(r);
}

/* Several addresses, in their order and round again; each is checked. */
static void test_addresses_take_turns(void **state)
{
    const servers *s = *state;
    rig r;
    uint32_t count = 0;
    char text[FEDGE_LINK_MAX_URLS + 100];
    snprintf(text, sizeof(text), "/x,wss://b.example,wss://127.0.0.1:%d", s->good_port);
    open_rig(&r, "a.example", 91, text, DIR "/a/clients/0000", DIR "/a/trust");
    assert_string_equal(fedge_link_use_address(r.link, 4), "wss://b.example");
    assert_string_equal(fedge_link_use_address(r.link, 3), "wss://a.example:91/x");
    assert_string_equal(fedge_link_use_address(r.link, UINT32_MAX), "wss://a.example:91/x");
    close_rig(&r);
    assert_int_equal(fedge_link_check_urls("wss://a,wss://b:1", &count, NULL), FEDGE_OK);
    assert_int_equal(count, 2);
    const char *const bad[] = {"wss://a,", ",wss://a", "wss://a,ws://b", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(fedge_link_check_urls(bad[i], &count, NULL), FEDGE_INVALID_ARGUMENT);
    memset(text, ',', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(fedge_link_check_urls(text, &count, NULL), FEDGE_INVALID_ARGUMENT);
}

int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found);
static unsigned num_addresses, num_asked;

/* While num_addresses > 0: the name localhost has so many, and nobody listens at the first of two.
 */
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    if (num_addresses == 0 || strcmp(name, "localhost") != 0)
        return __real_getaddrinfo(name, service, hints, found);
    num_asked++;
    if (num_addresses == 1)
        return __real_getaddrinfo("127.0.0.1", service, hints, found);
    assert_int_equal(__real_getaddrinfo("127.9.9.9", service, hints, found), 0);
    return __real_getaddrinfo("127.0.0.1", service, hints, &(*found)->ai_next);
}

static void test_a_name_is_asked_for_once(void **state)
{
    const servers *s = *state;
    rig *r = malloc(sizeof(*r));
    assert_non_null(r);
    open_rig(r, "localhost", s->good_port, "/echo", DIR "/a/clients/0000", DIR "/a/trust");
    num_addresses = 1;
    num_asked = 0;
    fedge_link_connect(r->link);
    wait_for(r, &r->num_connected);
    assert_int_equal(num_asked, 1);
    num_addresses = 0;
    close_rig(r);
    free(r);
}

/* Of a name with several addresses each has its turn; the certificate is held against the name. */
static void test_a_name_with_several_addresses(void **state)
{
    const servers *s = *state;
    rig *r = malloc(sizeof(*r));
    assert_non_null(r);
    open_rig(r, "localhost", s->good_port, "/echo", DIR "/a/clients/0000", DIR "/a/trust");
    num_addresses = 2;
    fedge_link_connect(r->link);
    wait_for(r, &r->num_disconnected);
    assert_int_equal(r->num_connected, 0);
    fedge_link_use_address(r->link, 1);
    r->to_send = 1;
    fedge_link_connect(r->link);
    wait_for(r, &r->num_frames);
    close_rig(r);
    open_rig(r, "localhost", s->elsewhere_port, "/", DIR "/c/clients/0000", DIR "/c/trust");
    fedge_link_use_address(r->link, 1); /* there, and with a certificate of another name */
    fedge_link_connect(r->link);
    wait_for(r, &r->num_disconnected);
    assert_int_equal(r->num_connected, 0);
    num_addresses = 0;
    close_rig(r);
    free(r);
}

static void test_urls(void **state)
{
    (void)state;
    char host[FEDGE_LINK_MAX_HOST], path[FEDGE_LINK_MAX_HOST], longest[400];
    int port;
    assert_int_equal(fedge_link_parse_url("wss://a.example", host, &port, path, NULL), FEDGE_OK);
    assert_string_equal(host, "a.example");
    assert_int_equal(port, FEDGE_LINK_DEFAULT_PORT);
    assert_string_equal(path, "/");
    assert_int_equal(fedge_link_parse_url("wss://10.0.0.1:443/x/y", host, &port, path, NULL),
                     FEDGE_OK);
    assert_int_equal(port, 443);
    assert_string_equal(path, "/x/y");
    assert_int_equal(fedge_link_parse_url("wss://a-b_c.example:65535/", host, &port, path, NULL),
                     FEDGE_OK);
    assert_string_equal(host, "a-b_c.example");
    assert_int_equal(port, 65535);
    assert_string_equal(path, "/");
    assert_int_equal(fedge_link_parse_url("wss://[fe80::1%eth0]:1", host, &port, path, NULL),
                     FEDGE_OK);
    assert_string_equal(host, "fe80::1%eth0");
    assert_int_equal(port, 1);
    assert_int_equal(fedge_link_parse_url("wss://[::1]", host, &port, path, NULL), FEDGE_OK);
    assert_string_equal(host, "::1");
    assert_int_equal(port, FEDGE_LINK_DEFAULT_PORT);
    memset(longest, 'a', sizeof(longest));
    memcpy(longest, "wss://", 6);
    longest[sizeof(longest) - 1] = '\0';
    const char *const bad[] = {"",
                               "localhost",
                               "ws://localhost",
                               "wss://",
                               "https://host",
                               "wss://host:99999",
                               "wss://:1",
                               longest,
                               "wss://host:0",
                               "wss://host:12x",
                               "wss://host:",
                               "wss://host: 1",
                               "wss://host:+1",
                               "wss://host:-1",
                               "wss://[::1",
                               "wss://[]",
                               "wss://[::1]9",
                               "wss://::1",
                               "wss://host ",
                               "wss://ho st",
                               "wss://a:b@host",
                               "wss://host/ x",
                               "wss://host/?x",
                               "wss://host?x",
                               "wss://host:99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(fedge_link_parse_url(bad[i], host, &port, path, NULL),
                         FEDGE_INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_several_links),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_wrong_servers),
        cmocka_unit_test(test_the_end_has_a_reason),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_addresses_take_turns),
        cmocka_unit_test(test_a_name_with_several_addresses),
        cmocka_unit_test(test_a_name_is_asked_for_once),
    };
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
