#include "aggregator/simulate/run/options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/limits.h"
#include "aggregator/simulate/run/client_data.h"
#include "aggregator/simulate/run/final_evaluation.h"
#include "aggregator/simulate/run/trainer_engine.h"
#include "edge/io/json.h"

static bool has_target(const fedge_simulate_options *options, double target)
{
    for (uint32_t i = 0; i < options->num_targets; i++) {
        if (options->targets[i] >= target && options->targets[i] <= target)
            return true;
    }
    return false;
}

/* "0.75,0.8": shares in (0, 1]. */
static fedge_status parse_targets(const char *text, fedge_simulate_options *out, fedge_error *err)
{
    const char *at = text;
    out->num_targets = 0;
    for (;;) {
        char *end = NULL;
        const double value = strtod(at, &end);
        if (end == at || (*end != ',' && *end != '\0') || !(value > 0.0 && value <= 1.0)) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "--target must be accuracies over 0 and up to 1 with commas between "
                              "them, such as 0.75,0.8, not '%s'",
                              text);
        }
        if (has_target(out, value)) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "--target: %g stands twice in '%s': once is enough", value, text);
        }
        if (out->num_targets == FEDGE_RUN_SUMMARY_MAX_TARGETS) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--target: more than %d accuracies",
                              FEDGE_RUN_SUMMARY_MAX_TARGETS);
        }
        out->targets[out->num_targets++] = value;
        if (*end == '\0')
            return FEDGE_OK;
        at = end + 1;
    }
}

static fedge_status take_targets(void *settings, const char *option, const char *value,
                                 fedge_error *err)
{
    (void)option;
    return parse_targets(value, settings, err);
}

/* A probability or share that leaves something. */
static fedge_status parse_share(const char *option, const char *text, double *share,
                                fedge_error *err)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0.0 && value < 1.0)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--%s must be from 0 to below 1, not '%s'",
                          option, text);
    }
    *share = value;
    return FEDGE_OK;
}

static fedge_status take_failure(void *settings, const char *option, const char *value,
                                 fedge_error *err)
{
    fedge_simulate_options *out = settings;
    return parse_share(option, value, &out->profiles.failure, err);
}

static fedge_status take_attack(void *settings, const char *option, const char *value,
                                fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
    out->attack_text = value;
    return fedge_attack_parse(value, &out->attack, err);
}

static fedge_status take_validation(void *settings, const char *option, const char *value,
                                    fedge_error *err)
{
    fedge_simulate_options *out = settings;
    return parse_share(option, value, &out->validation_split, err);
}

static fedge_status add_axis(const char *value, fedge_simulate_options *out, fedge_error *err)
{
    if (out->num_axes == FEDGE_SIMULATE_MAX_AXES) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: more than %d settings",
                          FEDGE_SIMULATE_MAX_AXES);
    }
    out->axes[out->num_axes++] = value;
    return FEDGE_OK;
}

static fedge_status take_axis(void *settings, const char *option, const char *value,
                              fedge_error *err)
{
    (void)option;
    return add_axis(value, settings, err);
}

static fedge_status take_engine(void *settings, const char *option, const char *value,
                                fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
    out->engine = value;
    return fedge_trainer_engine_check_name(value, err);
}

static fedge_status take_accumulator(void *settings, const char *option, const char *value,
                                     fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
    out->accumulator = value;
    return fedge_accumulator_check_name(value, err);
}

static fedge_status take_gpus(void *settings, const char *option, const char *value,
                              fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
    return fedge_accumulator_parse_gpus(value, &out->sums, err);
}

static fedge_status take_shard(void *settings, const char *option, const char *value,
                               fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
    return fedge_accumulator_parse_shard(value, &out->sums.shard, err);
}

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, fedge_simulate_options, field)
#define GIVEN(field) .given = offsetof(fedge_simulate_options, field)

static const fedge_option OPTIONS[] = {
    {OPTION("job", "JOB", "the job, as fedge-aggregator takes it", TEXT, job), .needed = true},
    {OPTION("clients", "N", "virtual clients (as natural, file, per-file say)", U32, num_clients),
     .min = 1, .max = FEDGE_SIMULATE_MAX_CLIENTS},
    {OPTION("data", "FILE", "names the training data (client.json beside the job)", TEXT, data)},
    {OPTION("partition", "SPEC",
            "how the data is divided (as FILE says): iid, shards:2, dirichlet:0.3, "
            "dirichlet-client:0.3, labels:2, quantity:0.5, natural:COLUMN, file:CSV, per-file",
            TEXT, partition)},
    {OPTION("owner", "COLUMN", "says whose an example is: no value, whatever SPEC is", TEXT,
            owner)},
    {OPTION("seed", "S", NULL, U64, seed), .max = FEDGE_JSON_MAX_INTEGER, GIVEN(has_seed),
     .joined = true},
    {OPTION("partition-seed", "S", NULL, U64, partition_seed), .max = FEDGE_JSON_MAX_INTEGER,
     GIVEN(has_partition_seed), .joined = true},
    {OPTION("rounds", "R", "in place of the job's and FILE's", U32, num_rounds), .min = 1,
     .max = FEDGE_SIMULATE_MAX_ROUNDS},
    {OPTION("threads", "T", "virtual clients at work at a time (one per CPU)", U32, num_threads),
     .min = 1, .max = FEDGE_TRAINER_ENGINE_MAX_THREADS},
    {OPTION("engine", "KIND", NULL, OTHER, engine), .take = take_engine, .preset = "cpu",
     .joined = true},
    {OPTION("accumulator", "KIND", "train, sum by: cpu, cuda, auto", OTHER, accumulator),
     .take = take_accumulator, .preset = "cpu"},
    {OPTION("gpus", "LIST", NULL, OTHER, sums), .take = take_gpus, .joined = true},
    {OPTION("shard", "HOW", NULL, OTHER, sums), .take = take_shard, .joined = true},
    {OPTION("robust-memory", "BYTES", "GPUs; for robust rules", U64, sums.robust_memory),
     .max = (uint64_t)1 << 50},
    {OPTION("evaluate-every", "K", "rounds between evaluations", U32, evaluate_every), .min = 1,
     .max = FEDGE_SIMULATE_MAX_ROUNDS, .preset = "1"},
    {OPTION("validation-split", "S", "share of the examples to validate with, not train", OTHER,
            validation_split),
     .take = take_validation, .preset = "0"},
    {OPTION("client-accuracy", "N", "clients to evaluate the last model on", U32, client_accuracy),
     .max = FEDGE_SIMULATE_MAX_CLIENTS, .preset = FEDGE_PRESET(FEDGE_FINAL_EVALUATION_CLIENTS)},
    {OPTION("target", "A[,A...]", "first round of each", OTHER, targets), .take = take_targets},
    {OPTION("stop-at-target", NULL, "end then", FLAG, stop_at_target), .appended = true},
    {OPTION("sweep", "KEY=A,B ...",
            "one run for each combination of settings, such as lr=0.03,0.1 partition=iid,shards:2 "
            "seeds=3; a table",
            OTHER, axes),
     .take = take_axis},
    {OPTION("compute", "D",
            "virtual time: examples a second; D is fixed:A, uniform:A,B or lognormal:MEDIAN,SIGMA",
            TEXT, profiles.compute)},
    {OPTION("bandwidth", "D[/D]", "bytes a second, down/up", TEXT, profiles.bandwidth)},
    {OPTION("attack", "KIND:N[:S]", "N lie", OTHER, attack), .take = take_attack, .appended = true},
    {OPTION("failure", "P", "probability that a client gives up a task", OTHER, profiles.failure),
     .take = take_failure},
    {OPTION("availability", "A", "when online: SHARE,SECONDS (0.3,3600) or file:CSV", TEXT,
            profiles.availability)},
    {OPTION("trace", "CSV", "client,compute,down,up,failure of each client", TEXT, profiles.trace)},
    {OPTION("strategy-plugin", "FILE", NULL, TEXT, strategy_plugin), .joined = true},
    {OPTION("out", "DIR", NULL, TEXT, out), .joined = true},
    {OPTION("resume", NULL, "yours; rounds, model; go on", FLAG, resume)},
    {OPTION("quiet", NULL, NULL, FLAG, quiet), .joined = true},
    {OPTION("json", NULL, "no line a round; JSON summary", FLAG, json)},
    {OPTION("plan", NULL, "who trains where", FLAG, plan), .appended = true},
    {OPTION("each", NULL, NULL, FLAG, each)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-simulate",
    .usage = "Usage: fedge-simulate --job JOB --clients N [OPTION...]\n"
             "       fedge-simulate compare DIR... [--out FILE.svg] (compare --help)\n"
             "       fedge-simulate generate KIND --out DIR (generate --help); model FILE\n"
             "Runs a federated learning job with N virtual clients on this machine.\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .notes = "Ctrl-C drops the open round: DIR has what was done before; --resume goes on.\n"
             "Exit: 0 complete; 1 failed; 2 usage; 3 job, data or settings; 130 interrupted\n",
    .arguments = true};

const char *fedge_simulate_options_help(char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMMAND_LINE, text);
}

static const fedge_option COMPARE_OPTIONS[] = {
    {OPTION("out", "FILE.svg",
            "draw accuracy and loss of up to 14 lines into one picture, means with a band from the "
            "lowest seed to the highest; and leave the table beside it, in FILE.csv",
            TEXT, out)},
    {OPTION("each", NULL, "a line for each folder, seeds too", FLAG, each)},
    {OPTION("json", NULL, "their summaries, a line of JSON each", FLAG, json)}};

static const fedge_command_line COMPARE_LINE = {
    .name = "fedge-simulate compare",
    .command = true,
    .usage = "Usage: fedge-simulate compare DIR... [--out FILE.svg] [--each] [--json]\n"
             "Lays simulations side by side, from the folders that --out has left: a line\n"
             "for each, or for those together that differ in their seeds only, with mean\n"
             "± sample standard deviation, and the columns that any of them has.\n"
             "Those of a sweep are in the folders in its --out: compare grid/*\n"
             "\n"
             "  last 10, best      mean of the last ten accuracies, and the highest\n"
             "  validation, there  best accuracy on the examples of --validation-split, and\n"
             "                     the accuracy on the test set in that round\n"
             "  on clients         last accuracy on what clients hold out\n"
             "  virtual s          simulated time; behind it why a run ended, if not complete\n"
             "\n",
    .options = COMPARE_OPTIONS,
    .num_options = sizeof(COMPARE_OPTIONS) / sizeof(*COMPARE_OPTIONS),
    .notes = "\n"
             "Exit: 0 done; 1 failed, as when FILE.svg cannot be written; 2 usage, as when\n"
             "its name does not end in .svg; 3 a folder has no simulation that has ended,\n"
             "or more than 14 lines are to be drawn\n",
    .arguments = true};

const char *fedge_simulate_compare_help(char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMPARE_LINE, text);
}

static fedge_status check_complete(const fedge_simulate_options *options, fedge_error *err)
{
    const fedge_status status = fedge_command_line_check(&COMMAND_LINE, options, err);
    if (status != FEDGE_OK)
        return status;
    if (options->each)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--each goes with compare");
    if (options->resume && !options->out)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--resume needs --out DIR");
    if (options->plan && (options->num_axes > 0 || options->out || options->json)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--plan runs nothing: it goes without --sweep, --out and --json");
    }
    if (options->stop_at_target && options->num_targets == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--stop-at-target needs --target A");
    return FEDGE_OK;
}

/* A picture: a name of another kind may be that of a file to keep. */
static fedge_status check_picture(const char *path, fedge_error *err)
{
    static const char suffix[] = ".svg";
    const size_t size = path ? strlen(path) : 0, length = sizeof(suffix) - 1;
    return !path || (size > length && strcmp(path + size - length, suffix) == 0)
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "--out must be a name that ends in .svg, not '%s'", path);
}

static fedge_status parse_compare(int argc, char **argv, fedge_simulate_options *options,
                                  fedge_error *err)
{
    fedge_words words;
    options->action = FEDGE_SIMULATE_COMPARE;
    const fedge_status status =
        fedge_command_line_read(&COMPARE_LINE, argc, argv, options, &words, err);
    if (status != FEDGE_OK)
        return status;
    if (words.asked != FEDGE_ASKED_RUN) {
        options->action = FEDGE_SIMULATE_COMPARE_HELP;
        return FEDGE_OK;
    }
    options->dirs = words.at;
    options->num_dirs = words.num;
    return options->num_dirs > 0
               ? check_picture(options->out, err)
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "compare wants the folders of simulations (see compare --help)");
}

fedge_status fedge_simulate_options_parse(int argc, char **argv, fedge_simulate_options *options,
                                          fedge_error *err)
{
    fedge_words words;
    *options = (fedge_simulate_options){.action = FEDGE_SIMULATE_RUN};
    if (argc > 1 && strcmp(argv[1], "compare") == 0)
        return parse_compare(argc - 1, argv + 1, options, err);
    fedge_status status = fedge_command_line_read(&COMMAND_LINE, argc, argv, options, &words, err);
    if (status != FEDGE_OK)
        return status;
    if (words.asked != FEDGE_ASKED_RUN) {
        options->action =
            words.asked == FEDGE_ASKED_HELP ? FEDGE_SIMULATE_HELP : FEDGE_SIMULATE_VERSION;
        return FEDGE_OK;
    }
    /* --sweep's further settings need not have the option before each. */
    for (uint32_t i = 0; i < words.num && options->num_axes > 0 && status == FEDGE_OK; i++)
        status = add_axis(words.at[i], options, err);
    if (status != FEDGE_OK)
        return status;
    if (words.num > 0 && options->num_axes == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s' is not an option (see --help)",
                          words.at[0]);
    }
    return check_complete(options, err);
}
