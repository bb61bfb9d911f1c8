#include "aggregator/rounds/strategies/initial_models.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/rounds/global_model.h"

#define KEY "strategy.initial-models"

static uint32_t count_lines(const char *text)
{
    uint32_t count = text[0] != '\0';
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

fedge_status fedge_initial_models_check(const fedge_json *json, const fedge_job *job,
                                        uint32_t wanted, fedge_initial_models *of, fedge_error *err)
{
    const uint32_t count = count_lines(of->paths);
    if (!job->plan.external) {
        return count == 0 ? FEDGE_OK
                          : fedge_json_fail_at(json, KEY, err,
                                               "is for external models; the others begin with "
                                               "seeds of their own: remove it");
    }
    if (count != wanted) {
        return fedge_json_fail_at(json, KEY, err,
                                  "has %u files; IFCA's %u further models need one each, unlike "
                                  "each other and unlike initial-model",
                                  (unsigned)count, (unsigned)wanted);
    }
    return fedge_paths_resolve(json->options.name, of->paths)
               ? FEDGE_OK
               : fedge_json_fail_at(json, KEY, err,
                                    "is over %d bytes with the folder of the job before each path",
                                    FEDGE_MAX_PATHS - 1);
}

fedge_status fedge_initial_models_read(const fedge_job *job, const fedge_initial_models *of,
                                       float *values, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    for (const char *at = of->paths; *at; values += job->plan.schema.num_elements) {
        const size_t length = strcspn(at, "\n");
        (void)snprintf(path, sizeof(path), "%.*s", (int)length, at);
        at += length + (at[length] == '\n');
        const fedge_status status = fedge_read_model(path, &job->plan.schema, values, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "initial-models: %s", path);
    }
    return FEDGE_OK;
}
