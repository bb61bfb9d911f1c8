#include "aggregator/store/run.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/checkpoint.h"
#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"
#include "edge/core/os.h"
#include "secure/crypto/sha256.h"

#define NEW_RUN_PREFIX "new-" /* prefix of an incomplete run's directory */

/* --- paths ------------------------------------------------------------------------------------ */

fedge_status fedge_run_path(const fedge_run *run, const char *name, char path[FEDGE_MAX_PATH],
                            fedge_error *err)
{
    return fedge_path_join(run->dir, name, path, err);
}

/* --- the state directory ---------------------------------------------------------------------- */

/* A new directory gets its format file first, so that no state exists without a recorded format. */
static fedge_status check_format(const char *dir, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    bool exists = false;
    FEDGE_TRY(fedge_path_join(dir, "format.json", path, err));
    FEDGE_TRY(fedge_os_find(path, &exists, err));
    if (!exists) {
        char text[64];
        int size = snprintf(text, sizeof(text), "{\"format\":%d}", FEDGE_STATE_FORMAT);
        return fedge_json_file_write(path, text, (size_t)size, err);
    }
    cJSON *json = NULL;
    uint64_t format = 0;
    FEDGE_TRY(fedge_json_file_read(path, 4096, &json, err));
    const fedge_status status = fedge_json_get_u64(json, "format", path, &format, err);
    cJSON_Delete(json);
    FEDGE_TRY(status);
    if (format > FEDGE_STATE_FORMAT) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s has format %" PRIu64 ", this release knows up to %d: use the release "
                          "that wrote it or a newer one",
                          path, format, FEDGE_STATE_FORMAT);
    }
    return FEDGE_OK;
}

/* Removes directories of runs whose creation was interrupted. */
static fedge_status remove_incomplete(void *user, const char *name, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    if (strncmp(name, NEW_RUN_PREFIX, sizeof(NEW_RUN_PREFIX) - 1) != 0)
        return FEDGE_OK;
    FEDGE_TRY(fedge_path_join(user, name, path, err));
    return fedge_os_remove_tree(path, err);
}

static fedge_status prepare_state(fedge_state *state, fedge_error *err)
{
    char runs[FEDGE_MAX_PATH];
    FEDGE_TRY(check_format(state->dir, err));
    FEDGE_TRY(fedge_path_join(state->dir, "runs", runs, err));
    FEDGE_TRY(fedge_os_make_dirs(runs, err));
    FEDGE_TRY(fedge_os_sync_dir(state->dir, err));
    FEDGE_TRY(fedge_os_list_dir(runs, remove_incomplete, runs, err));
    /* The name of an existing run may not be on the disk yet, and is relied on from here on. */
    return fedge_os_sync_dir(runs, err);
}

static fedge_status take_lock(const char *dir, const char *path, int *lock, fedge_error *err)
{
    const fedge_status status = fedge_os_lock(path, lock, err);
    return status == FEDGE_BUSY
               ? fedge_error_prefix(err, status, "another aggregator uses state directory %s", dir)
               : status;
}

fedge_status fedge_state_check_unused(const char *dir, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    int lock = -1;
    FEDGE_TRY(fedge_path_join(dir, "lock", path, err));
    if (!fedge_os_exists(path))
        return FEDGE_OK;
    FEDGE_TRY(take_lock(dir, path, &lock, err));
    fedge_os_unlock(lock);
    return FEDGE_OK;
}

fedge_status fedge_state_open(const char *dir, fedge_state *state, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    *state = (fedge_state){.lock = -1};
    FEDGE_TRY(fedge_path_join(dir, "lock", path, err));
    FEDGE_TRY(fedge_os_make_dirs(dir, err));
    snprintf(state->dir, sizeof(state->dir), "%s", dir);
    /* The lock comes before all reading and repair: another aggregator may be writing it. */
    FEDGE_TRY(take_lock(dir, path, &state->lock, err));
    const fedge_status status = prepare_state(state, err);
    if (status != FEDGE_OK)
        fedge_state_close(state);
    return status;
}

void fedge_state_close(fedge_state *state)
{
    if (state->lock >= 0)
        fedge_os_unlock(state->lock);
    state->lock = -1;
}

/* --- run.json --------------------------------------------------------------------------------- */

static fedge_status write_run_file(const fedge_run *run, fedge_error *err)
{
    char path[FEDGE_MAX_PATH], text[256];
    const bool sealed = run->job_sha256[0] != '\0';
    FEDGE_TRY(fedge_run_path(run, "run.json", path, err));
    int size =
        snprintf(text, sizeof(text),
                 "{\"number\":%" PRIu64 ",\"incarnation\":%" PRIu32
                 ",\"finished\":%s,\"next_task_id\":%" PRIu64 "%s%s%s}",
                 run->number, run->incarnation, run->finished ? "true" : "false", run->next_task_id,
                 sealed ? ",\"job_sha256\":\"" : "", run->job_sha256, sealed ? "\"" : "");
    return fedge_json_file_write(path, text, (size_t)size, err);
}

static fedge_status parse_run_file(const cJSON *json, const char *path, fedge_run *run,
                                   fedge_error *err)
{
    uint64_t incarnation = 0;
    FEDGE_TRY(fedge_json_get_u64(json, "number", path, &run->number, err));
    FEDGE_TRY(fedge_json_get_u64(json, "incarnation", path, &incarnation, err));
    if (incarnation == 0 || incarnation > UINT32_MAX) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: incarnation %" PRIu64 " is out of range", path,
                          incarnation);
    }
    run->incarnation = (uint32_t)incarnation;
    if (cJSON_HasObjectItem(json, "next_task_id"))
        FEDGE_TRY(fedge_json_get_u64(json, "next_task_id", path, &run->next_task_id, err));
    if (cJSON_HasObjectItem(json, "job_sha256")) {
        FEDGE_TRY(fedge_json_get_text(json, "job_sha256", path, run->job_sha256,
                                      sizeof(run->job_sha256), err));
    }
    run->finished = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "finished"));
    return FEDGE_OK;
}

/* Fills in the run of run->run_id. */
static fedge_status read_run(const char *runs_dir, fedge_run *run, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    cJSON *json = NULL;
    FEDGE_TRY(fedge_path_join(runs_dir, run->run_id, run->dir, err));
    FEDGE_TRY(fedge_run_path(run, "run.json", path, err));
    FEDGE_TRY(fedge_json_file_read(path, 4096, &json, err));
    const fedge_status status = parse_run_file(json, path, run, err);
    cJSON_Delete(json);
    return status;
}

/* This function and the two below change a copy first, so that the run in memory is never ahead of
 * the disk. */
fedge_status fedge_run_finish(fedge_run *run, fedge_error *err)
{
    fedge_run finished = *run;
    finished.finished = true;
    FEDGE_TRY(write_run_file(&finished, err));
    *run = finished;
    return FEDGE_OK;
}

fedge_status fedge_run_begin_task_ids(fedge_run *run, uint64_t next_task_id, fedge_error *err)
{
    fedge_run begun = *run;
    begun.next_task_id = next_task_id;
    FEDGE_TRY(write_run_file(&begun, err));
    *run = begun;
    return FEDGE_OK;
}

fedge_status fedge_run_raise_incarnation(fedge_run *run, fedge_error *err)
{
    fedge_run raised = *run;
    uint16_t more = 0;
    FEDGE_TRY(fedge_os_random(&more, sizeof(more), err));
    if (raised.incarnation >= UINT32_MAX - more) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "run %s has used up its incarnations",
                          run->run_id);
    }
    /* By a random number: the same backup may be restored once more. */
    raised.incarnation += 1 + (uint32_t)more;
    FEDGE_TRY(write_run_file(&raised, err));
    *run = raised;
    return FEDGE_OK;
}

/* --- finding and making runs ------------------------------------------------------------------ */

typedef struct run_search {
    const char *runs_dir;
    const fedge_run_request *request;
    char job_sha256[FEDGE_HASH_TEXT]; /* SHA-256 of the requested job */
    uint32_t num_runs;
    uint64_t last_number;
    /* Number 0: there is no such run. */
    fedge_run named;    /* the run that the request names, if its job is this one */
    fedge_run match;    /* newest unfinished run of this job */
    fedge_run finished; /* newest finished run of this job */
    fedge_run other;    /* newest unfinished run of another job */
} run_search;

static bool is_run_id(const char *name)
{
    return strlen(name) == FEDGE_RUN_ID_TEXT - 1 &&
           strspn(name, "0123456789abcdef") == FEDGE_RUN_ID_TEXT - 1;
}

static fedge_status is_same_job(const fedge_run *run, const run_search *search, bool *same,
                                fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    uint8_t *job;
    size_t size;
    /* Only the run's own job can repair its job.json, so damage in runs of other jobs is ignored.
     */
    const bool sealed = run->job_sha256[0] != '\0';
    *same = false;
    if (sealed && strcmp(run->job_sha256, search->job_sha256) != 0)
        return FEDGE_OK;
    FEDGE_TRY(fedge_run_path(run, "job.json", path, err));
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &job, &size, err));
    /* Byte by byte, not by meaning: the default of a key may differ between the release that began
     * the run and this one. */
    *same = size == search->request->job_size && memcmp(job, search->request->job, size) == 0;
    free(job);
    if (sealed && !*same) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s is damaged: put a copy of the given job there",
                          path);
    }
    return FEDGE_OK;
}

static fedge_status visit_run(void *user, const char *name, fedge_error *err)
{
    run_search *search = user;
    fedge_run run = {.resumed = true};
    bool same = false;
    if (!is_run_id(name))
        return FEDGE_OK;
    if (++search->num_runs > FEDGE_MAX_RUNS) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s has more than %u runs; move old ones away",
                          search->runs_dir, FEDGE_MAX_RUNS);
    }
    /* An unreadable run ends the start. Skipping it might begin a new run of a job that has one,
     * and train everything again. */
    memcpy(run.run_id, name, FEDGE_RUN_ID_TEXT);
    const fedge_status status = read_run(search->runs_dir, &run, err);
    if (status != FEDGE_OK) {
        return fedge_error_prefix(err, status, "run %s cannot be read (repair it or move it away)",
                                  name);
    }
    if (run.number > search->last_number)
        search->last_number = run.number;
    FEDGE_TRY(is_same_job(&run, search, &same, err));
    if (run.finished && !same)
        return FEDGE_OK;
    /* A run of an older release gets the hash with its next write. */
    if (same)
        memcpy(run.job_sha256, search->job_sha256, sizeof(run.job_sha256));
    const char *named = search->request->run_id;
    if (same && named && strcmp(name, named) == 0)
        search->named = run;
    fedge_run *newest = run.finished ? &search->finished : same ? &search->match : &search->other;
    if (run.number > newest->number)
        *newest = run;
    return FEDGE_OK;
}

typedef enum results_state {
    RESULTS_PRESENT,
    RESULTS_MISSING, /* a checkpoint can restore them */
    RESULTS_LOST,    /* no checkpoint can restore them */
} results_state;

static fedge_status has_file(const fedge_run *run, const char *name, bool *has, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_run_path(run, name, path, err));
    return fedge_os_find(path, has, err);
}

/* Changes *results if the best round's model is missing and the checkpoint of round [newest] has
 * one. */
static fedge_status check_best(const fedge_run *run, const char *checkpoints, uint32_t newest,
                               results_state *results, fedge_error *err)
{
    bool has = false;
    fedge_checkpoint last;
    fedge_checkpoint_data best = {0};
    FEDGE_TRY(has_file(run, FEDGE_RUN_BEST_MODEL, &has, err));
    if (has)
        return FEDGE_OK;
    fedge_status status = fedge_checkpoint_read_state(checkpoints, newest, &last, err);
    if (fedge_checkpoint_is_damaged(status))
        return FEDGE_OK; /* a damaged checkpoint does not say whether there is a best model */
    FEDGE_TRY(status);
    if (last.selection.best.round == 0)
        return FEDGE_OK;
    status = fedge_checkpoint_load(checkpoints, last.selection.best.round, &best, err);
    fedge_checkpoint_data_fini(&best);
    const bool damaged = fedge_checkpoint_is_damaged(status);
    if (status != FEDGE_OK && !damaged)
        return status;
    *results = damaged ? RESULTS_LOST : RESULTS_MISSING;
    return FEDGE_OK;
}

/* *has: the results that any checkpoint can restore all exist. */
static fedge_status has_results(const fedge_run *run, const fedge_run_request *request, bool *has,
                                fedge_error *err)
{
    FEDGE_TRY(has_file(run, FEDGE_RUN_MODEL, has, err));
    if (*has)
        FEDGE_TRY(has_file(run, FEDGE_RUN_PICTURE, has, err));
    for (uint32_t i = 1; *has && i <= request->num_cluster_models; i++) {
        char name[FEDGE_RUN_RESULT_NAME];
        (void)snprintf(name, sizeof(name), FEDGE_RUN_CLUSTER_MODEL, i);
        FEDGE_TRY(has_file(run, name, has, err));
    }
    *has = *has && (!request->result || fedge_os_exists(request->result));
    return FEDGE_OK;
}

/* Checks the results of a finished run. */
static fedge_status check_results(const fedge_run *run, const fedge_run_request *request,
                                  results_state *results, fedge_error *err)
{
    char checkpoints[FEDGE_MAX_PATH];
    bool has = false, has_checkpoints = false;
    uint32_t newest = 0;
    FEDGE_TRY(has_results(run, request, &has, err));
    FEDGE_TRY(fedge_run_path(run, "checkpoints", checkpoints, err));
    *results = has ? RESULTS_PRESENT : RESULTS_LOST;
    FEDGE_TRY(fedge_os_find(checkpoints, &has_checkpoints, err));
    if (!has_checkpoints)
        return FEDGE_OK;
    const fedge_status status = fedge_checkpoint_find(checkpoints, UINT32_MAX, &newest, err);
    if (status == FEDGE_NOT_FOUND)
        return FEDGE_OK;
    FEDGE_TRY(status);
    if (has)
        return check_best(run, checkpoints, newest, results, err);
    *results = RESULTS_MISSING;
    return FEDGE_OK;
}

/* Fills the directory of a new run under a temporary name that searches ignore, then renames it. */
static fedge_status build_run(const fedge_run *run, const char *temporary, const char *job,
                              size_t job_size, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_run build = *run;
    memcpy(build.dir, temporary, sizeof(build.dir));
    static const char *const dirs[] = {"journal", "checkpoints"};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        FEDGE_TRY(fedge_run_path(&build, dirs[i], path, err));
        FEDGE_TRY(fedge_os_make_dirs(path, err));
    }
    FEDGE_TRY(fedge_run_path(&build, "job.json", path, err));
    FEDGE_TRY(fedge_os_write_file(path, job, job_size, 0600, err));
    FEDGE_TRY(write_run_file(&build, err)); /* syncs the directory, too */
    return fedge_os_rename(temporary, run->dir, err);
}

static fedge_status make_run(const run_search *search, fedge_run *run, fedge_error *err)
{
    uint8_t id[16];
    char name[sizeof(NEW_RUN_PREFIX) + FEDGE_RUN_ID_TEXT], temporary[FEDGE_MAX_PATH];
    /* Random, not counted: clients key their state by it, and runs in two state directories of one
     * job must not share an id. */
    FEDGE_TRY(fedge_os_random(id, sizeof(id), err));
    *run = (fedge_run){.number = search->last_number + 1, .incarnation = 1};
    memcpy(run->job_sha256, search->job_sha256, sizeof(run->job_sha256));
    for (size_t i = 0; i < sizeof(id); i++)
        snprintf(run->run_id + 2 * i, 3, "%02x", id[i]);
    snprintf(name, sizeof(name), NEW_RUN_PREFIX "%s", run->run_id);
    FEDGE_TRY(fedge_path_join(search->runs_dir, run->run_id, run->dir, err));
    FEDGE_TRY(fedge_path_join(search->runs_dir, name, temporary, err));
    FEDGE_TRY(build_run(run, temporary, search->request->job, search->request->job_size, err));
    /* The sync comes before a client learns the run's id and keys its state by it: a crash that
     * undid the name would leave the client with state of a run that never was. */
    return fedge_os_sync_dir(search->runs_dir, err);
}

fedge_status fedge_run_open(const fedge_state *state, const fedge_run_request *request,
                            fedge_run *run, fedge_error *err)
{
    char runs_dir[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_path_join(state->dir, "runs", runs_dir, err));
    run_search search = {.runs_dir = runs_dir, .request = request};
    fedge_sha256_text(request->job, request->job_size, search.job_sha256);
    FEDGE_TRY(fedge_os_list_dir(runs_dir, visit_run, &search, err));
    /* A supervisor names the run that the process before had opened, even if that has just finished
     * it: otherwise a crash at the very end would begin a new run. */
    if (search.named.number > 0) {
        *run = search.named;
        return FEDGE_OK;
    }
    if (!request->new_run && search.match.number > 0) {
        *run = search.match;
        return FEDGE_OK;
    }
    results_state results = RESULTS_PRESENT;
    if (!request->new_run && search.finished.number > 0)
        FEDGE_TRY(check_results(&search.finished, request, &results, err));
    if (results == RESULTS_MISSING) {
        *run = search.finished;
        return FEDGE_OK;
    }
    if (!request->new_run && search.other.number > 0) {
        return fedge_fail(
            err, FEDGE_MISMATCH,
            "%s has unfinished run %s of another job (its job.json differs from the "
            "one given): give that job to go on with it, or --new-run to start another run",
            state->dir, search.other.run_id);
    }
    FEDGE_TRY(make_run(&search, run, err));
    if (results == RESULTS_LOST)
        memcpy(run->lost, search.finished.run_id, sizeof(run->lost));
    return FEDGE_OK;
}
