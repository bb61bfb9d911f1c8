/* The part of a job that clients see, read without the server's, of whose reader a device needs
 * nothing. */
#include <stdlib.h>

#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan_fields.h"

#define JOB_VERSION 1

/* The keys of fedge_job_fields; those of the server are passed over. */
const fedge_json_field fedge_job_plan_fields[] = {
    {.key = "$schema", .kind = FEDGE_JSON_IGNORED},
    {.key = "fedge-job", .kind = FEDGE_JSON_IGNORED},
    FEDGE_PLAN_FIELDS,
    {.key = "rounds", .kind = FEDGE_JSON_IGNORED},
    {.key = "strategy", .kind = FEDGE_JSON_IGNORED},
    {.key = "test-set", .aliases = "test_set", .kind = FEDGE_JSON_IGNORED},
    {.key = "keep-best", .aliases = "keep_best", .kind = FEDGE_JSON_IGNORED},
    {.key = "early-stopping", .aliases = "early_stopping", .kind = FEDGE_JSON_IGNORED},
    {.key = "initial-model", .aliases = "initial_model", .kind = FEDGE_JSON_IGNORED},
    {.key = "keep-checkpoints", .aliases = "keep_checkpoints", .kind = FEDGE_JSON_IGNORED},
    {.key = "min-free-disk", .aliases = "min_free_disk", .kind = FEDGE_JSON_IGNORED},
    FEDGE_JSON_END,
};

static fedge_status check_version(const fedge_json *json, fedge_error *err)
{
    const cJSON *version = fedge_json_get(json->root, "fedge-job");
    if (!version) {
        return fedge_json_fail_at(json, "fedge-job", err,
                                  "is missing: begin the job with \"fedge-job\": %d", JOB_VERSION);
    }
    if (!cJSON_IsNumber(version) || version->valuedouble != JOB_VERSION) {
        return fedge_json_fail_at(json, "fedge-job", err,
                                  "must be %d, the version this release "
                                  "knows",
                                  JOB_VERSION);
    }
    return FEDGE_OK;
}

fedge_status fedge_job_open(fedge_json *json, const char *text, size_t size, const char *name,
                            fedge_error *err)
{
    const fedge_json_options options = {.name = name,
                                        .lines = true,
                                        .strict = true,
                                        .status = FEDGE_INVALID_ARGUMENT,
                                        .max_size = FEDGE_JOB_MAX_SIZE,
                                        .max_depth = FEDGE_JSON_MAX_DEPTH,
                                        .max_values = FEDGE_PLAN_MAX_VALUES};
    fedge_status st = fedge_json_open(json, text, size, &options, err);
    if (st != FEDGE_OK)
        return st;
    st = check_version(json, err);
    if (st != FEDGE_OK)
        fedge_json_close(json);
    return st;
}

fedge_status fedge_job_strategy_type(const fedge_json *json, char type[FEDGE_MAX_STRATEGY_NAME],
                                     fedge_error *err)
{
    const cJSON *node = fedge_json_get(fedge_json_get(json->root, "strategy"), "type");
    type[0] = '\0';
    return !node ? FEDGE_OK : fedge_json_text(json, node, 1, type, FEDGE_MAX_STRATEGY_NAME, err);
}

fedge_status fedge_job_check_models(const fedge_json *json, const fedge_plan *plan,
                                    fedge_error *err)
{
    fedge_model_options options = fedge_plan_model_options(plan);
    fedge_model_memory memory;
    fedge_error cause = {0};
    if (plan->external)
        return FEDGE_OK;
    fedge_status st = fedge_model_size(&plan->model, &options, &memory, &cause);
    if (st == FEDGE_OK && fedge_plan_evaluation_options(plan, &options))
        st = fedge_model_size(&plan->model, &options, &memory, &cause);
    return st == FEDGE_OK ? FEDGE_OK
                          : fedge_json_fail_at(json, "model.layers", err, "%s", cause.message);
}

static fedge_status read_plan(const fedge_json *json, fedge_plan *plan, fedge_error *err)
{
    char strategy[FEDGE_MAX_STRATEGY_NAME];
    fedge_status st = fedge_json_read(json, json->root, fedge_job_plan_fields, plan, err);
    if (st == FEDGE_OK)
        st = fedge_job_strategy_type(json, strategy, err);
    if (st == FEDGE_OK) {
        plan->hooks = fedge_client_hooks_find(strategy);
        st = fedge_hooks_read_arguments(json, fedge_json_get(json->root, "strategy"), plan, err);
    }
    if (st == FEDGE_OK)
        st = fedge_plan_derive(json, plan, err);
    return st == FEDGE_OK ? fedge_job_check_models(json, plan, err) : st;
}

fedge_status fedge_job_load_plan(const char *path, fedge_plan **plan, fedge_error *err)
{
    *plan = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_json json;
    fedge_status st = fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &text, &size, err);
    if (st != FEDGE_OK)
        return st;
    st = fedge_job_open(&json, (const char *)text, size, path, err);
    if (st == FEDGE_OK) {
        fedge_plan *made = calloc(1, sizeof(*made));
        st = !made ? fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for a plan", path)
                   : read_plan(&json, made, err);
        if (st == FEDGE_OK)
            *plan = made;
        else
            fedge_plan_free(made);
        fedge_json_close(&json);
    }
    free(text);
    return st;
}
