/* fedge-client: the client with the built-in trainer. */
#define _POSIX_C_SOURCE 200809L /* sigaction, write, _exit */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/builtin_trainer.h"
#include "client/fedge_client.h"
#include "client/link.h"
#include "client/options.h"
#include "edge/core/os.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"
#include "edge/site/site.h"
#include "secure/identity/clock.h"
#include "secure/identity/identity.h"

/* For the signal handler, which gets no argument. Set before the handler is. */
static fedge_client *running;

static void on_signal(int signal)
{
    (void)signal;
    fedge_client_stop(running);
}

/* One write per line, so that lines of several processes on a terminal do not mix. */
static void write_line(void *user, const char *line, size_t size)
{
    (void)user;
    if (write(STDERR_FILENO, line, size) < 0)
        return; /* an error cannot be reported */
}

static fedge_exit fail_with(const fedge_log *log, const char *event, const fedge_error *err,
                            fedge_exit exit_code)
{
    fedge_log_failure(log, FEDGE_LOG_ERROR, event, err);
    return exit_code;
}

/* *backend: NULL for the CPU. */
static fedge_status find_backend(const fedge_client_options *o,
                                 const fedge_training_backend **backend, fedge_error *err)
{
    const fedge_training_backend *const *at = fedge_training_backends;
    *backend = NULL;
    if (strcmp(o->backend, "cpu") == 0)
        return FEDGE_OK;
    while (*at && strcmp((*at)->name, o->backend) != 0)
        at++;
    *backend = *at;
    return *at ? (*at)->find(&o->settings, err)
               : fedge_fail(err, FEDGE_UNSUPPORTED,
                            "--engine %s is not in this build: it has cpu%s%s", o->backend,
                            *fedge_training_backends ? " and " : "",
                            *fedge_training_backends ? (*fedge_training_backends)->name : "");
}

/* --- --check-config ----------------------------------------------------------------------------
 */

/* [described]: the plan's description of this data set; NULL: none. */
static fedge_status check_one(const fedge_site_data *data, const fedge_data_spec *described,
                              const fedge_log *log, fedge_error *err)
{
    fedge_data_spec guessed;
    const fedge_data_spec *spec = described ? described : &guessed;
    fedge_dataset *dataset = NULL;
    fedge_status status =
        described
            ? FEDGE_OK
            : fedge_dataset_guess(data->values, data->labels,
                                  data->num_partitions ? &data->partition : NULL, &guessed, err);
    if (status == FEDGE_UNSUPPORTED) {
        fedge_log_failure(log, FEDGE_LOG_WARN, "data-unchecked", err);
        return FEDGE_OK;
    }
    FEDGE_TRY_OR(status, failed);
    FEDGE_TRY_OR(fedge_builtin_load(spec, data, &dataset, err), failed);
    const uint32_t examples = fedge_dataset_size(dataset);
    uint64_t values = 1;
    for (uint32_t i = 0; i < spec->rank; i++)
        values *= spec->shape[i];
    const fedge_log_field fields[] = {
        fedge_log_str("name", data->name),
        fedge_log_int("examples", examples),
        fedge_log_int("features", (int64_t)values),
        fedge_log_int("labels", spec->num_labels),
        fedge_log_int("held-out", (int64_t)(examples * data->validation_fraction)),
        fedge_log_int("partition-id", data->partition_id),
        fedge_log_int("num-partitions", data->num_partitions)};
    /* Data that are not divided have no part. */
    fedge_log_write(log, FEDGE_LOG_INFO, "data", fields,
                    sizeof(fields) / sizeof(*fields) - (data->num_partitions ? 0 : 2));
    fedge_dataset_free(dataset);
    return FEDGE_OK;
failed:
    return fedge_error_prefix(err, status, "data set '%s'", data->name);
}

/* Loads each data set as a task would, and logs its size ("data") or why it cannot be loaded.
 * [plan]: the job's, which the policy must allow, and which describes its data set; NULL: none.
 * Files of other data sets describe themselves. Returns the first failure. */
static fedge_status check_data(const fedge_site *site, const fedge_plan *plan, const fedge_log *log)
{
    fedge_error err;
    const fedge_site_data *found = NULL;
    fedge_status failed = plan ? fedge_site_check(site, plan, &err) : FEDGE_OK;
    if (plan && plan->has_data) {
        const fedge_status status = fedge_site_find_data(site, plan, &found, failed ? NULL : &err);
        failed = failed ? failed : status;
    }
    if (failed)
        fedge_log_failure(log, FEDGE_LOG_ERROR, "plan", &err);
    for (uint32_t i = 0; i < site->num_data; i++) {
        const fedge_site_data *data = &site->data[i];
        const fedge_status status = check_one(data, data == found ? &plan->data : NULL, log, &err);
        if (status != FEDGE_OK) {
            fedge_log_failure(log, FEDGE_LOG_ERROR, "data", &err);
            failed = failed ? failed : status;
        }
    }
    return failed;
}

/* Warns about each divided data set of which this device would use everything. */
static void warn_undivided(const fedge_site *site, const fedge_log *log)
{
    for (uint32_t i = 0; i < site->num_data; i++) {
        if (site->data[i].has_partition && site->data[i].num_partitions == 0) {
            FEDGE_LOG(log, FEDGE_LOG_WARN, "data-undivided",
                      fedge_log_str("name", site->data[i].name),
                      fedge_log_str("advice", "it has a partition: say which part with "
                                              "--partition-id and --num-partitions"));
        }
    }
}

/* Checks everything that needs no server. */
static fedge_exit check(const fedge_client_options *o, const fedge_site *site, const fedge_log *log)
{
    fedge_error err;
    fedge_identity *identity = NULL;
    char *trust = NULL;
    const fedge_clock clock = {0};
    fedge_exit exit_code = FEDGE_EXIT_OK;
    if (fedge_link_check_urls(o->server, &(uint32_t){0}, &err))
        exit_code = fail_with(log, "server", &err, FEDGE_EXIT_USAGE);
    if (fedge_identity_load(o->identity, FEDGE_ROLE_DEVICE, fedge_clock_now_ms(&clock), &identity,
                            &err))
        exit_code = fail_with(log, "identity", &err, FEDGE_EXIT_IDENTITY);
    if (fedge_trust_load(o->trust, &trust, &err))
        exit_code = fail_with(log, "trust", &err, FEDGE_EXIT_IDENTITY);
    const fedge_training_backend *backend;
    if (find_backend(o, &backend, &err))
        exit_code = fail_with(log, "engine", &err, FEDGE_EXIT_CONFIG);
    fedge_plan *plan = NULL;
    if (o->plan && fedge_job_load_plan(o->plan, &plan, &err))
        exit_code = fail_with(log, "plan", &err, FEDGE_EXIT_CONFIG);
    if (check_data(site, plan, log) && exit_code == FEDGE_EXIT_OK)
        exit_code = FEDGE_EXIT_CONFIG;
    fedge_plan_free(plan);
    if (exit_code == FEDGE_EXIT_OK) {
        FEDGE_LOG(log, FEDGE_LOG_INFO, "config-ok",
                  fedge_log_str("device", identity->certificate.device_id),
                  fedge_log_int("data-sets", site->num_data));
    }
    fedge_identity_free(identity);
    free(trust);
    return exit_code;
}

static void install_signals(fedge_client *client)
{
    running = client;
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

/* For on_lost, which runs on the trainer's threads. */
static const fedge_log *running_log;

/* The state survives, and the server sends the task again. */
static void on_lost(const fedge_error *err)
{
    fedge_log_failure(running_log, FEDGE_LOG_ERROR, "gpu-lost", err);
    _exit(FEDGE_EXIT_GPU_LOST);
}

static fedge_exit run(const fedge_client_options *o, const fedge_site *site, const fedge_log *log)
{
    fedge_builtin_config builtin = {
        .site = site, .settings = &o->settings, .log = log, .lost = on_lost};
    const fedge_client_config config = {.struct_size = sizeof(config),
                                        .server = o->server,
                                        .identity_dir = o->identity,
                                        .trust_dir = o->trust,
                                        .state_dir = o->state,
                                        .seed_blob = o->seed_blob,
                                        .proxy = o->proxy,
                                        .site = site,
                                        .log = log};
    fedge_error err;
    fedge_builtin *trainer;
    fedge_client_callbacks callbacks;
    fedge_client *client;
    fedge_status status = find_backend(o, &builtin.backend, &err);
    if (status != FEDGE_OK)
        return fail_with(log, "engine", &err, FEDGE_EXIT_CONFIG);
    running_log = log;
    status = fedge_builtin_new(&builtin, &trainer, &callbacks, &err);
    if (status != FEDGE_OK)
        return fail_with(log, "start", &err, fedge_client_exit_code(status));
    status = fedge_client_new(&config, &callbacks, &client, &err);
    if (status != FEDGE_OK) {
        fedge_builtin_free(trainer);
        return fail_with(log, "start", &err, fedge_client_exit_code(status));
    }
    install_signals(client);
    fedge_exit exit_code = fedge_client_run(client, &err);
    FEDGE_LOG(log, exit_code == FEDGE_EXIT_OK ? FEDGE_LOG_INFO : FEDGE_LOG_ERROR, "end",
              fedge_log_str("message", err.message), fedge_log_int("exit", exit_code));
    if (fedge_client_busy(client))
        _exit((int)exit_code); /* a long training step is aborted: the state survives */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    fedge_client_free(client);
    fedge_builtin_free(trainer);
    return exit_code;
}

int main(int argc, char **argv)
{
    fedge_client_options options;
    fedge_error err;
    fedge_site *site;
    int exit_code;
    fedge_os_hold_streams();
    if (!fedge_client_options_read(argc, argv, &options, &exit_code))
        return exit_code;
    const fedge_log log = {
        .level = options.log_level, .json = options.log_json, .write = write_line};
    if (options.plan && !options.check_config) {
        return (int)(fedge_plan_report(&options, &err)
                         ? fail_with(&log, "plan", &err, FEDGE_EXIT_CONFIG)
                         : FEDGE_EXIT_OK);
    }
    if (fedge_site_load(options.config, &site, &err))
        return (int)fail_with(&log, "config", &err, FEDGE_EXIT_CONFIG);
    if (!options.server)
        options.server = site->servers;
    if (!options.server[0]) {
        (void)fedge_fail(&err, FEDGE_INVALID_ARGUMENT,
                         "no server: give --server URL, or \"servers\" in %.200s", options.config);
        fedge_site_free(site);
        return (int)fail_with(&log, "server", &err, FEDGE_EXIT_USAGE);
    }
    for (uint32_t i = 0; i < site->num_data && options.num_partitions > 0; i++) {
        site->data[i].partition_id = options.partition_id;
        site->data[i].num_partitions = options.num_partitions;
    }
    warn_undivided(site, &log);
    exit_code =
        (int)(options.check_config ? check(&options, site, &log) : run(&options, site, &log));
    fedge_site_free(site);
    return exit_code;
}
