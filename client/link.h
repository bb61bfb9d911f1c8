/* The websocket to the server, on libwebsockets and mbedTLS: mutual TLS, subprotocol fedge.v1.
 * Everything but fedge_link_wake runs on the thread that calls fedge_link_service.
 *
 * A server is accepted if its chain leads to a trusted root, its certificate has its host name or
 * address, and its role is "server". Received messages are whole, binary and within their limits. A
 * ping is sent after a heartbeat of silence, and a peer that does not answer is dropped. A process
 * may have several links, each with its own settings; they turn off libwebsockets' log, which is
 * one per process.
 */
#ifndef FEDGE_CLIENT_LINK_H
#define FEDGE_CLIENT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/wire/protocol.h"
#include "secure/identity/clock.h"
#include "secure/identity/identity.h"

#define FEDGE_LINK_DEFAULT_PORT 9092
#define FEDGE_LINK_MAX_HOST 256
#define FEDGE_LINK_MAX_URLS 2048          /* bytes of all addresses, NUL included */
#define FEDGE_LINK_DEFAULT_HEARTBEAT_S 20 /* until WELCOME: the server's default */

/* Callbacks for events of the link. Each may call functions of the link. */
typedef struct fedge_link_events {
    void *user;
    void (*connected)(void *user);
    /* [http_status]: the server's answer to the upgrade if it was not 101, else 0. Not called after
     * fedge_link_close. */
    void (*disconnected)(void *user, unsigned http_status, const char *why);
    /* A whole message; [frame] is valid until this returns. */
    void (*frame)(void *user, const uint8_t *frame, size_t size);
    void (*garbage)(void *user, const char *what);
    /* The link is writeable: write one frame to out[0, out_size) and return its size, 0 for none.
     */
    size_t (*writeable)(void *user, uint8_t *out, size_t out_size);
    /* Called after fedge_link_wake, or when the timer is due. */
    void (*woken)(void *user);
} fedge_link_events;

typedef struct fedge_link_config {
    const char *urls;               /* wss://HOST[:PORT][/PATH], or several with commas between */
    const fedge_identity *identity; /* copied */
    const char *trust_pem;          /* trusted roots; copied */
    const fedge_clock *clock;       /* judges certificates; outlives the link */
    fedge_link_events events;
} fedge_link_config;

typedef struct fedge_link fedge_link;

/* FEDGE_INVALID_ARGUMENT: not such a URL; [host] may be NULL. */
FEDGE_MUST_USE fedge_status fedge_link_parse_url(const char *url, char host[FEDGE_LINK_MAX_HOST],
                                                 int *port, char path[FEDGE_LINK_MAX_HOST],
                                                 fedge_error *err);

/* Checks each of [urls]; *count: their number. */
FEDGE_MUST_USE fedge_status fedge_link_check_urls(const char *urls, uint32_t *count,
                                                  fedge_error *err);

FEDGE_MUST_USE fedge_status fedge_link_new(const fedge_link_config *config, fedge_link **link,
                                           fedge_error *err);
void fedge_link_free(fedge_link *link); /* NULL is allowed */

/* Selects the address of the next connection: entry [address_index] of the list, from 0, modulo
 * their number; initially 0. Returns the address, which the link owns. */
const char *fedge_link_use_address(fedge_link *link, uint32_t address_index);
/* Sets the proxy HOST:PORT (fedge_proxy_for) of the next connection; "": none, the default.
 * FEDGE_UNSUPPORTED: libwebsockets was built without proxies. */
FEDGE_MUST_USE fedge_status fedge_link_set_proxy(fedge_link *link, const char *proxy,
                                                 fedge_error *err);
/* Whether the certificate of the last server that answered is valid at [unix_ms]. */
bool fedge_link_covers(const fedge_link *link, uint64_t unix_ms);
/* Starts connecting; reports connected or disconnected, possibly at once. */
void fedge_link_connect(fedge_link *link);
/* Closes with a reason for the peer. Events of the old connection are no longer reported. */
void fedge_link_close(fedge_link *link, const char *why);
/* Requests a call of writeable. */
void fedge_link_want_write(fedge_link *link);
/* Sets the silence after which a ping is sent, from the next message on. */
void fedge_link_set_heartbeat(fedge_link *link, uint32_t heartbeat_s);
/* Schedules a call of woken, [after_ms] from now; UINT64_MAX: none. Replaces the previous one. */
void fedge_link_set_timer(fedge_link *link, uint64_t after_ms);
/* Waits for events and calls their callbacks. */
void fedge_link_service(fedge_link *link);
/* Whether a connection exists or is closing. */
bool fedge_link_busy(const fedge_link *link);
/* Makes fedge_link_service call woken. Callable from any thread and from signal handlers. */
void fedge_link_wake(fedge_link *link);

/* The HTTP proxy to the server: CONNECT, then TLS to the server through it. */

#define FEDGE_PROXY_TEXT 256

/* Writes HOST:PORT of the proxy for the server [url] to [out], "" for none. It is [given]
 * ("[http://]HOST:PORT"; "" means none) or, if that is NULL, https_proxy or HTTPS_PROXY, unless
 * no_proxy or NO_PROXY has the server's host or a suffix of it ("*": all). FEDGE_INVALID_ARGUMENT:
 * it is not such an address, or uses TLS or a password. */
FEDGE_MUST_USE fedge_status fedge_proxy_for(const char *url, const char *given,
                                            char out[FEDGE_PROXY_TEXT], fedge_error *err);

#endif
