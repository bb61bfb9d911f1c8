/* Two nodes in one process: neither takes part in the other's decisions. */
#include "tests/edge/core/cmocka_all.h"

#include "edge/core/os.h"
#include "secure/identity/certificate.h"
#include "tests/secure/identity/forge.h"
#include "tests/secure/identity/tls_sides.h"

#define DIR "test_tls_nodes.tmp"

static node own; /* the server's */

static int group_set_up(void **state)
{
    (void)state;
    forge_identities(DIR);
    return 0;
}

static int group_tear_down(void **state)
{
    (void)state;
    return fedge_os_remove_tree(DIR, NULL) == FEDGE_OK ? 0 : -1;
}

/* Handshake of a client of node [of] with the server of [own], which the thread has entered. */
static bool is_served(node *of)
{
    side server;
    side client;
    side_init(&server, MBEDTLS_SSL_IS_SERVER, DIR "/server", DIR "/ca");
    assert_ptr_equal(fedge_tls_enter(of->group), own.group);
    side_init(&client, MBEDTLS_SSL_IS_CLIENT, DIR "/device", DIR "/ca");
    assert_ptr_equal(fedge_tls_enter(own.group), of->group);
    assert_int_equal(mbedtls_ssl_set_hostname(&client.ssl, "localhost"), 0);
    const bool served = handshake_of(&server, &client, of->group);
    side_fini(&server);
    side_fini(&client);
    return served;
}

/* Nodes of one process have their own time and roots. */
static void test_two_nodes(void **state)
{
    (void)state;
    node early;
    node late;
    node_init(&own);
    assert_null(fedge_tls_enter(own.group));
    node_init(&early);
    node_init(&late);
    node_set_roots(&own, DIR "/ca", NULL);
    const uint64_t later_ms = fedge_os_unix_ms() + 366 * FEDGE_DAY_MS;
    fedge_clock_set_min(&late.clock, later_ms);
    assert_true(fedge_clock_now_ms(&late.clock) >= later_ms);
    assert_true(fedge_clock_now_ms(&early.clock) < later_ms);
    assert_true(is_served(&early));
    assert_false(is_served(&late));
    assert_string_equal(told.reason[1], "expired");
    assert_true(is_served(&early));

    fedge_clock_set_min(&late.clock, 0);
    assert_true(is_served(&late));
    node_set_roots(&late, DIR "/next", NULL);
    assert_true(is_served(&early));
    assert_false(is_served(&late));
    assert_string_equal(told.reason[1], "not signed by a trusted root");

    node_fini(&late);
    assert_true(is_served(&early));
    node_fini(&early);
    assert_ptr_equal(fedge_tls_enter(NULL), own.group);
    node_fini(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_nodes)};
    return cmocka_run_group_tests(tests, group_set_up, group_tear_down);
}
