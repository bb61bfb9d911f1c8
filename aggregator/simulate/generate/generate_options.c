#include "aggregator/simulate/generate/generate_options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/simulate/limits.h"
#include "edge/core/number.h"
#include "edge/io/json.h"

#define CLIENTS 100u /* unless told */
#define FEDPROX_CLIENTS 30u
#define EXAMPLES 600u
#define IMAGE_EXAMPLES 50u
#define TEST_EXAMPLES 2000u
#define LEAST_FEDPROX_EXAMPLES 2u /* one of them for the test set */

const char *fedge_generate_options_help(void)
{
    return "Usage: fedge-simulate generate KIND --out DIR [OPTION...]\n"
           "Makes data up, and writes it with a job that learns it into DIR.\n"
           "\n"
           "KIND is one of\n"
           "  logistic[:FEATURES,LABELS]    Gaussian features, labels drawn by one softmax\n"
           "                                regression for all clients (60,10)\n"
           "  fedprox[:ALPHA,BETA], fedprox:iid\n"
           "                                synthetic(ALPHA,BETA) of Li et al. 2020 (1,1)\n"
           "  images[:C,H,W[,LABELS]]       a moved, noisy picture for each label\n"
           "                                (3,32,32,10)\n"
           "\n"
           "  --out DIR            where the files go; made when it is not there\n"
           "  --clients N          (100; fedprox 30)\n"
           "  --examples N         of each client (600; images 50; fedprox as in the paper:\n"
           "                       50 + lognormal(4, 2), a tenth of them for the test set)\n"
           "  --test N             examples of the test set (2000); not for fedprox\n"
           "  --seed S             of the data and the job (0)\n"
           "  --force              replace files that are there\n"
           "  --help\n"
           "\n"
           "Exit: 0 done; 1 failed; 2 usage; 3 settings, or files that are there\n";
}

enum { OPT_OUT = 256, OPT_CLIENTS, OPT_EXAMPLES, OPT_TEST, OPT_SEED, OPT_FORCE, OPT_HELP };

static const struct option LONG_OPTIONS[] = {{"out", required_argument, NULL, OPT_OUT},
                                             {"clients", required_argument, NULL, OPT_CLIENTS},
                                             {"examples", required_argument, NULL, OPT_EXAMPLES},
                                             {"test", required_argument, NULL, OPT_TEST},
                                             {"seed", required_argument, NULL, OPT_SEED},
                                             {"force", no_argument, NULL, OPT_FORCE},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

static fedge_status take(int option, const char *value, fedge_generate_options *out,
                         fedge_error *err)
{
    fedge_generate_settings *settings = &out->settings;
    switch (option) {
    case OPT_OUT:
        settings->dir = value;
        return FEDGE_OK;
    case OPT_CLIENTS:
        return fedge_option_count("clients", value, FEDGE_SIMULATE_MAX_CLIENTS,
                                  &settings->num_clients, err);
    case OPT_EXAMPLES:
        return fedge_option_count("examples", value, FEDGE_SYNTHETIC_MAX_EXAMPLES,
                                  &settings->num_examples, err);
    case OPT_TEST:
        return fedge_option_count("test", value, FEDGE_SYNTHETIC_MAX_EXAMPLES, &settings->num_test,
                                  err);
    case OPT_SEED:
        return fedge_option_number("seed", value, 0, FEDGE_JSON_MAX_INTEGER, &settings->seed, err);
    case OPT_FORCE:
        settings->force = true;
        return FEDGE_OK;
    default:
        out->help = true;
        return FEDGE_OK;
    }
}

/* Fills in what was not given. */
static fedge_status settle(fedge_generate_settings *settings, fedge_error *err)
{
    const bool fedprox = settings->data.kind == FEDGE_SYNTHETIC_FEDPROX;
    const bool images = settings->data.kind == FEDGE_SYNTHETIC_IMAGES;
    if (!settings->dir) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--out is missing (see generate --help)");
    }
    if (fedprox && settings->num_test > 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--test is not for fedprox, whose test set is a tenth of each client's "
                          "examples: leave it out");
    }
    if (fedprox && settings->num_examples > 0 && settings->num_examples < LEAST_FEDPROX_EXAMPLES) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--examples must be at least %u for fedprox: one is for the test set",
                          LEAST_FEDPROX_EXAMPLES);
    }
    if (settings->num_clients == 0) {
        settings->num_clients = fedprox ? FEDPROX_CLIENTS : CLIENTS;
    }
    if (!fedprox && settings->num_examples == 0) {
        settings->num_examples = images ? IMAGE_EXAMPLES : EXAMPLES;
    }
    if (!fedprox && settings->num_test == 0) {
        settings->num_test = TEST_EXAMPLES;
    }
    return FEDGE_OK;
}

static fedge_status take_kind(int argc, char **argv, fedge_generate_settings *settings,
                              fedge_error *err)
{
    if (optind + 1 != argc) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "generate wants one KIND of data, not %d (see generate --help)",
                          argc - optind);
    }
    const char *text = argv[optind];
    if (strlen(text) >= sizeof(settings->text)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%.60s…' is over %zu bytes", text,
                          sizeof(settings->text) - 1);
    }
    (void)snprintf(settings->text, sizeof(settings->text), "%s", text);
    return fedge_synthetic_parse(text, &settings->data, err);
}

fedge_status fedge_generate_options_parse(int argc, char **argv, fedge_generate_options *options,
                                          fedge_error *err)
{
    *options = (fedge_generate_options){0};
    opterr = 0;
    optind = 0; /* starts anew, also within tests */
    for (;;) {
        const int option = getopt_long(argc, argv, ":", LONG_OPTIONS, NULL);
        if (option == -1) {
            break;
        }
        if (option == '?' || option == ':') {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s '%s' (see generate --help)",
                              option == ':' ? "a value is missing for" : "unknown option",
                              argv[optind - 1]);
        }
        fedge_status status = take(option, optarg, options, err);
        if (status != FEDGE_OK || options->help) {
            return status;
        }
    }
    fedge_status status = take_kind(argc, argv, &options->settings, err);
    return status == FEDGE_OK ? settle(&options->settings, err) : status;
}
