/* The transport with an engine that only counts: transport_server DIR (identities of fedge-keys
 * demo). Prints its port. Of each connection's PARTs it checks order and content, and after every
 * third it stops reading for a while; a PART of task 2 is answered with an ACK whose task_id is the
 * number of faults found. Ends on SIGTERM.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/program/service.h"
#include "aggregator/run/engine_thread.h"

#define MAX_CONNECTIONS 2
#define MAX_UNAUTHENTICATED 8
#define MAX_PER_ADDRESS 6
#define PING_AFTER_MS 500
#define SILENT_TIMEOUT_MS 4000
#define NEWCOMER_TIMEOUT_MS 2000

struct fedge_engine {
    fedge_mailbox *replies;
    uint64_t conn_id; /* of the last that has joined */
    uint64_t bytes, parts, pauses, faults, resume_ms;
};

static void reply_with(fedge_engine *engine, const fedge_reply *content)
{
    fedge_reply *reply = malloc(sizeof(*reply));
    if (!reply)
        abort();
    *reply = *content;
    fedge_mailbox_post(engine->replies, &reply->item);
}

static void join(fedge_engine *engine, const fedge_request *from)
{
    fedge_reply reply = {.type = FEDGE_REPLY_MESSAGE,
                         .conn_id = from->conn_id,
                         .message = FEDGE_MESSAGE_WELCOME,
                         .welcome = {.protocol = 1,
                                     .client_index = from->client_index,
                                     .server_time_ms = 1,
                                     .incarnation = 1,
                                     .plan_size = 1,
                                     .heartbeat_s = 20}};
    memset(reply.welcome.run_id, 'a', sizeof(reply.welcome.run_id) - 1);
    memset(reply.welcome.plan, 'b', sizeof(reply.welcome.plan) - 1);
    *engine = (fedge_engine){.replies = engine->replies, .conn_id = from->conn_id};
    reply_with(engine, &reply);
}

static void take_part(fedge_engine *engine, const fedge_request *from, uint64_t now_ms)
{
    const fedge_position *position = &from->message.position;
    engine->faults += position->offset != engine->bytes;
    for (uint32_t i = 0; i < from->payload_size; i++)
        engine->faults += from->payload[i] != (position->offset + i) % 251;
    engine->bytes += from->payload_size;
    engine->parts++;
    if (engine->parts % 3 == 0) {
        reply_with(engine, &(fedge_reply){.type = FEDGE_REPLY_PAUSE, .conn_id = from->conn_id});
        engine->resume_ms = now_ms + 1;
        engine->pauses++;
    }
    if (position->task_id == 2) {
        reply_with(engine, &(fedge_reply){.type = FEDGE_REPLY_MESSAGE,
                                          .conn_id = from->conn_id,
                                          .message = FEDGE_MESSAGE_ACK,
                                          .ack = {.task_id = engine->faults}});
    }
}

void fedge_engine_hand_over(fedge_engine *engine)
{
    (void)engine;
}

void fedge_engine_handle(fedge_engine *engine, fedge_request *request, uint64_t now_ms)
{
    if (request->type == FEDGE_REQUEST_JOIN)
        join(engine, request);
    else if (request->type == FEDGE_REQUEST_MESSAGE && request->message.type == FEDGE_MESSAGE_PART)
        take_part(engine, request, now_ms);
    fedge_request_free(request);
}

void fedge_engine_resume_all(fedge_engine *engine)
{
    reply_with(engine, &(fedge_reply){.type = FEDGE_REPLY_RESUME});
}

void fedge_engine_tick(fedge_engine *engine, uint64_t now_ms)
{
    if (engine->resume_ms != 0 && now_ms >= engine->resume_ms) {
        engine->resume_ms = 0;
        fedge_engine_resume_all(engine);
    }
}

void fedge_engine_handle_completions(fedge_engine *engine, uint64_t now_ms)
{
    fedge_engine_tick(engine, now_ms);
}

bool fedge_engine_done(const fedge_engine *engine, fedge_error *failure)
{
    (void)engine, (void)failure;
    return false;
}

void fedge_engine_get_status(const fedge_engine *engine, fedge_run_status *status)
{
    (void)engine;
    *status = (fedge_run_status){.healthy = true};
}

static void write_log(void *user, const char *line, size_t size)
{
    (void)user;
    (void)fwrite(line, 1, size, stderr);
}

static void check(fedge_status status, const fedge_error *err)
{
    if (status != FEDGE_OK) {
        fprintf(stderr, "transport_server: %s\n", err->message);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    fedge_log log = {.level = FEDGE_LOG_DEBUG, .write = write_log};
    fedge_error err;
    char identity[512];
    char trust[512];
    char registry[512];
    if (argc != 2)
        return 2;
    snprintf(identity, sizeof(identity), "%s/server", argv[1]);
    snprintf(trust, sizeof(trust), "%s/trust", argv[1]);
    snprintf(registry, sizeof(registry), "%s/registry", argv[1]);
    fedge_peers *peers = NULL;
    fedge_service *service = NULL;
    fedge_transport *transport = NULL;
    fedge_engine engine = {0};
    fedge_engine_thread *thread = NULL;
    check(fedge_peers_new(identity, trust, registry, &log, &peers, &err), &err);
    check(fedge_service_new(&(fedge_service_config){.log = &log}, &service, &err), &err);
    check(fedge_engine_thread_new(&thread, fedge_service_wake, service, &err), &err);
    engine.replies = fedge_engine_thread_replies(thread);
    const char *threads = getenv("FEDGE_TEST_NETWORK_THREADS");
    fedge_transport_config config = {.loop = fedge_service_loop(service),
                                     .num_threads = threads ? (uint32_t)atoi(threads) : 1,
                                     .listen = {.host = "127.0.0.1"},
                                     .max_connections = MAX_CONNECTIONS,
                                     .max_unauthenticated = MAX_UNAUTHENTICATED,
                                     .max_per_address = MAX_PER_ADDRESS,
                                     .ping_after_ms = PING_AFTER_MS,
                                     .silent_timeout_ms = SILENT_TIMEOUT_MS,
                                     .newcomer_timeout_ms = NEWCOMER_TIMEOUT_MS,
                                     .peers = peers,
                                     .log = &log};
    check(fedge_transport_new(&config, &transport, &err), &err);
    uint16_t port = 0;
    uint16_t http = 0;
    fedge_transport_ports(transport, &port, &http);
    printf("%u\n", port);
    fflush(stdout);
    fedge_engine_thread_deliver_to(thread, fedge_transport_deliver, transport);
    check(fedge_engine_thread_start(thread, &engine, &err), &err);
    fedge_ending how = fedge_service_run(service, transport, thread, &err);
    fedge_engine_thread_stop(thread);
    fedge_transport_free(transport);
    fedge_engine_thread_free(thread);
    fedge_service_free(service);
    fedge_peers_free(peers);
    return how == FEDGE_ENDING_STOPPED ? 0 : 1;
}
