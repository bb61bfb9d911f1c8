#include "tests/world/server.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/cluster/ranks.h"
#include "aggregator/exchange/exchange.h"
#include "aggregator/net/conn.h"
#include "aggregator/program/service.h"
#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/strategy.h"
#include "aggregator/run/engine.h"
#include "aggregator/run/engine_thread.h"
#include "aggregator/run/exit_codes.h"
#include "edge/core/os.h"
#include "tests/world/disk.h"
#include "tests/world/gpus.h"
#include "tests/world/network.h"
#include "tests/world/observer.h"
#include "tests/world/ranks.h"
#include "tests/world/scheduler.h"

/* CONN_TAG_SHIFT: position of fedge_slots_tag in the ids of connections. */
enum { MAX_PEERS = 64, CONN_TAG_SHIFT = 20 };
#define MS 1000000u
#define SILENT_MS 60000

typedef struct peer {
    world_connection *connection; /* NULL: free */
    fedge_conn *conn;
    bool waits, dropping, pinged;
    uint64_t heard_ms;
} peer;

/* State of the process. It lies on the process's heap, so that a kill frees it. */
typedef struct process {
    world_server *config;
    uint32_t node;
    world_signals *signals;
    fedge_collective collective; /* alone: a server of one process */
    fedge_ranks *ranks;          /* NULL: alone */
    fedge_rank_link link;
    fedge_rank_worker
        *worker; /* worker of a rank other than 0; NULL: rank 0 receives all updates */
    fedge_job *job;
    fedge_engine_thread *thread;
    fedge_engine *engine;
    fedge_evaluator *evaluator;
    fedge_mailbox *replies;
    fedge_conn_budget budget;
    peer peers[MAX_PEERS];
    uint64_t next_conn_id;
    atomic_bool awake;
    bool ending;
    fedge_ending how;
    uint64_t end_ms, next_tick_ms, next_second_ms;
    fedge_error failure;
    uint8_t in[FEDGE_MESSAGE_MAX_SIZE], out[FEDGE_MESSAGE_MAX_SIZE];
} process;

static void wake(void *user)
{
    process *self = user;
    atomic_store(&self->awake, true);
    world_wake_all(world_net_address(self->node));
}

void world_server_signal(uint32_t rank)
{
    world_wake_all(world_net_address(world_rank_node(rank)));
}

static bool leads(const process *self)
{
    return self->collective.rank == 0;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void carry_out(process *self, peer *of)
{
    fedge_conn_action action;
    bool goes_on = true;
    const fedge_run_link link = fedge_engine_thread_link(self->thread);
    while (fedge_conn_next_action(of->conn, &action)) {
        switch (action.type) {
        case FEDGE_CONN_NOTE:
            fedge_log_write(world_observed_log(), action.note->level, action.note->event,
                            action.note->fields, action.note->num_fields);
            break;
        case FEDGE_CONN_REQUEST:
            goes_on = link.post(link.run, action.request) && goes_on;
            break;
        case FEDGE_CONN_PAUSE:
        case FEDGE_CONN_RESUME:
            of->heard_ms = fedge_os_monotonic_ms();
            world_net_pause(of->connection, NET_SERVER_END, action.type == FEDGE_CONN_PAUSE);
            break;
        case FEDGE_CONN_WAIT:
            of->waits = true;
            break;
        case FEDGE_CONN_DROP:
            of->dropping = true;
            break;
        case FEDGE_CONN_REPLACED:
        case FEDGE_CONN_WRITE:
            break; /* writing is tried in every turn of the loop */
        }
    }
    if (!goes_on) {
        const fedge_reply pause = {.type = FEDGE_REPLY_PAUSE};
        fedge_conn_take(of->conn, &pause, fedge_os_monotonic_ms());
        carry_out(self, of); /* pausing posts nothing */
    }
}

static void end_peer(process *self, peer *of)
{
    fedge_conn_end(of->conn);
    carry_out(self, of);
    fedge_conn_free(of->conn);
    world_net_close(of->connection, NET_SERVER_END);
    *of = (peer){0};
}

static void accept_one(process *self, world_connection *connection)
{
    const uint32_t client = world_net_client(connection);
    fedge_registry_match match = {
        .index = client, .role = FEDGE_ROLE_DEVICE, .state = FEDGE_CERTIFICATE_ACTIVE};
    peer *of = self->peers;
    fedge_error err;
    while (of < self->peers + MAX_PEERS && of->connection)
        of++;
    if (!self->config->admitted[client] || self->ending || of == self->peers + MAX_PEERS) {
        world_net_refuse(connection, self->config->admitted[client] ? 503 : 403);
        return;
    }
    (void)snprintf(match.device_id, sizeof(match.device_id), "00000000-0000-4000-8000-%012u",
                   (unsigned)client);
    const uint64_t now_ms = fedge_os_monotonic_ms();
    const uint64_t tag = fedge_ranks_first_tag(&self->collective);
    if (fedge_conn_new(&of->conn, ++self->next_conn_id << 32 | tag << CONN_TAG_SHIFT, &match,
                       fedge_engine_thread_traffic(self->thread), &self->budget, now_ms,
                       &err) != FEDGE_OK) {
        world_net_refuse(connection, 503);
        return;
    }
    of->connection = connection;
    of->heard_ms = now_ms;
    world_net_admit(connection);
}

static void receive(process *self, peer *of)
{
    world_arrival arrival;
    while (!of->dropping && world_net_receive(of->connection, NET_SERVER_END, self->in,
                                              sizeof(self->in), &arrival)) {
        of->heard_ms = fedge_os_monotonic_ms();
        of->pinged = false;
        if (arrival.size == 0) {
            world_net_send(of->connection, NET_SERVER_END, NULL, 0);
        } else {
            fedge_conn_receive(of->conn, self->in, arrival.size, arrival.final, of->heard_ms);
            carry_out(self, of);
        }
    }
}

static void write_frames(process *self, peer *of)
{
    while (!of->dropping && fedge_conn_has_frames(of->conn) &&
           world_net_may_send(of->connection, NET_SERVER_END)) {
        fedge_conn_chunk chunk;
        fedge_error err;
        if (fedge_conn_next_chunk(of->conn, &chunk) &&
            fedge_blob_read(chunk.blob, chunk.offset, self->out + chunk.at, chunk.size, &err) !=
                FEDGE_OK) {
            of->dropping = true;
            return;
        }
        const size_t size = fedge_conn_next_frame(of->conn, self->out);
        carry_out(self, of);
        if (size > 0 && !of->dropping) {
            world_observe_server_sent(world_net_client(of->connection),
                                      !world_net_is_left(of->connection, NET_SERVER_END), self->out,
                                      size);
            world_net_send(of->connection, NET_SERVER_END, self->out, size);
        }
    }
}

static void serve_peer(process *self, peer *of)
{
    receive(self, of);
    if (!of->dropping && of->waits)
        of->waits = !fedge_conn_reserve_frame(of->conn, fedge_os_monotonic_ms());
    carry_out(self, of);
    write_frames(self, of);
    if (of->dropping || fedge_conn_should_close(of->conn) ||
        world_net_is_over(of->connection, NET_SERVER_END))
        end_peer(self, of);
}

static void close_all(process *self, fedge_reason reason, uint64_t after_ms, const char *text)
{
    const uint64_t now_ms = fedge_os_monotonic_ms();
    for (peer *of = self->peers; of < self->peers + MAX_PEERS; of++) {
        if (of->connection) {
            fedge_conn_close(of->conn, FEDGE_MESSAGE_BYE, reason, after_ms, text, now_ms);
            carry_out(self, of);
        }
    }
}

/* Tells devices that a reload no longer admits and disconnects them. */
static void recheck(process *self)
{
    for (peer *of = self->peers; of < self->peers + MAX_PEERS; of++) {
        if (of->connection && !self->config->admitted[world_net_client(of->connection)] &&
            !fedge_conn_is_closing(of->conn)) {
            fedge_conn_close(of->conn, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_REVOKED, 0,
                             "the certificate was revoked", fedge_os_monotonic_ms());
            carry_out(self, of);
        }
    }
}

static void tick_peers(process *self, uint64_t now_ms)
{
    const uint64_t ping_ms = (uint64_t)1000 * self->config->heartbeat_s;
    for (peer *of = self->peers; of < self->peers + MAX_PEERS; of++) {
        if (!of->connection)
            continue;
        fedge_conn_tick(of->conn, now_ms);
        carry_out(self, of);
        if (now_ms >= of->heard_ms + SILENT_MS) {
            of->dropping = true;
        } else if (!of->pinged && now_ms >= of->heard_ms + ping_ms) {
            of->pinged = true;
            world_net_send(of->connection, NET_SERVER_END, NULL, 0);
        }
    }
}

/* ---- the engine's replies -------------------------------------------------------------------- */

static fedge_status deliver(void *user, fedge_reply *reply, fedge_error *err)
{
    (void)err;
    fedge_mailbox_post(((process *)user)->replies, &reply->item);
    return FEDGE_OK;
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
fedge_status __wrap_fedge_transport_deliver(void *transport, fedge_reply *reply, fedge_error *err);

/* The ranks use this process as their transport. */
fedge_status __wrap_fedge_transport_deliver(void *transport, fedge_reply *reply, fedge_error *err)
{
    return deliver(transport, reply, err);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static void take_replies(process *self)
{
    const uint64_t now_ms = fedge_os_monotonic_ms();
    fedge_mailbox_item *item = fedge_mailbox_take(self->replies);
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        fedge_reply *reply = (fedge_reply *)item;
        for (peer *of = self->peers; of < self->peers + MAX_PEERS; of++) {
            if (of->connection &&
                (reply->conn_id == FEDGE_CONN_ALL || reply->conn_id == fedge_conn_id(of->conn))) {
                fedge_conn_take(of->conn, reply, now_ms);
                carry_out(self, of);
            }
        }
        fedge_reply_free(reply);
    }
}

static void take_rounds(process *self)
{
    fedge_reply *reply = fedge_engine_thread_take(self->thread);
    for (fedge_reply *next; reply; reply = next) {
        next = (fedge_reply *)reply->item.next;
        if (reply->type == FEDGE_REPLY_ROUND)
            world_observe_round(&reply->summary);
        fedge_reply_free(reply);
    }
}

/* ---- the service ----------------------------------------------------------------------------- */

static void begin_end(process *self, fedge_ending how, uint64_t timeout_ms, fedge_reason reason,
                      const char *text)
{
    self->ending = true;
    self->how = how;
    self->end_ms = fedge_os_monotonic_ms() + timeout_ms;
    world_net_listen(false);
    close_all(self, reason,
              reason == FEDGE_REASON_RUN_COMPLETE ? 0
              : self->ranks                       ? FEDGE_RANKS_RECONNECT_MS
                                                  : FEDGE_SERVICE_AWAY_MS,
              text);
}

static uint32_t count_peers(const process *self)
{
    uint32_t count = 0;
    for (const peer *of = self->peers; of < self->peers + MAX_PEERS; of++)
        count += of->connection != NULL;
    return count;
}

/* False: the service has ended. */
static bool look(process *self, uint64_t now_ms)
{
    fedge_error failure;
    const bool done = fedge_engine_thread_done(self->thread, &failure);
    take_rounds(self);
    if (self->ending)
        return now_ms < self->end_ms && count_peers(self) > 0;
    if (!done)
        return true;
    self->failure = failure;
    fedge_run_status status;
    fedge_engine_thread_status(self->thread, &status);
    if (failure.status != FEDGE_OK) {
        begin_end(self, FEDGE_ENDING_FAILED, FEDGE_SERVICE_STOP_MS, FEDGE_REASON_INTERNAL,
                  "the aggregator failed and must be restarted");
    } else if (status.complete) {
        begin_end(self, FEDGE_ENDING_COMPLETE, FEDGE_SERVICE_FINISH_MS, FEDGE_REASON_RUN_COMPLETE,
                  "all rounds are done");
    } else {
        begin_end(self, FEDGE_ENDING_DRAINED, FEDGE_SERVICE_FINISH_MS, FEDGE_REASON_SHUTTING_DOWN,
                  "the aggregator has ended after a round");
    }
    return true;
}

/* Applies a changed list of GPUs, as main.c does after SIGHUP. */
static void change_gpus(process *self)
{
    fedge_request *request = calloc(1, sizeof(*request));
    self->signals->gpus_changed = false;
    if (request) {
        request->type = FEDGE_REQUEST_GPUS;
        request->sums.num_lanes = 1;
        world_gpus_configure(&request->sums);
        (void)fedge_engine_thread_post(self->thread, request);
    }
}

/* Called by the fiber that hangs. In the product another thread calls it; the result is the same.
 */
static void on_stuck(const fedge_error *err)
{
    world_observe_exit(world_node(), FEDGE_EXIT_GPU, err->message);
    world_die();
}

static void take_signals(process *self)
{
    if (self->signals->gpus_changed)
        change_gpus(self);
    if (self->signals->reload) {
        self->signals->reload = false;
        recheck(self);
        fedge_ranks_reload(self->ranks);
    }
    if (self->signals->drain) {
        fedge_request *request = calloc(1, sizeof(*request));
        self->signals->drain = false;
        if (request) {
            request->type = FEDGE_REQUEST_DRAIN;
            (void)fedge_engine_thread_post(self->thread, request);
        }
    }
    if (self->signals->stop && !self->ending) {
        self->signals->stop = false;
        begin_end(self, FEDGE_ENDING_STOPPED, FEDGE_SERVICE_STOP_MS, FEDGE_REASON_SHUTTING_DOWN,
                  "the aggregator stops; the run goes on when it starts again");
    }
}

/* One pass of the loop; false: the service has ended. */
static bool serve_once(process *self)
{
    bool goes_on = true;
    atomic_store(&self->awake, false);
    take_replies(self);
    take_signals(self);
    for (world_connection *made = world_net_accept(); made; made = world_net_accept())
        accept_one(self, made);
    for (peer *of = self->peers; of < self->peers + MAX_PEERS; of++) {
        if (of->connection)
            serve_peer(self, of);
    }
    const uint64_t now_ms = fedge_os_monotonic_ms();
    if (now_ms >= self->next_second_ms) {
        self->next_second_ms = now_ms + 1000;
        tick_peers(self, now_ms);
    }
    if (now_ms >= self->next_tick_ms) {
        self->next_tick_ms = now_ms + FEDGE_SERVICE_TICK_MS;
        goes_on = look(self, now_ms);
    }
    return goes_on;
}

static void wait_for_work(process *self)
{
    const uint64_t now_ms = world_monotonic_ns() / MS;
    const bool busy = atomic_load(&self->awake) || self->next_tick_ms <= now_ms;
    world_net_wait(self->node, busy ? 0 : world_now_ns() + (self->next_tick_ms - now_ms) * MS);
}

/* ---- the process ----------------------------------------------------------------------------- */

static uint32_t num_registered(void *server)
{
    return ((world_server *)server)->num_devices;
}

/* Whether each rank sums its own updates. main.c decides this in the same way. */
static bool ranks_sum_updates(const process *self)
{
    const fedge_strategy_ops *strategy = NULL;
    fedge_error err;
    return !fedge_collective_is_alone(&self->collective) &&
           fedge_strategy_of(self->job, &strategy, &err) == FEDGE_OK && !strategy->collects;
}

static void send_order(void *user, uint32_t to, const fedge_order *order, const void *bytes)
{
    fedge_ranks_send_order(((process *)user)->ranks, to, order, bytes);
}

static fedge_status join_sums(void *user, fedge_accumulator *accumulator, fedge_error *err)
{
    return fedge_ranks_join_sums(((process *)user)->ranks, accumulator, err);
}

static fedge_status prepare(process *self, fedge_error *err)
{
    const char *text = self->config->job_text;
    FEDGE_TRY(fedge_strategy_job_parse(text, strlen(text), "job.json", &self->job, err));
    if (leads(self))
        FEDGE_TRY(fedge_evaluator_new(self->job, &self->evaluator, err));
    FEDGE_TRY(fedge_mailbox_new(&self->replies, wake, self, err));
    return fedge_engine_thread_new(&self->thread, wake, self, err);
}

static fedge_accumulator_config configure_sums(const process *self)
{
    fedge_accumulator_config sums = {.num_lanes = 1,
                                     .stuck = on_stuck,
                                     .distributed = ranks_sum_updates(self),
                                     .log = world_observed_log()};
    world_gpus_configure(&sums);
    return sums;
}

static fedge_status open_rank_worker(process *self, fedge_error *err)
{
    const fedge_rank_worker_config config = {.job = self->job,
                                             .state_dir = WORLD_DISK_ROOT "/state",
                                             .num_workers = self->config->num_workers,
                                             .accumulator = self->config->accumulator,
                                             .sums = configure_sums(self),
                                             .collective = &self->collective,
                                             .log = world_observed_log()};
    return ranks_sum_updates(self) ? fedge_rank_worker_open(&config, &self->worker, err) : FEDGE_OK;
}

static fedge_status open_run(process *self, fedge_error *err)
{
    world_server *config = self->config;
    self->link = (fedge_rank_link){.collective = &self->collective,
                                   .send_order = send_order,
                                   .join_sums = join_sums,
                                   .user = self};
    const fedge_engine_config engine = {
        .job = self->job,
        .run = {.job = config->job_text, .job_size = strlen(config->job_text)},
        .evaluator = self->evaluator,
        .state_dir = WORLD_DISK_ROOT "/state",
        .restored = config->restored,
        .num_workers = config->num_workers,
        .accumulator = config->accumulator,
        .sums = configure_sums(self),
        .num_registered = num_registered,
        .registry = config,
        .ranks = ranks_sum_updates(self) ? &self->link : NULL,
        .return_every_us = 10000,
        .heartbeat_s = config->heartbeat_s,
        .log = world_observed_log(),
        .wake = fedge_engine_thread_wake,
        .wake_user = self->thread,
        .replies = fedge_engine_thread_replies(self->thread),
        .traffic = fedge_engine_thread_traffic(self->thread)};
    FEDGE_TRY(fedge_engine_new(&engine, fedge_os_monotonic_ms(), &self->engine, err));
    config->restored = false;
    fedge_run_status status;
    fedge_engine_get_status(self->engine, &status);
    world_observe_opened(&status);
    return FEDGE_OK;
}

static fedge_status open_ranks(process *self, fedge_error *err)
{
    const fedge_ranks_config config = {
        .collective = &self->collective,
        .engine = self->thread,
        .transport = (fedge_transport *)self,
        .worker = self->worker,
        .sum_bytes = fedge_plan_update_layout(&self->job->plan).num_elements * sizeof(int64_t),
        .log = world_observed_log()};
    return fedge_ranks_new(&config, &self->ranks, err);
}

/* Waits until all ranks have reached this point. If one has failed, all fail. *code: the exit code
 * of a failure of this step, then the program's exit code. */
static bool agree(const process *self, fedge_status status, int *code, fedge_error *err)
{
    status = fedge_collective_agree(&self->collective, status, NULL, 0, err);
    if (status != FEDGE_OK)
        *code = fedge_exit_code_of(status, (fedge_exit_code)*code);
    return status == FEDGE_OK;
}

static int conclude(process *self, fedge_error *err)
{
    fedge_run_status status;
    if (self->how == FEDGE_ENDING_FAILED) {
        *err = self->failure;
        return fedge_exit_code_of(self->failure.status, FEDGE_EXIT_FAILURE);
    }
    (void)fedge_fail(err, FEDGE_OK, "%s", self->how == FEDGE_ENDING_STOPPED ? "stopped" : "done");
    if (self->how == FEDGE_ENDING_STOPPED || !leads(self))
        return FEDGE_EXIT_OK;
    fedge_error failure;
    fedge_status written = fedge_engine_export(self->engine, &failure);
    fedge_engine_get_status(self->engine, &status);
    if (written == FEDGE_OK && self->how == FEDGE_ENDING_COMPLETE)
        world_observe_complete(&status);
    if (written == FEDGE_OK)
        written = fedge_engine_conclude(self->engine, &failure);
    if (written != FEDGE_OK) {
        *err = failure;
        return fedge_exit_code_of(failure.status, FEDGE_EXIT_FAILURE);
    }
    return FEDGE_EXIT_OK;
}

static fedge_status start_threads(process *self, fedge_error *err)
{
    if (!self->ranks)
        fedge_engine_thread_deliver_to(self->thread, deliver, self);
    if (leads(self))
        FEDGE_TRY(fedge_engine_thread_start(self->thread, self->engine, err));
    return self->ranks ? fedge_ranks_start(self->ranks, err) : FEDGE_OK;
}

static int serve(process *self, fedge_error *err)
{
    if (start_threads(self, err) != FEDGE_OK) {
        const int code = fedge_exit_code_of(err->status, FEDGE_EXIT_FAILURE);
        fedge_collective_abort(&self->collective, code);
        return code;
    }
    world_net_listen(true);
    while (serve_once(self))
        wait_for_work(self);
    for (peer *of = self->peers; of < self->peers + MAX_PEERS; of++) {
        if (of->connection)
            end_peer(self, of);
    }
    fedge_engine_thread_stop(self->thread);
    fedge_ranks_end(self->ranks, self->how == FEDGE_ENDING_STOPPED);
    fedge_rank_worker_stop(self->worker);
    return conclude(self, err);
}

static int run(process *self, fedge_error *err)
{
    int code = FEDGE_EXIT_FAILURE;
    if (!agree(self, prepare(self, err), &code, err))
        return code;
    code = FEDGE_EXIT_STATE;
    if (!agree(self, leads(self) ? open_run(self, err) : open_rank_worker(self, err), &code, err))
        return code;
    code = FEDGE_EXIT_FAILURE;
    if (!fedge_collective_is_alone(&self->collective) &&
        !agree(self, open_ranks(self, err), &code, err))
        return code;
    return serve(self, err);
}

void world_server_main(void *server)
{
    process *self = malloc(sizeof(*self));
    fedge_error err = {0};
    memset(self, 0, offsetof(process, in)); /* the buffers need no zeros */
    self->config = server;
    self->node = world_node();
    self->signals = &self->config->signals[world_rank_of(self->node)];
    self->budget.limit = self->config->queue_bytes;
    world_ranks_open(&self->collective);
    const int code = run(self, &err);
    fedge_engine_thread_stop(self->thread);
    fedge_engine_free(self->engine);
    fedge_rank_worker_free(self->worker);
    fedge_ranks_free(self->ranks);
    if (self->replies)
        take_replies(self);
    fedge_engine_thread_free(self->thread);
    fedge_mailbox_free(self->replies);
    fedge_evaluator_free(self->evaluator);
    fedge_job_free(self->job);
    fedge_collective_close(&self->collective);
    const uint32_t node = self->node;
    free(self);
    world_observe_exit(node, code, err.message);
}
