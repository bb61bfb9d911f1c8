#include "client/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/exit_codes.h"
#include "edge/core/version.h"
#include "edge/io/protocol.h"
#include "edge/io/site.h"

static const char help[] =
    "Usage: fedge-client --server wss://HOST[:9092] --identity DIR --trust DIR --config FILE\n"
    "                    [OPTION...]\n"
    "       fedge-client --plan JOB [--json]\n"
    "Trains on this device's data as the server's job asks, and sends encrypted updates.\n"
    "\n"
    "  --server URL          the aggregator; port 9092 when none is given\n"
    "  --identity DIR        key.pem and chain.pem of this device\n"
    "  --trust DIR           roots (*.pem) that the server's certificate must come from\n"
    "  --config FILE         where the data is, and what this device allows (JSON)\n"
    "  --state DIR           keeps downloads, results and server time over restarts;\n"
    "                        without it they are in memory\n"
    "  --partition-id I      take part I (from 0) ...\n"
    "  --num-partitions N    ... of N of the data, by the config's 'partition' scheme;\n"
    "                        both before those of the config\n"
    "  --log-level LEVEL     error, warn, info (default) or debug\n"
    "  --log-json            log lines as JSON objects\n"
    "  --check-config        read config, data (with --plan as JOB wants it), identity and\n"
    "                        trust, say what is there or wrong, and end\n"
    "  --plan JOB            print the memory that a job needs, per layer, and end\n"
    "  --json                ... as JSON\n"
    "  --help, --version\n"
    "\n"
    "Exit: 0 run complete or stopped by SIGTERM/SIGINT, 1 internal, 2 usage, 3 config,\n"
    "4 identity or trust, 5 state directory, 6 refused by the server, 7 not admitted\n"
    "(revoked, not registered), 8 job declined by this device.\n";

static bool number(const char *name, const char *text, uint32_t max, uint32_t *value)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || n > max) {
        fprintf(stderr, "fedge-client: --%s: '%s' is not a number from 0 to %u\n", name, text, max);
        return false;
    }
    *value = (uint32_t)n;
    return true;
}

static bool level(const char *text, fedge_log_level *value)
{
    fedge_error err;
    if (!fedge_log_level_from_name(text, value, &err))
        return true;
    fprintf(stderr, "fedge-client: --log-level: %s\n", err.message);
    return false;
}

/* What must be given and what must go together. */
static bool complete(const fedge_client_options *o, bool has_id)
{
    if ((o->plan && !o->check_config) || o->json) {
        if (!o->plan)
            fprintf(stderr, "fedge-client: --json goes with --plan; see --help\n");
        return o->plan;
    }
    const char *missing = !o->server     ? "--server"
                          : !o->identity ? "--identity"
                          : !o->trust    ? "--trust"
                          : !o->config   ? "--config"
                                         : NULL;
    if (missing)
        fprintf(stderr, "fedge-client: %s is needed; see --help\n", missing);
    else if (has_id != (o->num_partitions > 0))
        fprintf(stderr, "fedge-client: --partition-id and --num-partitions (1 or more) go "
                        "together\n");
    else if (has_id && o->partition_id >= o->num_partitions)
        fprintf(stderr,
                "fedge-client: --partition-id %u: with --num-partitions %u the last is %u\n",
                o->partition_id, o->num_partitions, o->num_partitions - 1);
    else
        return true;
    return false;
}

enum {
    SERVER = 256,
    IDENTITY,
    TRUST,
    CONFIG,
    STATE,
    PART,
    PARTS,
    LEVEL,
    LOG_JSON,
    CHECK,
    PLAN,
    JSON,
    HELP,
    RELEASE
};

static const struct option table[] = {{"server", required_argument, NULL, SERVER},
                                      {"identity", required_argument, NULL, IDENTITY},
                                      {"trust", required_argument, NULL, TRUST},
                                      {"config", required_argument, NULL, CONFIG},
                                      {"state", required_argument, NULL, STATE},
                                      {"partition-id", required_argument, NULL, PART},
                                      {"num-partitions", required_argument, NULL, PARTS},
                                      {"log-level", required_argument, NULL, LEVEL},
                                      {"log-json", no_argument, NULL, LOG_JSON},
                                      {"check-config", no_argument, NULL, CHECK},
                                      {"plan", required_argument, NULL, PLAN},
                                      {"json", no_argument, NULL, JSON},
                                      {"help", no_argument, NULL, HELP},
                                      {"version", no_argument, NULL, RELEASE},
                                      {NULL, 0, NULL, 0}};

/* One option; false when it is wrong. */
static bool take(int option, fedge_client_options *o, bool *has_id)
{
    switch (option) {
    case SERVER:
        o->server = optarg;
        return true;
    case IDENTITY:
        o->identity = optarg;
        return true;
    case TRUST:
        o->trust = optarg;
        return true;
    case CONFIG:
        o->config = optarg;
        return true;
    case STATE:
        o->state = optarg;
        return true;
    case PART:
        *has_id = true;
        return number("partition-id", optarg, FEDGE_SITE_MAX_PARTITIONS, &o->partition_id);
    case PARTS:
        return number("num-partitions", optarg, FEDGE_SITE_MAX_PARTITIONS, &o->num_partitions);
    case LEVEL:
        return level(optarg, &o->log_level);
    case LOG_JSON:
        return o->log_json = true;
    case CHECK:
        return o->check_config = true;
    case PLAN:
        o->plan = optarg;
        return true;
    case JSON:
        return o->json = true;
    default:
        fprintf(stderr, "See fedge-client --help.\n");
        return false;
    }
}

bool fedge_client_options_read(int argc, char **argv, fedge_client_options *options, int *exit_code)
{
    bool has_id = false;
    int option;
    *options = (fedge_client_options){.log_level = FEDGE_LOG_INFO};
    *exit_code = FEDGE_EXIT_USAGE;
    while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (option == HELP || option == RELEASE) {
            if (option == HELP)
                fputs(help, stdout);
            else
                printf("fedge-client %s\n", FEDGE_VERSION);
            *exit_code = FEDGE_EXIT_OK;
            return false;
        }
        if (!take(option, options, &has_id))
            return false;
    }
    if (optind < argc) {
        fprintf(stderr, "fedge-client: '%s' is not an option; see --help\n", argv[optind]);
        return false;
    }
    return complete(options, has_id);
}
