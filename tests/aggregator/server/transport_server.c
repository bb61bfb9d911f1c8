/* The transport with an engine that only counts: transport_server DIR (identities of fedge-keys
 * demo). Prints its port. Of each connection's PARTs it checks order and content, and after every
 * third it stops reading for a while; a PART of task 2 is answered with an ACK whose task_id is the
 * number of faults found. Ends on SIGTERM.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/server/conn.h"
#include "aggregator/server/service.h"

#define MAX_CONNECTIONS 2
#define MAX_UNAUTHENTICATED 8
#define MAX_PER_ADDRESS 6
#define PING_AFTER_MS 500
#define SILENT_TIMEOUT_MS 4000
#define NEWCOMER_TIMEOUT_MS 2000

struct fedge_engine {
    fedge_conn *conn; /* the last that has joined */
    uint64_t bytes, parts, pauses, faults, resume_ms;
};

void fedge_engine_welcome(const fedge_engine *engine, uint32_t client_index, fedge_welcome *welcome)
{
    (void)engine;
    *welcome = (fedge_welcome){.protocol = 1,
                               .client_index = client_index,
                               .server_time_ms = 1,
                               .incarnation = 1,
                               .plan_size = 1,
                               .heartbeat_s = 20};
    memset(welcome->run_id, 'a', sizeof(welcome->run_id) - 1);
    memset(welcome->plan, 'b', sizeof(welcome->plan) - 1);
}

fedge_status fedge_engine_join(fedge_engine *engine, fedge_conn *conn, uint64_t now_ms,
                               fedge_error *err)
{
    (void)now_ms, (void)err;
    *engine = (fedge_engine){.conn = conn};
    return FEDGE_OK;
}

void fedge_engine_leave(fedge_engine *engine, fedge_conn *conn, uint64_t now_ms)
{
    (void)now_ms;
    if (engine->conn == conn) {
        engine->conn = NULL;
    }
}

fedge_blob *fedge_engine_find_blob(const fedge_engine *engine, const char *hash)
{
    (void)engine, (void)hash;
    return NULL;
}

void fedge_engine_upload(fedge_engine *engine, fedge_conn *conn, const fedge_upload *upload,
                         const char *meta, uint32_t meta_size, uint64_t now_ms)
{
    (void)engine, (void)conn, (void)upload, (void)meta, (void)meta_size, (void)now_ms;
}

void fedge_engine_part(fedge_engine *engine, fedge_conn *conn, const fedge_position *position,
                       const uint8_t *data, uint32_t size, uint64_t now_ms)
{
    engine->faults += position->offset != engine->bytes;
    for (uint32_t i = 0; i < size; i++) {
        engine->faults += data[i] != (position->offset + i) % 251;
    }
    engine->bytes += size;
    engine->parts++;
    if (engine->parts % 3 == 0) {
        fedge_conn_pause(conn, true);
        engine->resume_ms = now_ms + 1;
        engine->pauses++;
    }
    if (position->task_id == 2) {
        fedge_conn_send_ack(conn, &(fedge_ack){.task_id = engine->faults});
    }
}

void fedge_engine_decline(fedge_engine *engine, fedge_conn *conn, const fedge_notice *notice,
                          uint64_t now_ms)
{
    (void)engine, (void)conn, (void)notice, (void)now_ms;
}

void fedge_engine_count_bytes(fedge_engine *engine, uint64_t up, uint64_t down)
{
    (void)engine, (void)up, (void)down;
}

void fedge_engine_tick(fedge_engine *engine, uint64_t now_ms)
{
    if (engine->resume_ms != 0 && now_ms >= engine->resume_ms && engine->conn) {
        engine->resume_ms = 0;
        fedge_conn_pause(engine->conn, false);
    }
}

void fedge_engine_handle_mail(fedge_engine *engine, uint64_t now_ms)
{
    fedge_engine_tick(engine, now_ms);
}

void fedge_engine_drain(fedge_engine *engine, uint64_t now_ms)
{
    (void)engine, (void)now_ms;
}

bool fedge_engine_done(const fedge_engine *engine, fedge_error *failure)
{
    (void)engine, (void)failure;
    return false;
}

void fedge_engine_get_status(const fedge_engine *engine, fedge_engine_status *status)
{
    (void)engine;
    *status = (fedge_engine_status){.healthy = true};
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
    if (argc != 2) {
        return 2;
    }
    snprintf(identity, sizeof(identity), "%s/server", argv[1]);
    snprintf(trust, sizeof(trust), "%s/trust", argv[1]);
    snprintf(registry, sizeof(registry), "%s/registry", argv[1]);
    fedge_peers *peers = NULL;
    fedge_service *service = NULL;
    fedge_transport *transport = NULL;
    fedge_engine engine = {0};
    check(fedge_peers_new(identity, trust, registry, &log, &peers, &err), &err);
    check(fedge_service_new(&log, NULL, NULL, &service, &err), &err);
    fedge_transport_config config = {.loop = fedge_service_loop(service),
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
    fedge_ending how = fedge_service_run(service, transport, &engine, &err);
    fedge_transport_free(transport);
    fedge_service_free(service);
    fedge_peers_free(peers);
    return how == FEDGE_ENDING_STOPPED ? 0 : 1;
}
