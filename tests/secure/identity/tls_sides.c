#include "tests/secure/identity/tls_sides.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "secure/identity/x509.h"
#include "tests/secure/identity/forge.h"

#define LIBWEBSOCKETS_MINOR 3 /* TLS 1.2, as it would set it */

refusals told;

static fedge_error err;

static void on_refused(void *user, int socket, const char *subject, const char *reason)
{
    (void)user;
    snprintf(told.subject[told.side], sizeof(told.subject[0]), "%s", subject);
    snprintf(told.reason[told.side], sizeof(told.reason[0]), "%s", reason);
    told.count[told.side]++;
    told.socket = socket;
}

void node_init(node *one)
{
    memset(one, 0, sizeof(*one));
    assert_int_equal(fedge_tls_new(&one->clock, &one->tls, &err), FEDGE_OK);
    assert_int_equal(fedge_tls_group_new(one->tls, &one->group, &err), FEDGE_OK);
    fedge_tls_on_refused(one->group, on_refused, NULL);
}

void node_fini(node *one)
{
    fedge_tls_group_free(one->group);
    fedge_tls_free(one->tls);
    memset(one, 0, sizeof(*one));
}

void node_set_roots(node *of, const char *first, const char *second)
{
    char *one = forge_read(first, "root.pem");
    char *two = second ? forge_read(second, "root.pem") : NULL;
    char both[16384];
    snprintf(both, sizeof(both), "%s%s", one, two ? two : "");
    assert_int_equal(fedge_tls_set_roots(of->tls, both, &err), FEDGE_OK);
    free(one);
    free(two);
}

void side_init(side *one, int endpoint, const char *identity, const char *root)
{
    memset(one, 0, sizeof(*one));
    mbedtls_ssl_config_init(&one->conf);
    mbedtls_ssl_init(&one->ssl);
    mbedtls_x509_crt_init(&one->chain);
    mbedtls_x509_crt_init(&one->root);
    mbedtls_pk_init(&one->key);
    mbedtls_net_init(&one->net);
    char *root_pem = forge_read(root, "root.pem");
    assert_int_equal(fedge_x509_parse_chain(root_pem, root, &one->root, &err), FEDGE_OK);
    free(root_pem);
    mbedtls_ssl_set_verify(&one->ssl, NULL, NULL);
    assert_int_equal(mbedtls_ssl_config_defaults(&one->conf, endpoint, MBEDTLS_SSL_TRANSPORT_STREAM,
                                                 MBEDTLS_SSL_PRESET_DEFAULT),
                     0);
    mbedtls_ssl_conf_max_version(&one->conf, MBEDTLS_SSL_MAJOR_VERSION_3, LIBWEBSOCKETS_MINOR);
    mbedtls_ssl_conf_min_version(&one->conf, MBEDTLS_SSL_MAJOR_VERSION_3, LIBWEBSOCKETS_MINOR);
    mbedtls_ssl_conf_rng(&one->conf, fedge_x509_random, NULL);
    mbedtls_ssl_conf_authmode(&one->conf, MBEDTLS_SSL_VERIFY_OPTIONAL);
    mbedtls_ssl_conf_ca_chain(&one->conf, &one->root, NULL);
    if (identity) {
        char *pem = forge_read(identity, "chain.pem");
        char *key = forge_read(identity, "key.pem");
        assert_int_equal(fedge_x509_parse_chain(pem, identity, &one->chain, &err), FEDGE_OK);
        assert_int_equal(mbedtls_pk_parse_key(&one->key, (const unsigned char *)key,
                                              strlen(key) + 1, NULL, 0, fedge_x509_random, NULL),
                         0);
        free(pem);
        free(key);
        for (int i = 0; i < 3; i++) { /* before every step, as libwebsockets does */
            assert_int_equal(mbedtls_ssl_conf_own_cert(&one->conf, &one->chain, &one->key), 0);
        }
    }
    assert_int_equal(mbedtls_ssl_setup(&one->ssl, &one->conf), 0);
    mbedtls_ssl_set_bio(&one->ssl, &one->net, mbedtls_net_send, mbedtls_net_recv, NULL);
}

void side_fini(side *one)
{
    mbedtls_net_free(&one->net);
    mbedtls_ssl_free(&one->ssl);
    mbedtls_ssl_config_free(&one->conf);
    mbedtls_x509_crt_free(&one->chain);
    mbedtls_x509_crt_free(&one->root);
    mbedtls_pk_free(&one->key);
}

static void connect_sockets(side *server, side *client)
{
    mbedtls_net_context listener;
    struct sockaddr_in address;
    socklen_t size = sizeof(address);
    char port[16];
    mbedtls_net_init(&listener);
    assert_int_equal(mbedtls_net_bind(&listener, "127.0.0.1", "0", MBEDTLS_NET_PROTO_TCP), 0);
    assert_int_equal(getsockname(listener.fd, (struct sockaddr *)&address, &size), 0);
    snprintf(port, sizeof(port), "%u", ntohs(address.sin_port));
    assert_int_equal(mbedtls_net_connect(&client->net, "127.0.0.1", port, MBEDTLS_NET_PROTO_TCP),
                     0);
    assert_int_equal(mbedtls_net_accept(&listener, &server->net, NULL, 0, NULL), 0);
    mbedtls_net_free(&listener);
    assert_int_equal(mbedtls_net_set_nonblock(&server->net), 0);
    assert_int_equal(mbedtls_net_set_nonblock(&client->net), 0);
}

bool wants(int code)
{
    return code == MBEDTLS_ERR_SSL_WANT_READ || code == MBEDTLS_ERR_SSL_WANT_WRITE;
}

/* A step of the handshake; after it, one byte is passed from client to server. */
static void advance(side *one, bool is_client, fedge_tls_group *group)
{
    unsigned char byte = 'x';
    int code;
    fedge_tls_group *before = NULL;
    told.side = is_client;
    if (group)
        before = fedge_tls_enter(group);
    if (one->ssl.MBEDTLS_PRIVATE(state) != MBEDTLS_SSL_HANDSHAKE_OVER)
        code = mbedtls_ssl_handshake_step(&one->ssl);
    else if (is_client)
        code = mbedtls_ssl_write(&one->ssl, &byte, 1);
    else
        code = mbedtls_ssl_read(&one->ssl, &byte, 1);
    if (before)
        fedge_tls_enter(before);
    if (code == 1)
        one->done = true;
    else if (code != 0 && !wants(code))
        one->failed = true;
}

bool handshake_of(side *server, side *client, fedge_tls_group *client_group)
{
    memset(&told, 0, sizeof(told));
    connect_sockets(server, client);
    for (int i = 0; i < MAX_STEPS && !server->done && !server->failed; i++) {
        if (!client->done && !client->failed)
            advance(client, true, client_group);
        if (client->failed)
            mbedtls_net_free(&client->net);
        advance(server, false, NULL);
        /* Loopback may take a moment; waiting costs no more than that. */
        if (!server->done && !server->failed)
            mbedtls_net_poll(&server->net, MBEDTLS_NET_POLL_READ, 1);
    }
    assert_true(server->done || server->failed);
    return server->done;
}

bool handshake(side *server, side *client)
{
    return handshake_of(server, client, NULL);
}
