/* fedge-simulate. */
#define _POSIX_C_SOURCE 200809L /* sigaction */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/rounds/strategy_plugin.h"
#include "aggregator/simulate/compare/compare.h"
#include "aggregator/simulate/experiment/experiment.h"
#include "aggregator/simulate/experiment/options.h"
#include "aggregator/simulate/generate/generate.h"
#include "aggregator/simulate/run/heartbeat.h"
#include "aggregator/simulate/sweep/sweep.h"
#include "aggregator/store/json_file.h"
#include "aggregator/store/model_file.h"
#include "edge/core/command_line.h"
#include "edge/core/os.h"
#include "edge/core/version.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SETTINGS = 3, EXIT_INTERRUPTED = 130 };

/* Read by all threads. */
static atomic_bool interrupted;
static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler writes it");

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&interrupted, true, memory_order_relaxed);
}

/* A closed terminal and a closed pipe of progress lines end a run as Ctrl-C does, unless their
 * signals were ignored at the start, as by nohup. */
static void catch_signals(void)
{
    static const int NUMBERS[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    const struct sigaction action = {.sa_handler = on_signal};
    for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(NUMBERS[0]); i++) {
        struct sigaction before;
        const bool ignored =
            sigaction(NUMBERS[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!ignored || NUMBERS[i] == SIGINT || NUMBERS[i] == SIGTERM)
            (void)sigaction(NUMBERS[i], &action, NULL);
    }
}

static bool is_interrupted(void *user)
{
    (void)user;
    return atomic_load_explicit(&interrupted, memory_order_relaxed);
}

static int fail(const fedge_error *err, int code)
{
    fprintf(stderr, "fedge-simulate: %s\n", err->message);
    return code;
}

/* The accuracies of one set, after [what]. */
static void print_curve(const char *what, const fedge_run_summary_curve *curve)
{
    if (curve->num_accuracies > 0) {
        printf("%s %.2f%% (best %.2f%%, mean of the last %d %.2f%%)", what, 100.0 * curve->accuracy,
               100.0 * curve->best, FEDGE_RUN_SUMMARY_LAST,
               100.0 * fedge_run_summary_last_mean(curve));
    }
}

static void print_end(const fedge_experiment *self)
{
    const fedge_run_summary *run_summary = &self->results.run_summary;
    printf("%s after %" PRIu32 " rounds", self->ending, run_summary->rounds);
    print_curve(": accuracy", &run_summary->test);
    if (run_summary->test.num_accuracies == 0 && isfinite(run_summary->test.loss))
        printf(": loss %.4g", run_summary->test.loss);
    printf("\n");
    if (run_summary->validation.num_accuracies > 0) {
        print_curve("validation:", &run_summary->validation);
        printf(", best in round %" PRIu32, run_summary->validation.best_round);
        if (isfinite(run_summary->test_at_best))
            printf(" with a test accuracy of %.2f%%", 100.0 * run_summary->test_at_best);
        printf("\n");
    } else if (isfinite(run_summary->validation.loss)) {
        printf("validation: loss %.4g\n", run_summary->validation.loss);
    }
    if (isfinite(run_summary->client_accuracy))
        printf("on clients: accuracy %.2f%%\n", 100.0 * run_summary->client_accuracy);
    else if (isfinite(run_summary->client_loss))
        printf("on clients: loss %.4g\n", run_summary->client_loss);
    const fedge_selection *selection = &run_summary->selection;
    if (selection->keep.present && selection->state.best.round > 0) {
        printf("best: round %" PRIu32 ", %s %.6g%s\n", selection->state.best.round,
               fedge_criterion_text(selection->keep.metric), selection->state.keep.best,
               fedge_criterion_is_of_test_set(selection->keep.metric)
                   ? " (on the set that chose it, so too good: see --validation-split)"
                   : "");
    }
    const fedge_criterion lacks = fedge_selection_lacks(selection);
    if (lacks != FEDGE_CRITERION_AUTO)
        printf("best: none, since no evaluation gave a finite %s\n", fedge_criterion_text(lacks));
    if (run_summary->rounds > 0) {
        printf("%" PRIu64 " clients trained in %.1f s, %.3g a second; %llu bytes a thread\n",
               run_summary->clients, run_summary->seconds,
               (double)run_summary->clients / run_summary->seconds,
               (unsigned long long)fedge_simulation_bytes_per_thread(self->simulation));
    }
    if (run_summary->clamped > 0) {
        printf("%" PRIu64
               " values of updates were cut to their bounds: raise update.bound-log2, or "
               "lower training.learning-rate\n",
               run_summary->clamped);
    }
    if (run_summary->has_virtual_time)
        printf("virtual time: %.6g s\n", run_summary->virtual_time);
    for (uint32_t i = 0; i < run_summary->num_targets; i++) {
        if (isnan(run_summary->reached[i])) {
            printf("%.4g%%: not reached in %" PRIu32 " rounds\n", 100.0 * run_summary->targets[i],
                   run_summary->rounds);
        } else {
            printf("%.4g%%: %.1f rounds\n", 100.0 * run_summary->targets[i],
                   run_summary->reached[i]);
        }
    }
    if (self->results.dir[0]) {
        printf("%s: rounds.jsonl, rounds.svg, summary.json, model.safetensors%s%s\n",
               self->results.dir, self->results.best.values ? ", " FEDGE_BEST_MODEL_NAME : "",
               strcmp(self->ending, "interrupted") == 0 ? "; --resume continues" : "");
    }
}

static bool leads(const fedge_collective *collective)
{
    return collective->rank == 0;
}

/* The exit code of a failure before the first round, or [running]: after it began. */
static int code_of(fedge_status status, bool running)
{
    const bool machine = status == FEDGE_NO_MEMORY || status == FEDGE_NO_SPACE ||
                         status == FEDGE_GPU_LOST || status == FEDGE_GPU_MEMORY;
    return status == FEDGE_CANCELLED ? EXIT_INTERRUPTED
           : running || machine      ? EXIT_FAILED
                                     : EXIT_SETTINGS;
}

static int print_summary(const fedge_experiment *self)
{
    char *text = NULL;
    fedge_error err;
    if (fedge_run_summary_json(&self->results.run_summary, &self->final_evaluation, self->job,
                               &self->settings, self->ending, &text, &err) != FEDGE_OK)
        return fail(&err, EXIT_FAILED);
    printf("%s\n", text);
    free(text);
    return EXIT_DONE;
}

static void write_log(void *user, const char *line, size_t size)
{
    (void)user;
    (void)fwrite(line, 1, size, stderr);
}

/* Called on another thread when a thread of this process has waited too long for a GPU. */
static void on_stuck(const fedge_error *err)
{
    fprintf(stderr, "fedge-simulate: %s\n", err->message);
    _exit(EXIT_FAILED);
}

/* Ends all ranks, which would wait for this one. */
static int abandon(fedge_collective *collective, const fedge_error *err)
{
    fprintf(stderr, "fedge-simulate: rank %" PRIu32 " on %s: %s\n", collective->rank,
            collective->host, err->message);
    fedge_collective_abort(collective, EXIT_FAILED);
    return EXIT_FAILED;
}

/* Called on the heartbeat's thread when a rank is silent. */
static void on_silence(void *collective, const fedge_error *err)
{
    (void)abandon(collective, err);
}

/* On the ranks after 0: serves rank 0 until the run ends. */
static int serve(fedge_experiment *self, fedge_collective *collective)
{
    fedge_error err;
    const fedge_status status = fedge_experiment_run(self, &err);
    fedge_experiment_fini(self);
    return status == FEDGE_OK ? EXIT_DONE : abandon(collective, &err);
}

static int run_one(const fedge_simulate_options *options, fedge_collective *collective,
                   const char *job_text, size_t job_size)
{
    static fedge_experiment self;
    fedge_error err;
    const fedge_log log = {.level = FEDGE_LOG_INFO, .write = write_log};
    const bool first = leads(collective);
    const fedge_experiment_config config = {
        .options = options,
        .collective = collective,
        .log = first ? &log : NULL,
        .job_text = job_text,
        .job_size = job_size,
        .out = first ? options->out : NULL,
        .summary = options->out || options->json,
        .progress = options->quiet || options->json || !first ? NULL : stdout,
        .resume = options->resume,
        .cancel = is_interrupted};
    fedge_status status = fedge_experiment_init(&self, &config, &err);
    const bool running = status == FEDGE_OK;
    if (!first && running)
        return serve(&self, collective);
    if (running && options->plan) {
        char text[2 * FEDGE_SIM_BACKEND_MAX_DESCRIPTION];
        fedge_simulation_plan(self.simulation, text, sizeof(text));
        puts(text);
        fedge_experiment_fini(&self);
        return EXIT_DONE;
    }
    if (running && options->resume && !self.results.resumed) {
        fprintf(
            stderr,
            "fedge-simulate: %s has no simulation yet: nothing to resume, so a new one begins\n",
            options->out);
    }
    if (running)
        status = fedge_experiment_run(&self, &err);
    int code = status == FEDGE_OK ? EXIT_DONE : code_of(status, running);
    if (running && (status == FEDGE_OK || status == FEDGE_CANCELLED)) {
        if (!options->json)
            print_end(&self);
    } else if (first) {
        (void)fail(&err, code);
        if (self.resume_note[0])
            fprintf(stderr, "fedge-simulate: %s\n", self.resume_note);
    }
    if (running && options->json && print_summary(&self) != EXIT_DONE)
        code = EXIT_FAILED;
    fedge_experiment_fini(&self);
    return code;
}

/* Ranks make their sweeps one after another, since each tries whether it can write to --out. */
static fedge_status make_sweep(const fedge_simulate_options *options,
                               const fedge_collective *collective, const char *job_text,
                               size_t job_size, fedge_sweep **sweep, fedge_error *err)
{
    for (uint32_t rank = 0; rank == 0 || rank < collective->num_ranks; rank++) {
        fedge_status status = FEDGE_OK;
        if (rank == collective->rank)
            status = fedge_sweep_new(options, collective, job_text, job_size, sweep, err);
        FEDGE_TRY(fedge_collective_agree(collective, status, NULL, 0, err));
    }
    return FEDGE_OK;
}

static int run_sweep(const fedge_simulate_options *options, fedge_collective *collective,
                     const char *job_text, size_t job_size)
{
    fedge_error err;
    fedge_sweep *sweep = NULL;
    fedge_status status = make_sweep(options, collective, job_text, job_size, &sweep, &err);
    if (status != FEDGE_OK) {
        fedge_sweep_free(sweep);
        return leads(collective) ? fail(&err, code_of(status, false)) : code_of(status, false);
    }
    status = fedge_sweep_run(sweep, is_interrupted, NULL, &err);
    if (!leads(collective)) {
        fedge_sweep_free(sweep);
        return status == FEDGE_OK ? EXIT_DONE : code_of(status, true);
    }
    if (fedge_sweep_num_done(sweep) > 0) {
        fedge_sweep_print(sweep, stdout);
        (void)fflush(stdout); /* Messages on stderr come after the table. */
    }
    fedge_error unwritten;
    const fedge_status left =
        fedge_sweep_num_done(sweep) > 0 ? fedge_sweep_write(sweep, &unwritten) : FEDGE_OK;
    int code = EXIT_DONE;
    if (status == FEDGE_CANCELLED && options->out) {
        fprintf(stderr, "fedge-simulate: %s; --resume continues\n", err.message);
        code = EXIT_INTERRUPTED;
    } else if (status != FEDGE_OK) {
        code = fail(&err, code_of(status, true));
    } else if (fedge_sweep_num_unable(sweep) > 0) {
        fprintf(stderr, "fedge-simulate: %" PRIu32 " of %" PRIu32 " runs could not begin\n",
                fedge_sweep_num_unable(sweep), fedge_sweep_num_done(sweep));
        code = EXIT_SETTINGS;
    }
    if (left != FEDGE_OK) {
        const int failed = fail(&unwritten, EXIT_FAILED);
        code = code == EXIT_DONE ? failed : code;
    }
    fedge_sweep_free(sweep);
    return code;
}

/* The caller frees both results, also after a failure. */
static fedge_status read_inputs(fedge_simulate_options *options, struct fedge_plugin **plugin,
                                uint8_t **job_text, size_t *job_size, fedge_error *err)
{
    FEDGE_TRY(fedge_os_read_file(options->job, FEDGE_JOB_MAX_SIZE, job_text, job_size, err));
    return fedge_experiment_load_plugin(options, plugin, err);
}

static int run(fedge_simulate_options *options)
{
    struct fedge_plugin *plugin = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_error err;
    fedge_collective collective;
    fedge_heartbeat *heartbeat = NULL;
    options->sums.stuck = on_stuck;
    if (fedge_collective_open(&collective, &err) != FEDGE_OK)
        return fail(&err, EXIT_SETTINGS);
    if (fedge_heartbeat_new(&collective, on_silence, &collective, &heartbeat, &err) != FEDGE_OK)
        return abandon(&collective, &err);
    catch_signals();
    fedge_status status = read_inputs(options, &plugin, &text, &size, &err);
    status = fedge_collective_agree(&collective, status, NULL, 0, &err);
    int code = EXIT_SETTINGS;
    if (status != FEDGE_OK)
        code = leads(&collective) ? fail(&err, code) : code;
    else if (options->num_axes > 0)
        code = run_sweep(options, &collective, (const char *)text, size);
    else
        code = run_one(options, &collective, (const char *)text, size);
    free(text);
    fedge_plugin_free(plugin);
    fedge_heartbeat_end(heartbeat);
    fedge_collective_close(&collective);
    return code;
}

/* Prints [word] as a shell reads it, in quotes where it needs them. */
static void print_word(const char *word)
{
    const char *const plain =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+:,-";
    const char *quote = word[strspn(word, plain)] != '\0' ? "'" : "";
    fputs(quote, stdout);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    }
    fputs(quote, stdout);
}

static void print_generated(const fedge_generate_settings *settings,
                            const fedge_generate_report *report)
{
    char path[FEDGE_MAX_PATH];
    printf("%s: %" PRIu64 " examples to train on, %" PRIu32 " clients with %" PRIu32 " to %" PRIu32
           " each, and %" PRIu64 " to test on\n",
           settings->dir, report->num_train, settings->num_clients, report->min_train,
           report->max_train, report->num_test);
    if (!isnan(report->best_accuracy)) {
        printf("the best accuracy that a model can have on these: %.2f%%\n",
               100.0 * report->best_accuracy);
    }
    fputs("run it with: fedge-simulate --job ", stdout);
    (void)snprintf(path, sizeof(path), "%s/job.json", settings->dir);
    print_word(path);
    fputs(" --out ", stdout);
    (void)snprintf(path, sizeof(path), "%s/run", settings->dir);
    print_word(path);
    putchar('\n');
}

static int generate(int argc, char **argv)
{
    fedge_generate_options options;
    char help[FEDGE_HELP_SIZE];
    fedge_generate_report report;
    fedge_error err;
    if (fedge_generate_options_parse(argc, argv, &options, &err) != FEDGE_OK)
        return fail(&err, EXIT_USAGE);
    if (options.help) {
        fputs(fedge_generate_options_help(help), stdout);
        return EXIT_DONE;
    }
    fedge_status status = fedge_generate(&options.settings, &report, &err);
    if (status != FEDGE_OK) {
        return fail(&err, status == FEDGE_EXISTS || status == FEDGE_TOO_BIG ? EXIT_SETTINGS
                                                                            : EXIT_FAILED);
    }
    print_generated(&options.settings, &report);
    return EXIT_DONE;
}

/* ---- fedge-simulate model FILE --------------------------------------------------------------- */

typedef struct model_command {
    const char *path; /* argv's */
    bool json;
} model_command;

#define OPTION(name, argument, help, type, field)                                                  \
    FEDGE_OPTION(name, argument, help, type, model_command, field)

static const fedge_option OPTIONS[] = {{OPTION("json", NULL, "one object of JSON", FLAG, json)}};

static const fedge_command_line COMMAND_LINE = {
    .name = "fedge-simulate model",
    .command = true,
    .usage =
        "Usage: fedge-simulate model FILE [--json]\n"
        "Prints the metadata of a model file (model.safetensors, model-best.safetensors), and\n"
        "the model_sha256 of its tensors: that of the file without its metadata.\n"
        "\n",
    .options = OPTIONS,
    .num_options = sizeof(OPTIONS) / sizeof(*OPTIONS),
    .notes = "\n"
             "Exit: 0 the tensors have the hash in the metadata, if it has one; 1 they have not;\n"
             "2 usage; 3 no such file, or no model\n",
    .arguments = true};

/* The hash in the metadata; NULL: none. */
static const char *named(const fedge_model_report *report)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(report->metadata, "model_sha256");
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static void print_lines(const fedge_model_report *report)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, report->metadata)
    {
        if (strcmp(item->string, "model_sha256") != 0) {
            printf("%s: %.1000s%s\n", item->string, item->valuestring,
                   strlen(item->valuestring) > 1000 ? " … (--json has all)" : "");
        }
    }
    printf("tensors: %u\nvalues: %zu\nmodel_sha256: %s\n", (unsigned)report->num_tensors,
           report->num_values, report->model);
}

static fedge_status print_json(fedge_model_report *report, const char *path, fedge_error *err)
{
    cJSON *json = cJSON_CreateObject();
    const bool made =
        fedge_json_add_text(json, "file", path) &&
        (report->metadata ? cJSON_AddItemReferenceToObject(json, "metadata", report->metadata)
                          : cJSON_AddNullToObject(json, "metadata") != NULL) &&
        cJSON_AddNumberToObject(json, "tensors", report->num_tensors) &&
        cJSON_AddNumberToObject(json, "values", (double)report->num_values) &&
        cJSON_AddStringToObject(json, "model_sha256", report->model);
    char *text = made ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a report");
    puts(text);
    free(text);
    return FEDGE_OK;
}

static fedge_status read_model(const model_command *command, fedge_error *err)
{
    fedge_model_report report;
    fedge_status status = FEDGE_OK;
    FEDGE_TRY(fedge_model_file_read(command->path, &report, err));
    if (command->json)
        FEDGE_TRY_OR(print_json(&report, command->path, err), done);
    else
        print_lines(&report);
    if (named(&report) && strcmp(named(&report), report.model) != 0) {
        status = fedge_fail(
            err, FEDGE_MISMATCH,
            "%s: its metadata is of model %.64s, but its tensors are not: they were changed later",
            command->path, named(&report));
    }
done:
    fedge_model_report_fini(&report);
    return status;
}

static int run_model_command(int argc, char **argv)
{
    model_command command = {.path = NULL};
    fedge_words words;
    char help[FEDGE_HELP_SIZE];
    fedge_error err;
    if (fedge_command_line_read(&COMMAND_LINE, argc, argv, &command, &words, &err) != FEDGE_OK)
        return fail(&err, EXIT_USAGE);
    if (words.asked == FEDGE_ASKED_HELP) {
        fputs(fedge_command_line_help(&COMMAND_LINE, false, help), stdout);
        return EXIT_DONE;
    }
    if (words.num != 1) {
        (void)fedge_fail(&err, FEDGE_INVALID_ARGUMENT,
                         "model needs one file, model.safetensors (see model --help)");
        return fail(&err, EXIT_USAGE);
    }
    command.path = words.at[0];
    const fedge_status status = read_model(&command, &err);
    return status == FEDGE_OK ? EXIT_DONE : fail(&err, code_of(status, status == FEDGE_MISMATCH));
}

static int act(int argc, char **argv)
{
    fedge_simulate_options options;
    char help[FEDGE_HELP_SIZE];
    fedge_error err;
    if (argc > 1 && strcmp(argv[1], "generate") == 0)
        return generate(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "model") == 0)
        return run_model_command(argc - 1, argv + 1);
    if (fedge_simulate_options_parse(argc, argv, &options, &err) != FEDGE_OK)
        return fail(&err, EXIT_USAGE);
    if (options.action == FEDGE_SIMULATE_HELP || options.action == FEDGE_SIMULATE_HELP_ALL) {
        fputs(fedge_simulate_options_help(options.action == FEDGE_SIMULATE_HELP_ALL, help), stdout);
    } else if (options.action == FEDGE_SIMULATE_VERSION) {
        printf("fedge-simulate %s\n", FEDGE_VERSION);
    } else if (options.action == FEDGE_SIMULATE_COMPARE_HELP) {
        fputs(fedge_simulate_compare_help(help), stdout);
    } else if (options.action == FEDGE_SIMULATE_COMPARE) {
        const fedge_compare_request what = {.dirs = (const char *const *)options.dirs,
                                            .num_dirs = options.num_dirs,
                                            .each = options.each,
                                            .json = options.json,
                                            .csv_path = options.out};
        const fedge_status status = fedge_compare(&what, stdout, &err);
        return status == FEDGE_OK ? EXIT_DONE : fail(&err, code_of(status, status == FEDGE_IO));
    } else {
        return run(&options);
    }
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    fedge_os_hold_streams();
    const int code = act(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fputs("fedge-simulate: cannot write to the standard output: is the disk full, or its reader "
          "gone?\n",
          stderr);
    return code == EXIT_DONE ? EXIT_FAILED : code;
}
