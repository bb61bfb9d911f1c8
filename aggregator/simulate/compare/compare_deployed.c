/* The summary of a run of a server, from what it leaves in its folder (aggregator/store/run.h):
 * numbers as a simulation's summary.json has them, and null for what a server does not know. */
#include <math.h>

#include "aggregator/simulate/compare/compare_internal.h"
#include "aggregator/simulate/output/run_summary.h"
#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"
#include "aggregator/store/round_log.h"
#include "edge/core/os.h"
#include "edge/plan/plan.h"

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
    fedge_status status = read_object(dir, "run.json", &run, err);
    if (status == FEDGE_OK)
        status = read_object(dir, "job.json", &job, err);
    if (status == FEDGE_OK)
        status = fedge_path_join(dir, "rounds.jsonl", path, err);
    if (status == FEDGE_OK)
        status = fedge_round_lines_read(path, add_line, &numbers, err);
    if (status == FEDGE_OK) {
        *summary = cJSON_CreateObject();
        if (!*summary || !add_texts(*summary, job, run) || !add_numbers(*summary, &numbers))
            status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a summary");
    }
    cJSON_Delete(run);
    cJSON_Delete(job);
    return status;
}
