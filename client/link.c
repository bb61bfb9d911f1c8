#define _POSIX_C_SOURCE 200809L /* getaddrinfo */
#include "client/link.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include <libwebsockets.h>
#include <mbedtls/platform_util.h>

#include "edge/core/message.h"
#include "edge/core/os.h"
#include "secure/identity/registry.h"
#include "secure/identity/tickets.h"
#include "secure/identity/tls.h"

#define MAX_PEER_CERTIFICATE 8192 /* bytes of DER */
#define MAX_WHY 256
/* Two parts of an upload: on a slow link more would take seconds without visible progress, and
 * would be lost with the connection. */
#define MAX_UNSENT (2 * FEDGE_MESSAGE_MAX_PAYLOAD)
#define CLOSE_TIMEOUT_S 2
#define MAX_FDS 16 /* otherwise libwebsockets sizes its tables by the process's limit */

struct fedge_link {
    fedge_tls *tls;
    fedge_tls_group *connections;
    const fedge_clock *clock;
    struct lws_context *context;
    struct lws_vhost *vhost;
    struct lws *wsi;     /* the present connection */
    struct lws *closing; /* a connection that is closing */
    fedge_link_events events;
    char host[FEDGE_LINK_MAX_HOST], path[FEDGE_LINK_MAX_HOST];
    int port;
    char proxy[FEDGE_PROXY_TEXT]; /* HOST:PORT; "": none */
    char urls[FEDGE_LINK_MAX_URLS], url[FEDGE_LINK_MAX_HOST + 1];
    uint32_t num_urls, address_index; /* index of the address among those of the host's name */
    bool connecting; /* fedge_link_connect is running; its end is not reported yet */
    bool established;
    unsigned http_status;
    fedge_certificate_info server;
    char why[MAX_WHY];         /* reason of the connection's end, if known before */
    char closing_why[MAX_WHY]; /* the reason sent to the peer of [closing] */
    lws_retry_bo_t heartbeat;
    lws_sorted_usec_list_t timer;
    size_t received; /* bytes of the message in [rx] */
    uint8_t rx[FEDGE_MESSAGE_MAX_SIZE];
    uint8_t tx[LWS_PRE + FEDGE_MESSAGE_MAX_SIZE];
};

/* --- what happens ---------------------------------------------------------------------------- */

static void note_why(fedge_link *link, const char *text, size_t size)
{
    if (!link->why[0] && size > 0) {
        size = size < MAX_WHY ? size : MAX_WHY - 1;
        snprintf(link->why, sizeof(link->why), "%.*s", (int)size, text);
    }
}

/* Explains libwebsockets' "conn fail: 111", which has an errno, and "DNS NXDOMAIN". */
static void note_connection_error(fedge_link *link, const char *text, size_t size)
{
    static const char prefix[] = "conn fail: ";
    size_t length = sizeof(prefix) - 1;
    if (size > length && strncmp(text, prefix, length) == 0) {
        note_why(link, strerror(atoi(text + length)), MAX_WHY);
    } else if (size > 3 && strncmp(text, "DNS", 3) == 0) {
        snprintf(link->why, sizeof(link->why), "cannot resolve the %s's name %.200s",
                 link->proxy[0] ? "proxy" : "server", link->proxy[0] ? link->proxy : link->host);
    } else {
        note_why(link, text, size);
    }
}

static void report_end(fedge_link *link, const char *otherwise)
{
    char why[MAX_WHY];
    snprintf(why, sizeof(why), "%s", link->why[0] ? link->why : otherwise);
    unsigned http_status = link->http_status == 101 ? 0 : link->http_status;
    if (http_status && http_status != 503)
        fedge_resume_forget(link->connections); /* refused: do not resume the session next time */
    link->wsi = NULL;
    link->established = link->connecting = false;
    link->events.disconnected(link->events.user, http_status, why);
}

/* TLS has verified the server's certificate; its role must be server. */
static int check_server(fedge_link *link, struct lws *wsi)
{
    fedge_error err;
    fedge_registry_match match;
    size_t info_size = sizeof(union lws_tls_cert_info_results) + MAX_PEER_CERTIFICATE;
    union lws_tls_cert_info_results *info = calloc(1, info_size);
    if (!info)
        return -1;
    int rc = lws_tls_peer_cert_info(wsi, LWS_TLS_CERT_INFO_VERIFIED, info, 0);
    int result = -1;
    if (rc || !info->verified)
        note_why(link, "the server's certificate is not verified", MAX_WHY);
    else if (lws_tls_peer_cert_info(wsi, LWS_TLS_CERT_INFO_DER_RAW, info, MAX_PEER_CERTIFICATE) ||
             info->ns.len <= 0)
        note_why(link, "the server's certificate cannot be read", MAX_WHY);
    else if (fedge_peer_check((const uint8_t *)info->ns.name, (size_t)info->ns.len,
                              FEDGE_ROLE_SERVER, fedge_clock_now_ms(link->clock), NULL, &match,
                              &err) ||
             fedge_certificate_read((const uint8_t *)info->ns.name, (size_t)info->ns.len,
                                    &link->server, &err))
        note_why(link, err.message, sizeof(err.message));
    else
        result = 0;
    if (result)
        fedge_resume_forget(link->connections);
    free(info);
    return result;
}

static int garbage(fedge_link *link, const char *what)
{
    link->received = 0;
    link->events.garbage(link->events.user, what);
    return 0;
}

/* Collects a message; its header is checked against the limits first. */
static int receive(fedge_link *link, struct lws *wsi, const uint8_t *data, size_t size)
{
    fedge_error err;
    size_t frame_size;
    if (!lws_frame_is_binary(wsi))
        return garbage(link, "a text frame");
    if (size > sizeof(link->rx) - link->received)
        return garbage(link, "a message over the limit");
    if (size > 0)
        memcpy(link->rx + link->received, data, size);
    link->received += size;
    if (link->received >= FEDGE_MESSAGE_HEADER_SIZE) {
        if (fedge_message_peek(link->rx, link->received, &frame_size, &err))
            return garbage(link, err.message);
        if (link->received > frame_size)
            return garbage(link, "a message longer than its header says");
    }
    if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi) > 0)
        return 0;
    size = link->received;
    link->received = 0;
    link->events.frame(link->events.user, link->rx, size);
    return 0;
}

static int write_one(fedge_link *link, struct lws *wsi)
{
    uint8_t *out = link->tx + LWS_PRE;
    size_t size = link->events.writeable(link->events.user, out, FEDGE_MESSAGE_MAX_SIZE);
    /* Sends a last message before the close frame. */
    if (size == 0 || (link->wsi != wsi && link->closing != wsi))
        return 0;
    if (lws_write(wsi, out, size, LWS_WRITE_BINARY) < (int)size)
        return -1;
    /* The link was writeable, so it is alive: a ping would wait behind the upload. */
    lws_validity_confirmed(wsi);
    return 0;
}

/* Events of the old connection, which sends its reason and closes. */
static int close_old(fedge_link *link, struct lws *wsi, enum lws_callback_reasons reason)
{
    if (reason == LWS_CALLBACK_CLIENT_WRITEABLE) {
        size_t length = strlen(link->closing_why);
        lws_close_reason(wsi, LWS_CLOSE_STATUS_NORMAL, (unsigned char *)link->closing_why,
                         length < 120 ? length : 120);
        return -1;
    }
    if (reason == LWS_CALLBACK_CLIENT_CLOSED || reason == LWS_CALLBACK_CLIENT_CONNECTION_ERROR)
        link->closing = NULL;
    return 0;
}

static int on_link_event(fedge_link *link, struct lws *wsi, enum lws_callback_reasons reason,
                         void *in, size_t size)
{
    switch (reason) {
    case LWS_CALLBACK_ESTABLISHED_CLIENT_HTTP:
        link->http_status = lws_http_client_http_response(wsi);
        if (link->http_status / 100 == 3)
            note_why(link, "the server sends elsewhere, where this client does not go", MAX_WHY);
        return 0;
    case LWS_CALLBACK_CLIENT_FILTER_PRE_ESTABLISH:
        return check_server(link, wsi);
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        fedge_os_bound_unsent(lws_get_socket_fd(wsi), MAX_UNSENT);
        link->established = true;
        link->received = 0;
        link->events.connected(link->events.user);
        return 0;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        return receive(link, wsi, in, size);
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        return write_one(link, wsi);
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
        if (size > 2) { /* the first two bytes are the status */
            note_why(link, (const char *)in + 2, size - 2);
        }
        return 0;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        note_connection_error(link, in, in ? size : 0);
        report_end(link, "no connection");
        return 0;
    case LWS_CALLBACK_CLIENT_CLOSED:
        report_end(link, "the connection was lost");
        return 0;
    default:
        return 0;
    }
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t size)
{
    (void)user;
    fedge_link *link = lws_context_user(lws_get_context(wsi));
    if (reason == LWS_CALLBACK_EVENT_WAIT_CANCELLED) {
        link->events.woken(link->events.user);
        return 0;
    }
    if (wsi && wsi == link->wsi)
        return on_link_event(link, wsi, reason, in, size);
    if (wsi && wsi == link->closing)
        return close_old(link, wsi, reason);
    /* A connection that fails at once was never the link's; fedge_link_connect reports its end. */
    if (link->connecting && !link->wsi && reason == LWS_CALLBACK_CLIENT_CONNECTION_ERROR)
        note_connection_error(link, in, in ? size : 0);
    return 0;
}

static void on_timer(lws_sorted_usec_list_t *timer)
{
    fedge_link *link = lws_container_of(timer, fedge_link, timer);
    link->events.woken(link->events.user);
}

static void on_refused(void *user, int socket, const char *subject, const char *reason)
{
    (void)socket;
    fedge_link *link = user;
    if (link->why[0])
        return;
    if (subject[0])
        snprintf(link->why, sizeof(link->why), "TLS: %.60s: %.180s", subject, reason);
    else
        snprintf(link->why, sizeof(link->why), "TLS: %.200s", reason);
}

/* --- life ------------------------------------------------------------------------------------ */

/* Characters of hosts; the first two only in bracketed addresses. */
#define HOST_CHARACTERS ":%-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* lws_parse_uri is not used: it takes "wss://host:12x" for port 12, and "wss://[::1" for an
 * address. */
fedge_status fedge_link_parse_url(const char *url, char host[FEDGE_LINK_MAX_HOST], int *port,
                                  char path[FEDGE_LINK_MAX_HOST], fedge_error *err)
{
    bool good = strlen(url) < FEDGE_LINK_MAX_HOST && strncmp(url, "wss://", 6) == 0;
    const char *at = good ? url + 6 : "", *tail;
    const bool literal = at[0] == '[';
    at += literal;
    const size_t length = strspn(at, HOST_CHARACTERS + (literal ? 0 : 2));
    tail = at + length;
    good = length > 0 && (!literal || *tail++ == ']');
    *port = FEDGE_LINK_DEFAULT_PORT;
    if (good && tail[0] == ':') {
        char *end;
        const unsigned long value = strtoul(tail + 1, &end, 10);
        good = tail[1] >= '0' && tail[1] <= '9' && value >= 1 && value <= 65535;
        *port = (int)value;
        tail = end;
    }
    if (!good || (tail[0] && tail[0] != '/') || tail[strcspn(tail, " \t\r\n?#")]) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%.100s' is not a server's address: wss://HOST[:PORT], at most %d bytes",
                          url, FEDGE_LINK_MAX_HOST - 1);
    }
    if (host)
        snprintf(host, FEDGE_LINK_MAX_HOST, "%.*s", (int)length, at);
    if (path)
        snprintf(path, FEDGE_LINK_MAX_HOST, "%s", tail[0] ? tail : "/");
    return FEDGE_OK;
}

/* Copies the first of [urls], truncated if it is too long. Returns the next one, or NULL. */
static const char *take_url(const char *urls, char url[FEDGE_LINK_MAX_HOST + 1])
{
    const size_t length = strcspn(urls, ",\n");
    snprintf(url, FEDGE_LINK_MAX_HOST + 1, "%.*s", (int)length, urls);
    return urls[length] ? urls + length + 1 : NULL;
}

fedge_status fedge_link_check_urls(const char *urls, uint32_t *count, fedge_error *err)
{
    char url[FEDGE_LINK_MAX_HOST + 1];
    if (strlen(urls) >= FEDGE_LINK_MAX_URLS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "servers: at most %d bytes in all",
                          FEDGE_LINK_MAX_URLS - 1);
    }
    for (*count = 0; urls; ++*count) {
        urls = take_url(urls, url);
        FEDGE_TRY(fedge_link_parse_url(url, NULL, &(int){0}, NULL, err));
    }
    return FEDGE_OK;
}

static const struct lws_protocols protocols[] = {
    {.name = FEDGE_SUBPROTOCOL,
     .callback = on_event,
     .rx_buffer_size = 16384,
     .tx_packet_size = LWS_PRE + FEDGE_MESSAGE_MAX_SIZE},
    {.name = NULL},
};

/* A PEM text with two NULs after it, as libwebsockets' mbedTLS requires: a key's length includes
 * both. The caller frees it. */
static char *pem_copy(const char *pem, unsigned *size)
{
    size_t length = strlen(pem);
    char *copy = calloc(1, length + 2);
    if (copy)
        memcpy(copy, pem, length);
    *size = (unsigned)(length + 2);
    return copy;
}

static fedge_status make_context(fedge_link *link, const fedge_link_config *config,
                                 fedge_error *err)
{
    struct lws_context_creation_info info;
    memset(&info, 0, sizeof(info));
    info.port = CONTEXT_PORT_NO_LISTEN;
    info.protocols = protocols;
    info.options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT | LWS_SERVER_OPTION_EXPLICIT_VHOSTS;
    info.fd_limit_per_thread = MAX_FDS;
    info.pt_serv_buf_size = 16384;
    info.user = link;
    info.vhost_name = "fedge";
#if defined(LWS_CLIENT_HTTP_PROXYING)
    info.http_proxy_address = ""; /* NULL: by https_proxy */
#endif
    info.client_ssl_ca_mem = config->trust_pem;
    info.client_ssl_ca_mem_len = (unsigned)strlen(config->trust_pem) + 1;
    info.client_ssl_cert_mem = config->identity->chain_pem;
    info.client_ssl_cert_mem_len = (unsigned)strlen(config->identity->chain_pem) + 1;
    char *key = pem_copy(config->identity->key_pem, &info.client_ssl_key_mem_len);
    info.client_ssl_key_mem = key;
    link->context = key ? lws_create_context(&info) : NULL;
    if (link->context)
        link->vhost = lws_create_vhost(link->context, &info);
    if (key)
        mbedtls_platform_zeroize(key, strlen(key));
    free(key);
    if (!link->context)
        return fedge_fail(err, FEDGE_NO_MEMORY, "libwebsockets cannot start");
    if (!link->vhost) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "libwebsockets refuses the identity or the trusted roots");
    }
    return FEDGE_OK;
}

static fedge_status make_settings(fedge_link *link, const fedge_link_config *config,
                                  fedge_error *err)
{
    link->clock = config->clock;
    FEDGE_TRY(fedge_tls_new(link->clock, &link->tls, err));
    FEDGE_TRY(fedge_tls_set_roots(link->tls, config->trust_pem, err));
    FEDGE_TRY(fedge_tls_group_new(link->tls, &link->connections, err));
    fedge_tls_on_refused(link->connections, on_refused, link);
    fedge_resume_begin(link->connections);
    return FEDGE_OK;
}

fedge_status fedge_link_new(const fedge_link_config *config, fedge_link **link, fedge_error *err)
{
    *link = NULL;
    fedge_link *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a link of %zu bytes",
                          sizeof(*fresh));
    }
    fresh->events = config->events;
    fedge_link_set_heartbeat(fresh, FEDGE_LINK_DEFAULT_HEARTBEAT_S);
    lws_set_log_level(0, NULL);
    fedge_status status;
    FEDGE_TRY_OR(fedge_link_check_urls(config->urls, &fresh->num_urls, err), fail);
    snprintf(fresh->urls, sizeof(fresh->urls), "%s", config->urls);
    fedge_link_use_address(fresh, 0);
    FEDGE_TRY_OR(make_settings(fresh, config, err), fail);
    FEDGE_TRY_OR(make_context(fresh, config, err), fail);
    *link = fresh;
    return FEDGE_OK;
fail:
    fedge_link_free(fresh);
    return status;
}

void fedge_link_free(fedge_link *link)
{
    if (!link)
        return;
    link->wsi = link->closing = NULL;
    if (link->context) {
        fedge_tls_group *before = fedge_tls_enter(link->connections);
        lws_sul_cancel(&link->timer);
        lws_context_destroy(link->context);
        fedge_tls_enter(before);
    }
    fedge_tls_group_free(link->connections);
    fedge_tls_free(link->tls);
    free(link);
}

const char *fedge_link_use_address(fedge_link *link, uint32_t address_index)
{
    const char *at = link->urls;
    fedge_error err;
    link->address_index = address_index / link->num_urls;
    for (address_index %= link->num_urls; at; address_index--) {
        at = take_url(at, link->url);
        if (address_index == 0)
            break;
    }
    /* Each was parsed before. */
    (void)!fedge_link_parse_url(link->url, link->host, &link->port, link->path, &err);
    return link->url;
}

fedge_status fedge_link_set_proxy(fedge_link *link, const char *proxy, fedge_error *err)
{
    snprintf(link->proxy, sizeof(link->proxy), "%s", proxy);
#if defined(LWS_CLIENT_HTTP_PROXYING)
    /* libwebsockets takes port 0 for none. */
    if (lws_set_proxy(link->vhost, link->proxy[0] ? proxy : ":0") == 0)
        return FEDGE_OK;
#endif
    return link->proxy[0] ? fedge_fail(err, FEDGE_UNSUPPORTED,
                                       "libwebsockets was built without "
                                       "proxies")
                          : FEDGE_OK;
}

/* Selects an address of the host's name by [address_index]: a name may have one for each rank, and
 * libwebsockets alone would always start with getaddrinfo's first. With one address of each family
 * libwebsockets gets the name and tries the second if the first fails; likewise for an address with
 * a zone (fe80::1%eth0), which inet_ntop omits. */
static const char *address_of(const fedge_link *link, char text[INET6_ADDRSTRLEN])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *at;
    struct addrinfo *all = NULL;
    const char *address = NULL;
    uint32_t num_v4 = 0, num_v6 = 0;
    if (getaddrinfo(link->host, NULL, &hints, &all) != 0)
        return link->host;
    for (at = all; at; at = at->ai_next)
        *(at->ai_family == AF_INET ? &num_v4 : &num_v6) += 1;
    assert(num_v4 + num_v6 > 0);
    if (num_v4 != 1 || num_v6 != 1) {
        at = all;
        for (uint32_t skip = link->address_index % (num_v4 + num_v6); skip > 0; skip--)
            at = at->ai_next;
        const void *of = at->ai_addr;
        const struct sockaddr_in6 *v6 = of;
        if (at->ai_family == AF_INET) {
            address = inet_ntop(AF_INET, &((const struct sockaddr_in *)of)->sin_addr, text,
                                INET6_ADDRSTRLEN);
        } else if (v6->sin6_scope_id == 0) {
            address = inet_ntop(AF_INET6, &v6->sin6_addr, text, INET6_ADDRSTRLEN);
        }
    }
    freeaddrinfo(all);
    return address ? address : link->host;
}

bool fedge_link_covers(const fedge_link *link, uint64_t unix_ms)
{
    return unix_ms >= link->server.not_before_ms && unix_ms <= link->server.not_after_ms;
}

void fedge_link_connect(fedge_link *link)
{
    assert(!link->wsi);
    char numeric[INET6_ADDRSTRLEN];
    char authority[FEDGE_LINK_MAX_HOST + 10], literal[FEDGE_LINK_MAX_HOST + 2];
    const bool v6 = strchr(link->host, ':') != NULL;
    snprintf(literal, sizeof(literal), v6 ? "[%s]" : "%s", link->host);
    snprintf(authority, sizeof(authority), "%s:%d", literal, link->port);
    struct lws_client_connect_info info;
    memset(&info, 0, sizeof(info));
    info.context = link->context;
    info.vhost = link->vhost;
    info.address =
        link->proxy[0] ? literal : address_of(link, numeric); /* the proxy resolves names */
    info.port = link->port;
    info.path = link->path;
    info.host = authority;
    info.ssl_connection = LCCSCF_USE_SSL | LCCSCF_HTTP_NO_FOLLOW_REDIRECT;
    info.protocol = FEDGE_SUBPROTOCOL;
    info.local_protocol_name = FEDGE_SUBPROTOCOL;
    info.ietf_version_or_minus_one = -1;
    info.retry_and_idle_policy = &link->heartbeat;
    info.pwsi = &link->wsi;
    link->why[0] = '\0';
    link->http_status = 0;
    link->established = false;
    link->connecting = true;
    /* libwebsockets does not always report a connection that fails at once. */
    fedge_tls_group *before = fedge_tls_enter(link->connections);
    struct lws *wsi = lws_client_connect_via_info(&info);
    fedge_tls_enter(before);
    if (!wsi && link->connecting)
        report_end(link, "no connection");
    link->connecting = false;
}

void fedge_link_close(fedge_link *link, const char *why)
{
    if (link->closing)
        lws_set_timeout(link->closing, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
    struct lws *wsi = link->wsi;
    link->closing = wsi;
    link->wsi = NULL;
    if (!wsi)
        return;
    snprintf(link->closing_why, sizeof(link->closing_why), "%s", why);
    if (link->established) {
        lws_set_timeout(wsi, PENDING_TIMEOUT_USER_OK, CLOSE_TIMEOUT_S);
        lws_callback_on_writable(wsi);
    } else {
        lws_set_timeout(wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
    }
    link->established = false;
}

void fedge_link_want_write(fedge_link *link)
{
    if (link->wsi && link->established)
        lws_callback_on_writable(link->wsi);
}

void fedge_link_set_heartbeat(fedge_link *link, uint32_t heartbeat_s)
{
    uint16_t seconds = (uint16_t)(heartbeat_s < 1 ? 1 : heartbeat_s > 3600 ? 3600 : heartbeat_s);
    link->heartbeat.secs_since_valid_ping = seconds;
    link->heartbeat.secs_since_valid_hangup = (uint16_t)(2 * seconds + 10);
}

void fedge_link_set_timer(fedge_link *link, uint64_t after_ms)
{
    if (after_ms == UINT64_MAX) {
        lws_sul_cancel(&link->timer);
    } else {
        lws_sul_schedule(link->context, 0, &link->timer, on_timer,
                         (lws_usec_t)(after_ms < 86400000 ? after_ms : 86400000) * 1000 + 1);
    }
}

void fedge_link_service(fedge_link *link)
{
    fedge_tls_group *before = fedge_tls_enter(link->connections);
    lws_service(link->context, 0);
    fedge_tls_enter(before);
}

bool fedge_link_busy(const fedge_link *link)
{
    return link->wsi || link->closing;
}

void fedge_link_wake(fedge_link *link)
{
    lws_cancel_service(link->context);
}

/* --- the proxy ----------------------------------------------------------------------------------
 */

static const char *variable(const char *lower, const char *upper)
{
    const char *value = getenv(lower);
    return value ? value : getenv(upper);
}

/* Whether the comma-separated [list] has [host], or a suffix of it. */
static bool lists(const char *list, const char *host)
{
    const size_t host_size = strlen(host);
    while (*list != '\0') {
        list += strspn(list, ", ");
        const char *word = list + (*list == '.');
        list += strcspn(list, ", ");
        const size_t size = list > word ? (size_t)(list - word) : 0;
        if (size == 1 && *word == '*')
            return true;
        if (size == 0 || size > host_size || strncasecmp(host + host_size - size, word, size) != 0)
            continue;
        if (size == host_size || host[host_size - size - 1] == '.')
            return true;
    }
    return false;
}

fedge_status fedge_proxy_for(const char *url, const char *given, char out[FEDGE_PROXY_TEXT],
                             fedge_error *err)
{
    char host[FEDGE_LINK_MAX_HOST];
    int port;
    const char *proxy = given;
    out[0] = '\0';
    if (!given) {
        const char *none = variable("no_proxy", "NO_PROXY");
        FEDGE_TRY(fedge_link_parse_url(url, host, &port, NULL, err));
        proxy = none && lists(none, host) ? NULL : variable("https_proxy", "HTTPS_PROXY");
    }
    if (!proxy || *proxy == '\0')
        return FEDGE_OK;
    /* Checked first: later errors show the address, and a password must not be logged. */
    if (strchr(proxy, '@')) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the proxy's address has a user's name, but fedge cannot log in to a "
                          "proxy; give HOST:PORT");
    }
    if (strncasecmp(proxy, "http://", 7) == 0)
        proxy += 7;
    const size_t size = strcspn(proxy, "/");
    (void)snprintf(out, FEDGE_PROXY_TEXT, "%.*s", (int)size, proxy);
    const char *colon = strrchr(out, ':');
    const char *of_host = out[0] == '[' ? strchr(out, ']') : out;
    char *end = out;
    const long number = colon && of_host && colon > out && strchr(of_host, ':') == colon
                            ? strtol(colon + 1, &end, 10)
                            : 0;
    if (size >= FEDGE_PROXY_TEXT || number < 1 || number > 65535 || *end) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "'%.100s' is not a proxy's address: http://HOST:PORT, the only kind "
                          "supported",
                          proxy);
    }
    return FEDGE_OK;
}
