#define _GNU_SOURCE /* sockets */

#include "tests/edge/core/cmocka_all.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "aggregator/net/listener.h"

static const fedge_address LOOPBACK = {.host = "127.0.0.1"};

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static uint16_t port_of(int socket)
{
    struct sockaddr_in own = {0};
    socklen_t size = sizeof(own);
    assert_int_equal(getsockname(socket, (struct sockaddr *)&own, &size), 0);
    return ntohs(own.sin_port);
}

static void accepts(void **state)
{
    (void)state;
    int listener = -1;
    int taken = 0;
    uint16_t port = 0;
    fedge_error err;
    fedge_peer_address from;
    assert_int_equal(fedge_listener_open(&LOOPBACK, "--listen", &listener, &port, &err), FEDGE_OK);
    assert_int_not_equal(port, 0);
    assert_int_equal(fedge_listener_accept(listener, &taken, &from, &err), FEDGE_OK);
    assert_int_equal(taken, -1); /* nobody came */
    int client = connect_to(port);
    assert_int_equal(fedge_listener_accept(listener, &taken, &from, &err), FEDGE_OK);
    assert_true(taken >= 0);
    assert_true(fcntl(taken, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(taken, F_GETFD) & FD_CLOEXEC); /* supervised programs do not inherit it */
    char address[FEDGE_ADDRESS_TEXT];
    char expected[FEDGE_ADDRESS_TEXT];
    snprintf(expected, sizeof(expected), "127.0.0.1:%u", port_of(client));
    assert_string_equal(fedge_peer_address_text(&from, address), expected);
    assert_false(fedge_socket_has_hung_up(taken));
    assert_int_equal(send(client, "x", 1, 0), 1);
    assert_false(fedge_socket_has_hung_up(taken));
    fedge_listener_close(client);
    assert_true(fedge_socket_has_hung_up(taken)); /* although a byte waits to be read */
    fedge_listener_close(taken);
    fedge_listener_close(listener);
    fedge_listener_close(-1);
}

/* On an address of IPv6, too, where the machine has one. */
static void accepts_over_ipv6(void **state)
{
    (void)state;
    const fedge_address loopback = {.host = "::1"};
    int listener = -1;
    int taken = -1;
    uint16_t port = 0;
    fedge_error err;
    fedge_peer_address from;
    if (fedge_listener_open(&loopback, "--listen", &listener, &port, &err) != FEDGE_OK)
        skip(); /* a container without IPv6 */
    struct sockaddr_in6 own = {.sin6_family = AF_INET6};
    socklen_t size = sizeof(own);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&own, &size), 0);
    assert_int_equal(port, ntohs(own.sin6_port));
    int client = socket(AF_INET6, SOCK_STREAM, 0);
    assert_true(client >= 0);
    assert_int_equal(connect(client, (struct sockaddr *)&own, sizeof(own)), 0);
    assert_int_equal(getsockname(client, (struct sockaddr *)&own, &size), 0);
    assert_int_equal(fedge_listener_accept(listener, &taken, &from, &err), FEDGE_OK);
    char address[FEDGE_ADDRESS_TEXT];
    char expected[FEDGE_ADDRESS_TEXT];
    snprintf(expected, sizeof(expected), "[::1]:%u", ntohs(own.sin6_port));
    assert_string_equal(fedge_peer_address_text(&from, address), expected);
    assert_int_equal(from.port, ntohs(own.sin6_port));
    fedge_listener_close(taken);
    fedge_listener_close(client);
    fedge_listener_close(listener);
}

/* Who reset the connection before it was taken has an address all the same. */
static void knows_who_is_gone(void **state)
{
    (void)state;
    int listener = -1;
    int taken = -1;
    uint16_t port = 0;
    fedge_error err;
    fedge_peer_address from;
    assert_int_equal(fedge_listener_open(&LOOPBACK, "--listen", &listener, &port, &err), FEDGE_OK);
    int client = connect_to(port);
    char expected[FEDGE_ADDRESS_TEXT];
    snprintf(expected, sizeof(expected), "127.0.0.1:%u", port_of(client));
    struct linger reset = {.l_onoff = 1};
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    fedge_listener_close(client);
    assert_int_equal(fedge_listener_accept(listener, &taken, &from, &err), FEDGE_OK);
    assert_true(taken >= 0);
    char address[FEDGE_ADDRESS_TEXT];
    assert_string_equal(fedge_peer_address_text(&from, address), expected);
    assert_true(fedge_socket_has_hung_up(taken));
    assert_int_equal(fedge_socket_first_bytes(taken), FEDGE_FIRST_CLOSED);
    fedge_listener_close(taken);
    fedge_listener_close(listener);
}

static fedge_peer_address peer(const char *host)
{
    fedge_peer_address address = {.port = 1};
    assert_int_equal(inet_pton(AF_INET6, host, address.host), 1);
    return address;
}

static void places(void **state)
{
    (void)state;
    const struct {
        const char *one, *other;
        bool same;
    } cases[] = {{"::ffff:10.0.0.1", "::ffff:10.0.0.1", true},
                 {"::ffff:10.0.0.1", "::ffff:10.0.0.2", false},
                 {"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true},
                 {"2001:db8:0:1::1", "2001:db8:0:2::1", false},
                 {"::1", "::ffff:10.0.0.1", false},
                 {"::ffff:10.0.0.1", "::1", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_peer_address one = peer(cases[i].one);
        fedge_peer_address other = peer(cases[i].other);
        assert_int_equal(fedge_peer_address_same_party(&one, &other), cases[i].same);
    }
    char text[FEDGE_ADDRESS_TEXT];
    fedge_peer_address v6 = peer("2001:db8::7");
    assert_string_equal(fedge_peer_address_text(&v6, text), "[2001:db8::7]:1");
}

static void tells_a_hello_by_its_first_bytes(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t size;
        fedge_first_bytes what;
    } cases[] = {{"", 0, FEDGE_FIRST_TOO_FEW},
                 {"\x16", 1, FEDGE_FIRST_TOO_FEW},
                 {"\x16\x03\x01\x02\x00", 5, FEDGE_FIRST_TOO_FEW},
                 {"\x16\x03\x01\x02\x00\x01", 6, FEDGE_FIRST_HELLO},
                 {"\x16\x03\x03\x02\x00\x01\x00\x01", 8, FEDGE_FIRST_HELLO},
                 {"\x16\x03\x01\x02\x00\x02", 6, FEDGE_FIRST_OTHER},
                 {"\x17\x03\x01\x02\x00\x01", 6, FEDGE_FIRST_OTHER},
                 {"\x16\x02", 2, FEDGE_FIRST_OTHER},
                 {"G", 1, FEDGE_FIRST_OTHER},
                 {"GET / HTTP/1.1", 14, FEDGE_FIRST_OTHER}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        assert_int_equal(write(ends[0], cases[i].bytes, cases[i].size), cases[i].size);
        assert_int_equal(fedge_socket_first_bytes(ends[1]), cases[i].what);
        assert_int_equal(fedge_socket_first_bytes(ends[1]),
                         cases[i].what); /* they are still there */
        fedge_listener_close(ends[0]);
        if (cases[i].size == 0)
            assert_int_equal(fedge_socket_first_bytes(ends[1]), FEDGE_FIRST_CLOSED);
        fedge_listener_close(ends[1]);
    }
}

static void port_in_use_is_named(void **state)
{
    (void)state;
    int first = -1;
    int second = -1;
    fedge_address address = LOOPBACK;
    fedge_error err;
    assert_int_equal(fedge_listener_open(&LOOPBACK, "--listen", &first, &address.port, &err),
                     FEDGE_OK);
    uint16_t port = 0;
    assert_int_equal(fedge_listener_open(&address, "--http", &second, &port, &err), FEDGE_BUSY);
    char expected[16];
    snprintf(expected, sizeof(expected), "port %u ", address.port);
    assert_non_null(strstr(err.message, expected));
    assert_non_null(strstr(err.message, "--http"));
    assert_int_equal(second, -1);
    fedge_listener_close(first);
}

static void foreign_and_unknown_addresses(void **state)
{
    (void)state;
    int listener = -1;
    uint16_t port = 0;
    fedge_error err;
    fedge_address address = {.host = "192.0.2.1"}; /* RFC 5737: for documentation */
    assert_int_equal(fedge_listener_open(&address, "--listen", &listener, &port, &err),
                     FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "192.0.2.1"));
    address = (fedge_address){.host = "no such host"};
    assert_int_equal(fedge_listener_open(&address, "--listen", &listener, &port, &err),
                     FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "'no such host': the name cannot be resolved"));
}

static void says_when_files_run_out(void **state)
{
    (void)state;
    int listener = -1;
    int taken = -1;
    uint16_t port = 0;
    fedge_error err;
    assert_int_equal(fedge_listener_open(&LOOPBACK, "--listen", &listener, &port, &err), FEDGE_OK);
    fedge_peer_address from;
    int client = connect_to(port);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = before;
    none.rlim_cur = (rlim_t)client + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(fedge_listener_accept(listener, &taken, &from, &err), FEDGE_BUSY);
    assert_non_null(strstr(err.message, "ulimit -n"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fedge_listener_accept(listener, &taken, &from, &err), FEDGE_OK);
    assert_true(taken >= 0);
    fedge_listener_close(taken);
    fedge_listener_close(client);
    fedge_listener_close(listener);
}

static void file_limit_is_what_is_wanted_or_allowed(void **state)
{
    (void)state;
    struct rlimit before;
    struct rlimit now;
    uint32_t granted = 0;
    fedge_error err;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fedge_raise_file_limit(200, &granted, &err), FEDGE_OK);
    assert_int_equal(granted, 200);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, 200);
    assert_int_equal(now.rlim_max, before.rlim_max);
    assert_int_equal(fedge_raise_file_limit(UINT32_MAX, &granted, &err), FEDGE_OK);
    assert_int_equal(granted, before.rlim_max < UINT32_MAX ? before.rlim_max : UINT32_MAX);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),
        cmocka_unit_test(accepts_over_ipv6),
        cmocka_unit_test(knows_who_is_gone),
        cmocka_unit_test(places),
        cmocka_unit_test(tells_a_hello_by_its_first_bytes),
        cmocka_unit_test(port_in_use_is_named),
        cmocka_unit_test(foreign_and_unknown_addresses),
        cmocka_unit_test(says_when_files_run_out),
        cmocka_unit_test(file_limit_is_what_is_wanted_or_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
