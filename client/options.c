#include "client/options.h"

#include <stdio.h>
#include <string.h>

#include "client/exit_codes.h"
#include "client/training_backend.h"
#include "edge/core/command_line.h"
#include "edge/core/version.h"
#include "edge/site/site.h"
#include "secure/crypto/ciphers.h"

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, fedge_client_options, field)

static fedge_status take_server(void *settings, const char *option, const char *value,
                                fedge_error *err)
{
    fedge_client_options *o = settings;
    const size_t used = strlen(o->servers), space = sizeof(o->servers) - used;
    if ((size_t)snprintf(o->servers + used, space, "%s%s", used ? "," : "", value) >= space)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--%s: too many addresses", option);
    o->server = o->servers;
    return FEDGE_OK;
}

#ifdef FEDGE_WITH_CUDA
static fedge_status take_states(void *settings, const char *option, const char *value,
                                fedge_error *err)
{
    fedge_client_options *o = settings;
    o->settings.bf16_optimizer_states = strcmp(value, "bf16") == 0;
    return o->settings.bf16_optimizer_states || strcmp(value, "fp32") == 0
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--%s: '%.32s' is not fp32 or bf16",
                            option, value);
}
#endif

static const fedge_option OPTIONS[] = {
    {OPTION("server", "URL", "wss://HOST[:9092], over the config's; may be repeated", OTHER,
            server),
     .take = take_server},
    {OPTION("identity", "DIR", "this device's key.pem and chain.pem", TEXT, identity),
     .needed = true},
    {OPTION("trust", "DIR", "root certificates (*.pem) that servers must have", TEXT, trust),
     .needed = true},
    {OPTION("config", "FILE", "JSON: where the data is, what this device allows", TEXT, config),
     .needed = true},
    {OPTION("state", "DIR", "keep downloads and results here, not in memory", TEXT, state)},
    {OPTION("seed-blob", "FILE", "the server's initial model, instead of a download", TEXT,
            seed_blob)},
    {OPTION("proxy", "URL", "http://HOST:PORT, or '' for none (https_proxy)", TEXT, proxy)},
    {OPTION("partition-id", "I", "take part I of the data, counted from 0", U32, partition_id),
     .max = FEDGE_SITE_MAX_PARTITIONS, .given = offsetof(fedge_client_options, has_partition_id)},
    {OPTION("num-partitions", "N", "of N parts; both override the config", U32, num_partitions),
     .max = FEDGE_SITE_MAX_PARTITIONS},
    {OPTION("engine", "NAME", "what trains: cpu, or cuda where it is built", TEXT, backend),
     .preset = "cpu"},
    {OPTION("gpus", "LIST", "GPUs that train together, such as 0,1 (all)", TEXT, settings.gpus)},
#ifdef FEDGE_WITH_CUDA
    {OPTION("optimizer-states", "TYPE", "on GPUs: fp32, or bf16 in half the memory", OTHER,
            settings.bf16_optimizer_states),
     .take = take_states, .preset = "fp32"},
#endif
    {OPTION("log-level", "LEVEL", "error, warn, info or debug", LOG_LEVEL, log_level),
     .preset = "info"},
    {OPTION("log-json", NULL, "log in JSON lines", FLAG, log_json)},
    {OPTION("check-config", NULL, "check config, data, identity and trust, and exit", FLAG,
            check_config)},
#ifdef FEDGE_WITH_CUDA
    {OPTION("plan", "JOB", "print JOB's memory by layer and on one GPU, and exit", TEXT, plan)},
#else
    {OPTION("plan", "JOB", "print the memory that JOB needs by layer, and exit", TEXT, plan)},
#endif
    {OPTION("json", NULL, "print the plan as JSON", FLAG, json)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-client",
    .usage = "Usage: fedge-client --identity DIR --trust DIR --config FILE [OPTION...]\n"
             "       fedge-client --plan JOB [--json]\n"
             "Trains on this device's data for an aggregator.\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .notes = "Exit: 0 complete, or stopped by TERM or INT; 1 internal; 2 usage; 3 config;\n"
             "  4 identity or trust; 5 state directory; 6 refused by the server; 7 not\n"
             "  admitted; 8 job declined by this device; 9 GPU lost\n"};

/* Checks required options and combinations. */
static fedge_status check(const fedge_client_options *o, fedge_error *err)
{
    if (o->json && !o->plan)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--json goes with --plan (see --help)");
    if (o->json || (o->plan && !o->check_config))
        return FEDGE_OK;
    FEDGE_TRY(fedge_command_line_check(&COMMAND_LINE, o, err));
    if (o->has_partition_id != (o->num_partitions > 0)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--partition-id and --num-partitions (1 or more) go together");
    }
    if (o->has_partition_id && o->partition_id >= o->num_partitions) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--partition-id %u: with --num-partitions %u the last is %u",
                          o->partition_id, o->num_partitions, o->num_partitions - 1);
    }
    return FEDGE_OK;
}

bool fedge_client_options_read(int argc, char **argv, fedge_client_options *options, int *exit_code)
{
    char help[FEDGE_HELP_SIZE], ciphers[FEDGE_CIPHERS_TEXT];
    fedge_words words;
    fedge_error err;
    *options = (fedge_client_options){.server = NULL};
    *exit_code = FEDGE_EXIT_OK;
    fedge_status status = fedge_command_line_read(&COMMAND_LINE, argc, argv, options, &words, &err);
    if (status == FEDGE_OK && words.asked == FEDGE_ASKED_HELP)
        fputs(fedge_command_line_help(&COMMAND_LINE, false, help), stdout);
    else if (status == FEDGE_OK && words.asked == FEDGE_ASKED_VERSION)
        printf("fedge-client %s\nciphers: %s\n", FEDGE_VERSION, fedge_ciphers_text(ciphers));
    else if (status == FEDGE_OK)
        status = check(options, &err);
    if (status != FEDGE_OK) {
        fprintf(stderr, "fedge-client: %s\n", err.message);
        *exit_code = FEDGE_EXIT_USAGE;
    }
    return !status && words.asked == FEDGE_ASKED_RUN;
}

/* ---- training backends
 * --------------------------------------------------------------------------- */

const fedge_training_backend *const fedge_training_backends[] = {
#ifdef FEDGE_WITH_CUDA
    &fedge_training_backend_cuda,
#endif
    NULL,
};
