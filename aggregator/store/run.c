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

#define NEW_RUN_PREFIX "new-" /* of a run's directory until it is complete */

/* --- paths ------------------------------------------------------------------------------------ */

fedge_status fedge_run_path(const fedge_run *run, const char *name, char path[FEDGE_MAX_PATH],
                            fedge_error *err)
{
    return fedge_path_join(run->dir, name, path, err);
}

/* --- the state directory ---------------------------------------------------------------------- */

/* The format's file comes before anything else in a new directory, so that no state lies in one
 * whose format nothing says. */
static fedge_status check_format(const char *dir, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_status status = fedge_path_join(dir, "format.json", path, err);
    if (status != FEDGE_OK)
        return status;
    if (!fedge_os_exists(path)) {
        char text[64];
        int size = snprintf(text, sizeof(text), "{\"format\":%d}", FEDGE_STATE_FORMAT);
        return fedge_json_file_write(path, text, (size_t)size, err);
    }
    cJSON *json = NULL;
    status = fedge_json_file_read(path, 4096, &json, err);
    if (status != FEDGE_OK)
        return status;
    uint64_t format = 0;
    status = fedge_json_get_u64(json, "format", path, &format, err);
    cJSON_Delete(json);
    if (status == FEDGE_OK && format > FEDGE_STATE_FORMAT) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s has format %" PRIu64 ", this release knows up to %d: use the release "
                          "that wrote it or a newer one",
                          path, format, FEDGE_STATE_FORMAT);
    }
    return status;
}

/* Removes directories of runs whose creation was cut off. */
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
    /* A run that is found may have its name in memory only: it counts from here on. */
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
    fedge_status status = fedge_path_join(dir, "lock", path, err);
    if (status != FEDGE_OK || !fedge_os_exists(path))
        return status;
    status = take_lock(dir, path, &lock, err);
    if (status == FEDGE_OK)
        fedge_os_unlock(lock);
    return status;
}

fedge_status fedge_state_open(const char *dir, fedge_state *state, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    *state = (fedge_state){.lock = -1};
    fedge_status status = fedge_path_join(dir, "lock", path, err);
    if (status == FEDGE_OK)
        status = fedge_os_make_dirs(dir, err);
    if (status != FEDGE_OK)
        return status;
    snprintf(state->dir, sizeof(state->dir), "%s", dir);
    /* Before anything else is read or mended: what looks cut off may be what another aggregator is
     * just writing. */
    status = take_lock(dir, path, &state->lock, err);
    if (status != FEDGE_OK) {
        state->lock = -1;
        return status;
    }
    status = prepare_state(state, err);
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

static fedge_status read_run_file(fedge_run *run, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    cJSON *json = NULL;
    uint64_t incarnation = 0;
    fedge_status status = fedge_run_path(run, "run.json", path, err);
    if (status == FEDGE_OK)
        status = fedge_json_file_read(path, 4096, &json, err);
    if (status != FEDGE_OK)
        return status;
    status = fedge_json_get_u64(json, "number", path, &run->number, err);
    if (status == FEDGE_OK)
        status = fedge_json_get_u64(json, "incarnation", path, &incarnation, err);
    if (status == FEDGE_OK && (incarnation == 0 || incarnation > UINT32_MAX)) {
        status = fedge_fail(err, FEDGE_CORRUPT, "%s: incarnation %" PRIu64 " is out of range", path,
                            incarnation);
    }
    run->incarnation = (uint32_t)incarnation;
    if (status == FEDGE_OK && cJSON_HasObjectItem(json, "next_task_id"))
        status = fedge_json_get_u64(json, "next_task_id", path, &run->next_task_id, err);
    if (status == FEDGE_OK && cJSON_HasObjectItem(json, "job_sha256")) {
        status = fedge_json_get_text(json, "job_sha256", path, run->job_sha256,
                                     sizeof(run->job_sha256), err);
    }
    run->finished = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "finished"));
    cJSON_Delete(json);
    return status;
}

/* Here and below a copy is changed first: what this process goes by is never ahead of what the disk
 * has. */
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
    if (raised.incarnation == UINT32_MAX) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "run %s has used up its incarnations",
                          run->run_id);
    }
    raised.incarnation++;
    FEDGE_TRY(write_run_file(&raised, err));
    *run = raised;
    return FEDGE_OK;
}

/* --- finding and making runs ------------------------------------------------------------------ */

typedef struct run_search {
    const char *runs_dir;
    const fedge_run_request *request;
    char job_sha256[FEDGE_HASH_TEXT]; /* of the job asked for */
    uint32_t num_runs;
    uint64_t last_number;
    fedge_run named;    /* the wanted one, if it is of this job; number 0 when none */
    fedge_run match;    /* the newest unfinished one of this job; number 0 when none */
    fedge_run finished; /* the newest finished one of this job */
    fedge_run other;    /* the newest unfinished one of another job */
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
    /* Only the job that the run is of can mend its job.json: another's damage is no matter here. */
    const bool sealed = run->job_sha256[0] != '\0';
    *same = false;
    if (sealed && strcmp(run->job_sha256, search->job_sha256) != 0)
        return FEDGE_OK;
    FEDGE_TRY(fedge_run_path(run, "job.json", path, err));
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &job, &size, err));
    /* Byte for byte, not by meaning: what a key's default is may differ between the release that
     * began the run and this one. */
    *same = size == search->request->job_size && memcmp(job, search->request->job, size) == 0;
    free(job);
    if (sealed && !*same) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s is damaged: put a copy of the given job there",
                          path);
    }
    return FEDGE_OK;
}

static fedge_status look_at_run(void *user, const char *name, fedge_error *err)
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
    /* One that cannot be read ends the start. To pass over it might begin a new run of a job that
     * has one, and train everything again. */
    memcpy(run.run_id, name, FEDGE_RUN_ID_TEXT);
    fedge_status status = fedge_path_join(search->runs_dir, name, run.dir, err);
    if (status == FEDGE_OK)
        status = read_run_file(&run, err);
    if (status != FEDGE_OK) {
        return fedge_error_prefix(err, status, "run %s cannot be read (repair it or move it away)",
                                  name);
    }
    if (run.number > search->last_number)
        search->last_number = run.number;
    status = is_same_job(&run, search, &same, err);
    /* Numbers count the finished runs of other jobs too, so that "newest" has one meaning in the
     * directory. */
    if (status != FEDGE_OK || (run.finished && !same))
        return status;
    /* That of an older release has it from its next write on. */
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

typedef enum results {
    RESULTS_THERE,
    RESULTS_MISSING, /* and there is a checkpoint to make them from */
    RESULTS_LOST,    /* and there is none */
} results;

static fedge_status has_file(const fedge_run *run, const char *name, bool *has, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    const fedge_status status = fedge_run_path(run, name, path, err);
    *has = status == FEDGE_OK && fedge_os_exists(path);
    return status;
}

/* Is the best round's model there, if the checkpoint of round [newest] knows of one? */
static fedge_status look_at_best(const fedge_run *run, const char *checkpoints, uint32_t newest,
                                 results *found, fedge_error *err)
{
    bool has = false;
    fedge_checkpoint last;
    fedge_checkpoint_data best = {0};
    fedge_status status = has_file(run, FEDGE_RUN_BEST_MODEL, &has, err);
    if (status != FEDGE_OK || has)
        return status;
    status = fedge_checkpoint_read_state(checkpoints, newest, &last, err);
    if (fedge_checkpoint_is_damaged(status))
        return FEDGE_OK; /* nothing is known of a best one */
    if (status != FEDGE_OK || last.selection.best.round == 0)
        return status;
    status = fedge_checkpoint_load(checkpoints, last.selection.best.round, &best, err);
    fedge_checkpoint_data_fini(&best);
    if (status == FEDGE_OK)
        *found = RESULTS_MISSING;
    else if (fedge_checkpoint_is_damaged(status))
        *found = RESULTS_LOST;
    return *found == RESULTS_THERE ? status : FEDGE_OK;
}

/* Are all results that each checkpoint could make there? */
static fedge_status has_results(const fedge_run *run, const fedge_run_request *request, bool *has,
                                fedge_error *err)
{
    fedge_status status = has_file(run, FEDGE_RUN_MODEL, has, err);
    if (status == FEDGE_OK && *has)
        status = has_file(run, FEDGE_RUN_PICTURE, has, err);
    for (uint32_t i = 1; status == FEDGE_OK && *has && i <= request->num_cluster_models; i++) {
        char name[FEDGE_RUN_RESULT_NAME];
        (void)snprintf(name, sizeof(name), FEDGE_RUN_CLUSTER_MODEL, i);
        status = has_file(run, name, has, err);
    }
    *has = *has && (!request->result || fedge_os_exists(request->result));
    return status;
}

/* What is there of the results of a finished run? */
static fedge_status look_at_results(const fedge_run *run, const fedge_run_request *request,
                                    results *found, fedge_error *err)
{
    char checkpoints[FEDGE_MAX_PATH];
    bool has = false;
    uint32_t newest = 0;
    fedge_status status = has_results(run, request, &has, err);
    if (status == FEDGE_OK)
        status = fedge_run_path(run, "checkpoints", checkpoints, err);
    if (status != FEDGE_OK)
        return status;
    *found = has ? RESULTS_THERE : RESULTS_LOST;
    if (!fedge_os_exists(checkpoints))
        return FEDGE_OK;
    status = fedge_checkpoint_find(checkpoints, UINT32_MAX, &newest, err);
    if (status != FEDGE_OK)
        return status == FEDGE_NOT_FOUND ? FEDGE_OK : status;
    if (!has) {
        *found = RESULTS_MISSING;
        return FEDGE_OK;
    }
    return look_at_best(run, checkpoints, newest, found, err);
}

/* Fills the directory of a new run under a name that is not looked at, then gives it its own. */
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
    /* Random, not counted: clients key what they keep by it, and two state directories of one job
     * must not share an id. */
    fedge_status status = fedge_os_random(id, sizeof(id), err);
    if (status != FEDGE_OK)
        return status;
    *run = (fedge_run){.number = search->last_number + 1, .incarnation = 1};
    memcpy(run->job_sha256, search->job_sha256, sizeof(run->job_sha256));
    for (size_t i = 0; i < sizeof(id); i++)
        snprintf(run->run_id + 2 * i, 3, "%02x", id[i]);
    snprintf(name, sizeof(name), NEW_RUN_PREFIX "%s", run->run_id);
    status = fedge_path_join(search->runs_dir, run->run_id, run->dir, err);
    if (status == FEDGE_OK)
        status = fedge_path_join(search->runs_dir, name, temporary, err);
    if (status != FEDGE_OK)
        return status;
    status = build_run(run, temporary, search->request->job, search->request->job_size, err);
    /* Before any client hears of the run's id: it keeps its own state by that id, and a crash that
     * took the name back would leave it with state of a run that never was. */
    if (status == FEDGE_OK)
        status = fedge_os_sync_dir(search->runs_dir, err);
    return status;
}

fedge_status fedge_run_open(const fedge_state *state, const fedge_run_request *request,
                            fedge_run *run, fedge_error *err)
{
    char runs_dir[FEDGE_MAX_PATH];
    fedge_status status = fedge_path_join(state->dir, "runs", runs_dir, err);
    if (status != FEDGE_OK)
        return status;
    run_search search = {.runs_dir = runs_dir, .request = request};
    fedge_sha256_text(request->job, request->job_size, search.job_sha256);
    status = fedge_os_list_dir(runs_dir, look_at_run, &search, err);
    if (status != FEDGE_OK)
        return status;
    /* Under a supervisor: the run that the process before had opened, even if that has just
     * finished it. Otherwise a crash at the very end would begin a new run. */
    if (search.named.number > 0) {
        *run = search.named;
        return FEDGE_OK;
    }
    if (!request->new_run && search.match.number > 0) {
        *run = search.match;
        return FEDGE_OK;
    }
    results found = RESULTS_THERE;
    if (!request->new_run && search.finished.number > 0)
        status = look_at_results(&search.finished, request, &found, err);
    if (status != FEDGE_OK)
        return status;
    if (found == RESULTS_MISSING) {
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
    status = make_run(&search, run, err);
    if (status == FEDGE_OK && found == RESULTS_LOST)
        memcpy(run->lost, search.finished.run_id, sizeof(run->lost));
    return status;
}
