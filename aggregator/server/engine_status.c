#include <cjson/cJSON.h>

#include "aggregator/server/engine.h"

fedge_status fedge_engine_status_json(const fedge_engine_status *status, char **text,
                                      fedge_error *err)
{
    cJSON *json = cJSON_CreateObject();
    /* What is not finite becomes null. */
    bool made = cJSON_AddNumberToObject(json, "rounds", status->rounds_closed) &&
                cJSON_AddNumberToObject(json, "accuracy", status->accuracy) &&
                cJSON_AddNumberToObject(json, "loss", status->loss) &&
                cJSON_AddNumberToObject(json, "bytes_up", (double)status->run_bytes_up) &&
                cJSON_AddNumberToObject(json, "bytes_down", (double)status->run_bytes_down) &&
                cJSON_AddNumberToObject(json, "seconds", status->seconds) &&
                cJSON_AddStringToObject(json, "model_sha256", status->model_hash) &&
                cJSON_AddStringToObject(json, "run_dir", status->run_dir);
    *text = made ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the summary");
}
