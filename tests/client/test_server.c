#define _GNU_SOURCE /* libwebsockets.h, fork, pipe */
#include "tests/client/test_server.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <libwebsockets.h>

#include "edge/core/bytes.h"
#include "edge/core/message.h"
#include "edge/wire/protocol.h"
#include "secure/identity/identity.h"
#include "secure/identity/tls.h"

typedef struct connection {
    char path[32];
    size_t size;
    bool sent, whole;
    uint8_t buffer[LWS_PRE + FEDGE_MESSAGE_MAX_SIZE];
} connection;

static int send_bytes(struct lws *wsi, connection *c, const void *data, size_t size, int mode)
{
    memcpy(c->buffer + LWS_PRE, data, size);
    return lws_write(wsi, c->buffer + LWS_PRE, size, (enum lws_write_protocol)mode) < (int)size ? -1
                                                                                                : 0;
}

static int write_one(struct lws *wsi, connection *c)
{
    uint8_t bytes[1000] = "FEDG\x01\x02";
    if (strcmp(c->path, "/echo") == 0) {
        if (!c->whole)
            return 0;
        c->whole = false;
        int n = lws_write(wsi, c->buffer + LWS_PRE, c->size, LWS_WRITE_BINARY);
        c->size = 0;
        return n < 0 ? -1 : 0;
    }
    if (strcmp(c->path, "/endless") == 0) {
        int n =
            send_bytes(wsi, c, bytes, sizeof(bytes),
                       (c->sent ? LWS_WRITE_CONTINUATION : LWS_WRITE_BINARY) | LWS_WRITE_NO_FIN);
        c->sent = true;
        lws_callback_on_writable(wsi);
        return n;
    }
    if (c->sent)
        return 0;
    c->sent = true;
    if (strcmp(c->path, "/text") == 0)
        return send_bytes(wsi, c, "hello", 5, LWS_WRITE_TEXT);
    if (strcmp(c->path, "/short") == 0)
        return send_bytes(wsi, c, bytes, 5, LWS_WRITE_BINARY);
    if (strcmp(c->path, "/huge") == 0) {
        fedge_put_u32(bytes + 12, FEDGE_MESSAGE_MAX_PAYLOAD + 1);
        return send_bytes(wsi, c, bytes, 100, LWS_WRITE_BINARY);
    }
    if (strcmp(c->path, "/bye") == 0) {
        char why[] = "until tomorrow";
        lws_close_reason(wsi, LWS_CLOSE_STATUS_GOINGAWAY, (unsigned char *)why, strlen(why));
        return -1;
    }
    return 0;
}

/* To the address that the client has asked for, but /echo. */
static int redirect(struct lws *wsi)
{
    unsigned char answer[LWS_PRE + 512];
    unsigned char *at = answer + LWS_PRE;
    char host[128] = "", to[160];
    lws_hdr_copy(wsi, host, sizeof(host), WSI_TOKEN_HOST);
    const int length = snprintf(to, sizeof(to), "https://%s/echo", host);
    (void)!lws_http_redirect(wsi, HTTP_STATUS_FOUND, (unsigned char *)to, length, &at,
                             answer + sizeof(answer));
    return -1;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t size)
{
    connection *c = user;
    char path[32] = "";
    switch (reason) {
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        lws_hdr_copy(wsi, path, sizeof(path), WSI_TOKEN_GET_URI);
        if (strcmp(path, "/refuse") == 0) {
            lws_return_http_status(wsi, 403, NULL);
            return -1;
        }
        if (strcmp(path, "/redirect") == 0)
            return redirect(wsi);
        return 0;
    case LWS_CALLBACK_ESTABLISHED:
        memset(c, 0, sizeof(*c));
        lws_hdr_copy(wsi, c->path, sizeof(c->path), WSI_TOKEN_GET_URI);
        lws_callback_on_writable(wsi);
        return 0;
    case LWS_CALLBACK_RECEIVE:
        if (size > FEDGE_MESSAGE_MAX_SIZE - c->size)
            return -1;
        memcpy(c->buffer + LWS_PRE + c->size, in, size);
        c->size += size;
        c->whole = lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0;
        if (c->whole)
            lws_callback_on_writable(wsi);
        return 0;
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return write_one(wsi, c);
    default:
        return 0;
    }
}

static const struct lws_protocols protocols[] = {{.name = FEDGE_SUBPROTOCOL,
                                                  .callback = on_event,
                                                  .per_session_data_size = sizeof(connection),
                                                  .rx_buffer_size = 4096,
                                                  .tx_packet_size = FEDGE_MESSAGE_MAX_SIZE},
                                                 {.name = NULL}};

/* The server's process. Whatever goes wrong ends it, and the test's read of the port fails. */
static void serve(const char *identity_dir, const char *trust_dir, int ready)
{
    char key[600], chain[600], *trust;
    static const fedge_clock clock;
    fedge_tls *tls;
    fedge_tls_group *group;
    fedge_identity *identity;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(key, sizeof(key), "%s/key.pem", identity_dir);
    snprintf(chain, sizeof(chain), "%s/chain.pem", identity_dir);
    if (fedge_tls_new(&clock, &tls, NULL) || fedge_tls_group_new(tls, &group, NULL) ||
        fedge_trust_load(trust_dir, &trust, NULL) || fedge_tls_set_roots(tls, trust, NULL))
        _exit(1);
    fedge_tls_enter(group);
    /* Also identities that no server should have: that is what the link must find out. */
    if (!fedge_identity_load(identity_dir, FEDGE_ROLE_SERVER, 0, &identity, NULL) &&
        fedge_tls_set_server_identity(tls, identity, NULL))
        _exit(1);
    struct lws_context_creation_info info = {
        .port = 0,
        .iface = "lo",
        .protocols = protocols,
        .ssl_cert_filepath = chain,
        .ssl_private_key_filepath = key,
        .server_ssl_ca_mem = trust,
        .server_ssl_ca_mem_len = (unsigned)strlen(trust) + 1,
        .options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT | LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
                   LWS_SERVER_OPTION_REQUIRE_VALID_OPENSSL_CLIENT_CERT};
    lws_set_log_level(0, NULL);
    struct lws_context *context = lws_create_context(&info);
    struct lws_vhost *vhost = context ? lws_create_vhost(context, &info) : NULL;
    int port = vhost ? lws_get_vhost_listen_port(vhost) : 0;
    if (port <= 0 || write(ready, &port, sizeof(port)) != sizeof(port))
        _exit(1);
    for (;;)
        lws_service(context, 0);
}

pid_t test_server_start(const char *identity_dir, const char *trust_dir, int *port)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        serve(identity_dir, trust_dir, ready[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], port, sizeof(*port)), sizeof(*port));
    close(ready[0]);
    return pid;
}

void test_server_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
