#include "aggregator/simulate/experiment/options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/simulate/cohort/client_data.h"
#include "aggregator/simulate/cohort/training_backend.h"
#include "aggregator/simulate/run/final_evaluation.h"
#include "aggregator/simulate/time/availability.h"
#include "edge/json/json.h"

/* "0.75,0.8": accuracies in (0, 1]. */
static fedge_status take_targets(void *settings, const char *option, const char *text,
                                 fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
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
        for (uint32_t i = 0; i < out->num_targets; i++) {
            if (out->targets[i] >= value && out->targets[i] <= value) {
                return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                                  "--target: %g is given twice in '%s': once is enough", value,
                                  text);
            }
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

/* Parses a number from 0 to below 1. */
static fedge_status parse_fraction(const char *option, const char *text, double *fraction,
                                   fedge_error *err)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0.0 && value < 1.0)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--%s must be from 0 to below 1, not '%s'",
                          option, text);
    }
    *fraction = value;
    return FEDGE_OK;
}

static fedge_status take_failure(void *settings, const char *option, const char *value,
                                 fedge_error *err)
{
    fedge_simulate_options *out = settings;
    return parse_fraction(option, value, &out->profiles.failure, err);
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
    return parse_fraction(option, value, &out->validation_split, err);
}

static fedge_status take_axis(void *settings, const char *option, const char *value,
                              fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
    if (out->num_axes == FEDGE_SIMULATE_MAX_AXES) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--sweep: more than %d settings",
                          FEDGE_SIMULATE_MAX_AXES);
    }
    out->axes[out->num_axes++] = value;
    return FEDGE_OK;
}

static fedge_status take_backend(void *settings, const char *option, const char *value,
                                 fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
    out->backend = value;
    return fedge_sim_backend_check_name(value, err);
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

static fedge_status take_join(void *settings, const char *option, const char *value,
                              fedge_error *err)
{
    (void)option;
    fedge_simulate_options *out = settings;
    out->sums.join = value;
    return fedge_distributed_check_name(value, err);
}

/* "5,7": descriptors that this process has inherited. */
static fedge_status take_channels(void *settings, const char *option, const char *value,
                                  fedge_error *err)
{
    fedge_simulate_options *out = settings;
    const char *at = value;
    out->num_trainer_channels = 0;
    for (;;) {
        char *end = NULL;
        const long channel = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || channel <= 2 || channel > 65535 ||
            out->num_trainer_channels == FEDGE_SIMULATE_MAX_CHANNELS) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "--%s must be at most %d numbers of open sockets, such as 5,7, not "
                              "'%.64s'",
                              option, FEDGE_SIMULATE_MAX_CHANNELS, value);
        }
        out->trainer_channels[out->num_trainer_channels++] = (int)channel;
        if (*end == '\0')
            return FEDGE_OK;
        at = end + 1;
    }
}

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, fedge_simulate_options, field)
#define GIVEN(field) .given = offsetof(fedge_simulate_options, field)

/* Those that are not advanced fit 24 lines, with usage and notes. */
static const fedge_option OPTIONS[] = {
    {OPTION("job", "JOB", "the job, as fedge-aggregator takes it", TEXT, job), .needed = true},
    {OPTION("clients", "N", "number of virtual clients", U32, num_clients), .min = 1,
     .max = FEDGE_SIMULATE_MAX_CLIENTS},
    {OPTION("data", "FILE", "client file that names the training data (client.json)", TEXT, data)},
    {OPTION("partition", "SPEC",
            "how to divide the data: iid, shards:2, dirichlet:0.3, dirichlet-client:0.3, labels:2, "
            "quantity:0.5, natural:COLUMN, file:CSV or per-file (as FILE says)",
            TEXT, partition)},
    {OPTION("owner", "COLUMN",
            "column of the data that names an example's owner; it is not used as a feature", TEXT,
            owner),
     .advanced = true},
    {OPTION("seed", "S", "seed in place of the job's", U64, seed), .max = FEDGE_JSON_MAX_INTEGER,
     GIVEN(has_seed), .advanced = true},
    {OPTION("partition-seed", "S", "seed for dividing the data, in place of FILE's", U64,
            partition_seed),
     .max = FEDGE_JSON_MAX_INTEGER, GIVEN(has_partition_seed), .advanced = true},
    {OPTION("rounds", "R", "number of rounds in place of the job's", U32, num_rounds), .min = 1,
     .max = FEDGE_SIMULATE_MAX_ROUNDS},
    {OPTION("threads", "T", "virtual clients trained at a time (one per CPU)", U32, num_threads),
     .min = 1, .max = FEDGE_SIM_BACKEND_MAX_THREADS},
    {OPTION("engine", "KIND", "what trains clients: cpu, cuda or auto", OTHER, backend),
     .take = take_backend, .preset = "cpu"},
    {OPTION("trainer", "COMMAND", "train with a program of your own, in T processes", TEXT,
            trainer)},
    {OPTION("trainer-channels", "FD[,FD...]", "sockets of such programs that run already", OTHER,
            trainer_channels),
     .take = take_channels, .advanced = true},
    {OPTION("accumulator", "KIND", "what sums updates: cpu, cuda or auto (the engine, if it can)",
            OTHER, accumulator),
     .take = take_accumulator, .advanced = true},
    {OPTION("gpus", "LIST", "GPUs to use, such as 0,1 (all)", OTHER, sums), .take = take_gpus,
     .advanced = true},
    {OPTION("shard", "HOW", "how GPUs divide the sums: by clients or by coordinates (auto)", OTHER,
            sums),
     .take = take_shard, .advanced = true},
    {OPTION("join", "KIND", "what joins the sums of several ranks: nccl, mpi or auto", OTHER, sums),
     .take = take_join, .advanced = true},
    {OPTION("robust-memory", "BYTES", "memory that robust aggregation rules may use (1 GiB)", U64,
            sums.robust_memory),
     .max = (uint64_t)1 << 50, .advanced = true},
    {OPTION("client-state-memory", "BYTES",
            "memory for clients' states; beyond it they go to a file (as fits)", U64,
            client_state_memory),
     .min = 1, .max = (uint64_t)1 << 50, .advanced = true},
    {OPTION("strategy-plugin", "FILE",
            "load a strategy or metrics from a shared object, or from a file of Python", TEXT,
            strategy_plugin),
     .advanced = true},
    {OPTION("strategy-timeout", "SECONDS", "time limit of a step in Python", U32,
            strategy_timeout_s),
     .min = 1, .max = 86400, .preset = "600", .advanced = true},
    {OPTION("evaluate-every", "K", "rounds from one evaluation to the next", U32, evaluate_every),
     .min = 1, .max = FEDGE_SIMULATE_MAX_ROUNDS, .preset = "1", .advanced = true},
    {OPTION("validation-split", "S", "fraction of the training examples used for validation", OTHER,
            validation_split),
     .take = take_validation, .preset = "0", .advanced = true},
    {OPTION("client-accuracy", "N", "number of clients on which the last model is evaluated", U32,
            client_accuracy),
     .max = FEDGE_SIMULATE_MAX_CLIENTS, .preset = FEDGE_PRESET(FEDGE_FINAL_EVALUATION_CLIENTS),
     .advanced = true},
    {OPTION("target", "A[,A...]", "report the first round that reaches each accuracy", OTHER,
            targets),
     .take = take_targets, .advanced = true},
    {OPTION("stop-at-target", NULL, "end when every target is reached", FLAG, stop_at_target),
     .advanced = true},
    {OPTION("sweep", "KEY=A,B ...",
            "run every combination of settings, such as lr=0.03,0.1 partition=iid,shards:2 "
            "seeds=3, and print a table",
            OTHER, axes),
     .take = take_axis},
    {OPTION("compute", "D",
            "virtual time: examples that a client trains per second; D is fixed:A, uniform:A,B or "
            "lognormal:MEDIAN,SIGMA",
            TEXT, profiles.compute),
     .advanced = true},
    {OPTION("bandwidth", "D[/D]", "virtual time: bytes per second, down and up", TEXT,
            profiles.bandwidth),
     .advanced = true},
    {OPTION("failure", "P", "probability that a client gives up a task", OTHER, profiles.failure),
     .take = take_failure, .advanced = true},
    {OPTION("availability", "A",
            "when clients are online: SHARE,SECONDS (such as 0.3,3600) or file:CSV", TEXT,
            profiles.availability),
     .advanced = true},
    {OPTION("trace", "CSV", "file with the columns client,compute,down,up,failure", TEXT,
            profiles.trace),
     .advanced = true},
    {OPTION("attack", "KIND:N[:S]", "the first N clients attack, with strength S", OTHER, attack),
     .take = take_attack, .advanced = true},
    {OPTION("replay", "FILE", "repeat an asynchronous run from its rounds.jsonl", TEXT, replay),
     .advanced = true},
    {OPTION("out", "DIR", "directory for the model, curves and checkpoints", TEXT, out)},
    {OPTION("resume", NULL, "continue from the last checkpoint in DIR", FLAG, resume)},
    {OPTION("plan", NULL, "print where clients would be trained, and exit", FLAG, plan),
     .advanced = true},
    {OPTION("quiet", NULL, "print no line for each round", FLAG, quiet)},
    {OPTION("json", NULL, "print the summary as JSON", FLAG, json)},
    {OPTION("each", NULL, NULL, FLAG, each)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-simulate",
    .usage = "Usage: fedge-simulate --job JOB --clients N [OPTION...]\n"
             "       fedge-simulate compare DIR... [OPTION...]\n"
             "       fedge-simulate generate KIND --out DIR [OPTION...]\n"
             "       fedge-simulate model FILE [--json]\n"
             "Runs a federated learning job with N virtual clients on this machine.\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .help_all = true,
    .notes = "Signals: INT stops; --resume continues after the last complete round.\n"
             "Exit: 0 complete; 1 failed; 2 usage; 3 job, data or settings; 130 interrupted\n",
    .arguments = true};

const char *fedge_simulate_options_help(bool all, char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMMAND_LINE, all, text);
}

static const fedge_option COMPARE_OPTIONS[] = {
    {OPTION("out", "FILE.csv",
            "also write the table to FILE.csv, with means and standard deviations in columns of "
            "their own",
            TEXT, out)},
    {OPTION("each", NULL, "give every folder its own line, even if only seeds differ", FLAG, each)},
    {OPTION("json", NULL, "print the summaries as JSON, one on each line", FLAG, json)}};

static const fedge_command_line COMPARE_LINE = {
    .name = "fedge-simulate compare",
    .command = true,
    .usage = "Usage: fedge-simulate compare DIR... [--out FILE.csv] [--each] [--json]\n"
             "Compares simulations and runs of servers. Each DIR is a folder that a simulation's\n"
             "--out has made, or a server's STATE/runs/RUN_ID.\n"
             "Simulations that differ only in their seeds share a line, which has the mean\n"
             "± the sample standard deviation. Every other one has a line of its own.\n"
             "A column is shown if at least one simulation has a value for it.\n"
             "A sweep has a folder for each simulation in its --out: compare grid/*\n"
             "\n"
             "  last 10, best      mean of the last ten accuracies, and the highest accuracy\n"
             "  validation, there  best accuracy on the examples of --validation-split, and\n"
             "                     the accuracy on the test set in the same round\n"
             "  on clients         last accuracy on the examples that clients hold out\n"
             "  virtual s          simulated time, and why the run ended if it is incomplete\n"
             "\n",
    .options = COMPARE_OPTIONS,
    .num_options = sizeof(COMPARE_OPTIONS) / sizeof(*COMPARE_OPTIONS),
    .notes = "\n"
             "Exit: 0 done; 1 failed, for example because FILE.csv cannot be written;\n"
             "2 wrong usage, for example a name that does not end in .csv; 3 a folder has no\n"
             "simulation that has ended and no run\n",
    .arguments = true};

const char *fedge_simulate_compare_help(char text[FEDGE_HELP_SIZE])
{
    return fedge_command_line_help(&COMPARE_LINE, false, text);
}

/* A trainer of one's own has its own data, and divides it. */
static fedge_status check_trainer(const fedge_simulate_options *options, fedge_error *err)
{
    const struct {
        bool given;
        const char *name;
    } OF_DATA[] = {{options->data != NULL, "data"},
                   {options->partition != NULL, "partition"},
                   {options->has_partition_seed, "partition-seed"},
                   {options->owner != NULL, "owner"},
                   {options->attack.kind && !fedge_attack_forges_updates(&options->attack),
                    "attack label-flip or backdoor"},
                   {options->validation_split > 0.0, "validation-split"}};
    const bool channels = options->num_trainer_channels > 0;
    if (!options->trainer && !channels)
        return FEDGE_OK;
    for (size_t i = 0; i < sizeof(OF_DATA) / sizeof(*OF_DATA); i++) {
        if (OF_DATA[i].given) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "--%s is about data that fedge reads, but with --trainer a client's "
                              "data is the trainer's, which knows task->client_index and "
                              "num_clients: remove it",
                              OF_DATA[i].name);
        }
    }
    if (options->trainer && channels)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--trainer goes without --trainer-channels");
    if (options->num_clients == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--trainer needs --clients N");
    if (options->num_axes > 0 && channels) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--sweep starts trainers for each of its runs, and these run already: "
                          "give --trainer COMMAND, or call fedge.simulate once for each setting");
    }
    if (strcmp(options->backend, "cpu") != 0 && strcmp(options->backend, "process") != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--trainer trains in processes of its own: remove --engine %s",
                          options->backend);
    }
    return FEDGE_OK;
}

static fedge_status check_complete(const fedge_simulate_options *options, fedge_error *err)
{
    FEDGE_TRY(fedge_command_line_check(&COMMAND_LINE, options, err));
    if (options->each)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--each goes with compare");
    if (options->resume && !options->out)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--resume needs --out DIR");
    if (options->plan && (options->num_axes > 0 || options->out || options->json)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--plan runs nothing: it goes without --sweep, --out and --json");
    }
    FEDGE_TRY(check_trainer(options, err));
    if (options->stop_at_target && options->num_targets == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--stop-at-target needs --target A");
    return FEDGE_OK;
}

/* Refuses a name that does not end in .csv, which may be that of another file. */
static fedge_status check_table(const char *path, fedge_error *err)
{
    static const char suffix[] = ".csv";
    const size_t size = path ? strlen(path) : 0, length = sizeof(suffix) - 1;
    return !path || (size > length && strcmp(path + size - length, suffix) == 0)
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "--out must be a name that ends in .csv, not '%s'", path);
}

static fedge_status parse_compare(int argc, char **argv, fedge_simulate_options *options,
                                  fedge_error *err)
{
    fedge_words words;
    options->action = FEDGE_SIMULATE_COMPARE;
    FEDGE_TRY(fedge_command_line_read(&COMPARE_LINE, argc, argv, options, &words, err));
    if (words.asked != FEDGE_ASKED_RUN) {
        options->action = FEDGE_SIMULATE_COMPARE_HELP;
        return FEDGE_OK;
    }
    options->dirs = words.at;
    options->num_dirs = words.num;
    return options->num_dirs > 0
               ? check_table(options->out, err)
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "compare needs the folders of simulations (see compare --help)");
}

fedge_status fedge_simulate_options_parse(int argc, char **argv, fedge_simulate_options *options,
                                          fedge_error *err)
{
    fedge_words words;
    *options = (fedge_simulate_options){.action = FEDGE_SIMULATE_RUN};
    if (argc > 1 && strcmp(argv[1], "compare") == 0)
        return parse_compare(argc - 1, argv + 1, options, err);
    FEDGE_TRY(fedge_command_line_read(&COMMAND_LINE, argc, argv, options, &words, err));
    if (words.asked != FEDGE_ASKED_RUN) {
        options->action = words.asked == FEDGE_ASKED_HELP       ? FEDGE_SIMULATE_HELP
                          : words.asked == FEDGE_ASKED_HELP_ALL ? FEDGE_SIMULATE_HELP_ALL
                                                                : FEDGE_SIMULATE_VERSION;
        return FEDGE_OK;
    }
    /* Further words are settings of --sweep. */
    for (uint32_t i = 0; i < words.num && options->num_axes > 0; i++)
        FEDGE_TRY(take_axis(options, NULL, words.at[i], err));
    if (words.num > 0 && options->num_axes == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s' is not an option (see --help)",
                          words.at[0]);
    }
    return check_complete(options, err);
}
