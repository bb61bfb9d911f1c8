/* What a sweep leaves beside its runs. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/plot.h"
#include "aggregator/simulate/output/results.h"
#include "aggregator/simulate/sweep/sweep_internal.h"
#include "aggregator/store/disk.h"
#include "edge/core/os.h"

#define MAX_TITLE 320

typedef struct path_text {
    char text[FEDGE_MAX_PATH];
} path_text;

/* The curve of a combination: the logs of its seeds that did not fail. All NULL on failure. */
typedef struct drawn {
    char name[FEDGE_SWEEP_MAX_FOLDER];
    path_text *paths;
    const char **logs;
} drawn;

static fedge_status list_logs(const fedge_sweep *sweep, uint32_t combination, drawn *to,
                              fedge_plot_curve *curve, fedge_error *err)
{
    to->paths = calloc(sweep->num_seeds, sizeof(*to->paths));
    to->logs = calloc(sweep->num_seeds, sizeof(*to->logs));
    *curve = (fedge_plot_curve){.name = fedge_sweep_curve_name(sweep, combination, to->name),
                                .jsonl_paths = to->logs};
    if (!to->paths || !to->logs) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " paths",
                          sweep->num_seeds);
    }
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < sweep->num_seeds && status == FEDGE_OK; i++) {
        const sweep_outcome *of = &sweep->outcomes[(size_t)combination * sweep->num_seeds + i];
        path_text folder;
        if (!of->done || of->failed)
            continue;
        status = fedge_sweep_run_folder(sweep, combination, i, folder.text, err);
        if (status == FEDGE_OK) {
            status =
                fedge_path_join(folder.text, "rounds.jsonl", to->paths[curve->num_runs].text, err);
        }
        to->logs[curve->num_runs] = to->paths[curve->num_runs].text;
        curve->num_runs++;
    }
    return status;
}

/* ---- which ----------------------------------------------------------------------------------- */

static bool has_good(const fedge_sweep *sweep, uint32_t combination)
{
    for (uint32_t i = 0; i < sweep->num_seeds; i++) {
        const sweep_outcome *of = &sweep->outcomes[(size_t)combination * sweep->num_seeds + i];
        if (of->done && !of->failed)
            return true;
    }
    return false;
}

/* How many are better than this one, or as good and before it. */
static uint32_t place_of(const double *merits, uint32_t count, uint32_t at)
{
    uint32_t place = 0;
    for (uint32_t i = 0; i < count; i++)
        place += merits[i] > merits[at] || (i < at && !(merits[i] < merits[at]));
    return place;
}

/* The combinations to draw, in their order; *num_good: of how many. */
static fedge_status choose(const fedge_sweep *sweep, uint32_t chosen[FEDGE_PLOT_MAX_CURVES],
                           uint32_t *count, uint32_t *num_good, fedge_error *err)
{
    double *merits = malloc(sweep->num_combinations * sizeof(*merits));
    uint32_t *good = malloc(sweep->num_combinations * sizeof(*good));
    *count = *num_good = 0;
    if (!merits || !good) {
        free(merits);
        free(good);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw a sweep");
    }
    for (uint32_t c = 0; c < sweep->num_combinations; c++) {
        if (has_good(sweep, c)) {
            const double merit = fedge_sweep_merit(sweep, c);
            merits[*num_good] = isfinite(merit) ? merit : -INFINITY;
            good[(*num_good)++] = c;
        }
    }
    for (uint32_t i = 0; i < *num_good; i++) {
        if (*num_good <= FEDGE_PLOT_MAX_CURVES ||
            place_of(merits, *num_good, i) < FEDGE_PLOT_MAX_CURVES)
            chosen[(*count)++] = good[i];
    }
    free(merits);
    free(good);
    return FEDGE_OK;
}

/* ---- the picture ----------------------------------------------------------------------------- */

/* The job's name, and how many of how many are drawn if not all. */
static void make_title(const fedge_sweep *sweep, uint32_t count, uint32_t num_good,
                       char title[MAX_TITLE])
{
    cJSON *job = cJSON_ParseWithLength(sweep->job_text, sweep->job_size);
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(job, "name"));
    const int size = snprintf(title, MAX_TITLE, "%.200s", name ? name : "sweep");
    if (count < num_good && size > 0) {
        (void)snprintf(title + size, MAX_TITLE - (size_t)size, ": the best %" PRIu32 " of %" PRIu32,
                       count, num_good);
    }
    cJSON_Delete(job);
}

static fedge_status draw(const fedge_sweep *sweep, const char *path, fedge_error *err)
{
    uint32_t chosen[FEDGE_PLOT_MAX_CURVES], count = 0, num_good = 0;
    fedge_plot_curve curves[FEDGE_PLOT_MAX_CURVES];
    char title[MAX_TITLE];
    fedge_status status = choose(sweep, chosen, &count, &num_good, err);
    if (status != FEDGE_OK || count == 0)
        return status;
    drawn *of = calloc(count, sizeof(*of));
    if (!of)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to draw a sweep");
    for (uint32_t i = 0; i < count && status == FEDGE_OK; i++)
        status = list_logs(sweep, chosen[i], &of[i], &curves[i], err);
    if (status == FEDGE_OK) {
        make_title(sweep, count, num_good, title);
        status = fedge_plot_curves(curves, count, path, title, err);
    }
    for (uint32_t i = 0; i < count; i++) {
        free(of[i].paths);
        free(of[i].logs);
    }
    free(of);
    return status;
}

fedge_status fedge_sweep_leave(const fedge_sweep *sweep, fedge_error *err)
{
    path_text path;
    const char *out = sweep->options->out;
    if (!out)
        return FEDGE_OK;
    FEDGE_TRY(fedge_path_join(out, FEDGE_SWEEP_TABLE, path.text, err));
    FEDGE_TRY(fedge_sweep_write_csv(sweep, path.text, err));
    FEDGE_TRY(fedge_path_join(out, FEDGE_SWEEP_PICTURE, path.text, err));
    return draw(sweep, path.text, err);
}
