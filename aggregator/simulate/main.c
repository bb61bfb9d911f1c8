/* fedge-simulate. */
#define _POSIX_C_SOURCE 200809L /* sigaction */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/rounds/progress.h"
#include "aggregator/simulate/options.h"
#include "aggregator/simulate/population.h"
#include "aggregator/simulate/results.h"
#include "aggregator/simulate/simulation.h"
#include "edge/core/os.h"
#include "edge/io/path.h"
#include "edge/io/site.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SETTINGS = 3, EXIT_INTERRUPTED = 130 };

#define DRAW_MS 100 /* between two pictures of the bar */

/* Everything that main makes, in the order in which it is made. */
typedef struct program {
    fedge_simulate_options options;
    char *job_text;
    size_t job_size;
    fedge_job *job;
    fedge_site *site;
    fedge_site_data data; /* the job's, with the command line's partition */
    fedge_simulation_settings settings;
    fedge_dataset *test_set; /* NULL: the job has none */
    fedge_population *population;
    fedge_simulation *simulation;
    fedge_results results;
    fedge_progress progress; /* out is NULL: not wanted */
    uint64_t started_ms, drawn_ms;
    uint32_t resumed_at;       /* rounds that were done before */
    uint64_t clients_at_start; /* likewise */
} program;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static bool is_interrupted(void *user)
{
    (void)user;
    return interrupted != 0;
}

static int fail(const fedge_error *err, int code)
{
    fprintf(stderr, "fedge-simulate: %s\n", err->message);
    return code;
}

/* ---- loading --------------------------------------------------------------------------------- */

static fedge_status load_job(program *self, fedge_error *err)
{
    uint8_t *text = NULL;
    const fedge_simulate_options *options = &self->options;
    fedge_status status =
        fedge_os_read_file(options->job, FEDGE_JOB_MAX_SIZE, &text, &self->job_size, err);
    self->job_text = (char *)text;
    if (status == FEDGE_OK) {
        status = fedge_job_parse(self->job_text, self->job_size, options->job, &self->job, err);
    }
    if (status != FEDGE_OK) {
        return status;
    }
    if (options->has_seed) {
        self->job->plan.seed = options->seed;
    }
    if (options->num_rounds > 0) {
        self->job->rounds.num_server_rounds = options->num_rounds;
    }
    if (!self->job->plan.has_data) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "%s names no data: add \"data\"", options->job);
    }
    return FEDGE_OK;
}

/* The site file's entry for the job's data, divided as the command line says. */
static fedge_status load_site(program *self, fedge_error *err)
{
    const fedge_simulate_options *options = &self->options;
    char beside[FEDGE_MAX_PATH];
    const char *path = options->data;
    fedge_status status = FEDGE_OK;
    if (!path) {
        (void)snprintf(beside, sizeof(beside), "client.json");
        path = beside;
        if (!fedge_path_resolve(options->job, beside) || !fedge_os_exists(beside)) {
            status = fedge_fail(err, FEDGE_NOT_FOUND,
                                "no %s: say with --data FILE where the training data is", beside);
        }
    }
    if (status == FEDGE_OK) {
        status = fedge_site_load(path, &self->site, err);
    }
    if (status != FEDGE_OK) {
        return status;
    }
    const fedge_site_data *data = fedge_site_find(self->site, self->job->plan.data.name);
    if (!data) {
        return fedge_fail(err, FEDGE_NOT_FOUND, "%s has no data set '%s', which the job wants",
                          path, self->job->plan.data.name);
    }
    self->data = *data;
    if (!data->has_partition) {
        self->data.partition.seed = self->job->plan.seed;
    }
    if (options->has_partition_seed) {
        self->data.partition.seed = options->partition_seed;
    }
    if (options->partition) {
        status = fedge_partition_parse(options->partition, &self->data.partition, err);
        status = status == FEDGE_OK ? status : fedge_error_prefix(err, status, "--partition");
    } else if (!data->has_partition) {
        status = fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "%s does not say how '%s' is divided: give --partition iid, "
                            "dirichlet:0.5, …",
                            path, data->name);
    }
    return status;
}

/* A division that says how many clients there are needs no --clients. */
static fedge_status count_clients(program *self, fedge_error *err)
{
    if (self->options.num_clients > 0) {
        return FEDGE_OK;
    }
    fedge_status status = fedge_partition_num_parts(&self->data.partition, self->data.values,
                                                    &self->options.num_clients, err);
    return status == FEDGE_OK && self->options.num_clients == 0
               ? fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "--clients is missing: only natural:COLUMN and file:CSV say how many "
                            "there are")
               : status;
}

static fedge_status load(program *self, fedge_error *err)
{
    fedge_status status = load_job(self, err);
    if (status == FEDGE_OK) {
        status = load_site(self, err);
    }
    if (status == FEDGE_OK && self->job->test_set.present) {
        status = fedge_dataset_load(&self->job->plan.data, self->job->test_set.images,
                                    self->job->test_set.labels, &self->test_set, err);
        status = status == FEDGE_OK ? status : fedge_error_prefix(err, status, "test-set");
    }
    if (status == FEDGE_OK) {
        status = count_clients(self, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_population_new(&self->job->plan, &self->data, self->options.num_clients,
                                      &self->population, err);
    }
    self->settings = (fedge_simulation_settings){
        .seed = status == FEDGE_OK ? self->job->plan.seed : 0,
        .num_clients = self->options.num_clients,
        .partition_seed = self->data.partition.seed,
        .num_rounds = status == FEDGE_OK ? self->job->rounds.num_server_rounds : 0};
    if (status == FEDGE_OK) {
        fedge_partition_text(&self->data.partition, self->settings.partition);
    }
    return status;
}

/* ---- what is seen ---------------------------------------------------------------------------- */

static fedge_status on_round(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    program *self = user;
    if (self->progress.out) {
        fedge_progress_round(&self->progress, summary);
    }
    return fedge_results_round(&self->results, self->simulation, summary, err);
}

static void on_progress(void *user, uint32_t round, uint32_t done, uint32_t asked)
{
    program *self = user;
    const uint64_t now_ms = fedge_os_monotonic_ms();
    if (!self->progress.terminal || now_ms < self->drawn_ms + DRAW_MS) {
        return;
    }
    self->drawn_ms = now_ms;
    char state[96];
    const double seconds = (double)(now_ms - self->started_ms) * 1e-3;
    const double rate =
        (double)(self->results.totals.clients - self->clients_at_start + done) / seconds;
    const double rounds = round - 1 - self->resumed_at + (double)done / (asked > 0 ? asked : 1);
    const double left = self->settings.num_rounds - self->resumed_at - rounds;
    (void)snprintf(state, sizeof(state),
                   "round %" PRIu32 ": %" PRIu32 " of %" PRIu32 " clients, %.3g clients/s, %.0f s "
                   "left",
                   round, done, asked, rate, rounds > 0 ? seconds / rounds * left : NAN);
    fedge_progress_draw(&self->progress, round - 1, state);
}

static void print_end(const program *self, const char *ending)
{
    const fedge_totals *totals = &self->results.totals;
    printf("%s after %" PRIu32 " rounds", ending, totals->rounds);
    if (totals->num_accuracies > 0) {
        printf(": accuracy %.2f%% (best %.2f%%, mean of the last %d %.2f%%)",
               100.0 * totals->accuracy, 100.0 * totals->best, FEDGE_TOTALS_LAST,
               100.0 * fedge_totals_last_mean(totals));
    }
    printf("\n");
    if (totals->rounds > 0) {
        printf("%" PRIu64 " clients trained in %.1f s, %.3g a second; %llu bytes a thread\n",
               totals->clients, totals->seconds, (double)totals->clients / totals->seconds,
               (unsigned long long)fedge_simulation_bytes_per_thread(self->simulation));
    }
    for (uint32_t i = 0; i < totals->num_targets; i++) {
        if (isnan(totals->reached[i])) {
            printf("%.4g%%: not reached in %" PRIu32 " rounds\n", 100.0 * totals->targets[i],
                   totals->rounds);
        } else {
            printf("%.4g%%: %.1f rounds\n", 100.0 * totals->targets[i], totals->reached[i]);
        }
    }
    if (self->results.dir[0]) {
        printf("%s: rounds.jsonl, rounds.svg, summary.json, model.safetensors\n",
               self->results.dir);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static fedge_status set_up(program *self, fedge_error *err)
{
    const fedge_simulate_options *options = &self->options;
    uint32_t threads = options->num_threads ? options->num_threads : fedge_os_num_cpus();
    const fedge_simulation_config config = {
        .job = self->job,
        .population = self->population,
        .test_set = self->test_set,
        .num_threads = threads < FEDGE_CREW_MAX_THREADS ? threads : FEDGE_CREW_MAX_THREADS,
        .evaluate_every = options->evaluate_every,
        .cancel = is_interrupted,
        .on_round = on_round,
        .on_progress = on_progress,
        .user = self};
    fedge_status status = fedge_simulation_new(&config, &self->simulation, err);
    if (status == FEDGE_OK) {
        status = fedge_results_open(&self->results, options->out, options->resume, self->job,
                                    self->job_text, self->job_size, &self->settings,
                                    options->targets, options->num_targets, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_results_partition(&self->results, self->population, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_results_begin(&self->results, self->simulation, err);
    }
    self->resumed_at = self->results.totals.rounds;
    self->clients_at_start = self->results.totals.clients;
    return status;
}

static int run(program *self)
{
    fedge_error err;
    const struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    if (!self->options.quiet && !self->options.json) {
        self->progress = (fedge_progress){.out = stdout,
                                          .terminal = isatty(STDOUT_FILENO) == 1,
                                          .num_rounds = self->settings.num_rounds};
    }
    if (set_up(self, &err) != FEDGE_OK) {
        return fail(&err, err.status == FEDGE_NO_MEMORY ? EXIT_FAILED : EXIT_SETTINGS);
    }
    self->started_ms = fedge_os_monotonic_ms();
    fedge_status status = fedge_simulation_run(self->simulation, &err);
    if (self->progress.out) {
        fedge_progress_clear(&self->progress);
    }
    if (status != FEDGE_OK && status != FEDGE_CANCELLED) {
        return fail(&err, EXIT_FAILED);
    }
    const char *ending = status == FEDGE_OK ? "complete" : "interrupted";
    if (fedge_results_finish(&self->results, self->simulation, ending, &err) != FEDGE_OK) {
        return fail(&err, EXIT_FAILED);
    }
    if (self->options.json) {
        char *text = NULL;
        if (fedge_totals_json(&self->results.totals, self->job, &self->settings, ending, &text,
                              &err) != FEDGE_OK) {
            return fail(&err, EXIT_FAILED);
        }
        printf("%s\n", text);
        free(text);
    } else {
        print_end(self, ending);
    }
    return status == FEDGE_OK ? EXIT_DONE : EXIT_INTERRUPTED;
}

int main(int argc, char **argv)
{
    static program self;
    fedge_error err;
    int code = EXIT_DONE;
    if (fedge_simulate_options_parse(argc, argv, &self.options, &err) != FEDGE_OK) {
        return fail(&err, EXIT_USAGE);
    }
    if (self.options.action == FEDGE_SIMULATE_HELP) {
        fputs(fedge_simulate_options_help(), stdout);
    } else if (self.options.action == FEDGE_SIMULATE_VERSION) {
        printf("fedge-simulate %s\n", FEDGE_RELEASE);
    } else if (load(&self, &err) != FEDGE_OK) {
        code = fail(&err, EXIT_SETTINGS);
    } else {
        code = run(&self);
    }
    fedge_results_close(&self.results);
    fedge_simulation_free(self.simulation);
    fedge_population_free(self.population);
    fedge_dataset_free(self.test_set);
    fedge_site_free(self.site);
    fedge_job_free(self.job);
    free(self.job_text);
    return code;
}
