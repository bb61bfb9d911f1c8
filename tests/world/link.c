/* A client's link on the simulated network: client/link.h without TLS and sockets. It is linked in
 * place of client/link.c and keeps that file's order of events: one service call waits for an event
 * and reports it. */
#include "client/link.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/world/network.h"
#include "tests/world/observer.h"
#include "tests/world/scheduler.h"

#define MS 1000000u
#define CONNECT_TIMEOUT_MS 20000

struct fedge_link {
    fedge_link_events events;
    uint32_t client;
    world_connection *connection; /* NULL: none */
    bool open, wants_write, woken;
    uint64_t timer_ns; /* WORLD_NEVER: none */
    uint64_t heard_ns; /* time of the last arrival or of fedge_link_connect */
    uint64_t heartbeat_ns;
    bool pinged;
    size_t received; /* bytes of the present message in [rx] */
    uint8_t rx[FEDGE_MESSAGE_MAX_SIZE];
    uint8_t tx[FEDGE_MESSAGE_MAX_SIZE];
};

fedge_status fedge_link_parse_url(const char *url, char host[FEDGE_LINK_MAX_HOST], int *port,
                                  char path[FEDGE_LINK_MAX_HOST], fedge_error *err)
{
    (void)url, (void)err;
    if (host)
        (void)snprintf(host, FEDGE_LINK_MAX_HOST, "server");
    if (path)
        (void)snprintf(path, FEDGE_LINK_MAX_HOST, "/");
    *port = FEDGE_LINK_DEFAULT_PORT;
    return FEDGE_OK;
}

fedge_status fedge_link_check_urls(const char *urls, uint32_t *count, fedge_error *err)
{
    (void)urls, (void)err;
    *count = 1;
    return FEDGE_OK;
}

fedge_status fedge_link_new(const fedge_link_config *config, fedge_link **link, fedge_error *err)
{
    *link = malloc(sizeof(**link));
    if (!*link)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the link");
    memset(*link, 0, offsetof(fedge_link, rx)); /* the buffers behind need no zeros */
    (*link)->events = config->events;
    (*link)->client = world_node() - WORLD_FIRST_CLIENT;
    (*link)->timer_ns = WORLD_NEVER;
    fedge_link_set_heartbeat(*link, FEDGE_LINK_DEFAULT_HEARTBEAT_S);
    return FEDGE_OK;
}

void fedge_link_free(fedge_link *link)
{
    if (link && link->connection)
        world_net_close(link->connection, NET_CLIENT_END);
    free(link);
}

const char *fedge_link_use_address(fedge_link *link, uint32_t address_index)
{
    (void)link, (void)address_index;
    return "wss://server:9092";
}

fedge_status fedge_link_set_proxy(fedge_link *link, const char *proxy, fedge_error *err)
{
    (void)link, (void)proxy, (void)err;
    return FEDGE_OK;
}

fedge_status fedge_proxy_for(const char *url, const char *given, char out[FEDGE_PROXY_TEXT],
                             fedge_error *err)
{
    (void)url, (void)given, (void)err;
    out[0] = '\0';
    return FEDGE_OK;
}

bool fedge_link_covers(const fedge_link *link, uint64_t unix_ms)
{
    (void)link, (void)unix_ms;
    return true;
}

void fedge_link_connect(fedge_link *link)
{
    assert(!link->connection);
    link->connection = world_net_connect(link->client);
    link->open = link->wants_write = link->pinged = false;
    link->received = 0;
    link->heard_ns = world_now_ns();
}

void fedge_link_close(fedge_link *link, const char *why)
{
    (void)why;
    if (link->connection)
        world_net_close(link->connection, NET_CLIENT_END);
    world_observe_client_disconnected(link->client);
    link->connection = NULL;
    link->open = false;
}

void fedge_link_want_write(fedge_link *link)
{
    link->wants_write = link->open;
}

void fedge_link_set_heartbeat(fedge_link *link, uint32_t heartbeat_s)
{
    link->heartbeat_ns = (uint64_t)heartbeat_s * 1000 * MS;
}

void fedge_link_set_timer(fedge_link *link, uint64_t after_ms)
{
    link->timer_ns = after_ms == UINT64_MAX ? WORLD_NEVER : world_now_ns() + after_ms * MS + 1000;
}

bool fedge_link_busy(const fedge_link *link)
{
    return link->connection != NULL;
}

void fedge_link_wake(fedge_link *link)
{
    link->woken = true;
    world_wake_all(world_net_address(WORLD_FIRST_CLIENT + link->client));
}

/* ---- one event ------------------------------------------------------------------------------- */

static void end(fedge_link *link, const char *why)
{
    const unsigned http_status = world_net_http_status(link->connection);
    fedge_link_close(link, why);
    link->events.disconnected(link->events.user, http_status, why);
}

static void take(fedge_link *link, const world_arrival *arrival)
{
    link->heard_ns = world_now_ns();
    link->pinged = false;
    link->received += arrival->size;
    if (arrival->size > 0 && arrival->final) {
        const size_t size = link->received;
        link->received = 0;
        world_observe_client_received(link->client, link->rx, size);
        link->events.frame(link->events.user, link->rx, size);
    }
}

static void write_frame(fedge_link *link)
{
    link->wants_write = false;
    world_connection *connection = link->connection;
    const size_t size = link->events.writeable(link->events.user, link->tx, sizeof(link->tx));
    if (size == 0 || link->connection != connection)
        return;
    world_observe_client_sent(link->client, link->tx, size);
    world_net_send(connection, NET_CLIENT_END, link->tx, size);
    link->wants_write = true;
}

/* The time at which the server's silence has a consequence. */
static uint64_t silence_ns(const fedge_link *link)
{
    if (!link->connection)
        return WORLD_NEVER;
    if (!link->open)
        return link->heard_ns + (uint64_t)CONNECT_TIMEOUT_MS * MS;
    return link->heard_ns +
           (link->pinged ? 2 * link->heartbeat_ns + (uint64_t)10000 * MS : link->heartbeat_ns);
}

static void on_silence(fedge_link *link)
{
    if (!link->open || link->pinged) {
        end(link, "the server does not answer");
    } else {
        link->pinged = true;
        world_net_send(link->connection, NET_CLIENT_END, NULL, 0);
    }
}

/* Handles one event of the connection; false: there is none. */
static bool handle_connection(fedge_link *link)
{
    world_connection *connection = link->connection;
    if (!connection)
        return false;
    if (!link->open && world_net_is_open(connection)) {
        link->open = true;
        link->heard_ns = world_now_ns();
        link->events.connected(link->events.user);
        return true;
    }
    world_arrival arrival;
    const bool received =
        link->open && world_net_receive(connection, NET_CLIENT_END, link->rx + link->received,
                                        sizeof(link->rx) - link->received, &arrival);
    if (received)
        take(link, &arrival);
    else if (world_net_is_over(connection, NET_CLIENT_END))
        end(link, "the connection has ended");
    else if (world_now_ns() >= silence_ns(link))
        on_silence(link);
    else if (link->wants_write && world_net_may_send(connection, NET_CLIENT_END))
        write_frame(link);
    else
        return false;
    return true;
}

static bool handle_one(fedge_link *link)
{
    if (link->woken) {
        link->woken = false;
        link->events.woken(link->events.user);
        return true;
    }
    if (world_now_ns() >= link->timer_ns) {
        link->timer_ns = WORLD_NEVER;
        link->events.woken(link->events.user);
        return true;
    }
    return handle_connection(link);
}

void fedge_link_service(fedge_link *link)
{
    world_yield();
    while (!handle_one(link)) {
        const uint64_t silent_ns = silence_ns(link), timer_ns = link->timer_ns;
        world_net_wait(WORLD_FIRST_CLIENT + link->client,
                       timer_ns < silent_ns ? timer_ns : silent_ns);
    }
}
