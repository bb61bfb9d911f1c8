#include "aggregator/simulate/compare/compare.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/plot.h"
#include "aggregator/simulate/compare/compare_internal.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/simulate/sweep/sweep.h"
#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"
#include "edge/core/os.h"
#include "edge/plan/plan.h"

#define MAX_SUMMARY ((size_t)1 << 20) /* bytes of summary.json */
#define PICTURE_SUFFIX ".svg"
#define TABLE_SUFFIX ".csv"

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

/* Is it writing that failed, and none of the folders that is at fault? */
static bool is_writing(fedge_status status)
{
    return status != FEDGE_OK && status != FEDGE_CORRUPT && status != FEDGE_NO_MEMORY &&
           status != FEDGE_NO_SPACE;
}

/* The curve of a group, over the logs of its runs that count, [paths] on. */
static fedge_status list_logs(const comparison *of, uint32_t group, char (*paths)[FEDGE_MAX_PATH],
                              const char **logs, fedge_plot_curve *curve, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    *curve = (fedge_plot_curve){.name = of->groups[group].name, .jsonl_paths = logs};
    for (uint32_t i = 0; i < of->num_runs && status == FEDGE_OK; i++) {
        if (of->runs[i].group != group || !of->runs[i].counts)
            continue;
        status = fedge_path_join(of->runs[i].dir, "rounds.jsonl", paths[curve->num_runs], err);
        logs[curve->num_runs] = paths[curve->num_runs];
        if (status == FEDGE_OK && !fedge_os_exists(paths[curve->num_runs])) {
            status =
                fedge_fail(err, FEDGE_NOT_FOUND, "there is no %s to draw", paths[curve->num_runs]);
        }
        curve->num_runs++;
    }
    return status;
}

/* That of all the runs, if they are of one. */
static const char *job_of(const comparison *of)
{
    const cJSON *job = cJSON_GetObjectItemCaseSensitive(of->runs[0].summary, "job");
    for (uint32_t i = 1; i < of->num_runs; i++) {
        if (!cJSON_Compare(job, cJSON_GetObjectItemCaseSensitive(of->runs[i].summary, "job"), true))
            return "runs";
    }
    return cJSON_IsString(job) ? job->valuestring : "runs";
}

static fedge_status draw(const comparison *of, const char *svg_path, fedge_error *err)
{
    assert(of->num_runs > 0); /* else reading has failed */
    char(*paths)[FEDGE_MAX_PATH] = calloc(of->num_runs, sizeof(*paths));
    const char **logs = calloc(of->num_runs, sizeof(*logs));
    fedge_plot_curve curves[FEDGE_PLOT_MAX_CURVES];
    fedge_status status =
        paths && logs ? FEDGE_OK
                      : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u paths", of->num_runs);
    uint32_t at = 0;
    for (uint32_t g = 0; g < of->num_groups && status == FEDGE_OK; g++) {
        status = list_logs(of, g, &paths[at], &logs[at], &curves[g], err);
        at += curves[g].num_runs;
    }
    if (status == FEDGE_OK) {
        status = fedge_plot_curves(curves, of->num_groups, svg_path, job_of(of), err);
        status = is_writing(status) ? fedge_error_prefix(err, FEDGE_IO, "--out") : status;
    }
    free(paths);
    free(logs);
    return status;
}

/* The picture, and the table beside it. */
static fedge_status write_files(const comparison *of, const char *svg_path, fedge_error *err)
{
    const int stem = (int)(strlen(svg_path) - strlen(PICTURE_SUFFIX));
    char csv_path[FEDGE_MAX_PATH];
    const int size = snprintf(csv_path, sizeof(csv_path), "%.*s" TABLE_SUFFIX, stem, svg_path);
    fedge_status status = draw(of, svg_path, err);
    if (status == FEDGE_OK) {
        status = size < FEDGE_MAX_PATH
                     ? fedge_compare_write_csv(of, csv_path, err)
                     : fedge_fail(err, FEDGE_TOO_BIG, "a path over %d bytes", FEDGE_MAX_PATH - 1);
        status = status == FEDGE_OK || status == FEDGE_NO_MEMORY || status == FEDGE_NO_SPACE
                     ? status
                     : fedge_error_prefix(err, FEDGE_IO, "--out");
    }
    return status;
}

/* What a sweep leaves beside its runs, and grid/\* names too. */
static bool is_sweeps(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return (strcmp(name, FEDGE_SWEEP_TABLE) == 0 || strcmp(name, FEDGE_SWEEP_PICTURE) == 0) &&
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
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < num_dirs && status == FEDGE_OK; i++) {
        if (num_dirs == 1 || !is_sweeps(dirs[i]))
            status = read_run(dirs[i], &to->runs[to->num_runs++], err);
    }
    return status == FEDGE_OK && to->num_runs == 0
               ? fedge_fail(err, FEDGE_NOT_FOUND, "%.200s has no simulation", dirs[0])
               : status;
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
    fedge_status status = read_runs(what->dirs, what->num_dirs, &of, err);
    if (status == FEDGE_OK)
        status = fedge_compare_group(&of, what->each, err);
    if (status == FEDGE_OK && what->svg_path && of.num_groups > FEDGE_PLOT_MAX_CURVES) {
        status = fedge_fail(err, FEDGE_OUT_OF_RANGE, "--out: %u lines, and a picture takes 1 to %d",
                            of.num_groups, FEDGE_PLOT_MAX_CURVES);
    }
    for (uint32_t i = 0; i < of.num_runs && what->json && status == FEDGE_OK; i++)
        status = print_json(out, of.runs[i].dir, of.runs[i].summary, err);
    if (status == FEDGE_OK && !what->json)
        fedge_compare_print(&of, out);
    if (status == FEDGE_OK && what->svg_path)
        status = write_files(&of, what->svg_path, err);
    free_comparison(&of);
    return status;
}
