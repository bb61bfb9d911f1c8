#define _POSIX_C_SOURCE 200809L /* flockfile */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/table_csv.h"
#include "aggregator/simulate/experiment/experiment.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/simulate/sweep/sweep.h"
#include "aggregator/simulate/sweep/sweep_internal.h"
#include "aggregator/store/disk.h"
#include "edge/core/os.h"

/* ---- folders --------------------------------------------------------------------------------- */

static fedge_status run_folder(const fedge_sweep *sweep, uint32_t combination, uint32_t seed,
                               char path[FEDGE_MAX_PATH], fedge_error *err)
{
    char name[FEDGE_SWEEP_MAX_FOLDER];
    return fedge_path_join(sweep->options->out,
                           fedge_sweep_folder_name(sweep, combination, seed, name), path, err);
}

static bool is_begun(const char *out)
{
    char path[FEDGE_MAX_PATH + 32];
    (void)snprintf(path, sizeof(path), "%s/simulation.json", out);
    return fedge_os_exists(path);
}

/* Counts the runs that have a folder; [path]: that of the first. */
static fedge_status count_begun(const fedge_sweep *sweep, uint32_t *count,
                                char path[FEDGE_MAX_PATH], fedge_error *err)
{
    const uint32_t runs = sweep->num_combinations * sweep->num_seeds;
    *count = 0;
    for (uint32_t i = 0; i < runs && sweep->options->out; i++) {
        char folder[FEDGE_MAX_PATH];
        FEDGE_TRY(run_folder(sweep, i / sweep->num_seeds, i % sweep->num_seeds, folder, err));
        if (is_begun(folder) && (*count)++ == 0)
            memcpy(path, folder, FEDGE_MAX_PATH);
    }
    return FEDGE_OK;
}

static fedge_status write_test_file(const char *out, fedge_error *err)
{
    char path[FEDGE_MAX_PATH + 32];
    (void)snprintf(path, sizeof(path), "%s/.can-be-written", out);
    FEDGE_TRY(fedge_os_make_dirs(out, err));
    FEDGE_TRY(fedge_os_write_file(path, "\n", 1, 0600, err));
    return fedge_os_remove(path, err);
}

/* Can folders be made there? */
static fedge_status check_writable(const char *out, fedge_error *err)
{
    const fedge_status status = write_test_file(out, err);
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "--out");
}

/* Refuses a file that is not a sweep's table but has its name. */
static fedge_status check_name(const char *out, fedge_error *err)
{
    char table[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_path_join(out, FEDGE_SWEEP_TABLE, table, err));
    return fedge_table_csv_check(table, FEDGE_SWEEP_COLUMN, err);
}

/* FEDGE_EXISTS when a run's folder exists, unless options->resume. Makes options->out. */
static fedge_status check_folders(const fedge_sweep *sweep, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    uint32_t begun = 0;
    FEDGE_TRY(count_begun(sweep, &begun, path, err));
    if (begun > 0 && !sweep->options->resume) {
        return fedge_fail(
            err, FEDGE_EXISTS,
            "%s has a simulation already: continue it with --resume, or choose another --out",
            path);
    }
    if (begun == 0 && sweep->options->resume) {
        fprintf(stderr,
                "fedge-simulate: %s has none of these runs: nothing to resume, so all begin\n",
                sweep->options->out);
    }
    if (!sweep->options->out)
        return FEDGE_OK;
    FEDGE_TRY(check_name(sweep->options->out, err));
    return check_writable(sweep->options->out, err);
}

/* ---- one run --------------------------------------------------------------------------------- */

bool fedge_sweep_is_machine_failure(fedge_status status)
{
    return status == FEDGE_IO || status == FEDGE_NO_SPACE || status == FEDGE_NO_MEMORY ||
           status == FEDGE_INTERNAL;
}

fedge_status fedge_sweep_run_one(const fedge_sweep *sweep, const sweep_run *run,
                                 const sweep_callbacks *callbacks, sweep_outcome *to,
                                 fedge_error *err)
{
    char *text = NULL, out[FEDGE_MAX_PATH], number[64];
    fedge_simulate_options options;
    fedge_experiment *experiment = calloc(1, sizeof(*experiment));
    to->begun = false;
    if (!experiment)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a run");
    fedge_status status;
    FEDGE_TRY_OR(fedge_sweep_make(sweep, run->combination, &options, &text, err), done);
    (void)snprintf(number, sizeof(number), "run %" PRIu32 " of %" PRIu32, run->number,
                   sweep->num_combinations * sweep->num_seeds);
    const bool leads = !run->collective || run->collective->rank == 0;
    const bool seen = run->alone && leads && !sweep->options->quiet && !sweep->options->json;
    fedge_experiment_config config = {.options = &options,
                                      .job_text = text,
                                      .job_size = strlen(text),
                                      .collective = run->collective,
                                      .out = sweep->options->out && leads ? out : NULL,
                                      .summary = sweep->options->out != NULL,
                                      .progress = seen ? stderr : NULL,
                                      .run = number,
                                      .shared = run->shared,
                                      .cancel = callbacks->cancel,
                                      .cancel_user = callbacks->user};
    options.seed_offset = run->seed;
    options.num_threads = run->num_threads;
    options.backend = run->backend ? run->backend : options.backend;
    if (config.out) {
        FEDGE_TRY_OR(run_folder(sweep, run->combination, run->seed, out, err), done);
        config.resume = sweep->options->resume;
    }
    FEDGE_TRY_OR(fedge_experiment_init(experiment, &config, err), done);
    to->begun = true;
    if (callbacks->begun)
        callbacks->begun(callbacks->user, fedge_simulation_promised_bytes(experiment->simulation));
    status = fedge_experiment_run(experiment, err);
    to->run_summary = experiment->results.run_summary;
done:
    if (fedge_sweep_is_machine_failure(status) &&
        experiment->resume_note[0]) /* it ends the sweep */ {
        fprintf(stderr, "fedge-simulate: %s\n", experiment->resume_note);
    }
    fedge_experiment_fini(experiment);
    free(experiment);
    free(text);
    fedge_os_return_freed(); /* The next run counts its resident memory. */
    return status;
}

/* Prints the accuracy, or else the loss, on the test set, or else for validation, or else on
 * clients. */
static void print_result(const fedge_run_summary *run_summary, FILE *out)
{
    const fedge_run_summary_curve *curve =
        isfinite(run_summary->test.loss) || isfinite(run_summary->test.accuracy)
            ? &run_summary->test
            : &run_summary->validation;
    const bool known = isfinite(curve->loss) || isfinite(curve->accuracy);
    const double accuracy = known ? curve->accuracy : run_summary->client_accuracy;
    const double loss = known ? curve->loss : run_summary->client_loss;
    if (isfinite(accuracy))
        fprintf(out, "%.2f%%", 100.0 * accuracy);
    else if (isfinite(loss))
        fprintf(out, "loss %.4g", loss);
    else
        fprintf(out, "round %" PRIu32, run_summary->rounds);
}

/* Prints a run's line as a whole, whatever other runs write. */
static void print_run(const fedge_sweep *sweep, const sweep_run *run, const sweep_outcome *of)
{
    char name[FEDGE_SWEEP_MAX_FOLDER];
    flockfile(stderr);
    fprintf(stderr, "%" PRIu32 " of %" PRIu32 ": %s: ", run->number,
            sweep->num_combinations * sweep->num_seeds,
            fedge_sweep_folder_name(sweep, run->combination, run->seed, name));
    if (!of->begun) {
        fprintf(stderr, "failed: %s\n", of->why);
    } else {
        fputs(of->failed ? "failed at " : "", stderr);
        print_result(&of->run_summary, stderr);
        fprintf(stderr, " in %.1f s%s%s\n", of->run_summary.seconds, of->failed ? ": " : "",
                of->why);
    }
    funlockfile(stderr);
}

void fedge_sweep_end_run(const fedge_sweep *sweep, const sweep_run *run, sweep_outcome *of,
                         fedge_status ended, const fedge_error *why)
{
    of->done = true;
    of->failed = ended != FEDGE_OK;
    if (of->failed)
        memcpy(of->why, why->message, sizeof(of->why));
    if (!sweep->options->quiet && !sweep->options->json)
        print_run(sweep, run, of);
}

/* ---- the sweep ------------------------------------------------------------------------------- */

fedge_status fedge_sweep_new(const fedge_simulate_options *options,
                             const fedge_collective *collective, const char *job_text,
                             size_t job_size, fedge_sweep **sweep, fedge_error *err)
{
    *sweep = NULL;
    fedge_sweep *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a sweep");
    fresh->options = options;
    fresh->collective = collective;
    fresh->job_text = job_text;
    fresh->job_size = job_size;
    fedge_status status;
    FEDGE_TRY_OR(fedge_sweep_parse_axes(fresh, err), failed);
    assert(fresh->num_combinations > 0 && fresh->num_seeds > 0);
    fresh->outcomes =
        calloc((size_t)fresh->num_combinations * fresh->num_seeds, sizeof(*fresh->outcomes));
    fresh->cohorts = calloc(fresh->num_combinations, sizeof(*fresh->cohorts));
    fresh->shareable = calloc(fresh->num_combinations, sizeof(*fresh->shareable));
    FEDGE_TRY_OR(fresh->outcomes && fresh->cohorts && fresh->shareable
                     ? FEDGE_OK
                     : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u runs",
                                  fresh->num_combinations * fresh->num_seeds),
                 failed);
    for (uint32_t c = 0; c < fresh->num_combinations; c++)
        FEDGE_TRY_OR(fedge_sweep_check(fresh, c, err), failed);
    FEDGE_TRY_OR(check_folders(fresh, err), failed);
    *sweep = fresh;
    return FEDGE_OK;
failed:
    fedge_sweep_free(fresh);
    return status;
}

void fedge_sweep_free(fedge_sweep *sweep)
{
    if (sweep) {
        free(sweep->outcomes);
        free(sweep->cohorts);
        free(sweep->shareable);
        free(sweep);
    }
}
