#include "aggregator/simulate/output/results.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "aggregator/report/partition_plot.h"
#include "aggregator/report/plot.h"
#include "aggregator/store/checkpoint.h"
#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"
#include "aggregator/store/model_file.h"
#include "aggregator/store/round_log.h"
#include "edge/core/os.h"
#include "secure/crypto/sha256.h"

#define SAVE_PAUSE 20u    /* checkpoints take at most a 20th of the time */
#define STATES "variates" /* files of clients' states: of the plan's, … */
#define VALUES "values"   /* … and of what trainers of one's own keep */
#define NO_RUN "00000000000000000000000000000000"

static fedge_status write_file(const fedge_results *results, const char *name, const void *data,
                               size_t size, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_path_join(results->dir, name, path, err));
    return fedge_os_write_file(path, data, size, 0644, err);
}

/* Removes a file or folder that may be missing. */
static fedge_status remove_from(const char *dir, const char *name, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_path_join(dir, name, path, err));
    return fedge_os_remove_tree(path, err);
}

/* Removes a file that may be missing. A folder of that name is the user's, and an error. */
static fedge_status remove_file(const char *dir, const char *name, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_path_join(dir, name, path, err));
    const fedge_status status = fedge_os_remove(path, err);
    return status == FEDGE_NOT_FOUND ? FEDGE_OK : status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static fedge_status check_same_job(const fedge_results *results, const fedge_results_config *config,
                                   fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    uint8_t *stored = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_path_join(results->dir, "job.json", path, err));
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &stored, &size, err));
    const bool same = size == config->job_size && memcmp(stored, config->job_text, size) == 0;
    free(stored);
    return same ? FEDGE_OK
                : fedge_fail(err, FEDGE_MISMATCH, "%s differs: --resume needs the same job", path);
}

/* [path]: of simulation.json. */
static fedge_status check_same_settings(const char *path, const char *settings, fedge_error *err)
{
    uint8_t *stored = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &stored, &size, err));
    const fedge_status status = fedge_settings_check(path, (const char *)stored, settings, err);
    free(stored);
    return status;
}

static fedge_status take_lock(fedge_results *results, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_path_join(results->dir, "lock", path, err));
    FEDGE_TRY(fedge_os_lock(path, &results->lock, err));
    results->locked = true;
    return FEDGE_OK;
}

static bool has_contents(const char *path, const void *contents, size_t size)
{
    uint8_t *text = NULL;
    size_t text_size = 0;
    const bool same =
        fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &text, &text_size, NULL) == FEDGE_OK &&
        text_size == size && memcmp(text, contents, size) == 0;
    free(text);
    return same;
}

static const char *const NAMES[] = {"job.json",          "rounds.jsonl",       "rounds.svg",
                                    "summary.json",      "partition.csv",      "partition.svg",
                                    "model.safetensors", FEDGE_BEST_MODEL_NAME};
#define NUM_NAMES (sizeof(NAMES) / sizeof(NAMES[0]))

/* Is [name] a temporary file of fedge_os_write_file for [target], of a program that was killed? */
static bool is_leftover_of(const char *name, const char *target)
{
    const size_t length = strlen(target), drawn = strlen(".XXXXXX");
    return strncmp(name, target, length) == 0 && name[length] == '.' &&
           strlen(name) > length + drawn &&
           strcmp(name + length + drawn, FEDGE_OS_TEMPORARY_SUFFIX) == 0;
}

static fedge_status remove_leftover(void *user, const char *name, fedge_error *err)
{
    const fedge_results *results = user;
    bool leftover = is_leftover_of(name, "simulation.json");
    for (size_t i = 0; i < NUM_NAMES && !leftover; i++)
        leftover = is_leftover_of(name, NAMES[i]);
    return leftover ? remove_file(results->dir, name, err) : FEDGE_OK;
}

/* Removes a half-built checkpoint. The old one that was moved aside for it comes back unless the
 * new one is complete. */
static fedge_status repair_checkpoint(void *user, const char *name, fedge_error *err)
{
    char path[FEDGE_MAX_PATH], original[FEDGE_MAX_PATH], suffix[16];
    unsigned round;
    const bool built = sscanf(name, "round-%6u.%15s", &round, suffix) == 2 ||
                       sscanf(name, STATES "-%6u.%15s", &round, suffix) == 2 ||
                       sscanf(name, VALUES "-%6u.%15s", &round, suffix) == 2;
    const bool old = built && strcmp(suffix, "old") == 0;
    if (!old && !(built && (strcmp(suffix, "new") == 0 || strcmp(suffix, "bin.new") == 0)))
        return FEDGE_OK;
    FEDGE_TRY(fedge_path_join(user, name, path, err));
    memcpy(original, path, sizeof(original));
    original[strlen(original) - strlen(".old")] = '\0';
    return old && !fedge_os_exists(original) ? fedge_os_rename(path, original, err)
                                             : fedge_os_remove_tree(path, err);
}

/* Removes the half-written files of a program that was killed. */
static fedge_status remove_leftovers(fedge_results *results, fedge_error *err)
{
    char checkpoints[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_os_list_dir(results->dir, remove_leftover, results, err));
    FEDGE_TRY(fedge_path_join(results->dir, "checkpoints", checkpoints, err));
    if (fedge_os_is_dir(checkpoints))
        FEDGE_TRY(fedge_os_list_dir(checkpoints, repair_checkpoint, checkpoints, err));
    return FEDGE_OK;
}

/* Without simulation.json, files of these names are the user's, such as the job itself. The same
 * job may be left of a run that was killed here. */
static fedge_status check_free(const fedge_results *results, const fedge_results_config *config,
                               fedge_error *err)
{
    for (size_t i = 0; i < NUM_NAMES; i++) {
        char path[FEDGE_MAX_PATH];
        FEDGE_TRY(fedge_path_join(results->dir, NAMES[i], path, err));
        if (fedge_os_exists(path) &&
            !(i == 0 && has_contents(path, config->job_text, config->job_size))) {
            return fedge_fail(
                err, FEDGE_EXISTS,
                "%s/%s exists and does not belong to a simulation: choose another --out",
                results->dir, NAMES[i]);
        }
    }
    return FEDGE_OK;
}

static fedge_status make_folder(fedge_results *results, const fedge_results_config *config,
                                const char *settings, fedge_error *err)
{
    FEDGE_TRY(check_free(results, config, err));
    FEDGE_TRY(fedge_os_make_dirs(results->checkpoints, err));
    FEDGE_TRY(take_lock(results, err));
    FEDGE_TRY(write_file(results, "job.json", config->job_text, config->job_size, err));
    /* Last: it makes the folder a simulation that --resume continues. */
    return write_file(results, "simulation.json", settings, strlen(settings), err);
}

static fedge_status open_folder(fedge_results *results, const fedge_results_config *config,
                                const char *settings, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_path_join(results->dir, "simulation.json", path, err));
    const bool exists = fedge_os_exists(path);
    if (exists && !config->resume) {
        return fedge_fail(
            err, FEDGE_EXISTS,
            "%s has a simulation already: continue it with --resume, or choose another --out",
            results->dir);
    }
    if (!exists)
        return make_folder(results, config, settings, err);
    results->resumed = true;
    FEDGE_TRY(take_lock(results, err)); /* first: another program may be writing here */
    FEDGE_TRY(check_same_job(results, config, err));
    FEDGE_TRY(check_same_settings(path, settings, err));
    return remove_leftovers(results, err);
}

fedge_status fedge_results_open(fedge_results *results, const fedge_results_config *config,
                                fedge_error *err)
{
    *results = (fedge_results){
        .job = config->job, .settings = *config->settings, .log = {.file = {.fd = -1}}};
    fedge_run_summary_init(&results->run_summary, config->targets, config->num_targets);
    FEDGE_TRY(fedge_selection_init(&results->run_summary.selection, config->job,
                                   config->settings->num_validation > 0, err));
    if (!config->dir) {
        return config->resume ? fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--resume needs --out DIR")
                              : FEDGE_OK;
    }
    int length = snprintf(results->dir, sizeof(results->dir), "%s", config->dir);
    if (length <= 0 || length >= (int)sizeof(results->dir)) {
        results->dir[0] = '\0';
        return fedge_fail(err, FEDGE_TOO_BIG, "--out must have 1 to %zu bytes",
                          sizeof(results->dir) - 1);
    }
    FEDGE_TRY(fedge_path_join(results->dir, "checkpoints", results->checkpoints, err));
    char *text = NULL;
    FEDGE_TRY(fedge_settings_text(config->settings, &text, err));
    const fedge_status status = open_folder(results, config, text, err);
    free(text);
    return status;
}

void fedge_results_close(fedge_results *results)
{
    fedge_best_model_fini(&results->best);
    if (results->log.file.path[0]) {
        fedge_round_log_close(&results->log);
        results->log.file.path[0] = '\0';
    }
    if (results->locked) {
        fedge_os_unlock(results->lock);
        results->locked = false;
    }
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* [data] stays all 0 where the run was killed before its first checkpoint. */
static fedge_status load_checkpoint(const fedge_results *results, fedge_checkpoint_data *data,
                                    fedge_error *err)
{
    char note[256];
    const fedge_status status =
        fedge_checkpoint_load_newest(results->checkpoints, data, note, sizeof(note), err);
    return status == FEDGE_NOT_FOUND ? FEDGE_OK : status;
}

/* DIR/checkpoints/WHAT-ROUND and the suffix. */
static fedge_status checkpoint_path(const fedge_results *results, const char *what, uint32_t round,
                                    const char *suffix, char path[FEDGE_MAX_PATH], fedge_error *err)
{
    char name[48];
    (void)snprintf(name, sizeof(name), "%s-%06" PRIu32 "%s", what, round, suffix);
    return fedge_path_join(results->checkpoints, name, path, err);
}

/* [what]: STATES or VALUES. */
static fedge_status states_path(const fedge_results *results, const char *what, uint32_t round,
                                char path[FEDGE_MAX_PATH], fedge_error *err)
{
    return checkpoint_path(results, what, round, ".bin", path, err);
}

/* Does anything follow round [round], which begins with states of clients? The evaluation of the
 * last round changes nothing that matters. */
static bool is_amid(const fedge_results *results, uint32_t round)
{
    return round > 0 && round < results->settings.num_rounds;
}

static fedge_status load_states(const fedge_results *results, fedge_simulation *simulation,
                                fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    const uint32_t round = results->checkpoint;
    if (is_amid(results, round) && fedge_simulation_states(simulation)) {
        FEDGE_TRY(states_path(results, STATES, round, path, err));
        FEDGE_TRY(fedge_simulation_load_states(simulation, path, err));
    }
    if (is_amid(results, round) && fedge_simulation_values(simulation)) {
        FEDGE_TRY(states_path(results, VALUES, round, path, err));
        FEDGE_TRY(fedge_simulation_load_values(simulation, path, err));
    }
    return FEDGE_OK;
}

/* Loads the best model so far, which is the checkpoint's or was saved with it. */
static fedge_status find_best(fedge_results *results, const fedge_simulation *simulation,
                              fedge_error *err)
{
    const fedge_selected *best = &results->run_summary.selection.state.best;
    if (best->round == 0)
        return FEDGE_OK;
    return best->round == results->checkpoint
               ? fedge_best_model_take(&results->best, &results->job->plan, best->round,
                                       fedge_simulation_model(simulation)->values, err)
               : fedge_best_model_load(&results->best, &results->job->plan, results->dir, best,
                                       err);
}

static fedge_status restore_models(fedge_results *results, fedge_simulation *simulation,
                                   const fedge_checkpoint_data *data, fedge_error *err)
{
    const fedge_simulation_state state = {
        .rounds_closed = data->checkpoint.round,
        .next_task_id = data->checkpoint.next_task_id,
        .clock_us = (uint64_t)llround(results->run_summary.virtual_time * 1e6),
        .evaluation_due =
            results->run_summary.trained_last && results->job->rounds.fraction_evaluate > 0.0};
    FEDGE_TRY(fedge_simulation_restore(simulation, &state, data->model, data->model_size,
                                       data->strategy_state, data->strategy_state_size, err));
    return find_best(results, simulation, err);
}

static fedge_status restore(fedge_results *results, fedge_simulation *simulation,
                            const fedge_checkpoint_data *data, fedge_error *err)
{
    if (!data->model)
        return FEDGE_OK;
    fedge_status status = load_states(results, simulation, err);
    if (status != FEDGE_OK) {
        return fedge_error_prefix(err, status,
                                  "%s cannot go on without its clients' states; restore the file "
                                  "or start again in another --out",
                                  results->dir);
    }
    if (fedge_selection_is_over(&results->run_summary.selection))
        fedge_simulation_end_after(simulation, data->checkpoint.round);
    status = restore_models(results, simulation, data, err);
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "%s", results->dir);
}

/* Removes a checkpoint older than the last: the program was killed before it did so. */
static fedge_status remove_older(void *user, const char *name, fedge_error *err)
{
    const fedge_results *results = user;
    unsigned round;
    int end = 0;
    const bool states = (sscanf(name, STATES "-%6u.bin%n", &round, &end) == 1 && end > 0) ||
                        (sscanf(name, VALUES "-%6u.bin%n", &round, &end) == 1 && end > 0);
    const bool checkpoint =
        !states && sscanf(name, "round-%6u%n", &round, &end) == 1 && round < results->checkpoint;
    const bool other =
        name[end] == '\0' && (checkpoint || (states && round != results->checkpoint));
    return other || fedge_best_model_is_leftover(name, results->best.saved)
               ? remove_from(results->checkpoints, name, err)
               : FEDGE_OK;
}

fedge_status fedge_results_begin(fedge_results *results, fedge_simulation *simulation,
                                 fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_checkpoint_data data = {0};
    results->checkpoint_ms = fedge_os_monotonic_ms();
    results->interval_ms = FEDGE_RESULTS_CHECKPOINT_MS;
    if (!results->dir[0])
        return FEDGE_OK;
    fedge_status status;
    FEDGE_TRY_OR(load_checkpoint(results, &data, err), done);
    results->checkpoint = data.checkpoint.round;
    FEDGE_TRY_OR(fedge_path_join(results->dir, "rounds.jsonl", path, err), done);
    FEDGE_TRY_OR(fedge_round_log_open(&results->log, path, results->checkpoint, err), done);
    results->log.lazy = true;
    FEDGE_TRY_OR(fedge_run_summary_read(&results->run_summary, path, err), done);
    if (data.model && results->run_summary.rounds != results->checkpoint) {
        status =
            fedge_fail(err, FEDGE_MISMATCH,
                       "%s ends with round %" PRIu32 ", and the checkpoint is of round %" PRIu32
                       ": restore the whole file, or start again in another --out",
                       path, results->run_summary.rounds, results->checkpoint);
        goto done;
    }
    FEDGE_TRY_OR(restore(results, simulation, &data, err), done);
    status = fedge_os_list_dir(results->checkpoints, remove_older, results, err);
done:
    fedge_checkpoint_data_fini(&data);
    return status;
}

/* ---- while it runs --------------------------------------------------------------------------- */

/* Called before the checkpoint, which needs them. */
static fedge_status save_states(const fedge_results *results, fedge_simulation *simulation,
                                uint32_t round, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    if (is_amid(results, round) && fedge_simulation_states(simulation)) {
        FEDGE_TRY(fedge_simulation_collect_states(simulation, err));
        FEDGE_TRY(states_path(results, STATES, round, path, err));
        FEDGE_TRY(fedge_client_states_save(fedge_simulation_states(simulation), path, err));
    }
    if (is_amid(results, round) && fedge_simulation_values(simulation)) {
        FEDGE_TRY(states_path(results, VALUES, round, path, err));
        FEDGE_TRY(fedge_trainer_values_save(fedge_simulation_values(simulation), path, err));
    }
    return FEDGE_OK;
}

static void remove_part(const fedge_results *results, const char *what, uint32_t round,
                        const char *suffix)
{
    char path[FEDGE_MAX_PATH];
    if (checkpoint_path(results, what, round, suffix, path, NULL) == FEDGE_OK) {
        const fedge_status removed = fedge_os_remove_tree(path, NULL);
        (void)removed; /* the first failure is reported */
    }
}

/* Removes the parts of a failed checkpoint, so that a full disk has space for the summary. */
static void remove_half_built(fedge_results *results, uint32_t round)
{
    static const char *const CHECKPOINT = "round", *const FILES[] = {STATES, VALUES};
    char path[FEDGE_MAX_PATH];
    const bool named = checkpoint_path(results, CHECKPOINT, round, "", path, NULL) == FEDGE_OK;
    /* A checkpoint that is complete, whatever failed after it, needs the states of clients. */
    const bool complete = !named || fedge_os_exists(path);
    remove_part(results, CHECKPOINT, round, ".new");
    for (size_t i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        remove_part(results, FILES[i], round, ".bin.new");
        if (!complete)
            remove_part(results, FILES[i], round, ".bin");
    }
    const fedge_status pruned =
        fedge_best_model_prune(&results->best, results->dir, complete, NULL);
    (void)pruned;
}

/* Removes the checkpoint of round [last] after that of [round]. */
static fedge_status remove_last(const fedge_results *results, uint32_t last, uint32_t round,
                                fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    if (last == round)
        return FEDGE_OK;
    FEDGE_TRY(fedge_checkpoint_remove(results->checkpoints, last, err));
    FEDGE_TRY(states_path(results, VALUES, last, path, err));
    FEDGE_TRY(fedge_os_remove_tree(path, err));
    FEDGE_TRY(states_path(results, STATES, last, path, err));
    return fedge_os_remove_tree(path, err);
}

/* Makes the checkpoint of [round] the last, and removes what it replaces. */
static fedge_status replace_last(fedge_results *results, uint32_t round, fedge_error *err)
{
    const uint32_t last = results->checkpoint;
    results->checkpoint = round;
    FEDGE_TRY(remove_last(results, last, round, err));
    return fedge_best_model_prune(&results->best, results->dir, true, err);
}

static fedge_status write_checkpoint(fedge_results *results, fedge_simulation *simulation,
                                     const uint8_t *model, size_t size, fedge_error *err)
{
    const fedge_global_model *global = fedge_simulation_model(simulation);
    const fedge_simulation_state state = fedge_simulation_get_state(simulation);
    fedge_checkpoint checkpoint = {.round = state.rounds_closed,
                                   .run_id = NO_RUN,
                                   .incarnation = 1,
                                   .next_task_id = state.next_task_id,
                                   .loss = NAN,
                                   .accuracy = NAN,
                                   .bytes_up = results->run_summary.bytes_up,
                                   .bytes_down = results->run_summary.bytes_down,
                                   .elapsed_ms = (uint64_t)(results->run_summary.seconds * 1000.0)};
    memcpy(checkpoint.strategy, global->strategy->reader.name,
           strlen(global->strategy->reader.name) + 1);
    fedge_buffer strategy;
    fedge_buffer_init(&strategy, FEDGE_STRATEGY_MAX_STATE);
    fedge_status status;
    FEDGE_TRY_OR(fedge_global_model_save(global, &strategy, err), done);
    results->unsynced = true;
    FEDGE_TRY_OR(fedge_os_sync(&results->log.file, err), done);
    results->unsynced = false;
    FEDGE_TRY_OR(save_states(results, simulation, state.rounds_closed, err), done);
    FEDGE_TRY_OR(fedge_best_model_save(&results->best, &results->job->plan, results->dir, err),
                 done);
    const fedge_checkpoint_files files = {.model = model,
                                          .model_size = size,
                                          .strategy_state = strategy.data,
                                          .strategy_state_size = strategy.size};
    status = fedge_checkpoint_save(results->checkpoints, &checkpoint, &files, err);
done:
    fedge_buffer_fini(&strategy);
    return status;
}

static fedge_status save(fedge_results *results, fedge_simulation *simulation, const uint8_t *model,
                         size_t size, fedge_error *err)
{
    const uint64_t start_ms = fedge_os_monotonic_ms();
    const uint32_t round = fedge_simulation_get_state(simulation).rounds_closed;
    fedge_status status = write_checkpoint(results, simulation, model, size, err);
    if (status == FEDGE_OK)
        status = replace_last(results, round, err);
    else
        remove_half_built(results, round);
    results->checkpoint_ms = fedge_os_monotonic_ms();
    const uint64_t pause_ms = SAVE_PAUSE * (results->checkpoint_ms - start_ms);
    results->interval_ms =
        pause_ms > FEDGE_RESULTS_CHECKPOINT_MS ? pause_ms : FEDGE_RESULTS_CHECKPOINT_MS;
    return status;
}

/* Writes the last model, whose file without metadata is file[0, size), and the other models among
 * which clients choose, of [others] bytes after it. */
static fedge_status export_model(const fedge_results *results, const fedge_simulation *simulation,
                                 const uint8_t *file, size_t size, size_t others, fedge_error *err)
{
    const fedge_run_summary *run_summary = &results->run_summary;
    const uint32_t round = fedge_simulation_get_state(simulation).rounds_closed;
    const bool evaluated = run_summary->evaluated == round;
    fedge_model_facts facts = {.round = round,
                               .loss = evaluated ? run_summary->test.loss : NAN,
                               .accuracy = evaluated ? run_summary->test.accuracy : NAN,
                               .validation_loss = evaluated ? run_summary->validation.loss : NAN,
                               .validation_accuracy =
                                   evaluated ? run_summary->validation.accuracy : NAN};
    char path[FEDGE_MAX_PATH];
    fedge_sha256_text(file, size, facts.model);
    FEDGE_TRY(fedge_path_join(results->dir, "model.safetensors", path, err));
    FEDGE_TRY(fedge_model_file_write(path, &results->job->plan, &facts, file, size, err));
    FEDGE_TRY(fedge_model_file_write_clusters(results->dir, &results->job->plan, &facts,
                                              file + size, others, err));
    return fedge_best_model_export(&results->best, &results->job->plan, results->dir,
                                   &run_summary->selection.state.best, err);
}

/* [export]: also writes the model file beside the checkpoint. */
static fedge_status save_model(fedge_results *results, fedge_simulation *simulation, bool export,
                               fedge_error *err)
{
    uint8_t *file = NULL;
    size_t size = 0, control_size = 0;
    FEDGE_TRY(fedge_global_model_write(fedge_simulation_model(simulation), &file, &size,
                                       &control_size, err));
    fedge_status status = save(results, simulation, file, size, err);
    if (export) { /* a disk too full for a checkpoint may still hold a model */
        fedge_error second;
        const fedge_status written =
            export_model(results, simulation, file, size, control_size, &second);
        if (status == FEDGE_OK && written != FEDGE_OK) {
            *err = second;
            status = written;
        }
    }
    free(file);
    return status;
}

/* Removes the summary of an earlier end, which is outdated once a phase follows. */
static fedge_status remove_summary(fedge_results *results, fedge_error *err)
{
    static const char *const names[] = {"summary.json", "rounds.svg"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        FEDGE_TRY(remove_file(results->dir, names[i], err));
    results->has_continued = true;
    return FEDGE_OK;
}

/* Counts a phase whose line is written. */
static fedge_status add_phase(fedge_results *results, fedge_simulation *simulation,
                              const fedge_round_summary *summary, fedge_error *err)
{
    fedge_run_summary_add(&results->run_summary, summary);
    if (fedge_selection_is_over(&results->run_summary.selection))
        fedge_simulation_end_after(simulation, summary->round);
    return results->run_summary.is_best && results->dir[0]
               ? fedge_best_model_take(&results->best, &results->job->plan, summary->round,
                                       fedge_simulation_model(simulation)->values, err)
               : FEDGE_OK;
}

fedge_status fedge_results_round(fedge_results *results, fedge_simulation *simulation,
                                 const fedge_round_summary *summary, fedge_error *err)
{
    if (!results->dir[0])
        return add_phase(results, simulation, summary, err);
    fedge_buffer line;
    fedge_buffer_init(&line, FEDGE_ROUND_LOG_MAX_LINE);
    fedge_status status;
    FEDGE_TRY_OR(fedge_round_summary_write(summary, &line, err), written);
    if (!results->has_continued)
        FEDGE_TRY_OR(remove_summary(results, err), written);
    status = fedge_round_log_append(&results->log, summary->round, summary->kind,
                                    (const char *)line.data, err);
written:
    fedge_buffer_fini(&line);
    FEDGE_TRY(status);
    FEDGE_TRY(add_phase(results, simulation, summary, err));
    const uint64_t age_ms = fedge_os_monotonic_ms() - results->checkpoint_ms;
    return age_ms >= results->interval_ms ? save_model(results, simulation, false, err) : FEDGE_OK;
}

fedge_status fedge_results_write_summary(const fedge_results *results,
                                         const fedge_final_evaluation *final_evaluation,
                                         const char *ending, fedge_error *err)
{
    char log[FEDGE_MAX_PATH], picture[FEDGE_MAX_PATH], *text = NULL;
    char title[FEDGE_MAX_JOB_NAME + FEDGE_PARTITION_MAX_TEXT + 64];
    if (!results->dir[0])
        return FEDGE_OK;
    FEDGE_TRY(fedge_run_summary_json(&results->run_summary, final_evaluation, results->job,
                                     &results->settings, ending, &text, err));
    const fedge_status status = write_file(results, "summary.json", text, strlen(text), err);
    free(text);
    FEDGE_TRY(status);
    FEDGE_TRY(fedge_path_join(results->dir, "rounds.jsonl", log, err));
    FEDGE_TRY(fedge_path_join(results->dir, "rounds.svg", picture, err));
    (void)snprintf(title, sizeof(title), "%s, %s, %u clients, seed %llu", results->job->plan.name,
                   results->settings.partition, results->settings.num_clients,
                   (unsigned long long)results->settings.seed);
    return fedge_plot_rounds(log, picture, title, err);
}

fedge_status fedge_results_finish(fedge_results *results, fedge_simulation *simulation,
                                  const fedge_final_evaluation *final_evaluation,
                                  const char *ending, fedge_error *err)
{
    if (!results->dir[0]) { /* rounds were not hashed */
        fedge_run_summary *run_summary = &results->run_summary;
        return run_summary->rounds > 0 ? fedge_simulation_hash(simulation, run_summary->model, err)
                                       : FEDGE_OK;
    }
    FEDGE_TRY(save_model(results, simulation, true, err));
    return fedge_results_write_summary(results, final_evaluation, ending, err);
}

/* ---- after a failure ------------------------------------------------------------------------- */

/* Saves checkpoint and model, if the model is that of the last line's round. */
static fedge_status save_last(fedge_results *results, fedge_simulation *simulation,
                              fedge_error *err)
{
    const uint32_t round = fedge_simulation_get_state(simulation).rounds_closed;
    uint8_t *file = NULL;
    size_t size = 0, control_size = 0;
    char hash[FEDGE_HASH_TEXT];
    if (!fedge_simulation_is_whole(simulation) || results->unsynced || round == 0 ||
        round != results->run_summary.rounds || round != results->log.last_round)
        return fedge_fail(err, FEDGE_STALE, "the model is not that of the last line's round");
    FEDGE_TRY(fedge_global_model_write(fedge_simulation_model(simulation), &file, &size,
                                       &control_size, err));
    fedge_sha256_text(file, size, hash);
    if (strcmp(hash, results->run_summary.model) != 0) {
        free(file);
        return fedge_fail(err, FEDGE_INTERNAL, "the model is not the last line's");
    }
    const fedge_status status =
        results->checkpoint != round ? save(results, simulation, file, size, err) : FEDGE_OK;
    const fedge_status written = /* a disk too full for a checkpoint may still hold a model */
        export_model(results, simulation, file, size, control_size, err);
    free(file);
    return status == FEDGE_OK ? written : status;
}

void fedge_results_describe(const fedge_results *results, char resume_note[FEDGE_RESULTS_MAX_NOTE])
{
    resume_note[0] = '\0';
    if (results->dir[0] && results->checkpoint > 0) {
        (void)snprintf(resume_note, FEDGE_RESULTS_MAX_NOTE,
                       "kept in %s: %" PRIu32 " rounds, checkpoint of round %" PRIu32
                       ": --resume continues there",
                       results->dir, results->run_summary.rounds, results->checkpoint);
    } else if (results->dir[0]) {
        (void)snprintf(resume_note, FEDGE_RESULTS_MAX_NOTE,
                       "kept in %s: rounds.jsonl has %" PRIu32
                       " rounds, but there is no checkpoint: --resume starts again",
                       results->dir, results->run_summary.rounds);
    }
}

void fedge_results_fail(fedge_results *results, fedge_simulation *simulation,
                        const fedge_final_evaluation *final_evaluation,
                        char resume_note[FEDGE_RESULTS_MAX_NOTE])
{
    fedge_error second; /* unused: the first failure is reported */
    if (results->dir[0]) {
        const fedge_status saved = save_last(results, simulation, &second);
        const fedge_status written =
            fedge_results_write_summary(results, final_evaluation, "failed", &second);
        (void)saved;
        (void)written;
    }
    fedge_results_describe(results, resume_note);
}

/* ---- examples of each client ----------------------------------------------------------------- */

/* Is the division the one in [path]? */
static fedge_status check_division(const char *path, const fedge_partition_data *data,
                                   const fedge_client_data *client_data, fedge_error *err)
{
    fedge_partition_spec spec = {.scheme = FEDGE_PARTITION_FILE};
    uint32_t *owner = malloc(((size_t)data->num_examples + 1) * sizeof(*owner));
    if (!owner)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to compare divisions");
    (void)snprintf(spec.source, sizeof(spec.source), "%s", path);
    fedge_status status = fedge_partition_assign(&spec, data, client_data->num_clients, owner, err);
    if (status != FEDGE_OK ||
        memcmp(owner, client_data->owner, data->num_examples * sizeof(*owner)) != 0) {
        status = fedge_fail(
            err, FEDGE_MISMATCH,
            "%s is not how the data is divided now: --resume needs the same data and division",
            path);
    }
    free(owner);
    return status;
}

fedge_status fedge_results_partition(const fedge_results *results,
                                     const fedge_client_data *client_data, fedge_error *err)
{
    char path[FEDGE_MAX_PATH], title[FEDGE_MAX_JOB_NAME + FEDGE_PARTITION_MAX_TEXT];
    if (!results->dir[0])
        return FEDGE_OK;
    (void)snprintf(title, sizeof(title), "%s, %s", results->job->plan.name,
                   results->settings.partition);
    const fedge_partition_data data = {.num_examples = client_data->num_examples,
                                       .num_labels = results->job->plan.data.num_labels,
                                       .labels = fedge_client_data_labels(client_data)};
    FEDGE_TRY(fedge_path_join(results->dir, "partition.csv", path, err));
    if (results->resumed && fedge_os_exists(path))
        FEDGE_TRY(check_division(path, &data, client_data, err));
    FEDGE_TRY(fedge_partition_write_csv(path, client_data->owner, data.num_examples, err));
    FEDGE_TRY(fedge_path_join(results->dir, "partition.svg", path, err));
    return fedge_partition_plot(path, title, &data, client_data->owner, client_data->num_clients,
                                err);
}
