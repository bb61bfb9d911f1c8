#include "aggregator/simulate/generate/generate_options.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/simulate/time/limits.h"
#include "edge/json/json.h"

#define CLIENTS 100u /* unless told */
#define FEDPROX_CLIENTS 30u
#define EXAMPLES 600u
#define IMAGE_EXAMPLES 50u
#define TEST_EXAMPLES 2000u
#define LEAST_FEDPROX_EXAMPLES 2u /* one of them for the test set */

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, fedge_generate_settings, field)

static const fedge_option OPTIONS[] = {
    {OPTION("out", "DIR", "where the files go; made when it is not there", TEXT, dir),
     .needed = true},
    {OPTION("clients", "N", "(100; fedprox 30)", U32, num_clients), .min = 1,
     .max = FEDGE_SIMULATE_MAX_CLIENTS},
    {OPTION("examples", "N",
            "of each client (600; images 50; fedprox as in the paper: 50 + lognormal(4, 2), a "
            "tenth of them for the test set)",
            U32, num_examples),
     .min = 1, .max = FEDGE_SYNTHETIC_MAX_EXAMPLES},
    {OPTION("test", "N", "examples of the test set (2000); not for fedprox", U32, num_test),
     .min = 1, .max = FEDGE_SYNTHETIC_MAX_EXAMPLES},
    {OPTION("seed", "S", "of the data and the job", U64, seed), .max = FEDGE_JSON_MAX_INTEGER,
     .preset = "0"},
    {OPTION("force", NULL, "replace files that are there", FLAG, force)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-simulate generate",
    .command = true,
    .usage = "Usage: fedge-simulate generate KIND --out DIR [OPTION...]\n"
             "Makes data up, and writes it with a job that learns it into DIR.\n"
             "\n"
             "KIND is one of\n"
             "  logistic[:FEATURES,LABELS]    Gaussian features, labels drawn by one softmax\n"
             "                                regression for all clients (60,10)\n"
             "  fedprox[:ALPHA,BETA], fedprox:iid\n"
             "                                synthetic(ALPHA,BETA) of Li et al. 2020 (1,1)\n"
             "  images[:C,H,W[,LABELS]]       a moved, noisy picture for each label\n"
             "                                (3,32,32,10)\n"
             "\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .notes = "\nExit: 0 done; 1 failed; 2 usage; 3 settings, or files that are there\n",
    .arguments = true};

const char *fedge_generate_options_help(char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMMAND_LINE, false, text);
}

/* Fills in what was not given. */
static fedge_status derive(fedge_generate_settings *settings, fedge_error *err)
{
    const bool fedprox = settings->data.kind == FEDGE_SYNTHETIC_FEDPROX;
    const bool images = settings->data.kind == FEDGE_SYNTHETIC_IMAGES;
    FEDGE_TRY(fedge_command_line_check(&COMMAND_LINE, settings, err));
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
    if (settings->num_clients == 0)
        settings->num_clients = fedprox ? FEDPROX_CLIENTS : CLIENTS;
    if (!fedprox && settings->num_examples == 0)
        settings->num_examples = images ? IMAGE_EXAMPLES : EXAMPLES;
    if (!fedprox && settings->num_test == 0)
        settings->num_test = TEST_EXAMPLES;
    return FEDGE_OK;
}

static fedge_status take_kind(const fedge_words *words, fedge_generate_settings *settings,
                              fedge_error *err)
{
    if (words->num != 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "generate needs one KIND of data, not %u (see generate --help)",
                          words->num);
    }
    if (strlen(words->at[0]) >= sizeof(settings->text)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%.60s…' is over %zu bytes", words->at[0],
                          sizeof(settings->text) - 1);
    }
    (void)snprintf(settings->text, sizeof(settings->text), "%s", words->at[0]);
    return fedge_synthetic_parse(words->at[0], &settings->data, err);
}

fedge_status fedge_generate_options_parse(int argc, char **argv, fedge_generate_options *options,
                                          fedge_error *err)
{
    fedge_words words;
    *options = (fedge_generate_options){0};
    fedge_status status =
        fedge_command_line_read(&COMMAND_LINE, argc, argv, &options->settings, &words, err);
    options->help = words.asked == FEDGE_ASKED_HELP;
    if (status != FEDGE_OK || options->help)
        return status;
    status = take_kind(&words, &options->settings, err);
    return status == FEDGE_OK ? derive(&options->settings, err) : status;
}
