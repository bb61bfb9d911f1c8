#include "aggregator/simulate/compare/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/compare/compare_internal.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/simulate/output/run_summary.h"
#include "aggregator/simulate/sweep/sweep.h"
#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"
#include "aggregator/store/round_log.h"
#include "edge/core/os.h"
#include "edge/plan/plan.h"

#define MAX_SUMMARY ((size_t)1 << 20) /* bytes of summary.json */
#define SWEEP_PICTURE "sweep.svg"     /* which sweeps of older releases left */

/* Of a simulation, or of a server's run. */
static fedge_status read_summary(const char *dir, cJSON **json, fedge_error *err)
{
    char path[FEDGE_MAX_PATH], deployed[FEDGE_MAX_PATH];
    fedge_status status = fedge_path_join(dir, "summary.json", path, err);
    if (status == FEDGE_OK)
        status = fedge_path_join(dir, "run.json", deployed, err);
    if (status == FEDGE_OK && !fedge_os_exists(path) && fedge_os_exists(deployed))
        return fedge_compare_deployed(dir, json, err);
    if (status == FEDGE_OK)
        status = fedge_json_file_read(path, MAX_SUMMARY, json, err);
    return status == FEDGE_OK || status == FEDGE_NO_MEMORY
               ? status
               : fedge_error_prefix(err, FEDGE_NOT_FOUND,
                                    "%.200s has no simulation that has ended, and no run of a "
                                    "server (of a sweep name the folders in it, of a server's "
                                    "state those in STATE/runs)",
                                    dir);
}

static fedge_status print_json(FILE *out, const char *dir, cJSON *json, fedge_error *err)
{
    char *text = fedge_json_add_text(json, "dir", dir) ? cJSON_PrintUnformatted(json) : NULL;
    if (!text)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a summary");
    fprintf(out, "%s\n", text);
    free(text);
    return FEDGE_OK;
}

static fedge_status write_table(const comparison *of, const char *path, fedge_error *err)
{
    const fedge_status status = fedge_compare_write_csv(of, path, err);
    return status == FEDGE_OK || status == FEDGE_NO_MEMORY || status == FEDGE_NO_SPACE
               ? status
               : fedge_error_prefix(err, FEDGE_IO, "--out");
}

/* What a sweep leaves beside its runs, and grid/\* names too. */
static bool is_sweeps(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return (strcmp(name, FEDGE_SWEEP_TABLE) == 0 || strcmp(name, SWEEP_PICTURE) == 0) &&
           !fedge_os_is_dir(path);
}

static fedge_status read_run(const char *dir, compared_run *to, fedge_error *err)
{
    size_t size = strlen(dir);
    while (size > 1 && dir[size - 1] == '/')
        size--;
    to->dir = malloc(size + 1);
    if (!to->dir)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a name");
    memcpy(to->dir, dir, size);
    to->dir[size] = '\0';
    FEDGE_TRY(read_summary(to->dir, &to->summary, err));
    return fedge_compare_settings(to->dir, &to->settings, err);
}

static fedge_status read_runs(const char *const *dirs, uint32_t num_dirs, comparison *to,
                              fedge_error *err)
{
    to->runs = calloc(num_dirs, sizeof(*to->runs));
    if (!to->runs)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u runs", num_dirs);
    for (uint32_t i = 0; i < num_dirs; i++) {
        if (num_dirs == 1 || !is_sweeps(dirs[i]))
            FEDGE_TRY(read_run(dirs[i], &to->runs[to->num_runs++], err));
    }
    return to->num_runs > 0 ? FEDGE_OK
                            : fedge_fail(err, FEDGE_NOT_FOUND, "%.200s has no simulation", dirs[0]);
}

static void free_comparison(comparison *of)
{
    for (uint32_t i = 0; i < of->num_runs; i++) {
        free(of->runs[i].dir);
        free(of->runs[i].settings);
        cJSON_Delete(of->runs[i].summary);
    }
    free(of->runs);
    free(of->groups);
}

fedge_status fedge_compare(const fedge_compare_request *what, FILE *out, fedge_error *err)
{
    comparison of = {.runs = NULL};
    fedge_status status;
    FEDGE_TRY_OR(read_runs(what->dirs, what->num_dirs, &of, err), end);
    FEDGE_TRY_OR(fedge_compare_group(&of, what->each, err), end);
    for (uint32_t i = 0; i < of.num_runs && what->json; i++)
        FEDGE_TRY_OR(print_json(out, of.runs[i].dir, of.runs[i].summary, err), end);
    if (!what->json)
        fedge_compare_print(&of, out);
    if (what->csv_path)
        status = write_table(&of, what->csv_path, err);
end:
    free_comparison(&of);
    return status;
}

/* --- deployed runs ------------------------------------------------------------------------------
 */

static fedge_status add_line(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    (void)err;
    fedge_run_summary_add(user, summary);
    return FEDGE_OK;
}

static fedge_status read_object(const char *dir, const char *name, cJSON **json, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    *json = NULL;
    FEDGE_TRY(fedge_path_join(dir, name, path, err));
    return fedge_json_file_read(path, FEDGE_JOB_MAX_SIZE, json, err);
}

/* What its job and its state say. */
static bool add_texts(cJSON *to, const cJSON *job, const cJSON *run)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(job, "name");
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(job, "seed");
    const bool finished = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(run, "finished"));
    cJSON *copy = cJSON_IsNumber(seed) ? cJSON_Duplicate(seed, true) : cJSON_CreateNull();
    return fedge_json_add_text(to, "job", cJSON_IsString(name) ? name->valuestring : "") &&
           cJSON_AddStringToObject(to, "ending", finished ? "complete" : "unfinished") &&
           cJSON_AddStringToObject(to, "partition", "deployed") &&
           cJSON_AddItemToObject(to, "seed", copy);
}

static bool add_numbers(cJSON *to, const fedge_run_summary *of)
{
    const fedge_json_number_field numbers[] = {
        {"clients", NAN},
        {"rounds", of->rounds},
        {"accuracy", of->test.accuracy},
        {"loss", of->test.loss},
        {"accuracy_last_10", fedge_run_summary_last_mean(&of->test)},
        {"accuracy_best", of->test.best},
        {"client_accuracy", of->client_accuracy},
        {"client_loss", of->client_loss},
        {"clients_trained", (double)of->clients},
        {"examples_trained", (double)of->examples},
        {"bytes_up", (double)of->bytes_up},
        {"bytes_down", (double)of->bytes_down},
        {"clamped", (double)of->clamped},
        {"seconds", of->seconds}};
    return fedge_json_add_numbers(to, numbers, sizeof(numbers) / sizeof(numbers[0])) &&
           (of->model[0] ? cJSON_AddStringToObject(to, "model_sha256", of->model)
                         : cJSON_AddNullToObject(to, "model_sha256"));
}

fedge_status fedge_compare_deployed(const char *dir, cJSON **summary, fedge_error *err)
{
    fedge_run_summary numbers;
    cJSON *job = NULL, *run = NULL;
    char path[FEDGE_MAX_PATH];
    *summary = NULL;
    fedge_run_summary_init(&numbers, NULL, 0);
    fedge_status status;
    FEDGE_TRY_OR(read_object(dir, "run.json", &run, err), done);
    FEDGE_TRY_OR(read_object(dir, "job.json", &job, err), done);
    FEDGE_TRY_OR(fedge_path_join(dir, "rounds.jsonl", path, err), done);
    FEDGE_TRY_OR(fedge_round_lines_read(path, add_line, &numbers, err), done);
    *summary = cJSON_CreateObject();
    if (!*summary || !add_texts(*summary, job, run) || !add_numbers(*summary, &numbers))
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a summary");
done:
    cJSON_Delete(run);
    cJSON_Delete(job);
    return status;
}
