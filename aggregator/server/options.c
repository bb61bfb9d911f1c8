#include "aggregator/server/options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/server/ingest.h"
#include "edge/core/number.h"

const char *fedge_options_help(void)
{
    return "Usage: fedge-aggregator --job JOB --state DIR --identity DIR --trust DIR\n"
           "                        --registry DIR [OPTION...]\n"
           "Runs a federated learning job, or goes on with it where it stopped.\n"
           "  --listen ADDR:PORT   for clients (0.0.0.0:9092; port 0: any free one)\n"
           "  --http ADDR:PORT     /healthz, /metrics (127.0.0.1:9093), or off;\n"
           "  --http-host NAME       a host that requests may name, besides addresses\n"
           "  --workers N          threads that validate and sum (one per CPU, up to 8)\n"
           "  --max-connections N  more devices are refused (20000)\n"
           "  --max-unauthenticated N, --max-per-address N  without certificate (1024, 512)\n"
           "  --accumulator KIND   what sums: cuda, cpu or auto (GPUs where there are any)\n"
           "  --gpus LIST          which, like 0,1 (all); --shard auto, clients, coordinates\n"
           "  --gpus-file FILE     has LIST; read again at HUP, for the next round on\n"
           "  --new-run            a new run, although one of this job is unfinished\n"
           "  --restored           the state directory is a backup that was put back\n"
           "  --drain              end after the open round; --supervise: start again after\n"
           "                         a crash or the loss of a GPU\n"
           "  --port-file FILE     gets both ports; --result FILE gets the run's summary\n"
           "  --check-config       check everything but the state directory, and end\n"
           "  --log-level LEVEL    error, warn, info or debug (info); --log-json: as JSON\n"
           "  --quiet, --json      only warnings; the summary on stdout. --help, --version\n"
           "Signals: TERM, INT stop within a second (a new start goes on); HUP reloads\n"
           "  identity, trust, registry, GPUs, drops revoked devices; USR1 as --drain\n"
           "Exit: 0 complete, drained or stopped; 1 failed; 2 usage; 3 configuration;\n"
           "  4 state directory; 5 port; 6 disk; 7 GPU\n";
}

enum {
    OPT_JOB = 256,
    OPT_STATE,
    OPT_IDENTITY,
    OPT_TRUST,
    OPT_REGISTRY,
    OPT_LISTEN,
    OPT_HTTP,
    OPT_HTTP_HOST,
    OPT_WORKERS,
    OPT_MAX_CONNECTIONS,
    OPT_MAX_UNAUTHENTICATED,
    OPT_MAX_PER_ADDRESS,
    OPT_ACCUMULATOR,
    OPT_GPUS,
    OPT_GPUS_FILE,
    OPT_SHARD,
    OPT_NEW_RUN,
    OPT_RESTORED,
    OPT_DRAIN,
    OPT_SUPERVISE,
    OPT_PORT_FILE,
    OPT_RESULT,
    OPT_CHECK_CONFIG,
    OPT_LOG_LEVEL,
    OPT_LOG_JSON,
    OPT_QUIET,
    OPT_JSON,
    OPT_HELP,
    OPT_VERSION
};

static const struct option LONG_OPTIONS[] = {
    {"job", required_argument, NULL, OPT_JOB},
    {"state", required_argument, NULL, OPT_STATE},
    {"identity", required_argument, NULL, OPT_IDENTITY},
    {"trust", required_argument, NULL, OPT_TRUST},
    {"registry", required_argument, NULL, OPT_REGISTRY},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"http", required_argument, NULL, OPT_HTTP},
    {"http-host", required_argument, NULL, OPT_HTTP_HOST},
    {"workers", required_argument, NULL, OPT_WORKERS},
    {"max-connections", required_argument, NULL, OPT_MAX_CONNECTIONS},
    {"max-unauthenticated", required_argument, NULL, OPT_MAX_UNAUTHENTICATED},
    {"max-per-address", required_argument, NULL, OPT_MAX_PER_ADDRESS},
    {"accumulator", required_argument, NULL, OPT_ACCUMULATOR},
    {"gpus", required_argument, NULL, OPT_GPUS},
    {"gpus-file", required_argument, NULL, OPT_GPUS_FILE},
    {"shard", required_argument, NULL, OPT_SHARD},
    {"new-run", no_argument, NULL, OPT_NEW_RUN},
    {"restored", no_argument, NULL, OPT_RESTORED},
    {"drain", no_argument, NULL, OPT_DRAIN},
    {"supervise", no_argument, NULL, OPT_SUPERVISE},
    {"port-file", required_argument, NULL, OPT_PORT_FILE},
    {"result", required_argument, NULL, OPT_RESULT},
    {"check-config", no_argument, NULL, OPT_CHECK_CONFIG},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"log-json", no_argument, NULL, OPT_LOG_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static fedge_status parse_address(const char *option, const char *text, fedge_address *address,
                                  fedge_error *err)
{
    fedge_status status = fedge_address_parse(text, address, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "--%s", option);
}

static fedge_status take_value(int option, const char *value, fedge_options *out, fedge_error *err)
{
    switch (option) {
    case OPT_JOB:
        out->job = value;
        return FEDGE_OK;
    case OPT_STATE:
        out->state = value;
        return FEDGE_OK;
    case OPT_IDENTITY:
        out->identity = value;
        return FEDGE_OK;
    case OPT_TRUST:
        out->trust = value;
        return FEDGE_OK;
    case OPT_REGISTRY:
        out->registry = value;
        return FEDGE_OK;
    case OPT_HTTP_HOST:
        out->http_host = value;
        return FEDGE_OK;
    case OPT_PORT_FILE:
        out->port_file = value;
        return FEDGE_OK;
    case OPT_RESULT:
        out->result = value;
        return FEDGE_OK;
    case OPT_LISTEN:
        return parse_address("listen", value, &out->listen, err);
    case OPT_HTTP:
        out->http_on = strcmp(value, "off") != 0;
        return out->http_on ? parse_address("http", value, &out->http, err) : FEDGE_OK;
    case OPT_WORKERS:
        return fedge_option_count("workers", value, FEDGE_INGEST_MAX_WORKERS, &out->num_workers,
                                  err);
    case OPT_MAX_CONNECTIONS:
        return fedge_option_count("max-connections", value, FEDGE_MAX_CONNECTIONS,
                                  &out->max_connections, err);
    case OPT_MAX_UNAUTHENTICATED:
        return fedge_option_count("max-unauthenticated", value, FEDGE_MAX_UNAUTHENTICATED,
                                  &out->max_unauthenticated, err);
    case OPT_MAX_PER_ADDRESS:
        return fedge_option_count("max-per-address", value, FEDGE_MAX_UNAUTHENTICATED,
                                  &out->max_per_address, err);
    case OPT_ACCUMULATOR:
        out->accumulator = value;
        return fedge_accumulator_check_name(value, err);
    case OPT_GPUS:
        return fedge_accumulator_parse_gpus(value, &out->sums, err);
    case OPT_GPUS_FILE:
        out->gpus_file = value;
        return FEDGE_OK;
    case OPT_SHARD:
        return fedge_accumulator_parse_shard(value, &out->sums.shard, err);
    default:
        return fedge_log_level_from_name(value, &out->log_level, err);
    }
}

static void take_flag(int option, fedge_options *out)
{
    switch (option) {
    case OPT_NEW_RUN:
        out->new_run = true;
        break;
    case OPT_RESTORED:
        out->restored = true;
        break;
    case OPT_DRAIN:
        out->drain = true;
        break;
    case OPT_SUPERVISE:
        out->supervise = true;
        break;
    case OPT_LOG_JSON:
        out->log_json = true;
        break;
    case OPT_QUIET:
        out->quiet = true;
        break;
    case OPT_JSON:
        out->json = true;
        break;
    case OPT_CHECK_CONFIG:
        out->action = FEDGE_OPTIONS_CHECK;
        break;
    case OPT_HELP:
        out->action = FEDGE_OPTIONS_HELP;
        break;
    default:
        out->action = FEDGE_OPTIONS_VERSION;
        break;
    }
}

static fedge_status check_complete(const fedge_options *options, fedge_error *err)
{
    const struct {
        const char *name, *value;
    } needed[] = {{"job", options->job},
                  {"state", options->action == FEDGE_OPTIONS_CHECK ? "" : options->state},
                  {"identity", options->identity},
                  {"trust", options->trust},
                  {"registry", options->registry}};
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (!needed[i].value) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--%s is missing (see --help)",
                              needed[i].name);
        }
    }
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
    if (options->http_on && options->http.port != 0 && options->http.port == options->listen.port &&
        strcmp(options->http.host, options->listen.host) == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--listen and --http are the same address; choose two ports");
    }
    return FEDGE_OK;
}

fedge_status fedge_options_parse(int argc, char **argv, fedge_options *options, fedge_error *err)
{
    *options = (fedge_options){.max_connections = FEDGE_DEFAULT_CONNECTIONS,
                               .max_unauthenticated = FEDGE_DEFAULT_UNAUTHENTICATED,
                               .max_per_address = FEDGE_DEFAULT_PER_ADDRESS,
                               .http_on = true,
                               .log_level = FEDGE_LOG_INFO,
                               .accumulator = "auto",
                               .sums = {.num_lanes = 1}};
    fedge_status status = fedge_address_parse(FEDGE_DEFAULT_LISTEN, &options->listen, err);
    if (status == FEDGE_OK) {
        status = fedge_address_parse(FEDGE_DEFAULT_HTTP, &options->http, err);
    }
    opterr = 0;
    optind = 0; /* starts anew, also within tests */
    int option = 0;
    bool asked = false;
    while (status == FEDGE_OK && !asked &&
           (option = getopt_long(argc, argv, ":", LONG_OPTIONS, NULL)) != -1) {
        if (option == '?' || option == ':') {
            status = fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s '%s' (see --help)",
                                option == ':' ? "a value is missing for" : "unknown option",
                                argv[optind - 1]);
        } else if (option < OPT_NEW_RUN || option == OPT_PORT_FILE || option == OPT_RESULT ||
                   option == OPT_LOG_LEVEL) {
            status = take_value(option, optarg, options, err);
        } else {
            take_flag(option, options);
            asked = option == OPT_HELP || option == OPT_VERSION;
        }
    }
    if (status != FEDGE_OK || asked) {
        return status;
    }
    if (optind < argc) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s' is not an option (see --help)",
                          argv[optind]);
    }
    if (options->quiet && options->log_level > FEDGE_LOG_WARN) {
        options->log_level = FEDGE_LOG_WARN;
    }
    return check_complete(options, err);
}
