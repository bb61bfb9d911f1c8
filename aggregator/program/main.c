/* fedge-aggregator. */
#define _GNU_SOURCE /* sleep and _exit are POSIX, not C11 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/cluster/ranks.h"
#include "aggregator/cluster/start.h"
#include "aggregator/net/peers.h"
#include "aggregator/net/transport.h"
#include "aggregator/program/options.h"
#include "aggregator/program/rank_launcher.h"
#include "aggregator/program/service.h"
#include "aggregator/program/supervisor.h"
#include "aggregator/reduce/collective.h"
#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/progress.h"
#include "aggregator/rounds/strategy.h"
#include "aggregator/rounds/strategy_plugin.h"
#include "aggregator/run/engine.h"
#include "aggregator/run/engine_thread.h"
#include "aggregator/run/exit_codes.h"
#include "aggregator/run/server_run.h"
#include "edge/core/os.h"
#include "edge/core/version.h"
#include "secure/crypto/ciphers.h"

#define MAX_DEFAULT_WORKERS 8

/* The program's objects, in the order of their creation. */
typedef struct program {
    fedge_options options;
    fedge_supervised supervised; /* all 0 if unused */
    fedge_log log;
    fedge_plugin *plugin; /* NULL: none */
    char *job_text;
    size_t job_size;
    fedge_job *job;
    fedge_evaluator *evaluator; /* NULL: the job has no test set */
    fedge_peers *peers;
    fedge_service *service;
    fedge_transport *transport;
    fedge_engine *engine;
    fedge_engine_thread *engine_thread;
    fedge_collective collective; /* ranks started by mpirun; alone without it */
    fedge_ranks *ranks;          /* NULL: alone */
    fedge_rank_link link;        /* connects the other ranks' workers to rank 0 */
    fedge_rank_worker *worker;   /* worker of other ranks; NULL if rank 0 gets all updates */
    pthread_mutex_t output;  /* shared by the log and the progress bar, which use one terminal */
    fedge_progress progress; /* [out] is NULL if unwanted */
} program;

static bool leads(const program *self)
{
    return self->collective.rank == 0;
}

static void write_log(void *user, const char *line, size_t size)
{
    program *self = user;
    pthread_mutex_lock(&self->output);
    fedge_progress_clear(&self->progress);
    (void)fwrite(line, 1, size, stderr);
    pthread_mutex_unlock(&self->output);
}

static void on_round(void *user, const fedge_round_summary *summary)
{
    program *self = user;
    if (self->progress.out) {
        pthread_mutex_lock(&self->output);
        fedge_progress_round(&self->progress, summary);
        pthread_mutex_unlock(&self->output);
    }
}

static void on_tick(void *user)
{
    program *self = user;
    if (self->progress.terminal) {
        fedge_run_status status;
        fedge_engine_thread_status(self->engine_thread, &status);
        pthread_mutex_lock(&self->output);
        fedge_progress_draw(&self->progress, status.rounds_closed, status.state);
        pthread_mutex_unlock(&self->output);
    }
}

/* SIGHUP at any rank: all reload, and each reads its GPUs for the next round. */
static void on_reload(void *user)
{
    program *self = user;
    fedge_error err;
    fedge_accumulator_config sums = self->options.sums;
    fedge_ranks_reload(self->ranks);
    if (!self->options.gpus_file || (!leads(self) && !self->worker))
        return;
    if (self->worker) {
        if (fedge_gpus_file_read(self->options.gpus_file, &sums, &err) != FEDGE_OK ||
            fedge_rank_worker_change_gpus(self->worker, &sums, &err) != FEDGE_OK)
            fedge_log_failure(&self->log, FEDGE_LOG_ERROR, "gpus-refused", &err);
        return;
    }
    fedge_request *request = calloc(1, sizeof(*request));
    fedge_status status =
        request ? fedge_gpus_file_read(self->options.gpus_file, &sums, &err)
                : fedge_fail(&err, FEDGE_NO_MEMORY, "no memory to pass the GPUs on; ask again");
    if (status != FEDGE_OK) {
        fedge_log_failure(&self->log, FEDGE_LOG_ERROR, "gpus-refused", &err);
        free(request);
        return;
    }
    request->type = FEDGE_REQUEST_GPUS;
    request->sums = sums;
    (void)fedge_engine_thread_post(self->engine_thread, request);
}

/* Called on another thread while one of this process is stuck waiting for a GPU. */
static void on_stuck(const fedge_error *err)
{
    fprintf(stderr, "fedge-aggregator: %s\n", err->message);
    _exit(FEDGE_EXIT_GPU);
}

static int fail(const fedge_error *err, fedge_exit_code otherwise)
{
    fprintf(stderr, "fedge-aggregator: %s\n", err->message);
    return fedge_exit_code_of(err->status, otherwise);
}

static void warn_of_too_few(const program *self)
{
    const fedge_registry_counts counts = fedge_peers_count(self->peers);
    if (counts.active >= self->job->rounds.min_available_nodes)
        return;
    FEDGE_LOG(&self->log, FEDGE_LOG_WARN, "too-few-devices",
              fedge_log_int("registered", fedge_peers_num_devices(self->peers)),
              fedge_log_int("active", counts.active),
              fedge_log_int("min-available-nodes", self->job->rounds.min_available_nodes),
              fedge_log_str("advice",
                            "rounds start once that many are active: sign more devices with "
                            "fedge-keys sign, activate pending ones with fedge-keys activate, or "
                            "lower rounds.min-available-nodes"));
}

/* Checks everything that needs neither the state directory nor a port. */
static fedge_status load(program *self, fedge_error *err)
{
    uint8_t *text = NULL;
    const fedge_options *options = &self->options;
    FEDGE_TRY(fedge_os_read_file(options->job, FEDGE_JOB_MAX_SIZE, &text, &self->job_size, err));
    self->job_text = (char *)text;
    if (options->strategy_plugin) {
        FEDGE_TRY(fedge_plugin_load(options->strategy_plugin, options->strategy_timeout_s,
                                    &self->plugin, err));
    }
    FEDGE_TRY(fedge_strategy_job_parse_with(fedge_plugin_readers(self->plugin), self->job_text,
                                            self->job_size, options->job, &self->job, err));
    fedge_plugin_serve(self->plugin, self->job);
    FEDGE_TRY(fedge_check_selection(self->job, options->job, &self->log, err));
    fedge_error unused;
    if (leads(self) && !fedge_plugin_is_used(self->plugin, self->job, &unused))
        fedge_log_failure(&self->log, FEDGE_LOG_WARN, "plugin-unused", &unused);
    if (self->job->rounds.buffer_size > 0 && self->collective.num_ranks > 1) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s: strategy.type: %s takes updates in one process: run "
                          "fedge-aggregator without mpirun, or take another strategy",
                          options->job, self->job->strategy);
    }
    self->options.sums.stuck = on_stuck;
    if (options->gpus_file)
        FEDGE_TRY(fedge_gpus_file_read(options->gpus_file, &self->options.sums, err));
    if (leads(self)) {
        FEDGE_TRY(fedge_evaluator_new(self->job, &self->evaluator, err));
        FEDGE_TRY(fedge_evaluator_add_plugin(&self->evaluator, self->job, self->plugin, err));
        FEDGE_TRY(fedge_check_initial_model(self->job, err));
        /* Allocates what the strategy needs, as at the start of a run. */
        FEDGE_TRY(fedge_global_model_check(self->job, &self->options.sums, err));
        if (options->result)
            FEDGE_TRY(fedge_check_result_path(options->result, err));
    }
    FEDGE_TRY(fedge_ciphers_check(err));
    FEDGE_TRY(fedge_peers_new(options->identity, options->trust, options->registry, &self->log,
                              &self->peers, err));
    warn_of_too_few(self);
    return FEDGE_OK;
}

static int code_of_loading(const program *self, fedge_error *err)
{
    if (err->status == FEDGE_IO && !fedge_check_paths(&self->options))
        err->status = FEDGE_INVALID_ARGUMENT;
    return FEDGE_EXIT_CONFIG;
}

/* The other ranks wait for this one, so all end. */
static int abandon(program *self, int code)
{
    fedge_collective_abort(&self->collective, code);
    return code;
}

static int report_check(const program *self)
{
    char description[FEDGE_ACCUMULATOR_MAX_DESCRIPTION];
    fedge_error err;
    const fedge_update_layout layout = fedge_plan_update_layout(&self->job->plan);
    fedge_accumulator_config config = self->options.sums;
    const fedge_strategy_ops *strategy = NULL;
    const unsigned devices = fedge_peers_count(self->peers).active;
    const unsigned needed = self->job->rounds.min_available_nodes;
    config.layout = &layout;
    config.log = &self->log; /* the reason why GPUs are not used */
    if (fedge_strategy_of(self->job, &strategy, &err) == FEDGE_OK)
        config.num_moments = strategy->num_moments;
    if (fedge_accumulator_forecast(self->options.accumulator, &config, description,
                                   sizeof(description), &err) != FEDGE_OK)
        return fail(&err, FEDGE_EXIT_CONFIG);
    if (self->options.json) {
        for (char *at = strchr(description, '\n'); at; at = strchr(at, '\n'))
            *at = ';';
        printf("{\"status\":\"ok\",\"devices\":%u,\"devices_needed\":%u,\"sums\":\"%s\"}\n",
               devices, needed, description);
    } else {
        printf("%s\nconfiguration ok", description);
        if (devices < needed)
            printf(", but no round starts: of %u devices needed, %u are active", needed, devices);
        printf("\n");
    }
    return FEDGE_EXIT_OK;
}

/* A connection needs a file descriptor: with too few, fewer connections are allowed. */
static fedge_status limit_connections(program *self, fedge_error *err)
{
    uint32_t granted = 0;
    fedge_options *options = &self->options;
    const uint32_t others =
        FEDGE_OTHER_FILES + FEDGE_FILES_PER_NETWORK_THREAD * options->num_network_threads;
    uint32_t wanted = options->max_connections + options->max_unauthenticated + others;
    fedge_status status = fedge_raise_file_limit(wanted, &granted, err);
    if (status != FEDGE_OK || granted >= wanted)
        return status;
    if (granted < 2 * others) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%u open files are allowed, at least %u are needed: raise the hard limit "
                          "(ulimit -Hn, LimitNOFILE=)",
                          granted, 2 * others);
    }
    uint32_t available = granted - others;
    if (options->max_unauthenticated > available / 4)
        options->max_unauthenticated = available / 4;
    available -= options->max_unauthenticated;
    if (options->max_connections > available)
        options->max_connections = available;
    /* Not worth reporting while the registry is far below the limit. */
    const uint64_t devices = fedge_peers_num_devices(self->peers);
    const fedge_log_level level = options->max_connections < devices       ? FEDGE_LOG_WARN
                                  : options->max_connections < 2 * devices ? FEDGE_LOG_INFO
                                                                           : FEDGE_LOG_DEBUG;
    FEDGE_LOG(&self->log, level, "fewer-connections",
              fedge_log_int("max-connections", options->max_connections),
              fedge_log_int("max-unauthenticated", options->max_unauthenticated),
              fedge_log_int("open-files-allowed", granted),
              fedge_log_str("advice", "raise the hard limit: ulimit -Hn, LimitNOFILE="));
    return FEDGE_OK;
}

static fedge_status open_ports(program *self, fedge_error *err)
{
    fedge_transport_config config = {.loop = fedge_service_loop(self->service),
                                     .num_threads = self->options.num_network_threads,
                                     .first_tag = fedge_ranks_first_tag(&self->collective),
                                     .listen = self->options.listen,
                                     .http = self->options.http,
                                     .http_on = self->options.http_on,
                                     .http_host = self->options.http_host,
                                     .redirect = self->options.redirect,
                                     .max_connections = self->options.max_connections,
                                     .max_unauthenticated = self->options.max_unauthenticated,
                                     .max_per_address = self->options.max_per_address,
                                     .ping_after_ms = 1000 * self->options.heartbeat_s,
                                     .peers = self->peers,
                                     .log = &self->log};
    return fedge_transport_new(&config, &self->transport, err);
}

static uint32_t num_workers(const program *self)
{
    const uint32_t cpus = fedge_os_num_cpus();
    return self->options.num_workers > 0 ? self->options.num_workers
           : cpus < MAX_DEFAULT_WORKERS  ? cpus
                                         : MAX_DEFAULT_WORKERS;
}

/* Whether ranks sum their updates. For a strategy that reads single updates, rank 0 gets all. */
static bool ranks_sum_updates(const program *self)
{
    const fedge_strategy_ops *strategy = NULL;
    fedge_error err;
    return !fedge_collective_is_alone(&self->collective) &&
           fedge_strategy_of(self->job, &strategy, &err) == FEDGE_OK && !strategy->collects;
}

/* For fedge_rank_link: the ranks exist before the engine's thread. */
static void say_to_rank(void *user, uint32_t to, const fedge_order *order, const void *bytes)
{
    fedge_ranks_send_order(((program *)user)->ranks, to, order, bytes);
}

static fedge_status together(void *user, fedge_accumulator *accumulator, fedge_error *err)
{
    return fedge_ranks_join_sums(((program *)user)->ranks, accumulator, err);
}

/* For fedge_engine_config. */
static uint32_t num_registered(void *peers)
{
    return fedge_peers_num_devices(peers);
}

static fedge_status open_rank_worker(program *self, fedge_error *err)
{
    fedge_rank_worker_config config = {.job = self->job,
                                       .state_dir = self->options.state,
                                       .num_workers = num_workers(self),
                                       .accumulator = self->options.accumulator,
                                       .sums = self->options.sums,
                                       .collective = &self->collective,
                                       .log = &self->log};
    config.sums.log = &self->log;
    return ranks_sum_updates(self) ? fedge_rank_worker_open(&config, &self->worker, err) : FEDGE_OK;
}

static fedge_status open_run(program *self, fedge_error *err)
{
    self->link = (fedge_rank_link){.collective = &self->collective,
                                   .send_order = say_to_rank,
                                   .join_sums = together,
                                   .user = self};
    fedge_engine_config config = {.job = self->job,
                                  .run = {.job = self->job_text,
                                          .job_size = self->job_size,
                                          .result = self->options.result,
                                          .run_id = self->supervised.run_id,
                                          .new_run = self->options.new_run},
                                  .evaluator = self->evaluator,
                                  .state_dir = self->options.state,
                                  .restored = self->options.restored,
                                  .num_workers = num_workers(self),
                                  .accumulator = self->options.accumulator,
                                  .sums = self->options.sums,
                                  .num_registered = num_registered,
                                  .registry = self->peers,
                                  .ranks = ranks_sum_updates(self) ? &self->link : NULL,
                                  .return_every_us = 1000 * FEDGE_RETURN_EVERY_MS /
                                                     self->options.num_network_threads,
                                  .heartbeat_s = self->options.heartbeat_s,
                                  .log = &self->log,
                                  .wake = fedge_engine_thread_wake,
                                  .wake_user = self->engine_thread,
                                  .replies = fedge_engine_thread_replies(self->engine_thread),
                                  .traffic = fedge_engine_thread_traffic(self->engine_thread)};
    config.sums.log = &self->log;
    config.sums.distributed = ranks_sum_updates(self);
    FEDGE_TRY(fedge_engine_new(&config, fedge_os_monotonic_ms(), &self->engine, err));
    fedge_run_status opened;
    fedge_engine_get_status(self->engine, &opened);
    fedge_supervised_opened(&self->supervised, opened.run_id);
    return fedge_restart_state_run_opened(&self->supervised, self->options.state, opened.run_id,
                                          err);
}

static fedge_status announce(const program *self, fedge_error *err)
{
    uint16_t clients = 0;
    uint16_t http = 0;
    char ciphers[FEDGE_CIPHERS_TEXT];
    fedge_transport_ports(self->transport, &clients, &http);
    /* Before the log reports it, since a signal sent after that line must stop the program
     * properly. */
    fedge_service_catch_signals(self->service);
    FEDGE_LOG(&self->log, FEDGE_LOG_INFO, "listening",
              fedge_log_str("address", self->options.listen.host), fedge_log_int("port", clients),
              fedge_log_int("http-port", http),
              fedge_log_int("devices", fedge_peers_num_devices(self->peers)),
              fedge_log_int("rank", self->collective.rank),
              fedge_log_int("network-threads", self->options.num_network_threads),
              fedge_log_int("workers", num_workers(self)), fedge_log_str("release", FEDGE_VERSION),
              fedge_log_str("ciphers", fedge_ciphers_text(ciphers)));
    if (!self->options.port_file)
        return FEDGE_OK;
    char text[32], path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_ranks_port_file(&self->collective, self->options.port_file, path, err));
    const int size = snprintf(text, sizeof(text), "%u %u\n", clients, http);
    return fedge_os_write_file(path, text, (size_t)size, 0644, err);
}

/* Cleans up a finished run's directory and writes its summary. */
static fedge_status leave_results(program *self, fedge_error *err)
{
    fedge_run_status status;
    FEDGE_TRY(fedge_engine_export(self->engine, err));
    if (!self->options.json && !self->options.result)
        return FEDGE_OK;
    fedge_engine_get_status(self->engine, &status); /* the models are known now */
    char *text = NULL;
    fedge_status made = fedge_engine_status_json(&status, &text, err);
    if (made == FEDGE_OK && self->options.json)
        printf("%s\n", text);
    if (made == FEDGE_OK && self->options.result)
        made = fedge_os_write_file(self->options.result, text, strlen(text), 0644, err);
    free(text);
    return made;
}

static void log_ended(const program *self, fedge_ending how, const fedge_run_status *status)
{
    static const char *const NAMES[] = {"complete", "drained", "stopped", "failed"};
    FEDGE_LOG(&self->log, FEDGE_LOG_INFO, "ended", fedge_log_str("how", NAMES[how]),
              fedge_log_int("rounds-closed", status->rounds_closed),
              fedge_log_num("seconds", status->seconds), fedge_log_str("dir", status->run_dir));
}

/* The end of the service on the rank with the engine. */
static int conclude(program *self, fedge_ending how, fedge_error *failure)
{
    fedge_run_status status;
    fedge_engine_get_status(self->engine, &status);
    log_ended(self, how, &status);
    if (how == FEDGE_ENDING_FAILED)
        return fail(failure, FEDGE_EXIT_FAILURE);
    if (how == FEDGE_ENDING_STOPPED)
        return FEDGE_EXIT_OK;
    if (leave_results(self, failure) != FEDGE_OK)
        return fail(failure, FEDGE_EXIT_FAILURE);
    /* Marked last: after a crash in between, a start continues here and not with a new run. */
    fedge_transport_free(self->transport);
    self->transport = NULL;
    if (fedge_engine_conclude(self->engine, failure) != FEDGE_OK)
        return fail(failure, FEDGE_EXIT_FAILURE);
    return FEDGE_EXIT_OK;
}

static fedge_status start_threads(program *self, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    if (!self->ranks) {
        fedge_engine_thread_deliver_to(self->engine_thread, fedge_transport_deliver,
                                       self->transport);
    }
    if (self->engine)
        status = fedge_engine_thread_start(self->engine_thread, self->engine, err);
    if (status == FEDGE_OK && self->ranks)
        status = fedge_ranks_start(self->ranks, err);
    return status;
}

static int serve(program *self)
{
    if (self->options.drain && self->engine)
        fedge_engine_drain(self->engine, fedge_os_monotonic_ms());
    fedge_error failure;
    if (start_threads(self, &failure) != FEDGE_OK)
        return abandon(self, fail(&failure, FEDGE_EXIT_FAILURE));
    fedge_ending how =
        fedge_service_run(self->service, self->transport, self->engine_thread, &failure);
    fedge_engine_thread_stop(self->engine_thread);
    fedge_progress_clear(&self->progress);
    fedge_ranks_end(self->ranks, how == FEDGE_ENDING_STOPPED);
    fedge_rank_worker_stop(self->worker);
    if (self->engine)
        return conclude(self, how, &failure);
    fedge_run_status status;
    fedge_engine_thread_status(self->engine_thread, &status);
    log_ended(self, how, &status);
    return how == FEDGE_ENDING_FAILED ? fedge_exit_code_of(failure.status, FEDGE_EXIT_FAILURE)
                                      : FEDGE_EXIT_OK;
}

static uint32_t default_network_threads(void)
{
    const uint32_t half = fedge_os_num_cpus() / 2;
    return half < 1 ? 1 : half < FEDGE_MAX_NETWORK_THREADS ? half : FEDGE_MAX_NETWORK_THREADS;
}

/* Creates everything that precedes the run; *code: the exit code of a failure. */
static fedge_status prepare(program *self, int *code, fedge_error *err)
{
    /* A rank is stopped when another is lost; then all restart at once. */
    const uint64_t away_ms =
        fedge_collective_is_alone(&self->collective) ? 0 : FEDGE_RANKS_RECONNECT_MS;
    const fedge_service_config service = {.log = &self->log,
                                          .away_ms = away_ms,
                                          .on_tick = on_tick,
                                          .on_round = on_round,
                                          .on_reload = on_reload,
                                          .user = self};
    if (self->options.num_network_threads == 0)
        self->options.num_network_threads = default_network_threads();
    *code = FEDGE_EXIT_FAILURE;
    FEDGE_TRY(limit_connections(self, err));
    FEDGE_TRY(fedge_service_new(&service, &self->service, err));
    FEDGE_TRY(
        fedge_engine_thread_new(&self->engine_thread, fedge_service_wake, self->service, err));
    const fedge_status status = open_ports(self, err);
    *code = status == FEDGE_INTERNAL ? FEDGE_EXIT_FAILURE : FEDGE_EXIT_PORT;
    /* An existing aggregator of this run matters more than the busy port. */
    fedge_error used;
    if (status != FEDGE_OK && leads(self) &&
        fedge_state_check_unused(self->options.state, &used) == FEDGE_BUSY) {
        *err = used;
        *code = FEDGE_EXIT_STATE;
        return FEDGE_BUSY;
    }
    return status;
}

/* Synchronises the ranks: all have come this far, or all fail with the message of the first failed
 * rank. *code: the exit code of a failure here, then the program's. */
static bool agree(program *self, fedge_status status, const fedge_collective_fact *facts,
                  uint32_t num_facts, int *code, fedge_error *err)
{
    status = fedge_collective_agree(&self->collective, status, facts, num_facts, err);
    if (status != FEDGE_OK) {
        *code = leads(self) ? fail(err, (fedge_exit_code)*code)
                            : fedge_exit_code_of(err->status, (fedge_exit_code)*code);
    }
    return status == FEDGE_OK;
}

static int run(program *self)
{
    fedge_error err;
    int code = FEDGE_EXIT_FAILURE;
    if (!agree(self, prepare(self, &code, &err), NULL, 0, &code, &err))
        return code;
    if (!self->options.quiet && !self->options.json && leads(self)) {
        self->progress = (fedge_progress){.out = stdout,
                                          .terminal = fedge_progress_on_terminal(stdout),
                                          .num_rounds = self->job->rounds.num_server_rounds};
    }
    code = FEDGE_EXIT_STATE;
    if (!agree(self, leads(self) ? open_run(self, &err) : open_rank_worker(self, &err), NULL, 0,
               &code, &err))
        return code;
    if (!fedge_collective_is_alone(&self->collective)) {
        const fedge_ranks_config config = {
            .collective = &self->collective,
            .engine = self->engine_thread,
            .transport = self->transport,
            .worker = self->worker,
            .sum_bytes = fedge_plan_update_layout(&self->job->plan).num_elements * sizeof(int64_t),
            .log = &self->log};
        code = FEDGE_EXIT_FAILURE;
        if (!agree(self, fedge_ranks_new(&config, &self->ranks, &err), NULL, 0, &code, &err))
            return code;
    }
    code = FEDGE_EXIT_CONFIG;
    return agree(self, announce(self, &err), NULL, 0, &code, &err) ? serve(self) : code;
}

/* Loads the configuration, and compares what must be equal on all ranks. */
static int begin(program *self)
{
    fedge_error err;
    fedge_collective_fact facts[FEDGE_RANKS_NUM_FACTS];
    fedge_status status = load(self, &err);
    int code = FEDGE_EXIT_CONFIG;
    fedge_ranks_check_cores(&self->log);
    if (status != FEDGE_OK) {
        code = code_of_loading(self, &err);
    } else if (self->collective.num_ranks > FEDGE_RANKS_MAX) {
        status = fedge_fail(&err, FEDGE_UNSUPPORTED, "%u ranks: one aggregator has at most %u",
                            (unsigned)self->collective.num_ranks, FEDGE_RANKS_MAX);
    } else if (!fedge_collective_is_alone(&self->collective)) {
        fedge_ranks_set_addresses(&self->collective, &self->options.listen, &self->options.http);
        status = fedge_ranks_facts(self->job_text, self->job_size, self->options.registry,
                                   self->options.accumulator, facts, &err);
    }
    return agree(self, status, facts, FEDGE_RANKS_NUM_FACTS, &code, &err) ? run(self) : code;
}

/* Whether --supervise can start its child; otherwise prints the reason. */
static bool may_supervise(const fedge_options *options)
{
    if (fedge_collective_started()) {
        fprintf(stderr, "fedge-aggregator: --supervise under mpirun cannot restart anything: leave "
                        "mpirun out and give --hosts FILE\n");
        return false;
    }
    return !options->hosts || fedge_rank_launcher_check(options->hosts, "");
}

/* For fedge_launcher. */
static bool may_change_hosts(void *user)
{
    return fedge_rank_launcher_check(((program *)user)->options.hosts,
                                     "; the ranks go on as they are");
}

static volatile sig_atomic_t drain_asked;

static void note_drain(int signal)
{
    (void)signal;
    drain_asked = 1;
}

/* A child of the supervisor becomes mpirun. */
static int run_ranks(program *self, int argc, char **argv)
{
    fedge_error err;
    self->supervised.draining = self->supervised.draining || drain_asked;
    if (fedge_restart_state_export(&self->supervised, &err) == FEDGE_OK)
        (void)!fedge_rank_launcher_run(&self->supervised, self->options.hosts, argc, argv, &err);
    return fail(&err, FEDGE_EXIT_CONFIG);
}

/* Adapts to being the successor of another process. */
static void take_over(program *self)
{
    const fedge_supervised *before = &self->supervised;
    if (before->run_id[0]) { /* done by its predecessor */
        self->options.new_run = false;
        self->options.restored = false;
    }
    self->options.drain = self->options.drain || before->draining;
    self->options.sums.skip_missing = before->restarts > 0; /* a GPU may have failed */
    self->options.sums.lost = before->lost_gpus;
}

int main(int argc, char **argv)
{
    program self = {.log.write = write_log, .output = PTHREAD_MUTEX_INITIALIZER};
    self.log.user = &self;
    fedge_error err;
    fedge_os_hold_streams();
    fedge_os_return_large_blocks();
    if (fedge_options_parse(argc, argv, &self.options, &err) != FEDGE_OK)
        return fail(&err, FEDGE_EXIT_USAGE);
    self.log.level = self.options.log_level;
    self.log.json = self.options.log_json;
    const bool ranked = self.options.hosts && fedge_collective_started();
    if (self.options.supervise && self.options.action == FEDGE_OPTIONS_RUN && ranked) {
        fedge_restart_state_import(&self.supervised, self.options.state, &self.log);
        take_over(&self);
    } else if (self.options.supervise && self.options.action == FEDGE_OPTIONS_RUN) {
        int code = FEDGE_EXIT_OK;
        const fedge_launcher mpirun = {may_change_hosts, &self};
        if (!may_supervise(&self.options))
            return FEDGE_EXIT_CONFIG;
        /* Before there is a child that could be killed; mpirun handles its processes. */
        const struct sigaction note = {.sa_handler = note_drain, .sa_flags = SA_RESTART};
        if (self.options.hosts)
            (void)sigaction(SIGUSR1, &note, NULL);
        if (!fedge_supervise(self.options.hosts ? &mpirun : NULL, &self.supervised, &code))
            return code;
        if (self.options.hosts)
            return run_ranks(&self, argc, argv);
        take_over(&self);
    }
    int code = FEDGE_EXIT_OK;
    if (self.options.action == FEDGE_OPTIONS_HELP ||
        self.options.action == FEDGE_OPTIONS_HELP_ALL) {
        char help[FEDGE_HELP_SIZE];
        fputs(fedge_options_help(self.options.action == FEDGE_OPTIONS_HELP_ALL, help), stdout);
    } else if (self.options.action == FEDGE_OPTIONS_VERSION) {
        char ciphers[FEDGE_CIPHERS_TEXT];
        printf("fedge-aggregator %s\nciphers: %s\n", FEDGE_VERSION, fedge_ciphers_text(ciphers));
    } else if (self.options.action == FEDGE_OPTIONS_CHECK) {
        code = load(&self, &err) == FEDGE_OK
                   ? report_check(&self)
                   : fail(&err, (fedge_exit_code)code_of_loading(&self, &err));
    } else if (fedge_collective_open(&self.collective, &err) != FEDGE_OK) {
        code = fail(&err, FEDGE_EXIT_CONFIG);
    } else {
        code = begin(&self);
    }
    /* Freed before what it uses: the engine uses connections, which use mailboxes to leave. */
    fedge_engine_thread_stop(self.engine_thread);
    fedge_transport_free(self.transport);
    fedge_engine_free(self.engine);
    fedge_rank_worker_free(self.worker);
    fedge_ranks_free(self.ranks);
    fedge_engine_thread_free(self.engine_thread);
    fedge_service_free(self.service);
    fedge_peers_free(self.peers);
    fedge_evaluator_free(self.evaluator);
    fedge_job_free(self.job);
    fedge_plugin_free(self.plugin);
    free(self.job_text);
    fedge_collective_close(&self.collective);
    return code;
}
