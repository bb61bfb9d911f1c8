#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/experiment.h"
#include "aggregator/simulate/sweep_internal.h"
#include "edge/core/os.h"

/* ---- folders --------------------------------------------------------------------------------- */

static fedge_status run_folder(const fedge_sweep *sweep, uint32_t combination, uint32_t seed,
                               char path[FEDGE_MAX_PATH], fedge_error *err)
{
    char name[FEDGE_SWEEP_MAX_NAME];
    (void)fedge_sweep_folder_of(sweep, combination, name);
    int size = snprintf(path, FEDGE_MAX_PATH, "%s/%s%sseed=%" PRIu32, sweep->options->out, name,
                        name[0] ? "," : "", seed + 1);
    return size > 0 && size < FEDGE_MAX_PATH
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_TOO_BIG,
                            "the folder of %s is over %d bytes: take a shorter "
                            "--out",
                            name, FEDGE_MAX_PATH - 1);
}

static bool is_begun(const char *out)
{
    char path[FEDGE_MAX_PATH + 32];
    (void)snprintf(path, sizeof(path), "%s/simulation.json", out);
    return fedge_os_exists(path);
}

/* How many of the runs have a folder already; the first of them is left in [path]. */
static fedge_status count_begun(const fedge_sweep *sweep, uint32_t *count,
                                char path[FEDGE_MAX_PATH], fedge_error *err)
{
    const uint32_t runs = sweep->num_combinations * sweep->num_seeds;
    fedge_status status = FEDGE_OK;
    *count = 0;
    for (uint32_t i = 0; i < runs && sweep->options->out && status == FEDGE_OK; i++) {
        char folder[FEDGE_MAX_PATH];
        status = run_folder(sweep, i / sweep->num_seeds, i % sweep->num_seeds, folder, err);
        if (status == FEDGE_OK && is_begun(folder) && (*count)++ == 0) {
            memcpy(path, folder, FEDGE_MAX_PATH);
        }
    }
    return status;
}

/* Can folders be made there? */
static fedge_status check_writable(const char *out, fedge_error *err)
{
    char path[FEDGE_MAX_PATH + 32];
    (void)snprintf(path, sizeof(path), "%s/.can-be-written", out);
    fedge_status status = fedge_os_make_dirs(out, err);
    if (status == FEDGE_OK) {
        status = fedge_os_write_file(path, "\n", 1, 0600, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_os_remove(path, err);
    }
    return status == FEDGE_OK ? status : fedge_error_prefix(err, status, "--out");
}

/* Before the first run, not hours later at the one whose folder is there. */
fedge_status fedge_sweep_check_folders(const fedge_sweep *sweep, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    uint32_t begun = 0;
    fedge_status status = count_begun(sweep, &begun, path, err);
    if (status == FEDGE_OK && begun > 0 && !sweep->options->resume) {
        status = fedge_fail(err, FEDGE_EXISTS,
                            "%s has a simulation already: --resume goes on with it, or choose "
                            "another --out",
                            path);
    }
    if (status == FEDGE_OK && begun == 0 && sweep->options->resume) {
        fprintf(stderr, "fedge-simulate: %s has none of these runs: nothing to resume, all begin\n",
                sweep->options->out);
    }
    return status == FEDGE_OK && sweep->options->out ? check_writable(sweep->options->out, err)
                                                     : status;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* Is it the machine that failed, which the next run would meet as well? */
static bool is_machines(fedge_status status)
{
    return status == FEDGE_IO || status == FEDGE_NO_SPACE || status == FEDGE_NO_MEMORY ||
           status == FEDGE_INTERNAL;
}

/* [number] of all is its place in the order of running. */
static fedge_status run_one(const fedge_sweep *sweep, uint32_t number, uint32_t combination,
                            uint32_t seed, fedge_cancel_fn cancel, void *user, sweep_outcome *to,
                            fedge_error *err)
{
    char *text = NULL, out[FEDGE_MAX_PATH], run[64];
    fedge_simulate_options options;
    fedge_experiment *experiment = calloc(1, sizeof(*experiment));
    to->begun = false;
    if (!experiment) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a run");
    }
    fedge_status status = fedge_sweep_make(sweep, combination, &options, &text, err);
    (void)snprintf(run, sizeof(run), "run %" PRIu32 " of %" PRIu32, number,
                   sweep->num_combinations * sweep->num_seeds);
    fedge_experiment_config config = {
        .options = &options,
        .job_text = text,
        .job_size = text ? strlen(text) : 0,
        .out = sweep->options->out ? out : NULL,
        .summary = sweep->options->out != NULL,
        .progress = sweep->options->quiet || sweep->options->json ? NULL : stderr,
        .run = run,
        .cancel = cancel,
        .cancel_user = user};
    options.seed_offset = seed;
    if (status == FEDGE_OK && config.out) {
        status = run_folder(sweep, combination, seed, out, err);
        config.resume = sweep->options->resume;
    }
    if (status == FEDGE_OK) {
        status = fedge_experiment_init(experiment, &config, err);
    }
    to->begun = status == FEDGE_OK;
    if (to->begun) {
        status = fedge_experiment_run(experiment, err);
        to->totals = experiment->results.totals;
    }
    if (is_machines(status) && experiment->kept[0]) { /* it ends the sweep */
        fprintf(stderr, "fedge-simulate: %s\n", experiment->kept);
    }
    fedge_experiment_fini(experiment);
    free(experiment);
    free(text);
    return status;
}

/* What is known of the model: its accuracy, or without one its loss, on the test set, or without
 * one on the examples for validation, or else on clients. */
static void print_result(const fedge_totals *totals, FILE *out)
{
    const fedge_totals_curve *curve = isfinite(totals->test.loss) || isfinite(totals->test.accuracy)
                                          ? &totals->test
                                          : &totals->validation;
    const bool known = isfinite(curve->loss) || isfinite(curve->accuracy);
    const double accuracy = known ? curve->accuracy : totals->client_accuracy;
    const double loss = known ? curve->loss : totals->client_loss;
    if (isfinite(accuracy)) {
        fprintf(out, "%.2f%%", 100.0 * accuracy);
    } else if (isfinite(loss)) {
        fprintf(out, "loss %.4g", loss);
    } else {
        fprintf(out, "round %" PRIu32, totals->rounds);
    }
}

static void print_outcome(const fedge_sweep *sweep, uint32_t number, uint32_t combination,
                          uint32_t seed, const sweep_outcome *of)
{
    char name[FEDGE_SWEEP_MAX_NAME];
    (void)fedge_sweep_name_of(sweep, combination, name);
    fprintf(stderr, "%" PRIu32 " of %" PRIu32 ": %s%sseed %" PRIu32 ": ", number,
            sweep->num_combinations * sweep->num_seeds, name, name[0] ? " " : "", seed + 1);
    if (!of->begun) {
        fprintf(stderr, "failed: %s\n", of->why);
        return;
    }
    fputs(of->failed ? "failed at " : "", stderr);
    print_result(&of->totals, stderr);
    fprintf(stderr, " in %.1f s%s%s\n", of->totals.seconds, of->failed ? ": " : "", of->why);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* An option that an axis takes the place of. */
static void print_replaced(const fedge_sweep *sweep)
{
    const fedge_simulate_options *options = sweep->options;
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        const char *key = sweep->axes[i].key;
        if ((strcmp(key, "partition") == 0 && options->partition) ||
            (strcmp(key, "clients") == 0 && options->num_clients > 0)) {
            fprintf(stderr, "fedge-simulate: --sweep has %s=…, which takes the place of --%s\n",
                    key, key);
        }
    }
}

fedge_status fedge_sweep_run(fedge_sweep *sweep, fedge_cancel_fn cancel, void *user,
                             fedge_error *err)
{
    const uint32_t runs = sweep->num_combinations * sweep->num_seeds;
    print_replaced(sweep);
    for (uint32_t i = 0; i < runs; i++) {
        /* One of every combination first: who stops early can compare them. */
        const uint32_t seed = i / sweep->num_combinations,
                       combination = i % sweep->num_combinations;
        sweep_outcome *to = &sweep->outcomes[(size_t)combination * sweep->num_seeds + seed];
        fedge_error why;
        const fedge_status ended = run_one(sweep, i + 1, combination, seed, cancel, user, to, &why);
        if (ended == FEDGE_CANCELLED || (to->begun && is_machines(ended))) {
            *err = why;
            return ended;
        }
        to->done = true;
        to->failed = ended != FEDGE_OK;
        if (to->failed) {
            memcpy(to->why, why.message, sizeof(to->why));
        }
        if (!sweep->options->quiet && !sweep->options->json) {
            print_outcome(sweep, i + 1, combination, seed, to);
        }
    }
    return FEDGE_OK;
}

uint32_t fedge_sweep_num_done(const fedge_sweep *sweep)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < sweep->num_combinations * sweep->num_seeds; i++) {
        done += sweep->outcomes[i].done;
    }
    return done;
}

uint32_t fedge_sweep_num_unable(const fedge_sweep *sweep)
{
    uint32_t unable = 0;
    for (uint32_t i = 0; i < sweep->num_combinations * sweep->num_seeds; i++) {
        unable += sweep->outcomes[i].done && !sweep->outcomes[i].begun;
    }
    return unable;
}
