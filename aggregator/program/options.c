#define _GNU_SOURCE /* stat is POSIX, not C11 */

#include "aggregator/program/options.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/net/transport.h"
#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/selection.h"
#include "aggregator/run/ingest/ingest.h"
#include "edge/core/command_line.h"
#include "edge/core/os.h"
#include "edge/wire/protocol.h"

static fedge_status parse_address(const char *option, const char *text, fedge_address *address,
                                  fedge_error *err)
{
    fedge_status status = fedge_address_parse(text, address, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "--%s", option);
}

static fedge_status take_listen(void *settings, const char *option, const char *value,
                                fedge_error *err)
{
    fedge_options *out = settings;
    return parse_address(option, value, &out->listen, err);
}

static fedge_status take_http(void *settings, const char *option, const char *value,
                              fedge_error *err)
{
    fedge_options *out = settings;
    out->http_on = strcmp(value, "off") != 0;
    return out->http_on ? parse_address(option, value, &out->http, err) : FEDGE_OK;
}

static fedge_status take_accumulator(void *settings, const char *option, const char *value,
                                     fedge_error *err)
{
    (void)option;
    fedge_options *out = settings;
    out->accumulator = value;
    return fedge_accumulator_check_name(value, err);
}

static fedge_status take_gpus(void *settings, const char *option, const char *value,
                              fedge_error *err)
{
    (void)option;
    fedge_options *out = settings;
    return fedge_accumulator_parse_gpus(value, &out->sums, err);
}

static fedge_status take_shard(void *settings, const char *option, const char *value,
                               fedge_error *err)
{
    (void)option;
    fedge_options *out = settings;
    return fedge_accumulator_parse_shard(value, &out->sums.shard, err);
}

static fedge_status take_join(void *settings, const char *option, const char *value,
                              fedge_error *err)
{
    (void)option;
    fedge_options *out = settings;
    out->sums.join = value;
    return fedge_distributed_check_name(value, err);
}

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, fedge_options, field)

static fedge_status take_redirect(void *settings, const char *option, const char *value,
                                  fedge_error *err)
{
    if (strncmp(value, "wss://", 6) != 0 || strlen(value) >= FEDGE_MAX_SERVER) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--%s %.60s: give an address as clients have it, wss://HOST[:PORT]",
                          option, value);
    }
    ((fedge_options *)settings)->redirect = value;
    return FEDGE_OK;
}

/* Options that are not advanced, usage and notes fit 24 lines. */
static const fedge_option OPTIONS[] = {
    {OPTION("job", "JOB", NULL, TEXT, job), .needed = true},
    {OPTION("state", "DIR", NULL, TEXT, state), .needed = true},
    {OPTION("identity", "DIR", NULL, TEXT, identity), .needed = true},
    {OPTION("trust", "DIR", NULL, TEXT, trust), .needed = true},
    {OPTION("registry", "DIR", NULL, TEXT, registry), .needed = true},
    {OPTION("listen", "ADDR:PORT", "for clients; port 0 takes any free port", OTHER, listen),
     .take = take_listen, .preset = FEDGE_DEFAULT_LISTEN},
    {OPTION("http", "ADDR:PORT", "for health and metrics, or off", OTHER, http), .take = take_http,
     .preset = FEDGE_DEFAULT_HTTP},
    {OPTION("http-host", "NAME", "host name that HTTP requests may give, besides IP addresses",
            TEXT, http_host),
     .advanced = true},
    {OPTION("redirect", "URL", "where devices go when this one is full or ends (wss://HOST:PORT)",
            OTHER, redirect),
     .take = take_redirect, .advanced = true},
    {OPTION("workers", "N", "threads that validate and sum updates (one per CPU, at most 8)", U32,
            num_workers),
     .min = 1, .max = FEDGE_INGEST_MAX_WORKERS, .advanced = true},
    {OPTION("network-threads", "N", "threads that serve connections (one per two CPUs)", U32,
            num_network_threads),
     .min = 1, .max = FEDGE_MAX_NETWORK_THREADS, .advanced = true},
    {OPTION("max-connections", "N", "most devices connected at a time", U32, max_connections),
     .min = 1, .max = FEDGE_MAX_CONNECTIONS, .preset = FEDGE_PRESET(FEDGE_DEFAULT_CONNECTIONS)},
    {OPTION("max-unauthenticated", "N", "most connections that have shown no valid certificate yet",
            U32, max_unauthenticated),
     .min = 1, .max = FEDGE_MAX_UNAUTHENTICATED,
     .preset = FEDGE_PRESET(FEDGE_DEFAULT_UNAUTHENTICATED), .advanced = true},
    {OPTION("max-per-address", "N", "the same limit for one IPv4 address or one IPv6 /64", U32,
            max_per_address),
     .min = 1, .max = FEDGE_MAX_UNAUTHENTICATED, .preset = FEDGE_PRESET(FEDGE_DEFAULT_PER_ADDRESS),
     .advanced = true},
    {OPTION("heartbeat", "SECONDS", "longest silence of a connection before a ping", U32,
            heartbeat_s),
     .min = 1, .max = FEDGE_MAX_HEARTBEAT_S, .preset = FEDGE_PRESET(FEDGE_DEFAULT_HEARTBEAT_S),
     .advanced = true},
    {OPTION("accumulator", "KIND", "what sums updates: cpu, cuda or auto", OTHER, accumulator),
     .take = take_accumulator, .preset = "auto"},
    {OPTION("gpus", "LIST", "GPUs to use, such as 0,1 (all)", OTHER, sums), .take = take_gpus},
    {OPTION("gpus-file", "FILE", "read the list of GPUs from FILE, and again at SIGHUP", TEXT,
            gpus_file),
     .advanced = true},
    {OPTION("shard", "HOW", "how GPUs share the work: by clients or by coordinates (auto)", OTHER,
            sums),
     .take = take_shard, .advanced = true},
    {OPTION("join", "KIND", "what joins the sums of several ranks: nccl, mpi or auto", OTHER, sums),
     .take = take_join, .advanced = true},
    {OPTION("robust-memory", "BYTES",
            "memory that robust aggregation rules may use; where updates are deflated or sparse, "
            "half of it and 12 bytes per parameter if that is more (1 GiB)",
            U64, sums.robust_memory),
     .max = (uint64_t)1 << 50, .advanced = true},
    {OPTION("strategy-plugin", "FILE",
            "load a strategy or metrics from a shared object, or from a file of Python", TEXT,
            strategy_plugin),
     .advanced = true},
    {OPTION("strategy-timeout", "SECONDS", "time limit of a step in Python", U32,
            strategy_timeout_s),
     .min = 1, .max = 86400, .preset = "600", .advanced = true},
    {OPTION("new-run", NULL, "start a new run even if another is unfinished", FLAG, new_run)},
    {OPTION("restored", NULL, "DIR of --state was restored from a backup", FLAG, restored),
     .advanced = true},
    {OPTION("drain", NULL, "end after the open round", FLAG, drain)},
    {OPTION("supervise", NULL, "restart the aggregator after a crash or the loss of a GPU", FLAG,
            supervise)},
    {OPTION("hosts", "FILE", "with --supervise: start ranks by mpirun on the hosts in FILE", TEXT,
            hosts),
     .advanced = true},
    {OPTION("port-file", "FILE", "write both port numbers to FILE once they are open", TEXT,
            port_file),
     .advanced = true},
    {OPTION("result", "FILE", "write the summary of the run to FILE as JSON", TEXT, result),
     .advanced = true},
    {OPTION("check-config", NULL, "check the job and all directories but --state, then exit", ENUM,
            action),
     .min = FEDGE_OPTIONS_CHECK},
    {OPTION("log-level", "LEVEL", "error, warn, info or debug", LOG_LEVEL, log_level),
     .preset = "info"},
    {OPTION("log-json", NULL, "log in JSON lines", FLAG, log_json), .advanced = true},
    {OPTION("quiet", NULL, "log warnings and errors only", FLAG, quiet)},
    {OPTION("json", NULL, "print the summary as JSON", FLAG, json)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-aggregator",
    .usage = "Usage: fedge-aggregator --job JOB --state DIR --identity DIR --trust DIR\n"
             "                        --registry DIR [OPTION...]\n"
             "Starts a federated learning job, or resumes it.\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .help_all = true,
    .notes = "Signals: TERM and INT stop; a new start resumes. HUP reloads identity, trust,\n"
             "  registry and the list of GPUs. USR1 is as --drain.\n"
             "Exit: 0 complete, drained or stopped; 1 failed; 2 usage; 3 configuration;\n"
             "  4 state directory; 5 port; 6 disk; 7 GPU; 8 GPU memory\n"};

const char *fedge_options_help(bool all, char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMMAND_LINE, all, text);
}

static fedge_status check_complete(const fedge_options *options, fedge_error *err)
{
    fedge_options given = *options;
    if (options->action == FEDGE_OPTIONS_CHECK && !options->state)
        given.state = ""; /* nothing else checks it */
    FEDGE_TRY(fedge_command_line_check(&COMMAND_LINE, &given, err));
    if (strcmp(options->accumulator, "cpu") == 0 &&
        (options->sums.num_gpus > 0 || options->gpus_file ||
         options->sums.shard != FEDGE_SHARD_AUTO)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--gpus, --gpus-file and --shard need --accumulator cuda or auto");
    }
    if (options->sums.num_gpus > 0 && options->gpus_file) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--gpus and --gpus-file both name GPUs; give one of them");
    }
    if (options->hosts && (!options->supervise || options->new_run || options->restored)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--hosts needs --supervise and excludes --new-run and --restored: start "
                          "once with these and without --hosts");
    }
    if (options->http_on && options->http.port != 0 && options->http.port == options->listen.port &&
        strcmp(options->http.host, options->listen.host) == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--listen and --http are the same address; choose two ports");
    }
    return FEDGE_OK;
}

fedge_status fedge_options_parse(int argc, char **argv, fedge_options *options, fedge_error *err)
{
    fedge_words words;
    *options = (fedge_options){.sums = {.num_lanes = 1}};
    FEDGE_TRY(fedge_command_line_read(&COMMAND_LINE, argc, argv, options, &words, err));
    if (words.asked != FEDGE_ASKED_RUN) {
        options->action = words.asked == FEDGE_ASKED_HELP       ? FEDGE_OPTIONS_HELP
                          : words.asked == FEDGE_ASKED_HELP_ALL ? FEDGE_OPTIONS_HELP_ALL
                                                                : FEDGE_OPTIONS_VERSION;
        return FEDGE_OK;
    }
    if (options->quiet && options->log_level > FEDGE_LOG_WARN)
        options->log_level = FEDGE_LOG_WARN;
    return check_complete(options, err);
}

/* ---- --gpus-file ----------------------------------------------------------------------------- */

fedge_status fedge_gpus_file_read(const char *path, fedge_accumulator_config *config,
                                  fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_GPUS_FILE_MAX_SIZE, &bytes, &size, err));
    while (size > 0 && isspace(bytes[size - 1]))
        bytes[--size] = '\0';
    fedge_accumulator_config read = *config;
    const fedge_status status = fedge_accumulator_parse_gpus((const char *)bytes, &read, err);
    free(bytes);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "%s", path);
    *config = read;
    return FEDGE_OK;
}

/* ---- checks ---------------------------------------------------------------------------------- */

fedge_status fedge_check_initial_model(const fedge_job *job, fedge_error *err)
{
    if (job->initial_model[0] == '\0')
        return FEDGE_OK;
    size_t count = job->plan.schema.num_elements;
    float *values = malloc(count * sizeof(*values));
    if (!values)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model of %zu parameters", count);
    fedge_status status = fedge_initial_values(job, values, err);
    free(values);
    return status;
}

fedge_status fedge_check_selection(const fedge_job *job, const char *name, const fedge_log *log,
                                   fedge_error *err)
{
    fedge_selection selection;
    fedge_status status = fedge_selection_init(&selection, job, false, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "%s", name);
    if (fedge_criterion_is_of_test_set(selection.keep.metric) ||
        fedge_criterion_is_of_test_set(selection.stop.metric)) {
        FEDGE_LOG(log, FEDGE_LOG_WARN, "test-set-selects",
                  fedge_log_str("advice", "the best model's figures on the test set are too good: "
                                          "validate on clients (fraction-evaluate, and "
                                          "validation-fraction in their files)"));
    }
    return FEDGE_OK;
}

fedge_status fedge_check_result_path(const char *path, fedge_error *err)
{
    const char *slash = strrchr(path, '/');
    const int size = slash ? (int)(slash - path) + 1 : 2;
    char folder[FEDGE_MAX_PATH];
    struct stat info;
    if (snprintf(folder, sizeof(folder), "%.*s", size, slash ? path : "./") >= (int)sizeof(folder))
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--result: the path is too long");
    if (fedge_os_is_dir(path)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--result: %s is a directory; name a file in it", path);
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--result: %s is not a regular file, which would be replaced; name "
                          "another, or take --json to have the summary on the standard output",
                          path);
    }
    if (!fedge_os_is_dir(folder)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--result %s: there is no directory %s; make it", path, folder);
    }
    if (access(folder, W_OK | X_OK) != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--result %s: files cannot be made in %s",
                          path, folder);
    }
    return FEDGE_OK;
}

bool fedge_check_paths(const fedge_options *options)
{
    const char *gpus = options->gpus_file ? options->gpus_file : options->job;
    const struct {
        const char *path;
        mode_t kind;
    } paths[] = {{options->job, S_IFREG},
                 {gpus, S_IFREG},
                 {options->identity, S_IFDIR},
                 {options->trust, S_IFDIR},
                 {options->registry, S_IFDIR}};
    struct stat info;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (stat(paths[i].path, &info) != 0 || (info.st_mode & S_IFMT) != paths[i].kind)
            return false;
    }
    return true;
}
