#define _GNU_SOURCE /* inet_pton, strcasecmp are POSIX, not C11 */

#include "aggregator/net/http.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "aggregator/net/transport_internal.h"
#include "edge/core/os.h"
#include "edge/core/version.h"
#include "edge/json/json.h"

/* What /healthz shows. */
typedef struct health {
    char status[8], state[FEDGE_RUN_STATE_TEXT], run_id[FEDGE_RUN_ID_TEXT], release[16];
    uint32_t round, rounds_closed, num_server_rounds, connected;
} health;

static const fedge_json_field HEALTH_FIELDS[] = {
    {.key = "status", .kind = FEDGE_JSON_TEXT, FEDGE_JSON_AT(health, status)},
    {.key = "state", .kind = FEDGE_JSON_TEXT, FEDGE_JSON_AT(health, state)},
    {.key = "run_id", .kind = FEDGE_JSON_TEXT, FEDGE_JSON_AT(health, run_id)},
    {.key = "round", .kind = FEDGE_JSON_U32, FEDGE_JSON_AT(health, round)},
    {.key = "rounds_closed", .kind = FEDGE_JSON_U32, FEDGE_JSON_AT(health, rounds_closed)},
    {.key = "num_server_rounds", .kind = FEDGE_JSON_U32, FEDGE_JSON_AT(health, num_server_rounds)},
    {.key = "connected", .kind = FEDGE_JSON_U32, FEDGE_JSON_AT(health, connected)},
    {.key = "release", .kind = FEDGE_JSON_TEXT, FEDGE_JSON_AT(health, release)},
    {.key = NULL},
};

static fedge_status make_health(const fedge_http_facts *facts, fedge_http_answer *answer,
                                fedge_error *err)
{
    const fedge_run_status *run = &facts->run;
    health record = {.round = run->round,
                     .rounds_closed = run->rounds_closed,
                     .num_server_rounds = run->num_server_rounds,
                     .connected = run->connected};
    snprintf(record.status, sizeof(record.status), "%s", run->healthy ? "ok" : "failed");
    snprintf(record.state, sizeof(record.state), "%s", run->state);
    snprintf(record.run_id, sizeof(record.run_id), "%s", run->run_id);
    snprintf(record.release, sizeof(record.release), "%s", FEDGE_VERSION);
    char *text = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_json_print(HEALTH_FIELDS, &record, &text, &size, err));
    answer->status = run->healthy ? 200 : 503;
    answer->type = "application/json";
    answer->size = (size_t)snprintf(answer->body, sizeof(answer->body), "%s\n", text);
    free(text);
    return FEDGE_OK;
}

__attribute__((format(printf, 2, 3))) static void add(fedge_http_answer *answer, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    size_t capacity = sizeof(answer->body) - answer->size;
    int size = vsnprintf(answer->body + answer->size, capacity, format, args);
    va_end(args);
    /* A line that does not fit is omitted: half a number would be read as another number. */
    if (size > 0 && (size_t)size < capacity)
        answer->size += (size_t)size;
}

/* Prometheus's text format, version 0.0.4. */
static void add_head(fedge_http_answer *answer, const char *name, const char *type,
                     const char *help)
{
    add(answer, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Counters start at 0 with the process, as Prometheus expects: it detects restarts by the drop.
 * Figures of the whole run survive restarts, so they are gauges. */
static void add_count(fedge_http_answer *answer, const char *name, const char *help, uint64_t value)
{
    add_head(answer, name, "counter", help);
    add(answer, "%s %llu\n", name, (unsigned long long)value);
}

static void add_level(fedge_http_answer *answer, const char *name, const char *help, double value)
{
    add_head(answer, name, "gauge", help);
    if (isnan(value))
        add(answer, "%s NaN\n", name);
    else
        add(answer, "%s %.17g\n", name, value);
}

static void add_run(fedge_http_answer *answer, const fedge_run_status *run)
{
    add_head(answer, "fedge_info", "gauge", "Always 1; the labels say what runs.");
    add(answer, "fedge_info{release=\"%s\",run_id=\"%s\"} 1\n", FEDGE_VERSION, run->run_id);
    add_level(answer, "fedge_healthy", "1 until an error ends the process.", run->healthy);
    add_level(answer, "fedge_round", "The present or next round, from 1.", run->round);
    add_level(answer, "fedge_rounds_closed", "Rounds of the run that are done.",
              run->rounds_closed);
    add_level(answer, "fedge_rounds", "Rounds that the job asks for.", run->num_server_rounds);
    add_level(answer, "fedge_run_incarnation", "Raised when a backup was restored.",
              run->incarnation);
    add_level(answer, "fedge_test_accuracy_ratio", "Of the last evaluation on the test set.",
              run->accuracy);
    add_level(answer, "fedge_test_loss", "Of the last evaluation on the test set.", run->loss);
    add_level(answer, "fedge_run_received_bytes", "Bytes of uploads, over the whole run.",
              (double)run->run_bytes_up);
    add_level(answer, "fedge_run_sent_bytes", "Bytes of plans and models, over the whole run.",
              (double)run->run_bytes_down);
}

/* GPU figures; none without a GPU. */
static void add_gpus(fedge_http_answer *answer, const fedge_run_status *run)
{
    if (run->num_gpus == 0)
        return;
    add_head(answer, "fedge_gpu_memory_bytes", "gauge", "Memory taken on a GPU.");
    for (uint32_t i = 0; i < run->num_gpus; i++) {
        add(answer, "fedge_gpu_memory_bytes{gpu=\"%u\"} %llu\n", run->gpus[i].gpu,
            (unsigned long long)run->gpus[i].memory_bytes);
    }
    add_head(answer, "fedge_gpu_decoded_bytes_total", "counter", "Encoded bytes that were summed.");
    for (uint32_t i = 0; i < run->num_gpus; i++) {
        add(answer, "fedge_gpu_decoded_bytes_total{gpu=\"%u\"} %llu\n", run->gpus[i].gpu,
            (unsigned long long)run->gpus[i].decoded_bytes);
    }
    add_head(answer, "fedge_gpu_seconds_total", "counter", "Time that a GPU worked, by work.");
    for (uint32_t i = 0; i < run->num_gpus; i++) {
        const fedge_gpu_stats *gpu = &run->gpus[i];
        const struct {
            const char *work;
            double seconds;
        } times[] = {{"copy", gpu->seconds_copy},
                     {"decode", gpu->seconds_decode},
                     {"reduce", gpu->seconds_reduce},
                     {"step", gpu->seconds_step}};
        for (size_t k = 0; k < sizeof(times) / sizeof(times[0]); k++) {
            add(answer, "fedge_gpu_seconds_total{gpu=\"%u\",work=\"%s\"} %.6f\n", gpu->gpu,
                times[k].work, times[k].seconds);
        }
    }
}

static void make_metrics(const fedge_http_facts *facts, fedge_http_answer *answer)
{
    const fedge_run_status *run = &facts->run;
    answer->status = 200;
    answer->type = "text/plain; version=0.0.4; charset=utf-8";
    answer->size = 0;
    add_run(answer, run);
    add_level(answer, "fedge_clients", "Devices that are ready to work.", run->connected);
    add_level(answer, "fedge_connections", "Open connections, handshakes included.",
              facts->connections);
    add_level(answer, "fedge_connections_unauthenticated",
              "Open connections that have shown no certificate yet.", facts->unauthenticated);
    add_head(answer, "fedge_thread_connections", "gauge", "Open connections on a network thread.");
    for (uint32_t i = 0; i < facts->num_threads; i++) {
        add(answer, "fedge_thread_connections{thread=\"%u\"} %u\n", i,
            facts->thread_connections[i]);
    }
    add_level(answer, "fedge_registered_devices", "Devices in the registry.", facts->devices);
    add_count(answer, "fedge_connections_refused_total",
              "Connections refused by certificate, registry or limit.", facts->connections_refused);
    add_count(answer, "fedge_updates_accepted_total", "Updates that are validated and durable.",
              run->updates_accepted);
    add_count(answer, "fedge_updates_refused_total", "Updates refused.", run->updates_refused);
    add_count(answer, "fedge_updates_duplicate_total", "Updates that had been accepted before.",
              run->updates_duplicate);
    add_count(answer, "fedge_bytes_received_total", "Bytes of messages from clients.",
              run->bytes_up);
    add_count(answer, "fedge_bytes_sent_total", "Bytes of messages to clients.", run->bytes_down);
    add_level(answer, "fedge_ingest_queued_bytes", "Bytes that wait for an ingest worker.",
              (double)run->ingest_queued_bytes);
    add_head(answer, "fedge_stage_seconds_total", "counter",
             "Time that ingest workers spent, by stage.");
    add(answer, "fedge_stage_seconds_total{stage=\"validate\"} %.6f\n", run->seconds_validate);
    add(answer, "fedge_stage_seconds_total{stage=\"journal\"} %.6f\n", run->seconds_journal);
    add(answer, "fedge_stage_seconds_total{stage=\"sum\"} %.6f\n", run->seconds_sum);
    add_head(answer, "fedge_accumulator_info", "gauge", "Always 1; the label says what sums.");
    add(answer, "fedge_accumulator_info{kind=\"%s\"} 1\n", run->accumulator);
    add_gpus(answer, run);
    add_level(answer, "fedge_uptime_seconds", "Since the start of the process.",
              facts->uptime_seconds);
    add_head(answer, "process_cpu_seconds_total", "counter", "User and system time.");
    add(answer, "process_cpu_seconds_total %.6f\n", facts->cpu_seconds);
    add_level(answer, "process_resident_memory_bytes", "Resident memory.",
              (double)facts->resident_bytes);
}

/* The characters of RFC 3986 in names and addresses, except separators of a list. */
static bool is_name(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (!isalnum((unsigned char)text[i]) && !strchr("-._~%", text[i]))
            return false;
    }
    return size > 0;
}

bool fedge_http_host_valid(const char *host)
{
    const char *port = strrchr(host, ':');
    const char *end = host + strlen(host);
    const char *bracket = strchr(host, ']');
    struct in6_addr address;
    char text[INET6_ADDRSTRLEN];
    if (host[0] == '[') {
        if (!bracket || bracket - host > INET6_ADDRSTRLEN)
            return false;
        snprintf(text, sizeof(text), "%.*s", (int)(bracket - host - 1), host + 1);
        if (inet_pton(AF_INET6, text, &address) != 1 || (bracket[1] != ':' && bracket[1] != '\0'))
            return false;
        port = bracket[1] ? bracket + 1 : NULL;
    } else if (!is_name(host, (size_t)((port ? port : end) - host))) {
        return false;
    }
    const size_t digits = port ? strspn(port + 1, "0123456789") : 0;
    return !port || (digits >= 1 && digits <= 5 && port[1 + digits] == '\0' &&
                     strtoul(port + 1, NULL, 10) <= UINT16_MAX);
}

/* Prevents DNS rebinding: a web page may resolve its own name to 127.0.0.1, and a browser would
 * then let it read this port. Such a request has that name as its host; an address or localhost
 * cannot be pointed elsewhere. */
bool fedge_http_host_allowed(const char *host, const char *name)
{
    char text[FEDGE_HTTP_MAX_HOST];
    struct in6_addr address;
    size_t size = strlen(host);
    size_t digits = size;
    while (digits > 0 && isdigit((unsigned char)host[digits - 1]))
        digits--;
    if (digits > 0 && digits < size && host[digits - 1] == ':')
        size = digits - 1;
    bool brackets = size > 2 && host[0] == '[' && host[size - 1] == ']';
    host += brackets;
    size -= brackets ? 2 : 0;
    if (size == 0 || size >= sizeof(text))
        return false;
    memcpy(text, host, size);
    text[size] = '\0';
    if (brackets)
        return inet_pton(AF_INET6, text, &address) == 1;
    return inet_pton(AF_INET, text, &address) == 1 || strcasecmp(text, "localhost") == 0 ||
           (name && strcasecmp(text, name) == 0);
}

static void make_text(fedge_http_answer *answer, unsigned status, const char *text)
{
    answer->status = status;
    answer->type = "text/plain; charset=utf-8";
    answer->size = (size_t)snprintf(answer->body, sizeof(answer->body), "%s", text);
}

fedge_status fedge_http_answer_make(bool get, const char *path, const fedge_http_facts *facts,
                                    fedge_http_answer *answer, fedge_error *err)
{
    bool health_asked = strcmp(path, "/healthz") == 0;
    bool metrics_asked = strcmp(path, "/metrics") == 0;
    if (!health_asked && !metrics_asked)
        make_text(answer, 404, "not found: there are /healthz and /metrics\n");
    else if (!get)
        make_text(answer, 405, "read-only: use GET\n");
    else if (health_asked)
        return make_health(facts, answer, err);
    else
        make_metrics(facts, answer);
    return FEDGE_OK;
}

/* ---- on a connection ------------------------------------------------------------------------- */

bool fedge_http_host_of(struct lws *wsi, char host[FEDGE_HTTP_MAX_HOST])
{
    return lws_hdr_copy(wsi, host, FEDGE_HTTP_MAX_HOST, WSI_TOKEN_HOST) > 0 &&
           lws_hdr_fragment_length(wsi, WSI_TOKEN_HOST, 1) == 0 && fedge_http_host_valid(host);
}

int fedge_http_send(fedge_network *network, struct lws *wsi, bool head, unsigned status,
                    const char *type, const char *body, size_t size)
{
    static const struct {
        unsigned status;
        const char *text;
    } TEXTS[] = {{200, "OK"},
                 {400, "Bad Request"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {426, "Upgrade Required"},
                 {505, "HTTP Version Not Supported"}};
    const char *text = "Service Unavailable";
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        if (TEXTS[i].status == status)
            text = TEXTS[i].text;
    }
    const char *extra = status == 405   ? "Allow: GET, HEAD\r\n"
                        : status == 426 ? "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                                        : "";
    char *out = (char *)network->out + LWS_PRE;
    int used = snprintf(out, FEDGE_MESSAGE_MAX_SIZE,
                        "HTTP/1.1 %u %s\r\n"
                        "Content-Type: %s\r\n"
                        "Content-Length: %zu\r\n"
                        "%s"
                        "Connection: close\r\n\r\n"
                        "%.*s",
                        status, text, type, size, extra, head ? 0 : (int)size, body);
    assert(used >= 0 && (size_t)used < FEDGE_MESSAGE_MAX_SIZE); /* the caller's page is complete */
    lws_write(wsi, (unsigned char *)out, (size_t)used, LWS_WRITE_HTTP_HEADERS);
    return -1;
}

int fedge_http_send_text(fedge_network *network, struct lws *wsi, unsigned status, const char *text)
{
    char line[FEDGE_ERROR_MESSAGE_SIZE + 2];
    int size = snprintf(line, sizeof(line), "%s\n", text);
    return fedge_http_send(network, wsi, false, status, "text/plain; charset=utf-8", line,
                           (size_t)size);
}

/* ---- the HTTP port --------------------------------------------------------------------------- */

static void gather_facts(fedge_transport *transport)
{
    fedge_http_facts *facts = &transport->facts;
    transport->run.status(transport->run.run, &facts->run);
    facts->connections = fedge_transport_num_connections(transport);
    facts->unauthenticated = fedge_admission_count(transport);
    facts->num_threads = transport->config.num_threads;
    for (uint32_t i = 0; i < facts->num_threads; i++)
        facts->thread_connections[i] = atomic_load(&transport->networks[i]->num_connections);
    facts->devices = fedge_peers_num_devices(transport->config.peers);
    facts->connections_refused = fedge_peers_num_refused(transport->config.peers);
    facts->uptime_seconds = (double)(fedge_os_monotonic_ms() - transport->started_ms) / 1000.0;
    facts->cpu_seconds = fedge_os_cpu_seconds();
    facts->resident_bytes = fedge_os_resident_bytes();
}

static int answer_http(fedge_peer *peer, struct lws *wsi, const char *uri, size_t uri_size)
{
    fedge_network *network = peer->network;
    fedge_transport *transport = network->transport;
    char host[FEDGE_HTTP_MAX_HOST];
    if (!fedge_http_host_of(wsi, host))
        return fedge_http_send_text(network, wsi, 400, "a request needs one Host, well-formed");
    if (!fedge_http_host_allowed(host, transport->config.http_host)) {
        return fedge_http_send_text(
            network, wsi, 403,
            "the Host must be an IP address, localhost, or the name that --http-host allows");
    }
    char path[32];
    snprintf(path, sizeof(path), "%.*s", uri_size < 1024 ? (int)uri_size : 0, uri);
    char *unused = NULL;
    int unused_size = 0;
    int method = lws_http_get_uri_and_method(wsi, &unused, &unused_size);
    bool head = method == LWSHUMETH_HEAD;
    gather_facts(transport);
    fedge_http_answer *answer = &transport->answer;
    fedge_error err;
    if (fedge_http_answer_make(head || method == LWSHUMETH_GET, path, &transport->facts, answer,
                               &err) != FEDGE_OK)
        return fedge_http_send_text(network, wsi, 503, err.message);
    return fedge_http_send(network, wsi, head, answer->status, answer->type, answer->body,
                           answer->size);
}

int fedge_http_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t size)
{
    (void)user;
    fedge_peer *peer = lws_get_opaque_user_data(wsi);
    switch ((int)reason) {
    case LWS_CALLBACK_HTTP:
        return peer ? answer_http(peer, wsi, in, size) : -1;
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return -1; /* refuses websockets */
    case LWS_CALLBACK_WSI_DESTROY:
        if (peer) {
            lws_set_opaque_user_data(wsi, NULL);
            fedge_peer_forget(peer);
        }
        return 0;
    default:
        return 0;
    }
}
