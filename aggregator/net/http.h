/* The read-only HTTP port: /healthz and /metrics. libwebsockets owns its connections;
 * transport_internal.h declares their callback. */
#ifndef FEDGE_AGGREGATOR_NET_HTTP_H
#define FEDGE_AGGREGATOR_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "edge/core/status.h"

#define FEDGE_HTTP_MAX_BODY 53248  /* fits 64 GPUs and 64 threads with the largest numbers */
#define FEDGE_HTTP_MAX_THREADS 64u /* transport threads */
#define FEDGE_HTTP_MAX_HOST 256    /* length of a request's host with its port */

/* Input of an answer. */
typedef struct fedge_http_facts {
    fedge_run_status run;
    uint32_t connections;     /* open sockets of clients, including handshakes */
    uint32_t unauthenticated; /* connections without a certificate */
    uint32_t num_threads;     /* transport threads */
    uint32_t thread_connections[FEDGE_HTTP_MAX_THREADS]; /* (num_threads), including handshakes */
    uint32_t devices;                                    /* registered devices */
    uint64_t connections_refused; /* refused by certificate, registry or limit since the start */
    double uptime_seconds;
    double cpu_seconds; /* since the process started */
    uint64_t resident_bytes;
} fedge_http_facts;

typedef struct fedge_http_answer {
    unsigned status; /* 200, 404, 405 or 503 */
    const char *type;
    size_t size;
    char body[FEDGE_HTTP_MAX_BODY];
} fedge_http_answer;

/* Whether [host] is a valid Host header of RFC 9110: a name, an IPv4 address or an IPv6 address in
 * brackets, with an optional port. */
bool fedge_http_host_valid(const char *host);

/* Whether a request's Host header is allowed: an IP address, localhost or [name] (NULL: none), with
 * an optional port. A web page that resolves its own host name to this machine is refused. */
bool fedge_http_host_allowed(const char *host, const char *name);

/* Answers [path]; [get]: the method is GET or HEAD. Fails only without memory. */
FEDGE_MUST_USE fedge_status fedge_http_answer_make(bool get, const char *path,
                                                   const fedge_http_facts *facts,
                                                   fedge_http_answer *answer, fedge_error *err);

#endif
