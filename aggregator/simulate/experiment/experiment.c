#include "aggregator/simulate/experiment/experiment.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/strategy_plugin.h"
#include "aggregator/simulate/cohort/memory.h"
#include "aggregator/simulate/run/final_evaluation.h"
#include "edge/core/message.h"
#include "edge/core/os.h"
#include "edge/core/version.h"
#include "edge/data/formats/csv.h"
#include "edge/data/formats/file_list.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"
#include "edge/train/kernels/kernels.h"
#include "secure/crypto/sha256.h"

#define DRAW_MS 100 /* between two redraws of the bar */
#define SAME_FILES "give all machines the same files"

/* ---- loading --------------------------------------------------------------------------------- */

fedge_status fedge_experiment_load_plugin(fedge_simulate_options *options, fedge_plugin **plugin,
                                          fedge_error *err)
{
    *plugin = NULL;
    const fedge_status status =
        options->strategy_plugin
            ? fedge_plugin_load(options->strategy_plugin, options->strategy_timeout_s, plugin, err)
            : FEDGE_OK;
    options->plugin = *plugin;
    return status;
}

/* Adds the offset of a sweep's seed. */
static fedge_status add_offset(const fedge_experiment *self, uint64_t *seed, fedge_error *err)
{
    *seed += self->config.options->seed_offset;
    return *seed <= FEDGE_JSON_MAX_INTEGER
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_OUT_OF_RANGE,
                            "seed %" PRIu64 " is over 2^53 - 1: begin with a lower one", *seed);
}

static bool has_trainers(const fedge_simulate_options *options)
{
    return options->trainer || options->num_trainer_channels > 0;
}

/* What goes with some jobs and machines only, where a trainer of one's own knows the data. */
static fedge_status check_trainers(const fedge_experiment *self, fedge_error *err)
{
    const fedge_simulate_options *options = self->config.options;
    const char *timed = options->profiles.compute ? "compute"
                        : options->profiles.trace ? "trace"
                                                  : NULL;
    if (!has_trainers(options))
        return FEDGE_OK;
    if (timed && self->job->plan.training.local_steps == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--%s is about examples per second, but only the trainer knows how many "
                          "a client has: give %s training.local-steps, which with batch-size says "
                          "how many a task takes, or remove it; --bandwidth, --availability and "
                          "--failure need none",
                          timed, options->job);
    }
    if (options->resume && !fedge_collective_is_alone(self->config.collective)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "--resume with --trainer is for one process: what trainers keep for "
                          "their clients is spread over the ranks; run it without mpirun");
    }
    return FEDGE_OK;
}

static fedge_status load_job(fedge_experiment *self, fedge_error *err)
{
    const fedge_simulate_options *options = self->config.options;
    FEDGE_TRY(fedge_strategy_job_parse_with(fedge_plugin_readers(options->plugin),
                                            self->config.job_text, self->config.job_size,
                                            options->job, &self->job, err));
    fedge_error unused;
    self->uses_plugin = fedge_plugin_is_used(options->plugin, self->job, &unused);
    if (!self->uses_plugin)
        fedge_log_failure(self->config.log, FEDGE_LOG_WARN, "plugin-unused", &unused);
    fedge_plugin_serve(options->plugin, self->job);
    if (options->has_seed)
        self->job->plan.seed = options->seed;
    FEDGE_TRY(add_offset(self, &self->job->plan.seed, err));
    if (options->num_rounds > 0) {
        self->job->rounds.num_server_rounds = options->num_rounds;
        const char *key = NULL;
        const fedge_status checked = fedge_job_check_rates(self->job, &key, err);
        if (checked != FEDGE_OK)
            return fedge_error_prefix(err, checked, "%s: %s", options->job, key);
        const fedge_status server = fedge_job_check_server_rates(self->job, err);
        if (server != FEDGE_OK) {
            return fedge_error_prefix(err, server, "%s: strategy.server-schedule.gamma",
                                      options->job);
        }
    }
    if (self->job->plan.external && !has_trainers(options)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s: the model is external: say with --trainer COMMAND how to start its "
                          "trainer, or use fedge.simulate of the Python package; or give the model "
                          "\"layers\"",
                          options->job);
    }
    if (!self->job->plan.has_data && !has_trainers(options))
        return fedge_fail(err, FEDGE_UNSUPPORTED, "%s names no data: add \"data\"", options->job);
    FEDGE_TRY(check_trainers(self, err));
    if (options->num_targets > 0 && !fedge_has_accuracy(&self->job->plan)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--target is an accuracy, and %s has none: its loss is of real numbers; "
                          "leave --target out, or use CrossEntropyLoss or BCEWithLogitsLoss",
                          options->job);
    }
    return FEDGE_OK;
}

/* The column that names the owner of an example is never read as a value, however the data is
 * divided. natural:COLUMN names it, too. */
static fedge_status set_owner_aside(fedge_experiment *self, fedge_error *err)
{
    const char *owner = self->config.options->owner;
    const fedge_partition_spec *partition = &self->data.partition;
    if (partition->scheme == FEDGE_PARTITION_NATURAL) {
        if (owner && strcmp(owner, partition->source) != 0) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "--owner %.64s: natural:%.64s names another column; name one, or "
                              "leave --owner out",
                              owner, partition->source);
        }
        owner = partition->source;
    }
    self->job->plan.data.aside = owner;
    return FEDGE_OK;
}

/* The client file's entry for the job's data, divided as the command line says. */
static fedge_status load_site(fedge_experiment *self, fedge_error *err)
{
    const fedge_simulate_options *options = self->config.options;
    char beside[FEDGE_MAX_PATH];
    const char *path = options->data;
    if (!path) {
        (void)snprintf(beside, sizeof(beside), "client.json");
        path = beside;
        if (!fedge_path_resolve(options->job, beside) || !fedge_os_exists(beside)) {
            return fedge_fail(err, FEDGE_NOT_FOUND,
                              "no %s: say with --data FILE where the training data is", beside);
        }
    }
    FEDGE_TRY(fedge_site_load(path, &self->site, err));
    const fedge_site_data *data = fedge_site_find(self->site, self->job->plan.data.name);
    if (!data) {
        return fedge_fail(err, FEDGE_NOT_FOUND, "%s has no data set '%s', which the job needs",
                          path, self->job->plan.data.name);
    }
    self->data = *data;
    if (options->has_partition_seed)
        self->data.partition.seed = options->partition_seed;
    if (options->has_partition_seed || data->has_partition || data->has_partition_seed)
        FEDGE_TRY(add_offset(self, &self->data.partition.seed, err));
    else
        self->data.partition.seed = self->job->plan.seed;
    if (options->partition) {
        const fedge_status status =
            fedge_partition_parse(options->partition, &self->data.partition, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "--partition");
    } else if (!data->has_partition) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s does not say how '%s' is divided: give --partition iid, "
                          "dirichlet:0.5, …",
                          path, data->name);
    }
    return set_owner_aside(self, err);
}

static fedge_status fail_uncounted(fedge_error *err)
{
    return fedge_fail(
        err, FEDGE_INVALID_ARGUMENT,
        "--clients is missing: only natural:COLUMN, file:CSV and per-file say how many "
        "there are");
}

/* A division that says how many clients there are needs no --clients. */
static fedge_status count_clients(fedge_experiment *self, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    self->settings.num_clients = self->config.options->num_clients;
    if (self->placement.holders) {
        self->settings.num_clients = self->placement.num_clients;
    } else if (self->settings.num_clients == 0) {
        status = fedge_partition_is_counted(&self->data.partition)
                     ? fedge_partition_num_parts(&self->data.partition, self->data.values,
                                                 &self->settings.num_clients, err)
                     : fail_uncounted(err);
    }
    return status;
}

static bool leads(const fedge_experiment *self)
{
    return !self->config.collective || self->config.collective->rank == 0;
}

/* The checksums by which --resume recognises the data. */
static void sum_data(fedge_experiment *self)
{
    self->settings.has_data_sum = self->config.out != NULL;
    self->settings.has_test_sum = self->config.out && self->test_set;
    self->settings.has_data_sum =
        self->settings.has_data_sum && !has_trainers(self->config.options);
    if (self->settings.has_data_sum)
        self->settings.data_sum = fedge_client_data_crc32(self->client_data);
    if (self->settings.has_test_sum)
        self->settings.test_sum = fedge_dataset_crc32(self->test_set);
}

/* A target that nothing is measured against would be reported as "not reached". */
static fedge_status check_evaluated(const fedge_experiment *self, fedge_error *err)
{
    return leads(self) && self->config.options->num_targets > 0 && !self->test_set &&
                   self->client_data->num_validation == 0
               ? fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "--target needs something to evaluate on: give the job a \"test-set\" "
                            "or use --validation-split")
               : FEDGE_OK;
}

/* Lets the next data set take all memory that is left. */
static void limit_data(fedge_experiment *self)
{
    const uint64_t left = fedge_memory_left();
    self->job->plan.data.max_bytes =
        left < FEDGE_DATASET_MAX_BYTES ? left : FEDGE_DATASET_MAX_BYTES;
}

/* Says what to change where data does not fit in memory. */
static fedge_status explain_limit(fedge_status status, fedge_error *err)
{
    const uint64_t usable = fedge_os_usable_bytes(NULL);
    return status == FEDGE_NO_MEMORY && usable > 0
               ? fedge_error_prefix(err, FEDGE_TOO_BIG,
                                    "there are %" PRIu64
                                    " MB for this program, use fewer or smaller examples",
                                    (usable + 500000) / 1000000)
               : status;
}

/* Is the first of the files csv, with a column [name]? */
static bool has_column(const char *lines, const char *name)
{
    fedge_file_list list;
    fedge_csv csv;
    if (fedge_file_list_open(&list, lines, NULL) != FEDGE_OK)
        return false;
    const bool has =
        list.count > 0 && fedge_csv_open_aside(&csv, list.paths[0], 0, name, NULL) == FEDGE_OK;
    if (has)
        fedge_csv_close(&csv);
    fedge_file_list_close(&list);
    return has;
}

/* A test set may lack the column of owners, and the ranks after 0 may lack the test set. */
static fedge_status load_test_set(fedge_experiment *self, fedge_error *err)
{
    limit_data(self);
    const fedge_test_set *set = &self->job->test_set;
    fedge_data_spec spec = self->job->plan.data;
    if (spec.aside && !has_column(set->images, spec.aside))
        spec.aside = NULL;
    fedge_status status = fedge_dataset_load(&spec, set->images, set->labels, &self->test_set, err);
    if (status == FEDGE_NOT_FOUND && !leads(self))
        return FEDGE_OK;
    status = status == FEDGE_OK ? status : fedge_error_prefix(err, status, "test-set");
    return explain_limit(status, err);
}

static fedge_status new_client_data(fedge_experiment *self, fedge_error *err)
{
    const fedge_simulate_options *options = self->config.options;
    return self->placement.holders
               ? fedge_client_data_new_placed(&self->job->plan, &self->data,
                                              options->validation_split, &self->placement,
                                              self->config.collective, &self->client_data, err)
               : fedge_client_data_new(&self->job->plan, &self->data, options->validation_split,
                                       self->settings.num_clients, &self->client_data, err);
}

static fedge_status load_client_data(fedge_experiment *self, fedge_error *err)
{
    const fedge_simulate_options *options = self->config.options;
    if (has_trainers(options))
        return fedge_client_data_new_unknown(self->settings.num_clients, &self->client_data, err);
    const char *files = self->placement.holders ? self->placement.values : self->data.values;
    limit_data(self);
    FEDGE_TRY(explain_limit(new_client_data(self, err), err));
    self->client_data->placement = &self->placement;
    if (options->owner && files[0] && !has_column(files, options->owner)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "--owner %.64s: it names a column of csv files, but the values are in "
                          "another format; leave it out",
                          options->owner);
    }
    return explain_limit(
        fedge_attack_poison_data(&options->attack, &self->job->plan, self->client_data, err), err);
}

static fedge_collective_fact *add_fact(fedge_collective_fact *at, const char *name,
                                       const char *text, const char *advice)
{
    *at = (fedge_collective_fact){.name = name, .advice = advice};
    (void)fedge_os_format(at->text, sizeof(at->text), "%s", text);
    return at + 1;
}

/* All ranks call this, before any other message: ranks of another release, job or division would
 * misread it. Where each file is one client's, finds the ranks that have it. */
static fedge_status find_files(fedge_experiment *self, fedge_status status, fedge_error *err)
{
    const fedge_collective *all = self->config.collective;
    fedge_collective_fact facts[3], *at = facts;
    if (fedge_collective_is_alone(all))
        return status;
    if (status == FEDGE_OK) {
        char text[FEDGE_COLLECTIVE_FACT_TEXT], hash[FEDGE_HASH_TEXT];
        char partition[FEDGE_PARTITION_MAX_TEXT];
        (void)snprintf(text, sizeof(text), FEDGE_VERSION " (%zu)", sizeof(fedge_sim_backend_task));
        at = add_fact(at, "the release", text, "install the same everywhere");
        fedge_sha256_text((const uint8_t *)self->config.job_text, self->config.job_size, hash);
        at = add_fact(at, "the job's SHA-256", hash, SAME_FILES);
        fedge_partition_text(&self->data.partition, partition);
        partition[strcspn(partition, ":")] = '\0'; /* a file may lie elsewhere */
        at = add_fact(at, "the division", partition, "give all ranks the same --partition");
    }
    FEDGE_TRY(fedge_collective_agree(all, status, facts, (uint32_t)(at - facts), err));
    return self->data.partition.scheme == FEDGE_PARTITION_PER_FILE
               ? fedge_placement_find(&self->placement, all, &self->data,
                                      self->config.options->num_clients, err)
               : FEDGE_OK;
}

/* All ranks call this. Finds those that have the test set. */
static fedge_status find_tests(fedge_experiment *self, fedge_status status, fedge_error *err)
{
    const fedge_collective *all = self->config.collective;
    if (fedge_collective_is_alone(all))
        return status;
    FEDGE_TRY(fedge_collective_agree(all, status, NULL, 0, err));
    return fedge_placement_find_tests(&self->placement, all, self->test_set != NULL, err);
}

static fedge_status load_job_and_site(fedge_experiment *self, fedge_error *err)
{
    FEDGE_TRY(load_job(self, err));
    return has_trainers(self->config.options) ? FEDGE_OK : load_site(self, err);
}

static fedge_status load_tests_and_count(fedge_experiment *self, fedge_error *err)
{
    if (self->job->test_set.present)
        FEDGE_TRY(load_test_set(self, err));
    return count_clients(self, err);
}

/* ---- progress ------------------------------------------------------------------------------- */

static bool is_enough(const fedge_experiment *self)
{
    return self->config.options->stop_at_target &&
           fedge_run_summary_all_reached(&self->results.run_summary);
}

static fedge_status on_round(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    fedge_experiment *self = user;
    if (self->progress.out && !self->config.run)
        fedge_progress_round(&self->progress, summary);
    FEDGE_TRY(fedge_results_round(&self->results, self->simulation, summary, err));
    return is_enough(self) ? fedge_fail(err, FEDGE_CANCELLED, "all targets are reached") : FEDGE_OK;
}

/* ", 3 min left"; nothing for what is not known. */
static const char *remaining_text(double seconds, char text[24])
{
    const bool minutes = seconds >= 180.0, hours = seconds >= 3.0 * 3600.0;
    const double unit_s = hours ? 3600.0 : minutes ? 60.0 : 1.0;
    const char *unit = hours ? "h" : minutes ? "min" : "s";
    text[0] = '\0';
    if (isfinite(seconds))
        (void)snprintf(text, 24, ", %.0f %s left", seconds / unit_s, unit);
    return text;
}

/* The last accuracy, such as ", 85.2%"; empty before the first. */
static const char *accuracy_text(const fedge_run_summary *run_summary, char text[16])
{
    const double accuracy = isfinite(run_summary->test.accuracy) ? run_summary->test.accuracy
                                                                 : run_summary->validation.accuracy;
    text[0] = '\0';
    if (isfinite(accuracy))
        (void)snprintf(text, 16, ", %.1f%%", 100.0 * accuracy);
    return text;
}

static void on_progress(void *user, uint32_t round, uint32_t done, uint32_t asked)
{
    fedge_experiment *self = user;
    const uint64_t now_ms = fedge_os_monotonic_ms();
    if (!self->progress.terminal || now_ms < self->drawn_ms + DRAW_MS)
        return;
    self->drawn_ms = now_ms;
    char state[192], time[24], accuracy[16];
    const double seconds = (double)(now_ms - self->started_ms + 1) * 1e-3; /* above 0 */
    const double rate =
        (double)(self->results.run_summary.clients - self->clients_at_start + done) / seconds;
    const double rounds =
        (double)round - 1 - self->resumed_at + (double)done / (asked > 0 ? asked : 1);
    const double left = self->settings.num_rounds - self->resumed_at - rounds;
    (void)snprintf(state, sizeof(state),
                   "%s%sround %" PRIu32 ": %" PRIu32 " of %" PRIu32 " clients%s, %.3g clients/s%s",
                   self->config.run ? self->config.run : "", self->config.run ? ", " : "", round,
                   done, asked, accuracy_text(&self->results.run_summary, accuracy), rate,
                   remaining_text(rounds > 0 ? seconds / rounds * left : NAN, time));
    fedge_progress_draw(&self->progress, round - 1, state);
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool cancel(void *user)
{
    const fedge_experiment *self = user;
    return self->config.cancel && self->config.cancel(self->config.cancel_user);
}

static fedge_status make_simulation(fedge_experiment *self, fedge_error *err)
{
    const fedge_simulate_options *options = self->config.options;
    uint32_t threads = options->num_threads ? options->num_threads : fedge_os_num_cpus();
    threads = options->num_trainer_channels > 0 ? options->num_trainer_channels : threads;
    const fedge_simulation_config config = {
        .job = self->job,
        .client_data = self->client_data,
        .test_set = self->test_set,
        .plugin = options->plugin,
        .profiles = self->profiles,
        .collective = self->config.collective,
        .num_threads =
            threads < FEDGE_SIM_BACKEND_MAX_THREADS ? threads : FEDGE_SIM_BACKEND_MAX_THREADS,
        .backend = options->backend,
        .trainers = has_trainers(options) ? &self->trainers : NULL,
        .shared = self->config.shared,
        .log = self->config.log,
        .accumulator = options->accumulator,
        .sums = options->sums,
        .states = {.memory = options->client_state_memory, .folder = self->config.out},
        .attack = options->attack,
        .replay = options->replay ? &self->replay : NULL,
        .evaluate_every = options->evaluate_every,
        .rounds_only = !self->config.summary || options->client_accuracy == 0,
        .cancel = cancel,
        .no_hashes = !self->config.out,
        .on_round = on_round,
        .on_progress = on_progress,
        .user = self};
    fedge_selection selection;
    self->trainers = (fedge_trainers){.command = options->trainer,
                                      .channels = options->trainer_channels,
                                      .num_channels = options->num_trainer_channels};
    const fedge_status status =
        fedge_selection_init(&selection, self->job, self->settings.num_validation > 0, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "%s", options->job);
    if (options->replay)
        FEDGE_TRY(fedge_replay_read(options->replay, &self->replay, err));
    return fedge_simulation_new(&config, &self->simulation, err);
}

/* CRC-32 of the examples and their owners. */
static uint32_t crc_of(const fedge_client_data *data)
{
    const uint32_t clients = data->num_clients;
    uint32_t crc = fedge_client_data_crc32(data);
    crc = fedge_crc32(crc, data->first, (clients + 1) * sizeof(*data->first));
    return fedge_crc32(crc, data->owner, data->num_examples * sizeof(*data->owner));
}

/* CRC-32 of the test set as text; "" on a rank without it. */
static void test_set_text(const fedge_experiment *self, char text[FEDGE_COLLECTIVE_FACT_TEXT])
{
    text[0] = '\0';
    if (self->test_set) {
        (void)snprintf(text, FEDGE_COLLECTIVE_FACT_TEXT, "%08" PRIx32,
                       fedge_dataset_crc32(self->test_set));
    }
}

/* Equal inputs give equal bits on equal kernels only. "" where GPUs train. */
static const char *cpu_kernels(const fedge_experiment *self)
{
    const bool trains = strcmp(fedge_simulation_backend(self->simulation), "cpu") == 0;
    return trains ? fedge_kernels_choose(fedge_os_cpu_features())->name : "";
}

/* All ranks call this. Fails where their simulations differ. */
static fedge_status agree(const fedge_experiment *self, fedge_status status, fedge_error *err)
{
    fedge_collective_fact facts[FEDGE_COLLECTIVE_MAX_FACTS], *at = facts;
    if (fedge_collective_is_alone(self->config.collective))
        return status;
    if (status == FEDGE_OK) {
        const fedge_simulation_settings *settings = &self->settings;
        char text[FEDGE_COLLECTIVE_FACT_TEXT];
        (void)snprintf(text, sizeof(text),
                       "%" PRIu32 " clients, seeds %" PRIu64 " and %" PRIu64 ", %" PRIu32 " rounds",
                       settings->num_clients, settings->seed, settings->partition_seed,
                       settings->num_rounds);
        at = add_fact(at, "the simulation", text, "give all ranks the same options");
        (void)snprintf(text, sizeof(text), "%08" PRIx32, crc_of(self->client_data));
        at = add_fact(at, "the CRC-32 of the clients' data", text, SAME_FILES);
        test_set_text(self, text);
        at = add_fact(at, "the CRC-32 of the test set", text, SAME_FILES);
        at = add_fact(at, "the engine", fedge_simulation_backend(self->simulation),
                      "name one that all machines have with --engine");
        at = add_fact(at, "the accumulator", fedge_simulation_accumulator(self->simulation),
                      "name one that all machines have with --accumulator");
        at = add_fact(at, "the kind of CPU kernels", cpu_kernels(self),
                      "set FEDGE_CPU_LEVEL to what all machines have");
    }
    return fedge_collective_agree(self->config.collective, status, facts, (uint32_t)(at - facts),
                                  err);
}

static fedge_status open_results(fedge_experiment *self, fedge_error *err)
{
    const fedge_simulate_options *options = self->config.options;
    const char *backend = fedge_simulation_backend(self->simulation);
    fedge_simulation_lead(self->simulation);
    self->settings.backend = strcmp(backend, "cpu") == 0 ? NULL : backend;
    const fedge_results_config config = {.dir = self->config.out,
                                         .resume = self->config.resume,
                                         .job = self->job,
                                         .job_text = self->config.job_text,
                                         .job_size = self->config.job_size,
                                         .settings = &self->settings,
                                         .targets = options->targets,
                                         .num_targets = options->num_targets};
    FEDGE_TRY(fedge_results_open(&self->results, &config, err));
    if (!has_trainers(options))
        FEDGE_TRY(fedge_results_partition(&self->results, self->client_data, err));
    return fedge_results_begin(&self->results, self->simulation, err);
}

fedge_status fedge_experiment_check(fedge_experiment *experiment,
                                    const fedge_experiment_config *config, fedge_error *err)
{
    *experiment = (fedge_experiment){.config = *config};
    FEDGE_TRY(load_job_and_site(experiment, err));
    if (config->options->num_clients == 0 &&
        !fedge_partition_is_counted(&experiment->data.partition))
        return fail_uncounted(err);
    return FEDGE_OK;
}

/* A rank that fails says so to the others in the next exchange, which then fails on all. */
static fedge_status set_up(fedge_experiment *self, fedge_error *err)
{
    FEDGE_TRY(find_files(self, load_job_and_site(self, err), err));
    FEDGE_TRY(find_tests(self, load_tests_and_count(self, err), err));
    FEDGE_TRY(load_client_data(self, err));
    FEDGE_TRY(check_evaluated(self, err));
    if (fedge_client_profiles_is_wanted(&self->config.options->profiles)) {
        FEDGE_TRY(fedge_client_profiles_new(&self->config.options->profiles, self->job->plan.seed,
                                            self->settings.num_clients, &self->profiles, err));
    }
    self->settings.profiles = self->config.options->profiles;
    self->settings.seed = self->job->plan.seed;
    self->settings.partition_seed = self->data.partition.seed;
    self->settings.validation_fraction = self->data.validation_fraction;
    self->settings.validation_split = self->config.options->validation_split;
    self->settings.num_validation = self->client_data->num_validation;
    self->settings.num_rounds = self->job->rounds.num_server_rounds;
    self->settings.evaluate_every = self->config.options->evaluate_every;
    self->settings.attack = self->config.options->attack_text;
    self->settings.draws_ties = self->profiles || self->job->rounds.over_selection > 1.0;
    if (has_trainers(self->config.options))
        (void)snprintf(self->settings.partition, sizeof(self->settings.partition), "trainer");
    else
        fedge_partition_text(&self->data.partition, self->settings.partition);
    sum_data(self);
    return make_simulation(self, err);
}

fedge_status fedge_experiment_init(fedge_experiment *experiment,
                                   const fedge_experiment_config *config, fedge_error *err)
{
    *experiment = (fedge_experiment){.config = *config};
    FEDGE_TRY(agree(experiment, set_up(experiment, err), err));
    if (leads(experiment))
        FEDGE_TRY(open_results(experiment, err));
    experiment->progress = (fedge_progress){
        .out = config->progress,
        .terminal = config->progress && fedge_progress_on_terminal(config->progress),
        .num_rounds = experiment->settings.num_rounds};
    experiment->resumed_at = experiment->results.run_summary.rounds;
    experiment->clients_at_start = experiment->results.run_summary.clients;
    return FEDGE_OK;
}

void fedge_experiment_fini(fedge_experiment *experiment)
{
    fedge_final_evaluation_fini(&experiment->final_evaluation);
    fedge_results_close(&experiment->results);
    fedge_simulation_free(experiment->simulation);
    fedge_replay_fini(&experiment->replay);
    fedge_client_profiles_free(experiment->profiles);
    fedge_client_data_free(experiment->client_data);
    fedge_placement_fini(&experiment->placement);
    fedge_dataset_free(experiment->test_set);
    fedge_site_free(experiment->site);
    fedge_job_free(experiment->job);
    *experiment = (fedge_experiment){0};
}

static bool measures_backdoor(const fedge_experiment *self)
{
    return fedge_attack_is_backdoor(&self->config.options->attack) && self->test_set &&
           strcmp(fedge_simulation_backend(self->simulation), "cpu") == 0 &&
           fedge_collective_is_alone(self->config.collective);
}

/* Evaluates the last model class by class and client by client. --resume does it after an
 * interruption. */
static fedge_status evaluate_finally(fedge_experiment *self, fedge_error *err)
{
    fedge_final_evaluation *evaluation = &self->final_evaluation;
    if (self->config.summary) {
        FEDGE_TRY(fedge_final_evaluation_init(evaluation, self->simulation, &self->job->plan,
                                              self->client_data,
                                              self->config.options->client_accuracy, err));
        if (measures_backdoor(self)) {
            evaluation->has_backdoor = true;
            FEDGE_TRY(fedge_backdoor_measure(self->simulation, self->test_set,
                                             &evaluation->backdoor, err));
        }
    }
    return cancel(self) ? fedge_fail(err, FEDGE_CANCELLED, "interrupted in the last evaluation")
                        : FEDGE_OK;
}

fedge_status fedge_experiment_run(fedge_experiment *experiment, fedge_error *err)
{
    if (!leads(experiment))
        return fedge_simulation_serve(experiment->simulation, err);
    experiment->started_ms = fedge_os_monotonic_ms();
    experiment->drawn_ms = 0; /* draws at once */
    fedge_status status = FEDGE_OK;
    if (!is_enough(experiment)) /* else a resumed run has reached its targets */ {
        status = fedge_simulation_run(experiment->simulation, err);
    }
    if (experiment->progress.out)
        fedge_progress_clear(&experiment->progress);
    if (status == FEDGE_OK || (status == FEDGE_CANCELLED && is_enough(experiment)))
        status = evaluate_finally(experiment, err);
    if (status != FEDGE_OK && status != FEDGE_CANCELLED) {
        experiment->ending = "failed";
        fedge_results_fail(&experiment->results, experiment->simulation,
                           &experiment->final_evaluation, experiment->resume_note);
        return status;
    }
    const bool whole = experiment->results.run_summary.rounds == experiment->settings.num_rounds;
    const bool over = fedge_selection_is_over(&experiment->results.run_summary.selection);
    experiment->ending = status == FEDGE_CANCELLED ? "interrupted"
                         : whole                   ? "complete"
                         : over                    ? "early-stopping"
                                                   : "target";
    fedge_error second;
    const fedge_status written =
        fedge_results_finish(&experiment->results, experiment->simulation,
                             &experiment->final_evaluation, experiment->ending, &second);
    if (written != FEDGE_OK) {
        *err = second;
        experiment->ending = "failed";
        const fedge_status ignored = fedge_results_write_summary(
            &experiment->results, &experiment->final_evaluation, experiment->ending, &second);
        (void)ignored; /* the first failure is reported */
        fedge_results_describe(&experiment->results, experiment->resume_note);
    }
    return written == FEDGE_OK ? status : written;
}
