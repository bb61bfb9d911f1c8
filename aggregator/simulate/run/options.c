#include "aggregator/simulate/run/options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/limits.h"
#include "aggregator/simulate/run/client_data.h"
#include "aggregator/simulate/run/final_evaluation.h"
#include "aggregator/simulate/run/trainer_engine.h"
#include "edge/core/number.h"
#include "edge/io/json.h"

const char *fedge_simulate_options_help(void)
{
    return "Usage: fedge-simulate --job JOB --clients N [OPTION...]\n"
           "       fedge-simulate compare DIR... [--out FILE.svg] (compare --help)\n"
           "       fedge-simulate generate KIND --out DIR (generate --help); model FILE\n"
           "Runs a federated learning job with N virtual clients on this machine.\n"
           "  --job JOB            the job, as fedge-aggregator takes it\n"
           "  --clients N          virtual clients (as natural, file, per-file say)\n"
           "  --data FILE          names the training data (client.json beside the job)\n"
           "  --partition SPEC     how the data is divided (as FILE says): iid, shards:2,\n"
           "                       dirichlet:0.3, dirichlet-client:0.3, labels:2,\n"
           "                       quantity:0.5, natural:COLUMN, file:CSV, per-file\n"
           "  --owner COLUMN       says whose an example is: no value, whatever SPEC is\n"
           "  --seed S, --partition-seed S, --rounds R  in place of the job's and FILE's\n"
           "  --threads T          virtual clients at work at a time (one per CPU)\n"
           "  --engine, --accumulator KIND  train, sum by: cpu, cuda, auto; --gpus, --shard\n"
           "  --evaluate-every K   rounds between evaluations (1)\n"
           "  --validation-split S  share of the examples to validate with, not train (0)\n"
           "  --client-accuracy N  clients to evaluate the last model on (10000)\n"
           "  --target A[,A...]    first round of each; --stop-at-target: end with the last\n"
           "  --sweep KEY=A,B ...  one run for each combination of settings, such as\n"
           "                       lr=0.03,0.1 partition=iid,shards:2 seeds=3; a table\n"
           "  --compute D, --bandwidth D[/D]\n"
           "                       virtual time: examples, bytes down/up a second; D is\n"
           "                       fixed:A, uniform:A,B or lognormal:MEDIAN,SIGMA\n"
           "  --failure P          probability that a client gives up a task\n"
           "  --availability A     share of the time online and seconds of a period online,\n"
           "                       such as 0.3,3600; or file:CSV with client,from,to\n"
           "  --trace CSV          client,compute,down,up,failure of each client\n"
           "  --out DIR, --resume  leave rounds, curves, summary, model in DIR; go on there\n"
           "  --quiet, --json      no lines per round; a summary as JSON   --help, --version\n"
           "\n"
           "Ctrl-C drops the open round: DIR has what was done before; --resume goes on.\n"
           "Exit: 0 complete; 1 failed; 2 usage; 3 job, data or settings; 130 interrupted\n";
}

enum {
    OPT_JOB = 256,
    OPT_DATA,
    OPT_OUT,
    OPT_PARTITION,
    OPT_OWNER,
    OPT_TARGET,
    OPT_STOP_AT_TARGET,
    OPT_SWEEP,
    OPT_SEED,
    OPT_PARTITION_SEED,
    OPT_CLIENTS,
    OPT_ROUNDS,
    OPT_THREADS,
    OPT_ENGINE,
    OPT_ACCUMULATOR,
    OPT_GPUS,
    OPT_SHARD,
    OPT_EVALUATE_EVERY,
    OPT_VALIDATION_SPLIT,
    OPT_CLIENT_ACCURACY,
    OPT_COMPUTE,
    OPT_BANDWIDTH,
    OPT_FAILURE,
    OPT_TRACE,
    OPT_AVAILABILITY,
    OPT_RESUME,
    OPT_QUIET,
    OPT_JSON,
    OPT_EACH,
    OPT_HELP,
    OPT_VERSION
};

static const struct option LONG_OPTIONS[] = {
    {"job", required_argument, NULL, OPT_JOB},
    {"data", required_argument, NULL, OPT_DATA},
    {"out", required_argument, NULL, OPT_OUT},
    {"partition", required_argument, NULL, OPT_PARTITION},
    {"owner", required_argument, NULL, OPT_OWNER},
    {"target", required_argument, NULL, OPT_TARGET},
    {"stop-at-target", no_argument, NULL, OPT_STOP_AT_TARGET},
    {"sweep", required_argument, NULL, OPT_SWEEP},
    {"seed", required_argument, NULL, OPT_SEED},
    {"partition-seed", required_argument, NULL, OPT_PARTITION_SEED},
    {"clients", required_argument, NULL, OPT_CLIENTS},
    {"rounds", required_argument, NULL, OPT_ROUNDS},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"engine", required_argument, NULL, OPT_ENGINE},
    {"accumulator", required_argument, NULL, OPT_ACCUMULATOR},
    {"gpus", required_argument, NULL, OPT_GPUS},
    {"shard", required_argument, NULL, OPT_SHARD},
    {"evaluate-every", required_argument, NULL, OPT_EVALUATE_EVERY},
    {"validation-split", required_argument, NULL, OPT_VALIDATION_SPLIT},
    {"client-accuracy", required_argument, NULL, OPT_CLIENT_ACCURACY},
    {"compute", required_argument, NULL, OPT_COMPUTE},
    {"bandwidth", required_argument, NULL, OPT_BANDWIDTH},
    {"failure", required_argument, NULL, OPT_FAILURE},
    {"availability", required_argument, NULL, OPT_AVAILABILITY},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"resume", no_argument, NULL, OPT_RESUME},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"json", no_argument, NULL, OPT_JSON},
    {"each", no_argument, NULL, OPT_EACH}, /* of compare alone */
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0}};

static bool has_target(const fedge_simulate_options *options, double target)
{
    for (uint32_t i = 0; i < options->num_targets; i++) {
        if (options->targets[i] >= target && options->targets[i] <= target) {
            return true;
        }
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
        if (*end == '\0') {
            return FEDGE_OK;
        }
        at = end + 1;
    }
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

static fedge_status take_clients(const char *value, fedge_simulate_options *out, fedge_error *err)
{
    uint64_t number = 0;
    const fedge_status status =
        fedge_option_number("client-accuracy", value, 0, FEDGE_SIMULATE_MAX_CLIENTS, &number, err);
    out->client_accuracy = (uint32_t)number;
    return status;
}

static fedge_status take_number(int option, const char *value, fedge_simulate_options *out,
                                fedge_error *err)
{
    switch (option) {
    case OPT_SEED:
        out->has_seed = true;
        return fedge_option_number("seed", value, 0, FEDGE_JSON_MAX_INTEGER, &out->seed, err);
    case OPT_PARTITION_SEED:
        out->has_partition_seed = true;
        return fedge_option_number("partition-seed", value, 0, FEDGE_JSON_MAX_INTEGER,
                                   &out->partition_seed, err);
    case OPT_CLIENTS:
        return fedge_option_count("clients", value, FEDGE_SIMULATE_MAX_CLIENTS, &out->num_clients,
                                  err);
    case OPT_ROUNDS:
        return fedge_option_count("rounds", value, FEDGE_SIMULATE_MAX_ROUNDS, &out->num_rounds,
                                  err);
    case OPT_THREADS:
        return fedge_option_count("threads", value, FEDGE_TRAINER_ENGINE_MAX_THREADS,
                                  &out->num_threads, err);
    case OPT_CLIENT_ACCURACY:
        return take_clients(value, out, err);
    default:
        return fedge_option_count("evaluate-every", value, FEDGE_SIMULATE_MAX_ROUNDS,
                                  &out->evaluate_every, err);
    }
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

/* What trains and what sums. */
static fedge_status take_kind(int option, const char *value, fedge_simulate_options *out,
                              fedge_error *err)
{
    switch (option) {
    case OPT_ENGINE:
        out->engine = value;
        return fedge_trainer_engine_check_name(value, err);
    case OPT_ACCUMULATOR:
        out->accumulator = value;
        return fedge_accumulator_check_name(value, err);
    case OPT_GPUS:
        return fedge_accumulator_parse_gpus(value, &out->sums, err);
    default:
        return fedge_accumulator_parse_shard(value, &out->sums.shard, err);
    }
}

static fedge_status take(int option, const char *value, fedge_simulate_options *out,
                         fedge_error *err)
{
    switch (option) {
    case OPT_JOB:
        out->job = value;
        return FEDGE_OK;
    case OPT_DATA:
        out->data = value;
        return FEDGE_OK;
    case OPT_OUT:
        out->out = value;
        return FEDGE_OK;
    case OPT_PARTITION:
        out->partition = value;
        return FEDGE_OK;
    case OPT_OWNER:
        out->owner = value;
        return FEDGE_OK;
    case OPT_COMPUTE:
        out->profiles.compute = value;
        return FEDGE_OK;
    case OPT_BANDWIDTH:
        out->profiles.bandwidth = value;
        return FEDGE_OK;
    case OPT_AVAILABILITY:
        out->profiles.availability = value;
        return FEDGE_OK;
    case OPT_TRACE:
        out->profiles.trace = value;
        return FEDGE_OK;
    case OPT_FAILURE:
        return parse_share("failure", value, &out->profiles.failure, err);
    case OPT_VALIDATION_SPLIT:
        return parse_share("validation-split", value, &out->validation_split, err);
    case OPT_ENGINE:
    case OPT_ACCUMULATOR:
    case OPT_GPUS:
    case OPT_SHARD:
        return take_kind(option, value, out, err);
    case OPT_TARGET:
        return parse_targets(value, out, err);
    case OPT_STOP_AT_TARGET:
        out->stop_at_target = true;
        return FEDGE_OK;
    case OPT_SWEEP:
        return add_axis(value, out, err);
    case OPT_RESUME:
        out->resume = true;
        return FEDGE_OK;
    case OPT_QUIET:
        out->quiet = true;
        return FEDGE_OK;
    case OPT_JSON:
        out->json = true;
        return FEDGE_OK;
    case OPT_EACH:
        out->each = true;
        return FEDGE_OK;
    case OPT_HELP:
        out->action = FEDGE_SIMULATE_HELP;
        return FEDGE_OK;
    case OPT_VERSION:
        out->action = FEDGE_SIMULATE_VERSION;
        return FEDGE_OK;
    default:
        return take_number(option, value, out, err);
    }
}

static fedge_status check_complete(const fedge_simulate_options *options, fedge_error *err)
{
    if (!options->job) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--job is missing (see --help)");
    }
    if (options->each) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--each goes with compare");
    }
    if (options->resume && !options->out) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--resume needs --out DIR");
    }
    if (options->stop_at_target && options->num_targets == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--stop-at-target needs --target A");
    }
    return FEDGE_OK;
}

/* The next option; FEDGE_INVALID_ARGUMENT for one that is unknown or lacks its value. *option is −1
 * behind the last. */
static fedge_status next(int argc, char **argv, int *option, fedge_error *err)
{
    *option = getopt_long(argc, argv, ":", LONG_OPTIONS, NULL);
    return *option == '?' || *option == ':'
               ? fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s '%s' (see --help)",
                            *option == ':' ? "a value is missing for" : "unknown option",
                            argv[optind - 1])
               : FEDGE_OK;
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
    int option = 0;
    options->action = FEDGE_SIMULATE_COMPARE;
    for (;;) {
        fedge_status status = next(argc, argv, &option, err);
        if (status != FEDGE_OK) {
            return status;
        }
        if (option == -1) {
            break;
        }
        if (option != OPT_OUT && option != OPT_EACH && option != OPT_JSON && option != OPT_HELP) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "compare takes --out FILE.svg, --each and --json only (see compare "
                              "--help)");
        }
        if (option == OPT_HELP) {
            options->action = FEDGE_SIMULATE_COMPARE_HELP;
            return FEDGE_OK;
        }
        status = take(option, optarg, options, err);
        if (status != FEDGE_OK) {
            return status;
        }
    }
    options->dirs = argv + optind;
    options->num_dirs = (uint32_t)(argc - optind);
    return options->num_dirs > 0
               ? check_picture(options->out, err)
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "compare wants the folders of simulations (see compare --help)");
}

fedge_status fedge_simulate_options_parse(int argc, char **argv, fedge_simulate_options *options,
                                          fedge_error *err)
{
    *options = (fedge_simulate_options){.evaluate_every = 1,
                                        .client_accuracy = FEDGE_FINAL_EVALUATION_CLIENTS,
                                        .engine = "cpu",
                                        .accumulator = "cpu"};
    opterr = 0;
    optind = 0; /* starts anew, also within tests */
    if (argc > 1 && strcmp(argv[1], "compare") == 0) {
        return parse_compare(argc - 1, argv + 1, options, err);
    }
    int option = 0;
    fedge_status status = FEDGE_OK;
    while (status == FEDGE_OK && options->action == FEDGE_SIMULATE_RUN && option != -1) {
        status = next(argc, argv, &option, err);
        if (status == FEDGE_OK && option != -1) {
            status = take(option, optarg, options, err);
        }
    }
    if (status != FEDGE_OK || options->action != FEDGE_SIMULATE_RUN) {
        return status;
    }
    while (status == FEDGE_OK && optind < argc && options->num_axes > 0) {
        status = add_axis(argv[optind++], options, err);
    }
    if (status != FEDGE_OK) {
        return status;
    }
    if (optind < argc) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "'%s' is not an option (see --help)",
                          argv[optind]);
    }
    return check_complete(options, err);
}
