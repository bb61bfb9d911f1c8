/* The answers of the read-only HTTP port: /healthz and /metrics. Its connections are
 * libwebsockets', and transport_internal.h declares their callback. */
#ifndef FEDGE_AGGREGATOR_NET_HTTP_H
#define FEDGE_AGGREGATOR_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/exchange/exchange.h"
#include "edge/core/status.h"

#define FEDGE_HTTP_MAX_BODY 53248  /* 64 GPUs and 64 threads with the largest numbers fit */
#define FEDGE_HTTP_MAX_THREADS 64u /* of the network */
#define FEDGE_HTTP_MAX_HOST 256    /* of a request, with its port */

/* What an answer is made from. */
typedef struct fedge_http_facts {
    fedge_run_status run;
    uint32_t connections;     /* open sockets of clients, handshakes included */
    uint32_t unauthenticated; /* those of them that have shown no certificate yet */
    uint32_t num_threads;     /* of the network */
    uint32_t thread_connections[FEDGE_HTTP_MAX_THREADS]; /* (num_threads), handshakes included */
    uint32_t devices;                                    /* in the registry */
    uint64_t connections_refused; /* by certificate, registry or limit, since the start */
    double uptime_seconds;
    double cpu_seconds; /* of the process */
    uint64_t resident_bytes;
} fedge_http_facts;

typedef struct fedge_http_answer {
    unsigned status; /* 200, 404, 405, 503 */
    const char *type;
    size_t size;
    char body[FEDGE_HTTP_MAX_BODY];
} fedge_http_answer;

/* Whether this is a host as RFC 9110 has it in the header Host: a name, an address or one of IPv6
 * in brackets, with a port or without. */
bool fedge_http_host_valid(const char *host);

/* Whether a request may name this host (the value of its Host header): an IP address, localhost or
 * [name] (NULL: none), each with or without a port. A web page of another host that resolves its
 * name to this machine cannot read answers then. */
bool fedge_http_host_allowed(const char *host, const char *name);

/* Answers [path]; [get]: the method is GET or HEAD. Fails only for want of memory. */
FEDGE_MUST_USE fedge_status fedge_http_answer_make(bool get, const char *path,
                                                   const fedge_http_facts *facts,
                                                   fedge_http_answer *answer, fedge_error *err);

#endif
