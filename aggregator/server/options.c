#include "aggregator/server/options.h"

#include <stddef.h>
#include <string.h>

#include "aggregator/server/ingest.h"
#include "aggregator/server/transport.h"
#include "edge/core/command_line.h"

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

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, fedge_options, field)

static const fedge_option OPTIONS[] = {
    {OPTION("job", "JOB", NULL, TEXT, job), .needed = true},
    {OPTION("state", "DIR", NULL, TEXT, state), .needed = true},
    {OPTION("identity", "DIR", NULL, TEXT, identity), .needed = true},
    {OPTION("trust", "DIR", NULL, TEXT, trust), .needed = true},
    {OPTION("registry", "DIR", NULL, TEXT, registry), .needed = true},
    {OPTION("listen", "ADDR:PORT", "for clients; port 0: any free one", OTHER, listen),
     .take = take_listen, .preset = FEDGE_DEFAULT_LISTEN},
    {OPTION("http", "ADDR:PORT", "/healthz, /metrics; or off", OTHER, http), .take = take_http,
     .preset = FEDGE_DEFAULT_HTTP},
    {OPTION("http-host", "NAME", "a host that requests may name, besides addresses", TEXT,
            http_host)},
    {OPTION("workers", "N", NULL, U32, num_workers), .min = 1, .max = FEDGE_INGEST_MAX_WORKERS,
     .joined = true},
    {OPTION("network-threads", "N", "threads to sum, for connections", U32, num_network_threads),
     .min = 1, .max = FEDGE_MAX_NETWORK_THREADS},
    {OPTION("max-connections", "N", "more devices are refused", U32, max_connections), .min = 1,
     .max = FEDGE_MAX_CONNECTIONS, .preset = FEDGE_PRESET(FEDGE_DEFAULT_CONNECTIONS)},
    {OPTION("max-unauthenticated", "N", NULL, U32, max_unauthenticated), .min = 1,
     .max = FEDGE_MAX_UNAUTHENTICATED, .preset = FEDGE_PRESET(FEDGE_DEFAULT_UNAUTHENTICATED),
     .joined = true},
    {OPTION("max-per-address", "N", "without certificate", U32, max_per_address), .min = 1,
     .max = FEDGE_MAX_UNAUTHENTICATED, .preset = FEDGE_PRESET(FEDGE_DEFAULT_PER_ADDRESS)},
    {OPTION("accumulator", "KIND", "sums by: cuda, cpu, or GPUs where there are any", OTHER,
            accumulator),
     .take = take_accumulator, .preset = "auto"},
    {OPTION("gpus", "LIST", "which, like 0,1 (all)", OTHER, sums), .take = take_gpus},
    {OPTION("shard", "HOW", "clients, coordinates", OTHER, sums), .take = take_shard,
     .appended = true},
    {OPTION("robust-memory", "BYTES", "for robust rules", U64, sums.robust_memory),
     .max = (uint64_t)1 << 50, .appended = true},
    {OPTION("gpus-file", "FILE", "has LIST; read again at HUP, for the next round on", TEXT,
            gpus_file)},
    {OPTION("new-run", NULL, "although one is unfinished", FLAG, new_run)},
    {OPTION("restored", NULL, "a backup", FLAG, restored), .appended = true},
    {OPTION("drain", NULL, "end after the open round", FLAG, drain)},
    {OPTION("supervise", NULL, "restarts it", FLAG, supervise), .appended = true},
    {OPTION("hosts", "FILE", NULL, TEXT, hosts)},
    {OPTION("strategy-plugin", "FILE", NULL, TEXT, strategy_plugin), .joined = true},
    {OPTION("port-file", "FILE", "yours; ports", TEXT, port_file)},
    {OPTION("result", "FILE", "summary", TEXT, result), .appended = true},
    {OPTION("check-config", NULL, "check everything but the state directory, and end", ENUM,
            action),
     .min = FEDGE_OPTIONS_CHECK},
    {OPTION("log-level", "LEVEL", "error, warn, info or debug", LOG_LEVEL, log_level),
     .preset = "info"},
    {OPTION("log-json", NULL, "as JSON", FLAG, log_json), .appended = true},
    {OPTION("quiet", NULL, NULL, FLAG, quiet), .joined = true},
    {OPTION("json", NULL, "only warnings; the summary on stdout", FLAG, json)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-aggregator",
    .usage = "Usage: fedge-aggregator --job JOB --state DIR --identity DIR --trust DIR\n"
             "                        --registry DIR [OPTION...]\n"
             "Runs a federated job, or goes on with it; with --hosts FILE on ranks of mpirun.\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .notes = "Signals: TERM, INT stop within a second (a new start goes on); HUP reloads\n"
             "  identity, trust, registry, GPUs, drops revoked devices; USR1 as --drain\n"
             "Exit: 0 complete, drained or stopped; 1 failed; 2 usage; 3 configuration;\n"
             "  4 state directory; 5 port; 6 disk; 7 GPU\n"};

const char *fedge_options_help(char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMMAND_LINE, text);
}

static fedge_status check_complete(const fedge_options *options, fedge_error *err)
{
    fedge_options given = *options;
    if (options->action == FEDGE_OPTIONS_CHECK && !options->state)
        given.state = ""; /* the one thing that is not checked */
    const fedge_status status = fedge_command_line_check(&COMMAND_LINE, &given, err);
    if (status != FEDGE_OK)
        return status;
    if (strcmp(options->accumulator, "cpu") == 0 &&
        (options->sums.num_gpus > 0 || options->gpus_file ||
         options->sums.shard != FEDGE_SHARD_AUTO)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--gpus, --gpus-file and --shard want --accumulator cuda or auto");
    }
    if (options->sums.num_gpus > 0 && options->gpus_file) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--gpus and --gpus-file both name GPUs; give one of them");
    }
    if (options->hosts && (!options->supervise || options->new_run || options->restored)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--hosts wants --supervise, and neither --new-run nor --restored: start "
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
    const fedge_status status =
        fedge_command_line_read(&COMMAND_LINE, argc, argv, options, &words, err);
    if (status != FEDGE_OK)
        return status;
    if (words.asked != FEDGE_ASKED_RUN) {
        options->action =
            words.asked == FEDGE_ASKED_HELP ? FEDGE_OPTIONS_HELP : FEDGE_OPTIONS_VERSION;
        return FEDGE_OK;
    }
    if (options->quiet && options->log_level > FEDGE_LOG_WARN)
        options->log_level = FEDGE_LOG_WARN;
    return check_complete(options, err);
}
